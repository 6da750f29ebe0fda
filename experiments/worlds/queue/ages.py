"""Exact numbers for rules that look at the age of the gap, where jobs are Poisson (beyond paper B; notes of this project).

During a gap the number waiting depends on its number at the last spot and on the age alone. It climbs at rate lambda
while jobs are admitted, stands still while they are not, and falls to 0 at the age of leaving. Its table by age and the
law of the gap give the chain of the numbers that spots find. From it follow pi_0, and the cost by Theorem 1. Table and
law also give the mean number over time, so the mean delay, by Little's law, of all jobs: those that leave wait too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from scipy import linalg

from controller.core.queueing.replay import Rule, admit_probability
from controller.numerics.arrays import Floats
from experiments.theory.laws import Law, while_it_lasts


@dataclass(frozen=True, slots=True)
class Exact:
    """E[C], E[T] over all jobs, and the probability that a spot finds no job waiting."""

    cost: float
    delay_h: float
    pi_0: float


def under_ages(mean_job_h: float, spots: Law, rule: Rule, k: float) -> Exact:
    """Return the exact values of the rule for Poisson jobs and spots of that law, with offers lapsing at once.

    Times of the rule in hours, like those of the law. ValueError: a longest wait, which needs more than the number
    waiting; a level without end.
    """
    if rule.longest_wait_s < math.inf or rule.level == math.inf:
        raise ValueError(f"{rule}: a finite level and no longest wait")
    size = math.ceil(rule.level) + 1
    climb, climb_between = _climb(rule.level, size), _climb(max(0.0, rule.level - rule.fewer), size)
    changes_h = (rule.admit_until_age_s, rule.admit_from_age_s, rule.leave_at_age_s)
    # Rows: number waiting when the gap began; columns: P(n wait now), P(the next spot finds n), mean hours with n waiting.
    # By parts: E[p(S)] = p(0) + the integral of (1 - F) dp, in which dp is the climb or, at the age of leaving, a jump.
    waiting, found, spent_h = np.eye(size), np.eye(size), np.zeros((size, size))
    for begin_h, end_h in pairwise(sorted({0.0, *changes_h, math.inf})):
        if begin_h == rule.leave_at_age_s:
            empty = np.tile(np.eye(size)[0], (size, 1))
            found += (1.0 - float(spots.cdf(begin_h))) * (empty - waiting)
            waiting = empty
        is_between = rule.admit_until_age_s <= begin_h < rule.admit_from_age_s
        rates = climb_between if is_between else climb
        climbed = partial(_climbed, rates, begin_h, mean_job_h)
        spent = waiting @ while_it_lasts(spots, climbed, begin_h, end_h)
        found += spent @ rates / mean_job_h
        spent_h += spent
        if end_h < math.inf:
            waiting = waiting @ climbed(end_h)
    # The chain of what successive spots find: a spot serves one, then the number climbs from there.
    served = np.eye(size)[np.maximum(np.arange(size) - 1, 0)]
    equations = (served @ found).T - np.eye(size)
    equations[-1] = 1.0
    before = np.linalg.solve(equations, np.eye(size)[-1])
    length = float(before @ served @ spent_h @ np.arange(size)) / spots.mean
    pi_0 = float(before[0])
    cost = k - (k - 1.0) * mean_job_h / spots.mean * (1.0 - pi_0)  # Theorem 1
    return Exact(cost, length * mean_job_h, pi_0)


def _climb(level: float, size: int) -> Floats:
    """Return the generator of the number waiting while jobs join up to `level`; its unit of time is the mean between two jobs."""
    joins = np.array([admit_probability(level, n) for n in range(size)])
    return np.diag(joins[:-1], 1) - np.diag(joins)


def _climbed(rates: Floats, begin_h: float, mean_job_h: float, at_h: float) -> Floats:
    """Return rows: number waiting at `begin_h`; columns: P(n wait at `at_h`)."""
    return np.asarray(linalg.expm(rates * ((at_h - begin_h) / mean_job_h)))
