"""`reclaimnet measure all`: parts run one after the other, say why they do not, and their goals stand on one page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks import links, together
from experiments.benchmarks.goals import KEPT, NOT_JUDGED, NOT_KEPT, NOTHING_PROMISED, JudgedFigure
from experiments.benchmarks.isolation import SYSTEMS, rows
from experiments.benchmarks.together import (
    MOST_S,
    PARTS,
    Part,
    measure_all,
    run_part,
    together_table,
)
from testbed.emulation.fidelity import CpuTimes


def part(name: str) -> Part:
    return next(each for each in PARTS if each.name == name)


def no_goals(_: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    yield from ()


def test_parts_are_commands_that_exist_and_together_they_take_less_than_half_an_hour() -> None:
    from experiments.cli.measure import app

    commands = {command.name for command in app.registered_commands}
    assert {each.name for each in PARTS} <= commands
    assert MOST_S < 30 * 60


def test_a_part_that_cannot_run_says_why_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "wait_until_quiet", lambda most_s: 0.5)
    wrong = Part("links", ("--sideways",), 60.0, no_goals)
    late = Part("decisions", ("--quick",), 0.1, no_goals)
    first, second = measure_all(tmp_path, (wrong, late))
    assert "--sideways" in first.why
    assert second.why.startswith("not over after")
    assert [each["name"] for each in json.loads((tmp_path / "measure.json").read_text())] == [
        "links",
        "decisions",
    ]
    page = (tmp_path / "measure.html").read_text()
    assert page.count("did not run") >= 2
    assert (first.busy, second.busy) == (0.5, 0.5)
    assert "--sideways" in page


def test_a_machine_that_never_is_quiet_is_waited_for_no_longer_than_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, ticks = [0.0], [0]
    monkeypatch.setattr(together.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(together.time, "monotonic", lambda: clock[0])

    def read(busy: list[int]) -> CpuTimes:
        ticks[0] += 1
        used = sum(busy[min(n, len(busy) - 1)] for n in range(ticks[0]))
        return CpuTimes(used, 100 * ticks[0] - used, 0)

    monkeypatch.setattr(together.CpuTimes, "now", lambda: read([0, 90, 40, 2]))
    assert together.wait_until_quiet(20.0) == pytest.approx(0.02)
    assert clock[0] == 3.0
    clock[0], ticks[0] = 0.0, 0
    monkeypatch.setattr(together.CpuTimes, "now", lambda: read([0, 90]))
    assert together.wait_until_quiet(5.0) == pytest.approx(0.9)
    assert clock[0] == 5.0


def test_a_part_for_which_no_time_is_left_is_not_begun(tmp_path: Path) -> None:
    done = run_part(part("killswitch"), tmp_path, 0.0)
    assert (done.why, done.took_s) == ("no time was left for it", 0.0)


def test_goals_of_isolation_count_what_was_judged_and_leave_unmarked_traffic_to_theorem_4() -> None:
    def result(of: Mapping[str, str], theorem: str) -> Mapping[str, Any]:
        return {
            "rows": [
                {"row": row.key, "system": system.name, "reserve": of.get(row.key, KEPT), "theorem": theorem}
                for row in rows()
                for system in SYSTEMS
            ]
        }

    reserve, theorem = part("isolation").goals(result({"frames-unmarked": NOT_KEPT}, NOTHING_PROMISED))
    assert (reserve.met, theorem.met) == (True, None)
    reserve, _ = part("isolation").goals(result({"frames-af41": NOT_KEPT, "ipv6": NOT_JUDGED}, KEPT))
    assert reserve.met is False
    assert reserve.measured.endswith(", 1 not judged")


def test_goals_of_links_stand_beside_their_figures() -> None:
    late = {"idle": {"wrong": 0.001}, "busy": {"wrong": 0.02}}
    result = {
        "delayed": {"rtt_s": {"p50": 0.0102, "p99": 0.0128}, "bytes_per_s": 2e8, **late},
        "delayed_and_slow": {"over_declared": 0.99, "without_delay": 0.99},
        "met": dict.fromkeys(links.GOALS, True) | {"rtt_p99_s": False},
    }
    found = {goal.what: goal for goal in part("links").goals(result)}
    assert found["round trip of 2 x 5 ms, p99"].met is False
    assert found["frames wrong by a tenth of the delay"].measured == "2.00%"


@pytest.mark.parametrize(("met", "words"), [(True, "met"), (False, "not met")])
def test_the_table_has_a_line_for_each_goal(met: bool, words: str) -> None:
    from experiments.benchmarks.together import Done

    done = Done("x", "reclaimnet measure x", 1.0, "", "", (JudgedFigure("a", "b", "c", met),))
    cells = [list(column.cells) for column in together_table([done]).columns]
    assert [column[1] for column in cells] == ["  a", "b", "c", words]


def test_results_are_told_as_json_even_if_a_part_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from experiments.cli import measure

    monkeypatch.setattr(together, "WAIT_S", 0.0)
    monkeypatch.setattr(
        "experiments.benchmarks.together.PARTS", (Part("links", ("--sideways",), 60.0, no_goals),)
    )
    done = CliRunner().invoke(measure.app, ["all", "--json", "--out", str(tmp_path)])
    assert done.exit_code == 3
    (told,) = json.loads(done.stdout)["results"]["measure"]
    assert "--sideways" in told["why"]
