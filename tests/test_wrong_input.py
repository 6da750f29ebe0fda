"""Wrong files and wrong command lines, seeded: each is refused with what is wrong, and none ends in a traceback."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.cli.main import app
from experiments.inputs.scenario import dumps, load
from experiments.inputs.traces import trace_of
from experiments.runtime import ending
from topologies.errors import SpecError

VALUES = (
    *(
        "0",
        "-1",
        "1e400",
        "nan",
        "-inf",
        "true",
        '""',
        '"x"',
        "[]",
        "{}",
        "[1]",
        "99999999999999999999",
        "1e-320",
        "1979-05-27",
    ),
    *(
        '"0 s"',
        '"-5 s"',
        '"5 parsec"',
        '"inf"',
        '"\\u0000"',
        '[["a"]]',
        '"desk1"',
        '"coord"',
        '"1e-300 s"',
        "1e300",
        '"algorithm1"',
    ),
    *(
        '{ law = "exponential" }',
        '{ law = "gamma", mean = "1 s", shape = 0 }',
        '{ law = "uniform", mean = "1 s", spread = 2 }',
    ),
)


def mutated(text: str, draw: random.Random) -> str:
    """One line of a file with another value, doubled, left out, or with a character that does not belong there."""
    lines = text.splitlines()
    place = draw.choice([number for number, line in enumerate(lines) if line.strip()])
    line = lines[place]
    match draw.randrange(4):
        case 0:
            lines.insert(place, draw.choice(lines))
        case 1:
            del lines[place]
        case 2:
            column = draw.randrange(len(line))
            lines[place] = line[:column] + draw.choice('"[]{}=,\x00é#.') + line[column:]
        case _:
            found = draw.choice(
                list(re.finditer(r"[0-9.]+|\"[^\"]*\"|[a-z_]+", line)) or [re.match("", line)]
            )
            assert found is not None
            lines[place] = line[: found.start()] + draw.choice(VALUES) + line[found.end() :]
    return "\n".join(lines) + "\n"


def test_every_wrong_scenario_is_refused_with_file_key_value_and_what_is_allowed(tmp_path: Path) -> None:
    draw, whole, refused = random.Random(14), dumps(load("example:lab")), 0
    file = tmp_path / "wrong.toml"
    for _ in range(150):
        file.write_text(mutated(whole, draw))
        try:
            scenario = load(file)
            trace_of(scenario, ())
        except SpecError as error:
            refused += 1
            assert error.source == str(file)
            assert error.key
            assert error.allowed
    assert refused > 80


@pytest.mark.parametrize(
    ("section", "line", "told"),
    [
        ("queue", "level_start = 9", "queue.level_start = 9.0: at most level_max, 8"),
        ("queue", 'level_step = "0 /h"', "queue.level_step = 0.0: "),
        ("protocol", 'policy = "nosuch"', "protocol.policy = 'nosuch': one of slurm-pr, "),
        ("jobs", 'step = "1e-300 s"', "jobs.step = 1e-300: at most 1e+09 steps in a job"),
        ("scale", "bytes = 1e-250", "scale.bytes = 1e-250: a number from 1e-12 to 1e+12"),
    ],
)
def test_what_only_a_run_would_have_found_is_found_in_the_file(
    tmp_path: Path, section: str, line: str, told: str
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(f'name = "wrong"\ncampus = "example:lab"\n[{section}]\n{line}\n')
    with pytest.raises(SpecError) as raised:
        load(file)
    assert str(raised.value).startswith(f"{file}: {told}")


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
    *(("theory", "check", name) for name in FILES),
    *(("up", "--hosts", "2", "--script", name) for name in ("folder", "binary", "none")),
    *(("up", "--campus", name) for name in FILES[1:8]),
    *(("run", "good.toml", "--trace", name) for name in ("binary", "empty", "deep.json", "a" * 300)),
    *(("storm", "--replay", name) for name in ("folder", "binary", "none", "a" * 300)),
    *(
        ("storm", "--seeds", text)
        for text in ("x", "1:1", "5:2", "-1:2", "1:2:3", "", "1:", "0:" + "9" * 5000)
    ),
    *(("demo", "--seconds", text) for text in ("-1", "0", "nan", "inf", "x", "1e400")),
    *(("demo", "--hosts", text) for text in ("0", "-1", "2001", "x")),
    *(("traces", "--days", text) for text in ("-1", "0", "nan", "inf", "x", "1e9")),
    *(("reclaim", "h1", "--campus", "none", "--notice", text) for text in ("-1", "nan", "inf", "x")),
    *((command, "h1", "--campus", "none") for command in ("return", "reclaim")),
    ("simulate", "good.toml", "--system", "nosuch"),
    *(("submit", name) for name in ("folder", "binary", "none", "good.toml")),
    *((command, "j1", "--campus", "none") for command in ("cancel", "logs", "capture")),
    *((command, "--campus", "none") for command in ("jobs", "events", "observe", "dashboard")),
    *(("dashboard", name) for name in ("folder", "binary", "empty", "none")),
    *(("sweep", name) for name in ("folder", "binary", "none", "example:nosuch")),
    *(
        ("sweep", "good.toml", *how)
        for how in (("--seeds", "1,1"), ("--set", "x"), ("--figures", "x"), ("--dask", "x"))
    ),
    ("storm", "--seeds", "0:2", "--result", "folder"),
    ("reproduce", "B2", "--quick", "--result", "none/page.md"),
    ("reproduce", "B2", "--quick", "--only", "notice"),
    ("reproduce", "B2", "--quick", "--traces", "folder"),
    ("reproduce", "B2", "--quick", "--system", "static"),
    ("measure", "hazard", "--data", "folder"),
    ("measure", "controllers", "--traces", "folder"),
    ("compare", "good.toml", "--runs", "3", "--trace", "none"),
    ("simulate", "good.toml", "--seed", "-1"),
    ("simulate", "good.toml", "--out", "empty"),
    ("demo", "--group", "no-such-group"),
    ("up", "--hosts", "3", "--buildings", "0"),
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
    assert ending.run(lambda: app(list(line), standalone_mode=False)) == ending.ExitStatus.NOT_RUN
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert len(told.strip()) > 20
