"""Lost GPU time: its parts, told apart by the journal alone, add up to what jobs had and did not use."""

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest

from controller.core.model import facts as f
from experiments.inputs.scenario import demo_scenario
from experiments.inputs.traces import generate, paper_campus
from experiments.results import rules
from experiments.results.accounting import summarise
from experiments.results.history import Timed
from experiments.results.lost_time import LostPart, balances, by_class, by_hour
from experiments.results.run_context import RunContext
from experiments.worlds.virtual import simulate
from experiments.worlds.virtual.hosts import Process
from testbed.messages import SEQUENCES_PER_ATTEMPT as ATTEMPT
from tests import lives, run_story

CONTEXT = replace(run_story.context(), ended_at_s=None)
FIRST = ATTEMPT + 1  # the first checkpoint of the first attempt
BEGIN: list[Timed] = [
    (0.0, f.JobSubmitted("j", 20, 10.0, 1_000)),
    (5.0, f.JobDispatched("j", 1, "h1", cost=1.0, delay_s=5.0)),
    (11.0, f.JobRunning("j", 1, "h1", 0, "", None, None)),
]
INTERRUPTED: list[Timed] = [
    *BEGIN,
    # 4 steps and 2 s of standing still, or a step under way
    (53.0, f.CheckpointTaken("j", 1, FIRST, 4, 10, False)),
    (60.0, f.CheckpointCompleted("j", FIRST, 4, "h2", 10)),
    # 9 steps, 3 s of standing still and 6 s of the tenth
    (111.0, f.JobStopped("j", 1, "h1", "emergency", 9)),
]


@pytest.fixture(autouse=True)
def read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of this file is judged by the second reading, too."""
    monkeypatch.setitem(rules.RULES, "lives", lives.RULE)


def lost_to(*facts: Timed, context: RunContext = CONTEXT) -> dict[str, float]:
    """Of the only job, parts that are not 0."""
    [balance] = balances(facts, context).values()
    assert not rules.broken(facts, context)
    found: dict[str, float] = defaultdict(float)
    for spell in balance.lost:
        found[spell.part] += spell.gpu_s
    total_s = balance.begun_s - balance.useful_s - balance.first_start_s
    assert sum(found.values()) == pytest.approx(total_s)
    return {part: pytest.approx(lost_s) for part, lost_s in found.items() if abs(lost_s) > 1e-9}


def test_an_emergency_costs_its_steps_a_fetch_a_restart_and_the_step_under_way() -> None:
    assert lost_to(
        *INTERRUPTED,
        (121.0, f.WorkLost("j", 2, "emergency", 9, 4, 50.0)),
        (121.0, f.JobDispatched("j", 2, "h3", FIRST, 4)),
        (130.0, f.CheckpointHeld("j", FIRST, "h3")),
        (136.0, f.JobRunning("j", 2, "h3", 4, "", FIRST, 25.0)),
        (297.0, f.JobFinished("j", 2, "h3", 20, "")),
    ) == {
        "emergencies": 50.0,
        "pauses": 2.0,
        "unfinished": 8.0 + 1.0,  # the last to prove the last state
        "downtime": 10.0 + 9.0,
        "restarts": 6.0,
    }


def test_a_copy_that_no_reachable_host_holds_costs_what_it_would_have_saved() -> None:
    lost = lost_to(
        *INTERRUPTED, (121.0, f.WorkLost("j", 2, "emergency", 9, 0, 90.0)), (121.0, f.JobDispatched("j", 2, "h3"))
    )
    assert (lost["emergencies"], lost["out_of_reach"]) == (50.0, 40.0)


def test_what_is_taken_up_later_was_not_out_of_reach_for_good() -> None:
    """3 steps are done again before the copy of step 4 comes back: they are what its absence cost, and the restart."""
    lost = lost_to(
        *INTERRUPTED,
        (121.0, f.WorkLost("j", 2, "emergency", 9, 0, 90.0)),
        (121.0, f.JobDispatched("j", 2, "h3")),
        (121.0, f.JobRunning("j", 2, "h3", 0, "", None, 10.0)),
        (151.0, f.JobStopped("j", 2, "h3", "superseded", 3)),
        (151.0, f.WorkTakenUp("j", 3, 3, 4, 10.0)),
        (151.0, f.JobDispatched("j", 3, "h2", FIRST, 4)),
    )
    assert (lost["emergencies"], lost["out_of_reach"]) == (50.0, 30.0)


@pytest.mark.parametrize(("cause", "part"), [("deadline", "notices"), ("agent_lost", "faults"), ("killed", "faults")])
def test_the_cause_of_an_end_says_whose_loss_it_is(cause: str, part: str) -> None:
    stopped = (111.0, f.JobStopped("j", 1, "h1", cause, 9))
    again = (121.0, f.JobDispatched("j", 2, "h2", FIRST, 4))
    lost_work = (121.0, f.WorkLost("j", 2, cause, 9, 4, 50.0))
    notice = (
        (61.0, f.HostReclaimed("h1", 50.0, False, ["j"])),
        (61.0, f.MigrationDegraded("j", 1, "h1", 50.0, "no host")),
    )
    told = notice if cause == "deadline" else ()
    assert lost_to(*INTERRUPTED[:-1], *told, stopped, lost_work, again)[part] == 50.0


def test_a_job_that_waits_loses_until_the_run_ends_and_one_that_runs_up_to_its_latest_snapshot() -> None:
    waits = replace(CONTEXT, ended_at_s=200.0)
    waiting = (111.0, f.JobWaits("j", "no host is free for it"))
    assert lost_to(*INTERRUPTED, waiting, context=waits)["downtime"] == 89.0
    assert lost_to(*INTERRUPTED[:-1], context=waits) == {"pauses": 2.0}
    assert lost_to(*BEGIN, context=waits) == {}


def test_a_pause_is_what_the_host_measured_if_it_did() -> None:
    measured: list[Timed] = [
        *BEGIN,
        (51.5, f.CheckpointTaken("j", 1, FIRST, 4, 10, False, pause_s=0.5)),
        (92.0, f.CheckpointTaken("j", 1, FIRST + 1, 8, 10, False, pause_s=0.25)),
        (212.0, f.JobFinished("j", 1, "h1", 20, "")),
    ]
    assert lost_to(*measured) == {"pauses": 0.75, "unfinished": 0.25}


def test_steps_that_are_quicker_than_declared_count_as_measured() -> None:
    """Twenty steps of 10 s took 40 s, and the work of a reclaim is theirs: nothing is negative."""
    stopped = (31.0, f.JobStopped("j", 1, "h1", "emergency", 10))
    again = (31.0, f.JobDispatched("j", 2, "h2")), (31.0, f.JobRunning("j", 2, "h2", 0, "", None, 0.0))
    facts = [*BEGIN, stopped, *again, (71.0, f.JobFinished("j", 2, "h2", 20, ""))]
    [balance] = balances(facts, CONTEXT).values()
    assert (balance.useful_s, balance.lost_s(*LostPart)) == (pytest.approx(40.0), pytest.approx(20.0))
    assert balance.lost_s(LostPart.EMERGENCIES) == pytest.approx(20.0)
    [warning] = summarise(facts, CONTEXT).warnings
    assert warning == "j: declared 10 s a step, measured 2 s, which counts; P1 went by what was declared"


def test_a_replica_costs_its_gpu_while_it_is_held_and_makes_steps_longer() -> None:
    slower = replace(CONTEXT, replica_slowdown=0.2)
    held = (21.0, f.ReplicaHeld("j", 1, "h2"))
    finished = (11.0 + 240.0, f.JobFinished("j", 1, "h1", 20, ""))
    assert lost_to(*BEGIN, held, finished, context=slower) == {"redundancy": 40.0 + 230.0}
    gone = (31.0, f.ReplicaReleased("j", 1, "h2"))
    assert lost_to(*BEGIN, held, gone, finished, context=slower) == {"redundancy": 40.0 + 10.0}


def test_a_start_that_comes_to_nothing_is_lost_and_the_first_that_succeeds_is_not() -> None:
    lost = lost_to(
        *BEGIN[:2],
        (8.0, f.JobStopped("j", 1, "h1", "emergency", 0)),
        (9.0, f.JobDispatched("j", 2, "h2")),
        (19.0, f.JobRunning("j", 2, "h2", 0, "", None, 11.0)),
        (219.0, f.JobFinished("j", 2, "h2", 20, "")),
    )
    assert lost == {"restarts": 3.0, "downtime": 1.0}


def test_parts_that_do_not_add_up_are_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    again = (121.0, f.JobDispatched("j", 2, "h3", FIRST, 4))
    lost_work = (121.0, f.WorkLost("j", 2, "emergency", 9, 4, 50.0))
    facts = [*INTERRUPTED, lost_work, again]
    assert not rules.broken(facts, CONTEXT)

    def without_downtime(*arguments: Any) -> Any:
        return {
            job: replace(balance, lost=[each for each in balance.lost if each.part is not LostPart.DOWNTIME])
            for job, balance in balances(*arguments).items()
        }

    monkeypatch.setattr(rules.reports, "balances", without_downtime)
    assert [broken.rule for broken in rules.broken(facts, CONTEXT)] == [rules.ADDS_UP]


def test_hours_share_a_spell_and_classes_are_of_real_payloads() -> None:
    """A day of 240 s: 200 s of downtime from 18:00 on are 10 s in each hour but those from 14 to 18."""
    day = replace(CONTEXT, day_s=240.0, day_start_s=180.0, ended_at_s=200.0, scale=replace(CONTEXT.scale, bytes=1e-6))
    stopped: list[Timed] = [
        (0.0, f.JobSubmitted("j", 20, 10.0, 5_000)),
        (0.0, f.JobDispatched("j", 1, "h1", cost=1.0, delay_s=5.0)),
        (0.0, f.JobStopped("j", 1, "h1", "emergency", 0)),
    ]
    found = balances(stopped, day)
    hours = by_hour(found, day.day_s, day.day_start_s)[LostPart.DOWNTIME]
    assert hours == pytest.approx([10.0] * 14 + [0.0] * 4 + [10.0] * 6)
    assert by_class(found, day.scale.bytes)["1 to 10 GB"][LostPart.DOWNTIME] == pytest.approx(200.0)


def test_pauses_are_what_processes_truly_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the virtual campus, where each pause is known: to the proof of the last state for a job with one attempt; for others too
    long by less than a step an attempt, and too short by no more than a snapshot that was under way when its host closed."""
    stood_s: dict[str, list[float]] = defaultdict(list)
    pause = Process.pause

    def watched(process: Process, from_s: float, for_s: float) -> None:
        before_s = process.running_from_s
        pause(process, from_s, for_s)
        stood_s[process.spec.name].append(process.running_from_s - before_s)

    monkeypatch.setattr(Process, "pause", watched)
    scenario, trace = paper_campus(3, days=2.0)
    seen = set[bool]()
    for system in ("reclaimnet", "slurm-pr", "no-migration", "bamboo"):
        stood_s.clear()
        run = simulate(scenario, trace, 3, system=system)
        attempts = Counter(fact.job for _, fact in run.facts if isinstance(fact, f.JobDispatched))
        found = balances(run.facts, run.context)
        for job in (fact.job for _, fact in run.facts if isinstance(fact, f.JobFinished)):
            too_long_s = found[job].lost_s(LostPart.PAUSES) - sum(stood_s[job])
            step_s = scenario.jobs.step_s * (1.0 + run.context.replica_slowdown)
            is_alone = attempts[job] == 1
            seen.add(is_alone)
            assert too_long_s <= (0.2 if is_alone else step_s * attempts[job])
            assert too_long_s >= -(0.2 if is_alone else max(stood_s[job]))
        summary = run.summary()
        assert not summary.invariants_broken
        assert summary.lost_time.work_lost_s == pytest.approx(summary.interruptions.lost_gpu_s)
    assert seen == {True, False}


def test_a_summary_has_the_parts_their_sum_and_both_tables_of_them() -> None:
    scenario = demo_scenario(seed=1)
    lost = simulate(scenario, generate(scenario)).summary().lost_time
    parts = {part: getattr(lost, f"{part}_s") for part in LostPart}
    assert lost.total_s == pytest.approx(sum(parts.values()))
    assert lost.total_s == pytest.approx(lost.begun_s - lost.useful_s - lost.first_starts_s)
    for part, lost_s in parts.items():
        assert sum(some[part] for some in lost.by_class.values()) == pytest.approx(lost_s)
        assert sum(lost.by_hour[part]) == pytest.approx(lost_s)
