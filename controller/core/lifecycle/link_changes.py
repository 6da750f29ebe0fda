"""Changes of link rates, and the routes that they change.

A trunk that dies or comes back gives a campus with several paths another tree (`topologies.paths`). From then on all
is charged, shared and planned on the new routes; what was reserved on the old ones is free. Migrations that are under
way stay reserved where their new route has room. Those that have no way left, or would be late by the change, take
another way on which all reservations are kept, if possible. Else they are planned again with P2 and P3 together, as
after the loss of a destination: they go elsewhere, or it is recorded at once that they do not.

A trunk that is announced to go down is left in the same manner, but while it still carries. While a way is being
changed, what a pair sends may go over either, and is shared on both (`RouteInstallation.held`). So no byte goes where
it is not granted. Orders to send over the new one wait for `WaysSet`, by which all switches have it; then the old one
is free. A network that does not confirm is taken to have the tree and the ways that it had: until it answers again
there is one path.

A trunk is hot when others take so much of it that what they leave is less than what is reserved there; migrations leave that,
too, where there is room elsewhere.

A campus that is a tree has no other routes. A link that is slow is planned with as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import inf

from controller.core.lifecycle.attempts import reserved_rate
from controller.core.lifecycle.grants import committed, count_sent, planned
from controller.core.lifecycle.migration import replan, tell_starts
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import CheckpointFlow
from controller.core.network.links import Ends, fits
from topologies.paths import DeadTrunks, Way
from topologies.spec import DirectedLink, TrafficClass


def links_changed(cluster: Cluster, wire_bytes_per_s: Mapping[DirectedLink, float]) -> None:
    """Plan with other rates of cables, and on other routes if a trunk died or is back.

    Where routes stay, floors that a link can no longer carry are cut by one factor: those migrations will be late.
    `settle` plans again what follows a timetable.
    """
    late = _late_by(cluster, {}) if cluster.routes.has_choice else frozenset()
    rerouted = cluster.links_changed(wire_bytes_per_s)
    for link, rate in wire_bytes_per_s.items():
        cluster.record(facts.LinkChanged(link.source, link.target, rate))
    if rerouted:
        _replan_moves(cluster, late)
        return
    constant = [flow for flow in cluster.flows.values() if flow.reservation is None and flow.floor_bytes_per_s > 0.0]
    for link in wire_bytes_per_s:
        crossing = [f for f in constant if link in cluster.routes.way(f.source, f.destination)]
        floors = sum(flow.floor_bytes_per_s for flow in crossing)
        if floors > cluster.capacity.reservable[link]:
            for flow in crossing:
                flow.floor_bytes_per_s *= cluster.capacity.reservable[link] / floors


def drain_trunks(cluster: Cluster, trunks: DeadTrunks) -> None:
    """Plan nothing over the trunks that are announced to go down, and move off them what is there."""
    late = _late_by(cluster, {}) if cluster.routes.has_choice else frozenset()
    cluster.installation.answers = True
    if cluster.drain(trunks):
        _replan_moves(cluster, late)


def take_live_ways(cluster: Cluster) -> None:
    """Move flows of a sender that is connected again off ways that are dead or full."""
    _replan_moves(cluster, _late_by(cluster, {}))


def network_silent(cluster: Cluster) -> None:
    """Give up the ways that the network has not confirmed in time."""
    late = _late_by(cluster, {})
    cluster.installation.answers, cluster.installation.due_s = False, inf
    for ends, held in list(cluster.installation.held.items()):
        is_live = held.confirmed is not None and cluster.routes.is_carried(held.confirmed)
        cluster.set_way(*ends, held.confirmed if is_live else None)
    for ends in list(cluster.installation.held):
        del cluster.installation.held[ends]
        cluster.forget_paths(ends)
    cluster.drain(())
    cluster.installation.dirty = True  # it is informed, and may answer that
    _replan_moves(cluster, late)


def leave_hot_trunks(cluster: Cluster) -> None:
    """Move migrations off a hot trunk to the first way that has room for their reservations.

    Where there is none a migration stays, and its reservation stands on the whole migration share.
    """
    if not cluster.chooses_ways:
        return
    moved = False
    for flow in _planned_flows(cluster):
        ends = (flow.source, flow.destination)
        if not _is_hot(cluster, ends, cluster.routes.way(*ends)):
            continue
        for way in cluster.choices(*ends):
            if not _is_hot(cluster, ends, way):
                cluster.set_way(*ends, way)
                moved = True
                break
    if moved:
        _tell_starts(cluster)


def ways_set(cluster: Cluster, number: int) -> None:
    """Free old ways and send what waited for new ones: the network has confirmed that number."""
    cluster.installation.answers, cluster.installation.confirmed = True, number
    for ends in [ends for ends, held in cluster.installation.held.items() if held.request <= number]:
        del cluster.installation.held[ends]
        cluster.forget_paths(ends)
        cluster.rates_stale = True
    if not cluster.installation.held:
        cluster.installation.due_s = inf


def _replan_moves(cluster: Cluster, late_before: Set[str]) -> None:
    """Give moves whose way has failed another way, or plan them again."""
    failing, ways = _failing(cluster, late_before, {}), dict[Ends, Way]()
    for flow in failing:
        ends = (flow.source, flow.destination)
        for way in cluster.choices(*ends):
            trial = {**ways, ends: way}
            still = _failing(cluster, late_before, trial)
            if len(still) < len(failing) and flow not in still:
                failing, ways = still, trial
                break
    for ends, way in ways.items():
        cluster.set_way(*ends, way)
    replan(cluster, *(cluster.jobs[flow.job] for flow in failing))
    _tell_starts(cluster)


def _tell_starts(cluster: Cluster) -> None:
    """Announce the moments at which jobs are to stop, since links of reservations have changed."""
    tell_starts(cluster, planned(cluster, committed(cluster, movable=True)))


def _late_by(cluster: Cluster, ways: Mapping[Ends, Way]) -> Set[str]:
    """Return keys of flows that would miss their reservation on these ways."""
    count_sent(cluster)
    routes = cluster.routes
    pinned = routes.pinned({**routes.pins, **ways}) if ways else routes
    commitments = committed(cluster, movable=True, routes=pinned)
    return cluster.policy.admit([], cluster.now_s, cluster.capacity.reservable, commitments).timetable.late


def _failing(cluster: Cluster, late_before: Set[str], ways: Mapping[Ends, Way]) -> list[CheckpointFlow]:
    """Return flows of moves that these ways leave without a way, or too late.

    Flows that were late without them are left out.
    """
    late = _late_by(cluster, ways) - late_before
    reserved: dict[DirectedLink, float] = {}  # what floors take
    failing = []
    for key, flow in cluster.flows.items():  # in the order in which they were admitted
        job, ends = cluster.jobs[flow.job], (flow.source, flow.destination)
        way = ways.get(ends) or cluster.routes.way(*ends)
        connected, floor = cluster.hosts[flow.source].connected, 0.0
        if not connected:  # it can get no order, and keeps the rate that it has
            floor = flow.rate_bytes_per_s
        elif flow.reservation is None:
            floor = flow.floor_bytes_per_s
        if connected and job.move is not None and ends == (job.host, job.move.destination):
            is_carried = cluster.routes.is_carried(way) and all(cluster.capacity.reservable[link] > 0.0 for link in way)
            has_room = all(fits(reserved.get(link, 0.0) + floor, cluster.capacity.reservable[link]) for link in way)
            if key in late or not is_carried or (floor > 0.0 and not has_room):
                failing.append(flow)
                continue
        for link in way:
            reserved[link] = reserved.get(link, 0.0) + floor
    return failing


def _planned_flows(cluster: Cluster) -> list[CheckpointFlow]:
    """Return the flows of migrations with a connected sender, in the order of their admission."""
    flows, hosts = cluster.flows.values(), cluster.hosts
    return [f for f in flows if f.traffic_class is TrafficClass.PLANNED and hosts[f.source].connected]


def _is_hot(cluster: Cluster, ends: Ends, way: Way) -> bool:
    """Return whether reservations need more of some link of the way than others leave, if the pair takes it."""
    taken = dict.fromkeys(way, 0.0)
    for flow in _planned_flows(cluster):
        other = (flow.source, flow.destination)
        for link in taken.keys() & (way if other == ends else cluster.routes.way(*other)):
            taken[link] += reserved_rate(flow)
    return not all(fits(rate, cluster.capacity.spendable[link]) for link, rate in taken.items())
