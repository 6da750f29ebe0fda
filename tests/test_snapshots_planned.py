"""What a snapshot stops a job for, and what it takes to be written, are two things: in P1, in virtual time, in the accounts."""

import itertools
import math
from dataclasses import replace

import msgspec
import pytest

from controller.core.lifecycle.job_events import SPEED_CHANGE
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.parameters import Protocol
from experiments.compare.costs import measure_costs
from experiments.inputs.scenario import demo_scenario, load
from experiments.inputs.traces import generate
from experiments.results.lost_time import LostPart, balances
from experiments.worlds.virtual import Overheads, simulate
from experiments.worlds.virtual.overheads import costs_of
from testbed import messages as m
from testbed.bounds import SLOWEST_BYTES_PER_S
from testbed.program import Program
from tests.world import COSTS, a_running_job, a_world

MB = 1_000_000
PAYLOAD = 30 * MB
COPIED = replace(COSTS, snapshot_s=(0.5, 0.5), snapshot_pause_s=(0.01, 0.01), snapshot_pause_bytes_per_s=PAYLOAD / 0.02)


def a_job(steps: int = 10_000) -> m.JobSpec:
    return m.JobSpec("a", steps, 0.1, PAYLOAD, loss_budget_s=60.0)


# ---------------------------------------------------------------- P1
def test_a_pause_is_the_write_unless_the_state_is_copied_first() -> None:
    stop = Protocol(snapshot_s=0.2, snapshot_bytes_per_s=1e9)
    assert stop.pauses_s(1e9) == stop.writes_s(1e9) == pytest.approx(1.2)
    copy = replace(stop, snapshots="copy", copy_gb_per_s=10.0)
    assert copy.writes_s(1e9) == pytest.approx(1.2)
    assert copy.pauses_s(1e9) == pytest.approx(0.101)
    assert copy.pauses_s(1e9, host_bytes_per_s=1e9) == pytest.approx(1.001)
    assert stop.pauses_s(1e9, host_bytes_per_s=5e8) == pytest.approx(2.2)


def test_a_scenario_says_whether_jobs_stand_still() -> None:
    demo, lab = demo_scenario(), load("example:lab")
    assert demo.protocol.snapshots == load("example:paper-campus").protocol.snapshots == "copy"
    assert lab.protocol.snapshots == "stop"
    assert demo.played().protocol.pauses_s(1e8) < 0.02 < demo.played().protocol.writes_s(1e8)
    assert lab.played().protocol.pauses_s(1e8) == lab.played().protocol.writes_s(1e8)
    assert costs_of(lab.played().protocol).snapshot_pause_s is None


def test_a_host_that_stops_jobs_for_longer_checkpoints_them_less_often() -> None:
    """P1 plans with what the host has measured, once it has; a tenth of the rate is an interval 3.2 times as long."""
    world = a_world(3, policy="reclaimnet", snapshots="copy", copy_s=0.0, copy_gb_per_s=1.0)
    host = a_running_job(world, a_job(), 2.0)
    core, state = world.coordinator, world.jobs["a"]
    attempt, before_s = state.attempt, state.interval_s

    def tell(sequence: int, pause_bytes_per_s: float) -> None:
        taken = m.SnapshotTaken(
            "a",
            attempt,
            attempt * m.SEQUENCES_PER_ATTEMPT + sequence,
            state.step,
            PAYLOAD,
            False,
            m.SnapshotCost(0.1, 0.1),
            m.SnapshotSpeed(pause_bytes_per_s, 1e8),
        )
        core.handle(ev.AgentSaid(host, taken), world.now_s)

    tell(900, 1e9)
    assert core.cluster.hosts[host].speed == m.SnapshotSpeed(1e9, 1e8)
    assert state.interval_s == before_s
    tell(901, 1e9 * SPEED_CHANGE * 0.999)
    assert core.cluster.hosts[host].speed == m.SnapshotSpeed(1e9, 1e8)
    tell(902, SLOWEST_BYTES_PER_S)
    assert state.interval_s > 3.0 * before_s


@pytest.mark.parametrize("program", [None, Program(["a"])])
def test_a_program_is_asked_less_often_if_it_stands_still_for_longer(program: Program | None) -> None:
    """What a host measures of its other jobs says nothing about how long a program takes to checkpoint."""
    world = a_world(3, policy="reclaimnet", snapshots="copy", copy_s=0.0, copy_gb_per_s=1.0)
    host = a_running_job(world, msgspec.structs.replace(a_job(), program=program), 2.0)
    state = world.jobs["a"]
    before_s, sequence = state.interval_s, state.attempt * m.SEQUENCES_PER_ATTEMPT + 900
    cost = m.SnapshotCost(5.0, 0.1)
    taken = m.SnapshotTaken("a", state.attempt, sequence, state.step, PAYLOAD, False, cost)
    world.coordinator.handle(ev.AgentSaid(host, taken), world.now_s)
    assert (state.interval_s > 3.0 * before_s) is (program is not None)


@pytest.mark.parametrize("policy", ["reclaimnet", "tv-fixed-interval"])
def test_work_doubles_from_checkpoint_to_checkpoint_of_a_young_job(policy: str) -> None:
    """The first is due when it is worth its pause and its sending; P1's interval is never exceeded. A baseline has only that."""
    world = a_world(3, policy=policy, prior_hazard_per_s=1e-6)
    job = a_job()
    a_running_job(world, job, 2.0)
    world.run(400.0)
    interval_s = world.jobs["a"].interval_s
    work_s = [0.0, *(taken.step * job.step_s for taken in world.of(f.CheckpointTaken))]
    gaps_s = [after - before for before, after in itertools.pairwise(work_s)]
    assert interval_s == pytest.approx(120.0)  # 2 L_max: nobody is expected to leave
    if policy == "reclaimnet":
        assert 3.0 < gaps_s[0] < 6.0  # 30 MB at 7 MB/s
        assert all(
            gap == pytest.approx(min(before, interval_s), rel=0.2, abs=2.0)
            for before, gap in zip(work_s[1:-1], gaps_s[1:], strict=True)
        )
    else:
        assert gaps_s[1:] == pytest.approx([interval_s] * len(gaps_s[1:]), rel=0.05)
    assert len(gaps_s) == (8 if policy == "reclaimnet" else 3)


def test_a_slow_disk_makes_final_snapshots_begin_earlier() -> None:
    from controller.core.lifecycle.migration import final_lead_s

    world = a_world(3)
    host = a_running_job(world, a_job(), 2.0)
    cluster, state = world.coordinator.cluster, world.jobs["a"]
    before_s = final_lead_s(cluster, state, host)
    cluster.hosts[host].speed = m.SnapshotSpeed(1e9, 1e11)
    assert final_lead_s(cluster, state, host) == pytest.approx(before_s, rel=0.01)
    cluster.hosts[host].speed = m.SnapshotSpeed(1e9, PAYLOAD / 5.0)
    assert final_lead_s(cluster, state, host) == pytest.approx(before_s + 10.0)


# ---------------------------------------------------------------- virtual time
def first_snapshot(costs: Overheads) -> tuple[float, float, f.CheckpointTaken]:
    """(how long the job was held up, how long after the order it was told, the fact)."""
    world = a_world(3, costs=costs)
    host = a_running_job(world, a_job(), 2.0)
    [process] = world.machines[host].processes.values()
    begun_s, step_s = process.running_from_s, process.spec.step_s
    while not (taken := world.of(f.CheckpointTaken)) and world.now_s < 300.0:
        world.run(world.now_s + 0.05)
    ordered_s = begun_s + taken[0].step * step_s
    return process.running_from_s - begun_s, world.now_s - ordered_s, taken[0]


def test_a_job_that_is_copied_stands_still_for_the_copy_and_is_told_after_the_write() -> None:
    stood_s, told_s, taken = first_snapshot(COPIED)
    assert stood_s == pytest.approx(0.03)
    assert 0.5 <= told_s < 0.8
    assert taken.pause_s == pytest.approx(0.03)
    stood_s, _, taken = first_snapshot(replace(COPIED, snapshot_pause_s=None, snapshot_bytes_per_s=10 * MB))
    assert stood_s == pytest.approx(0.5 + 3.0)
    assert taken.pause_s is None


def test_copies_cost_what_they_stop_jobs_for_and_the_account_says_so() -> None:
    scenario = demo_scenario(seed=2)
    copy, trace = simulate(scenario, generate(scenario)), generate(scenario)
    stop = simulate(replace(scenario, protocol=replace(scenario.protocol, snapshots="stop")), trace)
    told = [fact for _, fact in copy.facts if isinstance(fact, f.CheckpointTaken) and not fact.final]
    pauses_s = [fact.pause_s for fact in told if fact.pause_s is not None]
    assert len(pauses_s) == len(told) > 20
    figures = copy.summary().checkpoints
    assert min(pauses_s) <= figures.pause_median_s <= max(pauses_s)
    assert figures.pause_p99_s < 0.02
    assert figures.stopped == 0
    found = balances(copy.facts, copy.context)
    lost_s = sum(balance.lost_s(LostPart.PAUSES) for balance in found.values())
    assert (
        0.0
        < lost_s
        < 0.2 * sum(balance.lost_s(LostPart.PAUSES) for balance in balances(stop.facts, stop.context).values())
    )
    assert stop.summary().checkpoints.pause_median_s is None


# ---------------------------------------------------------------- read off a journal again
def test_pauses_and_writes_are_found_again_in_the_journal_of_a_run_that_had_them() -> None:
    scenario = load("example:two-worlds")
    scenario = replace(scenario, protocol=replace(scenario.protocol, snapshots="copy"))
    trace, assumed = generate(scenario), costs_of(scenario.played().protocol)
    slow = replace(
        assumed,
        finish_s=(0.2, 0.2),
        snapshot_s=(0.1, 0.1),
        snapshot_bytes_per_s=1e8,
        snapshot_pause_s=(0.05, 0.05),
        snapshot_pause_bytes_per_s=math.inf,
    )
    run = simulate(scenario, trace, costs=slow, quiet=False)
    measured = measure_costs(run.facts, scenario.scale.apply(trace), assumed)
    writes_s = [fact.write_s for _, fact in run.facts if isinstance(fact, f.CheckpointTaken) and not fact.final]
    assert measured.counts["snapshot"] == len(writes_s) > 3
    assert measured.costs.snapshot_pause_s == pytest.approx((0.05, 0.05), abs=0.02)
    assert min(writes_s) <= measured.costs.snapshot_s[0] <= measured.costs.snapshot_s[1] <= max(writes_s)  # type: ignore[type-var]
    assert measure_costs([], trace, assumed).costs == assumed
