"""Cables that work at other rates, and what follows where that makes routes others.

A trunk that dies or comes back gives a campus with several paths another tree (`topologies.paths`). From that moment on all is
charged, shared and planned on the new routes; what was reserved on the old ones is free. Migrations that are under way stay
promised where their new route has room. Those that have no way left, or that would be late by the change, are planned anew with
P2 and P3 together, as after the loss of a destination: they go elsewhere, or it is said at once that they do not.

A campus that is a tree has no other routes. A link that is slow or down is planned with as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from controller.core.lifecycle.grants import committed, count_sent
from controller.core.lifecycle.migration import replan, tell_turns
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.network.links import fits
from topologies.spec import DirectedLink


def links_changed(cluster: Cluster, wire_bytes_per_s: Mapping[DirectedLink, float]) -> None:
    """Plan with other rates of cables, and on other routes if some trunk died or is back.

    Where routes stay, floors that a link can no longer carry are cut, all of them by the same factor: those migrations will be
    late. What follows a timetable is planned anew by `settle`, and is late if it must be.
    """
    late = _late(cluster) if cluster.routes.has_choice else frozenset()
    rerouted = cluster.links_changed(wire_bytes_per_s)
    for link, rate in wire_bytes_per_s.items():
        cluster.record(facts.LinkChanged(link.source, link.target, rate))
    if rerouted:
        _replan_moves(cluster, late)
        return
    promised = [
        flow for flow in cluster.flows.values() if flow.pledge is None and flow.floor_bytes_per_s > 0.0
    ]
    for link in wire_bytes_per_s:
        crossing = [f for f in promised if link in cluster.routes.route(f.source, f.destination)]
        floors = sum(flow.floor_bytes_per_s for flow in crossing)
        if floors > cluster.promisable[link]:
            for flow in crossing:
                flow.floor_bytes_per_s *= cluster.promisable[link] / floors


def _replan_moves(cluster: Cluster, late_before: Set[str]) -> None:
    """Moves that have no way left, or whose promise their new route cannot keep; not those that were late without it."""
    late = _late(cluster) - late_before
    reserved: dict[DirectedLink, float] = {}  # what floors take
    failing = []
    for key, flow in cluster.flows.items():  # in the order in which they were admitted
        job, route = cluster.jobs[flow.job], cluster.routes.route(flow.source, flow.destination)
        connected, floor = cluster.hosts[flow.source].connected, 0.0
        if not connected:  # it cannot be told, and keeps the rate that it has
            floor = flow.rate_bytes_per_s
        elif flow.pledge is None:
            floor = flow.floor_bytes_per_s
        if connected and job.move is not None and flow.destination == job.move.destination:
            has_way = all(cluster.promisable[link] > 0.0 for link in route)
            has_room = all(fits(reserved.get(link, 0.0) + floor, cluster.promisable[link]) for link in route)
            if key in late or not has_way or (floor > 0.0 and not has_room):
                failing.append(job)
                continue
        for link in route:
            reserved[link] = reserved.get(link, 0.0) + floor
    replan(cluster, *failing)
    tell_turns(
        cluster,
        cluster.policy.admit(
            [], cluster.now_s, cluster.promisable, committed(cluster, movable=True)
        ).timetable,
    )


def _late(cluster: Cluster) -> Set[str]:
    """Keys of the flows that miss what they were promised, by the timetable."""
    count_sent(cluster)
    return cluster.policy.admit(
        [], cluster.now_s, cluster.promisable, committed(cluster, movable=True)
    ).timetable.late
