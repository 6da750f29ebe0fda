"""Routes of migrations over a campus: up to the lowest common ancestor in a tree, then down.

A campus whose cables are a tree has no other routes. One with several paths has a tree too, which `tree_of` picks:
breadth first from the root, over trunks that are alive. The tables of programmed switches
(`controller/openflow/routes.py`), the coordinator's plans and the virtual campus all take it from there. So a grant
travels the links that it is charged on. When a trunk dies or comes back there is another tree (`Routes.follow`).

Beside the tree, hosts have other ways to each other over trunks that are alive (`Routes.choices`). What the testbed sends from
one host to another takes one of them where it is pinned to it (`Routes.pin`), and else the tree's: its `way`. The other
direction, and whatever else the two hosts send each other, stays as it is.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from heapq import heappop, heappush
from itertools import chain, pairwise

from topologies.errors import SpecError, nearest
from topologies.spec import Campus, DirectedLink, Link, Parts, Tier

# routes that are remembered: flows are few, and the same ones are asked for again and again
MAX_KNOWN = 1 << 17
MAX_WAYS = 4  # between two hosts: more share their cables with these on campuses as they are built

Way = tuple[DirectedLink, ...]

DeadTrunks = Collection[frozenset[str]]  # each by its two switches
NONE_DEAD: frozenset[frozenset[str]] = frozenset()


def breadth_first(begin: str, near: Callable[[str], Iterable[str]]) -> dict[str, str]:
    """Return the node before each other one on a shortest way from `begin`, the nearest first. `near`: a node's neighbours."""
    before: dict[str, str] = {}
    todo = [begin]
    for node in todo:  # grows while it is walked
        for other in near(node):
            if other != begin and other not in before:
                before[other] = node
                todo.append(other)
    return before


def distances_to(target: str, near: Callable[[str], Iterable[str]]) -> dict[str, int]:
    """Return the cables to cross from each node to `target`, the nearest first; nodes that cannot reach it are absent."""
    distance = {target: 0}
    for node, before in breadth_first(target, near).items():
        distance[node] = distance[before] + 1
    return distance


def tree_of(root: str, switches: Iterable[str], live: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return each switch's neighbours in the tree: breadth first from the root, then from the first of each part cut off.

    `live`: each switch's neighbours over trunks that are alive, in the order of the trunks.
    """
    tree: dict[str, list[str]] = {switch: [] for switch in switches}
    seen: set[str] = set()
    for first in chain([root], tree):
        if first not in seen:
            before = breadth_first(first, live.__getitem__)
            seen.update([first], before)
            for switch, above in before.items():
                tree[above].append(switch)
                tree[switch].append(above)
    return tree


def ways_beside(first: Sequence[str], live: Mapping[str, Iterable[str]], most: int) -> list[list[str]]:
    """Return up to `most` simple ways between the ends of a way, that one first.

    Each next one shares as few trunks with those before as can be, and of these is the shortest; of equals it is the first in the
    order of the trunks. When the best is one that is there already, there are no more.
    """
    found, taken = [list(first)], dict[frozenset[str], int]()
    while len(found) < most:
        for ends in pairwise(found[-1]):
            taken[frozenset(ends)] = taken.get(frozenset(ends), 0) + 1
        begin, end = first[0], first[-1]
        best, came_from, order = {begin: (0, 0)}, dict[str, str](), 0
        heap = [((0, 0), order, begin)]
        while heap:
            (shared, steps), _, node = heappop(heap)
            if node == end:
                break
            if (shared, steps) > best[node]:
                continue
            for neighbour in live[node]:
                cost = (shared + taken.get(frozenset((node, neighbour)), 0), steps + 1)
                if neighbour not in best or cost < best[neighbour]:
                    best[neighbour], came_from[neighbour] = cost, node
                    order += 1
                    heappush(heap, (cost, order, neighbour))
        if end not in came_from:
            break
        way = [end]
        while way[-1] != begin:
            way.append(came_from[way[-1]])
        way.reverse()
        if way in found:
            break
        found.append(way)
    return found


def junctions(campus: Campus) -> list[str]:
    """Return the switches with two trunks or more, in order: where a packet may have a choice."""
    switches = campus.switch_by_name
    return [name for name in switches if len(campus.neighbours[name].keys() & switches.keys()) > 1]


def dead_trunks(capacity_bytes_per_s: Mapping[DirectedLink, float]) -> frozenset[frozenset[str]]:
    """Return the cables that carry nothing in one direction, or in both."""
    return frozenset(frozenset(link) for link, rate in capacity_bytes_per_s.items() if rate <= 0.0)


class Routes:
    """Paths between nodes (hosts or switches) of one campus; construction is linear in its nodes. `root`: the tree's.

    `has_choice`: whether the campus has more than one path anywhere. What dead trunks cut off hangs on one of them, so that
    every pair has a route; those over a dead trunk carry nothing.
    """

    def __init__(self, campus: Campus, dead: DeadTrunks = NONE_DEAD) -> None:
        self._campus = campus
        self._pins: dict[tuple[str, str], Way] = {}
        # ways between two junctions, up to so many; and each one's neighbours over live trunks
        self._beside: dict[tuple[str, str, int], list[list[str]]] = {}
        self._live: Mapping[str, list[str]] = {}
        self._parent: dict[str, str] = {}
        self._depth: dict[str, int] = {}
        self._up: dict[str, DirectedLink] = {}
        self._down: dict[str, DirectedLink] = {}
        self._known: dict[tuple[str, str], Way] = {}
        self.root = _root(campus)
        self.has_choice = len(campus.links) >= len(campus.nodes)
        self.dead = frozenset(dead)
        self._hang_from(self.root)

    def follow(self, dead: DeadTrunks) -> bool:
        """Mark exactly these trunks as dead; nothing is pinned to a way over a dead trunk any more.

        Returns whether any route or way changed, died or came alive again; always False on a campus that is a tree.
        """
        before_dead, self.dead = self.dead, frozenset(dead)
        before = self._parent, self._dead_in_tree(before_dead), self._pins
        self._pins = {ends: way for ends, way in self._pins.items() if self.is_carried(way)}
        if not self.has_choice or self.dead == before_dead:
            return False
        self._parent, self._depth, self._up, self._down = {}, {}, {}, {}
        self._hang_from(self.root)
        self._known, self._beside = {}, {}  # others may look at those before (`pinned`)
        return (self._parent, self._dead_in_tree(self.dead), self._pins) != before

    @property
    def pins(self) -> Mapping[tuple[str, str], Way]:
        """The pinned way of the testbed's traffic by (source, target)."""
        return self._pins

    def pin(self, a: str, b: str, way: Way | None) -> None:
        """Send the testbed's traffic from a to b this way from now on; None: by the route.

        SpecError: it is no simple way from a to b over the campus's cables, or crosses a dead trunk.
        """
        if way is None:
            self._pins = {ends: other for ends, other in self._pins.items() if ends != (a, b)}
            return
        nodes = [a, *(link.target for link in way)]
        joined = all(before.target == after.source for before, after in pairwise(way))
        cables = all(link.target in self._campus.neighbours.get(link.source, {}) for link in way)
        simple = bool(way) and (way[0].source, way[-1].target) == (a, b) and len(set(nodes)) == len(nodes)
        if not (simple and joined and cables and self.is_carried(way)):
            raise SpecError("way", f"{a} to {b} by {nodes}", "a simple way over cables that are alive")
        self._pins = {**self._pins, (a, b): way}

    def pin_all(self, pins: Mapping[tuple[str, str], Way]) -> None:
        """Hold these pins from now on, those over dead trunks left out, and no others."""
        self._pins = {ends: way for ends, way in pins.items() if self.is_carried(way)}

    def pinned(self, pins: Mapping[tuple[str, str], Way]) -> Routes:
        """Return the same routes with these pins, those over dead trunks left out, and no others."""
        other = copy.copy(self)
        other.pin_all(pins)
        return other

    def way(self, a: str, b: str) -> Way:
        """Return the directed links that the testbed's own traffic takes from a to b: its pinned way, or else the route."""
        pins = self._pins
        return (pins.get((a, b)) or self.route(a, b)) if pins else self.route(a, b)

    def choices(self, a: str, b: str, most: int = MAX_WAYS) -> list[Way]:
        """Return up to `most` live ways from a to b that share as little as possible.

        The first is the route; if it is dead, it is the only one.
        """
        route = self.route(a, b)
        if most < 2 or not self.has_choice or not self.is_carried(route):
            return [route]
        nodes = [a, *(link.target for link in route)]
        inner = [place for place, node in enumerate(nodes) if node in self._live]
        if len(inner) < 2:
            return [route]
        first, last = inner[0], inner[-1]
        key = (nodes[first], nodes[last], most)
        known = self._beside.get(key)
        if known is None:
            known = self._beside[key] = ways_beside(nodes[first : last + 1], self._live, most)
        others = [[*nodes[:first], *middle, *nodes[last + 1 :]] for middle in known[1:]]
        return [route, *(tuple(map(DirectedLink, way, way[1:])) for way in others)]

    def is_carried(self, way: Way) -> bool:
        """Return whether a way crosses no dead trunk."""
        return not self.dead or not any(frozenset(link) in self.dead for link in way)

    def _dead_in_tree(self, dead: Set[frozenset[str]]) -> Set[frozenset[str]]:
        return {trunk for trunk in dead if any(self._parent.get(a) in trunk - {a} for a in trunk)}

    def equals(self, other: Routes) -> bool:
        """Return whether all routes and ways of the same campus are the same."""
        return self._parent == other._parent and self._pins == other._pins

    def is_live(self, a: str, b: str) -> bool:
        """Return whether the route between two nodes crosses no dead trunk."""
        return self.is_carried(self.route(a, b))

    def route(self, a: str, b: str) -> Way:
        """Return the directed links from a to b, in order; empty if a is b. SpecError if either is not of the campus."""
        known = self._known.get((a, b))
        if known is None:
            if len(self._known) >= MAX_KNOWN:
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

    def shortest_links(self, a: str, b: str) -> frozenset[DirectedLink]:
        """Return all links of the shortest live ways from a to b; those of the route where there is one path, or none is live.

        A programmed network shares traffic over them that is not the testbed's own.
        """
        if not self.has_choice or not self.is_live(a, b):
            return frozenset(self.route(a, b))

        def near(node: str) -> Iterator[str]:
            return (other for other in self._campus.neighbours[node] if frozenset((node, other)) not in self.dead)

        from_a, to_b = distances_to(a, near), distances_to(b, near)
        return frozenset(
            DirectedLink(node, other)
            for node, steps in from_a.items()
            for other in near(node)
            if other in to_b and steps + 1 + to_b[other] == from_a[b]
        )

    def links_of(self, a: str, b: str) -> tuple[Link, ...]:
        """Return the cables from a to b, in order, with their rates, delays and losses."""
        neighbours = self._campus.neighbours
        return tuple(neighbours[step.source][step.target] for step in self.route(a, b))

    def bottleneck(self, a: str, b: str) -> tuple[float, DirectedLink]:
        """Return (bytes/s on the wire, the link that binds) of the narrowest link from a to b: the first, if several are.

        bw_bot of paper A, eq. (10), of an empty network. SpecError if a is b (no link binds) or a node is unknown.
        """
        route = self.route(a, b)
        if not route:
            raise SpecError("route", f"{a} to {b}", "two different nodes")
        capacity = self._campus.capacity_bytes_per_s
        narrowest = min(route, key=capacity.__getitem__)
        return capacity[narrowest], narrowest

    def delay_s(self, a: str, b: str) -> float:
        """Return the one-way propagation delay from a to b."""
        return sum(link.delay_s for link in self.links_of(a, b))

    def _tree(self) -> Mapping[str, Iterable[str]]:
        """Return node -> its neighbours in the tree of all nodes."""
        campus = self._campus
        if not self.has_choice:
            return campus.neighbours
        inner = junctions(campus)
        live = {a: [b for b in campus.neighbours[a] if frozenset((a, b)) not in self.dead] for a in inner}
        live = self._live = {a: [b for b in near if b in live] for a, near in live.items()}
        # the root's own switch, if the root is a leaf of the trunks
        first = next((s for s in (self.root, *campus.neighbours[self.root]) if s in live), inner[0])
        tree = dict.fromkeys((node.name for node in campus.nodes), ()) | tree_of(first, inner, live)
        near = {node: list(others) for node, others in tree.items()}
        # all else has one cable, and a part that is cut off hangs on a dead one
        parts = Parts(near)
        for a, others in tree.items():
            for b in others:
                parts.join(a, b)
        for link in campus.links:
            if parts.join(link.a, link.b):
                near[link.a].append(link.b)
                near[link.b].append(link.a)
        return near

    def _hang_from(self, root: str) -> None:
        self._depth[root] = 0
        self._parent = breadth_first(root, self._tree().__getitem__)
        for child, node in self._parent.items():
            self._depth[child] = self._depth[node] + 1
            self._up[child], self._down[child] = DirectedLink(child, node), DirectedLink(node, child)

    def _check(self, node: str) -> None:
        if node not in self._depth:
            hint = nearest(node, self._depth, " (nearest: {})")
            raise SpecError("route", node, f"the name of a host or a switch of campus {self._campus.name}{hint}")


class RouteHistory:
    """Routes over a run: those of a campus whose trunks are all alive, until `follow` changes them. Times do not go back."""

    def __init__(self, campus: Campus) -> None:
        self.campus = campus
        self._times_s, self._routes = [-math.inf], [Routes(campus)]

    @property
    def latest(self) -> Routes:
        """The routes of now."""
        return self._routes[-1]

    def follow(self, at_s: float, dead: DeadTrunks) -> bool:
        """Take these trunks for dead from then on, and no others; return whether routes or ways changed."""
        if not self.latest.has_choice or self.latest.dead == frozenset(dead):
            return False
        return self._go_on(at_s, Routes(self.campus, dead).pinned(self.latest.pins))

    def pin(self, at_s: float, a: str, b: str, way: Way | None) -> bool:
        """Do `Routes.pin` from then on; return whether the way changed."""
        routes = self.latest.pinned(self.latest.pins)
        routes.pin(a, b, way)
        return self._go_on(at_s, routes)

    def _go_on(self, at_s: float, routes: Routes) -> bool:
        is_other = not routes.equals(self.latest)
        self._times_s.append(at_s)
        self._routes.append(routes)
        return is_other

    def at(self, at_s: float) -> Routes:
        """Return the routes of that time."""
        return self._routes[bisect_right(self._times_s, at_s) - 1]

    def links_of(self, a: str, b: str, from_s: float, until_s: float) -> frozenset[DirectedLink]:
        """Return the links of all ways from a to b in that time."""
        return frozenset(link for routes in self.during(from_s, until_s) for link in routes.way(a, b))

    def during(self, from_s: float, until_s: float) -> Sequence[Routes]:
        """Return the routes of that time, in order."""
        return self._routes[bisect_right(self._times_s, from_s) - 1 : bisect_right(self._times_s, until_s)]


def _root(campus: Campus) -> str:
    """Return the core, where there is one: it keeps routes in the tree as shallow as they are in the campus."""
    core = (switch.name for switch in campus.switches if switch.tier is Tier.CORE)
    return next(core, campus.switches[0].name if campus.switches else campus.hosts[0].name)
