"""Planned migrations: P2 picks destinations, P3 admits, the job moves; or it is said at once that it cannot.

How a job moves. Best is to copy a snapshot while the job runs and stop it only for what changed meanwhile. Worst case is that
everything changed, so the final snapshot must be able to send a whole payload C: if it starts at s, it needs the rate
C/(D - T_r - s). With s half-way between now and D - T_r the copy before it has the same time at the same rate. So P3 is asked
for a flow that starts half-way (twice eq. 12's rate); if that is refused, or the destination is the standby, which has most of
the payload already, for one that starts now (eq. 12), and the job stops at once. Either way the deadline holds for a payload
that changed completely. The work of the notice is not lost in either: the job computes at its destination as soon as it is
there, and at its source until then.

A flow that was admitted stays admitted. If its destination goes away, P2 and P3 are asked again with the time that is left.
"""

from __future__ import annotations

from dataclasses import replace

from controller.core import effects as do
from controller.core import facts
from controller.core.admission import MigrationRequest, Refusal
from controller.core.candidates import candidates, promised, request, residual
from controller.core.checkpointing import latest_final_start_s
from controller.core.dispatch import begin_attempt, drop_move, gpu_freed, reserve, start
from controller.core.grants import close_flows, committed_floors, open_flow, settle
from controller.core.placement import Choice, NoDestination
from controller.core.state import Checkpoint, Flow, HostState, JobState, Move, Phase
from controller.core.world import World, record
from testbed.messages import Migrate, Protect, StopJob
from topologies.spec import TrafficClass


def plan_moves(world: World, jobs: list[JobState], now_s: float) -> list[do.Effect]:
    """Move these running jobs off their hosts, all of which have a notice running; who cannot be moved is degraded."""
    chosen = {job.name: _reserve(world, job, now_s) for job in jobs}
    wanted = {
        job.name: _ask(world, job, c, now_s) for job in jobs if isinstance(c := chosen[job.name], Choice)
    }
    effects: list[do.Effect] = []
    for asked in (
        {name: live for name, (live, _) in wanted.items()},
        {name: at_once for name, (_, at_once) in wanted.items()},
    ):
        effects += _admit(
            world, {n: r for n, r in asked.items() if world.jobs[n].move is None}, chosen, now_s
        )
    for job in jobs:
        if job.move is None:
            effects += _degrade(world, job, chosen[job.name], now_s)
    return [*effects, *_order(world, [job for job in jobs if job.move is not None], now_s)]


def retry_degraded(world: World, now_s: float) -> list[do.Effect]:
    """A GPU or some bandwidth may have become free while the notice still runs."""
    jobs = [job for job in world.unfinished() if job.degraded and job.phase is Phase.RUNNING]
    return plan_moves(world, jobs, now_s) if jobs else []


def replan(world: World, job: JobState, now_s: float) -> list[do.Effect]:
    """The destination is gone: find another, or give the migration up."""
    effects = abandon(world, job, now_s)
    if _notice_s(world, job, now_s) > 0.0:
        effects += plan_moves(world, [job], now_s)
    stopped = job.final_sequence is not None
    if stopped and job.move is None and job.host is not None:  # nothing runs any more, and nobody takes it
        effects.append(do.Tell(job.host, StopJob(job.name, job.attempt)))
    return effects


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
    effects = close_flows(world, job=job.name)
    source.jobs.discard(job.name)
    job.move, job.landing, job.standby, job.degraded = None, (source.name, move), None, False
    job.step = max(job.step, checkpoint.stored.step)
    job.to("landed")
    destination = world.hosts[move.destination]
    effects += begin_attempt(world, job, destination, checkpoint)
    return [*effects, start(job, destination), *gpu_freed(world, source, now_s), *settle(world)]


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
    """P2's destination; its GPU is held from here on."""
    assert job.host is not None
    wanted = request(world, job, job.host, job.spec.payload_bytes, _notice_s(world, job, now_s))
    found = candidates(world, wanted, [job.host], residual(world, now_s, promised), now_s)
    choice = world.policy.select(wanted, found, draw=world.draw())
    if isinstance(choice, Choice):
        reserve(world, job, world.hosts[choice.host])
    return choice


def _ask(
    world: World, job: JobState, choice: Choice, now_s: float
) -> tuple[MigrationRequest, MigrationRequest]:
    """What to ask P3 for: to copy first and stop half-way, and to stop at once."""
    assert job.host is not None
    settings = world.settings
    deadline_s = now_s + _notice_s(world, job, now_s)
    overhead_s = settings.restart_s + settings.snapshot_s
    links = world.routes.route(job.host, choice.host)
    at_once = MigrationRequest(job.name, job.spec.payload_bytes, deadline_s, overhead_s, links)
    if choice.host == job.standby and job.sent_bytes is not None:
        return at_once, at_once
    return replace(at_once, start_s=(now_s + deadline_s - overhead_s) / 2.0), at_once


def _admit(
    world: World,
    asked: dict[str, MigrationRequest],
    chosen: dict[str, Choice | NoDestination],
    now_s: float,
) -> list[do.Effect]:
    """P3: whoever is admitted has a move, with its floor, from here on."""
    answer = world.policy.admit(list(asked.values()), now_s, world.share, committed_floors(world))
    effects: list[do.Effect] = []
    for name, floor in answer.admitted.items():
        job, choice = world.jobs[name], chosen[name]
        assert isinstance(choice, Choice)
        assert job.host is not None
        notice_s = _notice_s(world, job, now_s)
        job.move = Move(choice.host, now_s + notice_s, floor, notice_s, now_s)
        flow = Flow(name, job.host, choice.host, TrafficClass.PLANNED, floor_bytes_per_s=floor)
        open_flow(world, flow)
        admitted = facts.MigrationAdmitted(
            name,
            job.attempt,
            job.host,
            choice.host,
            notice_s,
            job.spec.payload_bytes,
            floor,
            choice.score_s,
            choice.survival,
        )
        effects.append(record(admitted))
    for name, refusal in answer.refused.items():
        asked_for = chosen[name]
        if isinstance(asked_for, Choice) and world.jobs[name].move is None:
            world.jobs[name].refusal = _words(refusal)
    return effects


def _order(world: World, jobs: list[JobState], now_s: float) -> list[do.Effect]:
    """Settle all rates, then tell the sources."""
    effects = settle(world)
    for job in jobs:
        assert job.move is not None
        assert job.host is not None
        job.degraded = False
        if job.phase is Phase.RUNNING:
            job.to("migrate")
        flow = world.flows[f"{job.name}:{job.host}>{job.move.destination}"]
        order = Migrate(
            job.name,
            job.attempt,
            world.endpoint(job.move.destination),
            flow.rate_bytes_per_s,
            _final_within_s(world, job, job.move, now_s),
        )
        effects.append(do.Tell(job.host, order))
    return effects


def _final_within_s(world: World, job: JobState, move: Move, now_s: float) -> float:
    """tau - T_r - C/b from now, with the rate that is guaranteed."""
    overhead_s = world.settings.restart_s + world.settings.snapshot_s
    latest_s = latest_final_start_s(
        move.deadline_s, overhead_s, job.spec.payload_bytes, move.floor_bytes_per_s
    )
    return max(0.0, latest_s - now_s)


def _degrade(world: World, job: JobState, choice: Choice | NoDestination, now_s: float) -> list[do.Effect]:
    """Said at once; and one more checkpoint is taken while there is time."""
    assert job.host is not None
    if isinstance(choice, Choice):
        world.hosts[choice.host].jobs.discard(job.name)
        effects = gpu_freed(world, world.hosts[choice.host], now_s)
    else:
        effects = []
    if job.degraded:
        return effects  # told before
    job.degraded = True
    reason = _reason(choice) if isinstance(choice, NoDestination) else job.refusal
    effects.append(
        record(facts.MigrationDegraded(job.name, job.attempt, job.host, _notice_s(world, job, now_s), reason))
    )
    if job.standby is not None and job.interval_s is not None:
        flow = world.flows.get(f"{job.name}:{job.host}>{job.standby}")
        rate = flow.rate_bytes_per_s if flow else 0.0
        now = Protect(job.name, job.attempt, world.endpoint(job.standby), rate, job.interval_s, 0.0)
        effects.append(do.Tell(job.host, now))
    return effects


def _notice_s(world: World, job: JobState, now_s: float) -> float:
    """What is left of the notice of the job's host."""
    host: HostState = world.hosts[job.host or ""]
    return 0.0 if host.reclaim_at_s is None else max(0.0, host.reclaim_at_s - now_s)


def _reason(choice: NoDestination) -> str:
    near = f"; closest was {choice.closest}, short of {choice.shortfall:.3g}" if choice.closest else ""
    return f"{choice.reason}{near}"


def _words(refusal: Refusal) -> str:
    return f"{refusal.reason}: {refusal.link}" if refusal.link else str(refusal.reason)
