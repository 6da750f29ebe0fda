"""Jobs onto hosts and off them: spot offers, on-demand, interruption and resumption.

A job is resumed from the completed checkpoint with the most work in it that somebody can still send. If its new host does not
hold that checkpoint, it is fetched first.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from controller.core.lifecycle.candidates import (
    candidates,
    promised,
    request,
    residual,
)
from controller.core.lifecycle.grants import close_flows, open_flow
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import (
    Checkpoint,
    CheckpointFlow,
    HostState,
    JobState,
)
from controller.core.placement.select import NoDestination
from controller.core.queueing.queue import (
    Dispatch,
    Lapsed,
    Offer,
    Queued,
    SpotJob,
    Standing,
)
from testbed.bounds import LARGEST_SEQUENCE
from testbed.messages import Accepted, Forget, JobSpec, Rejected, StartJob
from topologies.spec import Role, TrafficClass

EVERYTHING = LARGEST_SEQUENCE + 1  # above every sequence: Forget all of a job

# times what it should take: a word that is later than that is asked for
PATIENCE = 10.0

# ---------------------------------------------------------------- arrivals and offers


def submit(cluster: Cluster, event: ev.JobSubmitted) -> bool:
    """Whether this is a new job that can be run. Then paper B chooses: an offer that stands, the queue, or on-demand."""
    spec = event.job
    known = cluster.jobs.get(spec.name)
    if known is not None and known.spec == spec:  # said again: the first answer was not heard
        cluster.outbox.append(do.Answer(event.operator, Accepted(spec.name)))
        return False
    refusal = "another job of this name was submitted before" if known is not None else _unfit(cluster, spec)
    if refusal:
        cluster.outbox.append(do.Answer(event.operator, Rejected(spec.name, refusal)))
        return False
    job = cluster.jobs[spec.name] = JobState(spec, cluster.now_s)
    cluster.record(facts.JobSubmitted(spec.name, spec.steps, spec.step_s, spec.payload_bytes))
    cluster.outbox.append(do.Answer(event.operator, Accepted(spec.name)))
    answer = cluster.queue.submit(_spot_job(job), cluster.now_s, event.draw)
    level = cluster.queue.controller.level
    if isinstance(answer, Dispatch):
        _take_offer(cluster, answer)
    elif isinstance(answer, Queued):
        cluster.record(facts.JobQueued(job.name, answer.ahead, level))
    else:
        job.on_demand = True
        cluster.record(facts.JobRedirected(job.name, answer.ahead, level))
        _to_on_demand(cluster, job)
    return True


def _unfit(cluster: Cluster, spec: JobSpec) -> str:
    """Why no host of some role can ever run the job; empty if each role has one that can."""
    probe = JobState(spec, 0.0)
    for role in (Role.VOLUNTEER, Role.ON_DEMAND):
        hosts = [host for host in cluster.hosts.values() if host.spec.role is role]
        if hosts and not any(cluster.fits(probe, host) for host in hosts):
            return (
                f"no {role.value} host has a GPU with {spec.memory_bytes:.4g} bytes of memory "
                f"and compute capability {spec.min_capability:g}"
            )
    return ""


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
        waiting, cluster.backlog = cluster.backlog, []
        for name in waiting:
            _to_on_demand(cluster, cluster.jobs[name])
        return
    volunteers = [h for h in cluster.hosts.values() if h.usable and h.is_volunteer]
    if sum(h.free_gpus - len(h.offered) for h in volunteers) <= cluster.settings.spare_gpus:
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
    """Offer all GPUs that have become idle."""
    while cluster.freed:
        gpu_freed(cluster, cluster.hosts[cluster.freed.pop(0)])


def serve_waiting(cluster: Cluster) -> None:
    """Use offers that stand because no job could be brought to them when they were made: all bandwidth was promised."""
    while (taken := cluster.queue.serve(cluster.now_s)) is not None:
        _take_offer(cluster, taken)


def expire_offers(cluster: Cluster) -> None:
    """Take offers whose time is over from the queue; their GPUs stay destinations for migrations."""
    for number in cluster.queue.expire(cluster.now_s):
        _lapsed(cluster, number)


def send_off_waiting(cluster: Cluster) -> None:
    """Jobs that the queue lets wait no longer: to on-demand, at cost k, their wait counted (the gap's age, or theirs)."""
    for left in cluster.queue.renege(cluster.now_s):
        job = cluster.jobs[left.job]
        job.on_demand, job.waited_s = True, left.delay_s
        level, ahead = cluster.queue.controller.level, len(cluster.queue)
        cluster.record(facts.JobRedirected(job.name, ahead, level, left.delay_s))
        _to_on_demand(cluster, job)


def withdraw_offers(cluster: Cluster, host: HostState, keep: int = 0) -> None:
    """The host has only `keep` GPUs left to offer."""
    for number in sorted(host.offered)[keep:]:
        cluster.queue.withdraw_offer(number)
        host.offered.discard(number)
        cluster.offers.pop(number, None)


def reserve(cluster: Cluster, job: JobState, host: HostState) -> None:
    """Hold a GPU for the job; an offer that it backed is withdrawn."""
    host.jobs.add(job.name)
    withdraw_offers(cluster, host, keep=max(0, host.free_gpus))


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
    return SpotJob(job.name, job.spec.memory_bytes, job.spec.min_capability)


def _to_on_demand(cluster: Cluster, job: JobState) -> None:
    """The emptiest on-demand host that fits, or the backlog."""
    hosts = [h for h in cluster.hosts.values() if not h.is_volunteer and h.usable and h.free_gpus > 0]
    fitting = [h for h in hosts if cluster.fits(job, h)]
    if not fitting:
        cluster.backlog.append(job.name)
        cluster.record(facts.JobWaits(job.name, "no on-demand host is ready for it"))
        return
    host = min(fitting, key=lambda h: (len(h.jobs) / h.spec.gpus, h.name))
    dispatch(
        cluster, job, host, (cluster.settings.on_demand_cost, job.waited_s) if job.attempt == 0 else None
    )


# ---------------------------------------------------------------- an attempt


def dispatch(
    cluster: Cluster, job: JobState, host: HostState, first: tuple[float, float] | None = None
) -> None:
    """Give a waiting job to a host, with its freshest checkpoint, which is fetched if the host does not hold it.

    `first` is (cost, delay in s) if paper B counts this dispatch.
    """
    checkpoint = cluster.freshest(job)
    begin_attempt(cluster, job, host, checkpoint, first)
    if checkpoint is None or host.name in checkpoint.holders:
        cluster.advance(job, "offered")
        start(cluster, job, host)
        return
    cluster.advance(job, "fetch")
    free = residual(cluster, cluster.now_s, promised)
    reach = {
        holder: min(free[link] for link in cluster.routes.route(holder, host.name))
        for holder in cluster.holders(checkpoint)
    }
    sender = max(reach, key=lambda holder: (reach[holder], holder))
    sequence = checkpoint.stored.sequence
    flow = CheckpointFlow(job.name, sender, host.name, TrafficClass.PLANNED, sequence=sequence)
    open_flow(cluster, flow)
    cluster.orders[flow.key] = None


def begin_attempt(
    cluster: Cluster,
    job: JobState,
    host: HostState,
    checkpoint: Checkpoint | None,
    first: tuple[float, float] | None = None,
) -> None:
    """Reserve the GPU, number the attempt, and account for the work that will be done again."""
    restore_step = checkpoint.stored.step if checkpoint else 0
    again_s = (job.step - restore_step) * job.spec.step_s
    job.attempt += 1
    if job.stopped_cause and again_s > 0.0:
        cause = job.stopped_cause
        cluster.record(facts.WorkLost(job.name, job.attempt, cause, job.step, restore_step, again_s))
    if job.stopped_cause == "superseded" and again_s < 0.0:  # what was given up need not be computed again
        cluster.record(facts.WorkTakenUp(job.name, job.attempt, job.step, restore_step, -again_s))
    job.host, job.restore, job.step, job.final_sequence = host.name, checkpoint, restore_step, None
    job.last_checkpoint_s, job.interval_s, job.sent_bytes = None, None, None
    cluster.timers += 1
    job.timer = cluster.timers
    job.traces.add(host.name)
    job.keepers.add(host.name)
    reserve(cluster, job, host)
    cost, delay_s = first or (None, None)
    sequence = checkpoint.stored.sequence if checkpoint else None
    cluster.record(
        facts.JobDispatched(job.name, job.attempt, host.name, sequence, restore_step, cost, delay_s)
    )


def start_s(cluster: Cluster, job: JobState) -> float:
    """What it takes to start a job, its state read as slowly as it is written."""
    return cluster.settings.restart_s + cluster.settings.writes_s(job.spec.payload_bytes)


def start(cluster: Cluster, job: JobState, host: HostState) -> None:
    """Tell the host to run the attempt, and expect its word."""
    cluster.expect_word(job, PATIENCE * start_s(cluster, job))
    restore = job.restore.stored if job.restore else None
    cluster.tell(host.name, StartJob(job.spec, job.attempt, restore, host.closures))


def interrupt(cluster: Cluster, job: JobState, cause: str) -> None:
    """The attempt is dead for certain: resume from the freshest checkpoint, elsewhere or at the head of the queue.

    GPUs that become free by it are offered to others only after all jobs that the event interrupts.
    """
    cluster.record(facts.JobStopped(job.name, job.attempt, job.host or "", cause, job.step))
    close_flows(cluster, job=job.name, tell=True)
    if job.stopped_at_s is None:
        job.stopped_at_s = cluster.now_s
    job.stopped_cause = cause
    replica, home = replica_of(cluster, job), job.host or ""
    release(cluster, job)
    job.landing, job.degraded, job.standby = None, False, None
    cluster.advance(job, "interrupted")
    _come_back(cluster, job, home, replica)


def release(cluster: Cluster, job: JobState) -> None:
    """The job is on no host and has nothing reserved on any."""
    names = {job.host, job.move.destination if job.move else None, replica_of(cluster, job)}
    for name in sorted(name for name in names if name is not None):
        cluster.free_gpu(job, cluster.hosts[name])
    job.host, job.move = None, None


def drop_move(cluster: Cluster, job: JobState) -> None:
    """Give back the GPU that a migration had reserved."""
    if job.move is not None:
        cluster.free_gpu(job, cluster.hosts[job.move.destination])
        job.move = None


def replica_of(cluster: Cluster, job: JobState) -> str | None:
    """The standby, if a GPU is held for the job there: it computes too."""
    held = job.standby is not None and job.name in cluster.hosts[job.standby].jobs
    return job.standby if held and job.standby != job.host else None


def _come_back(cluster: Cluster, job: JobState, home: str, replica: str | None) -> None:
    """Its replica goes on; or it waits, for its host or until it may start again; or it is resumed at once."""
    checkpoint, wait_s = cluster.freshest(job), cluster.policy.requeue_wait_s
    if replica and checkpoint and replica in checkpoint.holders and cluster.hosts[replica].usable:
        dispatch(cluster, job, cluster.hosts[replica])
    elif cluster.policy.stays and any(home in known.holders for known in job.checkpoints.values()):
        cluster.homes[job.name] = home
        cluster.record(facts.JobWaits(job.name, f"its checkpoints are on {home}, which its owner has"))
    elif wait_s > 0.0 and not job.on_demand:
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
    """Where P2 likes best; nowhere: to the head of the queue."""
    if job.on_demand:
        _to_on_demand(cluster, job)
    elif (chosen := _choose_host(cluster, job, cluster.fit_hosts(job))) is not None:
        dispatch(cluster, job, cluster.hosts[chosen])
    elif isinstance(answer := cluster.queue.requeue_at_head(_spot_job(job), cluster.now_s), Dispatch):
        _take_offer(cluster, answer)
    else:
        cluster.record(facts.JobWaits(job.name, "no host is free for it"))


def over(cluster: Cluster, job: JobState, trigger: str) -> None:
    """The job is finished or has failed: nothing of it remains anywhere."""
    cluster.advance(job, trigger)
    close_flows(cluster, job=job.name, tell=True)
    for name in sorted(job.traces | ({job.standby} if job.standby else set())):
        cluster.tell(name, Forget(job.name, EVERYTHING))
    release(cluster, job)
    job.standby = None


def _choose_host(cluster: Cluster, job: JobState, among: Set[str]) -> str | None:
    """P2's host for the job and its freshest checkpoint, if it has one."""
    checkpoint = cluster.freshest(job)
    sources = cluster.holders(checkpoint) if checkpoint else []
    wanted = request(cluster, job, None, job.spec.payload_bytes if checkpoint else 0.0, None)
    free = residual(cluster, cluster.now_s, promised)
    found = candidates(cluster, wanted, sources, free, cluster.now_s, among=among)
    choice = cluster.policy.select(wanted, found, draw=cluster.draw())
    return None if isinstance(choice, NoDestination) else choice.host
