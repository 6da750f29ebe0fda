"""Exact numbers for rules that look at the age of the gap, where jobs are Poisson (beyond paper B; notes of this project).

During a gap the number waiting depends on its number at the last spot and on the age alone: it climbs at rate
lambda while jobs are admitted, stands still while they are not, and falls to 0 at the age of leaving. One table of
what it is at each age, and the law of the gap, give the chain of what spots find (so pi_0, and the cost by Theorem
1) and the mean number over time (so the mean delay, by Little's law, of all jobs: those that leave wait too).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import linalg, stats

from controller.core.queueing.queue import admit_probability
from controller.core.queueing.replay import Rule
from experiments.theory.laws import Floats, Law
from experiments.theory.paper_b.costs import cost_per_job
from experiments.theory.quadrature import panels


@dataclass(frozen=True, slots=True)
class Exact:
    """E[C], E[T] over all jobs, and the probability that a spot finds nobody waiting."""

    cost: float
    delay_h: float
    pi_0: float


def under_ages(mean_job_h: float, spots: Law, rule: Rule, k: float) -> Exact:
    """What the rule does to Poisson jobs under spots of that law, offers lapsing at once.

    Times of the rule in hours, like those of the law. ValueError: a longest wait, which needs more than the number
    waiting; a level without end.
    """
    if rule.longest_wait_s < math.inf or rule.level == math.inf:
        raise ValueError(f"{rule}: a finite level and no longest wait")
    size = math.ceil(rule.level) + 1
    found, area_h = np.eye(size), np.zeros(size)
    for stretch in _stretches(mean_job_h, spots, rule, size):
        found += stretch.moved
        area_h += stretch.spent_h @ np.arange(size)
    before = _stationary(found)
    length = float(before @ _served(size) @ area_h) / spots.mean
    pi_0 = float(before[0])
    return Exact(cost_per_job(k, mean_job_h, spots.mean, pi_0), length * mean_job_h, pi_0)


class _Stretch(NamedTuple):
    """Ages between two changes of the rule. Rows: waiting when the gap began; columns: waiting then."""

    moved: Floats  # P(a spot finds n), less what it would be if the gap ended where the stretch begins
    spent_h: Floats  # mean time with n waiting


def _stretches(mean_job_h: float, spots: Law, rule: Rule, size: int) -> Iterator[_Stretch]:
    """By parts: E[p(S)] = p(0) + the integral of (1 - F) dp, in which dp is the climb or, at the age of leaving, a jump."""
    climb, climb_between = (
        _climb(level, size) / mean_job_h for level in (rule.level, max(0.0, rule.level - rule.fewer))
    )
    changes_h = (rule.admit_until_age_s, rule.admit_from_age_s, rule.leave_at_age_s)
    nodes_h, weights_h = panels(spots, mean_job_h, changes_h)
    left_h = weights_h * (1.0 - spots.cdf(nodes_h))
    waiting = np.eye(size)
    for begin_h, end_h in pairwise(sorted({0.0, *changes_h, math.inf})):
        if begin_h == rule.leave_at_age_s:
            nobody = np.tile(np.eye(size)[0], (size, 1))
            yield _Stretch((1.0 - float(spots.cdf(begin_h))) * (nobody - waiting), np.zeros((size, size)))
            waiting = nobody
        is_between = rule.admit_until_age_s <= begin_h < rule.admit_from_age_s
        rates = climb_between if is_between else climb
        inside = (nodes_h >= begin_h) & (nodes_h < end_h)
        spent_h = waiting @ _integral(
            rates * mean_job_h, (nodes_h[inside] - begin_h) / mean_job_h, left_h[inside]
        )
        yield _Stretch(spent_h @ rates, spent_h)
        if end_h < math.inf:
            waiting = waiting @ linalg.expm(rates * (end_h - begin_h))


def _climb(level: float, size: int) -> Floats:
    """Of the number waiting, a job's mean time between two jobs."""
    joins = np.array([admit_probability(level, n) for n in range(size)])
    return np.diag(joins[:-1], 1) - np.diag(joins)


def _integral(rates: Floats, times: Floats, weights: Floats) -> Floats:
    """Sum of weight * expm(rates * time), by uniformisation: no rate is above 1, so jumps are Poisson in number."""
    most = int(times[-1] + 12.0 * math.sqrt(times[-1]) + 60.0) if len(times) else 0
    step, power, total = np.eye(len(rates)) + rates, np.eye(len(rates)), np.zeros_like(rates)
    for jumps in range(most):
        total += float(weights @ stats.poisson.pmf(jumps, times)) * power
        power = power @ step
    return total


def _served(size: int) -> Floats:
    """What a spot does to the number waiting."""
    return np.eye(size)[np.maximum(np.arange(size) - 1, 0)]


def _stationary(found: Floats) -> Floats:
    """Of the numbers that successive spots find; row m of `found`: what the next finds if m stayed behind."""
    size = len(found)
    equations = (_served(size) @ found).T - np.eye(size)
    equations[-1] = 1.0
    solved: Floats = np.linalg.solve(equations, np.eye(size)[-1])
    return solved
