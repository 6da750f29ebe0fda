"""Links by number: what vectors over the links of a campus are indexed with.

Decisions about every link or every flow at once are made on columns (numpy), one entry a link or a flow. Links are
numbered in the order of their names, so "the first by name", the rule for ties, is the smallest number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np

from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled
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

    def mapping(self, column: Floats) -> dict[DirectedLink, float]:
        """`column`'s inverse."""
        return dict(zip(self.links, column.tolist(), strict=True))

    def path(self, links: Iterable[DirectedLink]) -> tuple[int, ...]:
        """The numbers of the links of a path, in order. KeyError: a link that is not of the network."""
        return tuple(self.number[link] for link in links)


@dataclass(frozen=True, slots=True)
class Residual(Mapping[DirectedLink, float]):
    """Rest that each link could still reserve, payload bytes/s: a column by the link's number, and a mapping."""

    network: Network
    column: Floats

    def __getitem__(self, link: DirectedLink) -> float:
        return float(self.column[self.network.number[link]])

    def __iter__(self) -> Iterator[DirectedLink]:
        return iter(self.network.links)

    def __len__(self) -> int:
        return len(self.network)


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

    def inserted(self, row: int, path: Sequence[int]) -> Paths:
        """The same with one more, which is number `row` from now on."""
        at, start = self.start[row], self.start
        link = np.concatenate((self.link[:at], np.array(path, dtype=np.intp), self.link[at:]))
        return Paths(link, np.concatenate((start[: row + 1], start[row:] + len(path))))

    def without(self, row: int) -> Paths:
        """The same without number `row`."""
        (first, after), start = self.start[row : row + 2].tolist(), self.start
        link = np.concatenate((self.link[:first], self.link[after:]))
        return Paths(link, np.concatenate((start[:row], start[row + 1 :] - (after - first))))

    def some(self, which: Mask) -> Paths:
        """Return some of the paths, in order."""
        lengths = np.diff(self.start)
        start = np.zeros(np.count_nonzero(which) + 1, dtype=np.intp)
        np.cumsum(lengths[which], out=start[1:])
        return Paths(self.link[np.repeat(which, lengths)], start)

    def load(self, rates: Floats, links: int) -> Floats:
        """Return the load of flows of these rates on each of `links` links."""
        return _loads(self.start, self.link, rates, links)

    def crossing(self, links: Sequence[int]) -> Mask:
        """Return a mask of the paths that cross any of these links."""
        return _crossing(self.start, self.link, np.array(links, dtype=np.intp))

    def least(self, values: Floats, nowhere: float = np.inf) -> Floats:
        """The least of a value a link along each path; `nowhere` where a path crosses no link."""
        answer = np.full(len(self), nowhere)
        crossing = np.flatnonzero(np.diff(self.start))
        if crossing.size:
            answer[crossing] = np.minimum.reduceat(values[self.link], self.start[crossing])
        return answer


@compiled
def _loads(start: Numbers, link: Numbers, rates: Floats, links: int) -> Floats:
    loads = np.zeros(links)
    for flow in range(len(rates)):
        for number in link[start[flow] : start[flow + 1]]:
            loads[number] += rates[flow]
    return loads


@compiled
def _crossing(start: Numbers, link: Numbers, links: Numbers) -> Mask:
    answer = np.zeros(len(start) - 1, np.bool_)
    for path in range(len(answer)):
        for number in link[start[path] : start[path + 1]]:
            for wanted in links:
                answer[path] |= number == wanted
    return answer
