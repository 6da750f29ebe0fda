"""Progressive filling on columns: `sharing.fill` for thousands of flows, in machine code (`compiled`).

The water level of a link is the level at which its flows, each taking clip(weight * level, floor, cap), fill it
(see `sharing`). A link all of whose flows find no lower level on the rest of their paths is full before any of
them is held down elsewhere: a *local minimum*. All local minima are final at once, whatever their levels, because
no flow of one of them can be changed by another link. So a round settles all of them, takes what their flows use
off the other links, and the next round looks at what is left. The link of least level is always a local minimum, so
every round settles somebody; on the trees that campuses are, some five rounds settle hundreds of flows.

What a link's flows take together is a piecewise linear, never falling function of the level. Its root is found by
Newton's method: within a piece one step is exact, so the end is exact to rounding and not to a tolerance. Floors make the
function convex and caps make it concave, so a step may go astray: a bracket is kept, and a step that leaves it, or that comes
after NEWTON_STEPS others, halves it instead. A link that cannot be filled even by all caps together takes no further part. A
level is sought again only where a flow of the link was settled since.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.core.network.links import (
    Floats,
    Network,
    Numbers,
    Paths,
)
from controller.numerics.jit import compiled

SLACK = 1e-9  # relative; what rounding may add to a sum of rates before it counts as more than a capacity
ROUNDING = 1e-13  # relative: what a sum of a thousand rates may be wrong by; a step that moves a level less is the last
NEWTON_STEPS = 30  # several times what was ever needed on a campus; from then on brackets are halved
HIGHEST = 1e300  # of levels: a weight may be so small that a division overflows
NOBODY = -1  # the bottleneck of a flow that no link holds down


@dataclass(frozen=True, slots=True, eq=False)
class Wants:
    """Demands as columns: one entry a flow in `weight`, `floor` and `cap`; 0 <= weight < inf, 0 <= floor <= cap."""

    network: Network
    paths: Paths
    weight: Floats
    floor: Floats
    cap: Floats

    @property
    def floors(self) -> Floats:
        """What the floors need of each link together."""
        return self.paths.load(self.floor, len(self.network))


def fill_wants(wants: Wants, capacity: Floats, *, stretched: bool = False) -> tuple[Floats, Numbers]:
    """`fill_columns` of these demands."""
    columns = wants.weight, wants.floor, wants.cap, capacity
    return fill_columns(wants.network, wants.paths, *columns, stretched=stretched)


def equal_increment_wants(wants: Wants, capacity: Floats) -> tuple[Floats, Numbers]:
    """Everybody gets its floor and the same extra, by weight, up to its cap: `fill_wants` of what the floors leave."""
    left = np.maximum(0.0, capacity - wants.floors)
    above = replace(wants, floor=np.zeros_like(wants.floor), cap=wants.cap - wants.floor)
    extra, held_by = fill_wants(above, left)
    return wants.floor + extra, held_by


def fill_columns(
    network: Network,
    paths: Paths,
    weight: Floats,
    floor: Floats,
    cap: Floats,
    capacity: Floats,
    *,
    stretched: bool = False,
) -> tuple[Floats, Numbers]:
    """(rate of each flow in bytes/s, number of the link that holds it down): `sharing.fill` on columns.

    One entry a flow in `weight`, `floor` and `cap` (0 <= weight < inf, 0 <= floor <= cap, unchecked here), one a link in
    `capacity`. NOBODY where the flow has its cap, or its weight is 0. Of several links that are full at one level the
    first by name is named. Sums are taken in the order given, so another order may change the last digit. `stretched`: a
    capacity that is less than the floors is taken for as much. ValueError: a crossed link whose capacity is not a finite rate
    of 0 or more, or on which the floors do not fit (the first by name).
    """
    wrong, rates, held_by = _checked(paths.start, paths.link, weight, floor, cap, capacity, stretched)
    if wrong != NOBODY:
        has, needs = float(capacity[wrong]), float(paths.load(floor, len(network))[wrong])
        if not 0.0 <= has < np.inf:
            raise ValueError(f"link {network.links[wrong]}: capacity {has}: a finite rate of 0 or more")
        raise ValueError(f"link {network.links[wrong]}: floors need {needs} bytes/s, it has {has}")
    return rates, held_by


class _Crossings(NamedTuple):
    """Who crosses what: flow i links link[start[i]:start[i + 1]], and link l is crossed by flow[first[l]:first[l + 1]]."""

    start: Numbers
    link: Numbers
    first: Numbers
    flow: Numbers


class _Flows(NamedTuple):
    """What is known of each flow; `settled`: its rate is final, and taken off the room of its links."""

    weight: Floats
    floor: Floats
    cap: Floats
    rate: Floats
    settled: NDArray[np.bool_]


@compiled
def _checked(
    start: Numbers,
    link: Numbers,
    weight: Floats,
    floor: Floats,
    cap: Floats,
    capacity: Floats,
    stretched: bool,
) -> tuple[int, Floats, Numbers]:
    """(the first link that is `_overfull`, or NOBODY, and then: rates, the link that holds each down)."""
    load, most = np.zeros(len(capacity)), np.zeros(len(capacity))
    crossed, rising = np.zeros(len(capacity), np.bool_), True
    for flow in range(len(floor)):
        rising &= weight[flow] > 0.0
        for place in range(start[flow], start[flow + 1]):
            load[link[place]] += floor[flow]
            most[link[place]] += cap[flow]
            crossed[link[place]] = True
    room = np.maximum(capacity, load) if stretched else capacity
    wrong = _overfull(load, crossed, room)
    if wrong != NOBODY:
        return wrong, floor, start
    if rising and not (most > room).any():  # everybody has what it can take
        return wrong, cap.copy(), np.full(len(cap), NOBODY)
    rates, held_by = _fill(_crossings(start, link, len(room)), weight, floor, cap, room)
    return wrong, rates, held_by


@compiled
def _overfull(load: Floats, crossed: NDArray[np.bool_], capacity: Floats) -> int:
    """The first crossed link whose capacity is no rate, or on which the floors do not fit; else NOBODY."""
    for number in range(len(capacity)):
        fits = 0.0 <= capacity[number] < np.inf and load[number] <= capacity[number] * (1.0 + SLACK)
        if crossed[number] and not fits:
            return number
    return NOBODY


@compiled
def _crossings(start: Numbers, link: Numbers, links: int) -> _Crossings:
    first = np.zeros(links + 1, np.intp)
    for number in link:
        first[number + 1] += 1
    first = np.cumsum(first)
    flows, place = np.empty(len(link), np.intp), first.copy()
    for flow in range(len(start) - 1):
        for number in link[start[flow] : start[flow + 1]]:
            flows[place[number]] = flow
            place[number] += 1
    return _Crossings(start, link, first, flows)


@compiled
def _fill(
    crossings: _Crossings, weight: Floats, floor: Floats, cap: Floats, capacity: Floats
) -> tuple[Floats, Numbers]:
    """(rates, the link that holds each down): rounds that settle all flows of all links that are local minima."""
    rising = weight > 0.0
    flows = _Flows(weight, floor, cap, np.where(rising, cap, floor), ~rising)
    room, level = capacity.copy(), np.full(len(capacity), np.inf)
    bottleneck, changed = np.full(len(weight), NOBODY), np.ones(len(capacity), np.bool_)
    for flow in range(len(weight)):
        if not rising[flow]:
            _take(crossings, flow, floor[flow], room, changed)
    while True:
        for link in range(len(level)):
            if changed[link]:
                level[link], changed[link] = _level(crossings, flows, link, room[link]), False
        full = _local_minima(crossings, flows, level)
        if not len(full):
            return flows.rate, bottleneck
        for link in full:
            for flow in crossings.flow[crossings.first[link] : crossings.first[link + 1]]:
                if not flows.settled[flow]:
                    flows.rate[flow] = _clipped(flows, flow, level[link])
                    bottleneck[flow] = link if flows.rate[flow] < cap[flow] else NOBODY
                    flows.settled[flow] = True
                    _take(crossings, flow, flows.rate[flow], room, changed)


@compiled
def _take(crossings: _Crossings, flow: int, rate: float, room: Floats, changed: NDArray[np.bool_]) -> None:
    """A settled flow's rate off the room of its links, whose levels are others from now on."""
    for link in crossings.link[crossings.start[flow] : crossings.start[flow + 1]]:
        room[link] = max(room[link] - rate, 0.0)
        changed[link] = True


@compiled
def _local_minima(crossings: _Crossings, flows: _Flows, level: Floats) -> Numbers:
    """Links that are full before any other link of any of their flows is."""
    found = np.isfinite(level)
    for flow in range(len(flows.rate)):
        if not flows.settled[flow]:
            links = crossings.link[crossings.start[flow] : crossings.start[flow + 1]]
            least = np.inf
            for link in links:
                least = min(least, level[link])
            for link in links:
                if level[link] > least:
                    found[link] = False
    return np.flatnonzero(found)


@compiled
def _clipped(flows: _Flows, flow: int, level: float) -> float:
    return float(min(max(level * flows.weight[flow], flows.floor[flow]), flows.cap[flow]))


@compiled
def _level(crossings: _Crossings, flows: _Flows, link: int, room: float) -> float:
    """The level at which the link is full; infinite: all the caps of those who are not settled do not fill it."""
    floors, caps, weights = 0.0, 0.0, 0.0
    for flow in crossings.flow[crossings.first[link] : crossings.first[link + 1]]:
        if not flows.settled[flow]:
            floors, caps = floors + flows.floor[flow], caps + flows.cap[flow]
            weights += flows.weight[flow]
    if not caps > room:
        return np.inf
    room = max(room, floors)  # floors fit: rounding apart
    level, low, high, step = min(room / weights, HIGHEST), 0.0, HIGHEST, 0
    while True:
        newer = _newton_step(crossings, flows, link, room, level)
        low, high = (level, high) if newer > level else (low, level) if newer < level else (low, high)
        if _moves(level, newer) and (not low <= newer <= high or step > NEWTON_STEPS):
            newer = 0.5 * (low + high) if high < HIGHEST else 2.0 * low
        if not _moves(level, newer):  # a bracket no wider than rounding is an end too
            return newer
        level, step = newer, step + 1


@compiled
def _moves(level: float, newer: float) -> bool:
    return abs(newer - level) > ROUNDING * level


@compiled
def _newton_step(crossings: _Crossings, flows: _Flows, link: int, room: float, level: float) -> float:
    """Where the link would be full if whoever rises at this level rose on and nobody else did; nobody: here."""
    held, rising = 0.0, 0.0
    for flow in crossings.flow[crossings.first[link] : crossings.first[link + 1]]:
        if not flows.settled[flow]:
            rate = _clipped(flows, flow, level)
            if rate == level * flows.weight[flow]:
                rising += flows.weight[flow]
            else:
                held += rate
    newer = (room - held) / rising
    return level if np.isnan(newer) else newer
