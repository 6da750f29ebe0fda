"""Model of a simulation: two laws, a rule, a price and a life of offers."""

from __future__ import annotations

from dataclasses import dataclass

from controller.core.queueing.replay import Rule
from experiments.theory.laws import Law


@dataclass(frozen=True, slots=True)
class Model:
    """Independent renewal processes of jobs and of spots, both with a renewal at time 0; hours throughout.

    `k` is the cost of on-demand where spot costs 1. ValueError: k below 1, a life of offers below 0.
    """

    jobs: Law
    spots: Law
    rule: Rule
    k: float = 10.0
    offer_ttl_h: float = 0.0

    def __post_init__(self) -> None:
        if not self.k >= 1.0:
            raise ValueError(f"k = {self.k}: 1 or more, in units of the cost of spot")
        if not self.offer_ttl_h >= 0.0:
            raise ValueError(f"offer_ttl_h = {self.offer_ttl_h}: 0 or more")
