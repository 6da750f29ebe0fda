"""Rules that share links on columns (`Wants`), asked with demands by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controller.core.network.links import Network
from controller.core.network.max_min import Wants
from controller.core.network.sharing import Demand, Filling, in_columns
from controller.numerics.arrays import Floats, Numbers
from topologies.spec import DirectedLink

Rule = Callable[..., tuple[Floats, Numbers]]


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
