"""Routes of migrations over a campus: up to the lowest common ancestor in a tree, then down.

A campus whose cables are a tree has no other routes. One with several paths has a tree too, which `tree_of` picks: breadth first
from the root, over trunks that are alive. The tables of programmed switches (`controller/openflow/routes.py`), the coordinator's
plans and the virtual campus all take it from there, so a grant travels the links that it is charged on. When a trunk dies or
comes back there is another tree (`Routes.follow`).
"""

from __future__ import annotations

import difflib
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Set
from itertools import chain

from topologies.errors import SpecError
from topologies.spec import Campus, DirectedLink, Link, Tier

# routes that are remembered: flows are few, and the same ones are asked for again and again
MOST_KNOWN = 1 << 17


DeadTrunks = Collection[frozenset[str]]  # each by its two switches
NONE_DEAD: frozenset[frozenset[str]] = frozenset()


def tree_of(root: str, switches: Iterable[str], live: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """switch -> its neighbours in the tree: breadth first from the root, then from the first switch of what is cut off.

    `live`: each switch's neighbours over trunks that are alive, in the order of the trunks.
    """
    tree: dict[str, list[str]] = {switch: [] for switch in switches}
    seen: set[str] = set()
    for first in chain([root], tree):
        if first in seen:
            continue
        seen.add(first)
        todo = [first]
        for switch in todo:  # grows while it is walked
            for neighbour in live[switch]:
                if neighbour not in seen:
                    seen.add(neighbour)
                    tree[switch].append(neighbour)
                    tree[neighbour].append(switch)
                    todo.append(neighbour)
    return tree


def junctions(campus: Campus) -> list[str]:
    """Switches with two trunks or more, in order: where a packet may have a choice."""
    switches = campus.switch_by_name
    return [name for name in switches if len(campus.neighbours[name].keys() & switches.keys()) > 1]


def dead_trunks(capacity_bytes_per_s: Mapping[DirectedLink, float]) -> frozenset[frozenset[str]]:
    """Cables that carry nothing in one direction, or in both."""
    return frozenset(frozenset(link) for link, rate in capacity_bytes_per_s.items() if rate <= 0.0)


class Routes:
    """Paths between nodes (hosts or switches) of one campus; construction is linear in its nodes. `root`: the tree's.

    `has_choice`: whether the campus has more than one path anywhere. What dead trunks cut off hangs on one of them, so that
    every pair has a route; those over a dead trunk carry nothing.
    """

    def __init__(self, campus: Campus, dead: DeadTrunks = NONE_DEAD) -> None:
        self._campus = campus
        self._parent: dict[str, str] = {}
        self._depth: dict[str, int] = {}
        self._up: dict[str, DirectedLink] = {}
        self._down: dict[str, DirectedLink] = {}
        self._known: dict[tuple[str, str], tuple[DirectedLink, ...]] = {}
        self.root = _root(campus)
        self.has_choice = len(campus.links) >= len(campus.nodes)
        self.dead = frozenset(dead)
        self._hang_from(self.root)

    def follow(self, dead: DeadTrunks) -> bool:
        """These trunks are dead from now on, and no others.

        Whether any route is another, or one that was live is dead, or was dead is live: never said of a campus that is a tree.
        """
        before_dead, self.dead = self.dead, frozenset(dead)
        if not self.has_choice or self.dead == before_dead:
            return False
        before = self._parent, self._dead_in_tree(before_dead)
        self._parent, self._depth, self._up, self._down = {}, {}, {}, {}
        self._hang_from(self.root)
        self._known.clear()
        return (self._parent, self._dead_in_tree(self.dead)) != before

    def _dead_in_tree(self, dead: Set[frozenset[str]]) -> Set[frozenset[str]]:
        return {trunk for trunk in dead if any(self._parent.get(a) in trunk - {a} for a in trunk)}

    def equals(self, other: Routes) -> bool:
        """Whether all routes of the same campus are the same."""
        return self._parent == other._parent

    def is_live(self, a: str, b: str) -> bool:
        """Whether the route between two nodes crosses no dead trunk."""
        return not any(frozenset(link) in self.dead for link in self.route(a, b))

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

    def _tree(self) -> Mapping[str, Iterable[str]]:
        """node -> its neighbours in the tree of all nodes."""
        campus = self._campus
        if not self.has_choice:
            return campus.neighbours
        inner = junctions(campus)
        live = {a: [b for b in campus.neighbours[a] if frozenset((a, b)) not in self.dead] for a in inner}
        live = {a: [b for b in near if b in live] for a, near in live.items()}
        # the root's own switch, if the root is a leaf of the trunks
        first = next((s for s in (self.root, *campus.neighbours[self.root]) if s in live), inner[0])
        tree = dict.fromkeys((node.name for node in campus.nodes), ()) | tree_of(first, inner, live)
        near = {node: list(others) for node, others in tree.items()}
        # all else has one cable, and a part that is cut off hangs on a dead one
        part = {node: node for node in near}

        def top(node: str) -> str:
            while part[node] != node:
                part[node] = part[part[node]]
                node = part[node]
            return node

        for a, others in tree.items():
            for b in others:
                part[top(a)] = top(b)
        for link in campus.links:
            if top(link.a) != top(link.b):
                part[top(link.a)] = top(link.b)
                near[link.a].append(link.b)
                near[link.b].append(link.a)
        return near

    def _hang_from(self, root: str) -> None:
        tree = self._tree()
        self._depth[root] = 0
        todo = [root]
        for node in todo:  # grows while it is walked: breadth first
            for child in tree[node]:
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


class RouteHistory:
    """Routes over a run: those of a campus whose trunks are all alive, until `follow` says otherwise. Times do not go back."""

    def __init__(self, campus: Campus) -> None:
        self.campus = campus
        self._times_s, self._routes = [-math.inf], [Routes(campus)]

    @property
    def latest(self) -> Routes:
        """The routes of now."""
        return self._routes[-1]

    def follow(self, at_s: float, dead: DeadTrunks) -> bool:
        """These trunks are dead from then on, and no others. Whether routes are others."""
        if not self.latest.has_choice or self.latest.dead == frozenset(dead):
            return False
        routes = Routes(self.campus, dead)
        is_other = not routes.equals(self.latest)
        self._times_s.append(at_s)
        self._routes.append(routes)
        return is_other

    def at(self, at_s: float) -> Routes:
        """The routes of that time."""
        return self._routes[bisect_right(self._times_s, at_s) - 1]

    def links_of(self, a: str, b: str, from_s: float, until_s: float) -> frozenset[DirectedLink]:
        """The links from a to b of all routes in that time."""
        first, last = bisect_right(self._times_s, from_s) - 1, bisect_right(self._times_s, until_s)
        return frozenset(link for routes in self._routes[first:last] for link in routes.route(a, b))


def _root(campus: Campus) -> str:
    """The core, where there is one: it keeps routes in the tree as shallow as they are in the campus."""
    core = (switch.name for switch in campus.switches if switch.tier is Tier.CORE)
    return next(core, campus.switches[0].name if campus.switches else campus.hosts[0].name)
