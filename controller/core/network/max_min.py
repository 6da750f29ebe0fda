"""Weighted max-min sharing of a network, with a floor and a cap for every flow. P1 and P3 both divide links with it.

One rule: there is a water level, and a flow takes x = clip(weight * level, floor, cap). The level rises until a link
is full; the flows that cross that link are settled there; the level goes on rising for the others until all are
settled. This is progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2). The result is the one
allocation in which no flow can be given more without a loss to another. That other's rate, by weight, is no larger
and above its floor.

Two uses:

- **P3** (paper A, section VII-B): "admit all flows, assign each its minimum, distribute the remaining bandwidth with
  max-min water filling". `fill` makes the *totals* max-min fair: a flow with a large minimum gets no extra until
  others have caught up. (Another reading gives every flow the same extra.)
- **P1** (paper A, Theorem 1 and Lemma 2): on one link, `fill` with weights (hazard * payload)^(1/3) and caps W_i *is*
  Lemma 2's optimum, and with floors the optimum under lower bounds too: stationarity gives b_i = level * (lambda_i
  C_i)^(1/3) wherever no bound holds. See `checkpointing`.

**How it is found**, for thousands of flows, in machine code (`compiled`). The level of a link is the one at which its
flows fill it. A link is a *local minimum* if none of its flows finds a lower level on the rest of its path: it is
full before any of them is held down elsewhere. All local minima are final at once, whatever their levels, because no
flow of one of them can be changed by another link. So a round settles all of them, takes what their flows use off the
other links, and the next round looks at what is left. The link of least level is always a local minimum, so every
round settles some flow; on the trees that campuses are, some five rounds settle hundreds of flows.

What a link's flows take together is a piecewise linear, never falling function of the level. Its root is found by
Newton's method: within a piece one step is exact, so the end is exact to rounding and not to a tolerance. Floors make the
function convex and caps make it concave, so a step may go astray: a bracket is kept, and a step that leaves it, or that comes
after NEWTON_STEPS others, halves it instead. A link that cannot be filled even by all caps together takes no further part. A
level is sought again only where a flow of the link was settled since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from controller.core.network.links import NO_LINK, Network, Paths
from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled

ROUNDING = 1e-13  # relative: what a sum of a thousand rates may be wrong by; a step that moves a level less is the last
NEWTON_STEPS = 30  # several times what was ever needed on a campus; from then on brackets are halved
HIGHEST = 1e300  # of levels: a weight may be so small that a division overflows


@dataclass(frozen=True, slots=True, eq=False)
class Wants:
    """Demands as columns, one entry a flow.

    A flow of weight 0 stays at its floor; one that crosses no link (both ends on one host) gets its cap.
    """

    network: Network
    paths: Paths
    weight: Floats  # finite, 0 or more
    floor: Floats  # bytes/s, finite, 0 or more
    cap: Floats  # bytes/s, at least the floor


def fill(wants: Wants, capacity: Floats) -> tuple[Floats, Numbers]:
    """Return the rate of each flow in bytes/s, and the number of the link that holds it down. `capacity`: by the link's number.

    NO_LINK where the flow has its cap, or its weight is 0. Of several links that are full at one level the first by name is
    named. Sums are taken in the order given, so another order may change the last digit. No capacity is exceeded, save where
    floors do: they are kept, and no flow on that link gets more.
    """
    paths = wants.paths
    return _shared(paths.start, paths.link, wants.weight, wants.floor, wants.cap, capacity)


class _Crossings(NamedTuple):
    """Links of flows: flow i crosses link[start[i]:start[i + 1]], and link l is crossed by flow[first[l]:first[l + 1]]."""

    start: Numbers
    link: Numbers
    first: Numbers
    flow: Numbers


class _Flows(NamedTuple):
    """State of each flow; `settled`: its rate is final, and taken off the room of its links."""

    weight: Floats
    floor: Floats
    cap: Floats
    rate: Floats
    settled: Mask


@compiled
def _shared(
    start: Numbers, link: Numbers, weight: Floats, floor: Floats, cap: Floats, capacity: Floats
) -> tuple[Floats, Numbers]:
    """Run `_filled` on the links that are crossed, renumbered in their order: a large campus has many more."""
    place = np.full(len(capacity), NO_LINK)
    place[link] = 0
    crossed = np.flatnonzero(place == 0)
    place[crossed] = np.arange(len(crossed))
    rates, held_by = _filled(start, place[link], weight, floor, cap, capacity[crossed])
    for flow in range(len(held_by)):
        if held_by[flow] != NO_LINK:
            held_by[flow] = crossed[held_by[flow]]
    return rates, held_by


@compiled
def _filled(
    start: Numbers, link: Numbers, weight: Floats, floor: Floats, cap: Floats, capacity: Floats
) -> tuple[Floats, Numbers]:
    """Return the rates, and the link of each. Every link is crossed."""
    load, most, rising = np.zeros(len(capacity)), np.zeros(len(capacity)), weight > 0.0
    for flow in range(len(floor)):
        for place in range(start[flow], start[flow + 1]):
            load[link[place]] += floor[flow]
            most[link[place]] += cap[flow]
    room = np.maximum(capacity, load)
    held_by = np.full(len(cap), NO_LINK)
    if rising.all() and not (most > room).any():  # every flow has what it can take
        return cap.copy(), held_by
    # the flows of each link, from the links of each flow
    first = np.zeros(len(room) + 1, np.intp)
    for number in link:
        first[number + 1] += 1
    first = np.cumsum(first)
    crossing, place_of = np.empty(len(link), np.intp), first.copy()
    for flow in range(len(start) - 1):
        for number in link[start[flow] : start[flow + 1]]:
            crossing[place_of[number]] = flow
            place_of[number] += 1
    crossings = _Crossings(start, link, first, crossing)
    flows = _Flows(weight, floor, cap, np.where(rising, cap, floor), ~rising)
    level, changed = np.full(len(room), np.inf), np.ones(len(room), np.bool_)
    for flow in range(len(weight)):
        if not rising[flow]:
            _take(crossings, flow, floor[flow], room, changed)
    while True:
        for number in range(len(level)):
            if changed[number]:
                level[number], changed[number] = _level(crossings, flows, number, room[number]), False
        full = _local_minima(crossings, flows, level)
        if not len(full):
            return flows.rate, held_by
        for number in full:
            for flow in crossings.flow[crossings.first[number] : crossings.first[number + 1]]:
                if not flows.settled[flow]:
                    flows.rate[flow] = _clipped(flows, flow, level[number])
                    held_by[flow] = number if flows.rate[flow] < cap[flow] else NO_LINK
                    flows.settled[flow] = True
                    _take(crossings, flow, flows.rate[flow], room, changed)


@compiled
def _take(crossings: _Crossings, flow: int, rate: float, room: Floats, changed: Mask) -> None:
    """Take a settled flow's rate off the room of its links, whose levels change with it."""
    for link in crossings.link[crossings.start[flow] : crossings.start[flow + 1]]:
        room[link] = max(room[link] - rate, 0.0)
        changed[link] = True


@compiled
def _local_minima(crossings: _Crossings, flows: _Flows, level: Floats) -> Numbers:
    """Return the links that are full before any other link of any of their flows is."""
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
    """Return the level at which the link is full, by Newton in a bracket; infinite: its unsettled flows' caps do not fill it."""
    members = crossings.flow[crossings.first[link] : crossings.first[link + 1]]
    floors, caps, weights = 0.0, 0.0, 0.0
    for flow in members:
        if not flows.settled[flow]:
            floors, caps = floors + flows.floor[flow], caps + flows.cap[flow]
            weights += flows.weight[flow]
    if not caps > room:
        return np.inf
    room = max(room, floors)  # floors fit: rounding apart
    level, low, high, step = min(room / weights, HIGHEST), 0.0, HIGHEST, 0
    while True:
        # where the link would be full if the flows that rise at this level rose on and no other did; if none rises: here
        held, rising = 0.0, 0.0
        for flow in members:
            if not flows.settled[flow]:
                rate = _clipped(flows, flow, level)
                if rate == level * flows.weight[flow]:
                    rising += flows.weight[flow]
                else:
                    held += rate
        newer = (room - held) / rising
        newer = level if np.isnan(newer) else newer
        low, high = (level, high) if newer > level else (low, level) if newer < level else (low, high)
        if _moves(level, newer) and (not low <= newer <= high or step > NEWTON_STEPS):
            newer = 0.5 * (low + high) if high < HIGHEST else 2.0 * low
        if not _moves(level, newer):  # a bracket no wider than rounding is an end too
            return newer
        level, step = newer, step + 1


@compiled
def _moves(level: float, newer: float) -> bool:
    return abs(newer - level) > ROUNDING * level
