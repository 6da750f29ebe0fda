"""Wrong files and wrong command lines: each is refused with what is wrong, and none ends in a traceback."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.cli.main import app
from experiments.inputs.scenario import load
from experiments.runtime import exit_status
from topologies.errors import SpecError


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
    *(("simulate", name, "--draw-only") for name in ("folder", "binary", "none")),
    *(("reclaim", "h1", "--campus", "none", "--notice", text) for text in ("-1", "nan", "inf", "x")),
    *((command, "h1", "--campus", "none") for command in ("return", "reclaim")),
    ("simulate", "good.toml", "--system", "nosuch"),
    *(("submit", name) for name in ("folder", "binary", "none", "good.toml")),
    *((command, "j1", "--campus", "none") for command in ("cancel", "logs", "observe")),
    *((command, "--campus", "none") for command in ("jobs", "events", "observe", "dashboard")),
    *(("dashboard", name) for name in ("folder", "binary", "empty", "none")),
    ("sweep", "good.toml", "--set", f"beta={'9' * 5000}"),
    ("sweep", "good.toml", "--set", f"beta={'[' * 20_000}"),
    *(("sweep", name) for name in ("folder", "binary", "none", "example:nosuch")),
    *(
        ("sweep", "good.toml", *how)
        for how in (("--seeds", "1,1"), ("--set", "x"), ("--figures", "x"), ("--dask", "x"))
    ),
    ("storm", "--seeds", "0:2", "--result", "folder"),
    ("reproduce", "B2", "--quick", "--result", "none/page.md"),
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
    assert exit_status.run(lambda: app(list(line), standalone_mode=False)) == exit_status.ExitStatus.NOT_RUN
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert len(told.strip()) > 20
