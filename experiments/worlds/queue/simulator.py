"""Simulation of paper B's queue: draw a piece of history, replay it, go on where it ended; means with standard errors.

Jobs that follow each other are not independent, batches of thousands are: errors are those of the batches' means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.core.queueing.replay import QueueState, Rule, replay
from controller.numerics.arrays import Floats
from experiments.theory.laws import Law
from experiments.worlds.queue.history import DrawnHistory

# So many that their spread is known to 7 %; a batch is far longer than the queue's memory.
BATCHES: Final = 100
WARM_UP: Final = 2_000  # jobs: from the empty queue at a renewal to where nothing remembers it


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


def simulate(model: Model, jobs: int, seed: int, *, batches: int = BATCHES, warm_up: int = WARM_UP) -> Estimate:
    """Return E[C], E[T] and pi_0 of the model, from `jobs` jobs after a warm-up that does not count.

    Memory does not grow with `jobs`. The same seed gives the same estimate. ValueError: fewer jobs
    than batches, fewer than two batches.
    """
    if not 2 <= batches <= jobs:
        raise ValueError(f"{batches} batches of {jobs} jobs: at least two batches, and at least a job each")
    history = DrawnHistory(model.jobs, model.spots, seed)
    state = _run(model, history, QueueState(), warm_up, np.zeros(5))
    rows = np.zeros((batches, 5))
    for index, row in enumerate(rows):
        count = (index + 1) * jobs // batches - index * jobs // batches
        state = _run(model, history, state, count, row)
    return estimate(model.k, rows)


def _run(model: Model, history: DrawnHistory, state: QueueState, jobs: int, row: Floats) -> QueueState:
    """Run one batch: add its sums to the row, and return the state at its end."""
    for piece in history.pieces(jobs):
        seen = replay(model.rule, *piece, model.offer_ttl_h, state)
        row += (seen.spot, seen.on_demand, seen.total_delay_s, seen.idle_spots, seen.spots)
        state = seen.end.shifted(-piece.end_h)
    return state
