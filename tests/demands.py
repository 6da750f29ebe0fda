"""Links shared among demands by name: `max_min.fill`, and rules that share links on columns (`Wants`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np

from controller.core.network import max_min
from controller.core.network.links import Network, Paths
from controller.core.network.max_min import Wants
from controller.numerics.arrays import Floats, Numbers
from topologies.spec import DirectedLink

Rule = Callable[..., tuple[Floats, Numbers]]


@dataclass(frozen=True, slots=True)
class Demand:
    """A rate is wanted on every one of `links` at once. ValueError: numbers that contradict themselves."""

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

    ValueError: a key that appears twice. KeyError: a link without a capacity.
    """
    ordered = sorted(demands, key=lambda demand: demand.key)  # sums, and so last digits, are of one order
    for one, other in pairwise(ordered):
        if one.key == other.key:
            raise ValueError(f"demand {one.key} appears twice")
    network = Network(chain.from_iterable(demand.links for demand in ordered))
    rooms = np.array([capacity[link] for link in network.links], dtype=float)
    rates, held_by = max_min.fill(in_columns(ordered, network), rooms)
    links: tuple[DirectedLink | None, ...] = (*network.links, None)  # NO_LINK is -1, the last
    found = {
        demand.key: (rate, links[number])
        for demand, rate, number in zip(ordered, rates.tolist(), held_by.tolist(), strict=True)
    }
    return Filling({d.key: found[d.key][0] for d in demands}, {d.key: found[d.key][1] for d in demands})


def in_columns(demands: Sequence[Demand], network: Network) -> max_min.Wants:
    """The same as columns. KeyError: a link that is not of the network."""
    return max_min.Wants(
        network,
        Paths.of([network.path(demand.links) for demand in demands]),
        np.array([demand.weight for demand in demands], dtype=float),
        np.array([demand.floor_bytes_per_s for demand in demands], dtype=float),
        np.array([demand.cap_bytes_per_s for demand in demands], dtype=float),
    )


def shared(
    rule: Rule, demands: Sequence[Demand], capacity: Mapping[DirectedLink, float], **options: Any
) -> Filling:
    """What the rule gives each demand."""
    network, ordered = Network(capacity), sorted(demands, key=lambda demand: demand.key)
    wants: Wants = in_columns(ordered, network)
    rates, held_by = rule(wants, network.column(capacity), **options)
    keys, links = [demand.key for demand in ordered], (*network.links, None)
    return Filling(
        dict(zip(keys, rates.tolist(), strict=True)),
        {key: links[number] for key, number in zip(keys, held_by.tolist(), strict=True)},
    )
