"""The switches of a campus with several paths: their tables are those that a live campus's controller would send, and packets of
the testbed's own go where these lead. (Research, which a hash shares over several ways, is taken to go by the tree.)"""

from __future__ import annotations

from collections.abc import Sequence

from controller.openflow.routes import tables
from controller.openflow.walk import TableWalk
from testbed.emulation.description.openflow import topology_of
from testbed.emulation.description.plan import plan
from topologies.openflow import WayPin
from topologies.paths import NONE_DEAD, DeadTrunks, Routes, Way
from topologies.spec import Campus, DirectedLink, TrafficClass


class ProgrammedSwitches:
    """All of a campus. `routes`: of what does not pass them, and of what can only be dropped."""

    def __init__(self, campus: Campus, routes: Routes) -> None:
        self._campus, self._routes = campus, routes
        self._topology = topology_of(plan(campus))
        self._left: DeadTrunks = NONE_DEAD
        self._pins: tuple[WayPin, ...] = ()
        self._walk: TableWalk | None = None
        self._known: dict[tuple[str, str, TrafficClass], Way] = {}

    def follow(self, left: DeadTrunks, pins: Sequence[WayPin]) -> None:
        """Have the tables that lead over none of these trunks, and pinned traffic by its ways."""
        if (left, tuple(pins)) != (self._left, self._pins):
            self._left, self._pins, self._walk = left, tuple(pins), None
            self._known.clear()

    def way(self, source: str, target: str, traffic: TrafficClass) -> Way:
        """The links that the testbed's packets travel, by the tables.

        Where no trunk is left that leads there they are dropped: the links are those of a way that carries nothing. ValueError:
        they are dropped although a way is left.
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
        nodes = [*self._edge(source, begin.switch), *led, *reversed(self._edge(target, end.switch))]
        return tuple(map(DirectedLink, nodes, nodes[1:]))

    def _edge(self, host: str, switch: str) -> list[str]:
        """The host, and the bridge that it hangs on, if that is not the switch."""
        access = next(iter(self._campus.neighbours[host]))
        return [host] if access == switch else [host, access]
