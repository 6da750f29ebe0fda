"""Test of Theorem 2: a job under emergencies, with an interval that follows the state or a fixed one; loss and writing count.

The state is the hazard and the slowness 1/B. It is constant for an epoch and lognormal over epochs, with paper A's
coefficients of variation (F4) and a correlation of choice. Both policies see the same epochs and the same emergencies.
The cost is that of eq. (1): work lost at emergencies, and time spent writing. The exact moments of the *drawn* epochs
give the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from controller.numerics.arrays import Floats
from experiments.theory.paper_a.theorems import adaptivity_gap, lognormal_gap_ratio

HAZARD_PER_S = 0.99 / 3600.0  # Appendix C, "trace-wide"
WRITE_S = 48.3  # mean C/B there: 3.2 GB at 530 Mbit/s
CV_HAZARD, CV_SLOWNESS = 0.62, 0.31  # F4


@dataclass(frozen=True, slots=True)
class Epochs:
    """Epochs of equal length: hazards per second, and seconds that a write takes (C/B)."""

    length_s: float
    hazards_per_s: Floats
    writes_s: Floats


def draw_epochs(correlation: float, count: int, length_s: float, rng: np.random.Generator) -> Epochs:
    """Return epochs with lognormal pairs: hazard and slowness have that (linear) correlation."""
    s, t = (math.sqrt(math.log1p(cv * cv)) for cv in (CV_HAZARD, CV_SLOWNESS))
    rho = log_correlation(correlation)
    first, other = rng.standard_normal((2, count))
    second = rho * first + math.sqrt(max(0.0, 1.0 - rho * rho)) * other
    hazards = HAZARD_PER_S * np.exp(s * first - s * s / 2.0)
    return Epochs(length_s, hazards, WRITE_S * np.exp(t * second - t * t / 2.0))


def log_correlation(correlation: float) -> float:
    """Return the logarithms' correlation, for lognormals of F4's variation with that correlation; clipped to its range."""
    s, t = (math.sqrt(math.log1p(cv * cv)) for cv in (CV_HAZARD, CV_SLOWNESS))
    return max(-1.0, min(1.0, math.log1p(correlation * CV_HAZARD * CV_SLOWNESS) / (s * t)))


def predicted_gap(correlation: float) -> float:
    """Return Eq. (6) less 1, for the law the epochs are drawn from."""
    return lognormal_gap_ratio(CV_HAZARD, CV_SLOWNESS, log_correlation(correlation)) - 1.0


def emergencies(epochs: Epochs, rng: np.random.Generator) -> list[float]:
    """Return a Poisson process of the epochs' hazards."""
    counts = rng.poisson(epochs.hazards_per_s * epochs.length_s)
    starts = np.repeat(np.arange(len(counts)) * epochs.length_s, counts)
    moments: list[float] = np.sort(starts + rng.random(len(starts)) * epochs.length_s).tolist()
    return moments


def cost_rate(epochs: Epochs, moments_s: Sequence[float], interval_s: Callable[[int], float]) -> float:
    """Return seconds lost and written per second, with the interval that holds when each begins."""
    end_s, now_s, spent_s, coming = epochs.length_s * len(epochs.hazards_per_s), 0.0, 0.0, 0
    writes_s, last = epochs.writes_s.tolist(), len(epochs.writes_s) - 1
    while now_s < end_s:
        due_s = now_s + interval_s(int(now_s // epochs.length_s))
        if coming < len(moments_s) and moments_s[coming] < due_s:
            spent_s += moments_s[coming] - now_s
            now_s, coming = moments_s[coming], coming + 1
        else:
            now_s = due_s
            spent_s += writes_s[min(last, int(now_s // epochs.length_s))]
    return spent_s / end_s


def one_run(correlation: float, count: int, length_s: float, seed: int) -> dict[str, Any]:
    """Return the gaps of one trace: predicted from its moments, and measured."""
    rng = np.random.default_rng([seed, round(1000.0 * (correlation + 2.0)), count])
    epochs = draw_epochs(correlation, count, length_s, rng)
    moments_s = emergencies(epochs, rng)
    following = np.sqrt(2.0 * epochs.writes_s / epochs.hazards_per_s).tolist()
    fixed_s = math.sqrt(2.0 * float(epochs.writes_s.mean()) / float(epochs.hazards_per_s.mean()))
    dependent = cost_rate(epochs, moments_s, lambda epoch: following[min(epoch, count - 1)])
    independent = cost_rate(epochs, moments_s, lambda _: fixed_s)
    moments = adaptivity_gap(epochs.hazards_per_s.tolist(), (1.0 / epochs.writes_s).tolist(), 1.0)
    return {
        "predicted": moments.ratio - 1.0,
        "measured": independent / dependent - 1.0,
        "correlation": float(np.corrcoef(epochs.hazards_per_s, epochs.writes_s)[0, 1]),
        "emergencies": len(moments_s),
    }
