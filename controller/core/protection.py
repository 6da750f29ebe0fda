"""P1 at work: every running job on a volunteer has a standby, an interval and a rate; all are planned together.

A plan is told when its standby or (by more than a tenth) its interval changes; rates reach the agents as grants. Timers keep
their phase over a change of interval: the next checkpoint is due one interval after the last one was taken.

The payload C that P1 counts with is what the last checkpoint to the same standby really sent: the store sends only chunks
that are missing there. The first one is counted whole.
"""

from __future__ import annotations

from math import inf

from controller.core import effects as do
from controller.core import facts
from controller.core.bandwidth import bottleneck
from controller.core.candidates import Residual, candidates, fair_share, promised, request, residual
from controller.core.checkpointing import CheckpointJob, CheckpointPlan, stagger
from controller.core.grants import close_flow, open_flow, presync_flow, settle
from controller.core.placement import NoDestination
from controller.core.state import JobState, Phase
from controller.core.world import World, record
from testbed.messages import Protect, Unprotect

LEAST_CHANGE = (
    0.1  # an interval that moves by less than a tenth costs less than a thousandth more (eq. 1 is flat there)
)
CLEARLY_BETTER = 2.0  # times the rate that a new standby must promise before the old one is given up
MAX_FIRST_S = 1e9  # the longest duration that a message can carry
LEAST_SENT = 1 / 16  # of a payload: what a checkpoint counts at least, however little changed last time


def protect(world: World, now_s: float) -> list[do.Effect]:
    """Plan checkpoints for all running jobs anew, and settle all rates."""
    jobs = [job for job in world.unfinished() if _needs_protection(world, job)]
    effects = [effect for job in jobs for effect in _keep_standby(world, job, now_s)]
    protected = [job for job in jobs if job.standby is not None]
    plans = world.policy.plan(
        [_as_checkpoint_job(world, job, now_s) for job in protected],
        residual(world, now_s, promised),
        world.settings.checkpoint_share,
    )
    for job in protected:
        _open(world, job, plans[job.name])
    effects += settle(world)
    for job in protected:
        effects += _tell(world, job, plans[job.name], now_s)
    return effects


def forget_standby(world: World, job: JobState) -> list[do.Effect]:
    """The job's checkpoints go nowhere from now on."""
    if job.standby is None or job.host is None:
        return []
    flow = world.flows.get(presync_flow(job.name, job.host, job.standby, 0.0).key)
    job.standby, job.interval_s, job.sent_bytes = None, None, None
    job.misses, job.endangered = 0, False
    return close_flow(world, flow, tell=True) if flow else []


def improve_standby(world: World, now_s: float) -> list[do.Effect]:
    """One job, the one that loses most, whose loss budget cannot be kept with its standby goes to a clearly better one.

    One at a time, because each that goes changes what the others would get; and only for CLEARLY_BETTER, because the new
    standby has nothing of the payload yet.
    """
    endangered = [job for job in world.unfinished() if job.endangered and _needs_protection(world, job)]
    for job in sorted(
        endangered, key=lambda job: (-(job.interval_s or 0.0) / job.spec.loss_budget_s, job.name)
    ):
        if job.standby is None or job.host is None:
            continue
        free, host = fair_share(world, job, now_s), job.host
        better = _choose_standby(world, job, free, now_s)
        if better is None or better == job.standby:
            continue
        rates = [bottleneck(world.routes.route(host, to), free).bytes_per_s for to in (better, job.standby)]
        if rates[0] >= CLEARLY_BETTER * rates[1]:
            effects = forget_standby(world, job)
            job.standby = better
            return effects
    return []


def _needs_protection(world: World, job: JobState) -> bool:
    if job.phase is not Phase.RUNNING or job.host is None or job.final_sequence is not None:
        return False
    host = world.hosts[job.host]
    return host.is_volunteer and host.connected


def _keep_standby(world: World, job: JobState, now_s: float) -> list[do.Effect]:
    if job.standby is not None and world.hosts[job.standby].usable:
        return []
    assert job.host is not None
    protected = job.interval_s is not None
    effects = forget_standby(world, job)
    job.standby = _choose_standby(world, job, fair_share(world, job, now_s), now_s)
    if job.standby is None:
        if protected:
            effects.append(do.Tell(job.host, Unprotect(job.name, job.attempt)))
        return effects
    open_flow(world, presync_flow(job.name, job.host, job.standby, 0.0))  # counts for the next one that looks
    return effects


def _choose_standby(world: World, job: JobState, free: Residual, now_s: float) -> str | None:
    """P2 without a deadline: where a GPU is free, so that the job could go on there; else any volunteer; else on-demand."""
    assert job.host is not None
    wanted = request(world, job, job.host, job.spec.payload_bytes, None)
    fit = world.fit_hosts(job)
    for needs_gpu in (True, False):
        found = candidates(world, wanted, [job.host], free, now_s, among=fit, needs_gpu=needs_gpu)
        choice = world.policy.select(wanted, found, draw=world.draw())
        if not isinstance(choice, NoDestination):
            return choice.host
    kept = [h.name for h in map(world.hosts.__getitem__, sorted(fit)) if h.usable and not h.is_volunteer]
    return max(
        kept,
        key=lambda to: bottleneck(world.routes.route(job.host or "", to), free).bytes_per_s,
        default=None,
    )


def _as_checkpoint_job(world: World, job: JobState, now_s: float) -> CheckpointJob:
    assert job.host is not None
    assert job.standby is not None
    whole = job.spec.payload_bytes
    counted = whole if job.sent_bytes is None else max(job.sent_bytes, whole * LEAST_SENT)
    return CheckpointJob(
        job.name,
        counted,
        world.hazard_now_per_s(job.host, now_s, world.profile(now_s)),
        world.routes.route(job.host, job.standby),
        loss_budget_s=job.spec.loss_budget_s,
    )


def _open(world: World, job: JobState, plan: CheckpointPlan) -> None:
    assert job.host is not None
    assert job.standby is not None
    open_flow(world, presync_flow(job.name, job.host, job.standby, plan.rate_bytes_per_s))


def _tell(world: World, job: JobState, plan: CheckpointPlan, now_s: float) -> list[do.Effect]:
    assert job.host is not None
    assert job.standby is not None
    interval_s = plan.interval_s
    job.endangered = plan.interval.loss_budget_infeasible
    if interval_s == inf or not _moved(job.interval_s, interval_s):
        return []
    job.interval_s = interval_s
    rate = world.flows[presync_flow(job.name, job.host, job.standby, 0.0).key].rate_bytes_per_s
    told = Protect(
        job.name, job.attempt, world.endpoint(job.standby), rate, interval_s, _first_s(job, interval_s, now_s)
    )
    planned_fact = facts.CheckpointPlanned(
        job.name,
        job.attempt,
        job.standby,
        rate,
        interval_s,
        plan.interval.expected_loss_s,
        plan.interval.loss_budget_infeasible,
        3600.0 * world.hazard_now_per_s(job.host, now_s, world.profile(now_s)),
    )
    return [do.Tell(job.host, told), record(planned_fact)]


def _moved(old_s: float | None, new_s: float) -> bool:
    return old_s is None or abs(new_s - old_s) > LEAST_CHANGE * old_s


def _first_s(job: JobState, interval_s: float, now_s: float) -> float:
    """Until the next checkpoint: the timer's own offset for the first, one interval after the last from then on."""
    if job.last_checkpoint_s is None:
        due_s = job.protected_since_s + stagger(job.timer, interval_s)
    else:
        due_s = job.last_checkpoint_s + interval_s
    return min(MAX_FIRST_S, max(0.0, due_s - now_s))
