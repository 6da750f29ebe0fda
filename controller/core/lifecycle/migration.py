"""Planned migrations: P2 picks destinations, P3 admits, the job moves; or it is said at once that it cannot.

How a job moves. Best is to copy a snapshot while the job runs and stop it only for what changed meanwhile. Worst case is that
everything changed, so the final snapshot must be able to send a whole payload C: if it starts at s, it needs the rate
C/(D - T_r - s). With s half-way between now and D - T_r the copy before it has the same time at the same rate. So P3 is asked
for a flow that would rather start half-way (twice eq. 12's rate), but may start now (eq. 12) with the job stopped at once; if
the destination is the standby, which has most of the payload already, now is as good. Either way the deadline holds for a
payload that changed completely. Where rates vary, the timetable says when each flow is sent instead: its job stops when that
begins, and a newcomer with less time may move one that has not begun, never beyond its deadline. The work of the notice is
not lost in either: the job computes at its destination as soon as it is there, and at its source until then.

Where no host can have the job running before its notice ends, its state may still leave in time: a *rescue* has the bytes at
a destination when the owner takes the host, and the restart after it (`Move.rescue`). It is told as degraded, at once, with
the host that takes the state; what a rescue gives is the work, not the time. Where no GPU is to be had, it is rescued to a disk
(`Rescue.TO_DISK`), and waits for a GPU from there.

A flow that was admitted stays admitted. If its destination goes away, P2 and P3 are asked again with the time that is left.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from math import inf

from controller.core.admission.admission import Admission
from controller.core.admission.best_ways import admit_best
from controller.core.admission.reservation import GOODPUT, LAG_S, MARGIN_S, Reservation
from controller.core.admission.schedule import MigrationRequest, Timetable
from controller.core.checkpointing.intervals import latest_final_start_s, transfer_s
from controller.core.lifecycle.attempts import begin_attempt, drop_move, release, reserve, start
from controller.core.lifecycle.candidates import candidates, request, residual, safe_store
from controller.core.lifecycle.grants import (
    LEAST_SPAN_S,
    close_flow,
    close_flows,
    committed,
    goes_between,
    open_flow,
    presync_flow,
    reservations,
)
from controller.core.lifecycle.offers import resume
from controller.core.model import facts
from controller.core.model.cluster import LEAST_LEASES, Cluster
from controller.core.model.entities import (
    CheckpointFlow,
    JobState,
    Move,
    Phase,
    Rescue,
)
from controller.core.network.bandwidth import bottleneck
from controller.core.placement.select import DestinationChoice, Missing, NoDestination
from testbed.messages import SEQUENCES_PER_ATTEMPT, StopJob
from topologies.spec import TrafficClass

# until all switches have a new way: some milliseconds for each of its switches (`measure fabric`)
PROGRAMMED_S = 0.05
# what a free GPU lacks for a job, though it may do for another
TOO_SMALL = (Missing.MEMORY, Missing.CAPABILITY)


def plan_moves(cluster: Cluster, jobs: list[JobState]) -> None:
    """Move these running jobs off their hosts, all of which have a notice running; degrade jobs that cannot be moved.

    There are two rounds: a job that was refused for others of its round looks once more at what is left.
    Sources are told once the event has been decided and all rates are settled.
    """
    if not cluster.policy.migrates:
        for job in jobs:
            _record_degraded(cluster, job, "this system does not migrate")
        return
    jobs = [job for job in jobs if _can_be_told(cluster, job)]
    reasons: dict[str, str] = {}
    for _ in range(2):
        reasons = _move_some(cluster, [job for job in jobs if job.move is None])
    if cluster.policy.short_notices:
        _move_some(cluster, [job for job in jobs if job.move is None], rescue=Rescue.TO_GPU)
        _move_some(cluster, [job for job in jobs if job.move is None], rescue=Rescue.TO_DISK)
    moves = [(job, job.move) for job in jobs if job.move is not None]
    for job in jobs:
        if job.move is None and not job.degraded:  # recorded at once, and once; and P1, which plans next, has
            job.degraded = True  # one more checkpoint taken at once
            job.interval_s, job.last_checkpoint_s, job.protected_since_s = None, None, -inf
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
    jobs = [job for job in cluster.jobs.unfinished() if job.degraded and _can_be_told(cluster, job)]
    if jobs:
        plan_moves(cluster, jobs)


def replan(cluster: Cluster, *jobs: JobState) -> None:
    """Find other destinations for moving jobs that have lost theirs, or the ways there; else give the moves up."""
    for job in jobs:
        abandon(cluster, job)
    if left := [job for job in jobs if _has_notice(cluster, job)]:
        plan_moves(cluster, left)
    for job in jobs:
        if job.phase is Phase.RUNNING and job.final_sequence is not None and job.host:
            # nothing runs any more, and no host takes it
            cluster.tell(job.host, StopJob(job.name, job.attempt))


def _can_be_told(cluster: Cluster, job: JobState) -> bool:
    """Return whether the job runs on a connected host; others are planned for when they come back."""
    return job.phase is Phase.RUNNING and job.host is not None and cluster.hosts[job.host].connected


def abandon(cluster: Cluster, job: JobState) -> None:
    """Give up the move: the destination is gone, or the owner withdrew the notice before the job was stopped."""
    destination = job.move.destination if job.move else None
    close_flows(cluster, job=job.name, destination=destination, tell=True)
    drop_move(cluster, job)
    cluster.advance(job, "abandoned")


def land(cluster: Cluster, job: JobState) -> None:
    """Go on at the destination, which has stored the final checkpoint."""
    if job.move is not None and job.move.rescue is Rescue.TO_DISK:
        _land_on_disk(cluster, job)
        return
    assert job.final_sequence is not None
    assert job.move is not None
    assert job.host is not None
    checkpoint, move = job.checkpoints[job.final_sequence], job.move
    source, destination = cluster.hosts[job.host], cluster.hosts[move.destination]
    close_flows(cluster, job=job.name, source=source.name)
    close_flows(cluster, job=job.name, tell=True)  # a copy on its way to the vault
    cluster.free_gpu(job, source)
    job.move, job.landing, job.standby = None, (source.name, move), None
    job.degraded, job.step = False, max(job.step, checkpoint.stored.step)
    cluster.advance(job, "landed")
    begin_attempt(cluster, job, destination, checkpoint)
    start(cluster, job, destination)


def _land_on_disk(cluster: Cluster, job: JobState) -> None:
    """Have the job wait for a GPU like an interrupted one: it is fetched from where its state is."""
    assert job.final_sequence is not None
    assert job.host is not None
    close_flows(cluster, job=job.name, source=job.host)
    close_flows(cluster, job=job.name, tell=True)
    job.step = max(job.step, job.checkpoints[job.final_sequence].stored.step)
    release(cluster, job)
    job.landing, job.degraded, job.standby = None, False, None
    cluster.advance(job, "interrupted")
    resume(cluster, job)


def land_unheard(cluster: Cluster, job: JobState) -> bool:
    """Go on at the destination if it has the last state and only the report of it was lost; return whether."""
    newest = cluster.freshest(job)
    if job.move is None or newest is None or job.move.destination not in cluster.holders(newest):
        return False
    if newest.stored.sequence // SEQUENCES_PER_ATTEMPT != job.attempt or newest.stored.step < job.step:
        return False
    job.stopped_cause = "final_checkpoint"
    job.stopped_at_s = cluster.now_s if job.stopped_at_s is None else job.stopped_at_s
    step = newest.stored.step
    cluster.record(facts.JobStopped(job.name, job.attempt, job.host or "", job.stopped_cause, step))
    job.final_sequence = newest.stored.sequence
    land(cluster, job)
    return True


def send_on(cluster: Cluster, job: JobState) -> bool:
    """Send the last state, which the stopped source keeps, to the destination; return whether.

    Its earlier destination was lost after the hand-over, and the order to move elsewhere came too late for the source.
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
    downtime_s = now_s - (now_s if job.stopped_at_s is None else job.stopped_at_s)
    cluster.record(facts.MigrationFinished(job.name, source, move.destination, in_time, took_s, downtime_s))


def start_reservation(cluster: Cluster, job: JobState) -> None:
    """Count what a job's flow sends from now on as reserved: its final snapshot exists."""
    for flow, reservation in reservations(cluster):
        if flow.job == job.name:
            reservation.begin(cluster.now_s)
            cluster.rates_stale = True


def tell_starts(cluster: Cluster, plan: Timetable) -> None:
    """Tell sources whose reservation has not begun that it starts at another time."""
    for flow, reservation in reservations(cluster):
        begins_s = plan.begins_s(flow.key)
        if reservation.since_s is None and begins_s < inf:
            final_at_s = begins_s - reservation.lead_s
            reservation.told = reservation.told and abs(final_at_s - reservation.final_at_s) < LEAST_SPAN_S
            if not reservation.told:
                reservation.final_at_s = final_at_s
                cluster.orders[flow.key] = None


# ---------------------------------------------------------------- steps of a plan


def _move_some(cluster: Cluster, jobs: list[JobState], *, rescue: Rescue | None = None) -> dict[str, str]:
    """Plan one round: P2 chooses for each job, P3 admits all at once. Return the reasons of those without a move.

    A job that is too large for the GPUs left over takes that of another, if that one finds a place elsewhere.
    """
    reasons: dict[str, str] = {}
    chosen: dict[str, tuple[JobState, DestinationChoice]] = {}
    for job in jobs:
        choice = _choose_destination(cluster, job, rescue=rescue)
        if isinstance(choice, DestinationChoice):
            if rescue is not Rescue.TO_DISK:  # so that the next job of the round sees it taken
                cluster.hold_gpu(job, cluster.hosts[choice.host])
            chosen[job.name] = job, choice
        elif not (choice.reason in TOO_SMALL and _make_room(cluster, job, chosen, set(), rescue=rescue)):
            lacks = f"{choice.shortfall:.3g} {choice.reason.unit}"
            near = f"; closest was {choice.closest}, short of {lacks}" if choice.closest else ""
            reasons[job.name] = f"{choice.reason}{near}"
    if not chosen:
        return reasons
    found = list(chosen.values())
    asked, answer = _admit(cluster, found, rescue=rescue)
    for job, choice in found:
        if job.name in answer.admitted:
            _begin_move(cluster, job, choice, asked[job.name], answer, rescue=rescue)
        else:
            refusal = answer.refused[job.name]
            reasons[job.name] = f"{refusal.reason}: {refusal.link}" if refusal.link else str(refusal.reason)
    if answer.admitted:  # newcomers may have moved reservations that have not begun
        tell_starts(cluster, answer.timetable)
    if rescue is Rescue.TO_DISK:
        return reasons
    for job, choice in found:  # GPUs held for those refused are free again, as if nothing had been
        if job.move is None:
            cluster.let_gpu_go(job, cluster.hosts[choice.host])
    for job, choice in found:
        if job.move is not None:
            reserve(cluster, job, cluster.hosts[choice.host])
    return reasons


def _make_room(
    cluster: Cluster,
    job: JobState,
    chosen: dict[str, tuple[JobState, DestinationChoice]],
    asked: set[str],
    *,
    rescue: Rescue | None,
) -> bool:
    """Give the job a GPU that another of the round has chosen and can replace; return whether.

    This is an augmenting path (Kuhn 1955): as many jobs of a round get GPUs as can, whatever their order.
    `asked`: the jobs that were tried.
    """
    if not cluster.policy.recoveries_first or rescue is Rescue.TO_DISK:
        return False
    for other, choice in list(chosen.values()):
        host = cluster.hosts[choice.host]
        if other.name in asked or not cluster.fits(job, host):
            continue
        asked.add(other.name)
        cluster.let_gpu_go(other, host)
        mine = _choose_destination(cluster, job, rescue=rescue, among=cluster.fit_hosts(job) & {host.name})
        if isinstance(mine, DestinationChoice):
            cluster.hold_gpu(job, host)
            instead = _choose_destination(cluster, other, rescue=rescue)
            if isinstance(instead, DestinationChoice):
                cluster.hold_gpu(other, cluster.hosts[instead.host])
                chosen[other.name] = other, instead
            if isinstance(instead, DestinationChoice) or _make_room(
                cluster, other, chosen, asked, rescue=rescue
            ):
                chosen[job.name] = job, mine
                return True
            cluster.let_gpu_go(job, host)
        cluster.hold_gpu(other, host)
    return False


def _admit(
    cluster: Cluster,
    found: list[tuple[JobState, DestinationChoice]],
    *,
    rescue: Rescue | None,
) -> tuple[dict[str, MigrationRequest], Admission]:
    """Ask P3 for all these moves at once, and return what was asked and its answer."""
    asked = {job.name: _request(cluster, job, choice, rescue=rescue) for job, choice in found}
    commitments = committed(cluster, movable=True)
    pairs = {job.name: (job.host or "", choice.host) for job, choice in found}
    ways = {pair: [cluster.routes.way(*pair)] for pair in pairs.values()}
    if cluster.chooses_ways:
        ways |= {pair: cluster.choices(*pair) for pair in ways if not goes_between(cluster, *pair)}
    asked, answer = admit_best(
        cluster.policy.admit, asked, pairs, ways, cluster.now_s, cluster.capacity.spendable, commitments
    )
    if cluster.witness is not None:
        cluster.witness.admitted(list(asked.values()), cluster.capacity.spendable, commitments, answer)
    return asked, answer


def _choose_destination(
    cluster: Cluster, job: JobState, *, rescue: Rescue | None, among: Set[str] | None = None
) -> DestinationChoice | NoDestination:
    """Return P2's choice. Flows with an earlier reservation take their part of the notice; later ones give way.

    `among`: these hosts only.
    """
    assert job.host is not None
    now_s, notice_s = cluster.now_s, _notice_s(cluster, job)

    def taken(flow: CheckpointFlow) -> float:
        if flow.reservation is None or not notice_s:
            return flow.floor_bytes_per_s
        return flow.reservation.left_bytes / notice_s if flow.reservation.due_s < now_s + notice_s else 0.0

    wanted = request(cluster, job, job.host, job.spec.payload_bytes, notice_s)
    if rescue:
        wanted = replace(wanted, notice_s=notice_s + wanted.restart_s)
    free, among = residual(cluster, now_s, taken), cluster.fit_hosts(job) if among is None else among
    if rescue is Rescue.TO_DISK:
        wanted = replace(wanted, needs_gpu=False)
        if (store := safe_store(cluster, job, job.host, free)) is not None:
            way = cluster.routes.way(job.host, store)
            there_s = transfer_s(wanted.payload_bytes, bottleneck(way, free).bytes_per_s) + wanted.restart_s
            if there_s <= (wanted.notice_s or 0.0):
                return DestinationChoice(store, there_s, there_s, 1.0)
    found = candidates(cluster, wanted, [job.host], free, now_s, among=among, all_ways=True)
    choice = cluster.policy.select(wanted, found, draw=cluster.draw())
    if cluster.witness is not None:
        cluster.witness.chose_host("rescue" if rescue else "destination", job, wanted, found, choice)
    return choice


def _request(
    cluster: Cluster, job: JobState, choice: DestinationChoice, *, rescue: Rescue | None
) -> MigrationRequest:
    """Return the request to P3: copy first and stop half-way, if possible, else stop when the timetable says."""
    assert job.host is not None
    now_s = cluster.now_s
    size = granted_bytes(cluster, job)
    deadline_s = now_s + _notice_s(cluster, job)
    if cluster.policy.rates_vary:
        deadline_s -= MARGIN_S
    lead_s, restart_s = (
        final_lead_s(cluster, job, job.host or ""),
        0.0 if rescue else cluster.protocol.restart_s,
    )
    links = cluster.routes.way(job.host, choice.host)
    mostly_there = choice.host == job.standby and job.sent_bytes is not None and rescue is not Rescue.TO_DISK
    half_way_s = (now_s + deadline_s - restart_s + lead_s) / 2.0
    rather_s = now_s if mostly_there or job.final_sequence is not None else half_way_s
    return MigrationRequest(job.name, size, deadline_s, restart_s, links, now_s + lead_s, rather_s)


def _begin_move(
    cluster: Cluster,
    job: JobState,
    choice: DestinationChoice,
    asked: MigrationRequest,
    answer: Admission,
    *,
    rescue: Rescue | None,
) -> None:
    """Open the move of an admitted job, with its floor or its reservation in the timetable."""
    assert job.host is not None
    now_s, notice_s = cluster.now_s, _notice_s(cluster, job)
    constant = floor = answer.admitted[job.name]
    reservation = None
    if cluster.policy.rates_vary:
        table, lead_s = answer.timetable, final_lead_s(cluster, job, job.host or "")
        begins_s, ends_s = table.begins_s(job.name), table.ends_s(job.name)
        reserved_bytes = sum(
            span.rate_bytes_per_s * (span.until_s - span.from_s) for span in table.spans[job.name]
        )
        floor = reserved_bytes / (ends_s - begins_s)
        reservation = Reservation(asked.payload_bytes, asked.due_s, lead_s, begins_s - lead_s)
        if job.final_sequence is not None:
            reservation.begin(now_s + LAG_S)  # it only has to be told where to
    job.move = Move(choice.host, now_s + notice_s, floor, notice_s, now_s, rescue=rescue)
    time_s = choice.migration_s - cluster.protocol.restart_s
    if floor == 0.0 and 0.0 < time_s < inf:  # no rate is reserved, but when to stop has to be decided somehow
        job.move.hoped_bytes_per_s = asked.payload_bytes / time_s
    if (
        job.standby is not None and job.standby != choice.host
    ):  # the order to move may wait for its way, and be taken back
        stream = cluster.flows.get(presync_flow(job.name, job.host, job.standby, 0.0).key)
        if stream is not None:
            close_flow(cluster, stream, tell=True)
    cluster.set_way(job.host, choice.host, asked.links)
    flow = CheckpointFlow(
        job.name,
        job.host,
        choice.host,
        TrafficClass.PLANNED,
        floor_bytes_per_s=constant,
        reservation=reservation,
    )
    open_flow(cluster, flow)
    order(cluster, job)
    if rescue:
        return
    size = job.spec.payload_bytes
    cluster.record(
        facts.MigrationAdmitted(
            job.name,
            job.attempt,
            job.host,
            choice.host,
            notice_s,
            size,
            floor,
            choice.score_s if choice.score_s < inf else None,
            choice.survival,
        )
    )


def order(cluster: Cluster, job: JobState) -> None:
    """Order the source of this move (again, after a connection was lost)."""
    assert job.move is not None
    cluster.orders[f"{job.name}:{job.host}>{job.move.destination}"] = None


def final_within_s(cluster: Cluster, job: JobState, flow: CheckpointFlow) -> float:
    """Seconds until its reservation starts, or tau - T_r - C/b from now with its guaranteed or hoped rate."""
    if flow.reservation is not None:
        return max(0.0, flow.reservation.final_at_s - cluster.now_s)
    assert job.move is not None
    restart_s = 0.0 if job.move.rescue else cluster.protocol.restart_s
    overhead_s = restart_s + final_lead_s(cluster, job, job.host or "")
    floor = job.move.floor_bytes_per_s or job.move.hoped_bytes_per_s
    latest_s = latest_final_start_s(job.move.deadline_s, overhead_s, granted_bytes(cluster, job), floor)
    return max(0.0, latest_s - cluster.now_s)


def _has_notice(cluster: Cluster, job: JobState) -> bool:
    """Return whether a notice runs on the job's host."""
    reclaim_at_s = cluster.hosts[job.host or ""].reclaim_at_s
    return reclaim_at_s is not None and reclaim_at_s > cluster.now_s


def _notice_s(cluster: Cluster, job: JobState) -> float:
    """Return the seconds that are left of the notice of the job's host; 0 without one."""
    reclaim_at_s = cluster.hosts[job.host or ""].reclaim_at_s
    return 0.0 if reclaim_at_s is None else max(0.0, reclaim_at_s - cluster.now_s)


def granted_bytes(cluster: Cluster, job: JobState) -> float:
    """Return the bytes to grant for the payload: a flow gets a little less than its grant, for which a reservation allows."""
    return job.spec.payload_bytes / (GOODPUT if cluster.policy.reserves_rates else 1.0)


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
