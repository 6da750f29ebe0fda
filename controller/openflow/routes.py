"""Routes of a campus with several paths: topology and dead trunks in, every switch's tables out. Pure; a restart finds the same.

Two kinds of traffic take two kinds of route.

**The testbed's own classes** (EF, AF41, CS1) travel one tree: breadth first from the root, over live trunks, in the order in
which the campus names them. `topologies.paths.tree_of` picks it, here and for P3, which charges its paths; a grant never meets
another's link by the accident of a hash. A tree has no loops, and reaches whatever can be reached. Each switch also knows a way
around its own dead trunk, which it takes within milliseconds and by itself: a neighbour whose way to the destination does not
lead back here (a loop-free alternate, RFC 5286). With one trunk dead this cannot loop: the neighbour's way does not pass this
switch, so it does not meet the dead trunk either. With two dead at once it may, for the milliseconds until the controller has
new routes.

**Research** takes all shortest live paths: SELECT groups hash connections over the next hops, weighted by the trunks' rates.
Every step comes one nearer, so no loop is possible, whatever the hash decides.

Nothing is learned from packets. ARP is answered by the first switch that hears it (unless the host that is asked for hangs on the
very port that the question came from: it answers itself, and a second answer would teach the bridge there that it moved). What
no rule names is dropped: there is no flooding, so loops in the cabling are harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from controller.openflow.tables import (
    AnswerArp,
    Drop,
    FlowRule,
    GotoTable,
    Group,
    GroupBucket,
    GroupKind,
    Output,
    SwitchTables,
    ToGroup,
)
from topologies.openflow import Topology
from topologies.paths import NONE_DEAD, DeadTrunks, tree_of
from topologies.spec import TrafficClass

CLASSIFY, ARP, OWN, RESEARCH = 0, 1, 2, 3  # tables, in the order of the pipeline
ETH_IPV4, ETH_ARP, ARP_REQUEST = 0x0800, 0x0806, 1
MAX_WEIGHT = 1000  # of a bucket: three digits tell 1 from 2.5 and 10 Gbit/s


def tables(topology: Topology, dead: DeadTrunks = NONE_DEAD) -> dict[str, SwitchTables]:
    """Every switch's tables. `dead`: trunks (their two switches) that carry nothing; what they cut off is unreachable."""
    live = live_neighbours(topology, dead)
    tree = tree_of(topology.root, topology.switches, live)
    targets = [name for name, stations in topology.stations_at.items() if stations]
    distances = {target: distances_to(target, live) for target in targets}
    own_hops = {target: own_hops_to(target, tree, live, distances[target], targets) for target in targets}
    own_dscps = [traffic.dscp for traffic in TrafficClass if traffic is not TrafficClass.RESEARCH]
    classification = [
        FlowRule(CLASSIFY, 3, (("eth_type", ETH_ARP),), GotoTable(ARP)),
        *(
            FlowRule(CLASSIFY, 2, (("eth_type", ETH_IPV4), ("ip_dscp", dscp)), GotoTable(OWN))
            for dscp in own_dscps
        ),
        FlowRule(CLASSIFY, 1, (), GotoTable(RESEARCH)),
    ]
    made = {}
    for switch in topology.switches:
        groups: dict[int, Group] = {}
        rules = [*classification, *_arp(topology, switch)]
        for number, target in enumerate(targets):
            own, research = 2 * number + 1, 2 * number + 2
            if target != switch:
                if switch not in own_hops[target]:
                    continue  # nothing leads there: its packets are dropped here
                groups[own] = _failover(topology, switch, own_hops[target], live)
                groups[research] = _share(topology, switch, distances[target], live)
            for station in topology.stations_at[target]:
                match = (("eth_dst", station.mac),)
                here = Output(station.port)
                rules.append(FlowRule(OWN, 1, match, here if target == switch else ToGroup(own)))
                rules.append(FlowRule(RESEARCH, 1, match, here if target == switch else ToGroup(research)))
        made[switch] = SwitchTables({rule.cookie: rule for rule in rules}, groups)
    return made


def live_neighbours(topology: Topology, dead: DeadTrunks) -> dict[str, list[str]]:
    """switch -> neighbours over trunks that are not dead, in the order of the trunks."""
    gone = frozenset(dead)
    return {s: [n for n in ports if frozenset((s, n)) not in gone] for s, ports in topology.ports.items()}


def own_hops_to(
    target: str,
    tree: dict[str, list[str]],
    live: dict[str, list[str]],
    distance: dict[str, int],
    sources: Collection[str],
) -> dict[str, str]:
    """switch -> next switch for the own classes towards `target`; itself and what cannot reach it are absent.

    Switches on the tree's way from one of `sources` (where hosts hang) take the tree; the next one is on that way, too. The
    others meet such packets only on a way around a dead trunk: they take a shortest way, step by step nearer until they reach
    the target or a switch on the tree's way. So there are no loops.
    """
    in_tree: dict[str, str] = {}
    todo = [target]
    for switch in todo:  # grows while it is walked
        for neighbour in tree[switch]:
            if neighbour != target and neighbour not in in_tree:
                in_tree[neighbour] = switch
                todo.append(neighbour)
    hops = {
        switch: next(n for n in live[switch] if distance[n] < steps)
        for switch, steps in distance.items()
        if switch != target
    }
    for source in sources:
        while source in in_tree:
            hops[source] = source = in_tree[source]
    return hops


def distances_to(target: str, live: dict[str, list[str]]) -> dict[str, int]:
    """switch -> live trunks to cross to `target`; switches that cannot reach it are absent."""
    distance = {target: 0}
    todo = [target]
    for switch in todo:  # grows while it is walked
        for neighbour in live[switch]:
            if neighbour not in distance:
                distance[neighbour] = distance[switch] + 1
                todo.append(neighbour)
    return distance


def _failover(topology: Topology, switch: str, hops: dict[str, str], live: dict[str, list[str]]) -> Group:
    """The next hop, then every neighbour whose own way does not lead back here."""
    first = hops[switch]
    ways = [first]
    for neighbour in live[switch]:
        node = neighbour
        while node in hops and node != switch:
            node = hops[node]
        if neighbour != first and node != switch:
            ways.append(neighbour)
    ports = topology.ports[switch]
    return Group(GroupKind.FAST_FAILOVER, tuple(GroupBucket(ports[n]) for n in ways))


def _share(topology: Topology, switch: str, distance: dict[str, int], live: dict[str, list[str]]) -> Group:
    """All neighbours that are one step nearer, weighted by the rates of the trunks to them."""
    nearer = [n for n in live[switch] if distance[n] < distance[switch]]
    rates = [topology.rate_bytes_per_s[frozenset((switch, n))] for n in nearer]
    most = max(rates)
    ports = topology.ports[switch]
    return Group(
        GroupKind.SELECT,
        tuple(
            GroupBucket(ports[n], max(1, round(MAX_WEIGHT * r / most)))
            for n, r in zip(nearer, rates, strict=True)
        ),
    )


def _arp(topology: Topology, switch: str) -> Iterable[FlowRule]:
    """Answers for every host of the campus, at switches that have hosts; none for hosts behind the port that asks."""
    here = topology.stations_at[switch]
    if not here:
        return
    for station in topology.stations:
        asked: tuple[tuple[str, int | str], ...] = (
            ("eth_type", ETH_ARP),
            ("arp_op", ARP_REQUEST),
            ("arp_tpa", station.address),
        )
        yield FlowRule(ARP, 1, asked, AnswerArp(station.mac, station.address))
    for station in here:
        asked = (
            ("in_port", station.port),
            ("eth_type", ETH_ARP),
            ("arp_op", ARP_REQUEST),
            ("arp_tpa", station.address),
        )
        yield FlowRule(ARP, 2, asked, Drop())
