"""Hosts by number, and how they hang on the campus's tree: what bandwidths between all of them are computed with.

Migrations travel a tree, which a campus is or picks of its trunks (`topologies.paths`), so the path from s to d goes up from s to
their lowest common switch and down to d, and

    bw(s, d) = min(up from s to that switch, down from that switch to d).

`Places` holds, once for a campus, every host's chain of nodes from the root to itself. `Reaches` holds, for one column of
what each link has free, the least rate from every host up to, and down from, each of the switches above it; then
bandwidths from one source to all others are one look-up each.

**The mean over all others** of 1/bw(s, d), which P2 needs of every candidate, would be n^2 bandwidths. But hosts of one switch
whose own links have the same rates left have the same mean and count alike: they are one kind, and kinds are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from controller.core.network.links import Network
from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled
from topologies.paths import Routes
from topologies.spec import Campus, DirectedLink

UNBOUNDED = np.array([np.inf])


class Places:
    """The volunteers of a campus, in the order of their names, and everything about them that does not change."""

    def __init__(self, campus: Campus, hosts: Sequence[str], network: Network, routes: Routes) -> None:
        self.hosts: tuple[str, ...] = tuple(sorted(hosts))
        self.number = {host: number for number, host in enumerate(self.hosts)}
        self.names = np.array(self.hosts, dtype=object)
        specs = [campus.host_by_name[host] for host in self.hosts]
        models = [campus.gpu_by_name[spec.gpu_model or ""] for spec in specs]
        self.buildings = np.array([spec.building for spec in specs], dtype=object)
        self.gpus = np.array([spec.gpus for spec in specs], dtype=float)
        self.memory_bytes = np.array([model.memory_bytes for model in models], dtype=float)
        self.capability = np.array([model.compute_capability for model in models], dtype=float)
        self._routes, self._network = routes, network
        self.everybody = np.arange(len(self.hosts))
        self._ways: dict[str, tuple[Numbers, Numbers]] = {}
        # rows are levels, the root's first; below a host `node` is -1 and links are NOWHERE, the number behind the last
        chains = [self._chain(host) for host in self.hosts]
        levels, count = max((len(chain) for chain in chains), default=1), len(chains)
        self._node_number: dict[str, int] = {}
        self.node = np.full((levels, count), -1, dtype=np.intp)
        self.up = np.full((levels - 1, count), len(network), dtype=np.intp)
        self.down = self.up.copy()
        for place, chain in enumerate(chains):
            known = self._node_number
            self.node[: len(chain), place] = [known.setdefault(name, len(known)) for name in chain]
            self.up[: len(chain) - 1, place], self.down[: len(chain) - 1, place] = self._up_and_down(chain)
        self.nodes = len(self._node_number)
        # the hosts switch by switch (`line`), with the switch and the links of each in that order
        last = np.maximum(np.array([len(chain) - 2 for chain in chains], dtype=np.intp), 0)
        switch = self.node[last, self.everybody]
        self.line = np.argsort(switch, kind="stable")
        self.switch = switch[self.line]
        if len(self.up):
            self.own_up, self.own_down = (
                links[last, self.everybody][self.line] for links in (self.up, self.down)
            )
        else:  # a campus that is one host
            self.own_up = self.own_down = np.full(count, len(network), dtype=np.intp)
        # each host's own; NOWHERE on a campus of one
        self.uplink = np.full(count, len(network), dtype=np.intp)
        self.uplink[self.line] = self.own_up

    def way_up(self, host: str) -> tuple[Numbers, Numbers]:
        """Return a host's nodes and the links up from them, level by level from the root; below it -2, and NOWHERE."""
        known = self._ways.get(host)
        if known is None:
            levels = len(self.node)
            chain = self._chain(host)
            node, up = np.full(levels, -2, dtype=np.intp), np.full(levels, len(self._network), dtype=np.intp)
            links = self._up_and_down(chain)[0]
            node[: len(chain)] = [self._node_number.get(name, -2) for name in chain[:levels]]
            up[: len(links)] = links[:levels]
            known = self._ways[host] = (node, up)
        return known

    def _chain(self, host: str) -> tuple[str, ...]:
        """The nodes from the root of the tree down to a host."""
        route = self._routes.route(self._routes.root, host)
        return (self._routes.root, *(step.target for step in route))

    def _up_and_down(self, chain: Sequence[str]) -> tuple[list[int], list[int]]:
        """Numbers of the links up to, and down from, each node of a chain but the last."""
        number, pairs = self._network.number, list(pairwise(chain))
        up = [number[DirectedLink(below, above)] for above, below in pairs]
        down = [number[DirectedLink(above, below)] for above, below in pairs]
        return up, down


class Reaches:
    """Rates up and down the tree while each link has `free_bytes_per_s` left, by its number."""

    def __init__(self, places: Places, free_bytes_per_s: Floats) -> None:
        self.places, self.free_bytes_per_s = places, free_bytes_per_s
        self.free: Floats = np.concatenate((free_bytes_per_s, UNBOUNDED))  # with that of NOWHERE
        # rates to each host from its switch of each level: (levels, hosts); infinite at and below the host itself
        self.down = _least_below(self.free, places.down)

    def from_host(self, source: str) -> Floats:
        """Bandwidth from a host (of any role) to each volunteer, bytes/s; infinite to itself."""
        places = self.places
        node, links = places.way_up(source)
        return _rates_from(self.free, links, self.down, node, places.node)

    def mean_slowness(self, among: Mask) -> Floats:
        """The mean of 1/bw of each volunteer to the others of `among`, s/byte, over those that it reaches at all.

        Infinite where it reaches no other; NaN where `among` holds no other, and for a host that is not of `among`.
        """
        p = self.places
        return _mean_slowness(
            self.free, p.up, self.down, p.node, p.line, p.switch, p.own_up, p.own_down, among
        )


@compiled
def _mean_slowness(
    free: Floats,
    up_links: Numbers,
    down: Floats,
    node: Numbers,
    line: Numbers,
    switch: Numbers,
    own_up: Numbers,
    own_down: Numbers,
    among: Mask,
) -> Floats:
    answer = np.full(len(among), np.nan)
    kind, hosts, members = _kinds(free, line, switch, own_up, own_down, among)
    if members.sum() > 1.0:
        means = _mean_of_pairs(free, up_links, down, node, hosts, members)
        for place in range(len(line)):
            if kind[place] >= 0:
                answer[line[place]] = means[kind[place]]
    return answer


@compiled
def _kinds(
    free: Floats, line: Numbers, switch: Numbers, own_up: Numbers, own_down: Numbers, among: Mask
) -> tuple[Numbers, Numbers, Floats]:
    """Return each host's kind along the line (-1: not among them), one host of each kind, and how many there are.

    A kind ends where one is not like the one before.
    """
    kind, hosts, members = np.full(len(line), -1), np.empty(len(line), np.intp), np.zeros(len(line))
    kinds, counted = 0, True
    for place in range(len(line)):
        if place == 0 or (
            switch[place] != switch[place - 1]
            or free[own_up[place]] != free[own_up[place - 1]]
            or free[own_down[place]] != free[own_down[place - 1]]
        ):
            counted, first = False, line[place]
        if among[line[place]]:
            if not counted:
                hosts[kinds], counted, kinds = first, True, kinds + 1
            kind[place] = kinds - 1
            members[kinds - 1] += 1.0
    return kind, hosts[:kinds], members[:kinds]


@compiled
def _least_below(free: Floats, links: Numbers) -> Floats:
    """The least of each column from each level on to the last; infinite beyond it."""
    levels, columns = links.shape
    least = np.full((levels + 1, columns), np.inf)
    for level in range(levels - 1, -1, -1):
        for column in range(columns):
            least[level, column] = min(least[level + 1, column], free[links[level, column]])
    return least


@compiled
def _rates_from(free: Floats, links: Numbers, down: Floats, way: Numbers, node: Numbers) -> Floats:
    """The rate to each column, over the deepest node that it has in common with the way up, which has these links."""
    up, rates = np.full(len(links) + 1, np.inf), np.empty(node.shape[1])
    for level in range(len(links) - 1, -1, -1):
        up[level] = min(up[level + 1], free[links[level]])
    for host in range(len(rates)):
        common = 0
        while common + 1 < len(way) and way[common + 1] == node[common + 1, host]:
            common += 1
        rates[host] = min(up[common], down[common, host])
    return rates


@compiled
def _mean_of_pairs(
    free: Floats, up_links: Numbers, all_down: Floats, all_nodes: Numbers, hosts: Numbers, members: Floats
) -> Floats:
    """The mean of 1/rate of these hosts to all others: by the deepest switch that two have in common, but not below either."""
    up, down, node = _least_below(free, up_links[:, hosts]), all_down[:, hosts], all_nodes[:, hosts]
    levels, means = len(node), np.full(len(hosts), np.inf)
    for one in range(len(hosts)):
        total, count = 0.0, 0.0
        for other in range(len(hosts)):
            common = 0
            while common + 2 < levels and node[common + 1, one] == node[common + 1, other]:
                if node[common + 2, one] < 0 or node[common + 2, other] < 0:
                    break  # a host, not a switch
                common += 1
            rate = min(up[common, one], down[common, other])
            others = members[other] - (1.0 if one == other else 0.0)
            if rate > 0.0 and others > 0.0:
                total, count = total + others / rate, count + others
        if count > 0.0:
            # to 40 bits, so that what is equal but for the order of sums is equal
            mantissa, exponent = math.frexp(total / count)
            means[one] = math.ldexp(np.rint(mantissa * 2.0**40), exponent - 40)
    return means


@dataclass
class Known:
    """Cache of results that hold for the next decision too, until their inputs change."""

    reaches: Reaches | None = None
    slowness: tuple[Reaches, Mask, Floats] | None = None  # of these, among those, the means
    # at, changes until then, levels, profile
    hazards: tuple[float, int, Floats, tuple[float, ...]] | None = None

    def forget(self) -> None:
        """Drop the results that depend on the moment."""
        self.reaches, self.slowness, self.hazards = None, None, None

    def reaches_of(self, places: Places, free_bytes_per_s: Floats) -> Reaches:
        """`Reaches` for what is free."""
        if self.reaches is None or not np.array_equal(self.reaches.free_bytes_per_s, free_bytes_per_s):
            self.reaches = Reaches(places, free_bytes_per_s)
        return self.reaches

    def mean_slowness(self, reaches: Reaches, among: Mask) -> Floats:
        """`reaches.mean_slowness(among)`."""
        known = self.slowness
        if known is None or known[0] is not reaches or not np.array_equal(known[1], among):
            known = self.slowness = (reaches, among, reaches.mean_slowness(among))
        return known[2]
