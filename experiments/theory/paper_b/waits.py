"""How long a job in the single slot should be willing to wait (paper B, Theorem 3, Corollaries 1-4, Remarks 1-2).

Everything follows from E[W] = delta/(1 - lambda delta), the mean of W = min(X, S) that a wait law X may have, and from the
aim to maximise P(X > S). Both are averages over X, of H(w) = E[min(S, w)] and of F(w), so Theorem 3's LP asks for the top
of the convex hull of the curve (H(w), F(w)) at E[W]: at most two different waits are needed.

These statements meet delta exactly for Poisson jobs only (the paper "guards against the worst case", a job that comes just
after a spot, which for the age of other gaps is no worst case at all), and Corollary 1's optimality needs NBUE spots, which
the bath-tub is not: use them to start with, then correct from the measured delay.

Domain: delta <= 1/(lambda + mu), where E[W] reaches 1/mu and everybody waits for ever; above it, Theorem 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from experiments.theory.domain import not_negative, positive, require
from experiments.theory.laws import Floats, Law
from experiments.theory.quadrature import panels

EVEN_WAITS = 4000
ROUNDING = 1e-9  # relative: within it delta counts as the end of the domain


@dataclass(frozen=True, slots=True)
class WaitLaw:
    """Maximal waits (h; infinity: for ever) and their probabilities, and the P(X > S) that they reach."""

    waits_h: tuple[float, ...]
    probabilities: tuple[float, ...]
    served: float


def mean_wait_allowed_h(mean_job_h: float, delta_h: float) -> float:
    """E[W] = delta/(1 - lambda delta) (paper B, Theorem 3); infinite at lambda delta = 1. DomainError: lambda delta > 1."""
    length = not_negative("delta", delta_h) / positive("1/lambda", mean_job_h)
    require(
        length <= 1.0 + ROUNDING, "lambda delta", length, "must be at most 1: one slot holds one job at most"
    )
    return delta_h / (1.0 - length) if length < 1.0 - ROUNDING else math.inf


def share_that_waits(mean_job_h: float, mean_spot_h: float, delta_h: float) -> float:
    """P(X >= L) = mu delta/(1 - lambda delta); the others do not wait at all (paper B, Corollary 1).

    For spots of bounded support [0, L], whatever their law. DomainError: delta > 1/(lambda + mu).
    """
    _in_domain(mean_job_h, mean_spot_h, delta_h)
    return min(1.0, mean_wait_allowed_h(mean_job_h, delta_h) / mean_spot_h)


def shortest_two_point_wait(mean_job_h: float, spots: Law, delta_h: float) -> WaitLaw:
    """Remark 1: of Corollary 1's laws the one whose longest wait is shortest, 0 or L. DomainError: unbounded spots too."""
    require(math.isfinite(spots.longest), "spots", spots, "must have a bounded support [0, L]")
    p = share_that_waits(mean_job_h, spots.mean, delta_h)
    return WaitLaw((0.0, spots.longest), (1.0 - p, p), p)


def loss_of_a_wait_within(w: float, longest: float) -> float:
    """F(w) - mu E[min(S, w)] = (w/L)^2 - w/L for uniform spots on [0, L] (paper B, Corollary 2).

    Below 0 inside (0, L): every wait there costs, so Corollary 1's two-point laws are the only optimal ones. DomainError:
    w outside [0, L].
    """
    require(0.0 <= w <= positive("L", longest), "w", w, f"must be from 0 to L = {longest}")
    return (w / longest) ** 2 - w / longest


def laplace_target(mean_job_h: float, mean_spot_h: float, delta_h: float) -> float:
    """(1 - (lambda + mu) delta)/(1 - lambda delta): any X with this E[e^(-mu X)] is optimal (Corollary 3, Poisson spots).

    0 at delta = 1/(lambda + mu). DomainError above.
    """
    left = _in_domain(mean_job_h, mean_spot_h, delta_h)
    return left / (1.0 - delta_h / mean_job_h)


def exponential_wait_rate_per_h(mean_job_h: float, mean_spot_h: float, delta_h: float) -> float:
    """phi = 1/delta - (mu + lambda) of an exponential X (Remark 2, Poisson spots); infinite at delta = 0: nobody waits."""
    left = _in_domain(mean_job_h, mean_spot_h, delta_h)
    return left / delta_h if delta_h > 0.0 else math.inf


def fixed_wait_h(mean_job_h: float, mean_spot_h: float, delta_h: float) -> float:
    """X = (1/mu) log[(1 - lambda delta)/(1 - (lambda + mu) delta)], the shortest longest wait (Corollary 4, Poisson spots).

    Infinite at delta = 1/(lambda + mu). DomainError above.
    """
    target = laplace_target(mean_job_h, mean_spot_h, delta_h)
    return abs(mean_spot_h * math.log(target)) if target > 0.0 else math.inf


def optimal_wait(mean_job_h: float, spots: Law, delta_h: float) -> WaitLaw:
    """Theorem 3's LP for any spot law, by the upper hull of (E[min(S, w)], F(w)) over a fine set of waits and infinity.

    DomainError: delta > 1/(lambda + mu).
    """
    _in_domain(mean_job_h, spots.mean, delta_h)
    wanted = min(mean_wait_allowed_h(mean_job_h, delta_h), spots.mean)
    waits = _fine_waits(spots)
    spent = np.array([spots.limited_mean(float(w)) for w in waits])
    hull = _upper_hull(spent, np.asarray(spots.cdf(waits)))
    right = min(int(np.searchsorted(spent[hull], wanted)), len(hull) - 1)
    a, b = hull[max(right - 1, 0)], hull[right]
    p = (wanted - spent[a]) / (spent[b] - spent[a]) if spent[b] > spent[a] else 1.0
    reached = (1.0 - p) * float(spots.cdf(waits[a])) + p * float(spots.cdf(waits[b]))
    return WaitLaw((float(waits[a]), float(waits[b])), (float(1.0 - p), float(p)), float(reached))


def _in_domain(mean_job_h: float, mean_spot_h: float, delta_h: float) -> float:
    """1 - (lambda + mu) delta, rounded to 0 at the end of the domain."""
    not_negative("delta", delta_h)
    left = 1.0 - delta_h * (1.0 / positive("1/lambda", mean_job_h) + 1.0 / positive("1/mu", mean_spot_h))
    allowed = f"must be at most 1/(lambda + mu) = {mean_job_h * mean_spot_h / (mean_job_h + mean_spot_h):.9g}"
    require(left >= -ROUNDING, "delta", delta_h, f"{allowed}; above it use Theorem 4")
    return left if left > ROUNDING else 0.0


def _fine_waits(spots: Law) -> Floats:
    """Graded towards the law's corners, even in between and in the tail, and infinity."""
    graded = panels(spots, 0.0)[0]
    even = np.concatenate(
        [np.linspace(0.0, end, EVEN_WAITS) for end in (spots.mean, 5.0 * spots.mean, graded[-1])]
    )
    return np.unique(np.concatenate([graded, even, [*spots.corners, math.inf]]))


def _upper_hull(x: Floats, y: Floats) -> list[int]:
    """Indices of the upper convex hull of points sorted by x (Andrew's monotone chain)."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1 and _below(x, y, hull[-2], hull[-1], i):
            hull.pop()
        if hull and x[i] == x[hull[-1]]:  # of equal times the greater chance
            if y[i] <= y[hull[-1]]:
                continue
            hull.pop()
        hull.append(i)
    return hull


def _below(x: Floats, y: Floats, a: int, b: int, c: int) -> bool:
    return bool((y[b] - y[a]) * (x[c] - x[a]) <= (y[c] - y[a]) * (x[b] - x[a]))
