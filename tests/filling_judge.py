"""Max-min filling link by link, as it was before it was done on columns: the independent judge of `sharing.fill`.

A heap of links by the level at which each would be full, possibly out of date (too low, since settling others only leaves
room): the smallest is reckoned again; if it has risen it goes back, else that link is full and its members are settled.
Levels are found by a search among the turns of a piecewise linear function. Sums are exact (`math.fsum`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from controller.core.network.sharing import Demand, Filling
from topologies.spec import DirectedLink


def _rate_at(demand: Demand, level: float) -> float:
    if demand.weight == 0.0:
        return demand.floor_bytes_per_s
    wanted = max(demand.floor_bytes_per_s, demand.weight * level)
    return min(wanted, demand.cap_bytes_per_s)


def _rises_from(demand: Demand) -> float:
    return demand.floor_bytes_per_s / demand.weight if demand.weight else math.inf


def _rises_to(demand: Demand) -> float:
    return demand.cap_bytes_per_s / demand.weight if demand.weight else math.inf


def fill_link_by_link(demands: Sequence[Demand], capacity: Mapping[DirectedLink, float]) -> Filling:
    """`sharing.fill`, of demands whose floors fit."""
    members = {link: [d for d in demands if link in d.links] for d in demands for link in d.links}
    filling = Filling({}, {})
    levels = [(0.0, str(link), link) for link in members]
    heapify(levels)
    while levels:
        stale, name, link = heappop(levels)
        level, rising = _full_at(members[link], capacity[link], filling.rates)
        if level > stale:
            heappush(levels, (level, name, link))
        elif level < math.inf:
            _settle(filling, rising, level, link)
        else:
            break  # the smallest level is infinite: no other link fills
    _settle(filling, [d for d in demands if d.key not in filling.rates], math.inf, None)
    return filling


def _full_at(
    members: Sequence[Demand], capacity: float, settled: Mapping[str, float]
) -> tuple[float, list[Demand]]:
    """(the level at which a link is full, infinity for never; its members that are not settled yet)."""
    rising = [demand for demand in members if demand.key not in settled]
    room = capacity - math.fsum(settled[demand.key] for demand in members if demand.key in settled)
    return (_level(rising, room) if rising else math.inf), rising


def _level(rising: Sequence[Demand], room: float) -> float:
    """The level at which these demands take exactly `room` together; infinity if they never do."""

    def taken(level: float) -> float:
        return math.fsum(_rate_at(demand, level) for demand in rising)

    if taken(math.inf) <= room:
        return math.inf
    turns = sorted({0.0, *(_rises_from(d) for d in rising), *(_rises_to(d) for d in rising)} - {math.inf})
    passed = bisect_right(turns, room, key=taken)
    if passed == 0:  # the floors alone take it all (they fit: rounding apart)
        return 0.0
    turn = turns[passed - 1]
    slope = math.fsum(d.weight for d in rising if _rises_from(d) <= turn < _rises_to(d))
    return turn + (room - taken(turn)) / slope if slope else turn


def _settle(filling: Filling, demands: Iterable[Demand], level: float, link: DirectedLink | None) -> None:
    for demand in demands:
        rate = _rate_at(demand, level)
        held_by_link = demand.weight > 0.0 and rate < demand.cap_bytes_per_s
        filling.rates[demand.key] = rate
        filling.bottleneck[demand.key] = link if held_by_link else None
