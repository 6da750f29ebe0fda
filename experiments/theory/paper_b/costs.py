"""The mean cost of a job, and the condition under which one slot is enough (paper B, Theorems 1 and 2).

Theorem 1 holds for any arrivals and any policy, if pi_0 is the probability that an arriving *spot* finds the queue
empty. The share of *time* that the queue is empty is the same number for Poisson spots only. With bath-tub spots, r = 1
and Poisson(1/12) jobs the cost is 5.841; the time average would give 5.200.

Theorem 2, k - (k - 1) mu delta, is exact for Poisson spots and any renewal jobs. Its printed threshold P(A <= S)/lambda
is the largest delay of one slot for Poisson jobs *and* spots; in general that delay is another one
(`longest_one_slot_delay_h`).
"""

from __future__ import annotations

import math
from itertools import pairwise

from scipy import integrate

from experiments.theory.domain import DomainError, not_negative, positive, require, share
from experiments.theory.laws import BathTub, Deterministic, Exponential, Law, ScipyLaw, effective_end
from experiments.theory.paper_b import single_slot
from experiments.theory.paper_b.stationary import under_level


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
    """Return P(A <= S) of two independent times.

    Exact by Laplace transforms where one is exponential; else by quadrature.

    DomainError: spots whose law has no density.
    """
    if isinstance(jobs, Exponential):
        return 1.0 - spots.laplace(1.0 / jobs.mean)
    if isinstance(spots, Exponential):
        return jobs.laplace(1.0 / spots.mean)
    if isinstance(spots, Deterministic):
        return float(jobs.cdf(spots.value))
    if not isinstance(spots, ScipyLaw | BathTub):
        raise DomainError("spots", spots, "must have a density")
    end = effective_end(spots)
    corners = sorted({0.0, end, *(t for t in (*spots.corners, *jobs.corners, jobs.longest) if 0.0 < t < end)})
    cells = [
        integrate.quad(lambda t: float(jobs.cdf(t) * spots.pdf(t)), *cell, epsabs=1e-12, limit=200)[0]
        for cell in pairwise(corners)
    ]
    return float(spots.cdf(0.0) * jobs.cdf(0.0)) + math.fsum(cells)


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
    return under_level(jobs, spots, 1.0).delay_h


def _price(k: float) -> float:
    require(1.0 <= k < math.inf, "k", k, "must be a finite cost of 1 or more")
    return k
