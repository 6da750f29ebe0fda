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

from controller.core import effects as do
from controller.core import facts
from controller.core.admission import Admission, MigrationRequest, Refusal
from controller.core.candidates import candidates, request, residual
from controller.core.checkpointing import latest_final_start_s
from controller.core.dispatch import begin_attempt, drop_move, gpu_freed, reserve, start
from controller.core.grants import (
    LEAST_SPAN_S,
    close_flows,
    committed,
    open_flow,
    pledged,
    settle,
    spendable,
)
from controller.core.placement import Choice, NoDestination
from controller.core.pledge import GOODPUT, LAG_S, MARGIN_S, Pledge
from controller.core.state import Checkpoint, Flow, HostState, JobState, Move, Phase
from controller.core.world import World, record
from testbed.messages import SEQUENCES_PER_ATTEMPT, Migrate, StopJob
from topologies.spec import TrafficClass

Settle = Callable[[World], list[do.Effect]]


def plan_moves(world: World, jobs: list[JobState], now_s: float, settled: Settle = settle) -> list[do.Effect]:
    """Move these running jobs off their hosts, all of which have a notice running; who cannot be moved is degraded.

    `settled` gives everybody a rate once it is known who moves; a caller that plans checkpoints anew does both in one.
    Two rounds: who was refused because others of the same round took the bandwidth looks once more at what is left.
    """
    if not world.policy.migrates:
        return [_stays(world, job, now_s) for job in jobs]
    jobs = [job for job in jobs if _can_be_told(world, job)]
    effects: list[do.Effect] = []
    chosen: dict[str, Choice | NoDestination] = {}
    for _ in range(2):
        left = [job for job in jobs if job.move is None]
        chosen = {job.name: _reserve(world, job, now_s) for job in left}
        effects += _admit_all(world, left, chosen, now_s)
        _keep_admitted(world, left, chosen)
    for job in jobs:
        if job.move is None:
            effects += _degrade(world, job, chosen[job.name], now_s)
    return [*effects, *_depart(world, [job for job in jobs if job.move is not None], now_s, settled)]


def _stays(world: World, job: JobState, now_s: float) -> do.Effect:
    """The policy moves nobody: the job runs until its host closes."""
    notice_s, reason = _notice_s(world, job, now_s), "this system does not migrate"
    return record(facts.MigrationDegraded(job.name, job.attempt, job.host or "", notice_s, reason))


def retry_degraded(world: World, now_s: float) -> list[do.Effect]:
    """A GPU or some bandwidth may have become free while the notice still runs."""
    jobs = [job for job in world.unfinished() if job.degraded and _can_be_told(world, job)]
    return plan_moves(world, jobs, now_s) if jobs else []


def replan(world: World, job: JobState, now_s: float) -> list[do.Effect]:
    """The destination is gone: find another, or give the migration up."""
    effects = abandon(world, job, now_s)
    if _notice_s(world, job, now_s) > 0.0:
        effects += plan_moves(world, [job], now_s)
    if job.phase is Phase.RUNNING and job.final_sequence is not None and job.host is not None:
        effects.append(
            do.Tell(job.host, StopJob(job.name, job.attempt))
        )  # nothing runs any more, nobody takes it
    return effects


def _can_be_told(world: World, job: JobState) -> bool:
    """Whether it runs on a host that hears: one that is not connected is planned for when it comes back."""
    return job.phase is Phase.RUNNING and job.host is not None and world.hosts[job.host].connected


def abandon(world: World, job: JobState, now_s: float) -> list[do.Effect]:
    """The job stays where it is: its destination is gone, or the owner changed his mind before it was stopped."""
    destination = job.move.destination if job.move else None
    effects = close_flows(world, job=job.name, destination=destination, tell=True)
    effects += drop_move(world, job, now_s)
    job.to("abandoned")
    return effects


def land(world: World, job: JobState, checkpoint: Checkpoint, now_s: float) -> list[do.Effect]:
    """The final checkpoint is stored at the destination: the job goes on there."""
    assert job.move is not None
    assert job.host is not None
    source, move = world.hosts[job.host], job.move
    effects = close_flows(world, job=job.name, source=source.name)
    effects += close_flows(world, job=job.name, tell=True)  # a copy on its way to the vault
    source.jobs.discard(job.name)
    job.move, job.landing, job.standby, job.degraded = None, (source.name, move), None, False
    job.step = max(job.step, checkpoint.stored.step)
    job.to("landed")
    destination = world.hosts[move.destination]
    effects += begin_attempt(world, job, destination, checkpoint)
    return [*effects, start(job, destination), *gpu_freed(world, source, now_s), *settle(world)]


def land_unheard(world: World, job: JobState, now_s: float) -> list[do.Effect]:
    """Its source has the job no more, and its destination holds all that was computed there: only the news of it was lost.

    Nothing if it is not so.
    """
    newest = world.freshest(job)
    if job.move is None or newest is None or job.move.destination not in world.holders(newest):
        return []
    if newest.stored.sequence // SEQUENCES_PER_ATTEMPT != job.attempt or newest.stored.step < job.step:
        return []
    job.stopped_cause = "final_checkpoint"
    job.stopped_at_s = now_s if job.stopped_at_s is None else job.stopped_at_s
    stopped = facts.JobStopped(job.name, job.attempt, job.host or "", job.stopped_cause, newest.stored.step)
    return [record(stopped), *land(world, job, newest, now_s)]


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


def _reserve(world: World, job: JobState, now_s: float) -> Choice | NoDestination:
    """P2's destination; its GPU is held, so that the next job of the round sees it taken."""
    assert job.host is not None
    wanted = request(world, job, job.host, job.spec.payload_bytes, _notice_s(world, job, now_s))
    free = residual(world, now_s, lambda flow: _promised_before(flow, wanted.notice_s, now_s))
    among = world.fit_hosts(job)
    found = candidates(world, wanted, [job.host], free, now_s, among=among)
    choice = world.policy.select(wanted, found, draw=world.draw())
    if isinstance(choice, Choice):
        world.hosts[choice.host].jobs.add(job.name)
    return choice


def _keep_admitted(world: World, jobs: list[JobState], chosen: dict[str, Choice | NoDestination]) -> None:
    """GPUs held for those refused are free again, as if nothing had been; the others' are no longer offered."""
    found = [(job, world.hosts[c.host]) for job in jobs if isinstance(c := chosen[job.name], Choice)]
    for job, host in found:
        if job.move is None:
            host.jobs.discard(job.name)
    for job, host in found:
        if job.move is not None:
            reserve(world, job, host)


def _promised_before(flow: Flow, notice_s: float | None, now_s: float) -> float:
    """What a flow takes, on average, of the time that a migration with this notice has: a later deadline gives way."""
    if flow.pledge is None or not notice_s:  # as much time as one likes, or none
        return flow.floor_bytes_per_s
    return flow.pledge.left_bytes / notice_s if flow.pledge.due_s < now_s + notice_s else 0.0


def _ask(world: World, job: JobState, choice: Choice, now_s: float) -> MigrationRequest:
    """What to ask P3 for: to copy first and stop half-way, if that can be, else to stop when the timetable says."""
    assert job.host is not None
    size, deadline_s = _granted_bytes(world, job), now_s + _notice_s(world, job, now_s)
    if world.policy.rates_vary:
        deadline_s -= MARGIN_S
    lead_s, restart_s = _lead_s(world, job), world.settings.restart_s
    links = world.routes.route(job.host, choice.host)
    mostly_there = choice.host == job.standby and job.sent_bytes is not None
    half_way_s = (now_s + deadline_s - restart_s + lead_s) / 2.0
    rather_s = now_s if mostly_there or job.final_sequence is not None else half_way_s
    return MigrationRequest(job.name, size, deadline_s, restart_s, links, now_s + lead_s, rather_s)


def _admit_all(
    world: World, jobs: list[JobState], chosen: dict[str, Choice | NoDestination], now_s: float
) -> list[do.Effect]:
    """Ask P3 for all of them at once."""
    found = [(job, c) for job in jobs if isinstance(c := chosen[job.name], Choice)]
    if not found:
        return []
    asked = {job.name: _ask(world, job, choice, now_s) for job, choice in found}
    answer = world.policy.admit(list(asked.values()), now_s, spendable(world), committed(world, movable=True))
    effects: list[do.Effect] = []
    for job, choice in found:
        if job.name in answer.admitted:
            effects += _admitted(world, job, choice, asked[job.name], answer, now_s)
        else:
            job.refusal = _words(answer.refused[job.name])
    if answer.admitted:
        _move_turns(world, answer)
    return effects


def _admitted(
    world: World, job: JobState, choice: Choice, asked: MigrationRequest, answer: Admission, now_s: float
) -> list[do.Effect]:
    """The job has a move, with its floor or its turn, from here on."""
    assert job.host is not None
    pledge = _pledge(world, job, asked, answer, now_s)
    floor = answer.admitted[job.name] if pledge is None else _mean_rate(answer, job.name)
    notice_s = _notice_s(world, job, now_s)
    job.move = Move(choice.host, now_s + notice_s, floor, notice_s, now_s)
    if floor == 0.0:
        job.move.hoped_bytes_per_s = _hoped(choice, asked)
    effects: list[do.Effect] = []
    if job.standby is not None and job.standby != choice.host:
        effects += close_flows(
            world, job=job.name, destination=job.standby
        )  # the agent stops those of itself
    flow = Flow(
        job.name,
        job.host,
        choice.host,
        TrafficClass.PLANNED,
        floor_bytes_per_s=answer.admitted[job.name],
        pledge=pledge,
    )
    open_flow(world, flow)
    size = job.spec.payload_bytes
    admitted = facts.MigrationAdmitted(
        job.name, job.attempt, job.host, choice.host, notice_s, size, floor, choice.score_s, choice.survival
    )
    return [*effects, record(admitted)]


def _hoped(choice: Choice, asked: MigrationRequest) -> float:
    """What P2 saw of the path: nobody promised it, but when to stop the job has to be decided somehow."""
    time_s = choice.migration_s - asked.restart_s
    return asked.payload_bytes / time_s if 0.0 < time_s < inf else 0.0


def _pledge(
    world: World, job: JobState, asked: MigrationRequest, answer: Admission, now_s: float
) -> Pledge | None:
    """The promise behind a turn in the timetable; None where floors are constant."""
    if not world.policy.rates_vary:
        return None
    final_at_s = answer.timetable.begins_s(job.name) - _lead_s(world, job)
    pledge = Pledge(asked.payload_bytes, asked.due_s, _lead_s(world, job), final_at_s)
    if job.final_sequence is not None:
        pledge.begin(now_s + LAG_S)  # it only has to be told where to
    return pledge


def _mean_rate(answer: Admission, key: str) -> float:
    """What a turn in the timetable has from its begin to its end."""
    table = answer.timetable
    lasts_s = table.ends_s(key) - table.begins_s(key)
    return sum(s.rate_bytes_per_s * (s.until_s - s.from_s) for s in table.spans[key]) / lasts_s


def _move_turns(world: World, answer: Admission) -> None:
    """Newcomers may have moved turns that have not begun; `_depart` tells their sources."""
    for flow, pledge in pledged(world):
        begins_s = answer.timetable.begins_s(flow.key)
        if pledge.since_s is None and begins_s < inf:
            final_at_s = begins_s - pledge.lead_s
            pledge.told = pledge.told and abs(final_at_s - pledge.final_at_s) < LEAST_SPAN_S
            pledge.final_at_s = final_at_s if not pledge.told else pledge.final_at_s


def turn_begins(world: World, job: JobState, now_s: float) -> list[do.Effect]:
    """The final snapshot of a moving job exists: what its flow sends from now on is what was promised."""
    flows = [(flow, pledge) for flow, pledge in pledged(world) if flow.job == job.name]
    for _, pledge in flows:
        pledge.begin(now_s)
    return settle(world) if flows else []


def _depart(world: World, jobs: list[JobState], now_s: float, settled: Settle) -> list[do.Effect]:
    """Settle all rates, then tell the sources."""
    for job in jobs:
        job.degraded = False
        job.to("migrate")
    effects = settled(world)
    moved = [world.jobs[flow.job] for flow, pledge in pledged(world) if not pledge.told]
    return [*effects, *order(world, [*jobs, *(job for job in moved if job not in jobs)], now_s)]


def order(world: World, jobs: list[JobState], now_s: float) -> list[do.Effect]:
    """Tell the sources of these moves what they are to do (again, after a connection was lost)."""
    effects: list[do.Effect] = []
    for job in jobs:
        assert job.move is not None
        assert job.host is not None
        flow = world.flows[f"{job.name}:{job.host}>{job.move.destination}"]
        to, within_s = world.endpoint(job.move.destination), _final_within_s(world, job, flow, now_s)
        effects.append(do.Tell(job.host, Migrate(job.name, job.attempt, to, flow.rate_bytes_per_s, within_s)))
        if flow.pledge is not None:
            flow.pledge.told = True
    return effects


def _final_within_s(world: World, job: JobState, flow: Flow, now_s: float) -> float:
    """Until its turn, or tau - T_r - C/b from now with the rate that is guaranteed, or at least hoped for."""
    if flow.pledge is not None:
        return max(0.0, flow.pledge.final_at_s - now_s)
    assert job.move is not None
    overhead_s = world.settings.restart_s + _lead_s(world, job)
    floor = job.move.floor_bytes_per_s or job.move.hoped_bytes_per_s
    latest_s = latest_final_start_s(job.move.deadline_s, overhead_s, _granted_bytes(world, job), floor)
    return max(0.0, latest_s - now_s)


def _degrade(world: World, job: JobState, choice: Choice | NoDestination, now_s: float) -> list[do.Effect]:
    """Said at once; and P1, which plans next, has one more checkpoint taken at once."""
    assert job.host is not None
    if job.degraded:
        return []  # told before
    job.degraded = True
    reason = _reason(choice) if isinstance(choice, NoDestination) else job.refusal
    notice_s = _notice_s(world, job, now_s)
    degraded = facts.MigrationDegraded(job.name, job.attempt, job.host, notice_s, reason)
    job.interval_s, job.last_checkpoint_s, job.protected_since_s = None, None, -inf
    return [record(degraded)]


def _granted_bytes(world: World, job: JobState) -> float:
    """What has to be granted to carry the payload: a flow gets a little less than its grant, and a promise counts with that."""
    return job.spec.payload_bytes / (GOODPUT if world.policy.promises_rates else 1.0)


def _lead_s(world: World, job: JobState) -> float:
    """From the order to take the final snapshot to its first byte: one may be being taken when it is due."""
    return 2.0 * world.settings.writes_s(job.spec.payload_bytes) + (LAG_S if world.policy.rates_vary else 0.0)


def _notice_s(world: World, job: JobState, now_s: float) -> float:
    """What is left of the notice of the job's host."""
    host: HostState = world.hosts[job.host or ""]
    return 0.0 if host.reclaim_at_s is None else max(0.0, host.reclaim_at_s - now_s)


def _reason(choice: NoDestination) -> str:
    near = f"; closest was {choice.closest}, short of {choice.shortfall:.3g}" if choice.closest else ""
    return f"{choice.reason}{near}"


def _words(refusal: Refusal) -> str:
    return f"{refusal.reason}: {refusal.link}" if refusal.link else str(refusal.reason)
