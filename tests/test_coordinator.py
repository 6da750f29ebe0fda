"""What the coordinator decides, seen from outside: facts recorded and orders given, over real agent cores in memory."""

from dataclasses import replace
from math import inf

import pytest

from controller.core.admission.schedule import GOODPUT
from controller.core.coordinator import Coordinator
from controller.core.lifecycle.grants import close_flow, committed, open_flow, settle
from controller.core.lifecycle.job_events import MOST_FAILED_STARTS
from controller.core.lifecycle.offers import to_on_demand
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.model.entities import CheckpointFlow, JobState, Phase
from controller.core.status import status
from testbed import messages as m
from tests.world import PROTOCOL, QUEUE, World, a_running_job, a_world, calm_and_finish, job, small_campus
from topologies.spec import TrafficClass


# ---------------------------------------------------------------- leases
def test_a_lease_that_ended_while_the_coordinator_stood_still_goes_on_for_a_heartbeat() -> None:
    core = a_world().coordinator
    late_s = core.cluster.leases.next_s() + 10.0
    for at_s, ends in ((late_s, False), (late_s + PROTOCOL.heartbeat_s, True)):
        effects = core.handle(ev.Woke(), at_s)
        assert any(isinstance(effect, do.Disconnect) for effect in effects) is ends


def test_a_host_that_connects_again_is_told_what_to_call_off_and_that_a_rate_fell_to_nothing() -> None:
    world = a_world()
    host = a_running_job(world, job("a"))
    core, standby = world.coordinator, world.jobs["a"].standby
    down = core.cluster.routes.way(host, standby)[-1]
    core.handle(ev.LinksChanged([(*down, 0.0)]), world.now_s)
    core.handle(ev.AgentGone(host, "cut"), world.now_s)
    sending = [("a", standby), ("a", "h9"), ("b", standby)]
    hello = m.Hello(host, 1, 7200, [m.JobClaim("a", 1, 0)], [], [], True, sending=sending)
    effects = core.handle(ev.AgentSaid(host, hello), world.now_s)
    told = [effect.message for effect in effects if isinstance(effect, do.Tell)]
    cancelled = [message for message in told if isinstance(message, m.CancelTransfers)]
    assert cancelled == [m.CancelTransfers("a", "h9"), m.CancelTransfers("b", standby)]
    assert m.Grant("a", standby, 0.0) in told
    assert not any(isinstance(message, m.Protect) for message in told)  # no new interval carries it


# ---------------------------------------------------------------- planned migrations
@pytest.mark.parametrize(("payload_bytes", "notice_s", "part"), [(16_000_000, 20.0, 0.5), (30_000_000, 7.5, 1.0)])
def test_a_move_at_a_constant_rate_has_half_the_time_and_one_too_big_for_that_all_of_it(
    payload_bytes: int, notice_s: float, part: float
) -> None:
    world = a_world(policy="reclaimnet+admit=reclaimnet-as-printed")
    host = a_running_job(world, job("a", payload_bytes=payload_bytes))
    world.reclaim(host, notice_s)
    world.run(4.5)
    [admitted] = world.of(f.MigrationAdmitted)
    time_s = admitted.notice_s - PROTOCOL.restart_s - 2 * PROTOCOL.snapshot_s
    assert admitted.floor_bytes_per_s == pytest.approx(payload_bytes / GOODPUT / (part * time_s))
    [order] = world.to(host, m.Migrate)
    assert order.final_within_s == pytest.approx((1.0 - part) * time_s, abs=1e-6)
    world.run(4.0 + notice_s + 1.0)
    assert world.of(f.MigrationFinished)[0].in_time


def test_what_cannot_be_moved_is_said_at_once_and_takes_one_more_checkpoint() -> None:
    world = a_world(4, 1)
    host = a_running_job(world, job("a", payload_bytes=30_000_000))
    world.reclaim(host, 3.0)
    world.run(4.2)
    [degraded] = world.of(f.MigrationDegraded)
    assert degraded.job == "a"
    assert degraded.reason
    assert world.to(host, m.Protect)[-1].first_s == 0.0


def test_without_a_rescue_a_job_that_cannot_be_moved_loses_what_it_did_since_its_last_checkpoint() -> None:
    world = a_world(6, 1, restart_s=4.0, policy="reclaimnet+short_notices=false")
    host = a_running_job(world, job("a", payload_bytes=8_000_000), 20.0)
    world.reclaim(host, 4.0)
    world.run(30.0)
    assert [fact.rescued_to for fact in world.of(f.MigrationDegraded)] == [""]
    assert {fact.job for fact in world.of(f.WorkLost)} == {"a"}


def test_floors_that_a_link_no_longer_carries_are_cut_by_one_factor() -> None:
    core = a_world(4, 0).coordinator
    cluster = core.cluster
    for name, floor in (("one", 2e6), ("other", 4e6)):
        cluster.jobs.add(JobState(job(name)))
        open_flow(cluster, CheckpointFlow(name, "h1", "h2", TrafficClass.PLANNED, floor))
    link = cluster.routes.way("h1", "h2")[0]
    core.handle(ev.LinksChanged([(*link, 5e6)]), core.cluster.now_s)
    carried = cluster.capacity.reservable[link]
    floors = [flow.floor_bytes_per_s for flow in cluster.flows.values()]
    assert floors == pytest.approx([carried / 3.0, 2.0 * carried / 3.0])


@pytest.mark.parametrize("borrows", [True, False])
def test_checkpoints_of_a_silent_host_hold_no_rate_where_they_yield_on_the_wire(borrows: bool) -> None:
    cluster = a_world(4, 0, policy=f"reclaimnet+borrows={str(borrows).lower()}").coordinator.cluster
    cluster.jobs.add(JobState(job("a")))
    open_flow(cluster, flow := CheckpointFlow("a", "h1", "h2", TrafficClass.PRESYNC))
    flow.rate_bytes_per_s, cluster.hosts["h1"].connected = 1e6, False
    assert len(committed(cluster)) == (not borrows)


def test_of_grants_that_change_those_that_fall_are_sent_first() -> None:
    core = a_world(4, 0).coordinator
    for name in ("b", "a"):
        core.cluster.jobs.add(JobState(job(name)))
        open_flow(core.cluster, CheckpointFlow(name, "h1", "h2", TrafficClass.PLANNED))
        effects = core.handle(ev.Woke(), core.cluster.now_s)
    told = [each.message.job for each in effects if isinstance(each, do.Tell) and isinstance(each.message, m.Grant)]
    assert told == ["b", "a"]


def recovery(name: str, source: str, to: str) -> CheckpointFlow:
    return CheckpointFlow(name, source, to, TrafficClass.PLANNED, sequence=1)


@pytest.mark.parametrize("row", ["reclaimnet", "reclaimnet+recoveries_first=false"])
def test_jobs_that_wait_for_their_state_come_before_checkpoints_the_shortest_first(row: str) -> None:
    world = a_world(6, 0, policy=row)
    source = a_running_job(world, job("c", payload_bytes=8_000_000, loss_budget_s=1.0))
    for name, payload_bytes in (("long", 4_000_000), ("short", 1_000_000)):
        world.submit(job(name, payload_bytes=payload_bytes))
    world.run(20.0)
    core = world.coordinator.cluster
    stream = next(flow for flow in core.flows.values() if flow.job == "c" and flow.source == source)
    stream.rate_bytes_per_s, core.rates_stale = 0.0, True
    settle(core)
    alone = stream.rate_bytes_per_s
    assert alone > 0.0
    to = [name for name in core.places.hosts if name not in (source, stream.destination)][:2]
    flows = [recovery(name, source, host) for name, host in zip(("long", "short"), to, strict=True)]
    long, short = flows
    for flow in flows:
        open_flow(core, flow)
    settle(core)
    rates = [flow.rate_bytes_per_s for flow in (short, long, stream)]
    uplink = core.paths.of(source, to[0])[0]
    share = float(core.capacity.given_column[uplink])
    lent = float(core.capacity.lent_column[uplink]) - share  # of research's reserve, to checkpoints alone
    assert lent > 0.0
    if row == "reclaimnet+recoveries_first=false":
        assert rates == pytest.approx([share / 3.0, share / 3.0, share / 3.0 + lent])
        return
    assert rates == pytest.approx([share, 0.0, lent], abs=1.0)
    close_flow(core, short)
    settle(core)
    assert [long.rate_bytes_per_s, stream.rate_bytes_per_s] == pytest.approx([share, lent], abs=1.0)
    close_flow(core, long)
    settle(core)
    assert stream.rate_bytes_per_s == pytest.approx(alone)


# ---------------------------------------------------------------- queue, spares, on-demand
def test_spare_gpus_are_not_offered_and_take_migrations() -> None:
    world = a_world(2, 1, spare_gpus=1)  # three GPUs, two offered
    for name in ("a", "b", "c"):
        world.submit(job(name))
    world.run(4.0)
    waiting = [name for name, state in world.jobs.items() if state.phase is Phase.WAITING]
    assert waiting == ["c"]
    running = {state.host for state in world.jobs.values() if state.host}
    world.reclaim(running.pop(), 20.0)
    world.run(5.0)
    assert len(world.of(f.MigrationAdmitted)) == 1


def test_jobs_redirected_to_a_full_on_demand_pool_are_served_in_turn() -> None:
    world = a_world(2, 1, level_start=0.0)
    hold = [job(f"v{n}") for n in range(3)]
    for spec in hold:
        world.submit(spec)
    for number in range(4):
        world.submit(job(f"d{number}", steps=30), draw=0.99)
    world.run(2.0)
    assert world.coordinator.cluster.backlog == ["d2", "d3"]
    world.run(15.0)
    assert [world.jobs[f"d{n}"].phase for n in range(4)] == [Phase.FINISHED] * 4


def test_a_redirected_job_goes_to_the_emptiest_on_demand_host() -> None:
    cluster, waits = a_world(2, 2).coordinator.cluster, JobState(job("a"))
    first, second = cluster.ownerless
    first.spec, second.spec = (replace(host.spec, gpus=2) for host in (first, second))
    first.jobs["b"] = 1
    cluster.jobs.add(waits)
    to_on_demand(cluster, waits)
    assert waits.host == second.name


def test_offers_lapse_after_their_time_and_the_gpu_stays_a_destination() -> None:
    world = a_world(3, 1, offer_ttl_s=2.0)
    host = a_running_job(world, job("a"), at_s=4.0)
    assert world.of(f.OfferLapsed)
    assert not world.coordinator.cluster.queue.standing()
    world.reclaim(host, 15.0)
    world.run(5.0)
    assert len(world.of(f.MigrationAdmitted)) == 1


# ---------------------------------------------------------------- peers that say odd things
def test_a_job_that_no_host_can_run_is_refused_with_the_reason() -> None:
    core = Coordinator(small_campus(2, 1), PROTOCOL, QUEUE, lambda: 0.0)
    [answer] = core.handle(ev.SubmitAsked(m.JobSpec("a", 1, 0.1, 1, memory_bytes=1e15), 0.0, 7), 1.0)
    assert isinstance(answer.message, m.Rejected)
    assert "memory" in answer.message.reason
    assert core.next_deadline_s() == inf


def test_a_job_submitted_again_is_accepted_again_and_is_no_other_job() -> None:
    core = Coordinator(small_campus(2, 1), PROTOCOL, QUEUE, lambda: 0.0)
    first, *_ = (e for e in core.handle(ev.SubmitAsked(job("a"), 0.0, 7), 1.0) if isinstance(e, do.Answer))
    assert core.handle(ev.SubmitAsked(job("a"), 0.0, 7), 2.0) == [do.Answer(7, m.Accepted("a", before=True))] != [first]
    [other] = core.handle(ev.SubmitAsked(job("a", 5), 0.0, 7), 3.0)
    assert isinstance(other.message, m.Rejected)


def test_stream_to_a_standby_is_told_to_stop_when_a_move_takes_its_place(world: World) -> None:
    """The order to move may wait for its way, and be taken back unsent."""
    host = a_running_job(world, job("a", payload_bytes=100_000), 40.0)
    standby = world.jobs["a"].standby
    others = [name for name, known in world.coordinator.cluster.hosts.items() if name not in (host, standby)]
    world.jobs["a"].obstacles.unfit[standby] = inf
    world.reclaim(host, 20.0)
    while not (admitted := world.of(f.MigrationAdmitted)):
        world.run(world.now_s + 0.01)
    assert admitted[0].destination in others
    assert m.CancelTransfers("a", standby) in world.to(host, m.CancelTransfers)


# ---------------------------------------------------------------- checkpoints that cannot be read
def starts_that_fail(world: World, count: int) -> list[f.JobStopped]:
    """The job's process is killed, and so many starts after that fail; the stops that they were."""
    host = a_running_job(world, job("a", payload_bytes=100_000), 40.0)
    world.workload_failures = 1.0
    world.workloads.kill_from_outside(world.machines[host], "a")
    while len(failed := [stop for stop in world.of(f.JobStopped) if stop.cause == "failed_start"]) < count:
        world.run(world.now_s + 0.01)
    world.workload_failures = 0.0
    return failed


def test_starts_that_fail_are_tried_elsewhere_and_after_longer_and_longer_pauses(world: World) -> None:
    failed = starts_that_fail(world, MOST_FAILED_STARTS)
    assert len({stop.host for stop in failed[:3]}) == 3
    waits = [fact.reason for fact in world.of(f.JobWaits)]
    assert waits == [f"requeued, and may start again in {wait_s} s" for wait_s in (1, 2, 4, 8)]
    world.run(world.now_s + 12.0)
    running = world.of(f.JobRunning)[-1]
    assert running.step > 0 and world.jobs["a"].obstacles.failed_at == []
    calm_and_finish(world)


def test_job_that_cannot_read_its_checkpoints_begins_anew_and_they_are_of_no_use_any_more(world: World) -> None:
    starts_that_fail(world, MOST_FAILED_STARTS + 1)
    world.run(world.now_s + 5.0)
    running = world.of(f.JobRunning)[-1]
    assert (running.step, running.restored_sequence) == (0, None)
    held = [sequence for machine in world.machines.values() for _, sequence in machine.store]
    assert all(sequence // m.SEQUENCES_PER_ATTEMPT >= running.attempt for sequence in held)
    calm_and_finish(world)


def test_an_attempt_that_is_quicker_than_declared_is_remarked(world: World) -> None:
    a_running_job(world, job("a"), 4.0)
    [shown] = status(world.coordinator.cluster, world.now_s).jobs
    assert shown.remark == ""
    state = world.jobs["a"]
    state.did(1000)
    [shown] = status(world.coordinator.cluster, state.timer.since_s + 2.0).jobs
    assert shown.remark == "declared 100 ms a step, measured 2 ms"
