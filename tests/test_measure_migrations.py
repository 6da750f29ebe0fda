"""`reclaimnet measure migrations`: its waves, how a run is read and judged, and one wave in the kernel."""

from pathlib import Path
from typing import Any

import pytest

from controller.core.model import facts as f
from controller.core.policies.table import policy
from experiments.benchmarks import migrations
from experiments.benchmarks.frame import KEPT, NOT_JUDGED, NOT_KEPT, Run
from experiments.benchmarks.migrations import NOTICE_AT_S, NOTICE_S, RESERVED, SYSTEMS, WAVE_S
from experiments.inputs.traces import Trace
from experiments.results.history import Notice, Timed
from experiments.worlds.live.run import context_of
from experiments.worlds.live.world import enforcement_of
from experiments.worlds.played import Played
from experiments.worlds.virtual.run import simulate
from testbed.enforcement import Enforcement
from tests.live_campus import live
from tests.shown import shown
from topologies.units import MBIT_PER_S

OURS, NOTHING = SYSTEMS[0], SYSTEMS[-1]
AT_S = 1.0 + NOTICE_AT_S


def test_in_each_wave_all_owners_of_the_jobs_side_give_one_notice_and_the_other_side_is_lent() -> None:
    trace = migrations.waves((1, 7, 3))
    reclaims = [event for event in trace.owner_events if event.kind == "reclaim"]
    assert len({event.at_s for event in reclaims}) == 3
    assert {event.notice_s for event in reclaims} == {NOTICE_S}
    for number, building in enumerate(("b1", "b2", "b1")):
        of_wave = reclaims[8 * number : 8 * number + 8]
        assert {event.host[:2] for event in of_wave} == {building}
    assert [sum(a.at_s == 1.0 + n * WAVE_S for a in trace.arrivals) for n in range(3)] == [1, 7, 3]


def test_seven_payloads_need_less_than_the_share_of_the_trunk_carries_in_a_notice() -> None:
    share = migrations.TRUNK - RESERVED
    need = migrations.MOST * migrations.PAYLOAD_BYTES / (NOTICE_S - migrations.RESTART_S)
    assert 0.7 * share < need < 0.9 * share


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_system_is_a_scenario_that_live_runs_can_play(system: migrations.System) -> None:
    scenario = migrations.scenario_of(system, (1, 2))
    wanted = Enforcement.NONE if system.policy == "no-tc-bpf" else Enforcement(system.enforcement)
    assert enforcement_of(scenario.played()) is wanted


def test_the_virtual_campus_moves_every_job_of_a_wave_in_time() -> None:
    found = migrations.judged(simulate(migrations.scenario_of(OURS, (3,)), migrations.waves((3,))))
    [wave] = found["waves"]
    assert (wave["k"], wave["admitted"], wave["in_time"], wave["promise"]) == (3, 3, 3, KEPT)


def test_a_wave_is_read_from_its_facts() -> None:
    facts: list[Timed] = [
        *((AT_S, f.HostReclaimed(f"b1h{n}", NOTICE_S, False, [f"w0n{n}"])) for n in (1, 2, 3, 4)),
        *(
            (AT_S + 0.1, f.MigrationAdmitted(f"w0n{n}", 1, f"b1h{n}", f"b2h{n}", NOTICE_S, 7, 1.0, 1.0, 1.0))
            for n in (1, 2, 3)
        ),
        (AT_S + 0.1, f.MigrationDegraded("w0n4", 1, "b1h4", NOTICE_S, "no time")),
        (AT_S + 3.0, f.MigrationFinished("w0n1", "b1h1", "b2h1", True, 2.9, 0.75)),
        (AT_S + 4.0, f.JobFinished("w0n3", 1, "b1h3", 20, "")),
        (AT_S + 6.0, f.MigrationFinished("w0n2", "b1h2", "b2h2", False, 5.9, 0.75)),
    ]
    scenario = migrations.scenario_of(OURS, (2,))
    found = migrations.judged(Played(facts, context_of(scenario, Trace("", (), ()), policy("reclaimnet"))))
    [wave] = found["waves"]
    # one was done before it was moved, one was late, and one was not admitted
    assert (wave["k"], wave["admitted"], wave["in_time"], len(wave["causes"])) == (4, 3, 2, 1)
    assert wave["last_took_s"] == pytest.approx(6.0)


def a_wave(research: float = 60.0, *, late: int = 0, took_s: float = 3.0, valid: bool = True) -> dict[str, Any]:
    """One move, and research both ways: a second of the notice has that rate in Mbit/s, seconds before it a lower one."""
    moved = Notice("w0n0", "b1h1", AT_S, NOTICE_S, "b2h1", admitted_s=AT_S, finished_s=AT_S + took_s)
    seconds = [
        (AT_S + n, building, rate * MBIT_PER_S)
        for n in range(-2, 6)
        for building, rate in (("b1", research if n == 3 else 100.0 if n > 0 else 2.0), ("b2", 1.0))
    ]
    return migrations.judged_wave([moved], late, seconds, valid=valid) | {"causes": ["a queue was full"] * late}


def test_research_is_judged_by_the_worst_second_of_the_waves_own_way() -> None:
    wave = a_wave(57.0)
    assert (wave["reserve"], wave["promise"]) == (KEPT, KEPT)
    assert min(wave["research_bytes_per_s"]) == pytest.approx(57.0 * MBIT_PER_S)
    assert a_wave(56.0)["reserve"] == NOT_KEPT


def test_a_promise_is_kept_if_all_that_were_admitted_ran_on_in_time() -> None:
    assert a_wave(late=1)["promise"] == NOT_KEPT
    invalid = a_wave(late=1, valid=False)
    assert (invalid["promise"], invalid["reserve"]) == (NOT_JUDGED, NOT_JUDGED)


def test_the_table_shows_every_run_and_goals_the_papers_figures_beside_it() -> None:
    runs = [
        {
            "system": system.name,
            "valid": system is OURS,
            "reasons": [] if system is OURS else ["slow"],
            "waves": [a_wave(late=1, took_s=5.0, valid=system is OURS)],
        }
        for system in SYSTEMS
    ]
    result = {"payload_bytes": migrations.PAYLOAD_BYTES, "notice_s": NOTICE_S, "runs": runs}
    text = shown(migrations.tables(result))
    assert all(system.name in text for system in SYSTEMS)
    assert "no enforcement: not judged: slow" in text
    assert "reclaimnet, K' = 1: 1 admitted were late: a queue was full" in text
    goals = list(migrations.goals(result))
    assert [goal.met for goal in goals][:2] == [False, True]
    assert {goal.goal for goal in goals[2:]} >= {"paper A: 2.8 % degradation", "paper A: all admitted in time"}
    assert any("(not judged)" in goal.measured for goal in goals)


class TestLive:
    pytestmark = live

    def test_a_wave_of_two_moves_crosses_the_trunk_beside_research(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(migrations, "LAST_SHORTER_S", 5.0)  # it ends with the notice
        result = migrations.measure(Run(tmp_path), systems=(NOTHING,), ks=(2,))
        (run,) = result["runs"]
        [wave] = run["waves"]
        assert wave["k"] == 2 and wave["research_bytes_per_s"]
        assert len(wave["causes"]) == wave["admitted"] - wave["in_time"]
