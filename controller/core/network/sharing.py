"""Weighted max-min sharing of a network, with a floor and a cap for every demand. P1 and P3 both divide links
with it.

One rule: there is a water level, and a demand takes x = clip(weight * level, floor, cap). The level rises
until a link is full; whoever crosses that link is settled there; the level goes on rising for the others
until everybody is settled (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2). The
result is the one allocation in which nobody can be given more without taking from somebody whose rate, by
weight, is no larger and above its floor.

How the levels are found, for thousands of demands in a few passes of numpy, is `filling`'s matter. Whoever has
columns calls `fill_wants` there; here are the demands as objects, and the checks.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np

from controller.core.network.links import Network, Paths
from controller.core.network.max_min import SLACK, Wants, fill_wants
from topologies.spec import DirectedLink


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
    ordered = sorted(demands, key=lambda demand: demand.key)  # sums, and so last digits, are of one order
    _check_keys(ordered)
    network = Network(chain.from_iterable(demand.links for demand in ordered))
    _check_capacities(network.links, capacity)
    rates, held_by = fill_wants(in_columns(ordered, network), network.column(capacity))
    keys = [demand.key for demand in ordered]
    links: tuple[DirectedLink | None, ...] = (*network.links, None)  # NOBODY is -1, the last
    return _in_order_of(
        demands,
        dict(zip(keys, rates.tolist(), strict=True)),
        dict(zip(keys, (links[number] for number in held_by.tolist()), strict=True)),
    )


def in_columns(demands: Sequence[Demand], network: Network) -> Wants:
    """The same as columns. KeyError: a link that is not of the network."""
    return Wants(
        network,
        Paths.of([network.path(demand.links) for demand in demands]),
        np.array([demand.weight for demand in demands], dtype=float),
        np.array([demand.floor_bytes_per_s for demand in demands], dtype=float),
        np.array([demand.cap_bytes_per_s for demand in demands], dtype=float),
    )


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
    _check_keys(sorted(demands, key=lambda demand: demand.key))
    members: dict[DirectedLink, list[Demand]] = {}
    for demand in demands:
        for link in demand.links:
            members.setdefault(link, []).append(demand)
    _check_capacities(members, capacity)
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


def _check_keys(ordered: Sequence[Demand]) -> None:
    for one, other in pairwise(ordered):
        if one.key == other.key:
            raise ValueError(f"demand {one.key} appears twice")


def _check_capacities(links: Iterable[DirectedLink], capacity: Mapping[DirectedLink, float]) -> None:
    for link in links:
        if not 0.0 <= capacity.get(link, math.nan) < math.inf:
            raise ValueError(f"link {link}: capacity {capacity.get(link)}: a finite rate of 0 or more")


def _in_order_of(
    demands: Sequence[Demand], rates: Mapping[str, float], bottleneck: Mapping[str, DirectedLink | None]
) -> Filling:
    return Filling({d.key: rates[d.key] for d in demands}, {d.key: bottleneck[d.key] for d in demands})


def _above_floor(demand: Demand) -> Demand:
    return replace(
        demand, floor_bytes_per_s=0.0, cap_bytes_per_s=demand.cap_bytes_per_s - demand.floor_bytes_per_s
    )
