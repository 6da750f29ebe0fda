"""Planned migrations: P2 picks destinations, P3 admits, the job moves; or it is recorded at once that it cannot.

How a job moves. Best is to copy a snapshot while the job runs and stop it only for what changed meanwhile. Worst case
is that everything changed, so the final snapshot must be able to send a whole payload C: if it starts at s, it needs
the rate C/(D - T_r - s). With s half-way between now and D - T_r the copy before it has the same time at the same
rate. So P3 is asked for a flow that would rather start half-way (twice eq. 12's rate), but may start now (eq. 12)
with the job stopped at once; if the destination is the standby, which has most of the payload already, now is as
good. Either way the deadline holds for a payload that changed completely. Where rates vary, the timetable sets when
each flow is sent instead: its job stops when that begins, and a newcomer with less time may move one that has not
begun, never beyond its deadline. The work of the notice is not lost in either: the job computes at its destination as
soon as it is there, and at its source until then.

Where no host can have the job running before its notice ends, its state may still leave in time: a *rescue* has the
bytes at a destination when the owner takes the host, and the restart after it (`Move.rescue`). It is recorded as
degraded, at once, with the host that takes the state; what a rescue gives is the work, not the time. Where no GPU is
to be had, it is rescued to a disk, and waits for a GPU from there.

A flow that was admitted stays admitted. If its destination goes away, P2 and P3 are asked again with the time that is left.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from controller.core.admission.admission import Admission, emptiest_first
from controller.core.admission.schedule import GOODPUT, LAG_S, MARGIN_S, MigrationRequest, Reservation, Timetable
from controller.core.checkpointing.planner import transfer_s
from controller.core.lifecycle.attempts import (
    begin_attempt,
    choose_host,
    drop_move,
    release,
    request,
    reserve,
    residual,
    safe_store,
    start,
)
from controller.core.lifecycle.grants import LEAST_SPAN_S, close_flows, committed, goes_between, open_flow, reservations
from controller.core.lifecycle.offers import resume
from controller.core.model import facts
from controller.core.model.cluster import LEAST_LEASES, Cluster
from controller.core.model.entities import CheckpointFlow, JobState, Move, Phase
from controller.core.placement.select import DestinationChoice, NoDestination
from testbed.messages import SEQUENCES_PER_ATTEMPT, StopJob
from topologies.spec import TrafficClass

# until all switches have a new way: some milliseconds for each of its switches (`measure fabric`)
PROGRAMMED_S = 0.05


def plan_moves(cluster: Cluster, jobs: list[JobState]) -> None:
    """Move these running jobs off their hosts, all of which have a notice running; degrade jobs that cannot be moved.

    One is placed after another: the first deadline first, and the job that fits the fewest GPUs. After that the
    states of those that no host can run in time are rescued. Orders go to sources once the event has been decided and
    all rates are settled.
    """
    if not cluster.policy.interruption.migrates:
        for job in jobs:
            _record_degraded(cluster, job, "this system does not migrate")
        return
    # jobs of hosts that are not connected are planned for when these come back
    jobs = [job for job in jobs if job.phase is Phase.RUNNING and cluster.hosts[job.host or ""].connected]
    jobs.sort(key=lambda job: (_notice_s(cluster, job), -job.spec.memory_bytes, job.name))
    reasons = {job.name: _move(cluster, job, rescue=False) for job in jobs}
    if cluster.policy.short_notices:
        for job in jobs:
            if job.move is None:
                _move(cluster, job, rescue=True)
    moves = [(job, job.move) for job in jobs if job.move is not None]
    for job in jobs:
        if job.move is None and not job.degraded:  # recorded at once, and once; and P1, which plans next, has
            job.degraded = True  # one more checkpoint taken at once
            job.interval_s, job.timer.last_s, job.timer.since_s = None, None, -inf
            _record_degraded(cluster, job, reasons[job.name])
    for job, move in moves:
        job.degraded = False
        cluster.advance(job, "migrate")
        cluster.arm_timeout(job, move.deadline_s - cluster.now_s + LEAST_LEASES * cluster.protocol.lease_s)
        if move.rescue:
            _record_degraded(cluster, job, reasons[job.name], move.destination)


def _record_degraded(cluster: Cluster, job: JobState, reason: str, rescued_to: str = "") -> None:
    notice_s, host = _notice_s(cluster, job), job.host or ""
    cluster.record(facts.MigrationDegraded(job.name, job.attempt, host, notice_s, reason, rescued_to))


def retry_degraded(cluster: Cluster) -> None:
    """Plan degraded jobs again: a GPU or bandwidth may have become free while the notice runs."""
    plan_moves(cluster, [job for job in cluster.jobs.unfinished if job.degraded])


def replan(cluster: Cluster, *jobs: JobState) -> None:
    """Find other destinations for moving jobs whose destination, or the way there, is lost; else give the moves up."""
    for job in jobs:
        abandon(cluster, job)
    plan_moves(cluster, [job for job in jobs if _notice_s(cluster, job) > 0.0])
    for job in jobs:
        if job.phase is Phase.RUNNING and job.final_sequence is not None and job.host:
            # nothing runs any more, and no host takes it
            cluster.tell(job.host, StopJob(job.name, job.attempt))


def abandon(cluster: Cluster, job: JobState) -> None:
    """Give up the move: the destination is gone, or the owner withdrew the notice before the job was stopped."""
    destination = job.move.destination if job.move else None
    close_flows(cluster, job=job.name, destination=destination, tell=True)
    drop_move(cluster, job)
    cluster.advance(job, "abandoned")


def land(cluster: Cluster, job: JobState) -> None:
    """Go on at the destination, which has stored the final checkpoint; from its disk, the job waits for a GPU anywhere."""
    assert job.final_sequence is not None
    assert job.move is not None
    assert job.host is not None
    checkpoint, source, move = job.checkpoints[job.final_sequence], job.host, job.move
    destination = cluster.hosts[move.destination]
    close_flows(cluster, job=job.name, source=source)  # it has sent all
    job.step = max(job.step, checkpoint.stored.step)
    if job.name not in destination.jobs:
        release(cluster, job)
        cluster.advance(job, "interrupted")
        resume(cluster, job)
        return
    job.move = job.standby = None  # what is reserved at the destination stays
    release(cluster, job)
    job.landing = source, move
    cluster.advance(job, "landed")
    begin_attempt(cluster, job, destination, checkpoint)
    start(cluster, job, destination)


def land_unheard(cluster: Cluster, job: JobState) -> bool:
    """Go on at the destination if it has the last state and only the report of it was lost; return whether it goes on."""
    newest = cluster.freshest(job)
    if job.move is None or newest is None or job.move.destination not in cluster.holders(newest):
        return False
    if newest.stored.sequence // SEQUENCES_PER_ATTEMPT != job.attempt or newest.stored.step < job.step:
        return False
    job.stopped(cluster.now_s, "final_checkpoint")
    step = newest.stored.step
    cluster.record(facts.JobStopped(job.name, job.attempt, job.host or "", "final_checkpoint", step))
    job.final_sequence = newest.stored.sequence
    land(cluster, job)
    return True


def send_on(cluster: Cluster, job: JobState) -> bool:
    """Send the last state, which the stopped source keeps, to the destination; return whether it is sent.

    Its earlier destination was lost after the hand-over, and the order to move elsewhere came too late for the
    source.
    """
    if job.move is None or job.final_sequence is None:
        return False
    final = job.checkpoints.get(job.final_sequence)
    flow = cluster.flows.get(f"{job.name}:{job.host}>{job.move.destination}")
    if final is None or job.host not in final.holders or flow is None or flow.sequence is not None:
        return False
    flow.sequence = job.final_sequence
    order(cluster, job)
    return True


def landed(cluster: Cluster, job: JobState) -> None:
    """Record how the migration went: the attempt that it led to is running."""
    if job.landing is None:
        return
    now_s, (source, move) = cluster.now_s, job.landing
    job.landing = None
    if move.rescue:
        return
    in_time, took_s = now_s <= move.deadline_s, now_s - move.began_s
    downtime_s = 0.0 if job.stop is None else now_s - job.stop.at_s
    cluster.record(facts.MigrationFinished(job.name, source, move.destination, in_time, took_s, downtime_s))


def tell_starts(cluster: Cluster, plan: Timetable) -> None:
    """Inform sources whose reservation has not begun that it starts at another time."""
    for flow, reservation in reservations(cluster):
        if reservation.since_s is None and (spans := plan.spans.get(flow.key)):
            final_at_s = spans[0].from_s - reservation.lead_s
            reservation.told = reservation.told and abs(final_at_s - reservation.final_at_s) < LEAST_SPAN_S
            if not reservation.told:
                reservation.final_at_s = final_at_s
                cluster.orders[flow.key] = None


# ---------------------------------------------------------------- steps of a plan


def _move(cluster: Cluster, job: JobState, *, rescue: bool) -> str:
    """Move the job, or its state alone, if P2 finds a destination and P3 admits the move; else return the reason."""
    choice, has_gpu = _choose_destination(cluster, job, rescue=rescue)
    if isinstance(choice, NoDestination):
        lacks = f"{choice.shortfall:.3g} {choice.reason.unit}"
        near = f"; closest was {choice.closest}, short of {lacks}" if choice.closest else ""
        return f"{choice.reason}{near}"
    asked, answer = _admit(cluster, job, choice, rescue=rescue)
    if job.name not in answer.admitted:
        refusal = answer.refused[job.name]
        return f"{refusal.reason}: {refusal.link}" if refusal.link else str(refusal.reason)
    _begin_move(cluster, job, choice, asked, answer, rescue=rescue)
    tell_starts(cluster, answer.timetable)  # the newcomer may have moved reservations that have not begun
    if has_gpu:
        reserve(cluster, job, cluster.hosts[choice.host])
    return ""


def _choose_destination(
    cluster: Cluster, job: JobState, *, rescue: bool
) -> tuple[DestinationChoice | NoDestination, bool]:
    """Return P2's choice, and whether the job has GPUs there.

    Flows with an earlier reservation take their part of the notice; later ones give way. A rescue that finds no GPU takes a disk:
    of a host without an owner, or of a volunteer.
    """
    assert job.host is not None
    now_s, notice_s = cluster.now_s, _notice_s(cluster, job)

    def taken(flow: CheckpointFlow) -> float:
        if flow.reservation is None or not notice_s:
            return flow.floor_bytes_per_s
        return flow.reservation.left_bytes / notice_s if flow.reservation.due_s < now_s + notice_s else 0.0

    host, free = job.host, residual(cluster, taken)
    wanted = request(cluster, job, host, job.spec.payload_bytes, notice_s)
    if not rescue:
        return choose_host(cluster, cluster.policy.select, wanted, [host], free, cluster.draw()), True
    within_s = notice_s + wanted.restart_s
    wanted = replace(wanted, notice_s=within_s)
    choice = choose_host(cluster, cluster.policy.select, wanted, [host], free, cluster.draw())
    if isinstance(choice, DestinationChoice):
        return choice, True
    if (store := safe_store(cluster, job, host, free)) is not None:
        rate = cluster.paths.rate(host, store, free)
        there_s = transfer_s(wanted.payload_bytes, rate) + wanted.restart_s
        if there_s <= within_s:
            return DestinationChoice(store, there_s, there_s, 1.0), False
    wanted = replace(wanted, needs_gpu=False)
    return choose_host(cluster, cluster.policy.select, wanted, [host], free, cluster.draw()), False


def _admit(
    cluster: Cluster, job: JobState, choice: DestinationChoice, *, rescue: bool
) -> tuple[MigrationRequest, Admission]:
    """Return P3's answer to the move over the first way that admits it, and the request.

    It asks to copy first and stop half-way, if possible, else to stop at the timetable's time.
    """
    assert job.host is not None
    now_s, ends = cluster.now_s, (job.host, choice.host)
    deadline_s = now_s + _notice_s(cluster, job) - (MARGIN_S if cluster.policy.rates_vary else 0.0)
    lead_s, restart_s = final_lead_s(cluster, job, job.host), 0.0 if rescue else cluster.protocol.restart_s
    mostly_there = choice.host == job.standby and job.stream.sent_bytes is not None and not rescue
    half_way_s = (now_s + deadline_s - restart_s + lead_s) / 2.0
    rather_s = now_s if mostly_there or job.final_sequence is not None else half_way_s
    # a flow gets a little less than its grant, for which a reservation allows
    size = job.spec.payload_bytes / (GOODPUT if cluster.policy.enforced else 1.0)
    links = cluster.routes.way(*ends)
    asked = MigrationRequest(job.name, size, deadline_s, restart_s, links, now_s + lead_s, rather_s)
    commitments, share = committed(cluster, movable=True), cluster.capacity.spendable
    ways = [links]
    if cluster.chooses_ways and not goes_between(cluster, *ends):
        ways = cluster.choices(*ends)
    for way in ways if len(ways) == 1 else emptiest_first(ways, asked, cluster.now_s, share, commitments):
        asked = asked if way is links else replace(asked, links=way)
        answer = cluster.policy.admit([asked], cluster.now_s, share, commitments)
        if answer.admitted:
            break
    return asked, answer


def _begin_move(
    cluster: Cluster,
    job: JobState,
    choice: DestinationChoice,
    asked: MigrationRequest,
    answer: Admission,
    *,
    rescue: bool,
) -> None:
    """Open the move of an admitted job, with its floor or its reservation in the timetable."""
    assert job.host is not None
    now_s, notice_s = cluster.now_s, _notice_s(cluster, job)
    constant = floor = answer.admitted[job.name]
    reservation, lead_s = None, final_lead_s(cluster, job, job.host)
    if cluster.policy.rates_vary:
        spans = answer.timetable.spans[job.name]
        begins_s, ends_s = spans[0].from_s, spans[-1].until_s
        reserved_bytes = sum(span.rate_bytes_per_s * (span.until_s - span.from_s) for span in spans)
        floor = reserved_bytes / (ends_s - begins_s)
        reservation = Reservation(asked.payload_bytes, asked.due_s, lead_s, begins_s - lead_s)
        if job.final_sequence is not None:
            reservation.begin(now_s + LAG_S)  # it only has to learn where to
    rate, time_s, deadline_s = floor, choice.migration_s - cluster.protocol.restart_s, now_s + notice_s
    if rate == 0.0 and 0.0 < time_s < inf:  # none is reserved: P2's hope decides when to stop
        rate = asked.payload_bytes / time_s
    final_at_s = deadline_s - (asked.restart_s + lead_s) - transfer_s(asked.payload_bytes, rate)
    job.move = Move(choice.host, deadline_s, now_s, final_at_s, rescue=rescue)
    if job.standby != choice.host:  # the order to move may wait for its way, and be taken back
        close_flows(cluster, job=job.name, source=job.host, destination=job.standby or "", tell=True)
    if asked.links != cluster.routes.way(job.host, choice.host):
        cluster.set_way(job.host, choice.host, asked.links)
    planned = TrafficClass.PLANNED
    flow = CheckpointFlow(job.name, job.host, choice.host, planned, constant, reservation=reservation)
    open_flow(cluster, flow)
    cluster.orders[flow.key] = None
    if rescue:
        return
    cluster.record(
        facts.MigrationAdmitted(
            job.name,
            job.attempt,
            job.host,
            choice.host,
            notice_s,
            job.spec.payload_bytes,
            floor,
            choice.score_s if choice.score_s < inf else None,
            choice.survival,
        )
    )


def order(cluster: Cluster, job: JobState) -> None:
    """Order the source of this move (again, after a connection was lost)."""
    assert job.move is not None
    cluster.orders[f"{job.name}:{job.host}>{job.move.destination}"] = None


def _notice_s(cluster: Cluster, job: JobState) -> float:
    """Return the seconds that are left of the notice of the job's host; 0 without one."""
    reclaim_at_s = cluster.hosts[job.host or ""].reclaim_at_s
    return 0.0 if reclaim_at_s is None else max(0.0, reclaim_at_s - cluster.now_s)


def final_lead_s(cluster: Cluster, job: JobState, source: str) -> float:
    """Return the seconds from the order of the final snapshot to its first byte; another snapshot may be under way then."""
    lag_s = LAG_S if cluster.policy.rates_vary else 0.0
    if cluster.chooses_ways:  # the order waits for the network
        lag_s += PROGRAMMED_S
    payload_bytes, speed = job.spec.payload_bytes, cluster.hosts[source].speed
    writes_s = cluster.protocol.writes_s(payload_bytes)
    if speed is not None:  # a reservation is kept by a slow disk too
        writes_s = max(writes_s, cluster.protocol.snapshot_s + payload_bytes / speed.write_bytes_per_s)
    return 2.0 * writes_s + lag_s
