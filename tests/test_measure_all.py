"""`reclaimnet measure`: every benchmark has the common frame; `all` runs them one after the other onto one page."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.benchmarks import BENCHMARKS, links, run_all
from experiments.benchmarks.frame import Goal, Run, all_kept, at_least, at_most, goals_table
from experiments.benchmarks.run_all import MAX_S, Part, measure_all, run_part, together_table
from experiments.cli.main import app
from testbed.emulation.fidelity import CpuTimes
from tests.shown import shown


def test_every_benchmark_has_the_functions_of_the_frame_and_all_take_less_than_half_an_hour() -> None:
    for name in BENCHMARKS:
        module = import_module(f"experiments.benchmarks.{name}")
        assert all(callable(getattr(module, function)) for function in ("measure", "tables", "goals"))
    assert MAX_S < 30 * 60


def test_parts_that_cannot_run_have_reasons_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_all, "wait_until_quiet", lambda most_s: 0.5)
    monkeypatch.setattr(run_all, "BENCHMARKS", {"nothing": (60.0, ""), "decisions": (0.1, "")})
    first, second = measure_all(Run(tmp_path))
    assert "experiments.benchmarks.nothing" in first.why
    assert second.why.startswith("not over after")
    parts = json.loads((tmp_path / "measure.json").read_text())
    assert [each["name"] for each in parts] == ["nothing", "decisions"]
    page = (tmp_path / "measure.html").read_text()
    assert page.count("did not run") >= 2
    assert (first.busy, second.busy) == (0.5, 0.5)
    assert "experiments.benchmarks.nothing" in page
    assert "machine 50% busy before" in shown([together_table([first, second])])


def test_a_machine_that_never_is_quiet_is_waited_for_no_longer_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ticks = [0.0], [0]
    monkeypatch.setattr(run_all.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(run_all.time, "monotonic", lambda: clock[0])

    def read(busy: list[int]) -> CpuTimes:
        ticks[0] += 1
        used = sum(busy[min(n, len(busy) - 1)] for n in range(ticks[0]))
        return CpuTimes(used, 100 * ticks[0] - used, 0)

    monkeypatch.setattr(run_all.CpuTimes, "now", lambda: read([0, 90, 40, 2]))
    assert run_all.wait_until_quiet(20.0) == pytest.approx(0.02)
    assert clock[0] == 3.0
    clock[0], ticks[0] = 0.0, 0
    monkeypatch.setattr(run_all.CpuTimes, "now", lambda: read([0, 90]))
    assert run_all.wait_until_quiet(5.0) == pytest.approx(0.9)
    assert clock[0] == 5.0


def test_a_part_for_which_no_time_is_left_is_not_begun(tmp_path: Path) -> None:
    part = run_part("killswitch", tmp_path, 0.0)
    assert (part.why, part.took_s) == ("no time was left for it", 0.0)


def test_goals_of_links_stand_beside_their_figures() -> None:
    late = {"idle": {"wrong": 0.001}, "busy": {"wrong": 0.02}}
    result = {
        "delayed": {"rtt_s": {"p50": 0.0102, "p99": 0.0128}, "bytes_per_s": 2e8, **late},
        "delayed_and_slow": {"over_declared": 0.99, "without_delay": 0.99},
    }
    found = {goal.what: goal for goal in links.goals(result)}
    assert found["round trip of 2 x 5 ms, p50"].met is True
    assert found["round trip of 2 x 5 ms, p99"].met is False
    assert found["frames wrong by a tenth of the delay"].measured == "2.00%"


def test_goals_have_a_verdict_and_a_line_in_the_table() -> None:
    goals = [
        at_most("a", 2.0, 1.0, "{:g} s".format),
        at_least("b", 2.0, 1.0, "{:g}".format),
        all_kept("c", ["not judged"]),
        all_kept("d", ["kept", "promises 0", "NOT KEPT", "not judged"]),
    ]
    assert [goal.met for goal in goals] == [False, True, None, False]
    text = shown([goals_table([("x", goals)])])
    assert "x a <= 1 s 2 s not met b >= 1 2 met c always 0 of 0 kept, 1 not judged not judged d" in text
    assert "1 of 2 kept, 1 not judged not met" in text


def test_a_benchmark_is_a_command_with_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(run: Run) -> dict[str, float]:
        return {"figure_s": 1.5}

    monkeypatch.setattr(links, "measure", measure)
    monkeypatch.setattr(links, "goals", lambda result: [Goal("a", "b", "c", True)])
    monkeypatch.setattr(links, "tables", lambda result: ["a [note]"])
    out = ["--out", str(tmp_path)]
    printed = CliRunner().invoke(app, ["measure", "links", *out])
    assert printed.exit_code == 0
    assert "a [note]" in printed.stdout and "met" in printed.stdout
    done = CliRunner().invoke(app, ["measure", "links", "--json", *out])
    told = json.loads(done.stdout)
    assert (told["command"], told["result"]["figure_s"]) == ("measure links", 1.5)
    assert json.loads((tmp_path / "links/links.json").read_text()) == told["result"]


@pytest.mark.parametrize(
    "words", [("nothing",), ("links", "--hosts", "54"), ("scale", "--hosts", "3"), ("scale", "--hosts", "x")]
)
def test_what_is_no_benchmark_and_no_size_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["measure", *words, "--out", str(tmp_path)]).exit_code == 2


def test_parts_that_did_not_run_are_in_the_json_and_in_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_all, "measure_all", lambda run: [Part("x", 1.0, "no root", "", ())])
    done = CliRunner().invoke(app, ["measure", "all", "--json", "--out", str(tmp_path)])
    assert done.exit_code == 3
    assert json.loads(done.stdout)["result"][0]["why"] == "no root"
