"""The longest wait that a job in the single slot should accept (paper B, Theorem 3, Corollaries 1-4, Remarks 1-2).

Everything follows from E[W] = delta/(1 - lambda delta), the mean of W = min(X, S) that a wait law X may have, and from
the aim to maximise P(X > S). Both are averages over X, of H(w) = E[min(S, w)] and of F(w). So Theorem 3's LP asks for
the top of the convex hull of the curve (H(w), F(w)) at E[W]: at most two different waits are needed.

These statements meet delta exactly for Poisson jobs only. The paper "guards against the worst case", a job that comes
just after a spot; for the age of other gaps it is no worst case at all. Corollary 1's optimality needs NBUE spots,
which the bath-tub is not: use them to start with, then correct from the measured delay.

Domain: delta <= 1/(lambda + mu), where E[W] reaches 1/mu and every job waits for ever; above it, Theorem 4.
"""

from __future__ import annotations

import math

from experiments.theory.domain import not_negative, positive, require

ROUNDING = 1e-9  # relative: within it delta counts as the end of the domain


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
