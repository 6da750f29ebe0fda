"""Intervals and paired tests over seeds. Every seed is an independent run, so means of seeds are resampled, nothing else.

The percentile bootstrap is too narrow for few seeds, by (n-1)/n in the variance and by z instead of t in the quantile. Its
levels are widened accordingly (Hesterberg, "What teachers should know about the bootstrap", 2015, the expanded percentile
interval); from 30 seeds on that changes little. It never leaves the range of the data: with two seeds it is that range, and on
one side of 0 every second time by chance. So below six seeds there is no interval.

`scipy.stats.bootstrap` has neither these levels nor a way to leave out resamples whose statistic is not a number. It
takes ten times as long for a curve of 288 points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from scipy import stats

from controller.numerics.arrays import Floats

RESAMPLES = 4000
POOLED_RESAMPLES = 1000  # a statistic of everything has to be computed for each
SEED = 20240229
LEVEL = 0.95
ENOUGH_SEEDS = 6  # all on one side by chance: once in 32 times

T = TypeVar("T")
Statistic = Callable[[Sequence[Floats]], float]  # of the samples of several seeds


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A mean and its 95 % bootstrap interval; below six seeds it has no ends."""

    mean: float
    low: float | None
    high: float | None
    seeds: int


def interval(samples: Sequence[float]) -> ConfidenceInterval:
    """Return the interval of the mean of independent samples, one a seed; the same samples give the same interval.

    ValueError: none, or one that is not finite.
    """
    [ends] = intervals(np.asarray(samples, np.float64)[:, None])
    return ConfidenceInterval(*ends, len(samples))


def intervals(samples: Floats) -> list[tuple[float, float | None, float | None]]:
    """Return (mean, low, high) of each point, for samples of shape (seeds, points). Raises as `interval`."""
    if not len(samples) or not np.isfinite(samples).all():
        raise ValueError(f"samples {samples.tolist()}: at least one, all finite")
    count, mean = len(samples), samples.mean(axis=0)
    if count < ENOUGH_SEEDS:
        return [(each, None, None) for each in mean.tolist()]
    low, high = np.quantile(_resampling(count) @ samples, _levels(count), axis=0)
    found = zip(mean.tolist(), np.minimum(low, mean).tolist(), np.maximum(high, mean).tolist(), strict=True)
    return list(found)


@dataclass(frozen=True, slots=True)
class Paired:
    """Mean of the differences (first - second), its interval, and Wilcoxon's two-sided p; 1 where all are equal.

    Without an interval there is no p.
    """

    difference: ConfidenceInterval
    p_value: float | None


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Compare seed by seed, both on the same history. ValueError: not as many of one as of the other."""
    differences = [one - other for one, other in _pairs(first, second)]
    if len(differences) < ENOUGH_SEEDS:
        return Paired(interval(differences), None)
    return Paired(interval(differences), float(stats.wilcoxon(differences).pvalue) if any(differences) else 1.0)


def pooled(statistic: Statistic, samples: Sequence[Floats]) -> ConfidenceInterval | None:
    """Return the interval of a statistic of all seeds' samples together (a sum over a sum, a median), whole seeds resampled.

    For numbers of which one seed alone holds too few to be a number. None: the statistic of all samples is not finite.
    """
    return _bootstrap(lambda chosen: statistic([samples[n] for n in chosen]), len(samples))


def pooled_pair(
    statistic: Statistic, first: Sequence[Floats], second: Sequence[Floats], combine: Callable[[float, float], float]
) -> ConfidenceInterval | None:
    """Resample `combine` of the statistic of two systems on the same seeds. ValueError: not pairs."""
    pairs = _pairs(first, second)

    def both(chosen: Sequence[int]) -> float:
        one, other = zip(*(pairs[n] for n in chosen), strict=True)
        return combine(statistic(one), statistic(other))

    return _bootstrap(both, len(pairs))


def _pairs(first: Sequence[T], second: Sequence[T]) -> list[tuple[T, T]]:
    if len(first) != len(second):
        raise ValueError(f"{len(first)} samples beside {len(second)}: pairs, one of each a seed")
    return list(zip(first, second, strict=True))


def _bootstrap(statistic: Callable[[Sequence[int]], float], count: int) -> ConfidenceInterval | None:
    """Resample seeds, without resamples in which the statistic is not a number because nothing happened."""
    whole = statistic(range(count))
    if not math.isfinite(whole):
        return None
    if count < ENOUGH_SEEDS:
        return ConfidenceInterval(whole, None, None, count)
    rng = np.random.default_rng(SEED)
    found = np.array([statistic(rng.integers(count, size=count).tolist()) for _ in range(POOLED_RESAMPLES)])
    low, high = np.quantile(found[np.isfinite(found)], _levels(count)).tolist()
    return ConfidenceInterval(whole, min(low, whole), max(high, whole), count)


@lru_cache(maxsize=8)
def _resampling(count: int) -> Floats:
    """Return weights of the samples in each resample, (RESAMPLES, count)."""
    draws = np.random.default_rng(SEED).multinomial(count, np.full(count, 1.0 / count), RESAMPLES)
    weights: Floats = draws / count
    return weights


def _levels(count: int) -> tuple[float, float]:
    """Return the quantiles of resamples to read off for the interval of so many samples."""
    reach = math.sqrt(count / (count - 1.0)) * float(stats.t.ppf((1.0 + LEVEL) / 2.0, count - 1))
    outside = float(stats.norm.cdf(-reach))
    return outside, 1.0 - outside
