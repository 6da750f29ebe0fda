"""Decide until when a job with a deadline may wait for volunteers and run there, so that it is finished in time all the same.

A job may have a deadline, counted from its submission (`JobSpec.deadline_s`). It waits for spot capacity and runs there like any
other, for as long as an on-demand GPU that it then got could still finish it in time, whatever became of its host, of its standby
and of all other owners' machines at that moment. What counts is therefore its newest checkpoint on a host that no owner takes
(second copies go there; see `second_copy`), and not the work that it has done. With `left` seconds until the deadline a job
*presses* as soon as

    left <= (work left after that checkpoint) (1 + SLOWER) + fetching it + T_r + reading it     on the on-demand GPU
          + lease + margins                                                     until the old attempt is dead for certain
          + a move there, in which it goes on computing, and a control period

(or without the fetching, where it is done sooner from its first step) and then goes there, at cost k: from the queue at once,
from a volunteer by a planned move (P3 admits it like any other), and if none is admitted in time, from that checkpoint. This is
the rule of least laxity for one job whose machine may fail at any moment; "Can't Be Late" (Wu et al., NSDI 2024) has it for one
job and a market of spot and on-demand instances.

**The guarantee.** A GPU is there: from its acceptance on, one on-demand GPU that fits is kept free for each such job
(`on_demand`). Where no other is open, jobs take turns on one: a job is accepted for a GPU that is kept for others if all of them
can be in time one after the other, each from what is safe of it, in the order of their deadlines. Else, or if even a GPU of its
own could not keep its deadline, it is refused. Of jobs that take turns the one due first presses as soon as the least time that
any of them has to spare is used up. Once it has the GPU, what is left of its turn shrinks as the others' time does, so each of
them presses in time again when the turn is over. So every accepted deadline is kept as long as

- a step takes no longer than it was said to (SLOWER is allowed for);
- the hosts without an owner that keep its GPU and its checkpoint are not lost, can send it, and links keep their rates;
- the coordinator is not away when the job presses, agents answer, and the process does not fail of itself;
- what it may have to wait for others' payloads (`plan_fetches`) grows at once by no more than a move and a look take.

Whatever owners do is in the sum, and that their agents die or stand still. `results.deadlines` judges every run by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from controller.core.lifecycle.attempts import start_s
from controller.core.lifecycle.candidates import reserved_rate, residual
from controller.core.lifecycle.grants import recovery_bytes, reserved_bytes
from controller.core.lifecycle.move_times import unhurried_s
from controller.core.lifecycle.on_demand import is_on_demand, on_demand_hosts, slots, turn_on
from controller.core.model.cluster import Cluster
from controller.core.model.entities import Checkpoint, CheckpointFlow, HostState, JobState, KeptGpu
from controller.core.network.links import Residual
from testbed.bounds import TRICKLE_BYTES_PER_S
from testbed.messages import JobSpec
from topologies.units import format_duration

# live, jobs took at most 2.8 % longer than virtual time says (`make prediction`)
SLOWER = 0.03


def refusal(cluster: Cluster, spec: JobSpec) -> str:
    """Why the job's deadline cannot be promised; empty if it can be, if it has none, or if this system promises none."""
    if spec.deadline_s is None or not cluster.policy.keeps_deadlines:
        return ""
    probe, hosts = JobState(spec, cluster.now_s), on_demand_hosts(cluster)
    if not hosts:
        return "a deadline needs an on-demand host, and this campus has none"
    least_s = _work_s(spec, 0) + start_s(cluster, probe)
    if spec.deadline_s < least_s:
        asked, least = format_duration(spec.deadline_s), format_duration(least_s)
        return f"its deadline of {asked} cannot be kept: on-demand alone it takes {least}"
    if _gpu_for(cluster, probe) is None:
        there = [host for host in hosts if host.usable and cluster.fits(probe, host)]
        kept = sum(len(host.kept) for host in there)
        words = f"of {sum(host.spec.gpus for host in there)} that fit and are connected {kept} are kept for other deadlines"
        turns = ", after or before which it cannot be in time" if kept else ""
        return f"no on-demand GPU can be kept free for its deadline: {words}{turns}, and the rest is taken"
    return ""


def promise(cluster: Cluster, job: JobState) -> None:
    """The job was accepted: if it has a deadline, a GPU is kept for it from now on."""
    if job.spec.deadline_s is None or not cluster.policy.keeps_deadlines:
        return
    gpu = _gpu_for(cluster, job)
    assert gpu is not None  # else it was refused
    cluster.dated[job.name] = job
    cluster.keep_gpu(job, gpu)
    cluster.deadlines_at_s = cluster.now_s


def _gpu_for(cluster: Cluster, job: JobState) -> KeptGpu | None:
    """The GPU to keep for a new job: one of the emptiest host, or that where all have most to spare if it takes turns there."""
    if open_hosts := slots(cluster, job):
        return KeptGpu(max(open_hosts, key=lambda host: (host.open_gpus, host.name)).name)
    free = residual(cluster, cluster.now_s, reserved_rate)
    found: list[tuple[float, str, KeptGpu]] = []
    for host in on_demand_hosts(cluster):
        if host.usable and cluster.fits(job, host):
            for gpu in host.kept:
                spare_s = _spare_s(cluster, gpu, [*gpu.jobs, job], free)
                found += [(spare_s, host.name, gpu)] if spare_s > 0.0 else []
    return max(found, key=lambda each: each[:2], default=(0.0, "", None))[2]


def presses(cluster: Cluster, job: JobState) -> bool:
    """Whether a job that waits cannot wait for an owner's machine."""
    return (
        job.name in cluster.dated
        and ahead_s(cluster, job, residual(cluster, cluster.now_s, reserved_rate)) <= 0.0
    )


def ahead_s(cluster: Cluster, job: JobState, free: Residual) -> float:
    """Seconds until the job presses; `free`: of each link, bytes/s.

    Of the first of several jobs that take turns on a GPU, while that is free: the least time that any of them has to spare.
    """
    own_s = left_s(cluster, job) - reserve_s(cluster, job, place_of(cluster, job), free)
    gpu = job.kept
    if gpu is None or len(gpu.jobs) == 1 or gpu.jobs[0] is not job or turn_on(cluster, job) is None:
        return own_s
    return min(own_s, _spare_s(cluster, gpu, gpu.jobs, free))


def _spare_s(cluster: Cluster, gpu: KeptGpu, jobs: Sequence[JobState], free: Residual) -> float:
    """The least time that any of these has to spare that does not press yet, if they take turns on a GPU from now on."""
    host = cluster.hosts[gpu.host]
    there = gpu.taken_by(host)
    taken_s = 0.0 if there is None else max(0.0, turn_until_s(cluster, there, host) - cluster.now_s)
    least_s = inf
    for job in sorted(jobs, key=lambda each: (each.pressed_until_s is None, each.due_s)):
        if job is not there:
            taken_s += reserve_s(cluster, job, host, free)
        if job.pressed_until_s is None:
            least_s = min(least_s, left_s(cluster, job) - taken_s)
    return least_s


def turn_until_s(cluster: Cluster, job: JobState, host: HostState) -> float:
    """When a job that has a GPU of this on-demand host is done with it at the latest."""
    if job.pressed_until_s is not None:
        return job.pressed_until_s
    return cluster.now_s + safe_start(cluster, job, host)[1] + certain_s(cluster)


def place_of(cluster: Cluster, job: JobState) -> HostState:
    """The on-demand host that a job would get now; that which keeps its GPU, if none can be told."""
    host = next(iter(slots(cluster, job)), None)
    if host is None:
        assert job.kept is not None
        host = cluster.hosts[job.kept.host]
    return host


def left_s(cluster: Cluster, job: JobState) -> float:
    """Seconds until the job's deadline; infinite without one."""
    return job.due_s - cluster.now_s


def within_s(cluster: Cluster, job: JobState) -> float:
    """Seconds until the job is to be over: until its deadline, or until the turn of the next begins on the GPU that it has or is
    on its way to."""
    others_wait = job.kept is not None and len(job.kept.jobs) > 1
    turn_s = job.pressed_until_s if others_wait else None
    return left_s(cluster, job) if turn_s is None else min(job.due_s, turn_s) - cluster.now_s


def safe_checkpoint(cluster: Cluster, job: JobState) -> Checkpoint | None:
    """The newest one that a host without an owner can send."""
    return max(
        (known for known in job.checkpoints.values() if cluster.safe_holders(known)),
        key=lambda known: (known.stored.step, known.stored.sequence),
        default=None,
    )


def safe_start(cluster: Cluster, job: JobState, there: HostState) -> tuple[Checkpoint | None, float]:
    """From what the job would go on on that on-demand host if every owner took his machine now, and the seconds that this takes:
    its newest safe checkpoint, or its first step (None) where it is done sooner from there."""
    safe, whole_s = safe_checkpoint(cluster, job), needed_s(cluster, job, there, None)
    if safe is None:
        return None, whole_s
    safe_s = needed_s(cluster, job, there, safe) + job.fetch_waits_s
    return (safe, safe_s) if safe_s <= whole_s else (None, whole_s)


def needed_s(cluster: Cluster, job: JobState, there: HostState, checkpoint: Checkpoint | None) -> float:
    """Seconds that an on-demand GPU takes for what is left after this checkpoint (None: for all), the way there from a host
    without an owner included."""
    senders = [] if checkpoint is None else cluster.safe_holders(checkpoint)
    work_s = _work_s(job.spec, 0 if checkpoint is None else checkpoint.stored.step)
    return _fetch_s(cluster, job, there, checkpoint, senders) + start_s(cluster, job) + work_s


def spare_s(cluster: Cluster, job: JobState) -> float:
    """Seconds for which the job may still be elsewhere before it has to be called off its host, to go on from what is safe."""
    safe_s = safe_start(cluster, job, place_of(cluster, job))[1]
    return max(0.0, within_s(cluster, job) - safe_s - certain_s(cluster))


def plan_fetches(cluster: Cluster) -> None:
    """Set how long what each job would fetch may have to wait (`fetch_waits_s`), if all owners took their machines now.

    All come over one port, as where one host keeps what is safe; on their way those due sooner go first (`grants`), so all are
    there in time if each begins no later than in the schedule in which every one is sent as late as can be: backwards from the
    last, each before the next, and before its own work.
    """
    fetches: list[tuple[float, str, float, JobState]] = []
    for job in cluster.dated.values():
        job.fetch_waits_s = 0.0
        safe = safe_checkpoint(cluster, job)
        if safe is None or is_on_demand(cluster, job):
            continue
        takes_s = _fetch_s(cluster, job, place_of(cluster, job), safe, cluster.safe_holders(safe))
        if 0.0 < takes_s < inf:
            rest_s = start_s(cluster, job) + _work_s(job.spec, safe.stored.step) + certain_s(cluster)
            fetches.append((within_s(cluster, job) - rest_s, job.name, takes_s, job))
    begins_s = inf
    for until_s, _, takes_s, job in sorted(fetches, reverse=True):
        begins_s = min(until_s, begins_s) - takes_s
        job.fetch_waits_s = until_s - takes_s - begins_s


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
    safe_s = safe_start(cluster, job, there)[1]
    return safe_s + certain_s(cluster) + (moves_s if moves_s < inf else 0.0)


def resumes_from(cluster: Cluster, job: JobState, there: HostState) -> Checkpoint | None:
    """From what a job that waits goes on on demand: its freshest checkpoint; the safe one (or a new beginning) if that can be in
    time still, and no more if an owner takes the holder of the other while it is being fetched."""
    freshest = cluster.freshest(job)
    if job.name not in cluster.dated or freshest is None:
        return freshest
    safe, safe_s = safe_start(cluster, job, there)
    if freshest is safe:
        return freshest
    fetch_s = _fetch_s(cluster, job, there, freshest, cluster.holders(freshest))
    return safe if safe_s <= within_s(cluster, job) < fetch_s + safe_s else freshest


def _fetch_s(
    cluster: Cluster, job: JobState, there: HostState, checkpoint: Checkpoint | None, senders: Sequence[str]
) -> float:
    """Seconds in which the first of these senders has it there, all that is reserved or begun on its way before it; inf: none."""
    if checkpoint is None or there.name in checkpoint.holders:
        return 0.0
    free = residual(cluster, cluster.now_s, _constant_floor).column.clip(TRICKLE_BYTES_PER_S)
    carried = job.spec.payload_bytes + recovery_bytes(cluster) + reserved_bytes(cluster)
    ways = ([*cluster.path(sender, there.name)] for sender in senders)
    return min([float((carried[way] / free[way]).max(initial=0.0)) for way in ways], default=inf)


def _constant_floor(flow: CheckpointFlow) -> float:
    """What a flow takes of a link for as long as it is open; a reservation is over once its bytes are sent."""
    return 0.0 if flow.reservation is not None else flow.floor_bytes_per_s


def _work_s(spec: JobSpec, step: int) -> float:
    return (spec.steps - step) * spec.step_s * (1.0 + SLOWER)
