"""Ways that research takes through the switches' SELECT groups: the virtual campus sends by these.

Hashes of many connections are independent, so of all that comes to a switch each neighbour gets the part of its slots
(`ways_of_many`). One connection goes by its hash (`way_of_one`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from math import fsum, inf

# switch -> each neighbour that is one step nearer to the target -> its slots
Hops = Mapping[str, Mapping[str, int]]
LEAST_PART = 1e-9  # of the whole: less is what rounding left


def ways_of_many(hops: Hops, source: str) -> list[tuple[float, list[str]]]:
    """Return (part of the whole, switches in order) of each way that many connections take to the target; parts add up to 1.

    There may be more shortest ways than can be counted; as many as there are trunks are enough for each to carry its part.
    """
    arriving, part_on, todo = {source: 1.0}, dict[tuple[str, str], float](), [source]
    for (
        switch
    ) in todo:  # grows while it is walked: those that are further from the target first, for each step is one nearer
        total = sum(hops[switch].values())
        for neighbour, its in hops[switch].items():
            if neighbour not in arriving:
                arriving[neighbour] = 0.0
                todo.append(neighbour)
            part_on[switch, neighbour] = arriving[switch] * its / total
            arriving[neighbour] += part_on[switch, neighbour]
    if not hops[source]:
        return [(1.0, [source])]
    ways = []
    # each turn takes the part of the narrowest trunk of a way, so that nothing is left for it; always in the same order of next
    # hops, so that a small change of parts leaves the ways as they are
    while any(part_on[source, there] > LEAST_PART for there in hops[source]):
        way, part = [source], inf
        while leading := hops[way[-1]]:
            here = way[-1]
            way.append(next((there for there in leading if part_on[here, there] > LEAST_PART), next(iter(leading))))
            part = min(part, part_on[here, way[-1]])
        if part <= LEAST_PART:
            break
        for ends in pairwise(way):
            part_on[ends] -= part
        ways.append((part, way))
    whole = fsum(part for part, _ in ways)
    return [(part / whole, way) for part, way in ways]


def way_of_one(hops: Hops, source: str, hash_at: Callable[[str], float]) -> list[str]:
    """Return the switches that one connection passes to the target. `hash_at`: its hash at a switch, from 0 to less than 1."""
    way = [source]
    while leading := hops[way[-1]]:
        below = accumulate(leading.values())
        slot = hash_at(way[-1]) * sum(leading.values())
        way.append(next(neighbour for neighbour, end in zip(leading, below, strict=True) if slot < end))
    return way
