"""Theorems of paper B that the program does not use: formulas that its exact numbers and the reference vectors are held to.

*Poisson jobs and spots (Theorems 4 and 5).* The queue under r = N + p is a birth-death chain: pi_n in proportion to
rho^n for n <= N and p rho^(N+1) for N + 1, rho = lambda/mu. With A = sum of rho^n and B = sum of n rho^n over n <= N,
the delay E[n]/lambda = delta is met by the last N with lambda delta >= B/A and p = (lambda delta A - B)/(rho^(N+1) (N +
1 - lambda delta)). rho = 1 is 0/0 in the printed Theorem 5 and nothing special here: the sums are not divided out, but
kept relative to rho^N.

*Costs (Theorems 1 and 2).* Theorem 1 holds for any arrivals and any policy, if pi_0 is the probability that an arriving
*spot* finds the queue empty; the share of *time* is the same number for Poisson spots only. Theorem 2, k - (k - 1) mu
delta, is exact for Poisson spots and any renewal jobs. Its printed threshold P(A <= S)/lambda is the largest delay of
one slot for Poisson jobs *and* spots; in general that delay is another one (`longest_one_slot_delay_h`).

*Longest waits in the single slot (Theorem 3, Corollaries 1 to 4, Remarks 1 and 2).* Everything follows from E[W] =
delta/(1 - lambda delta), the mean of W = min(X, S) that a wait law X may have, and from the aim to maximise P(X > S).
They meet delta exactly for Poisson jobs only, up to delta = 1/(lambda + mu).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from experiments.theory.domain import DomainError, not_negative, positive, require, share
from experiments.theory.laws import Deterministic, Exponential, Law, ScipyLaw, while_it_lasts
from experiments.theory.paper_b import single_slot
from experiments.theory.paper_b.stationary import under_level as exact_level

ROUNDING = 1e-9  # relative: within it a value counts as the end of its domain
MET = 1e-12  # relative: within it a delay target counts as met
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
    if wanted >= most * (1.0 - MET):
        return Optimum(math.inf, _cost(k, rho, min(1.0, rho)))
    n, mean, total = 0, 0.0, 1.0  # cap N, B/A and A/rho^N
    while n < MAX_LEVELS:
        share = total / rho
        following = (mean * share + n + 1) / (share + 1.0)
        if following > wanted * (1.0 + MET):
            p = max(0.0, min(1.0, share * (wanted - mean) / (n + 1 - wanted)))
            return Optimum(n + p, under_level(mean_job_h, mean_spot_h, n + p, k).cost)
        n, mean, total = n + 1, following, share + 1.0
    raise DomainError("delta", delta_h, f"needs a queue of more than {MAX_LEVELS}")


def _load(mean_job_h: float, mean_spot_h: float, k: float) -> float:
    positive("1/lambda", mean_job_h)
    positive("1/mu", mean_spot_h)
    _price(k)
    return mean_spot_h / mean_job_h


def _cost(k: float, rho: float, busy: float) -> float:
    """Return Theorem 1's cost with pi_0 = 1 - busy; the share served on spots is at most 1, rounding apart."""
    return k - (k - 1.0) * min(1.0, busy / rho)


def cost_per_job(k: float, mean_job_h: float, mean_spot_h: float, empty_at_spots: float) -> float:
    """Return E[C] = k - (k - 1) (mu/lambda) (1 - pi_0) (paper B, Theorem 1).

    DomainError: k < 1, or more jobs served on spots than arrive ((mu/lambda)(1 - pi_0) > 1: no system has such a pi_0).
    """
    positive("1/lambda", mean_job_h)
    positive("1/mu", mean_spot_h)
    _price(k)
    served = mean_job_h / mean_spot_h * (1.0 - share("pi_0", empty_at_spots))
    require(served <= 1.0 + 1e-9, "(mu/lambda)(1 - pi_0)", served, "must be at most 1: a share of the jobs")
    return k - (k - 1.0) * served


def cost_of_one_slot(k: float, mean_spot_h: float, delta_h: float) -> float:
    """Return E[C] = k - (k - 1) mu delta (paper B, Theorem 2): the optimum for delta up to the threshold, if spots are Poisson.

    DomainError: mu delta > 1 (the cost would be below 1).
    """
    served = not_negative("delta", delta_h) / positive("1/mu", mean_spot_h)
    require(served <= 1.0 + 1e-9, "mu delta", served, "must be at most 1")
    return _price(k) - (k - 1.0) * served


def job_before_spot(jobs: Law, spots: Law) -> float:
    """Return P(A <= S) of two independent times. DomainError: jobs whose law has no density, and spots that are not Poisson."""
    if isinstance(spots, Exponential):
        return jobs.laplace(1.0 / spots.mean)
    if isinstance(spots, Deterministic):
        return float(jobs.cdf(spots.value))
    if isinstance(jobs, Deterministic):
        return 1.0 - float(spots.cdf(jobs.value))
    if not isinstance(jobs, ScipyLaw):
        raise DomainError("jobs", jobs, "must have a density")
    return float(while_it_lasts(spots, jobs.scipy.pdf))


def printed_threshold_h(jobs: Law, spots: Law) -> float:
    """Return P(A <= S)/lambda, up to which paper B's Theorem 2 claims that one slot is optimal."""
    return jobs.mean * job_before_spot(jobs, spots)


def longest_one_slot_delay_h(jobs: Law, spots: Law) -> float:
    """Return the end of Theorem 2's range: the mean delay of one slot in which jobs that find it free wait for ever.

    P(A > S)/mu for Poisson spots; the one-slot closed form for Poisson jobs; the stationary chain for the rest.
    """
    if isinstance(spots, Exponential):
        return spots.mean * (1.0 - job_before_spot(jobs, spots))
    if isinstance(jobs, Exponential):
        return single_slot.delay_h(jobs.mean, spots, 1.0)
    return exact_level(jobs, spots, 1.0).delay_h


def _price(k: float) -> float:
    require(1.0 <= k < math.inf, "k", k, "must be a finite cost of 1 or more")
    return k


def mean_wait_allowed_h(mean_job_h: float, delta_h: float) -> float:
    """Return E[W] = delta/(1 - lambda delta) (paper B, Theorem 3); infinite at lambda delta = 1.

    DomainError: lambda delta > 1.
    """
    length = not_negative("delta", delta_h) / positive("1/lambda", mean_job_h)
    require(
        length <= 1.0 + ROUNDING, "lambda delta", length, "must be at most 1: one slot holds one job at most"
    )
    return delta_h / (1.0 - length) if length < 1.0 - ROUNDING else math.inf


def share_that_waits(mean_job_h: float, mean_spot_h: float, delta_h: float) -> float:
    """Return P(X >= L) = mu delta/(1 - lambda delta); the others do not wait at all (paper B, Corollary 1).

    For spots of bounded support [0, L], whatever their law. DomainError: delta > 1/(lambda + mu).
    """
    _in_domain(mean_job_h, mean_spot_h, delta_h)
    return min(1.0, mean_wait_allowed_h(mean_job_h, delta_h) / mean_spot_h)


def laplace_target(mean_job_h: float, mean_spot_h: float, delta_h: float) -> float:
    """Return (1 - (lambda + mu) delta)/(1 - lambda delta): any X with this E[e^(-mu X)] is optimal.

    Corollary 3, Poisson spots.

    0 at delta = 1/(lambda + mu). DomainError above.
    """
    left = _in_domain(mean_job_h, mean_spot_h, delta_h)
    return left / (1.0 - delta_h / mean_job_h)


def exponential_wait_rate_per_h(mean_job_h: float, mean_spot_h: float, delta_h: float) -> float:
    """Return phi = 1/delta - (mu + lambda) of an exponential X (Remark 2, Poisson spots); infinite at delta = 0: no job waits."""
    left = _in_domain(mean_job_h, mean_spot_h, delta_h)
    return left / delta_h if delta_h > 0.0 else math.inf


def fixed_wait_h(mean_job_h: float, mean_spot_h: float, delta_h: float) -> float:
    """Return the shortest longest wait X = (1/mu) log[(1 - lambda delta)/(1 - (lambda + mu) delta)].

    Corollary 4, Poisson spots.

    Infinite at delta = 1/(lambda + mu). DomainError above.
    """
    target = laplace_target(mean_job_h, mean_spot_h, delta_h)
    return abs(mean_spot_h * math.log(target)) if target > 0.0 else math.inf


def _in_domain(mean_job_h: float, mean_spot_h: float, delta_h: float) -> float:
    """Return 1 - (lambda + mu) delta, rounded to 0 at the end of the domain."""
    not_negative("delta", delta_h)
    left = 1.0 - delta_h * (1.0 / positive("1/lambda", mean_job_h) + 1.0 / positive("1/mu", mean_spot_h))
    allowed = f"must be at most 1/(lambda + mu) = {mean_job_h * mean_spot_h / (mean_job_h + mean_spot_h):.9g}"
    require(left >= -ROUNDING, "delta", delta_h, f"{allowed}; above it use Theorem 4")
    return left if left > ROUNDING else 0.0
