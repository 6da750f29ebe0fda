"""Decide until when a job with a deadline may wait for volunteers and run there, so that it is finished in time all the same.

A job may have a deadline, counted from its submission (`JobSpec.deadline_s`). It waits for spot capacity and runs there like any
other, for as long as an on-demand GPU that it then got could still finish it in time, whatever became of its host, of its standby
and of all other owners' machines at that moment. What counts is therefore its newest checkpoint on a host that no owner takes
(second copies go there; see `second_copy`), and not the work that it has done. With `left` seconds until the deadline a job
*presses* as soon as

    left <= (work since that checkpoint) (1 + SLOWER) + fetching it + T_r + reading it     on the on-demand GPU
          + lease + margins                                                     until the old attempt is dead for certain
          + a move there, in which it goes on computing, and a control period

and then goes there, at cost k: from the queue at once, from a volunteer by a planned move (P3 admits it like any other), and if
none is admitted in time, from that checkpoint. This is the rule of least laxity for one job whose machine may fail at any
moment; "Can't Be Late" (Wu et al., NSDI 2024) has it for one job and a market of spot and on-demand instances.

**The guarantee.** A GPU is there: from its acceptance on, one on-demand GPU that fits is kept free for each such job
(`on_demand`), and a job is refused for which there is none, or whose deadline even that GPU cannot keep from the beginning. So
every accepted deadline is kept as long as

- a step takes no longer than it was said to (SLOWER is allowed for);
- the hosts without an owner that keep its GPU and its checkpoint are not lost, and links keep their rates;
- the coordinator is not away when the job presses, agents answer, and the process does not fail of itself.

Whatever owners do is in the sum, and that their agents die or stand still. `results.deadlines` judges every run by it.
"""

from __future__ import annotations

from math import inf

from controller.core.lifecycle.attempts import fetches_s, start_s
from controller.core.lifecycle.candidates import reserved_rate, residual
from controller.core.lifecycle.move_times import unhurried_s
from controller.core.lifecycle.on_demand import on_demand_hosts, slots
from controller.core.model.cluster import Cluster
from controller.core.model.entities import Checkpoint, HostState, JobState
from controller.core.network.links import Residual
from testbed.messages import JobSpec
from topologies.units import format_duration

# live, jobs took at most 2.8 % longer than virtual time says (`make prediction`)
SLOWER = 0.03


def refusal(cluster: Cluster, spec: JobSpec) -> str:
    """Why the job's deadline cannot be promised; empty if it can be, if it has none, or if this system promises none."""
    if spec.deadline_s is None or not cluster.policy.keeps_deadlines:
        return ""
    if spec.ranks > 1:
        return "a job of several ranks cannot have a deadline"
    probe, hosts = JobState(spec, cluster.now_s), on_demand_hosts(cluster)
    if not hosts:
        return "a deadline needs an on-demand host, and this campus has none"
    if not slots(cluster, probe):
        there = [host for host in hosts if host.usable and cluster.fits(probe, host)]
        kept = sum(len(host.kept) for host in there)
        words = f"of {sum(host.spec.gpus for host in there)} that fit and are connected {kept} are kept for other deadlines"
        return f"no on-demand GPU can be kept free for its deadline: {words}, and the rest is taken"
    least_s = _work_s(spec, 0) + start_s(cluster, probe)
    if spec.deadline_s < least_s:
        asked, least = format_duration(spec.deadline_s), format_duration(least_s)
        return f"its deadline of {asked} cannot be kept: on-demand alone it takes {least}"
    return ""


def promise(cluster: Cluster, job: JobState) -> None:
    """The job was accepted: if it has a deadline, a GPU is kept for it from now on."""
    if job.spec.deadline_s is None or not cluster.policy.keeps_deadlines:
        return
    cluster.dated[job.name] = job
    cluster.keep_gpu(job, max(slots(cluster, job), key=lambda host: (host.open_gpus, host.name)))
    cluster.deadlines_at_s = cluster.now_s


def presses(cluster: Cluster, job: JobState) -> bool:
    """Whether a job that waits cannot wait for an owner's machine."""
    if job.name not in cluster.dated:
        return False
    free = residual(cluster, cluster.now_s, reserved_rate)
    return left_s(cluster, job) <= reserve_s(cluster, job, place_of(cluster, job), free)


def place_of(cluster: Cluster, job: JobState) -> HostState:
    """The on-demand host that a job would get now; that which keeps its GPU, if none can be told."""
    return next(iter(slots(cluster, job)), None) or cluster.hosts[job.kept_on or ""]


def left_s(cluster: Cluster, job: JobState) -> float:
    """Seconds until the job's deadline; infinite without one."""
    return inf if job.spec.deadline_s is None else job.submitted_s + job.spec.deadline_s - cluster.now_s


def safe_checkpoint(cluster: Cluster, job: JobState) -> Checkpoint | None:
    """The newest one that a host without an owner can send."""
    return max(
        (
            known
            for known in job.checkpoints.values()
            if any(not cluster.hosts[name].is_volunteer for name in cluster.holders(known))
        ),
        key=lambda known: (known.stored.step, known.stored.sequence),
        default=None,
    )


def needed_s(cluster: Cluster, job: JobState, there: HostState, checkpoint: Checkpoint | None) -> float:
    """Seconds that an on-demand GPU takes for what is left after this checkpoint (None: for all), the way there included."""
    work_s = _work_s(job.spec, 0 if checkpoint is None else checkpoint.stored.step)
    return _fetch_s(cluster, job, there, checkpoint) + start_s(cluster, job) + work_s


def certain_s(cluster: Cluster) -> float:
    """How long before it has to begin anew a job is called off its host at the latest: until it was looked at, and its attempt
    there is dead for certain."""
    settings = cluster.settings
    return settings.lease_s + settings.fence_margin_s + settings.heartbeat_s + settings.control_period_s


def reserve_s(cluster: Cluster, job: JobState, there: HostState, free: Residual) -> float:
    """What has to be left until its deadline while a job goes on with owners, or may: time for a move too, where there is a way.

    `free`: of each link, bytes/s. A job that waits is as far away as the first volunteer.
    """
    source = job.host or (cluster.volunteers or cluster.ownerless)[0].name
    moves_s = unhurried_s(cluster, job, source, there.name, free)
    safe_s = needed_s(cluster, job, there, safe_checkpoint(cluster, job))
    return safe_s + certain_s(cluster) + (moves_s if moves_s < inf else 0.0)


def resumes_from(cluster: Cluster, job: JobState, there: HostState) -> Checkpoint | None:
    """From what a job that waits goes on on demand: its freshest checkpoint; the safe one (or a new beginning) if that can be in
    time still, and no more if an owner takes the holder of the other while it is being fetched."""
    safe, freshest = safe_checkpoint(cluster, job), cluster.freshest(job)
    if job.name not in cluster.dated or freshest is None or freshest is safe:
        return freshest
    safe_s, within_s = needed_s(cluster, job, there, safe), left_s(cluster, job)
    return safe if safe_s <= within_s < _fetch_s(cluster, job, there, freshest) + safe_s else freshest


def _fetch_s(cluster: Cluster, job: JobState, there: HostState, checkpoint: Checkpoint | None) -> float:
    if checkpoint is None or there.name in checkpoint.holders:
        return 0.0
    return min(map(fetches_s(cluster, job, there.name), cluster.holders(checkpoint)), default=inf)


def _work_s(spec: JobSpec, step: int) -> float:
    return (spec.steps - step) * spec.step_s * (1.0 + SLOWER)
