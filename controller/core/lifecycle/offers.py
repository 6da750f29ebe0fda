"""Which job gets which GPU: arrivals, spot offers, on-demand slots, and jobs that were interrupted.

GPUs that become idle are noted by the functions that free them, and offered once an event has been decided (`conclusion`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import accumulate

from msgspec import structs

from controller.core.lifecycle import gangs, job_deadlines
from controller.core.lifecycle.attempts import (
    cancelled,
    dispatch,
    dispatch_from,
    dispatch_gang,
    release,
    replica_of,
)
from controller.core.lifecycle.candidates import candidates, request, reserved_rate, residual
from controller.core.lifecycle.grants import close_flows
from controller.core.lifecycle.on_demand import slots, turn_on
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import Gang, HostState, JobState, Phase
from controller.core.placement.select import NoDestination
from controller.core.queueing.queue import Dispatch, Lapsed, Offer, Queued, SpotJob, Standing
from testbed.bounds import LONGEST_NAME
from testbed.messages import Accepted, JobSpec, Rejected
from testbed.ranks import rank_name, rank_of
from topologies.spec import Role


def submit(cluster: Cluster, event: ev.JobSubmitted) -> bool:
    """Whether this is a new job that can be run. Then paper B chooses: an offer that stands, the queue, or on-demand."""
    spec = event.job
    known = cluster.gangs.get(spec.name) or cluster.jobs.get(spec.name)
    if known is not None and known.spec == spec:  # said again: the first answer was not heard
        cluster.outbox.append(do.Answer(event.operator, Accepted(spec.name, before=True)))
        return False
    refusal = "another job of this name was submitted before" if known is not None else unfit(cluster, spec)
    if not refusal and (refusal := job_deadlines.refusal(cluster, spec)):
        cluster.record(facts.DeadlineRefused(spec.name, spec.deadline_s or 0.0, refusal))
    if refusal:
        cluster.outbox.append(do.Answer(event.operator, Rejected(spec.name, refusal)))
        return False
    job = _accept(cluster, spec)
    for rank in job.all_ranks:
        cluster.record(
            facts.JobSubmitted(rank.name, spec.steps, spec.step_s, spec.payload_bytes, spec.deadline_s)
        )
    job_deadlines.promise(cluster, job)
    cluster.outbox.append(do.Answer(event.operator, Accepted(spec.name)))
    queue = cluster.queue
    if cluster.witness is not None:
        chance, age_s = queue.chance(cluster.now_s), queue.gap_age_s(cluster.now_s)
        cluster.witness.arrived(job, event.draw, len(queue), chance, age_s)
    ready = job.gang is not None and _has_room(cluster, job, spec.ranks + len(queue), first=True)
    pressed = job_deadlines.presses(cluster, job)
    answer = queue.submit(_spot_job(job), cluster.now_s, event.draw, ready=ready, pressed=pressed)
    level = cluster.queue.controller.level
    if isinstance(answer, Dispatch):
        _take_offer(cluster, answer)
    elif isinstance(answer, Queued):
        for rank in job.all_ranks:
            cluster.record(facts.JobQueued(rank.name, answer.ahead, level))
        cluster.gangs_look |= job.gang is not None
    else:
        redirect(cluster, job, answer.ahead)
    return True


def _accept(cluster: Cluster, spec: JobSpec) -> JobState:
    """The job is known from now on; of a gang, its first rank."""
    gang = Gang(spec) if spec.ranks > 1 else None
    names = [spec.name] if gang is None else [rank_name(spec.name, n, spec.ranks) for n in range(spec.ranks)]
    jobs = [
        JobState(
            spec if gang is None else structs.replace(spec, name=name),
            cluster.now_s,
            attempts_above=cluster.attempts_above,
            gang=gang,
        )
        for name in names
    ]
    cluster.jobs.update({job.name: job for job in jobs})
    if gang is not None:
        gang.ranks, cluster.gangs[spec.name] = jobs, gang
    return jobs[0]


def unfit(cluster: Cluster, spec: JobSpec) -> str:
    """Why no host of some role can ever run the job; empty if each role has one that can, or enough of them for a gang."""
    if rank_of(spec.name) is not None:
        return "a name that ends so is that of a gang's rank"
    if spec.ranks > 1 and len(longest := rank_name(spec.name, spec.ranks - 1, spec.ranks)) > LONGEST_NAME:
        return f"its ranks would be called {longest} and so on: at most {LONGEST_NAME} characters"
    probe = JobState(spec, 0.0)
    for role in (Role.VOLUNTEER, Role.ON_DEMAND):
        hosts = [host for host in cluster.hosts.values() if host.spec.role is role]
        gpus = (host.spec.gpus for host in hosts if cluster.fits(probe, host))
        if hosts and all(count < spec.ranks for count in accumulate(gpus)):
            fitting = any(cluster.fits(probe, host) for host in hosts)
            few = f"have {spec.ranks} GPUs" if fitting else "has a GPU"
            why = ", and the queue may send a job there" if role is Role.ON_DEMAND else ""
            return (
                f"no {role.value} host{'s' if fitting else ''} {few} with {spec.memory_bytes:.4g} bytes of memory "
                f"and compute capability {spec.min_capability:g}{why}"
            )
    return ""


def redirect(cluster: Cluster, job: JobState, ahead: int, waited_s: float = 0.0) -> None:
    """Paper B, or its deadline, sends a job to on-demand that was never dispatched, at cost k."""
    level = cluster.queue.controller.level
    for rank in job.all_ranks:
        rank.on_demand, rank.waited_s = True, waited_s
        cluster.record(facts.JobRedirected(rank.name, ahead, level, waited_s))
    to_on_demand(cluster, job)


def gpu_freed(cluster: Cluster, host: HostState) -> None:
    """A GPU has become idle: a spot offer, unless it has to be kept as a spare; or a slot for the backlog."""
    if not host.usable or host.free_gpus <= len(host.offered):
        return
    for name, home in cluster.homes.items():  # the first interrupted first
        if home == host.name:
            del cluster.homes[name]
            dispatch(cluster, cluster.jobs[name], host)
            return
    if not host.is_volunteer:
        turns = [gpu.turn(host).name for gpu in host.kept if gpu.taken_by(host) is None]
        if host.open_gpus <= 0 and not any(name in cluster.backlog for name in turns):
            return  # what is free there is kept for others
        waiting, cluster.backlog = cluster.backlog, []
        for name in waiting:
            to_on_demand(cluster, cluster.jobs[name])
        return
    idle = int((cluster.places.gpus - cluster.taken_column)[cluster.usable_column].sum()) - len(
        cluster.offers
    )
    if idle <= cluster.settings.spare_gpus:  # all of them are kept
        return
    cluster.offers_made += 1
    number = cluster.offers_made
    gpu = cluster.campus.gpu_by_name[host.spec.gpu_model or ""]
    cluster.offers[number] = host.name
    answer = cluster.queue.offer(number, cluster.now_s, gpu.memory_bytes, gpu.compute_capability)
    if isinstance(answer, Dispatch):
        _take_offer(cluster, answer)
    elif isinstance(answer, Standing):
        host.offered.add(number)
    else:
        assert isinstance(answer, Lapsed)
        _lapsed(cluster, number)


def offer_all(cluster: Cluster, host: HostState) -> None:
    """Offer each GPU that is free and not offered, when the event has been decided."""
    cluster.freed += [host.name] * max(0, host.free_gpus - len(host.offered))


def offer_freed(cluster: Cluster) -> None:
    """Offer all GPUs that have become idle; gangs that wait look first whether they have enough now."""
    if cluster.gangs and (cluster.freed or cluster.gangs_look):
        start_gangs(cluster)
    while cluster.freed:
        gpu_freed(cluster, cluster.hosts[cluster.freed.pop(0)])


def start_gangs(cluster: Cluster) -> None:
    """Start each gang that waits and for which enough GPUs are idle, beside those for the jobs before it."""
    cluster.gangs_look = False
    for waiting in cluster.queue.gangs(cluster.now_s):
        job = cluster.jobs[waiting.job]
        if not _has_room(cluster, job, waiting.gpus + waiting.ahead, first=waiting.first):
            continue
        assert job.gang is not None
        if (hosts := gangs.choose_places(cluster, job.gang)) is not None:
            delay_s, first = cluster.queue.start(waiting.job, cluster.now_s)
            dispatch_gang(cluster, job.gang, hosts, (1.0, delay_s) if first else None)


def _has_room(cluster: Cluster, job: JobState, gpus: int, *, first: bool) -> bool:
    """Whether so many GPUs of volunteers that fit the job are idle; a first start leaves the spare ones, if there are so many."""
    fitting = [host for host in cluster.volunteers if cluster.fits(job, host)]
    spare = cluster.settings.spare_gpus if first else 0
    needed = max(gpus, min(gpus + spare, sum(host.spec.gpus for host in fitting)))
    return sum(host.free_gpus for host in fitting if host.usable) >= needed


def serve_waiting(cluster: Cluster) -> None:
    """Use offers that stand because no job could be brought to them when they were made: all bandwidth was reserved."""
    while (taken := cluster.queue.serve(cluster.now_s)) is not None:
        _take_offer(cluster, taken)


def expire_offers(cluster: Cluster) -> None:
    """Take offers whose time is over from the queue; their GPUs stay destinations for migrations."""
    for number in cluster.queue.expire(cluster.now_s):
        _lapsed(cluster, number)


def send_off_waiting(cluster: Cluster) -> None:
    """Jobs that the queue lets wait no longer: to on-demand, at cost k, their wait counted (the gap's age, or theirs)."""
    for left in cluster.queue.renege(cluster.now_s):
        redirect(cluster, cluster.jobs[left.job], len(cluster.queue), left.delay_s)


def choose_offer(cluster: Cluster, job: SpotJob, offers: Sequence[Offer]) -> int | None:
    """P2 among the hosts that stand ready: where the job, or its checkpoint, is best off."""
    state = cluster.jobs[job.key]
    hosts = {offer.offer_id: cluster.offers[offer.offer_id] for offer in offers}
    standing = set(hosts.values())
    host = _choose_host(cluster, state, standing & cluster.fit_hosts(state) or standing)
    return min((number for number, name in hosts.items() if name == host), default=None)


def _take_offer(cluster: Cluster, taken: Dispatch) -> None:
    host = cluster.hosts[cluster.offers.pop(taken.offer_id)]
    host.offered.discard(taken.offer_id)
    dispatch(cluster, cluster.jobs[taken.job], host, (1.0, taken.delay_s) if taken.first else None)


def _lapsed(cluster: Cluster, number: int) -> None:
    host = cluster.hosts[cluster.offers.pop(number)]
    host.offered.discard(number)
    cluster.record(facts.OfferLapsed(host.name))


def _spot_job(job: JobState) -> SpotJob:
    return SpotJob(job.name, job.spec.memory_bytes, job.spec.min_capability, job.spec.ranks)


def to_on_demand(cluster: Cluster, job: JobState) -> None:
    """The on-demand host where its turn is on a GPU that is kept for it, or the emptiest that fits, or the backlog. A gang takes
    slots of as few hosts as hold it; in the backlog nothing overtakes it but a job for which a GPU is kept."""
    fitting = slots(cluster, job)
    is_kept = bool(fitting) and fitting[0].name == turn_on(cluster, job)
    held_up = bool(cluster.gangs) and any(cluster.jobs[name].gang is not None for name in cluster.backlog)
    if not is_kept and (held_up or sum(host.open_gpus for host in fitting) < job.spec.ranks):
        cluster.backlog.append(job.name)
        for rank in job.all_ranks:
            cluster.record(facts.JobWaits(rank.name, "no on-demand host is ready for it"))
        return
    first = (cluster.settings.on_demand_cost, job.waited_s) if job.attempt == 0 else None
    if job.gang is None:
        host = fitting[0]
        dispatch_from(cluster, job, host, job_deadlines.resumes_from(cluster, job, host), first)
        return
    emptiest = sorted(fitting, key=lambda h: (-h.open_gpus, h.name))
    names = [host.name for host in emptiest for _ in range(host.open_gpus)]
    dispatch_gang(cluster, job.gang, names[: job.spec.ranks], first)


def interrupt(cluster: Cluster, job: JobState, cause: str) -> None:
    """The attempt is dead for certain: resume from the freshest checkpoint, elsewhere or at the head of the queue.

    GPUs that become free by it are offered to others only after all jobs that the event interrupts. A job that its user cancelled
    is not resumed. With a rank its gang ends, and comes back once no rank of it may be alive.
    """
    if job.phase is Phase.CANCELLING:
        cancelled(cluster, job, "gone")
        return
    replica, home = replica_of(cluster, job), job.host or ""
    _stop(cluster, job, cause)
    if job.gang is None:
        _come_back(cluster, job, home, replica)
    else:
        end_gang(cluster, job.gang, cause)


def end_gang(cluster: Cluster, gang: Gang, cause: str) -> None:
    """The attempt of all ranks ends, for this cause; they come back when none of them can be alive any more."""
    gangs.end(cluster, gang, cause)
    for rank in gang.ranks:
        if rank.phase is Phase.FETCHING or (rank.name in gang.done and rank.host is not None):
            _stop(cluster, rank, gang.ending)
    if all(rank.phase is Phase.WAITING for rank in gang.ranks):
        _come_back(cluster, gang.ranks[0], "", None)


def _stop(cluster: Cluster, job: JobState, cause: str) -> None:
    """Drop whatever there is of the attempt."""
    cluster.record(facts.JobStopped(job.name, job.attempt, job.host or "", cause, job.step))
    close_flows(cluster, job=job.name, tell=True)
    if job.stopped_at_s is None:
        job.stopped_at_s = cluster.now_s
    job.stopped_cause = cause
    release(cluster, job)
    job.landing, job.degraded, job.standby = None, False, None
    cluster.advance(job, "interrupted")


def _come_back(cluster: Cluster, job: JobState, home: str, replica: str | None) -> None:
    """Go on with its replica; or have it wait, for its host or until it may start again; or resume it at once."""
    checkpoint = cluster.freshest(job)
    wait_s = 0.0 if job.on_demand else cluster.policy.requeue_wait_s
    # after a second start that failed, and then twice as long each time: what is the matter with its host, its file system, its
    # GPUs may pass
    failed = max(len(rank.failed_at) for rank in job.all_ranks)
    if failed > 1:
        wait_s = max(wait_s, cluster.settings.control_period_s * 2.0 ** (failed - 2))
    if replica and checkpoint and replica in checkpoint.holders and cluster.hosts[replica].usable:
        dispatch(cluster, job, cluster.hosts[replica])
    elif cluster.policy.stays and any(home in known.holders for known in job.checkpoints.values()):
        cluster.homes[job.name] = home
        cluster.record(facts.JobWaits(job.name, f"its checkpoints are on {home}, which its owner has"))
    elif wait_s > 0.0:
        cluster.requeued[job.name] = cluster.now_s + wait_s
        for rank in job.all_ranks:
            cluster.record(facts.JobWaits(rank.name, f"requeued, and may start again in {wait_s:g} s"))
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
    """Where P2 likes best, of hosts where it has not just failed to start if it can be; nowhere: to the head of the queue."""
    if job.on_demand:
        to_on_demand(cluster, job)
    elif job.gang is not None:
        if (hosts := gangs.choose_places(cluster, job.gang)) is not None:
            dispatch_gang(cluster, job.gang, hosts)
            return
        cluster.queue.requeue_at_head(_spot_job(job), cluster.now_s)
        for rank in job.all_ranks:
            cluster.record(facts.JobWaits(rank.name, f"no {job.spec.ranks} GPUs are idle at once"))
    else:
        fit, failed = cluster.fit_hosts(job), {*job.failed_at, job.failed_on} - {""}
        chosen = _choose_host(cluster, job, fit - failed) if failed else None
        if (chosen := chosen or _choose_host(cluster, job, fit)) is not None:
            dispatch(cluster, job, cluster.hosts[chosen])
        elif isinstance(answer := cluster.queue.requeue_at_head(_spot_job(job), cluster.now_s), Dispatch):
            _take_offer(cluster, answer)
        else:
            cluster.record(facts.JobWaits(job.name, "no host is free for it"))


def _choose_host(cluster: Cluster, job: JobState, among: Set[str]) -> str | None:
    """P2's host for the job and its freshest checkpoint, if it has one."""
    checkpoint = cluster.freshest(job)
    sources = cluster.holders(checkpoint) if checkpoint else []
    wanted = request(cluster, job, None, job.spec.payload_bytes if checkpoint else 0.0, None)
    free = residual(cluster, cluster.now_s, reserved_rate)
    found = candidates(cluster, wanted, sources, free, cluster.now_s, among=among)
    choice = cluster.policy.select(wanted, found, draw=cluster.draw())
    if cluster.witness is not None:
        cluster.witness.chose_host("host", job, wanted, found, choice)
    return None if isinstance(choice, NoDestination) else choice.host
