"""Planned migrations: P2 picks destinations, P3 admits, the job moves; or it is said at once that it cannot.

How a job moves. Best is to copy a snapshot while the job runs and stop it only for what changed meanwhile. Worst case is that
everything changed, so the final snapshot must be able to send a whole payload C: if it starts at s, it needs the rate
C/(D - T_r - s). With s half-way between now and D - T_r the copy before it has the same time at the same rate. So P3 is asked
for a flow that would rather start half-way (twice eq. 12's rate), but may start now (eq. 12) with the job stopped at once; if
the destination is the standby, which has most of the payload already, now is as good. Either way the deadline holds for a
payload that changed completely. Where rates vary, each flow has its turn on the links instead: its job stops when the turn
begins, and a newcomer with less time may move a turn that has not begun, never beyond its deadline. The work of the notice is
not lost in either: the job computes at its destination as soon as it is there, and at its source until then.

A flow that was admitted stays admitted. If its destination goes away, P2 and P3 are asked again with the time that is left.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from controller.core.admission.admission import Admission, MigrationRequest, Refusal
from controller.core.admission.reservation import (
    GOODPUT,
    LAG_S,
    MARGIN_S,
    Pledge,
)
from controller.core.checkpointing.intervals import latest_final_start_s
from controller.core.lifecycle.candidates import candidates, request, residual
from controller.core.lifecycle.dispatch import (
    PATIENCE,
    begin_attempt,
    drop_move,
    gpu_freed,
    reserve,
    start,
    start_s,
)
from controller.core.lifecycle.grants import (
    LEAST_SPAN_S,
    close_flows,
    committed,
    open_flow,
    pledged,
    settle,
    spendable,
)
from controller.core.model import effects as do
from controller.core.model import facts
from controller.core.model.cluster import LEAST_LEASES, Cluster, record
from controller.core.model.entities import (
    Checkpoint,
    CheckpointFlow,
    HostState,
    JobState,
    Move,
    Phase,
)
from controller.core.placement.select import DestinationChoice, NoDestination
from testbed.messages import SEQUENCES_PER_ATTEMPT, Migrate, StopJob
from topologies.spec import TrafficClass

Settle = Callable[[Cluster], list[do.Effect]]


def plan_moves(
    cluster: Cluster, jobs: list[JobState], now_s: float, settled: Settle = settle
) -> list[do.Effect]:
    """Move these running jobs off their hosts, all of which have a notice running; who cannot be moved is degraded.

    `settled` gives everybody a rate once it is known who moves; a caller that plans checkpoints anew does both in one.
    Two rounds: who was refused because others of the same round took the bandwidth looks once more at what is left.
    """
    if not cluster.policy.migrates:
        return [_stays(cluster, job, now_s) for job in jobs]
    jobs = [job for job in jobs if _can_be_told(cluster, job)]
    effects: list[do.Effect] = []
    chosen: dict[str, DestinationChoice | NoDestination] = {}
    for _ in range(2):
        left = [job for job in jobs if job.move is None]
        chosen = {job.name: _reserve(cluster, job, now_s) for job in left}
        effects += _admit_all(cluster, left, chosen, now_s)
        _keep_admitted(cluster, left, chosen)
    for job in jobs:
        if job.move is None:
            effects += _degrade(cluster, job, chosen[job.name], now_s)
    return [*effects, *_depart(cluster, [job for job in jobs if job.move is not None], now_s, settled)]


def _stays(cluster: Cluster, job: JobState, now_s: float) -> do.Effect:
    """The policy moves nobody: the job runs until its host closes."""
    notice_s, reason = _notice_s(cluster, job, now_s), "this system does not migrate"
    return record(facts.MigrationDegraded(job.name, job.attempt, job.host or "", notice_s, reason))


def retry_degraded(cluster: Cluster, now_s: float) -> list[do.Effect]:
    """A GPU or some bandwidth may have become free while the notice still runs."""
    jobs = [job for job in cluster.unfinished() if job.degraded and _can_be_told(cluster, job)]
    return plan_moves(cluster, jobs, now_s) if jobs else []


def replan(cluster: Cluster, job: JobState, now_s: float) -> list[do.Effect]:
    """The destination is gone: find another, or give the migration up."""
    effects = abandon(cluster, job, now_s)
    if _notice_s(cluster, job, now_s) > 0.0:
        effects += plan_moves(cluster, [job], now_s)
    if job.phase is Phase.RUNNING and job.final_sequence is not None and job.host is not None:
        effects.append(
            do.Tell(job.host, StopJob(job.name, job.attempt))
        )  # nothing runs any more, nobody takes it
    return effects


def _can_be_told(cluster: Cluster, job: JobState) -> bool:
    """Whether it runs on a host that hears: one that is not connected is planned for when it comes back."""
    return job.phase is Phase.RUNNING and job.host is not None and cluster.hosts[job.host].connected


def abandon(cluster: Cluster, job: JobState, now_s: float) -> list[do.Effect]:
    """The job stays where it is: its destination is gone, or the owner changed his mind before it was stopped."""
    destination = job.move.destination if job.move else None
    effects = close_flows(cluster, job=job.name, destination=destination, tell=True)
    effects += drop_move(cluster, job, now_s)
    job.to("abandoned")
    return effects


def land(cluster: Cluster, job: JobState, checkpoint: Checkpoint, now_s: float) -> list[do.Effect]:
    """The final checkpoint is stored at the destination: the job goes on there."""
    assert job.move is not None
    assert job.host is not None
    source, move = cluster.hosts[job.host], job.move
    effects = close_flows(cluster, job=job.name, source=source.name)
    effects += close_flows(cluster, job=job.name, tell=True)  # a copy on its way to the vault
    source.jobs.discard(job.name)
    job.move, job.landing, job.standby, job.degraded = None, (source.name, move), None, False
    job.step = max(job.step, checkpoint.stored.step)
    job.to("landed")
    destination = cluster.hosts[move.destination]
    effects += begin_attempt(cluster, job, destination, checkpoint)
    cluster.expect_word(job, PATIENCE * start_s(cluster, job))
    return [*effects, start(job, destination), *gpu_freed(cluster, source, now_s), *settle(cluster)]


def land_unheard(cluster: Cluster, job: JobState, now_s: float) -> list[do.Effect]:
    """Its source has the job no more, and its destination holds all that was computed there: only the news of it was lost.

    Nothing if it is not so.
    """
    newest = cluster.freshest(job)
    if job.move is None or newest is None or job.move.destination not in cluster.holders(newest):
        return []
    if newest.stored.sequence // SEQUENCES_PER_ATTEMPT != job.attempt or newest.stored.step < job.step:
        return []
    job.stopped_cause = "final_checkpoint"
    job.stopped_at_s = now_s if job.stopped_at_s is None else job.stopped_at_s
    stopped = facts.JobStopped(job.name, job.attempt, job.host or "", job.stopped_cause, newest.stored.step)
    return [record(stopped), *land(cluster, job, newest, now_s)]


def landed(job: JobState, now_s: float) -> list[do.Effect]:
    """The attempt that a migration led to is running: say how the migration went."""
    if job.landing is None:
        return []
    source, move = job.landing
    job.landing = None
    stopped_s = now_s if job.stopped_at_s is None else job.stopped_at_s
    finished = facts.MigrationFinished(
        job.name, source, move.destination, now_s <= move.deadline_s, now_s - move.began_s, now_s - stopped_s
    )
    return [record(finished)]


# ---------------------------------------------------------------- steps of a plan


def _reserve(cluster: Cluster, job: JobState, now_s: float) -> DestinationChoice | NoDestination:
    """P2's destination; its GPU is held, so that the next job of the round sees it taken."""
    assert job.host is not None
    wanted = request(cluster, job, job.host, job.spec.payload_bytes, _notice_s(cluster, job, now_s))
    free = residual(cluster, now_s, lambda flow: _promised_before(flow, wanted.notice_s, now_s))
    among = cluster.fit_hosts(job)
    found = candidates(cluster, wanted, [job.host], free, now_s, among=among)
    choice = cluster.policy.select(wanted, found, draw=cluster.draw())
    if isinstance(choice, DestinationChoice):
        cluster.hosts[choice.host].jobs.add(job.name)
    return choice


def _keep_admitted(
    cluster: Cluster, jobs: list[JobState], chosen: dict[str, DestinationChoice | NoDestination]
) -> None:
    """GPUs held for those refused are free again, as if nothing had been; the others' are no longer offered."""
    found = [
        (job, cluster.hosts[c.host]) for job in jobs if isinstance(c := chosen[job.name], DestinationChoice)
    ]
    for job, host in found:
        if job.move is None:
            host.jobs.discard(job.name)
    for job, host in found:
        if job.move is not None:
            reserve(cluster, job, host)


def _promised_before(flow: CheckpointFlow, notice_s: float | None, now_s: float) -> float:
    """What a flow takes, on average, of the time that a migration with this notice has: a later deadline gives way."""
    if flow.pledge is None or not notice_s:  # as much time as one likes, or none
        return flow.floor_bytes_per_s
    return flow.pledge.left_bytes / notice_s if flow.pledge.due_s < now_s + notice_s else 0.0


def _ask(cluster: Cluster, job: JobState, choice: DestinationChoice, now_s: float) -> MigrationRequest:
    """What to ask P3 for: to copy first and stop half-way, if that can be, else to stop when the timetable says."""
    assert job.host is not None
    size, deadline_s = _granted_bytes(cluster, job), now_s + _notice_s(cluster, job, now_s)
    if cluster.policy.rates_vary:
        deadline_s -= MARGIN_S
    lead_s, restart_s = _lead_s(cluster, job), cluster.settings.restart_s
    links = cluster.routes.route(job.host, choice.host)
    mostly_there = choice.host == job.standby and job.sent_bytes is not None
    half_way_s = (now_s + deadline_s - restart_s + lead_s) / 2.0
    rather_s = now_s if mostly_there or job.final_sequence is not None else half_way_s
    return MigrationRequest(job.name, size, deadline_s, restart_s, links, now_s + lead_s, rather_s)


def _admit_all(
    cluster: Cluster, jobs: list[JobState], chosen: dict[str, DestinationChoice | NoDestination], now_s: float
) -> list[do.Effect]:
    """Ask P3 for all of them at once."""
    found = [(job, c) for job in jobs if isinstance(c := chosen[job.name], DestinationChoice)]
    if not found:
        return []
    asked = {job.name: _ask(cluster, job, choice, now_s) for job, choice in found}
    answer = cluster.policy.admit(
        list(asked.values()), now_s, spendable(cluster), committed(cluster, movable=True)
    )
    effects: list[do.Effect] = []
    for job, choice in found:
        if job.name in answer.admitted:
            effects += _admitted(cluster, job, choice, asked[job.name], answer, now_s)
        else:
            job.refusal = _words(answer.refused[job.name])
    if answer.admitted:
        _move_turns(cluster, answer)
    return effects


def _admitted(
    cluster: Cluster,
    job: JobState,
    choice: DestinationChoice,
    asked: MigrationRequest,
    answer: Admission,
    now_s: float,
) -> list[do.Effect]:
    """The job has a move, with its floor or its turn, from here on."""
    assert job.host is not None
    pledge = _pledge(cluster, job, asked, answer, now_s)
    floor = answer.admitted[job.name] if pledge is None else _mean_rate(answer, job.name)
    notice_s = _notice_s(cluster, job, now_s)
    job.move = Move(choice.host, now_s + notice_s, floor, notice_s, now_s)
    if floor == 0.0:
        job.move.hoped_bytes_per_s = _hoped(choice, asked)
    effects: list[do.Effect] = []
    if job.standby is not None and job.standby != choice.host:
        effects += close_flows(
            cluster, job=job.name, destination=job.standby
        )  # the agent stops those of itself
    flow = CheckpointFlow(
        job.name,
        job.host,
        choice.host,
        TrafficClass.PLANNED,
        floor_bytes_per_s=answer.admitted[job.name],
        pledge=pledge,
    )
    open_flow(cluster, flow)
    size = job.spec.payload_bytes
    admitted = facts.MigrationAdmitted(
        job.name, job.attempt, job.host, choice.host, notice_s, size, floor, choice.score_s, choice.survival
    )
    return [*effects, record(admitted)]


def _hoped(choice: DestinationChoice, asked: MigrationRequest) -> float:
    """What P2 saw of the path: nobody promised it, but when to stop the job has to be decided somehow."""
    time_s = choice.migration_s - asked.restart_s
    return asked.payload_bytes / time_s if 0.0 < time_s < inf else 0.0


def _pledge(
    cluster: Cluster, job: JobState, asked: MigrationRequest, answer: Admission, now_s: float
) -> Pledge | None:
    """The promise behind a turn in the timetable; None where floors are constant."""
    if not cluster.policy.rates_vary:
        return None
    final_at_s = answer.timetable.begins_s(job.name) - _lead_s(cluster, job)
    pledge = Pledge(asked.payload_bytes, asked.due_s, _lead_s(cluster, job), final_at_s)
    if job.final_sequence is not None:
        pledge.begin(now_s + LAG_S)  # it only has to be told where to
    return pledge


def _mean_rate(answer: Admission, key: str) -> float:
    """What a turn in the timetable has from its begin to its end."""
    table = answer.timetable
    lasts_s = table.ends_s(key) - table.begins_s(key)
    return sum(s.rate_bytes_per_s * (s.until_s - s.from_s) for s in table.spans[key]) / lasts_s


def _move_turns(cluster: Cluster, answer: Admission) -> None:
    """Newcomers may have moved turns that have not begun; `_depart` tells their sources."""
    for flow, pledge in pledged(cluster):
        begins_s = answer.timetable.begins_s(flow.key)
        if pledge.since_s is None and begins_s < inf:
            final_at_s = begins_s - pledge.lead_s
            pledge.told = pledge.told and abs(final_at_s - pledge.final_at_s) < LEAST_SPAN_S
            pledge.final_at_s = final_at_s if not pledge.told else pledge.final_at_s


def turn_begins(cluster: Cluster, job: JobState, now_s: float) -> list[do.Effect]:
    """The final snapshot of a moving job exists: what its flow sends from now on is what was promised."""
    flows = [(flow, pledge) for flow, pledge in pledged(cluster) if flow.job == job.name]
    for _, pledge in flows:
        pledge.begin(now_s)
    return settle(cluster) if flows else []


def _depart(cluster: Cluster, jobs: list[JobState], now_s: float, settled: Settle) -> list[do.Effect]:
    """Settle all rates, then tell the sources."""
    for job in jobs:
        job.degraded = False
        job.to("migrate")
        if job.move is not None:
            cluster.expect_word(job, job.move.deadline_s - now_s + LEAST_LEASES * cluster.settings.lease_s)
    effects = settled(cluster)
    moved = [cluster.jobs[flow.job] for flow, pledge in pledged(cluster) if not pledge.told]
    return [*effects, *order(cluster, [*jobs, *(job for job in moved if job not in jobs)], now_s)]


def order(cluster: Cluster, jobs: list[JobState], now_s: float) -> list[do.Effect]:
    """Tell the sources of these moves what they are to do (again, after a connection was lost)."""
    effects: list[do.Effect] = []
    for job in jobs:
        assert job.move is not None
        assert job.host is not None
        flow = cluster.flows[f"{job.name}:{job.host}>{job.move.destination}"]
        to, within_s = cluster.endpoint(flow), _final_within_s(cluster, job, flow, now_s)
        effects.append(do.Tell(job.host, Migrate(job.name, job.attempt, to, flow.rate_bytes_per_s, within_s)))
        if flow.pledge is not None:
            flow.pledge.told = True
    return effects


def _final_within_s(cluster: Cluster, job: JobState, flow: CheckpointFlow, now_s: float) -> float:
    """Until its turn, or tau - T_r - C/b from now with the rate that is guaranteed, or at least hoped for."""
    if flow.pledge is not None:
        return max(0.0, flow.pledge.final_at_s - now_s)
    assert job.move is not None
    overhead_s = cluster.settings.restart_s + _lead_s(cluster, job)
    floor = job.move.floor_bytes_per_s or job.move.hoped_bytes_per_s
    latest_s = latest_final_start_s(job.move.deadline_s, overhead_s, _granted_bytes(cluster, job), floor)
    return max(0.0, latest_s - now_s)


def _degrade(
    cluster: Cluster, job: JobState, choice: DestinationChoice | NoDestination, now_s: float
) -> list[do.Effect]:
    """Said at once; and P1, which plans next, has one more checkpoint taken at once."""
    assert job.host is not None
    if job.degraded:
        return []  # told before
    job.degraded = True
    reason = _reason(choice) if isinstance(choice, NoDestination) else job.refusal
    notice_s = _notice_s(cluster, job, now_s)
    degraded = facts.MigrationDegraded(job.name, job.attempt, job.host, notice_s, reason)
    job.interval_s, job.last_checkpoint_s, job.protected_since_s = None, None, -inf
    return [record(degraded)]


def _granted_bytes(cluster: Cluster, job: JobState) -> float:
    """What has to be granted to carry the payload: a flow gets a little less than its grant, and a promise counts with that."""
    return job.spec.payload_bytes / (GOODPUT if cluster.policy.promises_rates else 1.0)


def _lead_s(cluster: Cluster, job: JobState) -> float:
    """From the order to take the final snapshot to its first byte: one may be being taken when it is due."""
    return 2.0 * cluster.settings.writes_s(job.spec.payload_bytes) + (
        LAG_S if cluster.policy.rates_vary else 0.0
    )


def _notice_s(cluster: Cluster, job: JobState, now_s: float) -> float:
    """What is left of the notice of the job's host."""
    host: HostState = cluster.hosts[job.host or ""]
    return 0.0 if host.reclaim_at_s is None else max(0.0, host.reclaim_at_s - now_s)


def _reason(choice: NoDestination) -> str:
    near = f"; closest was {choice.closest}, short of {choice.shortfall:.3g}" if choice.closest else ""
    return f"{choice.reason}{near}"


def _words(refusal: Refusal) -> str:
    return f"{refusal.reason}: {refusal.link}" if refusal.link else str(refusal.reason)
