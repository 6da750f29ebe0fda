"""Weighted max-min sharing of a network, with a floor and a cap for every demand. P1 and P3 both divide links
with it.

One rule: there is a water level, and a demand takes x = clip(weight * level, floor, cap). The level rises
until a link is full; whoever crosses that link is settled there; the level goes on rising for the others
until everybody is settled (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2). The
result is the one allocation in which nobody can be given more without taking from somebody whose rate, by
weight, is no larger and above its floor.

What a link's members take together is a piecewise linear function of the level that turns only where a member
leaves its floor or reaches its cap. So the level at which a link is full is found exactly, by a search among
these turns and one division; there is no bisection to a tolerance. Settling members of another link can only
leave room on this one, so a link's level never falls, and a heap of levels that may be out of date (too low)
is enough: recompute the smallest; if it has risen put it back, else that link is full now.

Two uses:

- **P3** (paper A, section VII-B), "admit all flows, assign each its minimum, distribute the remaining
  bandwidth with max-min water filling", can be read in two ways. `fill`, the default, makes the *totals*
  max-min fair: who has a large minimum gets no extra until the others have caught up. `equal_increment` gives
  everybody the same extra.
- **P1** (paper A, Theorem 1 and Lemma 2): on one link, `fill` with weights (hazard * payload)^(1/3) and caps
  W_i *is* Lemma 2's optimum, and with floors the optimum under lower bounds too: stationarity says b_i =
  (lambda_i C_i)^(1/3) * level wherever no bound holds. See `checkpointing`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from topologies.spec import DirectedLink

SLACK = 1e-9  # relative; what rounding may add to a sum of rates before it counts as more than a capacity


@dataclass(frozen=True, slots=True)
class Demand:
    """Somebody who wants a rate on every one of `links` at once: x = clip(weight * level, floor, cap).

    A demand of weight 0 stays at its floor. One that crosses no link (both ends on one host) gets its cap.
    """

    key: str
    links: tuple[DirectedLink, ...]
    weight: float = 1.0
    floor_bytes_per_s: float = 0.0
    cap_bytes_per_s: float = math.inf

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight < math.inf:
            raise ValueError(f"demand {self.key}: weight {self.weight}: a finite number of 0 or more")
        if not 0.0 <= self.floor_bytes_per_s < math.inf:
            raise ValueError(f"demand {self.key}: floor {self.floor_bytes_per_s}: a finite rate of 0 or more")
        if not self.floor_bytes_per_s <= self.cap_bytes_per_s:
            raise ValueError(
                f"demand {self.key}: cap {self.cap_bytes_per_s}: at least the floor {self.floor_bytes_per_s}"
            )
        if len(set(self.links)) != len(self.links):
            raise ValueError(f"demand {self.key}: a path crosses a link only once")

    def rate_at(self, level: float) -> float:
        """The rate, in bytes/s, that this demand takes at a water level (bytes/s per unit of weight)."""
        if self.weight == 0.0:
            return self.floor_bytes_per_s
        return min(max(self.weight * level, self.floor_bytes_per_s), self.cap_bytes_per_s)

    @property
    def rises_from(self) -> float:
        """The level at which it leaves its floor."""
        return self.floor_bytes_per_s / self.weight if self.weight else math.inf

    @property
    def rises_to(self) -> float:
        """The level at which it reaches its cap."""
        return self.cap_bytes_per_s / self.weight if self.weight else math.inf


@dataclass(frozen=True, slots=True)
class Filling:
    """Rates in bytes/s, and the link that holds each one down; None: its own cap or its weight of 0 does."""

    rates: dict[str, float]
    bottleneck: dict[str, DirectedLink | None]


def fill(demands: Sequence[Demand], capacity: Mapping[DirectedLink, float]) -> Filling:
    """Weighted max-min fair rates (bytes/s) with floors and caps; independent of the order of `demands`.

    ValueError: a key that appears twice, a link without a capacity, a capacity that is not a finite rate of 0
    or more, or floors that do not fit on a link (it is named).
    """
    members = members_of_links(demands, capacity)
    check_floors_fit(members, capacity)
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


def equal_increment(demands: Sequence[Demand], capacity: Mapping[DirectedLink, float]) -> Filling:
    """The other reading of paper A: everybody gets its floor and the same extra, by weight, up to its cap.

    It is `fill` of what the floors leave. Errors as for `fill`.
    """
    members = members_of_links(demands, capacity)
    check_floors_fit(members, capacity)
    left = {link: max(0.0, capacity[link] - floors_on(some)) for link, some in members.items()}
    extra = fill([_above_floor(demand) for demand in demands], left)
    totals = {d.key: d.floor_bytes_per_s + extra.rates[d.key] for d in demands}
    return Filling(totals, extra.bottleneck)


def members_of_links(
    demands: Sequence[Demand], capacity: Mapping[DirectedLink, float]
) -> dict[DirectedLink, list[Demand]]:
    """link -> the demands that cross it. ValueError: a key twice, or a capacity that is not a rate."""
    members: dict[DirectedLink, list[Demand]] = {}
    seen: set[str] = set()
    for demand in demands:
        if demand.key in seen:
            raise ValueError(f"demand {demand.key} appears twice")
        seen.add(demand.key)
        for link in demand.links:
            members.setdefault(link, []).append(demand)
    for link in members:
        if not 0.0 <= capacity.get(link, math.nan) < math.inf:
            raise ValueError(f"link {link}: capacity {capacity.get(link)}: a finite rate of 0 or more")
    return members


def floors_on(members: Iterable[Demand]) -> float:
    """What the floors of these demands need together, in bytes/s."""
    return math.fsum(demand.floor_bytes_per_s for demand in members)


def fits(wanted_bytes_per_s: float, capacity_bytes_per_s: float) -> bool:
    """Whether a sum of rates is within a capacity, rounding forgiven."""
    return wanted_bytes_per_s <= capacity_bytes_per_s * (1.0 + SLACK)


def check_floors_fit(
    members: Mapping[DirectedLink, Sequence[Demand]], capacity: Mapping[DirectedLink, float]
) -> None:
    """ValueError naming the first link, by name, on which the floors do not fit."""
    for link in sorted(members, key=str):
        needed = floors_on(members[link])
        if not fits(needed, capacity[link]):
            raise ValueError(f"link {link}: floors need {needed} bytes/s, it has {capacity[link]}")


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
        return math.fsum(demand.rate_at(level) for demand in rising)

    if taken(math.inf) <= room:
        return math.inf
    turns = sorted({0.0, *(d.rises_from for d in rising), *(d.rises_to for d in rising)} - {math.inf})
    passed = bisect_right(turns, room, key=taken)
    if passed == 0:  # the floors alone take it all (they fit: rounding apart)
        return 0.0
    turn = turns[passed - 1]
    slope = math.fsum(d.weight for d in rising if d.rises_from <= turn < d.rises_to)
    return turn + (room - taken(turn)) / slope if slope else turn


def _settle(filling: Filling, demands: Iterable[Demand], level: float, link: DirectedLink | None) -> None:
    for demand in demands:
        rate = demand.rate_at(level)
        held_by_link = demand.weight > 0.0 and rate < demand.cap_bytes_per_s
        filling.rates[demand.key] = rate
        filling.bottleneck[demand.key] = link if held_by_link else None


def _above_floor(demand: Demand) -> Demand:
    return replace(
        demand, floor_bytes_per_s=0.0, cap_bytes_per_s=demand.cap_bytes_per_s - demand.floor_bytes_per_s
    )
