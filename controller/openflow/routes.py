"""Routes of a campus with several paths: topology, dead trunks, pins and loads in, every switch's tables out.

Pure; a restart finds the same.

Two kinds of traffic take two kinds of route.

**The testbed's own classes** (EF, AF41, CS1) travel one tree: breadth first from the root, over live trunks, in the order in
which the campus names them. `topologies.paths.tree_of` picks it, here and for P3, which charges its paths; a grant never meets
another's link by the accident of a hash. A tree has no loops, and reaches whatever can be reached. Each switch also knows a way
around its own dead trunk, which it takes within milliseconds and by itself: a neighbour whose way to the destination does not
lead back here (a loop-free alternate, RFC 5286). With one trunk dead this cannot loop: the neighbour's way does not pass this
switch, so it does not meet the dead trunk either. With two dead at once it may, for the milliseconds until the controller has
new routes.

**Pins.** From one host to another the own classes may be pinned to another way, as P3 charges it: a rule for the two
addresses at each switch of the way but the last, above those of the tree. It leads into a group of its own: the first
bucket is the way's. The others are neighbours from which the tree leads to the end without meeting the way again, so
local failover cannot loop. A pin whose way crosses a dead trunk is left out, and its packets take the tree.

**Research** takes all shortest live paths: SELECT groups hash connections over the next hops, each weighted by its
room: what grants leave of the trunk there, and no more than the room of the ways that go on from there. Every step
comes one nearer, so no loop is possible, whatever the hash decides. Open vSwitch hashes a connection alike at every
switch, and looks at the last bits: of what one switch has sent to the left the next would send all to the left again.
Half of a fat tree's core would stay empty. So each slot of the hash is a bucket of its own, and slots are dealt out
in an order that is the switch's own.

Nothing is learned from packets. ARP is answered by the first switch that receives it. If the host that is asked for
hangs on the very port that the question came from, no switch answers. The host does so itself, and a second answer
would teach the bridge there that it moved. What no rule names is dropped: there is no flooding, so loops in the
cabling are harmless.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

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
from topologies.openflow import Topology, WayPin
from topologies.paths import NONE_DEAD, DeadTrunks, breadth_first, distances_to, tree_of
from topologies.spec import TrafficClass

CLASSIFY, ARP, OWN, RESEARCH = 0, 1, 2, 3  # tables, in the order of the pipeline
ETH_IPV4, ETH_ARP, ARP_REQUEST = 0x0800, 0x0806, 1
# Of a connection's hash, by which research is shared: Open vSwitch looks at as many bits as there are buckets, 16 to 64. To up to
# FEW next hops 16 slots are dealt out, to more 64.
FEW, SLOTS, MOST_SLOTS = 4, 16, 64
# Research has a reserve on every trunk, so one that grants fill still counts as this part of its rate.
LEAST_ROOM = 1 / 16
NO_LOADS: Mapping[tuple[str, str], float] = {}


def tables(
    topology: Topology,
    dead: DeadTrunks = NONE_DEAD,
    pins: Iterable[WayPin] = (),
    loads: Mapping[tuple[str, str], float] = NO_LOADS,
) -> dict[str, SwitchTables]:
    """Return every switch's tables.

    `dead`: trunks (their two switches) that carry nothing, or are to be left; what they cut off is unreachable.
    `pins`: those that cannot be (a dead trunk, no such host) are left out. `loads`: bytes/s that are granted from one
    switch to another; they move research alone, for grants have their way by then.
    """
    live = live_neighbours(topology, dead)
    tree = tree_of(topology.root, topology.switches, live)
    targets = [name for name, stations in topology.stations_at.items() if stations]
    distances = {target: distances_to(target, live.__getitem__) for target in targets}
    own_hops = {target: own_hops_to(target, tree, live, distances[target], targets) for target in targets}
    research_hops = {target: research_hops_to(topology, distances[target], live, loads) for target in targets}
    own_dscps = [traffic.dscp for traffic in TrafficClass if traffic is not TrafficClass.RESEARCH]
    classification = [
        FlowRule(CLASSIFY, 3, (("eth_type", ETH_ARP),), GotoTable(ARP)),
        *(FlowRule(CLASSIFY, 2, (("eth_type", ETH_IPV4), ("ip_dscp", dscp)), GotoTable(OWN)) for dscp in own_dscps),
        FlowRule(CLASSIFY, 1, (), GotoTable(RESEARCH)),
    ]
    pinned: dict[str, list[tuple[FlowRule, Group, int, int]]] = {switch: [] for switch in topology.switches}
    for pin in pins:
        for switch, entry in _pin(topology, pin, live, own_hops, 2 * len(targets)):
            pinned[switch].append(entry)
    depths = {target: _steps(own_hops[target], target) for target in targets}
    made = {}
    for switch in topology.switches:
        groups: dict[int, Group] = {}
        stages: dict[int, int] = {}
        rules = [*classification, *_arp(topology, switch)]
        for number, target in enumerate(targets):
            own, research = 2 * number + 1, 2 * number + 2
            if target != switch:
                if switch not in own_hops[target]:
                    continue  # nothing leads there: its packets are dropped here
                groups[own] = _failover(topology, switch, own_hops[target], live)
                groups[research] = _share(switch, topology.ports[switch], research_hops[target][switch])
                stages[own], stages[research] = depths[target][switch], distances[target][switch]
            for station in topology.stations_at[target]:
                match = (("eth_dst", station.mac),)
                here = Output(station.port)
                rules.append(FlowRule(OWN, 1, match, here if target == switch else ToGroup(own)))
                rules.append(FlowRule(RESEARCH, 1, match, here if target == switch else ToGroup(research)))
                if target != switch:
                    stages[rules[-2].cookie], stages[rules[-1].cookie] = stages[own], stages[research]
        for rule, group, number, stage in pinned[switch]:
            rules.append(rule)
            groups[number] = group
            stages[rule.cookie] = stages[number] = stage
        made[switch] = SwitchTables({rule.cookie: rule for rule in rules}, groups, stages)
    return made


def _pin(
    topology: Topology, pin: WayPin, live: dict[str, list[str]], own_hops: dict[str, dict[str, str]], groups_before: int
) -> Iterator[tuple[str, tuple[FlowRule, Group, int, int]]]:
    """Yield each switch of the way but the last, and what it gets: rule, group, the group's number, stage."""
    way = [node for node in pin.nodes if node in topology.switches]
    source, target = topology.station_of.get(pin.nodes[0]), topology.station_of.get(pin.nodes[-1])
    if source is None or target is None or not way or (way[0], way[-1]) != (source.switch, target.switch):
        return
    if len(set(way)) != len(way) or any(b not in live[a] for a, b in pairwise(way)):
        return
    ends = (("eth_type", ETH_IPV4), ("ipv4_src", source.address), ("ipv4_dst", target.address))
    number, hops = groups_before + pin.number, own_hops.get(way[-1], {})
    for stage, (switch, following) in zip(range(len(way) - 1, 0, -1), pairwise(way), strict=True):
        around = [following]
        for neighbour in live[switch]:
            node = neighbour
            while node in hops and node not in way:
                node = hops[node]
            if neighbour not in way and node == way[-1]:
                around.append(neighbour)
        ports = topology.ports[switch]
        group = Group(GroupKind.FAST_FAILOVER, tuple(GroupBucket(ports[n]) for n in around))
        yield switch, (FlowRule(OWN, 2, ends, ToGroup(number)), group, number, stage)


def tables_meanwhile(
    topology: Topology,
    dead: DeadTrunks,
    pins: Collection[WayPin],
    before: Iterable[WayPin],
    loads: Mapping[tuple[str, str], float] = NO_LOADS,
) -> dict[str, SwitchTables]:
    """Return tables that lead all packets as `tables` does, to be taken first by switches that had the pins `before`."""
    stay = {(pin.nodes[0], pin.nodes[-1]) for pin in pins}
    given_up = [pin for pin in before if (pin.nodes[0], pin.nodes[-1]) not in stay]
    home = [pin for old in given_up if (pin := along_the_tree(topology, dead, old)) is not None]
    return tables(topology, dead, (*pins, *home), loads)


def along_the_tree(topology: Topology, dead: DeadTrunks, pin: WayPin) -> WayPin | None:
    """Return the same pin, by the tree's way; None, if there is none."""
    source, target = topology.station_of.get(pin.nodes[0]), topology.station_of.get(pin.nodes[-1])
    if source is None or target is None:
        return None
    live = live_neighbours(topology, dead)
    tree, distance = (tree_of(topology.root, topology.switches, live), distances_to(target.switch, live.__getitem__))
    hops, way = own_hops_to(target.switch, tree, live, distance, [source.switch]), [source.switch]
    while way[-1] != target.switch:
        if way[-1] not in hops:
            return None
        way.append(hops[way[-1]])
    return WayPin(pin.number, (source.host, *way, target.host))


def _steps(hops: dict[str, str], target: str) -> dict[str, int]:
    """Return, for each switch, how many switches a packet still passes on its way to the target, itself left out."""
    steps = {target: 0}
    for switch in hops:
        passed = [switch]
        while passed[-1] not in steps:
            passed.append(hops[passed[-1]])
        for node in reversed(passed[:-1]):
            steps[node] = steps[hops[node]] + 1
    return steps


def live_neighbours(topology: Topology, dead: DeadTrunks) -> dict[str, list[str]]:
    """Return the neighbours of each switch over trunks that are not dead, in the order of the trunks."""
    gone = frozenset(dead)
    return {s: [n for n in ports if frozenset((s, n)) not in gone] for s, ports in topology.ports.items()}


def own_hops_to(
    target: str,
    tree: dict[str, list[str]],
    live: dict[str, list[str]],
    distance: dict[str, int],
    sources: Collection[str],
) -> dict[str, str]:
    """Return the next switch of each for the own classes towards `target`; itself and what cannot reach it are absent.

    Switches on the tree's way from one of `sources` (where hosts hang) take the tree; the next one is on that way,
    too. The others meet such packets only on a way around a dead trunk. They take a shortest way, step by step nearer
    until they reach the target or a switch on the tree's way. So there are no loops.
    """
    in_tree = breadth_first(target, tree.__getitem__)
    hops = {
        switch: next(n for n in live[switch] if distance[n] < steps)
        for switch, steps in distance.items()
        if switch != target
    }
    for source in sources:
        while source in in_tree:
            hops[source] = source = in_tree[source]
    return hops


def _failover(topology: Topology, switch: str, hops: dict[str, str], live: dict[str, list[str]]) -> Group:
    """Return the next hop, then every neighbour whose own way does not lead back here."""
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


def research_hops_to(
    topology: Topology,
    distance: Mapping[str, int],
    live: Mapping[str, list[str]],
    loads: Mapping[tuple[str, str], float] = NO_LOADS,
) -> dict[str, dict[str, int]]:
    """Return, for each switch, the slots of each neighbour that is one step nearer to the target.

    Research is shared as there is room by it. `distance`: `paths.distances_to` the target, the nearest first. Of the
    target itself there is no neighbour.
    """
    rooms: dict[str, dict[str, float]] = {}  # bytes/s of research
    slots: dict[str, dict[str, int]] = {}
    for switch in distance:
        rooms[switch] = {}
        for neighbour in live[switch]:
            if distance[neighbour] < distance[switch]:
                rate = topology.rate_bytes_per_s[frozenset((switch, neighbour))]
                left = max(rate - loads.get((switch, neighbour), 0.0), rate * LEAST_ROOM)
                rooms[switch][neighbour] = min(left, sum(rooms[neighbour].values()) or math.inf)
        dealt = _deal(tuple(rooms[switch].values()))
        slots[switch] = dict(zip(rooms[switch], dealt, strict=True))
    return slots


@lru_cache(1024)
def _deal(rooms: tuple[float, ...]) -> tuple[int, ...]:
    """Deal slots of a hash in proportion to these, one at least (by the method of Webster: less room never means more slots)."""
    slots = [1] * len(rooms)
    if len(rooms) > 1:
        for _ in range((SLOTS if len(rooms) <= FEW else MOST_SLOTS) - len(rooms)):
            ratios = [room / (2 * its + 1) for room, its in zip(rooms, slots, strict=True)]
            slots[ratios.index(max(ratios))] += 1
    return tuple(slots)


def _share(switch: str, ports: Mapping[str, int], slots: Mapping[str, int]) -> Group:
    """Return a bucket for each slot; where a next hop gets more or fewer, only those slots lead elsewhere."""
    order = _order(switch, sum(slots.values()))
    led = [ports[neighbour] for neighbour, its in slots.items() for _ in range(its)]
    return Group(GroupKind.SELECT, tuple(GroupBucket(port, 1) for _, port in sorted(zip(order, led, strict=True))))


@lru_cache(1024)
def _order(switch: str, count: int) -> tuple[int, ...]:
    """Return the slots in the order in which this switch deals them out: as if drawn, and the same in every process."""
    drawn = [blake2b(f"{switch} {slot}".encode(), digest_size=8).digest() for slot in range(count)]
    return tuple(sorted(range(count), key=drawn.__getitem__))


def _arp(topology: Topology, switch: str) -> Iterable[FlowRule]:
    """Yield answers for every host of the campus, at switches that have hosts; none for hosts behind the port that asks."""
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
