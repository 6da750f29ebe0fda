"""Ways that packets take through the switches' tables: the virtual campus sends by these.

The testbed's own classes are looked up as switches do (`TableWalk`). Research is shared by SELECT groups: hashes of
many connections are independent, so of all that comes to a switch each neighbour gets the part of its slots
(`ways_of_many`). One connection goes by its hash (`way_of_one`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from math import fsum, inf

from controller.openflow.routes import CLASSIFY, ETH_IPV4
from controller.openflow.tables import (
    Action,
    Drop,
    FlowRule,
    GotoTable,
    GroupKind,
    Output,
    SwitchTables,
    ToGroup,
)
from topologies.openflow import Station, Topology
from topologies.paths import NONE_DEAD, DeadTrunks
from topologies.spec import TrafficClass

Packet = Mapping[str, int | str]
# switch -> each neighbour that is one step nearer to the target -> its slots
Hops = Mapping[str, Mapping[str, int]]
LEAST_PART = 1e-9  # of the whole: less is what rounding left


class TableWalk:
    """Packets of one version of all switches' tables. `dead`: trunks whose ports are down, which switches see for themselves."""

    def __init__(
        self, topology: Topology, tables: Mapping[str, SwitchTables], dead: DeadTrunks = NONE_DEAD
    ) -> None:
        self._topology, self._groups = topology, {switch: its.groups for switch, its in tables.items()}
        self._tables = tables
        self._lookups: dict[str, _Lookup] = {}
        self._leads_to = {
            (switch, port): neighbour
            for switch, ports in topology.ports.items()
            for neighbour, port in ports.items()
            if frozenset((switch, neighbour)) not in frozenset(dead)
        }
        self._trunks = {(s, port) for s, ports in topology.ports.items() for port in ports.values()}

    def way(self, source: Station, target: Station, traffic: TrafficClass) -> list[str] | None:
        """Return the switches that a host's packets to another pass, in order; None: they are dropped on their way.

        ValueError: it is of a class that switches share by a hash of each connection, or it goes in a circle.
        """
        packet: dict[str, int | str] = {
            "eth_type": ETH_IPV4,
            "ip_dscp": traffic.dscp,
            "eth_src": source.mac,
            "eth_dst": target.mac,
            "ipv4_src": source.address,
            "ipv4_dst": target.address,
        }
        way, came_by = [source.switch], source.port
        while True:
            here = way[-1]
            port = self._port_out(here, {**packet, "in_port": came_by})
            if port is None or port == came_by:
                return None
            if (here, port) not in self._trunks:
                return way if (here, port) == (target.switch, target.port) else None
            there = self._leads_to.get((here, port))
            if there is None:
                return None
            if there in way:
                raise ValueError(
                    f"packets from {source.host} to {target.host} go in a circle: {[*way, there]}"
                )
            way.append(there)
            came_by = self._topology.ports[there][here]

    def _port_out(self, switch: str, packet: Packet) -> int | None:
        lookup = self._lookups.get(switch)
        if lookup is None:
            lookup = self._lookups[switch] = _Lookup(self._tables[switch])
        match lookup.action(packet):
            case Output(port):
                return port
            case ToGroup(number):
                group = self._groups[switch][number]
                if group.kind is not GroupKind.FAST_FAILOVER:
                    raise ValueError(f"{switch} shares these packets by a hash of each connection")
                ports = (bucket.port for bucket in group.buckets)
                return next((port for port in ports if (switch, port) in self._leads_to), None)
        return None


class _Lookup:
    """The rules of one switch: by table, then by the fields that they match, then by the values of those."""

    def __init__(self, tables: SwitchTables) -> None:
        self._rules: dict[int, dict[tuple[str, ...], dict[tuple[int | str, ...], FlowRule]]] = {}
        for rule in tables.rules.values():
            fields = tuple(name for name, _ in rule.match)
            same = self._rules.setdefault(rule.table, {}).setdefault(fields, {})
            values = tuple(value for _, value in rule.match)
            if values not in same or same[values].priority < rule.priority:
                same[values] = rule

    def action(self, packet: Packet) -> Action:
        """Return the pipeline's last action on a packet; it is dropped where no rule matches."""
        table = CLASSIFY
        while True:
            best: FlowRule | None = None
            for fields, rules in self._rules.get(table, {}).items():
                rule = rules.get(tuple(packet.get(name, "") for name in fields))
                if rule is not None and (best is None or rule.priority > best.priority):
                    best = rule
            match best.action if best is not None else Drop():
                case GotoTable(table):
                    pass
                case action:
                    return action


def ways_of_many(hops: Hops, source: str) -> list[tuple[float, list[str]]]:
    """Return (part of the whole, switches in order) of each way that many connections take to the target; parts add up to 1.

    There may be more shortest ways than can be counted; as many as there are trunks are enough for each to carry its part.
    """
    arriving, part_on, todo = {source: 1.0}, dict[tuple[str, str], float](), [source]
    for switch in (
        todo
    ):  # grows while it is walked: those that are further from the target first, for each step is one nearer
        total = sum(hops[switch].values())
        for neighbour, its in hops[switch].items():
            if neighbour not in arriving:
                arriving[neighbour] = 0.0
                todo.append(neighbour)
            part_on[switch, neighbour] = arriving[switch] * its / total
            arriving[neighbour] += part_on[switch, neighbour]
    if not hops[source]:
        return [(1.0, [source])]
    ways = []
    # each turn takes the part of the narrowest trunk of a way, so that nothing is left for it; always in the same order of next
    # hops, so that a small change of parts leaves the ways as they are
    while any(part_on[source, there] > LEAST_PART for there in hops[source]):
        way, part = [source], inf
        while leading := hops[way[-1]]:
            here = way[-1]
            way.append(
                next((there for there in leading if part_on[here, there] > LEAST_PART), next(iter(leading)))
            )
            part = min(part, part_on[here, way[-1]])
        if part <= LEAST_PART:
            break
        for ends in pairwise(way):
            part_on[ends] -= part
        ways.append((part, way))
    whole = fsum(part for part, _ in ways)
    return [(part / whole, way) for part, way in ways]


def way_of_one(hops: Hops, source: str, hash_at: Callable[[str], float]) -> list[str]:
    """Return the switches that one connection passes to the target. `hash_at`: its hash at a switch, from 0 to less than 1."""
    way = [source]
    while leading := hops[way[-1]]:
        below = accumulate(leading.values())
        slot = hash_at(way[-1]) * sum(leading.values())
        way.append(next(neighbour for neighbour, end in zip(leading, below, strict=True) if slot < end))
    return way
