"""Hosts as P2 sees them: what they have, how they can be reached, how likely they are to stay.

Bandwidth is what P3 could still reserve: each link's migration share less the floors of admitted flows, times the share of
their grants that recent transfers got. Research traffic beyond its reserve does not count against it: it is elastic, and
paced flows hold their rate beside it (measured; `reclaimnet measure rates`), so counting it would leave nothing for migrations
on every link that another's download happens to fill.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce

import numpy as np

from controller.core.model.cluster import Cluster
from controller.core.model.entities import CheckpointFlow, JobState
from controller.core.network.bandwidth import LinkBandwidth, bottleneck
from controller.core.network.links import Residual, filled, sums
from controller.core.placement.hazard import expected_reclaims
from controller.core.placement.select import Candidates, PlacementRequest
from controller.numerics.arrays import Floats
from controller.numerics.jit import survivals


def residual(
    cluster: Cluster,
    now_s: float,
    taken: Callable[[CheckpointFlow], float],
    bandwidth: LinkBandwidth | None = None,
) -> Residual:
    """Return the room that each link has for reservations when each reserved flow takes `taken(flow)` of it.

    `bandwidth`: another account than that of reservations.
    """
    crossed: list[int] = []
    amounts: list[float] = []
    for flow in cluster.flows.firm():
        if flow.reservation is not None or flow.floor_bytes_per_s > 0.0:
            path = cluster.paths.of(flow.source, flow.destination)
            crossed += path
            amounts += [taken(flow)] * len(path)
    committed: Floats | float = 0.0
    if crossed:
        committed = sums(np.array(crossed, dtype=np.intp), np.array(amounts), len(cluster.network))
    account = cluster.capacity.bandwidth if bandwidth is None else bandwidth
    return Residual(cluster.network, account.available_column(now_s, committed))


def reserved_rate(flow: CheckpointFlow) -> float:
    """The floor of a migration, or the mean rate of its reservation; checkpoints yield to migrations."""
    return flow.floor_bytes_per_s if flow.reservation is None else flow.reservation.reserved_bytes_per_s


def left_for_checkpoints(cluster: Cluster, now_s: float) -> Residual:
    """Return the bytes/s of each link that P1 may give out: `LinkCapacity.checkpoint_column` less what is reserved."""
    free = residual(cluster, now_s, reserved_rate, cluster.capacity.checkpoint_bandwidth)
    return Residual(cluster.network, np.maximum(0.0, free.column - cluster.capacity.withheld_column))


def fair_share(cluster: Cluster, job: JobState, now_s: float) -> Residual:
    """Return the rate that one more stream of the job's checkpoints would get on each link (`FairShares`)."""
    return FairShares(cluster, now_s).of(job)


class FairShares:
    """Rates that one more stream of checkpoints would get on each link now: an equal part of what is not reserved.

    Checkpoint streams fill whatever is left of a link, so only their number counts, not the room beside them.
    A job's own streams do not count, nor do copies on their way to a vault, which come and go.
    """

    def __init__(self, cluster: Cluster, now_s: float) -> None:
        self._cluster = cluster
        self._free = residual(cluster, now_s, reserved_rate, cluster.capacity.checkpoint_bandwidth).column
        self._among = 1.0 + cluster.flows.crossing()  # how many streams would share each link

    def _own(self, job: JobState) -> dict[int, float]:
        """Count the job's streams on each link."""
        own: dict[int, float] = {}
        for flow in self._cluster.flows.streams_of(job.name):
            for link in self._cluster.paths.of(flow.source, flow.destination):
                own[link] = own.get(link, 0.0) + 1.0
        return own

    def on(self, job: JobState, links: Sequence[int]) -> list[float]:
        """The room for a stream of this job on each of these links, by their numbers."""
        own = self._own(job)
        return [float(self._free[link]) / (float(self._among[link]) - own.get(link, 0.0)) for link in links]

    def of(self, job: JobState) -> Residual:
        """The room for a stream of this job on every link."""
        among = self._among.copy()
        for link, streams in self._own(job).items():
            among[link] -= streams
        return Residual(self._cluster.network, self._free / among)


def safe_store(cluster: Cluster, job: JobState, source: str, free: Residual) -> str | None:
    """Return the best connected host without an owner."""
    fit = cluster.fit_hosts(job)
    kept = [host.name for host in cluster.index.ownerless if host.usable and host.name in fit]
    return max(
        kept, key=lambda to: bottleneck(cluster.routes.way(source, to), free).bytes_per_s, default=None
    )


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


def candidates(
    cluster: Cluster,
    wanted: PlacementRequest,
    sources: Collection[str],
    free: Residual,
    now_s: float,
    *,
    among: Collection[str] | None = None,
    all_ways: bool = False,
) -> Candidates:
    """Return volunteers that could take the job, reached from the best of `sources`; no source: nothing to carry.

    `all_ways`: by whichever way is widest, not only by the tree's.
    """
    places, taken = cluster.index.places, cluster.index.taken_column
    able = cluster.index.usable_column.copy()
    if among is not None and len(among) != len(cluster.hosts):
        named = np.zeros(len(places.hosts), dtype=bool)
        named[[places.number[name] for name in among if name in places.number]] = True
        able &= named
    if wanted.needs_gpu:
        able &= taken + wanted.gpus <= places.gpus
    reaches = places.reaches(free.column)
    mean_slowness = reaches.mean_slowness(able)
    (rows,) = able.nonzero()
    levels, profile = cluster.hazards.levels(now_s)
    # the integral of a hazard of one over the time that the job still needs
    a_unit = expected_reclaims(
        profile, cluster.time_of_day_s(now_s), wanted.remaining_s, cluster.protocol.day_s
    )
    ways = [reaches.from_host(source) for source in sources]
    if all_ways and cluster.chooses_ways:
        ways += [cluster.paths.widest_beside(source, places.hosts, free.column) for source in sources]
    bandwidth = reduce(np.maximum, ways) if ways else filled(np.inf, len(places.hosts))
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

    Checkpoints of all jobs on a host leave over its uplink: the job's waits for those of all, and theirs for the job's. It costs
    work if the notice is too short for the job.
    """
    places, payload = cluster.index.places, float(job.spec.payload_bytes)
    waited_bytes = np.full(len(places.hosts), payload)
    for other in cluster.jobs.unfinished():
        host = other.host if other.move is None else other.move.destination
        if other is not job and host in places.number:
            waited_bytes[places.number[host]] += other.spec.payload_bytes + payload
    hurt = cluster.too_short(payload, cluster.uplinks_bytes_per_s, cluster.now_s)
    lost_s: Floats = hurt * waited_bytes / np.maximum(cluster.checkpoint_uplinks_bytes_per_s, 1.0)
    return lost_s
