"""Links shared among demands by name: `max_min.fill`, and rules that share links on columns (`Wants`)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    """A rate is wanted on every one of `links` at once."""

    key: str
    links: tuple[DirectedLink, ...]
    weight: float = 1.0
    floor_bytes_per_s: float = 0.0
    cap_bytes_per_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Filling:
    """Rates in bytes/s, and the link that holds each one down; None: its own cap or its weight of 0 does."""

    rates: dict[str, float]
    bottleneck: dict[str, DirectedLink | None]


def in_columns(demands: Sequence[Demand], network: Network) -> max_min.Wants:
    """The same as columns. KeyError: a link that is not of the network."""
    return max_min.Wants(
        network,
        Paths.of([network.path(demand.links) for demand in demands]),
        np.array([demand.weight for demand in demands], dtype=float),
        np.array([demand.floor_bytes_per_s for demand in demands], dtype=float),
        np.array([demand.cap_bytes_per_s for demand in demands], dtype=float),
    )


def shared(rule: Rule, demands: Sequence[Demand], capacity: Mapping[DirectedLink, float], **options: Any) -> Filling:
    """What the rule gives each demand."""
    network, ordered = Network(capacity), sorted(demands, key=lambda demand: demand.key)
    wants: Wants = in_columns(ordered, network)
    rates, held_by = rule(wants, network.column(capacity), **options)
    keys, links = [demand.key for demand in ordered], (*network.links, None)
    return Filling(
        dict(zip(keys, rates.tolist(), strict=True)),
        {key: links[number] for key, number in zip(keys, held_by.tolist(), strict=True)},
    )


def fill(demands: Sequence[Demand], capacity: Mapping[DirectedLink, float]) -> Filling:
    """Weighted max-min fair rates (bytes/s) with floors and caps."""
    return shared(max_min.fill, demands, capacity)
