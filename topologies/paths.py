"""Routes over a campus. It is a tree, so a route is: up to the lowest common ancestor, then down."""

from __future__ import annotations

import difflib

from topologies.errors import SpecError
from topologies.spec import Campus, DirectedLink, Link, Tier

# routes that are remembered: flows are few, and the same ones are asked for again and again
MOST_KNOWN = 1 << 17


class Routes:
    """Paths between nodes (hosts or switches) of one campus; construction is linear in its nodes. `root`: the tree's."""

    def __init__(self, campus: Campus) -> None:
        self._campus = campus
        self._parent: dict[str, str] = {}
        self._depth: dict[str, int] = {}
        self._up: dict[str, DirectedLink] = {}
        self._down: dict[str, DirectedLink] = {}
        self._known: dict[tuple[str, str], tuple[DirectedLink, ...]] = {}
        self.root = _root(campus)
        self._hang_from(self.root)

    def route(self, a: str, b: str) -> tuple[DirectedLink, ...]:
        """The directed links from a to b, in order; empty if a is b. SpecError if either is not of the campus."""
        known = self._known.get((a, b))
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._check(a)
            self._check(b)
            up: list[DirectedLink] = []
            down: list[DirectedLink] = []
            from_a, to_b = a, b
            while from_a != to_b:
                if self._depth[from_a] >= self._depth[to_b]:
                    up.append(self._up[from_a])
                    from_a = self._parent[from_a]
                else:
                    down.append(self._down[to_b])
                    to_b = self._parent[to_b]
            known = self._known[a, b] = (*up, *reversed(down))
        return known

    def links_of(self, a: str, b: str) -> tuple[Link, ...]:
        """The cables from a to b, in order, with their rates, delays and losses."""
        neighbours = self._campus.neighbours
        return tuple(neighbours[step.source][step.target] for step in self.route(a, b))

    def bottleneck(self, a: str, b: str) -> tuple[float, DirectedLink]:
        """(bytes/s on the wire, the link that binds) of the narrowest link from a to b: the first, if several are.

        bw_bot of paper A, eq. (10), of an empty network. SpecError if a is b (no link binds) or a node is unknown.
        """
        route = self.route(a, b)
        if not route:
            raise SpecError("route", f"{a} to {b}", "two different nodes")
        capacity = self._campus.capacity_bytes_per_s
        narrowest = min(route, key=capacity.__getitem__)
        return capacity[narrowest], narrowest

    def delay_s(self, a: str, b: str) -> float:
        """One-way propagation delay from a to b."""
        return sum(link.delay_s for link in self.links_of(a, b))

    def _hang_from(self, root: str) -> None:
        self._depth[root] = 0
        todo = [root]
        for node in todo:  # grows while it is walked: breadth first
            for child in self._campus.neighbours[node]:
                if child not in self._depth:
                    self._parent[child], self._depth[child] = node, self._depth[node] + 1
                    self._up[child], self._down[child] = DirectedLink(child, node), DirectedLink(node, child)
                    todo.append(child)

    def _check(self, node: str) -> None:
        if node not in self._depth:
            near = difflib.get_close_matches(str(node), self._depth, n=1)
            hint = f" (nearest: {near[0]})" if near else ""
            raise SpecError(
                "route", node, f"the name of a host or a switch of campus {self._campus.name}{hint}"
            )


def _root(campus: Campus) -> str:
    """The core, where there is one: it keeps routes in the tree as shallow as they are in the campus."""
    core = (switch.name for switch in campus.switches if switch.tier is Tier.CORE)
    return next(core, campus.switches[0].name if campus.switches else campus.hosts[0].name)
