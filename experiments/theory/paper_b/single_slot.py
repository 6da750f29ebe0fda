"""A single slot with Poisson jobs and any spot law, in closed form.

It corrects paper B's Theorem 2 for other spots than Poisson.

A job that finds the slot free joins with probability p and waits for ever. A gap between spots of length S leaves the
slot free until the first joining arrival, an exponential time of rate lambda p. From then on the slot is occupied. So a
gap is occupied for E[S] - (1 - L_S(lambda p))/(lambda p) on average. It ends occupied with probability
1 - L_S(lambda p), which gives

    lambda E[T] = 1 - mu (1 - L_S(lambda p))/(lambda p),     E[C] = k - (k - 1) (mu/lambda) (1 - L_S(lambda p)).
"""

from __future__ import annotations

from scipy import optimize

from experiments.theory.domain import not_negative, positive, require, share
from experiments.theory.laws import Law


def delay_h(mean_job_h: float, spots: Law, p: float) -> float:
    """Return E[T] over all jobs, those sent to on-demand counting 0."""
    rate = share("p", p) / positive("1/lambda", mean_job_h)
    if rate == 0.0:
        return 0.0
    free_h = (1.0 - spots.laplace(rate)) / rate
    return mean_job_h * max(0.0, 1.0 - free_h / spots.mean)


def cost(mean_job_h: float, spots: Law, p: float, k: float) -> float:
    """Return E[C]; pi_0 = L_S(lambda p) at spot epochs."""
    rate = share("p", p) / positive("1/lambda", mean_job_h)
    require(k >= 1.0, "k", k, "must be 1 or more")
    return k - (k - 1.0) * mean_job_h / spots.mean * (1.0 - spots.laplace(rate))


def join_probability(mean_job_h: float, spots: Law, delta_h: float) -> float:
    """Return the p at which E[T] = delta. DomainError: one slot never delays so much (p = 1 falls short of delta)."""
    longest = delay_h(mean_job_h, spots, 1.0)
    not_negative("delta", delta_h)
    require(delta_h <= longest * (1.0 + 1e-9), "delta", delta_h, f"must be at most {longest:.6g}, what p = 1 gives")
    if delta_h == 0.0 or delta_h >= longest:
        return 0.0 if delta_h == 0.0 else 1.0
    return float(optimize.brentq(lambda p: delay_h(mean_job_h, spots, p) - delta_h, 0.0, 1.0, xtol=1e-15, rtol=1e-14))
