"""Hosts by number, and how they hang on the campus's tree: what bandwidths between all of them are computed with.

A campus is a tree, so the path from s to d goes up from s to their lowest common switch and down to d, and

    bw(s, d) = min(up from s to that switch, down from that switch to d).

`Places` holds, once for a campus, every host's chain of nodes from the root to itself. `Reaches` holds, for one column of
what each link has free, the least rate from every host up to, and down from, each of the switches above it; then
bandwidths from one source to everybody are one look-up each.

**The mean over all others** of 1/bw(s, d), which P2 needs of every candidate, would be n^2 bandwidths. On a tree it is n log n:
1/bw is the larger of "slowness up" and "slowness down", so with F_v(a) = the sum of max(a, slowness down from v to d) over
the candidates d below switch v,

    sum over d of 1/bw(s, d) = sum over the switches v above s of  F_v(up) - F_c(max(up, slowness of v -> c)),

up being the slowness from s to v and c the node below v on the way to s, whose hosts were counted already. F_v(a) takes one
search among the sorted slownesses below v, and the sums of their tails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from controller.core.network import Floats, Network, Numbers
from topologies.paths import Routes
from topologies.spec import Campus, DirectedLink

Mask = NDArray[np.bool_]


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
        self._lay_out([self.chain(host) for host in self.hosts])

    def chain(self, host: str) -> tuple[str, ...]:
        """The nodes from the root of the tree down to a host (of any role)."""
        route = self._routes.route(self._routes.root, host)
        return (self._routes.root, *(step.target for step in route))

    def up_and_down(self, chain: Sequence[str]) -> tuple[Numbers, Numbers]:
        """Numbers of the links up to, and down from, each node of a chain but the last."""
        number = self._network.number
        pairs = list(pairwise(chain))
        up = [number[DirectedLink(below, above)] for above, below in pairs]
        down = [number[DirectedLink(above, below)] for above, below in pairs]
        return np.array(up, dtype=np.intp), np.array(down, dtype=np.intp)

    def _lay_out(self, chains: Sequence[tuple[str, ...]]) -> None:
        """Rows are levels, the root's first; `node` is -1 and links are NOWHERE (the last) below a host."""
        levels, hosts = max((len(chain) for chain in chains), default=1), len(chains)
        known: dict[str, int] = {}
        self.node = np.full((levels, hosts), -1, dtype=np.intp)
        self.up = np.full((levels - 1, hosts), len(self._network), dtype=np.intp)
        self.down = self.up.copy()
        for place, chain in enumerate(chains):
            self.node[: len(chain), place] = [known.setdefault(name, len(known)) for name in chain]
            self.up[: len(chain) - 1, place], self.down[: len(chain) - 1, place] = self.up_and_down(chain)
        self.node_number = known
        self.depth = np.array([len(chain) - 1 for chain in chains], dtype=np.intp)


@dataclass(frozen=True)
class Reaches:
    """Rates up and down the tree while each link has `free_bytes_per_s` left, by its number."""

    places: Places
    free_bytes_per_s: Floats

    @cached_property
    def up(self) -> Floats:
        """From each host up to its switch of each level: (levels, hosts); infinite at and below the host itself."""
        return self._least(self.places.up)

    @cached_property
    def down(self) -> Floats:
        """To each host from its switch of each level."""
        return self._least(self.places.down)

    def _least(self, links: Numbers) -> Floats:
        free = np.append(self.free_bytes_per_s, np.inf)
        below = np.minimum.accumulate(free[links][::-1], axis=0)[::-1]
        return np.vstack((below, np.full((1, links.shape[1]), np.inf)))

    def from_host(self, source: str) -> Floats:
        """Bandwidth from a host (of any role) to each volunteer, bytes/s; infinite to itself."""
        places = self.places
        chain = places.chain(source)
        up = np.full(len(places.node), np.inf)
        steps = np.append(self.free_bytes_per_s[places.up_and_down(chain)[0]], np.inf)
        nodes = np.full(len(places.node), -2, dtype=np.intp)
        for level, name in enumerate(chain[: len(nodes)]):
            nodes[level] = places.node_number.get(name, -2)
        from_below = np.minimum.accumulate(steps[::-1])[::-1]
        up[: len(from_below)] = from_below[: len(up)]
        common = np.count_nonzero(places.node == nodes[:, None], axis=0) - 1
        rates: Floats = np.minimum(up[common], self.down[common, np.arange(len(places.hosts))])
        return rates

    def mean_slowness(self, among: Mask) -> Floats:
        """Of each volunteer, the mean of 1/bw to the others of `among`, s/byte, over those that it reaches at all.

        Infinite where it reaches nobody; NaN where `among` holds nobody else. Of those in `among` themselves only.
        """
        members = np.flatnonzero(among)
        total, count = np.zeros(len(members)), np.zeros(len(members))
        with np.errstate(divide="ignore"):
            up, down = 1.0 / self.up[:, members], 1.0 / self.down[:, members]
            first = 1.0 / np.append(self.free_bytes_per_s, np.inf)[self.places.down[:, members]]
        node = self.places.node[:, members]
        below: _Tails | None = None
        for level in range(len(node) - 1, -1, -1):
            tails = _Tails.of(node[level], down[level])
            above = node[level] >= 0
            if level < len(first):
                counted = above & (node[level + 1] >= 0)
                assert below is not None
                _add(total, count, counted, *tails.sums(up[level]), 1.0)
                _add(total, count, counted, *below.sums(np.maximum(up[level], first[level])), -1.0)
            below = tails
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(count > 0.5, total / count, np.inf if len(members) > 1 else np.nan)
        answer = np.full(len(among), np.nan)
        answer[members] = _rounded(mean)
        return answer


def _rounded(values: Floats) -> Floats:
    """To 40 bits, so that what is equal but for the order of sums is equal."""
    mantissa, exponent = np.frexp(values)
    rounded: Floats = np.ldexp(np.round(mantissa * 2.0**40), exponent - 40)
    return rounded


def _add(total: Floats, count: Floats, where: Mask, sums: Floats, reached: Floats, sign: float) -> None:
    total += np.where(where, sign * sums, 0.0)
    count += np.where(where, sign * reached, 0.0)


@dataclass(frozen=True)
class _Tails:
    """Numbers in groups, sorted within each, with the sums of their tails; infinite ones stand for nobody."""

    group: Numbers
    key: Numbers  # group and rank of every number, in order
    ordered: Floats  # all numbers, for ranks
    start: Numbers  # where the group of each number begins
    end: Numbers  # and where its finite numbers end
    tail: Floats  # sums up to here, from the beginning

    @classmethod
    def of(cls, group: Numbers, values: Floats) -> _Tails:
        ordered = np.sort(values)
        rank = np.searchsorted(ordered, values, side="right")
        scale = len(values) + 1
        own = group * scale
        keys = own + rank
        order = np.argsort(keys)
        keys, sorted_values = keys[order], values[order]
        finite = np.searchsorted(ordered, np.inf, side="left")
        start = np.searchsorted(keys, own, side="left")
        end = np.searchsorted(keys, own + finite, side="right")
        sums = np.concatenate(([0.0], np.cumsum(np.where(np.isfinite(sorted_values), sorted_values, 0.0))))
        return cls(own, keys, ordered, start, end, sums)

    def sums(self, least: Floats) -> tuple[Floats, Floats]:
        """For each number's own group: (the sum of max(least, number) over it, how many numbers that were).

        An infinite `least` reaches nobody.
        """
        reaches = np.isfinite(least)
        rank = np.searchsorted(self.ordered, least, side="right")
        place = np.minimum(np.searchsorted(self.key, self.group + rank, side="right"), self.end)
        smaller = np.where(reaches, (place - self.start) * np.where(reaches, least, 0.0), 0.0)
        larger = np.where(reaches, self.tail[self.end] - self.tail[place], 0.0)
        return smaller + larger, np.where(reaches, self.end - self.start, 0).astype(np.float64)


@dataclass
class Known:
    """What was computed for one decision and holds for the next one too, unless what it was computed from has changed."""

    reaches: Reaches | None = None
    slowness: tuple[Reaches, Mask, Floats] | None = None  # (of these, among those, the means)
    hazards: tuple[float, int, Floats, tuple[float, ...]] | None = (
        None  # (at, changes until then, levels, profile)
    )

    def reaches_of(self, places: Places, free_bytes_per_s: Floats) -> Reaches:
        """`Reaches` for what is free."""
        if self.reaches is None or not np.array_equal(self.reaches.free_bytes_per_s, free_bytes_per_s):
            self.reaches = Reaches(places, free_bytes_per_s)
        return self.reaches

    def mean_slowness(self, reaches: Reaches, among: Mask) -> Floats:
        """`reaches.mean_slowness(among)`."""
        if (
            self.slowness is None
            or self.slowness[0] is not reaches
            or not np.array_equal(self.slowness[1], among)
        ):
            self.slowness = (reaches, among, reaches.mean_slowness(among))
        return self.slowness[2]
