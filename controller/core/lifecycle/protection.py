"""P1 at work: every running job on a volunteer has a standby, an interval and a rate; all are planned together.

A plan is sent when its standby or (by more than a tenth) its interval changes; rates reach the agents as grants.
Timers keep their phase over a change of interval: the next checkpoint is due one interval after the last one was
taken.

**Young jobs.** A hazard is an estimate, and on a new campus only a prior. So a job is not left to it before it has done as much
work as P1's interval. The first checkpoint is due once the attempt has run for as long as a pause and the sending of the
payload; eq. (9)'s floor holds. Each later one is due when the work has doubled. A reclaim then takes about half of a job's work
at most, for log2(interval/first) checkpoints, once a job. Other planners' rows keep to their plans.

The payload C that P1 counts with is what the last checkpoint to the same standby really sent: the store sends only chunks
that are missing there. The first one is counted whole.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from math import inf

import numpy as np

from controller.core.checkpointing.planner import CheckpointJobs, CheckpointPlans, StaticPlanner, stagger, transfer_s
from controller.core.lifecycle.attempts import (
    choose_host,
    fair_shares,
    replica_of,
    request,
    reserve,
    reserved_rate,
    residual,
    safe_store,
)
from controller.core.lifecycle.grants import close_flow, open_flow, presync_flow
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import CheckpointFlow, JobState, Phase, StandbyStream
from controller.core.network.links import Paths
from controller.core.placement.select import NoDestination, select_standby
from controller.numerics.arrays import Floats
from testbed.messages import Protect, Unprotect
from topologies.spec import TrafficClass

# an interval that moves by less than a tenth costs less than a thousandth more (eq. 1 is flat there)
LEAST_CHANGE = 0.1
CLEARLY_BETTER = 2.0  # times the rate that a new standby must offer before the old one is given up

MAX_FIRST_S = 1e9  # the longest duration that a message can carry


def plan_checkpoints(cluster: Cluster) -> tuple[list[JobState], Floats]:
    """Plan standbys and rates of all running jobs; return the jobs and their intervals, to be sent once rates are settled."""
    cluster.plan_stale, cluster.planned_s, cluster.plan_at_s = False, cluster.now_s, inf
    jobs = _needing_protection(cluster)
    if isinstance(plan := cluster.policy.plan, StaticPlanner) and cluster.policy.interruption.stays:
        for job in jobs:
            if job.interval_s is None:
                _protect_at_home(cluster, job, plan.interval_s)
        return [], np.empty(0)
    for job in jobs:
        _keep_standby(cluster, job)
    protected = [job for job in jobs if job.standby is not None]
    if not protected:  # as while hundreds of hosts register
        cluster.plan_stale, cluster.rates_stale = False, True
        return protected, np.empty(0)
    plans = _plan(cluster, protected)
    rates, infeasible = plans.rates_bytes_per_s.tolist(), plans.infeasible.tolist()
    for job, rate, endangered in zip(protected, rates, infeasible, strict=True):
        job.stream.endangered, known = endangered, cluster.flows.get(f"{job.name}:{job.host}>{job.standby}")
        if known is not None and known.traffic_class is TrafficClass.PRESYNC:
            known.cap_bytes_per_s = rate
        else:
            open_flow(cluster, presync_flow(job.name, job.host or "", job.standby or "", rate))
    cluster.plan_stale, cluster.rates_stale = False, True
    return protected, plans.intervals_s


def _plan(cluster: Cluster, jobs: list[JobState]) -> CheckpointPlans:
    """Return P1's plans for these jobs, each of which has a volunteer as host, and a standby."""
    protocol, payloads = cluster.protocol, [float(job.spec.payload_bytes) for job in jobs]
    pauses_s = protocol.pauses_s(np.array(payloads))
    for row, job in enumerate(jobs):
        if (speed := cluster.hosts[job.host or ""].speed) is not None:
            pauses_s[row] = protocol.pauses_s(payloads[row], speed.pause_bytes_per_s)
        pauses_s[row] = max(pauses_s[row], job.pause_s)
    columns = CheckpointJobs(
        [job.name for job in jobs],
        np.array([job.checkpoint_bytes for job in jobs], dtype=float),
        cluster.hazards_now_per_s(jobs),
        np.array([job.spec.loss_budget_s for job in jobs], dtype=float),
        pauses_s,
        Paths.of([cluster.paths.of(job.host or "", job.standby or "") for job in jobs]),
        np.array([cluster.speed(job) for job in jobs], dtype=float),
    )
    free = residual(cluster, reserved_rate, for_checkpoints=True)
    left = np.maximum(0.0, free - cluster.capacity.withheld_column)
    return cluster.policy.plan(columns, cluster.network, left, cluster.checkpoint_share)


def tell_intervals(cluster: Cluster, jobs: list[JobState], intervals_s: Floats) -> None:
    """Send changed intervals and standbys to the agents of their jobs."""
    old_s = np.array([job.interval_s for job in jobs], dtype=float)  # NaN where none was sent yet
    moved = np.isfinite(intervals_s) & ~(np.abs(intervals_s - old_s) <= LEAST_CHANGE * old_s)
    for row in np.flatnonzero(moved).tolist():
        job, interval_s = jobs[row], float(intervals_s[row])
        flow = cluster.flows[f"{job.name}:{job.host}>{job.standby}"]
        first_s = _first_s(cluster, job, interval_s, flow)
        if job.interval_s is None and replica_of(cluster, job) is not None and job.stream.sent_bytes is None:
            first_s = 0.0  # nothing is on its replica yet
        job.interval_s = interval_s
        _protect(cluster, job, interval_s, flow, first_s)
        cluster.record(
            facts.CheckpointPlanned(job.name, job.attempt, flow.destination, flow.rate_bytes_per_s, interval_s)
        )


def _protect(cluster: Cluster, job: JobState, interval_s: float, flow: CheckpointFlow, first_s: float) -> None:
    """Order snapshots that are sent in this flow."""
    to, rate = cluster.endpoint(flow), flow.rate_bytes_per_s
    cluster.tell(flow.source, Protect(job.name, job.attempt, to, rate, interval_s, first_s))


def hasten(cluster: Cluster, job: JobState) -> None:
    """Order the next snapshot of a young job, which has just taken one, before its interval is over."""
    flow, interval_s = cluster.flows.get(f"{job.name}:{job.host}>{job.standby}"), job.interval_s
    if job.phase is not Phase.RUNNING or flow is None or interval_s is None or not cluster.policy.doubles:
        return
    first_s = _doubled_s(cluster, job, flow, job.taken[max(job.taken)][0])
    if first_s < interval_s:
        _protect(cluster, job, interval_s, flow, first_s)


def _doubled_s(cluster: Cluster, job: JobState, flow: CheckpointFlow, step: int) -> float:
    """Return how long it takes to do the work of these steps again, at least a step and what a checkpoint costs."""
    speed = cluster.hosts[flow.source].speed
    pause_s = cluster.protocol.pauses_s(float(job.spec.payload_bytes), speed.pause_bytes_per_s if speed else None)
    sending_s = transfer_s(job.checkpoint_bytes, flow.rate_bytes_per_s) / cluster.checkpoint_share
    return max(max(pause_s, job.pause_s) + sending_s, max(1, step) * cluster.step_s(job))


def _protect_at_home(cluster: Cluster, job: JobState, interval_s: float) -> None:
    """Order snapshots that stay where they are taken, once an attempt."""
    assert job.host is not None
    job.interval_s = interval_s
    cluster.tell(job.host, Protect(job.name, job.attempt, None, 0.0, interval_s, _first_s(cluster, job, interval_s)))
    cluster.record(facts.CheckpointPlanned(job.name, job.attempt, job.host, 0.0, interval_s))


def forget_standby(cluster: Cluster, job: JobState) -> None:
    """Stop sending the job's checkpoints anywhere."""
    if job.standby is None or job.host is None:
        return
    flow = cluster.flows.get(presync_flow(job.name, job.host, job.standby, 0.0).key)
    replica = replica_of(cluster, job)
    if flow is not None:
        close_flow(cluster, flow, tell=True)
    if job.interval_s is not None:
        cluster.tell(job.host, Unprotect(job.name, job.attempt))
    job.standby, job.interval_s, job.stream = None, None, StandbyStream()
    cluster.plan_stale = True
    if replica is not None:
        cluster.record(facts.ReplicaReleased(job.name, job.attempt, replica))
        cluster.free_gpu(job, cluster.hosts[replica])


def improve_standby(cluster: Cluster) -> None:
    """Give the job that loses most over its loss budget a clearly better standby.

    One at a time, since each that goes changes what others would get; and only for CLEARLY_BETTER, since the new
    standby has nothing of the payload yet.
    """
    if isinstance(cluster.policy.plan, StaticPlanner):
        return  # loss budgets do not count
    endangered = [job for job in _needing_protection(cluster) if job.stream.endangered]
    endangered.sort(key=lambda job: (-(job.interval_s or 0.0) / job.spec.loss_budget_s, job.name))
    for job, free in zip(endangered, fair_shares(cluster, endangered), strict=True):
        if job.standby is None or job.host is None:
            continue
        wanted = CLEARLY_BETTER * cluster.paths.rate(job.host, job.standby, free)
        if free[cluster.paths.of(job.host, job.standby)[0]] < wanted:
            continue  # every way begins at the host's own link
        better = _choose_standby(cluster, job, free)
        if better is None or better == job.standby:
            continue
        if cluster.paths.rate(job.host, better, free) >= wanted:
            forget_standby(cluster, job)
            job.standby = better
            return


def _needing_protection(cluster: Cluster) -> list[JobState]:
    """Return the jobs that run on a volunteer that can receive orders, and were not stopped, by name."""
    running, volunteers = Phase.RUNNING, cluster.places.number
    return [
        job
        for job in cluster.jobs.unfinished
        if job.phase is running
        and job.final_sequence is None
        and job.host in volunteers
        and cluster.hosts[job.host].connected
    ]


def _keep_standby(cluster: Cluster, job: JobState) -> None:
    """Choose a standby for a job that has none of use, or, where jobs have replicas, one with a GPU for it."""
    lacks_replica = cluster.policy.interruption.replication is not None and replica_of(cluster, job) is None
    kept = job.standby is not None and cluster.hosts[job.standby].usable
    if kept and not lacks_replica:
        return
    assert job.host is not None
    [free] = fair_shares(cluster, [job])
    if kept and choose_volunteer(cluster, job, free, needs_gpu=True) is None:
        return  # no GPU for a replica: what is stored there is better than nothing
    forget_standby(cluster, job)
    job.standby = _choose_standby(cluster, job, free)
    if job.standby is None:
        return
    standby = cluster.hosts[job.standby]
    if lacks_replica and standby.is_volunteer and standby.free_gpus >= job.spec.gpus:
        reserve(cluster, job, standby)
        cluster.record(facts.ReplicaHeld(job.name, job.attempt, standby.name))
    # counts for the next one that looks
    open_flow(cluster, presync_flow(job.name, job.host, job.standby, 0.0))


def _choose_standby(cluster: Cluster, job: JobState, free: Floats) -> str | None:
    """Return a volunteer, where P2 scores standbys behind another access switch if there is one; else an on-demand host.

    The hosts of a switch, such as a lab, leave together. Other rules want a free GPU first, so that the job could go on there.
    """
    assert job.host is not None
    if cluster.policy.interruption.central_store and (store := safe_store(cluster, job, job.host, free)) is not None:
        return store
    weighs = cluster.policy.standby is select_standby  # the way on to a GPU
    for needs_gpu in (False,) if weighs else (True, False):
        chosen = choose_volunteer(cluster, job, free, needs_gpu=needs_gpu, draw=cluster.draw())
        if chosen is not None:
            return chosen
    return safe_store(cluster, job, job.host, free)


def choose_volunteer(
    cluster: Cluster, job: JobState, free: Floats, *, needs_gpu: bool, draw: float = 0.0, among: Set[str] | None = None
) -> str | None:
    """Return the policy's choice among volunteers to keep the job's checkpoints; None: no host fits."""
    assert job.host is not None
    wanted = request(cluster, job, job.host, job.spec.payload_bytes, None)
    wanted = replace(wanted, needs_gpu=needs_gpu)
    choice = choose_host(cluster, cluster.policy.standby, wanted, [job.host], free, draw, among)
    return None if isinstance(choice, NoDestination) else choice.host


def _first_s(cluster: Cluster, job: JobState, interval_s: float, flow: CheckpointFlow | None = None) -> float:
    """Return the seconds until the next checkpoint, which `flow` sends; None: it stays where it is."""
    if job.timer.last_s is None:
        since_s, step = job.timer.since_s, job.restore.stored.step if job.restore else 0
        due_s = since_s + stagger(job.timer.number, interval_s)
    else:
        since_s, step = job.timer.last_s, job.taken[max(job.taken)][0]
        due_s = since_s + interval_s
    if job.interval_s is None:
        elsewhere = [
            known.stored.step
            for known in job.checkpoints.values()
            if any(cluster.hosts[holder].usable for holder in known.holders - {job.host})
        ]
        at_risk_s = (step - max(elsewhere, default=0)) * cluster.step_s(job)
        due_s = min(due_s, since_s + interval_s - at_risk_s)
    if flow is not None and cluster.policy.doubles:
        due_s = min(due_s, since_s + _doubled_s(cluster, job, flow, step))
    return min(MAX_FIRST_S, max(0.0, due_s - cluster.now_s))
