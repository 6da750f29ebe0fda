"""Hosts as P2 sees them: what they have, how they can be reached, how likely they are to stay.

Bandwidth is what P3 could still promise: each link's migration share less the floors of admitted flows, times the share of
their grants that recent transfers got. Research traffic beyond its reserve does not count against it: it is elastic, and
paced flows hold their rate beside it (measured; `reclaimnet measure rates`), so counting it would leave nothing for migrations
on every link that somebody's download happens to fill.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from controller.core.model.cluster import Cluster
from controller.core.model.entities import CheckpointFlow, JobState
from controller.core.network.bandwidth import bottleneck
from controller.core.network.links import Floats, Mask, Residual, sums
from controller.core.placement.hazard import expected_reclaims
from controller.core.placement.select import Candidates, PlacementRequest
from controller.numerics.jit import survivals
from topologies.spec import TrafficClass


def residual(cluster: Cluster, now_s: float, taken: Callable[[CheckpointFlow], float]) -> Residual:
    """What each link could still promise, when each flow that was promised something takes `taken(flow)` of it."""
    crossed, amounts = list[int](), list[float]()
    for flow in cluster.flows.values():
        if flow.pledge is not None or flow.floor_bytes_per_s > 0.0:
            path = cluster.path(flow.source, flow.destination)
            crossed += path
            amounts += [taken(flow)] * len(path)
    committed: Floats | float = 0.0
    if crossed:
        committed = sums(np.array(crossed, dtype=np.intp), np.array(amounts), len(cluster.network))
    return Residual(cluster.network, cluster.bandwidth.available_column(now_s, committed))


def promised(flow: CheckpointFlow) -> float:
    """A migration's floor, or what its pledge takes on average; checkpoints yield to migrations."""
    return flow.floor_bytes_per_s if flow.pledge is None else flow.pledge.promised_bytes_per_s


def left_for_checkpoints(cluster: Cluster, now_s: float) -> Residual:
    """What P1 may give out of each link, bytes/s: of what is given out at all (`Cluster.spendable`), what is not promised."""
    free = residual(cluster, now_s, promised)
    return Residual(cluster.network, np.maximum(0.0, free.column - cluster.withheld_column))


def fair_share(cluster: Cluster, job: JobState, now_s: float) -> Residual:
    """What one more stream of checkpoints would get of each link, bytes/s: an equal part of what is not promised.

    Checkpoint streams fill whatever is left of a link, so what is left beside them says nothing: only their number does.
    Copies on their way to a vault come and go, and do not count.
    """
    return fair_shares(cluster, now_s)(job)


def fair_shares(cluster: Cluster, now_s: float) -> Callable[[JobState], Residual]:
    """`fair_share` of any job, at this moment."""
    keys, paths = cluster.flow_paths()
    stand = [_stands(cluster, cluster.flows[key]) for key in keys]
    streams = paths.load(np.array(stand, dtype=float), len(cluster.network))
    free = residual(cluster, now_s, promised).column

    def of(job: JobState) -> Residual:
        others = streams.copy()
        for key, stands in zip(keys, stand, strict=True):
            if stands and (flow := cluster.flows[key]).job == job.name:
                others[list(cluster.path(flow.source, flow.destination))] -= 1.0
        return Residual(cluster.network, free / (1.0 + others))

    return of


def _stands(cluster: Cluster, flow: CheckpointFlow) -> bool:
    """Whether it is the stream of a job's checkpoints from its host."""
    return flow.traffic_class is TrafficClass.PRESYNC and cluster.jobs[flow.job].host == flow.source


def safe_store(cluster: Cluster, job: JobState, source: str, free: Residual) -> str | None:
    """The best connected host that nobody can reclaim."""
    fit = sorted(cluster.fit_hosts(job))
    kept = [h.name for h in map(cluster.hosts.__getitem__, fit) if h.usable and not h.is_volunteer]
    return max(
        kept, key=lambda to: bottleneck(cluster.routes.route(source, to), free).bytes_per_s, default=None
    )


def request(
    cluster: Cluster, job: JobState, source: str | None, payload_bytes: float, notice_s: float | None
) -> PlacementRequest:
    """What the job looks for."""
    spec, settings = job.spec, cluster.settings
    return PlacementRequest(
        source,
        payload_bytes,
        spec.memory_bytes,
        spec.min_capability,
        (spec.steps - job.step) * spec.step_s,
        notice_s,
        settings.restart_s + settings.writes_s(spec.payload_bytes),
        cluster.hosts[source].spec.building if source else None,
        job.name,
        settings.max_load,
    )


def candidates(
    cluster: Cluster,
    wanted: PlacementRequest,
    sources: Collection[str],
    free: Residual,
    now_s: float,
    *,
    among: Collection[str] | None = None,
    needs_gpu: bool = True,
) -> Candidates:
    """Volunteers that could take the job, reached from whichever of `sources` is best; no source: nothing to carry."""
    places = cluster.places
    reaches = cluster.known.reaches_of(places, free.column)
    usable, taken = _occupancy(cluster)
    able = usable if among is None or len(among) == len(cluster.hosts) else usable & _named(cluster, among)
    if needs_gpu:
        able = able & (taken < places.gpus)
    mean_slowness = cluster.known.mean_slowness(reaches, able)
    rows = np.flatnonzero(able)
    reclaims = _reclaims_to_expect(cluster, now_s, wanted.remaining_s)[rows]
    bandwidth = np.full(len(places.hosts), 0.0 if sources else np.inf)
    for source in sources:
        bandwidth = np.maximum(bandwidth, reaches.from_host(source))
    nothing = np.zeros(len(rows))
    return Candidates(
        places.names[rows],
        places.buildings[rows],
        (places.gpus - taken)[rows] if needs_gpu else nothing + 1.0,
        places.memory_bytes[rows],
        places.capability[rows],
        (taken / places.gpus)[rows] if needs_gpu else nothing,
        bandwidth[rows],
        survivals(reclaims),
        reclaims,
        _transfers_s(mean_slowness[rows], wanted.payload_bytes) + wanted.restart_s,
    )


def _transfers_s(slowness: Floats, payload_bytes: float) -> Floats:
    """Seconds for a payload; nothing takes no time, even to nowhere. NaN stays."""
    return slowness * payload_bytes if payload_bytes > 0.0 else np.where(np.isnan(slowness), np.nan, 0.0)


def _occupancy(cluster: Cluster) -> tuple[Mask, Floats]:
    """(which volunteers can be used now, how many GPUs of each are taken)."""
    hosts = cluster.volunteers
    usable = np.array([h.connected and h.lent and h.reclaim_at_s is None for h in hosts], dtype=bool)
    return usable, np.array([len(h.jobs) for h in hosts], dtype=float)


def _named(cluster: Cluster, among: Collection[str]) -> Mask:
    places = cluster.places
    mask = np.zeros(len(places.hosts), dtype=bool)
    mask[[places.number[name] for name in among if name in places.number]] = True
    return mask


def _reclaims_to_expect(cluster: Cluster, now_s: float, remaining_s: float) -> Floats:
    """The integral of every volunteer's upper hazard over the time that a job still needs."""
    levels, profile = cluster.hazard_levels(now_s)
    settings = cluster.settings
    a_unit = expected_reclaims(profile, cluster.time_of_day_s(now_s), remaining_s, settings.day_s)
    return levels * a_unit if a_unit > 0.0 else np.zeros(len(levels))
