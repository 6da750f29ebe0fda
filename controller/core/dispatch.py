"""Jobs onto hosts and off them: spot offers, on-demand, interruption and resumption.

A job is resumed from the completed checkpoint with the most work in it that somebody can still send. If its new host does not
hold that checkpoint, it is fetched first.
"""

from __future__ import annotations

from collections.abc import Set

from controller.core import effects as do
from controller.core import facts
from controller.core.candidates import candidates, promised, request, residual
from controller.core.grants import close_flows, open_flow, settle
from controller.core.placement import NoDestination
from controller.core.queue import Dispatch, Lapsed, OnDemand, Queued, SpotJob, Standing
from controller.core.state import Checkpoint, Flow, HostState, JobState
from controller.core.world import World, record
from testbed.bounds import LARGEST_SEQUENCE
from testbed.messages import Forget, SendStored, StartJob
from topologies.spec import TrafficClass

EVERYTHING = LARGEST_SEQUENCE + 1  # above every sequence: Forget all of a job

# ---------------------------------------------------------------- arrivals and offers


def submit(world: World, job: JobState, draw: float, now_s: float) -> list[do.Effect]:
    """Paper B's choice for a new job: an offer that stands, the queue, or on-demand."""
    answer = world.queue.submit(_spot_job(job), now_s, draw)
    level = world.queue.controller.level
    if isinstance(answer, Dispatch):
        return _take_offer(world, answer, now_s)
    if isinstance(answer, Queued):
        return [record(facts.JobQueued(job.name, answer.ahead, level))]
    assert isinstance(answer, OnDemand)
    job.on_demand = True
    return [record(facts.JobRedirected(job.name, answer.ahead, level)), *_to_on_demand(world, job, now_s)]


def gpu_freed(world: World, host: HostState, now_s: float) -> list[do.Effect]:
    """A GPU has become idle: a spot offer, unless it has to be kept as a spare; or a slot for the backlog."""
    if not host.usable or host.free_gpus <= len(host.offered):
        return []
    if (returns := _at_home(world, host)) is not None:
        del world.homes[returns.name]
        return dispatch(world, returns, host, world.freshest(returns), now_s)
    if not host.is_volunteer:
        return _serve_backlog(world, now_s)
    if _spares(world) <= world.settings.spare_gpus:
        return []
    world.offers_made += 1
    number = world.offers_made
    gpu = world.campus.gpu_by_name[host.spec.gpu_model or ""]
    world.offers[number] = host.name
    answer = world.queue.offer(number, now_s, gpu.memory_bytes, gpu.compute_capability)
    if isinstance(answer, Dispatch):
        return _take_offer(world, answer, now_s)
    if isinstance(answer, Standing):
        host.offered.add(number)
        return []
    assert isinstance(answer, Lapsed)
    return _lapsed(world, number)


def serve_waiting(world: World, now_s: float) -> list[do.Effect]:
    """Offers may stand that nobody could be brought to when they were made: all bandwidth was promised."""
    effects: list[do.Effect] = []
    while (taken := world.queue.serve(now_s)) is not None:
        effects += _take_offer(world, taken, now_s)
    return effects


def expire_offers(world: World, now_s: float) -> list[do.Effect]:
    """Offers whose time is over are gone for the queue; the GPU stays a destination for migrations."""
    return [effect for number in world.queue.expire(now_s) for effect in _lapsed(world, number)]


def send_off_waiting(world: World, now_s: float) -> list[do.Effect]:
    """Jobs that the queue lets wait no longer: to on-demand, at cost k, their wait counted (the gap's age, or theirs)."""
    effects: list[do.Effect] = []
    for left in world.queue.renege(now_s):
        job = world.jobs[left.job]
        job.on_demand, job.waited_s = True, left.delay_s
        level, ahead = world.queue.controller.level, len(world.queue)
        effects += [record(facts.JobRedirected(job.name, ahead, level, left.delay_s))]
        effects += _to_on_demand(world, job, now_s)
    return effects


def withdraw_offers(world: World, host: HostState, keep: int = 0) -> None:
    """The host has only `keep` GPUs left to offer."""
    for number in sorted(host.offered)[keep:]:
        world.queue.withdraw_offer(number)
        host.offered.discard(number)
        world.offers.pop(number, None)


def reserve(world: World, job: JobState, host: HostState) -> None:
    """Hold a GPU for the job; an offer that it backed is withdrawn."""
    host.jobs.add(job.name)
    withdraw_offers(world, host, keep=max(0, host.free_gpus))


def choose_offer(world: World, job: SpotJob, offers: dict[int, str]) -> int | None:
    """P2 among the hosts that stand ready: where the job, or its checkpoint, is best off."""
    state = world.jobs[job.key]
    standing = set(offers.values())
    among = standing & world.fit_hosts(state) or standing
    host = _choose_host(world, state, world.freshest(state), among)
    return min((number for number, name in offers.items() if name == host), default=None)


def _take_offer(world: World, taken: Dispatch, now_s: float) -> list[do.Effect]:
    job, host = world.jobs[taken.job], world.hosts[world.offers.pop(taken.offer_id)]
    host.offered.discard(taken.offer_id)
    cost = (1.0, taken.delay_s) if taken.first else None
    return dispatch(world, job, host, world.freshest(job), now_s, cost)


def _lapsed(world: World, number: int) -> list[do.Effect]:
    host = world.hosts[world.offers.pop(number)]
    host.offered.discard(number)
    return [record(facts.OfferLapsed(host.name))]


def _spares(world: World) -> int:
    """GPUs that are free and not offered."""
    return sum(h.free_gpus - len(h.offered) for h in world.hosts.values() if h.usable and h.is_volunteer)


def _spot_job(job: JobState) -> SpotJob:
    return SpotJob(job.name, job.spec.memory_bytes, job.spec.min_capability)


# ---------------------------------------------------------------- on-demand


def _to_on_demand(world: World, job: JobState, now_s: float) -> list[do.Effect]:
    hosts = [h for h in world.hosts.values() if not h.is_volunteer and h.usable and h.free_gpus > 0]
    fitting = [h for h in hosts if world.fits(job, h)]
    if not fitting:
        world.backlog.append(job.name)
        return [record(facts.JobWaits(job.name, "no on-demand host is ready for it"))]
    host = min(fitting, key=lambda h: (len(h.jobs) / h.spec.gpus, h.name))
    cost = (world.settings.on_demand_cost, job.waited_s) if job.attempt == 0 else None
    return dispatch(world, job, host, world.freshest(job), now_s, cost)


def _serve_backlog(world: World, now_s: float) -> list[do.Effect]:
    waiting, world.backlog = world.backlog, []
    return [effect for name in waiting for effect in _to_on_demand(world, world.jobs[name], now_s)]


# ---------------------------------------------------------------- an attempt


def dispatch(
    world: World,
    job: JobState,
    host: HostState,
    checkpoint: Checkpoint | None,
    now_s: float,
    first: tuple[float, float] | None = None,
) -> list[do.Effect]:
    """Give a waiting job to a host; `first` is (cost, delay in s) if paper B counts this dispatch."""
    effects = begin_attempt(world, job, host, checkpoint, first)
    if checkpoint is None or host.name in checkpoint.holders:
        job.to("offered")
        return [*effects, start(job, host)]
    job.to("fetch")
    sender = _best_holder(world, checkpoint, host, now_s)
    flow = Flow(job.name, sender, host.name, TrafficClass.PLANNED)
    open_flow(world, flow)
    effects += settle(world)
    send = SendStored(job.name, checkpoint.stored.sequence, world.endpoint(host.name), flow.rate_bytes_per_s)
    return [*effects, do.Tell(sender, send)]


def begin_attempt(
    world: World,
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
    world.timers += 1
    job.timer = world.timers
    job.traces.add(host.name)
    reserve(world, job, host)
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


def start(job: JobState, host: HostState) -> do.Effect:
    """Tell the host to run the attempt."""
    restore = job.restore.stored if job.restore else None
    return do.Tell(host.name, StartJob(job.spec, job.attempt, restore, host.closures))


def interrupt(world: World, job: JobState, cause: str, now_s: float) -> list[do.Effect]:
    """The attempt is dead for certain: resume from the freshest checkpoint, elsewhere or at the head of the queue.

    GPUs that become free by it are offered to others only after that.
    """
    stopped = facts.JobStopped(job.name, job.attempt, job.host or "", cause, job.step)
    effects: list[do.Effect] = [record(stopped), *close_flows(world, job=job.name, tell=True)]
    if job.stopped_at_s is None:
        job.stopped_at_s = now_s
    job.stopped_cause = cause
    replica, home = replica_of(world, job), job.host or ""
    freed = release(world, job)
    job.landing, job.degraded, job.standby = None, False, None
    job.to("interrupted")
    effects += _come_back(world, job, home, replica, now_s)
    return [*effects, *(effect for host in freed for effect in gpu_freed(world, host, now_s))]


def release(world: World, job: JobState) -> list[HostState]:
    """The job is on no host and has nothing reserved on any; the hosts that this leaves a GPU to."""
    names = {job.host, job.move.destination if job.move else None, replica_of(world, job)} - {None}
    hosts = [world.hosts[name] for name in sorted(name for name in names if name is not None)]
    for host in hosts:
        host.jobs.discard(job.name)
    job.host, job.move = None, None
    return hosts


def drop_move(world: World, job: JobState, now_s: float) -> list[do.Effect]:
    """Give back the GPU that a migration had reserved."""
    if job.move is None:
        return []
    destination = world.hosts[job.move.destination]
    job.move = None
    destination.jobs.discard(job.name)
    return gpu_freed(world, destination, now_s)


def replica_of(world: World, job: JobState) -> str | None:
    """The standby, if a GPU is held for the job there: it computes too."""
    held = job.standby is not None and job.name in world.hosts[job.standby].jobs
    return job.standby if held and job.standby != job.host else None


def _at_home(world: World, host: HostState) -> JobState | None:
    """Who waits for this host, the first interrupted first."""
    return next((world.jobs[name] for name, home in world.homes.items() if home == host.name), None)


def _come_back(world: World, job: JobState, home: str, replica: str | None, now_s: float) -> list[do.Effect]:
    """Its replica goes on; or it waits, for its host or until it may start again; or it is resumed at once."""
    checkpoint = world.freshest(job)
    if replica and checkpoint and replica in checkpoint.holders and world.hosts[replica].usable:
        return dispatch(world, job, world.hosts[replica], checkpoint, now_s)
    if world.policy.stays and any(home in known.holders for known in job.checkpoints.values()):
        world.homes[job.name] = home
        return [record(facts.JobWaits(job.name, f"its checkpoints are on {home}, which its owner has"))]
    wait_s = world.policy.requeue_wait_s
    if wait_s > 0.0 and not job.on_demand:
        world.requeued[job.name] = now_s + wait_s
        return [record(facts.JobWaits(job.name, f"requeued, and may start again in {wait_s:g} s"))]
    return resume(world, job, now_s)


def resume_requeued(world: World, now_s: float) -> list[do.Effect]:
    """Those whose wait is over, in the order of their interruption."""
    if not world.requeued:
        return []
    due = [name for name, due_s in world.requeued.items() if due_s <= now_s]
    for name in due:
        del world.requeued[name]
    return [effect for name in due for effect in resume(world, world.jobs[name], now_s)]


def resume(world: World, job: JobState, now_s: float) -> list[do.Effect]:
    """Where P2 likes best; nowhere: to the head of the queue."""
    if job.on_demand:
        return _to_on_demand(world, job, now_s)
    checkpoint = world.freshest(job)
    chosen = _choose_host(world, job, checkpoint, world.fit_hosts(job))
    if chosen is not None:
        return dispatch(world, job, world.hosts[chosen], checkpoint, now_s)
    answer = world.queue.requeue_at_head(_spot_job(job), now_s)
    if isinstance(answer, Dispatch):
        return _take_offer(world, answer, now_s)
    return [record(facts.JobWaits(job.name, "no host is free for it"))]


def over(world: World, job: JobState, trigger: str, now_s: float) -> list[do.Effect]:
    """The job is finished or has failed: nothing of it remains anywhere."""
    job.to(trigger)
    effects = close_flows(world, job=job.name, tell=True)
    involved = sorted(job.traces | ({job.standby} if job.standby else set()))
    effects += [do.Tell(name, Forget(job.name, EVERYTHING)) for name in involved]
    freed = release(world, job)
    job.standby = None
    return [*effects, *(effect for host in freed for effect in gpu_freed(world, host, now_s))]


def _choose_host(world: World, job: JobState, checkpoint: Checkpoint | None, among: Set[str]) -> str | None:
    sources = world.holders(checkpoint) if checkpoint else []
    wanted = request(world, job, None, job.spec.payload_bytes if checkpoint else 0.0, None)
    free = residual(world, world.now_s, promised)
    found = candidates(world, wanted, sources, free, world.now_s, among=among)
    choice = world.policy.select(wanted, found, draw=world.draw())
    return None if isinstance(choice, NoDestination) else choice.host


def _best_holder(world: World, checkpoint: Checkpoint, host: HostState, now_s: float) -> str:
    free = residual(world, now_s, promised)

    def bandwidth(holder: str) -> float:
        return min(free[link] for link in world.routes.route(holder, host.name))

    return max(world.holders(checkpoint), key=lambda holder: (bandwidth(holder), holder))
