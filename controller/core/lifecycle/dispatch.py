"""Jobs onto hosts and off them: spot offers, on-demand, interruption and resumption.

A job is resumed from the completed checkpoint with the most work in it that somebody can still send. If its new host does not
hold that checkpoint, it is fetched first.
"""

from __future__ import annotations

from collections.abc import Set

from controller.core.lifecycle.candidates import (
    candidates,
    promised,
    request,
    residual,
)
from controller.core.lifecycle.grants import close_flows, open_flow, settle
from controller.core.model import effects as do
from controller.core.model import facts
from controller.core.model.cluster import Cluster, record
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
    OnDemand,
    Queued,
    SpotJob,
    Standing,
)
from testbed.bounds import LARGEST_SEQUENCE
from testbed.messages import Forget, SendStored, StartJob
from topologies.spec import TrafficClass

EVERYTHING = LARGEST_SEQUENCE + 1  # above every sequence: Forget all of a job

# times what it should take: a word that is later than that is asked for
PATIENCE = 10.0

# ---------------------------------------------------------------- arrivals and offers


def submit(cluster: Cluster, job: JobState, draw: float, now_s: float) -> list[do.Effect]:
    """Paper B's choice for a new job: an offer that stands, the queue, or on-demand."""
    answer = cluster.queue.submit(_spot_job(job), now_s, draw)
    level = cluster.queue.controller.level
    if isinstance(answer, Dispatch):
        return _take_offer(cluster, answer, now_s)
    if isinstance(answer, Queued):
        return [record(facts.JobQueued(job.name, answer.ahead, level))]
    assert isinstance(answer, OnDemand)
    job.on_demand = True
    return [record(facts.JobRedirected(job.name, answer.ahead, level)), *_to_on_demand(cluster, job, now_s)]


def gpu_freed(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """A GPU has become idle: a spot offer, unless it has to be kept as a spare; or a slot for the backlog."""
    if not host.usable or host.free_gpus <= len(host.offered):
        return []
    if (returns := _at_home(cluster, host)) is not None:
        del cluster.homes[returns.name]
        return dispatch(cluster, returns, host, cluster.freshest(returns), now_s)
    if not host.is_volunteer:
        return _serve_backlog(cluster, now_s)
    if _spares(cluster) <= cluster.settings.spare_gpus:
        return []
    cluster.offers_made += 1
    number = cluster.offers_made
    gpu = cluster.campus.gpu_by_name[host.spec.gpu_model or ""]
    cluster.offers[number] = host.name
    answer = cluster.queue.offer(number, now_s, gpu.memory_bytes, gpu.compute_capability)
    if isinstance(answer, Dispatch):
        return _take_offer(cluster, answer, now_s)
    if isinstance(answer, Standing):
        host.offered.add(number)
        return []
    assert isinstance(answer, Lapsed)
    return _lapsed(cluster, number)


def serve_waiting(cluster: Cluster, now_s: float) -> list[do.Effect]:
    """Offers may stand that nobody could be brought to when they were made: all bandwidth was promised."""
    effects: list[do.Effect] = []
    while (taken := cluster.queue.serve(now_s)) is not None:
        effects += _take_offer(cluster, taken, now_s)
    return effects


def expire_offers(cluster: Cluster, now_s: float) -> list[do.Effect]:
    """Offers whose time is over are gone for the queue; the GPU stays a destination for migrations."""
    return [effect for number in cluster.queue.expire(now_s) for effect in _lapsed(cluster, number)]


def send_off_waiting(cluster: Cluster, now_s: float) -> list[do.Effect]:
    """Jobs that the queue lets wait no longer: to on-demand, at cost k, their wait counted (the gap's age, or theirs)."""
    effects: list[do.Effect] = []
    for left in cluster.queue.renege(now_s):
        job = cluster.jobs[left.job]
        job.on_demand, job.waited_s = True, left.delay_s
        level, ahead = cluster.queue.controller.level, len(cluster.queue)
        effects += [record(facts.JobRedirected(job.name, ahead, level, left.delay_s))]
        effects += _to_on_demand(cluster, job, now_s)
    return effects


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


def choose_offer(cluster: Cluster, job: SpotJob, offers: dict[int, str]) -> int | None:
    """P2 among the hosts that stand ready: where the job, or its checkpoint, is best off."""
    state = cluster.jobs[job.key]
    standing = set(offers.values())
    among = standing & cluster.fit_hosts(state) or standing
    host = _choose_host(cluster, state, cluster.freshest(state), among)
    return min((number for number, name in offers.items() if name == host), default=None)


def _take_offer(cluster: Cluster, taken: Dispatch, now_s: float) -> list[do.Effect]:
    job, host = cluster.jobs[taken.job], cluster.hosts[cluster.offers.pop(taken.offer_id)]
    host.offered.discard(taken.offer_id)
    cost = (1.0, taken.delay_s) if taken.first else None
    return dispatch(cluster, job, host, cluster.freshest(job), now_s, cost)


def _lapsed(cluster: Cluster, number: int) -> list[do.Effect]:
    host = cluster.hosts[cluster.offers.pop(number)]
    host.offered.discard(number)
    return [record(facts.OfferLapsed(host.name))]


def _spares(cluster: Cluster) -> int:
    """GPUs that are free and not offered."""
    return sum(h.free_gpus - len(h.offered) for h in cluster.hosts.values() if h.usable and h.is_volunteer)


def _spot_job(job: JobState) -> SpotJob:
    return SpotJob(job.name, job.spec.memory_bytes, job.spec.min_capability)


# ---------------------------------------------------------------- on-demand


def _to_on_demand(cluster: Cluster, job: JobState, now_s: float) -> list[do.Effect]:
    hosts = [h for h in cluster.hosts.values() if not h.is_volunteer and h.usable and h.free_gpus > 0]
    fitting = [h for h in hosts if cluster.fits(job, h)]
    if not fitting:
        cluster.backlog.append(job.name)
        return [record(facts.JobWaits(job.name, "no on-demand host is ready for it"))]
    host = min(fitting, key=lambda h: (len(h.jobs) / h.spec.gpus, h.name))
    cost = (cluster.settings.on_demand_cost, job.waited_s) if job.attempt == 0 else None
    return dispatch(cluster, job, host, cluster.freshest(job), now_s, cost)


def _serve_backlog(cluster: Cluster, now_s: float) -> list[do.Effect]:
    waiting, cluster.backlog = cluster.backlog, []
    return [effect for name in waiting for effect in _to_on_demand(cluster, cluster.jobs[name], now_s)]


# ---------------------------------------------------------------- an attempt


def dispatch(
    cluster: Cluster,
    job: JobState,
    host: HostState,
    checkpoint: Checkpoint | None,
    now_s: float,
    first: tuple[float, float] | None = None,
) -> list[do.Effect]:
    """Give a waiting job to a host; `first` is (cost, delay in s) if paper B counts this dispatch."""
    effects = begin_attempt(cluster, job, host, checkpoint, first)
    if checkpoint is None or host.name in checkpoint.holders:
        job.to("offered")
        cluster.expect_word(job, PATIENCE * start_s(cluster, job))
        return [*effects, start(job, host)]
    job.to("fetch")
    sender = _best_holder(cluster, checkpoint, host, now_s)
    sequence = checkpoint.stored.sequence
    flow = CheckpointFlow(job.name, sender, host.name, TrafficClass.PLANNED, sequence=sequence)
    open_flow(cluster, flow)
    effects += settle(cluster)
    rate = max(flow.rate_bytes_per_s, 1.0)
    cluster.expect_word(job, PATIENCE * (start_s(cluster, job) + job.spec.payload_bytes / rate))
    send = SendStored(job.name, sequence, cluster.endpoint(flow), flow.rate_bytes_per_s)
    return [*effects, do.Tell(sender, send)]


def begin_attempt(
    cluster: Cluster,
    job: JobState,
    host: HostState,
    checkpoint: Checkpoint | None,
    first: tuple[float, float] | None = None,
) -> list[do.Effect]:
    """Reserve the GPU, number the attempt, and account for the work that will be done again."""
    restore_step = checkpoint.stored.step if checkpoint else 0
    lost = [*_work_lost(job, restore_step), *_taken_up(job, restore_step)]
    job.attempt += 1
    job.host, job.restore, job.step, job.final_sequence = host.name, checkpoint, restore_step, None
    job.last_checkpoint_s, job.interval_s, job.sent_bytes = None, None, None
    cluster.timers += 1
    job.timer = cluster.timers
    job.traces.add(host.name)
    job.keepers.add(host.name)
    reserve(cluster, job, host)
    cost, delay_s = first or (None, None)
    sequence = checkpoint.stored.sequence if checkpoint else None
    dispatched = facts.JobDispatched(job.name, job.attempt, host.name, sequence, restore_step, cost, delay_s)
    return [*lost, record(dispatched)]


def _work_lost(job: JobState, restore_step: int) -> list[do.Effect]:
    """What will be computed again by the next attempt."""
    if not job.stopped_cause or job.step <= restore_step:
        return []
    again_s = (job.step - restore_step) * job.spec.step_s
    return [
        record(facts.WorkLost(job.name, job.attempt + 1, job.stopped_cause, job.step, restore_step, again_s))
    ]


def _taken_up(job: JobState, restore_step: int) -> list[do.Effect]:
    """What need not be computed again, though it was given up."""
    if job.stopped_cause != "superseded" or job.step >= restore_step:
        return []
    saved_s = (restore_step - job.step) * job.spec.step_s
    return [record(facts.WorkTakenUp(job.name, job.attempt + 1, job.step, restore_step, saved_s))]


def start_s(cluster: Cluster, job: JobState) -> float:
    """What it takes to start a job, its state read as slowly as it is written."""
    return cluster.settings.restart_s + cluster.settings.writes_s(job.spec.payload_bytes)


def start(job: JobState, host: HostState) -> do.Effect:
    """Tell the host to run the attempt."""
    restore = job.restore.stored if job.restore else None
    return do.Tell(host.name, StartJob(job.spec, job.attempt, restore, host.closures))


def interrupt(cluster: Cluster, job: JobState, cause: str, now_s: float) -> list[do.Effect]:
    """The attempt is dead for certain: resume from the freshest checkpoint, elsewhere or at the head of the queue.

    GPUs that become free by it are offered to others only after that.
    """
    stopped = facts.JobStopped(job.name, job.attempt, job.host or "", cause, job.step)
    effects: list[do.Effect] = [record(stopped), *close_flows(cluster, job=job.name, tell=True)]
    if job.stopped_at_s is None:
        job.stopped_at_s = now_s
    job.stopped_cause = cause
    replica, home = replica_of(cluster, job), job.host or ""
    freed = release(cluster, job)
    job.landing, job.degraded, job.standby = None, False, None
    job.to("interrupted")
    effects += _come_back(cluster, job, home, replica, now_s)
    return [*effects, *(effect for host in freed for effect in gpu_freed(cluster, host, now_s))]


def release(cluster: Cluster, job: JobState) -> list[HostState]:
    """The job is on no host and has nothing reserved on any; the hosts that this leaves a GPU to."""
    names = {job.host, job.move.destination if job.move else None, replica_of(cluster, job)} - {None}
    hosts = [cluster.hosts[name] for name in sorted(name for name in names if name is not None)]
    for host in hosts:
        host.jobs.discard(job.name)
    job.host, job.move = None, None
    return hosts


def drop_move(cluster: Cluster, job: JobState, now_s: float) -> list[do.Effect]:
    """Give back the GPU that a migration had reserved."""
    if job.move is None:
        return []
    destination = cluster.hosts[job.move.destination]
    job.move = None
    destination.jobs.discard(job.name)
    return gpu_freed(cluster, destination, now_s)


def replica_of(cluster: Cluster, job: JobState) -> str | None:
    """The standby, if a GPU is held for the job there: it computes too."""
    held = job.standby is not None and job.name in cluster.hosts[job.standby].jobs
    return job.standby if held and job.standby != job.host else None


def _at_home(cluster: Cluster, host: HostState) -> JobState | None:
    """Who waits for this host, the first interrupted first."""
    return next((cluster.jobs[name] for name, home in cluster.homes.items() if home == host.name), None)


def _come_back(
    cluster: Cluster, job: JobState, home: str, replica: str | None, now_s: float
) -> list[do.Effect]:
    """Its replica goes on; or it waits, for its host or until it may start again; or it is resumed at once."""
    checkpoint = cluster.freshest(job)
    if replica and checkpoint and replica in checkpoint.holders and cluster.hosts[replica].usable:
        return dispatch(cluster, job, cluster.hosts[replica], checkpoint, now_s)
    if cluster.policy.stays and any(home in known.holders for known in job.checkpoints.values()):
        cluster.homes[job.name] = home
        return [record(facts.JobWaits(job.name, f"its checkpoints are on {home}, which its owner has"))]
    wait_s = cluster.policy.requeue_wait_s
    if wait_s > 0.0 and not job.on_demand:
        cluster.requeued[job.name] = now_s + wait_s
        return [record(facts.JobWaits(job.name, f"requeued, and may start again in {wait_s:g} s"))]
    return resume(cluster, job, now_s)


def resume_requeued(cluster: Cluster, now_s: float) -> list[do.Effect]:
    """Those whose wait is over, in the order of their interruption."""
    if not cluster.requeued:
        return []
    due = [name for name, due_s in cluster.requeued.items() if due_s <= now_s]
    for name in due:
        del cluster.requeued[name]
    return [effect for name in due for effect in resume(cluster, cluster.jobs[name], now_s)]


def resume(cluster: Cluster, job: JobState, now_s: float) -> list[do.Effect]:
    """Where P2 likes best; nowhere: to the head of the queue."""
    if job.on_demand:
        return _to_on_demand(cluster, job, now_s)
    checkpoint = cluster.freshest(job)
    chosen = _choose_host(cluster, job, checkpoint, cluster.fit_hosts(job))
    if chosen is not None:
        return dispatch(cluster, job, cluster.hosts[chosen], checkpoint, now_s)
    answer = cluster.queue.requeue_at_head(_spot_job(job), now_s)
    if isinstance(answer, Dispatch):
        return _take_offer(cluster, answer, now_s)
    return [record(facts.JobWaits(job.name, "no host is free for it"))]


def over(cluster: Cluster, job: JobState, trigger: str, now_s: float) -> list[do.Effect]:
    """The job is finished or has failed: nothing of it remains anywhere."""
    job.to(trigger)
    effects = close_flows(cluster, job=job.name, tell=True)
    involved = sorted(job.traces | ({job.standby} if job.standby else set()))
    effects += [do.Tell(name, Forget(job.name, EVERYTHING)) for name in involved]
    freed = release(cluster, job)
    job.standby = None
    return [*effects, *(effect for host in freed for effect in gpu_freed(cluster, host, now_s))]


def _choose_host(
    cluster: Cluster, job: JobState, checkpoint: Checkpoint | None, among: Set[str]
) -> str | None:
    sources = cluster.holders(checkpoint) if checkpoint else []
    wanted = request(cluster, job, None, job.spec.payload_bytes if checkpoint else 0.0, None)
    free = residual(cluster, cluster.now_s, promised)
    found = candidates(cluster, wanted, sources, free, cluster.now_s, among=among)
    choice = cluster.policy.select(wanted, found, draw=cluster.draw())
    return None if isinstance(choice, NoDestination) else choice.host


def _best_holder(cluster: Cluster, checkpoint: Checkpoint, host: HostState, now_s: float) -> str:
    free = residual(cluster, now_s, promised)

    def bandwidth(holder: str) -> float:
        return min(free[link] for link in cluster.routes.route(holder, host.name))

    return max(cluster.holders(checkpoint), key=lambda holder: (bandwidth(holder), holder))
