"""Results say where they come from, and two commands never write into one directory at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from controller.user_policies import forget, source_of
from experiments.cli import options
from experiments.cli.run import simulate
from experiments.results.runs.folders import result_folders
from experiments.results.runs.index import write_index
from testbed.errors import SetupError
from tests.live_campus import command

SEEDLESS = {"date", "version", "commit", "command", "kernel", "processor", "python"}


def test_summary_and_page_carry_it_and_all_else_is_the_same_bytes(tmp_path: Path) -> None:
    told = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        status = simulate("example:lab", seed=3, out=tmp_path / name)
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert status == (1 if summary["invariants_broken"] else 0)
        assert (summary["world"], summary["seed"]) == ("virtual", 3)
        told.append(summary.pop("provenance"))
        (tmp_path / name / "rest.json").write_text(json.dumps(summary))
    assert told[0].keys() == SEEDLESS | {"seed", "scenario_sha256", "policy_code"}
    assert told[0]["seed"] == 3
    assert len(told[0]["scenario_sha256"]) == 64
    for key in told[0].keys() - {"date"}:
        assert told[0][key] == told[1][key]
    for name in ("rest.json", "events.jsonl"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    page = (tmp_path / "one" / "report.html").read_text()
    assert told[0]["scenario_sha256"] in page
    assert f"commit: {told[0]['commit']}" in page


def test_a_result_names_its_scenario_and_its_policy_a_user_s_by_its_code(tmp_path: Path) -> None:
    policy = "docs.examples.stable_first:stable-first"
    (tmp_path / "one").mkdir()
    simulate("example:lab", policy=policy, out=tmp_path / "one")
    summary = json.loads((tmp_path / "one/summary.json").read_text())
    assert (summary["scenario"], summary["policy"]) == ("lab-afternoon", policy)
    assert summary["provenance"]["policy_code"] == source_of(policy) != ""
    assert f'<h1 class="run">lab-afternoon: {policy}</h1>' in (tmp_path / "one/report.html").read_text()
    forget({"docs"})
    index = write_index(tmp_path, result_folders(tmp_path))
    assert f"<td>lab-afternoon</td><td>{policy}</td>" in index.read_text()


HOLD = """
import sys; from pathlib import Path; from experiments.cli import options
options.results_folder(Path(sys.argv[1])); print("held", flush=True); sys.stdin.read()
"""


def test_a_second_run_into_one_directory_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_text("the first's")
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(SetupError, match=rf"process {first.pid} .* writes there: .* another --out"):
            options.results_folder(tmp_path)
        second = command("demo", "--hosts", "2", "--out", str(tmp_path))
        assert second.returncode == 2
        assert f"process {first.pid}" in second.stderr
        first.kill()
    assert (tmp_path / "journal.sqlite").read_text() == "the first's"
    assert options.results_folder(tmp_path) == tmp_path
    assert options.results_folder(tmp_path) == tmp_path, "one process may write there again"


def test_a_folder_where_a_file_of_results_is_to_be_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(typer.BadParameter, match=r"events\.jsonl is a folder"):
        options.results_folder(tmp_path)
