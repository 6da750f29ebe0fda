"""The law of traffic that is not the testbed's: F3 and F4 of paper A.

Two levels, as the paper has them: what is left of access links, on which paths inside a building are decided, and of the
links between buildings and core. The traffic in between is constant over an epoch. What is left falls when owners are busy
(the hazard of a reclaim is high) and goes up and down besides:

    log(left / mean) = -sigma (w s + sqrt(1 - w^2) e),    left within (1 - spread, 1 + spread) of the mean

with s the hazard, standardised, and e a noise of the whole campus that remembers `memory` of itself from epoch to epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from topologies.dimension import Dimension
from topologies.fields import check, quantity
from topologies.units import MBIT_PER_S

D = Dimension


@dataclass(frozen=True, slots=True)
class BackgroundLaw:
    """Law of the bandwidth left by others, with means over the run, on the wire; a link below its mean is left alone."""

    local_bytes_per_s: float = quantity(D.RATE, 820 * MBIT_PER_S, above=True)  # F3: left of access links
    # F3: left between buildings and core
    core_bytes_per_s: float = quantity(D.RATE, 240 * MBIT_PER_S, above=True)
    spread: float = quantity(D.NUMBER, 0.6, high=0.99)  # F3: +-60 %
    sigma: float = quantity(D.NUMBER, 0.35, high=3.0)  # gives the variation of 1/B of F4, .31
    hazard_weight: float = quantity(D.NUMBER, 0.42, high=1.0)  # gives the correlation of F4, -.43
    building_sigma: float = quantity(D.NUMBER, 0.1, high=3.0)  # of each building apart; not in the paper
    memory: float = quantity(D.NUMBER, 0.5, high=0.999)  # from epoch to epoch; not in the paper
    # between two changes of the rates
    epoch_s: float = quantity(D.DURATION, 3600.0, above=True)

    def __post_init__(self) -> None:
        check(self, "background")
