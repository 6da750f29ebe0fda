"""The program begins whatever streams, locale, path and packages it is given."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import reclaimnet
from experiments.cli import status
from experiments.cli.main import app
from experiments.inputs.scenario.files import loads
from experiments.inputs.traces import generate
from experiments.runtime.exit_status import ExitStatus, report
from experiments.worlds.virtual import simulate
from testbed.linux import find_program
from topologies.plugins import PROJECT

ROOT = Path(__file__).parents[1]
SHORT = 'name = "short"\nduration = "10 min"\ncampus = "example:lab"\n'
# a locale without letters beyond ASCII, not mended by Python as it would by itself
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def started(
    *words: str | bytes, here: Path = ROOT, streams: str = "", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    argv = ["/bin/sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "reclaimnet", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(argv, cwd=here, capture_output=True, check=False, env=environment)


@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", [("--version",), ("results", ".")])
def test_a_stream_that_is_closed_is_as_an_empty_one(tmp_path: Path, streams: str, words: tuple[str, ...]) -> None:
    done = started(*words, here=tmp_path, streams=streams)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    "variables", [ASCII, *(pytest.param(each, marks=pytest.mark.long) for each in ({}, {"PYTHONIOENCODING": "ascii"}))]
)
def test_names_and_locales_that_are_not_utf8_are_no_matter(tmp_path: Path, variables: dict[str, str]) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    (folder / "short.toml").write_text(SHORT)
    (folder / "owners.csv").write_text("time,host,event,notice\n5 min,desk1,reclaim,3 min\n")
    files = (b"caf\xe9/short.toml", "--trace", b"caf\xe9/owners.csv", "--out", b"caf\xe9/run\xe9")
    done = started("simulate", *files, here=tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    assert started("results", b"caf\xe9", here=tmp_path, **variables).returncode == 0
    assert 'href="run%E9/report.html"' in (folder / "index.html").read_text("utf-8")


@pytest.mark.parametrize("name", PROJECT)
def test_another_package_of_a_projects_name_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    done = started("--version", here=tmp_path)  # `-m` looks here first
    assert (done.returncode, done.stdout) == (2, b"")
    expected = f"reclaimnet: another package named {name} comes first on Python's path: {tmp_path / name}\n"
    assert done.stderr.decode() == expected
    assert reclaimnet.PACKAGES == PROJECT


def test_programs_of_roots_folders_are_found_where_path_lacks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(path.name for path in Path("/usr/sbin").iterdir() if os.access(path, os.X_OK) and path.is_file())
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_program(name) == f"/usr/sbin/{name}"
    assert os.environ["PATH"] == "/nowhere:/usr/sbin:/sbin"
    assert find_program("no-such-program") is None


NEAREST = {
    "simulat x.toml": "simulate",
    "simulate x.toml --polcy x": "--policy",
    "simulate example:lap": "lab",
    "simulate shor.toml": "short.toml",
    "simulate short.toml --policy statc": "static",
    "reproduce A-tabel3": "A-table3",
    "measure killswich": "killswitch",
    "--log-level debg doctor": "debug",
}


@pytest.mark.parametrize("words", NEAREST)
def test_a_mistyped_name_is_answered_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    (tmp_path / "short.toml").write_text(SHORT)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BaseException) as wrong:
        app(words.split(), prog_name="reclaimnet", standalone_mode=False)
    assert report(wrong.value) == ExitStatus.NOT_RUN
    told = capsys.readouterr().err
    said = re.search(r"(?:nearest: |mean |options: )'?([\w.-]+)", " ".join(told.replace("│", "").split()))
    assert said and said[1] == NEAREST[words], told


def test_no_campus_is_an_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(status, "running_campuses", list)
    assert not app(["status", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == {"campuses": []}


def test_a_bar_of_simulated_time_changes_nothing() -> None:
    scenario, shown = loads(SHORT), list[tuple[int, int]]()
    trace = generate(scenario)
    watched = simulate(scenario, trace, progress=lambda done, total: shown.append((done, total)))
    assert watched.facts == simulate(scenario, trace).facts
    assert shown == [(part, 100) for part in range(1, 101)]
