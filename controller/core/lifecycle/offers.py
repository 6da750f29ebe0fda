"""Assignment of GPUs to jobs: arrivals, spot offers, on-demand slots, and jobs that were interrupted.

GPUs that become idle are noted by the functions that free them, and offered once an event has been decided (`finish_event`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from controller.core.lifecycle.attempts import (
    cancelled,
    choose_host,
    dispatch,
    release,
    replica_of,
    request,
    reserved_rate,
    residual,
)
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import HostState, JobState, Phase
from controller.core.placement.select import NoDestination
from controller.core.queueing.queue import Dispatch, Lapsed, Offer, Queued, SpotJob
from testbed.messages import Accepted, JobSpec, Rejected
from topologies.spec import Role


def submit(cluster: Cluster, event: ev.SubmitAsked) -> bool:
    """Accept a new job that can be run, and place it by paper B: offer, queue or on-demand; return whether it was accepted."""
    spec = event.job
    known = cluster.jobs.get(spec.name)
    if known is not None and known.spec == spec:  # sent again: the first answer was not received
        cluster.outbox.append(do.Answer(event.operator, Accepted(spec.name, before=True)))
        return False
    refusal = "another job of this name was submitted before" if known is not None else unfit(cluster, spec)
    if refusal:
        cluster.outbox.append(do.Answer(event.operator, Rejected(spec.name, refusal)))
        return False
    cluster.jobs.add(job := JobState(spec))
    sandboxed = spec.sandbox != "none"
    cluster.record(facts.JobSubmitted(job.name, spec.steps, spec.step_s, spec.payload_bytes, spec.gpus, sandboxed))
    cluster.outbox.append(do.Answer(event.operator, Accepted(spec.name)))
    answer = cluster.queue.submit(_spot_job(job), cluster.now_s, event.draw)
    level = cluster.queue.controller.level
    if isinstance(answer, Dispatch):
        _take_offer(cluster, answer)
    elif isinstance(answer, Queued):
        cluster.record(facts.JobQueued(job.name, answer.ahead, level))
    else:
        redirect(cluster, job, answer.ahead)
    return True


def unfit(cluster: Cluster, spec: JobSpec) -> str:
    """Return the reason why no host of some role can ever run the job; "" if each role has one that can."""
    probe = JobState(spec)
    for role in (Role.VOLUNTEER, Role.ON_DEMAND):
        hosts = [host for host in cluster.hosts.values() if host.spec.role is role]
        if hosts and not any(cluster.fits(probe, host) for host in hosts):
            why = ", and the queue may send a job there" if role is Role.ON_DEMAND else ""
            needed = "a GPU" if spec.gpus == 1 else f"{spec.gpus} GPUs, each"
            return (
                f"no {role.value} host has {needed} with {spec.memory_bytes:.4g} bytes of memory "
                f"and compute capability {spec.min_capability:g}{why}"
            )
    return ""


def redirect(cluster: Cluster, job: JobState, ahead: int, waited_s: float = 0.0) -> None:
    """Send a job that was never dispatched to on-demand, at cost k (paper B)."""
    level = cluster.queue.controller.level
    job.redirected_after_s = waited_s
    cluster.record(facts.JobRedirected(job.name, ahead, level, waited_s))
    to_on_demand(cluster, job)


def gpu_freed(cluster: Cluster, host: HostState) -> None:
    """Offer a GPU that has become idle, unless it has to stay as a spare; or give it to the backlog."""
    if not host.usable or host.name in cluster.resting or host.free_gpus <= len(cluster.queue.standing_at(host.name)):
        return
    for name, home in cluster.homes.items():  # the first interrupted first
        if home == host.name and cluster.jobs[name].spec.gpus <= host.free_gpus:
            del cluster.homes[name]
            dispatch(cluster, cluster.jobs[name], host)
            return
    if not host.is_volunteer:
        waiting, cluster.backlog = cluster.backlog, []
        for name in waiting:
            to_on_demand(cluster, cluster.jobs[name])
        return
    spares = cluster.terms.spare_gpus  # this one is beside them
    if spares and _idle_gpus(cluster) - len(cluster.queue.standing()) <= spares:  # all of them are kept
        return
    cluster.offers_made += 1
    number, gpu = cluster.offers_made, cluster.campus.gpu_by_name[host.spec.gpu_model or ""]
    answer = cluster.queue.offer(number, cluster.now_s, gpu.memory_bytes, gpu.compute_capability, host.name)
    if isinstance(answer, Dispatch):
        _take_offer(cluster, answer)
    elif isinstance(answer, Lapsed):
        cluster.record(facts.OfferLapsed(host.name))


def _idle_gpus(cluster: Cluster) -> int:
    """Return how many GPUs of volunteers are free, offered or not."""
    return sum([host.free_gpus for host in cluster.volunteers if host.usable and host.name not in cluster.resting])


def gpus_behind(cluster: Cluster, offer: Offer) -> int:
    """Return how many GPUs a job that takes this offer can have: those free on its host, less those kept as spares."""
    offered_elsewhere = sum(other.host != offer.host for other in cluster.queue.standing())
    spendable = _idle_gpus(cluster) - offered_elsewhere - cluster.terms.spare_gpus
    return min(cluster.hosts[offer.host].free_gpus, spendable)


def offer_all(cluster: Cluster, host: HostState) -> None:
    """Offer each GPU that is free and not offered, when the event has been decided."""
    cluster.freed += [host.name] * max(0, host.free_gpus - len(cluster.queue.standing_at(host.name)))


def offer_freed(cluster: Cluster) -> None:
    """Offer all GPUs that have become idle."""
    while cluster.freed:
        gpu_freed(cluster, cluster.hosts[cluster.freed.pop(0)])


def serve_waiting(cluster: Cluster) -> None:
    """Use offers that stand because all bandwidth was reserved when they were made."""
    while (taken := cluster.queue.serve(cluster.now_s)) is not None:
        _take_offer(cluster, taken)


def expire_offers(cluster: Cluster) -> None:
    """Take offers whose time is over from the queue; their GPUs stay destinations for migrations."""
    for offer in cluster.queue.expire(cluster.now_s):
        cluster.record(facts.OfferLapsed(offer.host))


def send_off_waiting(cluster: Cluster) -> None:
    """Send jobs to on-demand, at cost k, that the queue lets wait no longer."""
    for left in cluster.queue.renege(cluster.now_s):
        redirect(cluster, cluster.jobs[left.job], len(cluster.queue), left.delay_s)


def choose_offer(cluster: Cluster, job: SpotJob, offers: Sequence[Offer]) -> int | None:
    """Return P2's choice among the offers that stand."""
    state = cluster.jobs[job.key]
    standing = {offer.host for offer in offers}
    host = _host_for(cluster, state, standing & cluster.fit_hosts(state) or standing)
    return min((offer.offer_id for offer in offers if offer.host == host), default=None)


def _take_offer(cluster: Cluster, taken: Dispatch) -> None:
    job, host = cluster.jobs[taken.job], cluster.hosts[taken.host]
    dispatch(cluster, job, host, (1.0 * job.spec.gpus, taken.delay_s) if taken.first else None)


def _spot_job(job: JobState) -> SpotJob:
    return SpotJob(job.name, job.spec.memory_bytes, job.spec.min_capability, job.spec.gpus)


def to_on_demand(cluster: Cluster, job: JobState) -> None:
    """Give the job a GPU of the emptiest on-demand host that fits it, or a place in the backlog."""
    fitting = [
        host
        for host in cluster.ownerless
        if host.spec.role is Role.ON_DEMAND
        and host.usable
        and host.free_gpus >= job.spec.gpus
        and cluster.fits(job, host)
    ]
    if not fitting:
        cluster.backlog.append(job.name)
        cluster.record(facts.JobWaits(job.name, "no on-demand host is ready for it"))
        return
    emptiest = min(fitting, key=lambda host: (host.taken_gpus / host.spec.gpus, host.name))
    cost = cluster.terms.on_demand_cost * job.spec.gpus
    dispatch(cluster, job, emptiest, (cost, job.redirected_after_s or 0.0) if job.attempt == 0 else None)


def interrupt(cluster: Cluster, job: JobState, cause: str) -> None:
    """End an attempt that is dead for certain, and resume the job elsewhere or at the head of the queue.

    GPUs that become free are offered only after all jobs that the event interrupts. A cancelled job is not resumed.
    """
    if job.phase is Phase.CANCELLING:
        cancelled(cluster, job, "gone")
        return
    replica, home = replica_of(cluster, job), job.host or ""
    cluster.record(facts.JobStopped(job.name, job.attempt, home, cause, job.step))
    job.stopped(cluster.now_s, cause)
    release(cluster, job)
    cluster.advance(job, "interrupted")
    _come_back(cluster, job, home, replica)


def _come_back(cluster: Cluster, job: JobState, home: str, replica: str | None) -> None:
    """Resume the job: on its replica, on its host once that returns, after a wait, or at once."""
    checkpoint = cluster.freshest(job)
    wait_s = 0.0 if job.redirected_after_s is not None else cluster.policy.interruption.wait_s
    # after a second start that failed, and then twice as long each time: what is the matter with its host, its file system, its
    # GPUs may pass
    if (failed := len(job.obstacles.failed_at)) > 1:
        wait_s = max(wait_s, cluster.protocol.control_period_s * 2.0 ** (failed - 2))
    if replica and checkpoint and replica in checkpoint.holders and cluster.hosts[replica].usable:
        dispatch(cluster, job, cluster.hosts[replica])
    elif cluster.policy.interruption.stays and any(home in known.holders for known in job.checkpoints.values()):
        cluster.homes[job.name] = home
        cluster.record(facts.JobWaits(job.name, f"its checkpoints are on {home}, which its owner has"))
    elif wait_s > 0.0:
        cluster.requeued[job.name] = cluster.now_s + wait_s
        cluster.record(facts.JobWaits(job.name, f"requeued, and may start again in {wait_s:g} s"))
    else:
        resume(cluster, job)


def resume_requeued(cluster: Cluster) -> None:
    """Resume the jobs whose wait is over, in the order of their interruption."""
    due = [name for name, due_s in cluster.requeued.items() if due_s <= cluster.now_s]
    for name in due:
        del cluster.requeued[name]
    for name in due:
        resume(cluster, cluster.jobs[name])


def resume(cluster: Cluster, job: JobState) -> None:
    """Place the job where P2 likes best, preferably not where it failed to start; else at the head of the queue."""
    if job.redirected_after_s is not None:
        to_on_demand(cluster, job)
    else:
        fit, failed = cluster.fit_hosts(job), {*job.obstacles.failed_at, job.failed_on} - {""}
        chosen = _host_for(cluster, job, fit - failed) if failed else None
        if (chosen := chosen or _host_for(cluster, job, fit)) is not None:
            dispatch(cluster, job, cluster.hosts[chosen])
        elif isinstance(answer := cluster.queue.requeue_at_head(_spot_job(job), cluster.now_s), Dispatch):
            _take_offer(cluster, answer)
        else:
            cluster.record(facts.JobWaits(job.name, "no host is free for it"))


def _host_for(cluster: Cluster, job: JobState, among: Set[str]) -> str | None:
    """Return P2's host for the job and its freshest checkpoint."""
    checkpoint = cluster.freshest(job)
    sources = cluster.holders(checkpoint) if checkpoint else []
    wanted = request(cluster, job, None, job.spec.payload_bytes if checkpoint else 0.0, None)
    free = residual(cluster, reserved_rate)
    choice = choose_host(cluster, cluster.policy.select, wanted, sources, free, cluster.draw(), among)
    return None if isinstance(choice, NoDestination) else choice.host
