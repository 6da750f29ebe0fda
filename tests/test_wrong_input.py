"""Wrong files and wrong command lines: each is refused with what is wrong, and none ends in a traceback.

Named mistakes first: those of `wrong_files.toml`. Then files
with a line or some bytes wrong: `RECLAIMNET_FUZZ=20 RECLAIMNET_FUZZ_SEED=x` tries twenty times as many, others.
"""

import os
import random
import re
import shutil
import signal
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from experiments.api import simulate
from experiments.cli.compare import storm as storm_command
from experiments.cli.main import app
from experiments.inputs.job_file import load_job
from experiments.inputs.scenario import Scenario, dumps, load
from experiments.inputs.traces import trace_of
from experiments.results.runs.folders import read_summary
from experiments.runtime import exit_status
from experiments.sweeps.plan import read_plan
from topologies import files
from topologies.errors import SpecError
from topologies.presets import three_tier

ROWS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("wrong_files.toml").read_text())
RIGHT: dict[str, str] = ROWS.pop("right")
NUMBER, GAP = RIGHT["campus"].partition("8.6"), ('{"metadata": {"gap_seconds": ', '}, "data": [1, 2]}')
# (text, key, part of what is allowed) of files that are too long to be read
HUGE: dict[str, dict[str, tuple[str, str, str]]] = {
    "campus": {
        "huge integer": (("9" * 4000).join(NUMBER[::2]), "gpu_models.m.compute_capability", "8.6"),
        "huge hexadecimal": (("0x" + "f" * 9000).join(NUMBER[::2]), "gpu_models.m.compute_capability", "8.6"),
        "too many digits": (("9" * 5000).join(NUMBER[::2]), "line 22", "TOML"),
        "nested": ("a = " + "[" * 5000, "TOML", "nested"),
    },
    "record": {
        "deep JSON": ("[" * 100_000, "JSON", "depth"),
        "gap huger": (str(10**400).join(GAP), "metadata.gap_seconds", "to 2.592e+06"),
        "digits": (("9" * 5000).join(GAP), "JSON", "length"),
    },
}


def rows(kind: str) -> dict[str, tuple[str, str, str]]:
    """Return the mistakes that a reader names."""
    found = dict(HUGE.get(kind, {}))
    for case, row in ROWS[kind].items():
        right = RIGHT.get(row.get("after", kind), "")
        text = row.get("text", right.replace(*row.get("replace", ("", "")), 1) + row.get("add", ""))
        found[case] = text, row["key"], row["allowed"]
    return found


NINE, FOUR = (Scenario("x", three_tier(hosts, 1 + hosts % 2), duration_s=s) for hosts, s in ((9, 3000.0), (4, 1e9)))
# the name of the file, and its reader
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "campus": ("mine.toml", files.load),
    "scenario": ("mine.toml", load),
    "job": ("mine.toml", load_job),
    "record": ("mine.csv", lambda path: trace_of(NINE, [path])),
    "storm": ("mine.txt", lambda path: storm_command(replay=path)),
    "sweep": ("mine.toml", lambda path: read_plan(str(path))),
    "plan": ("mine.toml", lambda path: read_plan(str(path))),
    "graphml": ("mine.graphml", files.load),
}


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind in READERS for case in rows(kind)])
def test_a_mistake_in_a_file_is_named_with_what_is_allowed(kind: str, case: str, tmp_path: Path) -> None:
    (name, read), (text, key, allowed) = READERS[kind], rows(kind)[case]
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError) as caught:
        read(tmp_path / name)
    assert caught.value.key.removeprefix(f"{tmp_path}/") == key and allowed in caught.value.allowed, caught.value
    # a plan can be wrong by its file or by the options beside it
    assert kind == "plan" or str(caught.value).startswith(str(tmp_path / name))
    assert len(str(caught.value)) < 900


def test_a_syntax_error_shows_the_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "x"\nrate "1 Gbit/s"\n')
    with pytest.raises(SpecError) as caught:
        files.load(tmp_path / "mine.toml")
    assert (caught.value.key, caught.value.value) == ("line 2", 'rate "1 Gbit/s"')


def test_what_is_no_readable_text_file_is_refused(tmp_path: Path) -> None:
    binary, huge = tmp_path / "binary.toml", tmp_path / "huge.toml"
    binary.write_bytes(b'name = "x"\n\xff\xfe\x00')
    huge.write_bytes(b"#" * (9 << 20))
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    os.mkfifo(tmp_path / "pipe.toml")
    cases = {
        binary: "not binary",
        huge: "at most 8 MiB",
        tmp_path: "not a regular file",
        tmp_path / "none.toml": "does not exist",
        tmp_path / "pipe.toml": "not a regular file",
        Path("/dev/zero"): "not a regular file",
        Path("a\0b"): "campus file",
        tmp_path / ("x" * 300): "campus file",
        loop: "campus file",
    }
    for path, message in cases.items():
        with pytest.raises(SpecError) as caught:
            files.load(path)
        assert message in str(caught.value), (path, caught.value)
        assert path.name in str(caught.value) or "\0" in path.name


# ---------------------------------------------------------------- a line or some bytes at random
TIMES = int(os.environ.get("RECLAIMNET_FUZZ", "1"))
FUZZ_SEED = os.environ.get("RECLAIMNET_FUZZ_SEED", "14")
A_KIND = 60
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
LAB = load("example:lab")
VALUES = (
    *("0", "-1", "1e400", "nan", "-inf", "inf", "true", '""', '"x"', "[]", "{}", "[1]", "99999999999999999999", "1e-320"),
    *('"0 s"', '"-5 s"', '"5 parsec"', '"inf"', '"\\u0000"', '[["a"]]', '"desk1"', '"coord"', '"1e-300 s"', "0x10", "1 h", "h1"),
    *('"algorithm1"', "1979-05-27", "2023-13-01", "null", "1e15", "-0.0", "desk1", "9" * 400, "٣", "é", ",", "\n", "\x00", ""),
    *('{ law = "exponential" }', '{ law = "gamma", mean = "1 s", shape = 0 }', '{ law = "uniform", mean = "1 s", spread = 2 }'),
)  # fmt: skip


def one_line_wrong(text: str, draw: random.Random) -> str:
    """One line of a file with another value, doubled, left out, elsewhere, or with a character that does not belong there."""
    lines = text.splitlines()
    place = draw.choice([number for number, line in enumerate(lines) if line.strip()])
    line = lines[place]
    match draw.randrange(5):
        case 0:
            lines.insert(place, draw.choice(lines))
        case 1:
            del lines[place]
        case 2:
            column = draw.randrange(len(line))
            lines[place] = line[:column] + draw.choice('"[]{}=,\x00é#.<>\ufeff\u2028') + line[column:]
        case 3:
            lines.insert(draw.randrange(len(lines)), lines.pop(place))
        case _:
            found = draw.choice(list(re.finditer(r"[0-9.]+|\"[^\"]*\"|[a-z_]+", line)) or [re.match("", line)])
            lines[place] = line[: found.start()] + draw.choice(VALUES) + line[found.end() :]
    return "\n".join(lines) + "\n"


def some_bytes_wrong(data: bytes, draw: random.Random) -> bytes:
    """Cut off, flipped, or with bytes that are no text."""
    place = draw.randrange(len(data))
    match draw.randrange(3):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]
        case _:
            return data[:place] + draw.randbytes(3) + data[place:]


def example(name: str, folder: Path) -> str:
    """Return an example of the documentation; those that it names lie in the folder."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    return (EXAMPLES / name).read_text()


def a_summary(folder: Path) -> str:
    simulate(replace(LAB, duration_s=60.0)).write(folder)
    text = (folder / "summary.json").read_text()
    return text if text.count("\n") > 9 else text.replace(",", ",\n")


def of_owners(path: Path) -> object:
    return trace_of(LAB, [path])


STORM = Path(__file__).parent / "scenarios" / "copy_that_went_bad_is_received_anew_from_a_good_one.txt"
OWNERS = "time,host,event,notice\n0,desk3,away,\n20 min,desk1,reclaim,3 min\n40 min,desk2,emergency,\n"
LIVES = "".join(f"2019-02-18T{n % 24:02}:00:00Z,{1 + n % 5},{n % 2}\n" for n in range(40))
# a right file, and its reader
KINDS: dict[str, tuple[Callable[[Path], str], Callable[[Path], object]]] = {
    "scenario": (lambda _: dumps(LAB), lambda path: trace_of(load(path), ())),
    "scenario by hand": (partial(example, "evening.toml"), load),
    "campus": (lambda _: files.dumps(three_tier(5, 2)), files.load),
    "job": (partial(example, "counting.toml"), load_job),
    "program": (partial(example, "adding.toml"), load_job),
    "sweep": (partial(example, "sweep.toml"), lambda path: read_plan(str(path))),
    "owners' events": (lambda _: OWNERS, of_owners),
    "counts": (
        lambda _: '{"metadata": {"gap_seconds": 600},\n"data": [' + ",\n".join("32131201" * 9) + "]}\n",
        of_owners,
    ),
    "counts as CSV": (lambda _: RIGHT["zones"] + "".join(f"{600 * n},{n % 4},1\n" for n in range(30)), of_owners),
    "lifetimes": (lambda _: f"started_at,lifetime_h,preempted\n{LIVES}", of_owners),
    "storm": (lambda _: STORM.read_text(), lambda path: storm_command(replay=path)),
    "summary": (a_summary, read_summary),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_file_is_read_or_refused_in_words_that_name_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw, refused, said = random.Random(f"{FUZZ_SEED} {kind}"), 0, list[str]()
    made, read = KINDS[kind]
    whole = made(tmp_path)
    file = tmp_path / "wrong.toml"

    def put(data: bytes) -> Any:
        file.write_bytes(data)
        return read(file)

    put(whole.encode())  # it is right as it is
    for _ in range(A_KIND * TIMES):
        data = one_line_wrong(whole, draw).encode()
        if not draw.randrange(4):
            data = some_bytes_wrong(data, draw)
        try:
            put(data)
        except SpecError as error:
            refused += 1
            if not (error.allowed and error.key and (error.source or str(tmp_path) in str(error))):
                said.append(f"names not all: {error!r} of {data!r}")
        except Exception as error:  # noqa: BLE001 - which, the test says
            said.append(f"{type(error).__name__} {error} of {data!r}")
    assert not said, "\n\n".join(said[:5])
    assert refused > A_KIND * TIMES // 10


# ---------------------------------------------------------------- command lines
FILES = (
    "folder",
    "empty",
    "binary",
    "none",
    "",
    "example:nosuch",
    "example:../lab",
    "/dev/null",
    "a" * 300,
    "a\0b",
    "deep.json",
)
LINES = [
    *(("simulate", name) for name in FILES),
    *(("up", "--hosts", "2", "--script", name) for name in ("folder", "binary", "none")),
    *(("up", "--campus", name) for name in FILES[1:8]),
    *(("up", "--scenario", name, "--campus", "example:lab") for name in ("none", "good.toml")),
    *(("run", "good.toml", "--trace", name) for name in ("binary", "empty", "deep.json", "a" * 300)),
    *(("storm", "--replay", name) for name in ("folder", "binary", "none", "a" * 300)),
    *(("storm", "--seeds", text) for text in ("x", "1:1", "5:2", "-1:2", "1:2:3", "", "1:", "0:" + "9" * 5000)),
    *(("demo", "--seconds", text) for text in ("-1", "0", "nan", "inf", "x", "1e400")),
    *(("demo", "--hosts", text) for text in ("0", "-1", "2001", "x")),
    *(("simulate", name) for name in ("folder", "binary", "none")),
    *(("reclaim", "h1", "--campus", "none", "--notice", text) for text in ("-1", "nan", "inf", "x")),
    *((command, "h1", "--campus", "none") for command in ("return", "reclaim")),
    ("simulate", "good.toml", "--system", "nosuch"),
    *(("submit", name) for name in ("folder", "binary", "none", "good.toml")),
    *((command, "j1", "--campus", "none") for command in ("cancel", "logs")),
    *((command, "--campus", "none") for command in ("jobs", "events", "dashboard")),
    *(("dashboard", name) for name in ("folder", "binary", "empty", "none")),
    ("sweep", "good.toml", "--set", f"beta={'9' * 5000}"),
    ("sweep", "good.toml", "--set", f"beta={'[' * 20_000}"),
    *(("sweep", name) for name in ("folder", "binary", "none", "example:nosuch")),
    *(
        ("sweep", "good.toml", *how)
        for how in (("--seeds", "1,1"), ("--set", "x"), ("--figures", "x"), ("--dask", "x"))
    ),
    ("storm", "--seeds", "0:2", "--result", "folder"),
    ("reproduce", "B2", "--from", "."),
    ("reproduce", "B2", "--quick", "--only", "notice"),
    ("reproduce", "B2", "--quick", "--trace", "folder"),
    ("reproduce", "B2", "--quick", "--system", "static"),
    ("measure", "hazard"),
    ("measure", "scale", "--hosts", "3"),
    ("measure", "rates", "--hosts", "9"),
    ("measure", "links", "queue"),
    ("compare", "good.toml", "--runs", "3", "--trace", "none"),
    ("simulate", "good.toml", "--seed", "-1"),
    ("simulate", "good.toml", "--out", "empty"),
    ("demo", "--group", "no-such-group"),
    ("reproduce", "nosuch"),
    ("status", "--campus", "none"),
    ("nosuch",),
    ("simulate",),
    ("demo", "--nosuch"),
]


@pytest.fixture
def wrong_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGHUP)}
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "good.toml").write_text('name = "good"\ncampus = "example:lab"\n')
    monkeypatch.chdir(tmp_path)
    yield
    for signum, handler in kept.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line)[:60])
@pytest.mark.usefixtures("wrong_files")
def test_a_wrong_command_line_is_status_2_and_one_clear_error(
    line: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_status.run(lambda: app(list(line), standalone_mode=False)) == exit_status.ExitStatus.NOT_RUN
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert len(told.strip()) > 20
