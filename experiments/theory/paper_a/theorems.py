"""Closed forms of paper A that the coordinator does not compute itself.

The story of Theorem 2 is printed backwards. The gap is the Cauchy-Schwarz defect of (sqrt lambda, sqrt 1/B). If hazard and
slowness rise *together*, the best interval sqrt(2C/(lambda B)) hardly moves, and one fixed interval is nearly right.
Correlation of lambda and 1/B shrinks the gap; lambda B constant is only the extreme of it.

Section X prints B - B_min - (1 - phi) u as the guarantee of Theorem 4. That is left to *migrations*, not to research.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from experiments.theory.domain import not_negative, require


@dataclass(frozen=True, slots=True)
class AdaptivityGap:
    """Saving of intervals that follow the state (Theorem 2)."""

    ratio: float  # eq. (6)
    defect: float  # Delta_CS, eq. (8)
    gap: float  # the cost difference, eq. (7)


def adaptivity_gap(
    hazards_per_s: Sequence[float], rates_bytes_per_s: Sequence[float], payload_bytes: float
) -> AdaptivityGap:
    """Compute Theorem 2 on epochs of equal length, their hazards and bandwidths paired.

    The identity holds on any trace. DomainError: no epoch, or not one of each for every epoch.
    """
    paired = 0 < len(hazards_per_s) == len(rates_bytes_per_s)
    require(paired, "epochs", len(hazards_per_s), "need a hazard and a rate each, and are one at least")
    theta = fmean([1.0 / rate for rate in rates_bytes_per_s])
    root = math.sqrt(fmean(hazards_per_s) * theta)
    mean_w = fmean([math.sqrt(h / b) for h, b in zip(hazards_per_s, rates_bytes_per_s, strict=True)])
    defect = root * root - mean_w * mean_w
    return AdaptivityGap(root / mean_w, defect, math.sqrt(2.0 * payload_bytes) * (root - mean_w))


def lognormal_gap_ratio(cv_hazard: float, cv_slowness: float, log_correlation: float = 0.0) -> float:
    """Return eq. (6) for lognormal lambda and 1/B: exp((s^2 + t^2 - 2 rho s t)/8), s^2 = log(1 + cv^2).

    `log_correlation`: rho of their logarithms. DomainError: rho outside [-1, 1], or a negative variation.
    """
    require(-1.0 <= log_correlation <= 1.0, "correlation", log_correlation, "must be from -1 to 1")
    s, t = (math.sqrt(math.log1p(not_negative("CV", cv) ** 2)) for cv in (cv_hazard, cv_slowness))
    return math.exp((s * s + t * t - 2.0 * log_correlation * s * t) / 8.0)


def residual_for_research(minimum: float, participation: float = 1.0, uncontrolled: float = 0.0) -> float:
    """Return B_min - (1 - phi) u, at least 0 (Theorem 4): the rate left to research.

    `participation`: the share phi of providers; `uncontrolled`: the bursts u of the others. DomainError: phi outside (0, 1].
    """
    require(0.0 < participation <= 1.0, "phi", participation, "must be above 0, up to 1")
    taken = (1.0 - participation) * not_negative("u", uncontrolled)
    return max(0.0, not_negative("B_min", minimum) - taken)
