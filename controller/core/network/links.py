"""Links by number: what vectors over the links of a campus are indexed with.

Decisions about every link or every flow at once are made on columns (numpy), one entry a link or a flow. Links are
numbered in the order of their names, so "the first by name", the rule for ties, is the smallest number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np

from controller.numerics.arrays import Floats, Numbers
from topologies.spec import DirectedLink

NO_LINK = -1  # in place of a link's number: no link holds this flow down
SLACK = 1e-9  # relative; what rounding may add to a sum of rates before it counts as more than a capacity


class Network:
    """Directed links, numbered once."""

    def __init__(self, links: Iterable[DirectedLink]) -> None:
        self.links: tuple[DirectedLink, ...] = tuple(sorted(set(links), key=str))
        self.number: dict[DirectedLink, int] = {link: number for number, link in enumerate(self.links)}

    def __len__(self) -> int:
        return len(self.links)

    def column(self, values: Mapping[DirectedLink, float]) -> Floats:
        """Return one value a link, by number. KeyError: a link without a value."""
        return np.array([values[link] for link in self.links], dtype=float)

    def path(self, links: Iterable[DirectedLink]) -> tuple[int, ...]:
        """Return the numbers of the links of a path, in order. KeyError: a link that is not of the network."""
        return tuple(self.number[link] for link in links)


def fits(wanted_bytes_per_s: float, capacity_bytes_per_s: float) -> bool:
    """Return whether a sum of rates is within a capacity, rounding forgiven."""
    return wanted_bytes_per_s <= capacity_bytes_per_s * (1.0 + SLACK)


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths of several flows one after the other (compressed rows).

    `link`: numbers of the links crossed; those of path i are `link[start[i]:start[i + 1]]`. A path crosses a link once.
    """

    link: Numbers
    start: Numbers

    @classmethod
    def of(cls, paths: Sequence[Sequence[int]]) -> Paths:
        """Make paths of one sequence of link numbers each."""
        start = np.fromiter(accumulate(map(len, paths), initial=0), np.intp, len(paths) + 1)
        return cls(np.fromiter(chain.from_iterable(paths), np.intp, int(start[-1])), start)

    def __len__(self) -> int:
        return len(self.start) - 1

    def load(self, rates: Floats, links: int) -> Floats:
        """Return the load of flows of these rates on each of `links` links."""
        each = rates.repeat(self.start[1:] - self.start[:-1])
        return np.bincount(self.link, each, links).astype(float, copy=False)

    def least(self, values: Floats) -> Floats:
        """Return the least of a value a link along each path; infinite where a path crosses no link."""
        answer = np.full(len(self), np.inf)
        crossing = np.flatnonzero(self.start[1:] - self.start[:-1])
        if crossing.size:
            answer[crossing] = np.minimum.reduceat(values[self.link], self.start[crossing])
        return answer
