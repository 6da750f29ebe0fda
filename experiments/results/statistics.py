"""Intervals and paired tests over seeds. Every seed is an independent run, so means of seeds are resampled, nothing else, but for
tables whose cases share their seeds (`crossed`).

The percentile bootstrap is too narrow for few seeds, by (n-1)/n in the variance and by z instead of t in the quantile. Its
levels are widened accordingly (Hesterberg, "What teachers should know about the bootstrap", 2015, the expanded
percentile interval); from 30 seeds on that changes little. It never leaves the range of the data: of two seeds it is that
range, and on one side of 0 every second time by chance. So below six seeds an interval is at least Student's.

The resampling is a matrix product: `scipy.stats.bootstrap` takes ten times as long for a curve of 288 points, and cannot
leave out the resamples in which a pooled statistic is not a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from controller.numerics.arrays import Floats

RESAMPLES = 4000
POOLED_RESAMPLES = 1000  # a statistic of everything has to be computed for each
LEVEL = 0.95
ENOUGH_SEEDS = 6  # all on one side by chance: once in 32 times


Statistic = Callable[[Sequence[Floats]], float]  # of the samples of several seeds


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A mean and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    seeds: int


def interval(samples: Sequence[float]) -> ConfidenceInterval:
    """The interval of the mean of independent samples, one a seed; the same samples give the same interval.

    ValueError: none, or one that is not finite.
    """
    mean, low, high = intervals(np.asarray(samples, np.float64)[:, None])[:, 0]
    return ConfidenceInterval(float(mean), float(low), float(high), len(samples))


def intervals(samples: Floats) -> Floats:
    """Rows (mean, low, high) for samples of shape (seeds, points), each point for itself. Raises as `interval`."""
    if not len(samples) or not np.isfinite(samples).all():
        raise ValueError(f"samples {samples.tolist()}: at least one, all finite")
    mean = samples.mean(axis=0)
    if len(samples) == 1:
        return np.stack([mean, mean, mean])
    outside = _widened((1.0 - LEVEL) / 2.0, len(samples))
    low, high = np.quantile(_resampling(len(samples)) @ samples, (outside, 1.0 - outside), axis=0)
    if (count := len(samples)) < ENOUGH_SEEDS:
        reach = (
            float(stats.t.ppf((1.0 + LEVEL) / 2.0, count - 1))
            * samples.std(axis=0, ddof=1)
            / math.sqrt(count)
        )
        low, high = np.minimum(low, mean - reach), np.maximum(high, mean + reach)
    return np.stack([mean, np.minimum(low, mean), np.maximum(high, mean)])


def crossed(samples: Floats) -> ConfidenceInterval:
    """The interval of the mean of a table of shape (cases, seeds), where one seed draws something alike in all cases.

    Such cases are not independent: what a seed happens to draw goes up or down in many of them at once, and an interval over the
    cases alone does not see it, nor one over the seeds that other cases would differ. So the variances of the mean over cases and
    over seeds are added, which is somewhat too much where a seed has no effect of its own (Owen, "The pigeonhole bootstrap",
    2007). With four seeds resampling them has four values to go by: Student's t instead, with Satterthwaite's degrees of freedom.
    ValueError: fewer than two cases or seeds, or a sample that is not finite.
    """
    if min(samples.shape) < 2 or not np.isfinite(samples).all():
        raise ValueError(f"samples {samples.tolist()}: at least two cases and two seeds, all finite")
    mean = float(samples.mean())
    parts = [
        (float(means.var(ddof=1)) / len(means), len(means) - 1)
        for means in (samples.mean(axis=1), samples.mean(axis=0))
    ]
    variance = sum(part for part, _ in parts)
    reach = 0.0
    if variance > 0.0:
        freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
        reach = float(stats.t.ppf((1.0 + LEVEL) / 2.0, freedom)) * math.sqrt(variance)
    return ConfidenceInterval(mean, mean - reach, mean + reach, len(samples))


@dataclass(frozen=True, slots=True)
class Paired:
    """Mean of the differences (first - second), its interval, and Wilcoxon's two-sided p; 1 where all are equal."""

    difference: ConfidenceInterval
    p_value: float


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Seed by seed, both on the same history. ValueError: not as many of one as of the other."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} samples beside {len(second)}: pairs, one of each a seed")
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    same = not differences.any()
    p_value = 1.0 if same else float(stats.wilcoxon(differences).pvalue)
    return Paired(interval(differences.tolist()), p_value)


def pooled(statistic: Statistic, samples: Sequence[Floats]) -> ConfidenceInterval | None:
    """The interval of a statistic of all seeds' samples together (a sum over a sum, a median), whole seeds resampled.

    For numbers of which one seed alone holds too few to be a number. None: the statistic of all samples is not finite.
    """
    return _bootstrap(lambda chosen: statistic([samples[n] for n in chosen]), len(samples))


def pooled_pair(
    statistic: Statistic,
    first: Sequence[Floats],
    second: Sequence[Floats],
    combine: Callable[[float, float], float],
) -> ConfidenceInterval | None:
    """`combine` of the statistic of two systems on the same seeds, resampled together. ValueError: not pairs."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} samples beside {len(second)}: pairs, one of each a seed")

    def both(chosen: Sequence[int]) -> float:
        return combine(statistic([first[n] for n in chosen]), statistic([second[n] for n in chosen]))

    return _bootstrap(both, len(first))


def _bootstrap(statistic: Callable[[Sequence[int]], float], count: int) -> ConfidenceInterval | None:
    """Resamples in which the statistic is not a number (nothing happened) say nothing and are left out."""
    whole = statistic(range(count))
    if not math.isfinite(whole):
        return None
    if count == 1:
        return ConfidenceInterval(whole, whole, whole, 1)
    rng = np.random.default_rng(20240229)
    found = np.array([statistic(rng.integers(count, size=count).tolist()) for _ in range(POOLED_RESAMPLES)])
    outside = _widened((1.0 - LEVEL) / 2.0, count)
    low, high = np.quantile(found[np.isfinite(found)], (outside, 1.0 - outside)).tolist()
    # An interval that cannot leave the resamples is too short: with two seeds a statistic has three values, and is on one side of
    # anything every second time by chance. Below six seeds it is stretched by Student's t over z.
    stretch = 1.0
    if count < ENOUGH_SEEDS:
        level = (1.0 + LEVEL) / 2.0
        stretch = float(stats.t.ppf(level, count - 1) / stats.norm.ppf(level))
    return ConfidenceInterval(
        whole, whole - stretch * max(0.0, whole - low), whole + stretch * max(0.0, high - whole), count
    )


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
