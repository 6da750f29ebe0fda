"""Hosts as P2 sees them: what they have, how they can be reached, how likely they are to stay.

Bandwidth is what P3 could still reserve: each link's migration share less the floors of admitted flows, times the share of
their grants that recent transfers got. Research traffic beyond its reserve does not count against it: it is elastic, and
paced flows hold their rate beside it (measured; `reclaimnet measure rates`), so counting it would leave nothing for migrations
on every link that another's download happens to fill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import reduce
from itertools import chain

import numpy as np

from controller.core.model.cluster import Cluster
from controller.core.model.entities import CheckpointFlow, JobState
from controller.core.placement.hazard import expected_reclaims
from controller.core.placement.select import (
    Candidates,
    DestinationChoice,
    NoDestination,
    PlacementRequest,
    Selector,
)
from controller.numerics.arrays import Floats
from controller.numerics.jit import survivals


def residual(
    cluster: Cluster, taken: Callable[[CheckpointFlow], float], *, for_checkpoints: bool = False
) -> Floats:
    """Return the room that each link has for reservations when each reserved flow takes `taken(flow)` of it.

    `for_checkpoints`: the room for these, which may borrow.
    """
    committed = np.zeros(len(cluster.network))
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
    """Return P2's choice among volunteers: these hosts, or all but those that lately failed to take the job's checkpoint."""
    if among is None:
        among = cluster.fit_hosts(cluster.jobs[wanted.job])
    return rule(wanted, candidates(cluster, wanted, sources, free, among), draw=draw)


def candidates(
    cluster: Cluster,
    wanted: PlacementRequest,
    sources: Collection[str],
    free: Floats,
    among: Collection[str],
) -> Candidates:
    """Return volunteers that could take the job, reached from the best of `sources`; no source: nothing to carry.

    A move goes by whichever way is widest, not only by the tree's.
    """
    places = cluster.places
    able = np.array([host.usable for host in cluster.volunteers], dtype=bool)
    taken = np.array([host.taken_gpus for host in cluster.volunteers], dtype=float)
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
    a_unit = expected_reclaims(profile, cluster.time_of_day_s(), wanted.remaining_s, cluster.protocol.day_s)
    ways = [reaches.from_host(source) for source in sources]
    if wanted.notice_s is not None and cluster.chooses_ways:
        ways += [cluster.paths.widest_beside(source, places.hosts, free) for source in sources]
    bandwidth = reduce(np.maximum, ways) if ways else np.full(len(places.hosts), np.inf)
    added = np.zeros(len(places.hosts))
    if wanted.needs_gpu and cluster.policy.counts_congestion:
        added = crowding_s(cluster, cluster.jobs[wanted.job])
    slowness, expected = mean_slowness[rows], levels[rows] * a_unit if a_unit > 0.0 else np.zeros(len(rows))
    # nothing takes no time, even to nowhere
    away_s = (
        slowness * wanted.payload_bytes if wanted.payload_bytes else np.where(np.isnan(slowness), np.nan, 0.0)
    )
    return Candidates(
        places.names[rows],
        places.buildings[rows],
        (places.gpus - taken)[rows],
        places.memory_bytes[rows],
        places.capability[rows],
        (taken / places.gpus)[rows] if wanted.needs_gpu else np.zeros(len(rows)),
        bandwidth[rows],
        survivals(expected),
        expected,
        away_s + wanted.restart_s,
        added[rows],
    )


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
