"""Paper B's queue on a grid of times, for two laws of which neither is a clock (gamma jobs of shape 2.5, bath-tub spots).

Both laws are put on multiples of a step h without changing their means (a time between two multiples goes to either, by
its distance), jobs happen in the middle of steps and spots at their ends, so that none coincide. The state is (number
waiting, steps since the last job); between spots it moves by a matrix that is never written out. The stationary state
after a spot is found by iteration, and two steps h and h/2 are extrapolated: the error is of order h^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.core.queueing.controllers.fixed import admit_probability
from experiments.theory.domain import DomainError
from experiments.theory.laws import Floats, Law
from experiments.theory.paper_b.stationary import Stationary
from experiments.theory.quadrature import effective_end

STEPS_A_MEAN = 50
MOST_STEPS = 40_000
CONVERGED = 1e-12
MOST_CYCLES = 3_000


def under_level(jobs: Law, spots: Law, r: float, k: float) -> Stationary:
    """As `stationary.under_level`, to about 1e-7, and 1e-4 where a density is infinite at 0.

    DomainError: a law too heavy-tailed for the grid.
    """
    step_h = min(jobs.mean, spots.mean) / STEPS_A_MEAN
    coarse, fine = (_on_grid(jobs, spots, r, h) for h in (step_h, step_h / 2.0))
    busy, *levels = (4.0 * np.array(fine) - np.array(coarse)) / 3.0
    return Stationary(
        delay_h=float(np.arange(len(levels)) @ levels) * jobs.mean,
        cost=float(k - (k - 1.0) * jobs.mean / spots.mean * busy),
        spot_busy=float(busy),
        time_busy=float(1.0 - levels[0]),
        levels=tuple(float(level) for level in levels),
    )


def _on_grid(jobs: Law, spots: Law, r: float, step_h: float) -> list[float]:
    """[P(a spot finds somebody), P(0 waiting), P(1 waiting), ...]."""
    walk = _Walk.of(jobs, step_h, r)
    gap = _probabilities(spots, step_h)
    state = np.zeros((walk.joining.shape[0], len(walk.renewal)))
    state[0, 0] = 1.0
    for _ in range(MOST_CYCLES):
        before, spent = _one_gap(walk, state, gap)
        after = np.zeros_like(before)
        after[:-1] = before[1:]
        after[0] += before[0]
        if float(np.abs(after - state).sum()) < CONVERGED:
            return [1.0 - float(before[0].sum()), *(spent / spent.sum()).tolist()]
        state = after
    raise DomainError("laws", (jobs, spots), f"must settle within {MOST_CYCLES} gaps between spots")


@dataclass(frozen=True, slots=True)
class _Walk:
    """One step: a job comes with probability `renewal[i]`, i steps after the last one, and moves levels by `joining`."""

    renewal: Floats
    joining: Floats

    @classmethod
    def of(cls, jobs: Law, step_h: float, r: float) -> _Walk:
        times = _probabilities(jobs, step_h)
        later = times[1:]
        left = np.cumsum(later[::-1])[::-1]
        renewal = np.where(left > 0.0, later / np.maximum(left, 1e-300), 1.0)
        count = int(np.ceil(r)) + 1
        joins = np.array([admit_probability(r, n) for n in range(count)])
        once = np.diag(1.0 - joins) + np.diag(joins[:-1], 1)
        again = np.linalg.inv(
            np.eye(count) - times[0] * once
        )  # a job at a distance of 0 comes at the same time
        return cls(np.minimum(renewal, 1.0), (1.0 - times[0]) * once @ again)

    def step(self, state: Floats) -> Floats:
        moved = np.empty_like(state)
        moved[:, 1:] = (state * (1.0 - self.renewal))[:, :-1]
        moved[:, 0] = (state @ self.renewal) @ self.joining
        return moved


def _one_gap(walk: _Walk, state: Floats, gap: Floats) -> tuple[Floats, Floats]:
    """(state at the end of the gap, time spent at each level)."""
    left = 1.0 - np.cumsum(gap)
    before, spent = gap[0] * state, 0.5 * left[0] * state.sum(axis=1)
    for chance, longer in zip(gap[1:], left[1:], strict=True):
        state = walk.step(state)
        before += chance * state
        spent += (max(longer, 0.0) + 0.5 * chance) * state.sum(axis=1)
    return before, spent


def _probabilities(law: Law, step_h: float) -> Floats:
    """P(the law is i steps), i = 0, 1, ...: of the same mean."""
    count = int(np.ceil(effective_end(law) / step_h)) + 2
    if count > MOST_STEPS:
        raise DomainError("law", law, f"reaches further than {MOST_STEPS} steps of {step_h:.3g} h")
    limited = np.array([law.limited_mean(i * step_h) for i in range(count + 1)])
    chances = -np.diff(limited, n=2, prepend=[-step_h]) / step_h
    chances = np.maximum(chances, 0.0)
    return np.asarray(chances / chances.sum())
