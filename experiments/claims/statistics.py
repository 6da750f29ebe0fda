"""Intervals and paired tests over seeds. Every seed is an independent run, so means of seeds are resampled, nothing else.

The percentile bootstrap is too narrow for few seeds, by (n-1)/n in the variance and by z instead of t in the quantile. Its
levels are widened accordingly (Hesterberg, "What teachers should know about the bootstrap", 2015, the expanded
percentile interval); from 30 seeds on that changes little. It still never leaves the range of the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from experiments.theory.laws import Floats

RESAMPLES = 4000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    seeds: int


def interval(samples: Sequence[float]) -> Interval:
    """Of the mean of independent samples, one a seed; the same samples give the same interval.

    ValueError: none, or one that is not finite.
    """
    mean, low, high = intervals(np.asarray(samples, np.float64)[:, None])[:, 0]
    return Interval(float(mean), float(low), float(high), len(samples))


def intervals(samples: Floats) -> Floats:
    """Rows (mean, low, high) for samples of shape (seeds, points), each point for itself. Raises as `interval`."""
    if not len(samples) or not np.isfinite(samples).all():
        raise ValueError(f"samples {samples.tolist()}: at least one, all finite")
    mean = samples.mean(axis=0)
    if len(samples) == 1:
        return np.stack([mean, mean, mean])
    outside = _widened((1.0 - LEVEL) / 2.0, len(samples))
    low, high = np.quantile(_resampling(len(samples)) @ samples, (outside, 1.0 - outside), axis=0)
    return np.stack([mean, np.minimum(low, mean), np.maximum(high, mean)])


@dataclass(frozen=True, slots=True)
class Paired:
    """Mean of the differences (first - second), its interval, and Wilcoxon's two-sided p; 1 where all are equal."""

    difference: Interval
    p_value: float


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Seed by seed, both on the same history. ValueError: not as many of one as of the other."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} samples beside {len(second)}: pairs, one of each a seed")
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    same = not differences.any()
    p_value = 1.0 if same else float(stats.wilcoxon(differences).pvalue)
    return Paired(interval(differences.tolist()), p_value)


@lru_cache(maxsize=8)
def _resampling(count: int) -> Floats:
    """Weights of the samples in each resample, (RESAMPLES, count)."""
    draws = np.random.default_rng(20240229).multinomial(count, np.full(count, 1.0 / count), RESAMPLES)
    weights: Floats = draws / count
    return weights


def _widened(level: float, count: int) -> float:
    """The lower quantile to read off, for a nominal one, with so many samples."""
    reach = math.sqrt(count / (count - 1.0)) * float(stats.t.ppf(1.0 - level, count - 1))
    return float(stats.norm.cdf(-reach))
