"""Means with standard errors, by batches: jobs that follow each other are not independent, batches of thousands are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from experiments.theory.laws import Floats


@dataclass(frozen=True, slots=True)
class Mean:
    """An estimate and one standard error of it."""

    value: float
    error: float

    def errors_from(self, exact: float) -> float:
        """How many standard errors it is away from what it should be; 0 over 0 is 0."""
        away = abs(self.value - exact)
        return (
            away / self.error
            if self.error > 0.0
            else (0.0 if away < 1e-9 * max(1.0, abs(exact)) else math.inf)
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run of so many jobs says: E[C], E[T] over all jobs, and the part of the spots that found nobody."""

    jobs: int
    cost: Mean
    delay_h: Mean
    pi_0: Mean


def ratio(numerators: Floats, denominators: Floats) -> Mean:
    """Sum over sum, from one pair a batch; the error is that of the ratio estimator (delta method).

    ValueError: fewer than two batches, or nothing to divide by.
    """
    batches, total = len(numerators), float(denominators.sum())
    if batches < 2 or not total > 0.0:
        raise ValueError(f"{batches} batches that sum to {total}: at least two, and something to divide by")
    value = float(numerators.sum()) / total
    residuals = numerators - value * denominators
    spread = math.sqrt(float(residuals @ residuals) * batches / (batches - 1))
    return Mean(value, spread / total)


def estimate(k: float, batches: Floats) -> Estimate:
    """From rows (spot, on_demand, total delay, idle spots, spots), one a batch."""
    spot, on_demand, delay_h, idle, spots = np.asarray(batches, np.float64).T
    left = spot + on_demand
    return Estimate(
        jobs=int(left.sum()),
        cost=ratio(spot + k * on_demand, left),
        delay_h=ratio(delay_h, left),
        pi_0=ratio(idle, spots),
    )
