"""Commands with a result print one JSON document, and nothing else, with `--json`."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from experiments.cli.main import app
from experiments.cli.options import console
from experiments.inputs import scenario

ROOT = Path(__file__).parents[1]
# their result is what they do, a prompt, a page, or lines that are JSON already
WITHOUT = {
    *("up", "logs", "events", "dashboard", "reclaim", "return", "cancel"),
    *("example", "schema", "graph", "ca", "join", "token", "agent", "coordinator"),
}


@pytest.fixture(autouse=True)
def speaks_again() -> object:
    yield None
    console.quiet = False


def typed(*words: str, status: int = 0) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


def test_every_command_with_a_result_has_it() -> None:
    root: Any = get_command(app)
    with_it = {name for name, each in root.commands.items() if any(p.name == "as_json" for p in each.params)}
    assert {*root.commands} - with_it == WITHOUT


def test_a_run_prints_its_summary_with_the_keys_that_were_set(tmp_path: Path) -> None:
    chosen = ("--set", "jobs.step=5 s", "--set", "seed=7", "--policy", "static")
    found = typed("simulate", "example:two-worlds", *chosen, "--out", str(tmp_path / "a"))
    assert found["out"] == str(tmp_path / "a")
    assert found["summary"] == json.loads((tmp_path / "a/summary.json").read_text())
    assert (found["summary"]["seed"], found["summary"]["policy"]) == (7, "static")
    usual = typed("simulate", "example:two-worlds", "--policy", "static", "--seed", "7", "--out", str(tmp_path / "b"))
    assert usual["summary"]["lost_time"] != found["summary"]["lost_time"]
    index = typed("results", str(tmp_path))
    assert sorted(run["name"] for run in index["runs"]) == ["a", "b"]
    beside = typed("results", str(tmp_path / "a"), str(tmp_path / "b"))
    assert all(len(row["cells"]) == 2 for row in beside["rows"]) and beside["rows"]


def test_sweeps_storms_and_claims_print_their_results(tmp_path: Path) -> None:
    found = typed("sweep", "example:two-worlds", "--seeds", "2", "--workers", "1", "--out", str(tmp_path / "sweep"))
    assert [run["seed"] for run in found["runs"]] == [1, 2] and found["intervals"] and not found["broken"]
    found = typed("storm", "--seeds", "0:2", "--workers", "1", "--out", str(tmp_path))
    assert (found["storms"], found["failed"]) == (2, {}) and found["events"] > 0
    assert typed("storm", "--seed", "1", "--out", str(tmp_path)) == {"storms": 1, "failed": {}}
    kept = ("--from", str(ROOT / "experiments/values"), "--out", str(tmp_path / "claims"))
    [verdict] = typed("reproduce", "A-fig3", *kept)["verdicts"].values()
    assert verdict["checks"] and "level" in verdict


def test_a_job_that_is_tried_prints_what_was_measured() -> None:
    found = typed("try", str(ROOT / "docs/examples/counting.toml"))
    assert found["steps"] > 0 and found["step"].endswith("s") and found["payload"].endswith("B")


def test_a_wrong_setting_is_named_and_nothing_is_played(tmp_path: Path) -> None:
    for words, expected in ((("--set", "jobs.stepp=3"), "nearest: step"), (("--set", "jobs"), "a table")):
        done = CliRunner().invoke(app, ["simulate", "example:lab", *words, "--out", str(tmp_path)])
        assert expected in str(done.exception)
    assert not list(tmp_path.glob("*.json"))


def test_a_live_run_of_more_than_half_an_hour_is_asked_about(tmp_path: Path) -> None:
    words = ["run", "example:paper-campus", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)  # no terminal
    assert done.exit_code == 2 and "61 d of real time" in " ".join(done.output.split()) and "--yes" in done.output
    assert scenario.load("example:two-worlds").played().duration_s < 1800.0


def test_no_at_the_terminal_begins_nothing(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "reclaimnet", "run", "example:paper-campus", "--out", str(tmp_path)]
    with subprocess.Popen(argv, cwd=ROOT, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asked:
        os.close(theirs)
        os.write(ours, b"n\n")
        out, err = asked.communicate(timeout=100)
    os.close(ours)
    assert (asked.returncode, out.strip()) == (2, b"") and b"Begin? [y/N]" in err
    assert [path.name for path in tmp_path.iterdir()] == [".reclaimnet.lock"]
