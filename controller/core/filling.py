"""Progressive filling on columns: `sharing.fill` for thousands of flows in a few passes of numpy.

The water level of a link is the level at which its flows, each taking clip(weight * level, floor, cap), fill it
(see `sharing`). A link all of whose flows find no lower level on the rest of their paths is full before any of
them is held down elsewhere: a *local minimum*. All local minima are final at once, whatever their levels, because
no flow of one of them can be changed by another link. So a round settles all of them, takes what their flows use
off the other links, and the next round looks at what is left. The link of least level is always a local minimum, so
every round settles somebody; on the trees that campuses are, some five rounds settle hundreds of flows.

What a link's flows take together is a piecewise linear, never falling function of the level. Its root is found by
Newton's method for all links at once: within a piece one step is exact, so the end is exact to rounding and not to a
tolerance. Floors make the function convex and caps make it concave, so a step may go astray: a bracket is kept for
each link, and a step that leaves it, or that comes after NEWTON_STEPS others, halves it instead. Links that
cannot be filled even by all caps together take no further part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.core.network import Floats, Network, Numbers, Paths, sums

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


def fill_wants(wants: Wants, capacity: Floats) -> tuple[Floats, Numbers]:
    """`fill_columns` of these demands."""
    return fill_columns(wants.network, wants.paths, wants.weight, wants.floor, wants.cap, capacity)


def equal_increment_wants(wants: Wants, capacity: Floats) -> tuple[Floats, Numbers]:
    """Everybody gets its floor and the same extra, by weight, up to its cap: `fill_wants` of what the floors leave."""
    left = np.maximum(0.0, capacity - wants.floors)
    above = replace(wants, floor=np.zeros_like(wants.floor), cap=wants.cap - wants.floor)
    extra, held_by = fill_wants(above, left)
    return wants.floor + extra, held_by


def fill_columns(
    network: Network, paths: Paths, weight: Floats, floor: Floats, cap: Floats, capacity: Floats
) -> tuple[Floats, Numbers]:
    """(rate of each flow in bytes/s, number of the link that holds it down): `sharing.fill` on columns.

    One entry a flow in `weight`, `floor` and `cap` (0 <= weight < inf, 0 <= floor <= cap, unchecked here), one a link in
    `capacity`. NOBODY where the flow has its cap, or its weight is 0. Of several links that are full at one level the
    first by name is named. Sums are taken in the order given, so another order may change the last digit. ValueError: a
    crossed link whose capacity is not a finite rate of 0 or more, or on which the floors do not fit (the first by name).
    """
    _check(network, paths, floor, capacity)
    rates = np.where(weight > 0.0, cap, floor)
    nobody = len(capacity)  # greater than any link: the first by name is the least of numbers
    bottleneck = np.full(len(weight), nobody, dtype=np.intp)
    still, where = weight > 0.0, np.arange(len(capacity))
    link, flow, room = paths.link, paths.flow, capacity
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if not still.all():
            link, flow, room = _settle(link, flow, room, ~still, rates)
        while True:
            link, flow, room, where = _fillable(link, flow, room, where, cap)
            if not link.size:
                return rates, np.where(bottleneck == nobody, NOBODY, bottleneck)
            members = _Members(link, flow, room, weight[flow], floor[flow], cap[flow])
            full, rate = members.local_minima()
            settled, held = flow[full], full & (rate < members.cap)
            rates[settled] = rate[full]
            np.minimum.at(bottleneck, flow[held], where[link[held]])
            still[settled] = False
            link, flow, room = _settle(link, flow, room, ~still, rates)


@dataclass(frozen=True, slots=True)
class _Members:
    """Flows of links, an entry for each pair of a link and a flow that crosses it, flow after flow."""

    link: Numbers
    flow: Numbers
    room: Floats  # of each link
    weight: Floats
    floor: Floats
    cap: Floats

    def local_minima(self) -> tuple[NDArray[np.bool_], Floats]:
        """(of each pair, whether its link is full before any other link of its flows; the rate at the link's level)."""
        level = self._levels()[self.link]
        first = np.flatnonzero(np.diff(self.flow, prepend=NOBODY))
        least = np.repeat(np.minimum.reduceat(level, first), np.diff(first, append=self.flow.size))
        held_elsewhere = self._sum((level > least).astype(float))
        return (held_elsewhere == 0.0)[self.link], self._clipped(level * self.weight)

    def _clipped(self, wanted: Floats) -> Floats:
        return np.minimum(np.maximum(wanted, self.floor), self.cap)

    def _sum(self, values: Floats) -> Floats:
        """Of each link's members."""
        return sums(self.link, values, len(self.room))

    def _levels(self) -> Floats:
        """The level at which each link is full, by Newton's method, with a bracket that halves where that goes astray."""
        room = np.maximum(self.room, self._sum(self.floor))  # floors fit: rounding apart
        level = np.minimum(room / self._sum(self.weight), HIGHEST)
        low, high, step = np.zeros(len(room)), np.full(len(room), HIGHEST), 0
        while True:
            wanted = level[self.link] * self.weight
            rate = self._clipped(wanted)
            rises = rate == wanted
            held = self._sum(np.where(rises, 0.0, rate))
            newer = (room - held) / self._sum(np.where(rises, self.weight, 0.0))
            newer = np.where(np.isnan(newer), level, newer)  # 0/0: nobody rises, and the link is full
            low, high = np.where(newer > level, level, low), np.where(newer < level, level, high)
            astray = _moves(level, newer) & (~((newer >= low) & (newer <= high)) | (step > NEWTON_STEPS))
            newer = np.where(astray, _between(low, high), newer)
            if not _moves(level, newer).any():  # a bracket no wider than rounding is an end too
                return newer
            level, step = newer, step + 1


def _moves(level: Floats, newer: Floats) -> NDArray[np.bool_]:
    return np.abs(newer - level) > ROUNDING * level


def _between(low: Floats, high: Floats) -> Floats:
    """Half-way; twice the lower bound where there is no upper one yet."""
    return np.where(high < HIGHEST, 0.5 * (low + high), 2.0 * low)


def _fillable(
    link: Numbers, flow: Numbers, room: Floats, where: Numbers, cap: Floats
) -> tuple[Numbers, Numbers, Floats, Numbers]:
    """What remains without links that all their members' caps together do not fill, the other links numbered anew."""
    fillable = sums(link, cap[flow], len(room)) > room
    on = fillable[link]
    anew = np.cumsum(fillable) - 1
    return anew[link[on]], flow[on], room[fillable], where[fillable]


def _settle(
    link: Numbers, flow: Numbers, room: Floats, settled: NDArray[np.bool_], rates: Floats
) -> tuple[Numbers, Numbers, Floats]:
    """What remains without these flows: their pairs go, and what they use of each link."""
    gone = settled[flow]
    used = sums(link[gone], rates[flow[gone]], len(room))
    return link[~gone], flow[~gone], np.maximum(room - used, 0.0)


def _check(network: Network, paths: Paths, floor: Floats, capacity: Floats) -> None:
    floors = paths.load(floor, len(network))
    good = (floors <= capacity * (1.0 + SLACK)) & (capacity >= 0.0) & (capacity < np.inf)
    if good.all():
        return
    for number in np.unique(paths.link[~good[paths.link]]).tolist():
        link, has, needs = network.links[number], float(capacity[number]), float(floors[number])
        if not 0.0 <= has < np.inf:
            raise ValueError(f"link {link}: capacity {has}: a finite rate of 0 or more")
        raise ValueError(f"link {link}: floors need {needs} bytes/s, it has {has}")
