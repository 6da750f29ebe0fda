"""Means with standard errors, by batches: jobs that follow each other are not independent, batches of thousands are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.core.queueing.replay import SPOT, WAITING
from controller.numerics.arrays import Floats


@dataclass(frozen=True, slots=True)
class Mean:
    """An estimate and one standard error of it."""

    value: float
    error: float

    def errors_from(self, exact: float) -> float:
        """Return its distance from the exact value, in standard errors; 0 over 0 is 0."""
        away = abs(self.value - exact)
        if self.error > 0.0:
            return away / self.error
        return 0.0 if away < 1e-9 * max(1.0, abs(exact)) else math.inf


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimates from a run of `jobs` jobs: E[C], E[T] over all jobs, and the part of the spots that found no job."""

    jobs: int
    cost: Mean
    delay_h: Mean
    pi_0: Mean


def ratio(numerators: Floats, denominators: Floats) -> Mean:
    """Return sum over sum, from one pair a batch; the error is that of the ratio estimator (delta method).

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
    """Estimate from rows (spot, on_demand, total delay, idle spots, spots), one a batch."""
    spot, on_demand, delay_h, idle, spots = np.asarray(batches, np.float64).T
    left = spot + on_demand
    return Estimate(
        jobs=int(left.sum()),
        cost=ratio(spot + k * on_demand, left),
        delay_h=ratio(delay_h, left),
        pi_0=ratio(idle, spots),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Fates:
    """Outcome of each job (`controller.core.queueing.replay`'s decisions) and its wait; NaN while it waits."""

    decisions: NDArray[np.int8]
    delays_h: Floats

    def means(self, k: float, batches: int) -> tuple[Mean, Mean]:
        """Return E[C] and E[T] of the jobs that left, by batches of jobs that came after each other."""
        left = self.decisions != WAITING
        costs = np.where(self.decisions == SPOT, 1.0, k)[left]
        counts = _batched(np.ones(len(costs)), batches)
        return ratio(_batched(costs, batches), counts), ratio(_batched(self.delays_h[left], batches), counts)

    def differences(self, other: Fates) -> int:
        """Return the number of jobs with another outcome: another decision, or a delay that differs by more than rounding."""
        delays_differ = ~np.isclose(self.delays_h, other.delays_h, rtol=1e-9, atol=1e-6, equal_nan=True)
        return int(np.count_nonzero((self.decisions != other.decisions) | delays_differ))


def _batched(values: Floats, batches: int) -> Floats:
    return np.array([part.sum() for part in np.array_split(values, batches)])
