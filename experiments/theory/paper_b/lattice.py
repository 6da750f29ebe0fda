"""Paper B's queue on a grid of times, for two laws of which neither is a clock (gamma jobs of shape 2.5, bath-tub spots).

Both laws are put on multiples of a step h without changing their means (a time between two multiples goes to either, by
its distance), jobs happen in the middle of steps and spots at their ends, so that none coincide. The state is (number
waiting, steps since the last job); between spots it moves by a matrix that is never written out. The stationary state
after a spot is found by iteration, and two steps h and h/2 are extrapolated: the error is of order h^2.
"""

from __future__ import annotations

import numpy as np

from controller.core.queueing.controllers.fixed import admit_probability
from controller.numerics.arrays import Floats
from experiments.theory.domain import DomainError
from experiments.theory.laws import Law, effective_end

STEPS_A_MEAN = 50
MAX_STEPS = 40_000
CONVERGED = 1e-12
MAX_CYCLES = 3_000


def busy_and_levels(jobs: Law, spots: Law, r: float) -> tuple[float, Floats]:
    """Return P(a spot finds a job waiting) and the share of time with n = 0, 1, ... waiting under r = N + p, to about 1e-7.

    To 1e-4 where a density is infinite at 0. DomainError: a law too heavy-tailed for the grid.
    """
    step_h = min(jobs.mean, spots.mean) / STEPS_A_MEAN
    coarse, fine = (_on_grid(jobs, spots, r, h) for h in (step_h, step_h / 2.0))
    busy, *levels = (4.0 * np.array(fine) - np.array(coarse)) / 3.0
    return float(busy), np.array(levels)


def _on_grid(jobs: Law, spots: Law, r: float, step_h: float) -> list[float]:
    """Return [P(a spot finds a job waiting), P(0 waiting), P(1 waiting), ...]."""
    times, gap = _probabilities(jobs, step_h), _probabilities(spots, step_h)
    left = np.cumsum(times[:0:-1])[::-1]
    # P(a job comes i steps after the last one, which none did before)
    renewal = np.minimum(np.where(left > 0.0, times[1:] / np.maximum(left, 1e-300), 1.0), 1.0)
    count = int(np.ceil(r)) + 1
    joins = np.array([admit_probability(r, n) for n in range(count)])
    once = np.diag(1.0 - joins) + np.diag(joins[:-1], 1)
    # a job at a distance of 0 comes at the same time
    joining = (1.0 - times[0]) * once @ np.linalg.inv(np.eye(count) - times[0] * once)
    open_gaps = 1.0 - np.cumsum(gap)
    start = np.zeros((count, len(renewal)))  # (number waiting, steps since the last job) just after a spot
    start[0, 0] = 1.0
    for _ in range(MAX_CYCLES):
        state = start
        before, spent = gap[0] * state, 0.5 * open_gaps[0] * state.sum(axis=1)
        for chance, longer in zip(gap[1:], open_gaps[1:], strict=True):
            moved = np.empty_like(state)
            moved[:, 1:] = (state * (1.0 - renewal))[:, :-1]
            moved[:, 0] = (state @ renewal) @ joining
            state = moved
            before += chance * state
            spent += (max(longer, 0.0) + 0.5 * chance) * state.sum(axis=1)
        after = np.zeros_like(before)
        after[:-1] = before[1:]
        after[0] += before[0]
        if float(np.abs(after - start).sum()) < CONVERGED:
            return [1.0 - float(before[0].sum()), *(spent / spent.sum()).tolist()]
        start = after
    raise DomainError("laws", (jobs, spots), f"must settle within {MAX_CYCLES} gaps between spots")


def _probabilities(law: Law, step_h: float) -> Floats:
    """Return P(the law is i steps), i = 0, 1, ..., with the same mean."""
    count = int(np.ceil(effective_end(law) / step_h)) + 2
    if count > MAX_STEPS:
        raise DomainError("law", law, f"reaches further than {MAX_STEPS} steps of {step_h:.3g} h")
    limited = np.array([law.limited_mean(i * step_h) for i in range(count + 1)])
    chances = -np.diff(limited, n=2, prepend=[-step_h]) / step_h
    chances = np.maximum(chances, 0.0)
    return np.asarray(chances / chances.sum())
