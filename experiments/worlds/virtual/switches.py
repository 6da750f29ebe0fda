"""The switches of a campus with several paths.

Their tables are those that a live campus's controller would send, and packets of the testbed's own follow them.
Research follows their SELECT groups: of many connections each way gets its part, and a single one takes the way of its
hash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from controller.openflow.forwarding import Hops, TableWalk, way_of_one, ways_of_many
from controller.openflow.routes import NO_LOADS, live_neighbours, research_hops_to, tables
from testbed.emulation.description.openflow import topology_of
from testbed.emulation.description.plan import plan
from topologies.openflow import WayPin
from topologies.paths import NONE_DEAD, DeadTrunks, Routes, Way, distances_to
from topologies.spec import Campus, DirectedLink, TrafficClass

Ways = tuple[tuple[float, Way], ...]  # part of the whole, and where it goes


class ProgrammedSwitches:
    """The programmed switches of a campus. `routes`: for traffic that does not pass them, or can only be dropped."""

    def __init__(self, campus: Campus, routes: Routes) -> None:
        self._campus, self._routes = campus, routes
        self._topology = topology_of(plan(campus))
        self._left: DeadTrunks = NONE_DEAD
        self._pins: tuple[WayPin, ...] = ()
        self._loads: Mapping[tuple[str, str], float] = NO_LOADS
        self._walk: TableWalk | None = None
        self._known: dict[tuple[str, str, TrafficClass], Way] = {}
        self._live = live_neighbours(self._topology, self._left)
        # of research, by target switch: trunks to cross, next hops
        self._distance: dict[str, dict[str, int]] = {}
        self._hops: dict[str, Hops] = {}
        # by both ends; and by the target switch which of them change with the next hops of a switch
        self._shared: dict[tuple[str, str], Ways] = {}
        self._through: dict[str, dict[str, set[tuple[str, str]]]] = {}

    def follow(self, left: DeadTrunks, pins: Sequence[WayPin]) -> bool:
        """Use tables that lead over none of these trunks, and pin traffic to its ways. Return whether other trunks are left."""
        are_others = left != self._left
        if are_others or tuple(pins) != self._pins:
            self._left, self._pins, self._walk = left, tuple(pins), None
            self._known.clear()
        if are_others:
            self._live = live_neighbours(self._topology, self._left)
            for known in (self._distance, self._hops, self._shared, self._through):
                known.clear()
        return are_others

    def weigh(self, loads: Mapping[tuple[str, str], float]) -> bool:
        """Weigh groups by what grants take of trunks, wire bytes/s.

        Return whether some that were asked for share in other parts now.
        """
        self._loads, are_others = loads, False
        for target, before in self._hops.items():
            now = research_hops_to(self._topology, self._distance[target], self._live, loads)
            if now != before:
                self._hops[target], are_others = now, True
                through = self._through.get(target, {})
                for switch, hops in now.items():
                    if hops != before[switch]:
                        for ends in through.pop(switch, ()):
                            self._shared.pop(ends, None)
        return are_others

    def way(self, source: str, target: str, traffic: TrafficClass) -> Way:
        """Return the links that the testbed's packets travel, by the tables.

        Where no trunk is left that leads there they are dropped: the links are those of a way that carries nothing.
        ValueError: they are dropped although a way is left.
        """
        key = (source, target, traffic)
        if key not in self._known:
            self._known[key] = self._led(*key)
        return self._known[key]

    def _led(self, source: str, target: str, traffic: TrafficClass) -> Way:
        stations = self._topology.station_of
        begin, end = stations.get(source), stations.get(target)
        if begin is None or end is None or (begin.switch, begin.port) == (end.switch, end.port):
            return self._routes.route(source, target)
        if self._walk is None:
            made = tables(self._topology, self._left, self._pins)
            self._walk = TableWalk(self._topology, made, self._left)
        led = self._walk.way(begin, end, traffic)
        if led is None:
            broken = self._routes.route(source, target)
            if not any(frozenset((link.source, link.target)) in self._left for link in broken):
                raise ValueError(f"tables drop packets from {source} to {target}, and {broken} is left")
            return broken
        return _links([*self._edge(source)[:-1], *led, *reversed(self._edge(target)[:-1])])

    def shared(self, source: str, target: str) -> Ways:
        """Return the ways of many connections of research, and which part of them takes each.

        The ends may be switches, too.

        Where no trunk is left that leads there they are dropped: the way is one that carries nothing.
        """
        ends = (source, target)
        if ends not in self._shared:
            self._shared[ends] = self._ways_of_research(*ends, ways_of_many)
            through = self._through.setdefault(self._edge(target)[-1], {})
            for _, way in self._shared[ends]:
                for link in way:
                    through.setdefault(link.source, set()).add(ends)
        return self._shared[ends]

    def hashed(self, source: str, target: str, hash_at: Callable[[str], float]) -> Way:
        """Return the way of one connection of research; `hash_at`: its hash at a switch, from 0 to less than 1."""
        ((_, way),) = self._ways_of_research(
            source, target, lambda hops, begin: [(1.0, way_of_one(hops, begin, hash_at))]
        )
        return way

    def _ways_of_research(
        self,
        source: str,
        target: str,
        ways_of: Callable[[Hops, str], list[tuple[float, list[str]]]],
    ) -> Ways:
        begin, end = self._edge(source), self._edge(target)
        to = end[-1]
        if to not in self._hops:
            self._distance[to] = distances_to(to, self._live.__getitem__)
            self._hops[to] = research_hops_to(self._topology, self._distance[to], self._live, self._loads)
        hops = self._hops[to]
        if begin[-1] not in hops or not set(begin[:-1]).isdisjoint(
            end[:-1]
        ):  # dropped; or both behind one bridge
            return ((1.0, self._routes.route(source, target)),)
        return tuple(
            (part, _links([*begin[:-1], *led, *reversed(end[:-1])])) for part, led in ways_of(hops, begin[-1])
        )

    def _edge(self, node: str) -> list[str]:
        """Return a node, the bridge that it hangs on, if there is one, and the programmed switch where its packets come in."""
        switches, nodes = self._campus.switch_by_name, [node]
        while nodes[-1] not in self._topology.switches:
            nodes.append(next(near for near in self._campus.neighbours[nodes[-1]] if near in switches))
        return nodes


def _links(nodes: Sequence[str]) -> Way:
    return tuple(map(DirectedLink, nodes, nodes[1:]))
