"""Hosts by number, and how they hang on the campus's tree: what bandwidths between all of them are computed with.

Migrations travel a tree, which a campus is or picks of its trunks (`topologies.paths`). The path from s to d goes up
from s to their lowest common switch and down to d, so

    bw(s, d) = min(up from s to that switch, down from that switch to d).

`Places` holds, for one tree, every host's chain of nodes from the root to itself. `Reaches` holds, for one column of
what each link has free, the least rate down to every host from each switch above it. Then bandwidths from one source
to all others are one look-up each.

**The mean over all others** of 1/bw(s, d), which P2 needs of every candidate, would be n^2 bandwidths. But hosts of one switch
whose own links have the same rates left have the same mean and count alike: they are one kind, and kinds are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from controller.core.network.links import Network
from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled
from topologies.paths import Routes
from topologies.spec import Campus, DirectedLink


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
        # nodes of the tree, and links up and down: a row a level, the root's first, and a column a host, volunteers first.
        # Below a host a node is -1, and a link the number behind the last
        everybody = [*self.hosts, *(host.name for host in campus.hosts if host.name not in self.number)]
        ways = [routes.route(routes.root, host) for host in everybody]
        levels, numbers = max(1, *map(len, ways)), dict[str, int]()
        node = np.full((levels + 1, len(ways)), -1, dtype=np.intp)
        up, down = (np.full((levels, len(ways)), len(network), dtype=np.intp) for _ in range(2))
        node[0] = 0
        for place, way in enumerate(ways):
            for level, link in enumerate(way):
                node[level + 1, place] = numbers.setdefault(link.target, len(numbers) + 1)
                down[level, place] = network.number[link]
                up[level, place] = network.number[DirectedLink(link.target, link.source)]
        # of every host: its nodes, and the links up from them
        self.ways = {host: (node[:, n].copy(), up[:, n].copy()) for n, host in enumerate(everybody)}
        count = len(self.hosts)
        self.node, self.up, self.down = (table[:, :count].copy() for table in (node, up, down))
        # its switch and own links (a campus that is one host has none), and the hosts switch by switch
        last = np.array([max(0, len(way) - 1) for way in ways[:count]], dtype=np.intp), np.arange(count)
        self.switch, self.uplink, self.downlink = self.node[last], self.up[last], self.down[last]
        self.line = np.argsort(self.switch, kind="stable")
        self._reaches: Reaches | None = None

    def reaches(self, free_bytes_per_s: Floats) -> Reaches:
        """Return the rates of the tree while each link has so much left, by its number; those asked for last are kept."""
        if self._reaches is None or not np.array_equal(self._reaches.free[:-1], free_bytes_per_s):
            self._reaches = Reaches(self, free_bytes_per_s)
        return self._reaches


class Reaches:
    """Rates up and down the tree while each link has `free_bytes_per_s` left, by its number."""

    def __init__(self, places: Places, free_bytes_per_s: Floats) -> None:
        self._places = places
        self.free: Floats = np.append(free_bytes_per_s, np.inf)  # with that of no link
        # rates to each host from its switch of each level: (levels, hosts); infinite at and below the host itself
        self._down = _least_below(self.free, places.down)
        self._slowness: tuple[Mask, Floats] | None = None  # among these, the means

    def from_host(self, source: str) -> Floats:
        """Return the bandwidth from a host (of any role) to each volunteer, bytes/s; infinite to itself."""
        node, links = self._places.ways[source]
        return _rates_from(self.free, links, self._down, node, self._places.node)

    def mean_slowness(self, among: Mask) -> Floats:
        """Return the mean of 1/bw of each volunteer to the others of `among`, s/byte, over those that it reaches at all.

        Infinite where it reaches no other; NaN where `among` holds no other, and for a host that is not of `among`.
        """
        if self._slowness is None or not np.array_equal(self._slowness[0], among):
            p = self._places
            kind, hosts, members = _kinds(self.free, p.line, p.switch, p.uplink, p.downlink, among)
            means = np.full(len(among), np.nan)
            if members.sum() > 1.0:
                of_kinds = _mean_of_pairs(self.free, p.up, self._down, p.node, hosts, members)
                means[among] = of_kinds[kind[among]]
            self._slowness = among, means
        return self._slowness[1]


@compiled
def _kinds(
    free: Floats, line: Numbers, switch: Numbers, up: Numbers, down: Numbers, among: Mask
) -> tuple[Numbers, Numbers, Floats]:
    """Return each host's kind (-1: not among them), one host of each kind, and how many there are.

    A kind ends where one is not like the one before in the line.
    """
    kind, hosts, members = np.full(len(line), -1), np.empty(len(line), np.intp), np.zeros(len(line))
    kinds, counted, before = 0, True, -1
    for host in line:
        if (
            before < 0
            or switch[host] != switch[before]
            or free[up[host]] != free[up[before]]
            or free[down[host]] != free[down[before]]
        ):
            counted, first = False, host
        if among[host]:
            if not counted:
                hosts[kinds], counted, kinds = first, True, kinds + 1
            kind[host] = kinds - 1
            members[kinds - 1] += 1.0
        before = host
    return kind, hosts[:kinds], members[:kinds]


@compiled
def _least_below(free: Floats, links: Numbers) -> Floats:
    """Return the least of each column from each level on to the last; infinite beyond it."""
    levels, columns = links.shape
    least = np.full((levels + 1, columns), np.inf)
    for level in range(levels - 1, -1, -1):
        for column in range(columns):
            least[level, column] = min(least[level + 1, column], free[links[level, column]])
    return least


@compiled
def _rates_from(free: Floats, links: Numbers, down: Floats, way: Numbers, node: Numbers) -> Floats:
    """Return the rate to each column, over the deepest node that it has in common with the way up, which has these links."""
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
    """Return the mean of 1/rate of these hosts to all others: by the deepest switch of two, but not below either."""
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
