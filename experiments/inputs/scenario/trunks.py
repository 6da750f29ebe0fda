"""The law of failures of cables between switches: each by itself, for a while, some of them announced."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.inputs.scenario.fields import check, quantity
from topologies.dimension import Dimension
from topologies.units import HOUR_S

D = Dimension


@dataclass(frozen=True, slots=True)
class TrunkLaw:
    """Failures of each cable between two switches are a Poisson process while it works; repairs take exponential times."""

    hazard_per_s: float = quantity(D.PER_TIME, 0.01 / HOUR_S, above=True)  # of a failure, of each cable
    repair_s: float = quantity(D.DURATION, 600.0, above=True)  # mean
    announced: float = quantity(D.NUMBER, 0.5, high=1.0)  # share of failures that are work: drained before
    drain_s: float = quantity(D.DURATION, 60.0, above=True)  # for so long

    def __post_init__(self) -> None:
        check(self, "trunks")
