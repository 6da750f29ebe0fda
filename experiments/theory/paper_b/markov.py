"""Poisson jobs and Poisson spots (paper B, Theorems 4 and 5): everything in closed form.

The queue under r = N + p (join below N, with probability p at N) is a birth-death chain: pi_n in proportion to rho^n for
n <= N and p rho^(N+1) for N + 1, rho = lambda/mu. With A = sum of rho^n and B = sum of n rho^n over n <= N, the delay
E[n]/lambda = delta is met by the last N with lambda delta >= B/A and p = (lambda delta A - B)/(rho^(N+1) (N + 1 - lambda
delta)). This policy is optimal over all policies (checked by the tests' linear program). rho = 1 is 0/0 in the printed Theorem
5 and nothing special here, since the sums are not divided out; they are kept relative to rho^N, so that nothing overflows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from experiments.theory.domain import DomainError, positive, require

ROUNDING = 1e-12  # relative: within it a delay target counts as met
MAX_LEVELS = 10_000_000


@dataclass(frozen=True, slots=True)
class Markov:
    """Stationary numbers of one policy: mean delay of all jobs (h), mean cost, P(empty), P(n waiting) for n = 0, 1, ...

    `levels` is empty for an unlimited queue.
    """

    delay_h: float
    cost: float
    empty: float
    levels: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Optimum:
    """r* = N + p, infinite if the delay target does not bind, and its mean cost."""

    r_star: float
    cost: float


def under_level(mean_job_h: float, mean_spot_h: float, r: float, k: float) -> Markov:
    """Return M/M under r = N + p (paper B, Theorem 4's policy).

    r = infinity: all jobs wait; the delay is infinite if lambda >= mu.

    DomainError: means or k that are not above 0, or r below 0.
    """
    rho = _load(mean_job_h, mean_spot_h, k)
    require(r >= 0.0, "r", r, "must be 0 or more")
    if math.isinf(r) and rho >= 1.0:
        return Markov(math.inf, _cost(k, rho, 1.0), 0.0, ())
    if math.isinf(r):
        return Markov(rho / (1.0 - rho) * mean_job_h, 1.0, 1.0 - rho, ())
    require(r < MAX_LEVELS, "r", r, f"must be below {MAX_LEVELS}, or infinite")
    n, p = math.floor(r), r - math.floor(r)
    logs = np.arange(n + 1 + (p > 0.0)) * math.log(rho)
    if p > 0.0:
        logs[-1] += math.log(p)
    weights = np.exp(logs - logs.max())
    levels = weights / weights.sum()
    length = float(levels @ np.arange(len(levels)))
    empty = float(levels[0])
    return Markov(length * mean_job_h, _cost(k, rho, 1.0 - empty), empty, tuple(levels.tolist()))


def theorem5(mean_job_h: float, mean_spot_h: float, n_max: float, k: float) -> Markov:
    """Return the least cost with at most N waiting, and delta_N, the delay that it takes (paper B, Theorem 5).

    lambda = mu: the limit pi_0 = 1/(N + 1). DomainError: N that is no whole number of 0 or more (infinity is allowed).
    """
    require(math.isinf(n_max) or n_max == math.floor(n_max), "N", n_max, "must be a whole number or infinite")
    return under_level(mean_job_h, mean_spot_h, n_max, k)


def optimum(mean_job_h: float, mean_spot_h: float, delta_h: float, k: float) -> Optimum:
    """Return the exact r* and cost* of M/M for any delay target (paper B, Theorem 4, in closed form).

    Infinite r* where even an unlimited queue keeps delta: lambda < mu and delta >= 1/(mu - lambda) (cost 1), or delta
    itself is infinite. DomainError: as `under_level`, or a negative delta.
    """
    rho = _load(mean_job_h, mean_spot_h, k)
    require(delta_h >= 0.0, "delta", delta_h, "must be 0 or more")
    wanted = delta_h / mean_job_h  # lambda delta, the mean number waiting
    most = rho / (1.0 - rho) if rho < 1.0 else math.inf
    if wanted >= most * (1.0 - ROUNDING):
        return Optimum(math.inf, _cost(k, rho, min(1.0, rho)))
    n, mean, total = 0, 0.0, 1.0  # cap N, B/A and A/rho^N
    while n < MAX_LEVELS:
        share = total / rho
        following = (mean * share + n + 1) / (share + 1.0)
        if following > wanted * (1.0 + ROUNDING):
            p = max(0.0, min(1.0, share * (wanted - mean) / (n + 1 - wanted)))
            return Optimum(n + p, under_level(mean_job_h, mean_spot_h, n + p, k).cost)
        n, mean, total = n + 1, following, share + 1.0
    raise DomainError("delta", delta_h, f"needs a queue of more than {MAX_LEVELS}")


def _load(mean_job_h: float, mean_spot_h: float, k: float) -> float:
    positive("1/lambda", mean_job_h)
    positive("1/mu", mean_spot_h)
    require(1.0 <= k < math.inf, "k", k, "must be a finite cost of 1 or more")
    return mean_spot_h / mean_job_h


def _cost(k: float, rho: float, busy: float) -> float:
    """Return Theorem 1's cost with pi_0 = 1 - busy; the share served on spots is at most 1, rounding apart."""
    return k - (k - 1.0) * min(1.0, busy / rho)
