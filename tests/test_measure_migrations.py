"""`reclaimnet measure migrations`: its waves, how a run is read and judged, and one wave in the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.core.model import facts as f
from controller.core.policies.table import policy
from experiments.benchmarks import migrations
from experiments.benchmarks.frame import KEPT, NOT_JUDGED, NOT_KEPT, Run
from experiments.benchmarks.migrations import (
    BOTTLENECK,
    DESTINATIONS,
    NOTICE_AT_S,
    NOTICE_S,
    P2,
    RANDOM,
    WAVE_S,
)
from experiments.inputs.scenario.live import enforcement_of
from experiments.inputs.traces import Trace
from experiments.results.history import Timed
from experiments.worlds.live.run import context_of
from experiments.worlds.played import Played
from experiments.worlds.virtual.run import simulate
from testbed.enforcement import Enforcement
from tests.live_campus import live
from tests.shown import shown
from topologies.units import MBIT_PER_S

OURS, NOTHING = BOTTLENECK[0], BOTTLENECK[-1]


def test_in_each_wave_all_owners_of_the_jobs_side_give_one_notice_and_the_other_side_is_lent() -> None:
    trace = migrations.waves((1, 7, 3), across=True)
    reclaims = [event for event in trace.owner_events if event.kind == "reclaim"]
    assert len({event.at_s for event in reclaims}) == 3
    assert {event.notice_s for event in reclaims} == {NOTICE_S}
    for number, building in enumerate(("b1", "b2", "b1")):
        of_wave = reclaims[8 * number : 8 * number + 8]
        assert {event.host[:2] for event in of_wave} == {building}
    assert [sum(a.at_s == 1.0 + n * WAVE_S for a in trace.arrivals) for n in range(3)] == [1, 7, 3]


def test_seven_payloads_need_less_than_the_share_of_the_trunk_carries_in_a_notice() -> None:
    share = migrations.TRUNK - migrations.RESERVE.reserve_bytes_per_s(migrations.TRUNK)
    need = migrations.MOST * migrations.PAYLOAD_BYTES / (NOTICE_S - migrations.RESTART_S)
    assert 0.7 * share < need < 0.9 * share


@pytest.mark.parametrize("system", (*BOTTLENECK, *DESTINATIONS), ids=lambda system: system.name)
def test_every_system_is_a_scenario_that_live_runs_can_play(system: migrations.System) -> None:
    scenario = migrations.scenario_of(system, (1, 2))
    wanted = Enforcement.NONE if system.policy == "no-tc-bpf" else Enforcement(system.enforcement)
    assert enforcement_of(scenario.played()) is wanted


def test_the_virtual_campus_moves_every_job_of_a_wave_across_the_trunk() -> None:
    scenario, trace = migrations.scenario_of(OURS, (3,)), migrations.waves((3,), across=True)
    found = migrations.moves(simulate(scenario, trace))
    assert [(move.wave, move.k, move.source[:2]) for move in found] == [(0, 3, "b1")] * 3
    assert all(move.admitted and move.in_time and move.same_building is False for move in found)


def played(facts: list[Timed]) -> Played:
    scenario = migrations.scenario_of(OURS, (2,))
    return Played(facts, context_of(scenario, Trace("", (), ()), policy("reclaimnet")))


def test_a_move_lasts_from_the_notice_until_the_job_runs_elsewhere_and_a_degraded_one_is_told() -> None:
    at_s = 1.0 + NOTICE_AT_S
    facts: list[Timed] = [
        (at_s, f.HostReclaimed("b1h1", NOTICE_S, False, ["w0n0"])),
        (at_s, f.HostReclaimed("b1h2", NOTICE_S, False, ["w0n1"])),
        (at_s + 0.1, f.MigrationAdmitted("w0n0", 1, "b1h1", "b2h1", NOTICE_S, 7, 1.0, 1.0, 1.0)),
        (at_s + 0.1, f.MigrationDegraded("w0n1", 1, "b1h2", NOTICE_S, "no time")),
        (at_s + 3.0, f.JobRunning("w0n0", 2, "b2h1", 9, "", None, 0.75)),
        (at_s + 6.0, f.JobRunning("w0n1", 2, "b1h3", 0, "", None, 2.5)),
    ]
    first, second = migrations.moves(played(facts))
    assert (first.k, first.admitted, first.in_time, first.same_building) == (2, True, True, False)
    assert (first.took_s, first.downtime_s) == (pytest.approx(3.0), 0.75)
    assert (second.admitted, second.degraded, second.in_time) == (False, "no time", False)
    assert (second.took_s, second.same_building) == (pytest.approx(6.0), True)


def a_run(
    system: str = "reclaimnet", *, research: float = 60.0, took_s: float = 3.0, valid: bool = True
) -> Any:
    begin_s = 1.0 + NOTICE_AT_S
    move = {
        "wave": 0,
        "k": 1,
        "job": "w0n0",
        "notice_at_s": begin_s,
        "source": "b1h1",
        "destination": "b2h1",
        "same_building": False,
        "admitted": True,
        "degraded": None,
        "took_s": took_s,
        "downtime_s": 0.5 * took_s,
        "in_time": took_s <= NOTICE_S,
        "cause": "" if took_s <= NOTICE_S else "full queues dropped 3 packets",
    }
    seconds = [
        {"at_s": begin_s + n, "building": building, "together_bytes_per_s": rate * MBIT_PER_S}
        for n in range(-2, 6)
        for building, rate in (("b1", research if n == 3 else 100.0), ("b2", 1.0))
    ]
    samples = [
        {"at_s": begin_s + n / 4, "b1_bytes": n * 6.25e6, "b2_bytes": 0.0, "b1_own_bytes": 2.5e6 * min(n, 6)}
        for n in range(20)
    ]
    return migrations.judged(
        {
            "system": system,
            "policy": "reclaimnet",
            "across": system not in (P2, RANDOM),
            "ks": [1],
            "trunk_bytes_per_s": migrations.TRUNK,
            "reserve_bytes_per_s": migrations.RESERVE.reserve_bytes_per_s(migrations.TRUNK),
            "valid": valid,
            "reasons": [] if valid else ["slow"],
            "moves": [move],
            "research": seconds,
            "trunk": samples,
        }
    )


def test_research_is_judged_by_the_worst_second_of_the_waves_own_way() -> None:
    (wave,) = a_run(research=57.0)["waves"]
    assert (wave["reserve"], wave["promise"]) == (KEPT, KEPT)
    assert wave["research_worst_bytes_per_s"] == pytest.approx(57.0 * MBIT_PER_S)
    assert wave["trunk_use"] == pytest.approx(1.0)
    assert a_run(research=56.0)["waves"][0]["reserve"] == NOT_KEPT


def test_a_promise_is_kept_if_all_that_were_admitted_ran_on_in_time() -> None:
    assert a_run(took_s=NOTICE_S + 0.1)["waves"][0]["promise"] == NOT_KEPT
    invalid = a_run(took_s=NOTICE_S + 0.1, valid=False)["waves"][0]
    assert (invalid["promise"], invalid["reserve"]) == (NOT_JUDGED, NOT_JUDGED)


def test_tables_and_picture_show_every_run_beside_the_papers_figures(tmp_path: Path) -> None:
    runs = [a_run(s.name, took_s=5.0, valid=s is OURS) for s in (*BOTTLENECK, *DESTINATIONS)]
    result = {"payload_bytes": migrations.PAYLOAD_BYTES, "notice_s": NOTICE_S, "runs": runs}
    text = shown(migrations.tables(result))
    assert all(system.name in text for system in (*BOTTLENECK, *DESTINATIONS))
    assert "71 % (P2)" in text
    assert "(not judged)" in text
    assert "no enforcement: not judged: slow" in text
    assert "reclaimnet, K' = 1: 1 admitted were late (5.0 to 5.0 s): full queues dropped 3 packets" in text
    assert [goal.met for goal in migrations.goals(result)][:2] == [False, True]
    migrations.draw(runs, tmp_path / "migrations.svg")
    assert "random destinations" in (tmp_path / "migrations.svg").read_text()


@pytest.mark.kernel
@pytest.mark.campus
class TestLive:
    pytestmark = live

    def test_a_wave_of_two_moves_crosses_the_trunk_beside_research(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(migrations, "LAST_SHORTER_S", 5.0)  # it ends with the notice
        result = migrations.measure(Run(tmp_path), systems=(NOTHING,), ks=(2,))
        (run,) = result["runs"]
        assert [move["source"][:2] for move in run["moves"]] == ["b1", "b1"]
        assert {second["building"] for second in run["research"]} == {"b1", "b2"}
        carried = run["trunk"][-1]["b1_bytes"] - run["trunk"][0]["b1_bytes"]
        brought = run["trunk"][-1]["b1_own_bytes"] - run["trunk"][0]["b1_own_bytes"]
        assert carried > brought > 1_000_000  # on a busy machine a move may not be over
        assert (tmp_path / migrations.PICTURE).exists()
