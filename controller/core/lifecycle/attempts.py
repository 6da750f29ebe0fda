"""Hosts that a job may have, and an attempt on one: begun, ordered from the host, given up, over.

A job resumes from the completed checkpoint with the most work in it that some host can still send; if its new host does not hold
that one, it is fetched first. Which host a job gets is decided in `offers`, and for migrations in `migration`.

**Candidates** are hosts as P2 sees them: what they have, how they can be reached, how likely they are to stay.
Bandwidth is what P3 could still reserve: each link's migration share less the floors of admitted flows, times the
share of their grants that recent transfers got. Research traffic beyond its reserve does not count against it: it is
elastic, and paced flows hold their rate beside it (measured; `reclaimnet measure rates`), so counting it would leave
nothing for migrations on every link that another's download happens to fill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import reduce
from itertools import chain

import numpy as np

from controller.core.lifecycle.grants import close_flows, open_flow, recovery_bytes
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import (
    Checkpoint,
    CheckpointFlow,
    CheckpointTimer,
    HostState,
    JobEnd,
    JobState,
    StandbyStream,
)
from controller.core.placement.hazard import expected_reclaims
from controller.core.placement.select import Candidates, DestinationChoice, NoDestination, PlacementRequest, Selector
from controller.numerics.arrays import Floats
from controller.numerics.jit import survivals
from testbed.bounds import LARGEST_SEQUENCE, TRICKLE_BYTES_PER_S
from testbed.messages import Forget, StartJob
from topologies.spec import TrafficClass


def residual(cluster: Cluster, taken: Callable[[CheckpointFlow], float], *, for_checkpoints: bool = False) -> Floats:
    """Return the room that each link has for reservations when each reserved flow takes `taken(flow)` of it.

    `for_checkpoints`: the room for these, which may borrow.
    """
    committed = np.zeros(len(cluster.network.links))
    for flow in cluster.flows.firm():
        committed[[*cluster.paths.of(flow.source, flow.destination)]] += taken(flow)
    return cluster.capacity.free(cluster.now_s, committed, for_checkpoints=for_checkpoints)


def reserved_rate(flow: CheckpointFlow) -> float:
    """Return the floor of a migration, or the mean rate of its reservation; checkpoints yield to migrations."""
    return flow.floor_bytes_per_s if flow.reservation is None else flow.reservation.reserved_bytes_per_s


def fair_shares(cluster: Cluster, jobs: Iterable[JobState]) -> Iterator[Floats]:
    """Return for each job the rate that one more stream of its checkpoints would get on each link.

    It is an equal part of what is not reserved: streams fill whatever is left of a link, so only their number counts. A job's
    own streams do not count, nor do copies on their way to a vault, which come and go.
    """
    free = residual(cluster, reserved_rate, for_checkpoints=True)
    crossed = defaultdict[str, list[int]](list)  # links, by the job whose stream crosses them
    for flow in cluster.flows.streams():
        crossed[flow.job] += cluster.paths.of(flow.source, flow.destination)
    among = 1.0 + np.bincount([*chain.from_iterable(crossed.values())], minlength=len(free))
    for job in jobs:
        own = np.bincount(crossed[job.name], minlength=len(free))
        yield free / (among - own)


def safe_store(cluster: Cluster, job: JobState, source: str, free: Floats) -> str | None:
    """Return the best connected host without an owner."""
    fit = cluster.fit_hosts(job)
    kept = [host.name for host in cluster.ownerless if host.usable and host.name in fit]
    return max(kept, key=lambda to: cluster.paths.rate(source, to, free), default=None)


def request(
    cluster: Cluster, job: JobState, source: str | None, payload_bytes: float, notice_s: float | None
) -> PlacementRequest:
    """Return the job's requirements on a host."""
    spec, protocol = job.spec, cluster.protocol
    return PlacementRequest(
        source,
        payload_bytes,
        spec.memory_bytes,
        spec.min_capability,
        job.remaining_s,
        notice_s,
        protocol.restart_s + protocol.writes_s(spec.payload_bytes),
        cluster.hosts[source].spec.building if source else None,
        job.name,
        protocol.max_load,
        gpus=spec.gpus,
    )


def choose_host(
    cluster: Cluster,
    rule: Selector,
    wanted: PlacementRequest,
    sources: Collection[str],
    free: Floats,
    draw: float,
    among: Collection[str] | None = None,
) -> DestinationChoice | NoDestination:
    """Return P2's choice among volunteers: these hosts, or all but those that lately failed to take the job's checkpoint.

    They are reached from the best of `sources`; no source: nothing to carry. A move goes by whichever way is widest, not only by
    the tree's.
    """
    if among is None:
        among = cluster.fit_hosts(cluster.jobs[wanted.job])
    places = cluster.places
    able = np.array([host.usable for host in cluster.volunteers], dtype=bool)
    taken = np.array([sum(host.jobs.values()) for host in cluster.volunteers], dtype=float)
    if len(among) != len(cluster.hosts):
        named = np.zeros(len(places.hosts), dtype=bool)
        named[[places.number[name] for name in among if name in places.number]] = True
        able &= named
    if wanted.needs_gpu:
        able &= taken + wanted.gpus <= places.gpus
    reaches = places.reaches(free)
    mean_slowness = reaches.mean_slowness(able)
    (rows,) = able.nonzero()
    levels, profile = cluster.hazards.levels(cluster.now_s)
    # the integral of a hazard of one over the time that the job still needs
    since_midnight_s = cluster.now_s + cluster.protocol.day_start_s
    speed = np.ones(len(rows))
    if cluster.policy.weighs_speed:
        speed = places.speeds(cluster.jobs[wanted.job].spec.workload_class)[rows]
    speeds, of_speed = np.unique(speed, return_inverse=True)
    day_s, remaining_s = cluster.protocol.day_s, (wanted.remaining_s / speeds).tolist()
    a_unit = np.array([expected_reclaims(profile, since_midnight_s, each_s, day_s) for each_s in remaining_s])[of_speed]
    ways = [reaches.from_host(source) for source in sources]
    if wanted.notice_s is not None and cluster.chooses_ways:
        ways += [cluster.paths.widest_beside(source, places.hosts, free) for source in sources]
    bandwidth = reduce(np.maximum, ways) if ways else np.full(len(places.hosts), np.inf)
    added = np.zeros(len(places.hosts))
    if wanted.needs_gpu and cluster.policy.counts_congestion:
        added = crowding_s(cluster, cluster.jobs[wanted.job])
    with np.errstate(invalid="ignore"):  # an infinite level for no time
        slowness, expected = mean_slowness[rows], np.where(a_unit > 0.0, levels[rows] * a_unit, 0.0)
    survival = survivals(expected)
    if cluster.calendars:  # a window that ends before the job does is one departure more, for certain
        leaves = cluster.windows_left_s()[rows] < wanted.remaining_s / speed
        expected, survival = expected + leaves, np.where(leaves, 0.0, survival)
    # nothing takes no time, even to nowhere
    away_s = slowness * wanted.payload_bytes if wanted.payload_bytes else np.where(np.isnan(slowness), np.nan, 0.0)
    candidates = Candidates(
        places.names[rows],
        places.buildings[rows],
        (places.gpus - taken)[rows],
        places.memory_bytes[rows],
        places.capability[rows],
        (taken / places.gpus)[rows] if wanted.needs_gpu else np.zeros(len(rows)),
        bandwidth[rows],
        survival,
        expected,
        away_s + wanted.restart_s,
        added[rows],
        speed,
    )
    return rule(wanted, candidates, draw=draw)


def crowding_s(cluster: Cluster, job: JobState) -> Floats:
    """Return the seconds of work that the job's checkpoints, with those of its neighbours, lose at a departure of each volunteer.

    Checkpoints of all jobs on a host leave over its uplink: the job's wait for those of all, and all others' for the
    job's. It costs work if the notice is too short for the job.
    """
    places, payload = cluster.places, float(job.spec.payload_bytes)
    waited_bytes = np.full(len(places.hosts), payload)
    for other in cluster.jobs.unfinished:
        host = other.host if other.move is None else other.move.destination
        if other is not job and host in places.number:
            waited_bytes[places.number[host]] += other.spec.payload_bytes + payload
    hurt = cluster.too_short(payload, places.uplink)
    rates = np.append(cluster.capacity.checkpoint_column, np.inf)[places.uplink]
    lost_s: Floats = hurt * waited_bytes / np.maximum(rates, 1.0)
    return lost_s


# ---------------------------------------------------------------- an attempt


EVERYTHING = LARGEST_SEQUENCE + 1  # above every sequence: Forget all of a job

TIMEOUT_FACTOR = 10.0  # times what it should take: what is later than that is asked for


def dispatch(cluster: Cluster, job: JobState, host: HostState, first: tuple[float, float] | None = None) -> None:
    """Give a waiting job to a host, with its freshest checkpoint, which the holder sends that can have it there first.

    `first` is (cost, delay in s) if paper B counts this dispatch.
    """
    checkpoint = cluster.freshest(job)
    begin_attempt(cluster, job, host, checkpoint, first)
    if checkpoint is None or host.name in checkpoint.holders:
        cluster.advance(job, "offered")
        start(cluster, job, host)
        return
    cluster.advance(job, "fetch")
    free = residual(cluster, reserved_rate)
    carried = job.spec.payload_bytes + recovery_bytes(cluster)  # beside the other recoveries on these links

    def takes_s(holder: str) -> float:
        way = [*cluster.paths.of(holder, host.name)]
        return float((carried[way] / free[way].clip(TRICKLE_BYTES_PER_S)).max(initial=0.0))

    sender = min(cluster.holders(checkpoint), key=lambda holder: (takes_s(holder), holder))
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
    again_s = (job.step - restore_step) * job.spec.step_s * job.spec.gpus
    job.attempt += 1
    if job.stop is not None and again_s > 0.0:
        cluster.record(facts.WorkLost(job.name, job.attempt, job.stop.cause, job.step, restore_step, again_s))
    # what was given up, or out of reach before, need not be computed again
    if job.stop is not None and again_s < 0.0:
        cluster.record(facts.WorkTakenUp(job.name, job.attempt, job.step, restore_step, -again_s))
    job.host, job.restore, job.step, job.final_sequence = host.name, checkpoint, restore_step, None
    job.speed = cluster.campus.speed(host.name, job.spec.workload_class)
    cluster.timers += 1
    job.timer, job.interval_s = CheckpointTimer(cluster.timers), None
    job.traces.add(host.name)
    reserve(cluster, job, host)
    cost, delay_s = first or (None, None)
    sequence = checkpoint.stored.sequence if checkpoint else None
    cluster.record(
        facts.JobDispatched(job.name, job.attempt, host.name, sequence, restore_step, cost, delay_s, job.speed)
    )


def reserve(cluster: Cluster, job: JobState, host: HostState) -> None:
    """Hold the job's GPUs for it, and withdraw offers that they backed."""
    host.jobs[job.name] = job.spec.gpus
    withdraw_offers(cluster, host, keep=max(0, host.free_gpus))


def withdraw_offers(cluster: Cluster, host: HostState, keep: int = 0) -> None:
    """Withdraw offers of the host until `keep` are left."""
    for number in cluster.queue.standing_at(host.name)[keep:]:
        cluster.queue.withdraw_offer(number)


def start_s(cluster: Cluster, job: JobState) -> float:
    """Return the seconds to start a job whose state is read as slowly as it is written."""
    return cluster.protocol.restart_s + cluster.protocol.writes_s(job.spec.payload_bytes)


def start(cluster: Cluster, job: JobState, host: HostState) -> None:
    """Order the host to run the attempt, and arm the timeout of its answer."""
    cluster.arm_timeout(job, TIMEOUT_FACTOR * start_s(cluster, job))
    restore = job.restore.stored if job.restore else None
    cluster.tell(host.name, StartJob(job.spec, job.attempt, restore, host.closures, job.speed))


def release(cluster: Cluster, job: JobState) -> None:
    """Take the job off its host: no flow of it is open any more, and nothing is reserved for it."""
    close_flows(cluster, job=job.name, tell=True)
    names = {job.host, job.move.destination if job.move else None, replica_of(cluster, job)}
    for name in sorted(name for name in names if name is not None):
        cluster.free_gpu(job, cluster.hosts[name])
    job.host, job.standby, job.move, job.landing, job.degraded = None, None, None, None, False
    job.stream = StandbyStream()


def drop_move(cluster: Cluster, job: JobState) -> None:
    """Give back the GPU that a migration had reserved."""
    if job.move is not None:
        destination = cluster.hosts[job.move.destination]
        if job.name in destination.jobs:  # a rescue to a disk has none
            cluster.free_gpu(job, destination)
        job.move = None


def replica_of(cluster: Cluster, job: JobState) -> str | None:
    """Return the standby if it holds a GPU for the job and computes too."""
    held = job.standby is not None and job.name in cluster.hosts[job.standby].jobs
    return job.standby if held and job.standby != job.host else None


def cancelled(cluster: Cluster, job: JobState, trigger: str) -> None:
    """End a job that its user wants no more, and of which no process is left."""
    cluster.record(facts.JobCancelled(job.name, job.attempt, job.host or "", job.step))
    over(cluster, job, trigger)


def over(cluster: Cluster, job: JobState, trigger: str, reason: str = "") -> None:
    """End a job that is finished, has failed or is cancelled, and have its checkpoints deleted everywhere."""
    cluster.advance(job, trigger)
    job.end = JobEnd(cluster.now_s, job.host or "", reason)
    holders = job.traces | ({job.standby} if job.standby else set())
    release(cluster, job)
    for name in sorted(holders):
        cluster.tell(name, Forget(job.name, EVERYTHING))
