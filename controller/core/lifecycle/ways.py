"""Ways through a network with several paths: what its controller is told, and what waits until it has done so.

**Before the first byte.** A pair of hosts that is pinned to another way than the tree's is in the next `SetWays`, which tells the
network's controller everything that it is to have (so nothing is lost with a connection). Orders to send over it wait for
`WaysSet`, which says that all switches have it.

**Make before break.** While a way is being changed, what the pair sends may go over either, and is shared on both
(`RouteInstallation.held`); when the new one is set, the old one is free. So no byte goes where it is not granted.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import inf

from controller.core.lifecycle.grants import committed, count_sent
from controller.core.model import effects as do
from controller.core.model.cluster import Cluster
from controller.core.network.routing import Ends
from topologies.paths import Way
from topologies.spec import DirectedLink
from topologies.units import PAYLOAD_SHARE

LOAD_STEP = 1 / 8  # of a trunk's rate: less is not told, for connections of research move with every change
ANSWER_S = 1.0  # programming takes some milliseconds; a controller that dies is started again in that time, or not at all


def ask_network(cluster: Cluster) -> None:
    """Tell the network's controller which ways to have, if they have changed."""
    if not cluster.installation.dirty:
        return
    cluster.installation.dirty = False
    cluster.installation.requested += 1
    pins = [
        do.PinnedWay(cluster.installation.numbers[ends], [ends[0], *(link.target for link in way)])
        for ends, way in cluster.routes.pins.items()
    ]
    draining = [(a, b) for a, b in sorted(sorted(trunk) for trunk in cluster.capacity.draining)]
    cluster.outbox.append(do.SetWays(cluster.installation.requested, pins, draining))
    if cluster.installation.answers and cluster.installation.held:
        cluster.installation.due_s = min(cluster.installation.due_s, cluster.now_s + ANSWER_S)


def tell_loads(cluster: Cluster) -> None:
    """Tell the network's controller what grants take of each trunk, if that has changed much."""
    if not cluster.routes.has_choice:
        return
    loads: dict[DirectedLink, float] = {}
    for flow in cluster.flows.values():
        for link in cluster.routes.way(flow.source, flow.destination)[1:-1]:
            loads[link] = loads.get(link, 0.0) + flow.rate_bytes_per_s / PAYLOAD_SHARE
    told, capacity = cluster.installation.loads_sent, cluster.capacity.bandwidth.capacity
    if told is None or any(
        abs(loads.get(link, 0.0) - told.get(link, 0.0)) > LOAD_STEP * capacity[link]
        for link in loads.keys() | told.keys()
    ):
        cluster.installation.loads_sent = loads
        cluster.outbox.append(do.SetLoads([(*link, load) for link, load in sorted(loads.items())]))


def ways_set(cluster: Cluster, number: int) -> None:
    """Free old ways and send what waited for new ones: the network has confirmed that number."""
    cluster.installation.answers, cluster.installation.confirmed = True, number
    for ends in [ends for ends, held in cluster.installation.held.items() if held.request <= number]:
        del cluster.installation.held[ends]
        cluster.forget_paths(ends)
        cluster.rates_stale = True
    if not cluster.installation.held:
        cluster.installation.due_s = inf


def late_by(
    cluster: Cluster, ways: Mapping[Ends, Way], share: Mapping[DirectedLink, float] | None = None
) -> Set[str]:
    """Return keys of flows that would miss their reservation on these ways.

    `share`: payload bytes/s of each link; None: what may be reserved.
    """
    count_sent(cluster)
    routes = cluster.routes
    pinned = routes.pinned({**routes.pins, **ways}) if ways else routes
    commitments = committed(cluster, movable=True, routes=pinned)
    share = cluster.capacity.reservable if share is None else share
    return cluster.policy.admit([], cluster.now_s, share, commitments).timetable.late
