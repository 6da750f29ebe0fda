"""Research on a campus with several paths: it follows the SELECT groups of its programmed switches.

Of many connections each way gets its part, and a single one takes the way of its hash. The testbed's own traffic takes
`Routes.way`, where the tables lead it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from controller.openflow.forwarding import Hops, way_of_one, ways_of_many
from controller.openflow.routes import NO_LOADS, live_neighbours, research_hops_to
from testbed.emulation.description.openflow import topology_of
from testbed.emulation.description.plan import plan
from topologies.paths import NONE_DEAD, DeadTrunks, Routes, Way, distances_to
from topologies.spec import Campus, DirectedLink

Ways = tuple[tuple[float, Way], ...]  # part of the whole, and where it goes


class ProgrammedSwitches:
    """The programmed switches of a campus. `routes`: for research that does not pass them, or can only be dropped."""

    def __init__(self, campus: Campus, routes: Routes) -> None:
        self._campus, self._routes = campus, routes
        self._topology = topology_of(plan(campus))
        self._left: DeadTrunks = NONE_DEAD
        self._loads: Mapping[tuple[str, str], float] = NO_LOADS
        self._live = live_neighbours(self._topology, self._left)
        # of research, by target switch: trunks to cross, next hops
        self._distance: dict[str, dict[str, int]] = {}
        self._hops: dict[str, Hops] = {}
        # by both ends; and by the target switch which of them change with the next hops of a switch
        self._shared: dict[tuple[str, str], Ways] = {}
        self._through: dict[str, dict[str, set[tuple[str, str]]]] = {}

    def follow(self, left: DeadTrunks) -> bool:
        """Lead research over none of these trunks. Return whether they are others than before."""
        are_others = left != self._left
        if are_others:
            self._left, self._live = left, live_neighbours(self._topology, left)
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
        self, source: str, target: str, ways_of: Callable[[Hops, str], list[tuple[float, list[str]]]]
    ) -> Ways:
        begin, end = self._edge(source), self._edge(target)
        to = end[-1]
        if to not in self._hops:
            self._distance[to] = distances_to(to, self._live.__getitem__)
            self._hops[to] = research_hops_to(self._topology, self._distance[to], self._live, self._loads)
        hops = self._hops[to]
        if begin[-1] not in hops or not set(begin[:-1]).isdisjoint(end[:-1]):  # dropped; or both behind one bridge
            return ((1.0, self._routes.route(source, target)),)
        return tuple((part, _links([*begin[:-1], *led, *reversed(end[:-1])])) for part, led in ways_of(hops, begin[-1]))

    def _edge(self, node: str) -> list[str]:
        """Return a node, the bridge that it hangs on, if there is one, and the programmed switch where its packets come in."""
        switches, nodes = self._campus.switch_by_name, [node]
        while nodes[-1] not in self._topology.switches:
            nodes.append(next(near for near in self._campus.neighbours[nodes[-1]] if near in switches))
        return nodes


def _links(nodes: Sequence[str]) -> Way:
    return tuple(map(DirectedLink, nodes, nodes[1:]))
