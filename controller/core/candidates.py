"""Hosts as P2 sees them: what they have, how they can be reached, how likely they are to stay.

Bandwidth is what P3 could still promise: each link's migration share less the floors of admitted flows, times the share of
their grants that recent transfers got. Research traffic beyond its reserve does not count against it: it is elastic, and
paced flows hold their rate beside it (measured; `reclaimnet measure rates`), so counting it would leave nothing for migrations
on every link that somebody's download happens to fill.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache
from math import inf

from controller.core.bandwidth import bottleneck
from controller.core.placement import Candidate, Reach, Request, mean_migrations_s
from controller.core.state import Flow, HostState, JobState
from controller.core.world import World
from topologies.spec import DirectedLink, TrafficClass

Residual = dict[DirectedLink, float]


def residual(world: World, now_s: float, taken: Callable[[Flow], float]) -> Residual:
    """What each link could still promise, payload bytes/s, when each flow takes `taken(flow)` of it."""
    committed: dict[DirectedLink, float] = {}
    for flow in world.flows.values():
        amount = taken(flow)
        if amount > 0.0:
            for link in world.routes.route(flow.source, flow.destination):
                committed[link] = committed.get(link, 0.0) + amount
    return world.bandwidth.available_everywhere(now_s, committed)


def promised(flow: Flow) -> float:
    """A migration's floor, or what its pledge takes on average; checkpoints yield to migrations."""
    return flow.floor_bytes_per_s if flow.pledge is None else flow.pledge.promised_bytes_per_s


def fair_share(world: World, job: JobState, now_s: float) -> Residual:
    """What one more stream of checkpoints would get of each link, bytes/s: an equal part of what is not promised.

    Checkpoint streams fill whatever is left of a link, so what is left beside them says nothing: only their number does.
    """
    streams: dict[DirectedLink, int] = {}
    for flow in world.flows.values():
        if flow.traffic_class is TrafficClass.PRESYNC and flow.job != job.name:
            for link in world.routes.route(flow.source, flow.destination):
                streams[link] = streams.get(link, 0) + 1
    free = residual(world, now_s, promised)
    return {link: rate / (1 + streams.get(link, 0)) for link, rate in free.items()}


def request(
    world: World, job: JobState, source: str | None, payload_bytes: float, notice_s: float | None
) -> Request:
    """What the job looks for."""
    spec, settings = job.spec, world.settings
    return Request(
        source,
        payload_bytes,
        spec.memory_bytes,
        spec.min_capability,
        (spec.steps - job.step) * spec.step_s,
        notice_s,
        settings.restart_s + settings.snapshot_s,
        world.hosts[source].spec.building if source else None,
    )


def candidates(
    world: World,
    wanted: Request,
    sources: Collection[str],
    free: Residual,
    now_s: float,
    *,
    among: Iterable[str] | None = None,
    needs_gpu: bool = True,
) -> list[Candidate]:
    """Volunteers that could take the job, reached from whichever of `sources` is best; no source: nothing to carry."""
    names = world.hosts if among is None else sorted(among)  # sums, and so ties, are of one order
    hosts = [h for h in (world.hosts[name] for name in names) if h.is_volunteer and h.usable]
    able = [h for h in hosts if not needs_gpu or h.free_gpus > 0]
    means = _means(world, able, free, wanted)
    profile = world.profile(now_s)
    return [
        Candidate(
            host.name,
            host.spec.building,
            host.free_gpus if needs_gpu else 1,
            (gpu := world.campus.gpu_by_name[host.spec.gpu_model or ""]).memory_bytes,
            gpu.compute_capability,
            len(host.jobs) / host.spec.gpus if needs_gpu else 0.0,
            max((_bandwidth(world, s, host.name, free) for s in sources), default=inf),
            world.survival(host.name, now_s, wanted.remaining_s, profile),
            means[host.name],
        )
        for host in able
    ]


def _bandwidth(world: World, source: str, host: str, free: Residual) -> float:
    return bottleneck(world.routes.route(source, host), free).bytes_per_s


def _means(world: World, hosts: list[HostState], free: Residual, wanted: Request) -> dict[str, float | None]:
    """mean T_mig of every host, hosts grouped by access switch."""

    @cache
    def between(one: str, other: str) -> float:
        return bottleneck(world.routes.route(one, other), free).bytes_per_s

    reaches = []
    for host in hosts:
        switch = next(iter(world.campus.neighbours[host.name]))
        up, down = DirectedLink(host.name, switch), DirectedLink(switch, host.name)
        reaches.append(Reach(host.name, switch, free[up], free[down]))
    return mean_migrations_s(reaches, between, wanted.payload_bytes, wanted.restart_s) if reaches else {}
