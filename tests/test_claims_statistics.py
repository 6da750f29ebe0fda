"""Intervals and paired tests over seeds."""

from collections.abc import Sequence

import numpy as np
import pytest

from controller.numerics.arrays import Floats
from experiments.results.statistics import interval, intervals, paired, pooled, pooled_pair


def test_the_same_samples_give_the_same_interval() -> None:
    samples = [3.0, 1.0, 4.0, 1.0, 5.0]
    assert interval(samples) == interval(samples)
    assert interval(samples).low < 2.8 < interval(samples).high


@pytest.mark.parametrize("count", [6, 20, 60])
def test_the_interval_holds_the_true_mean_about_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(7)
    found = intervals(rng.exponential(1.0, (count, 2000)))
    covered = float(np.mean((found[1] <= 1.0) & (found[2] >= 1.0)))
    assert 0.88 < covered < 0.98  # skewed samples: the plain percentile interval has .79 for 6 of them


@pytest.mark.parametrize("count", [2, 3, 5])
def test_few_pairs_of_equal_systems_are_seldom_told_apart(count: int) -> None:
    found = intervals(np.random.default_rng(5).normal(0.0, 1.0, (count, 2000)))
    apart = float(np.mean((found[1] > 0.0) | (found[2] < 0.0)))
    assert 0.01 < apart < 0.07  # of two the range of the data excludes 0 half of the time


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [float("inf"), 1.0]])
def test_samples_that_are_none_or_not_finite_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one, all finite"):
        interval(samples)


def test_pairs_see_a_small_difference_under_large_common_noise() -> None:
    common = np.random.default_rng(3).normal(0.0, 10.0, 20)
    jitter = np.random.default_rng(4).normal(0.0, 0.01, 20)
    found = paired((common + 0.1 + jitter).tolist(), common.tolist())
    assert 0.08 < found.difference.low < found.difference.high < 0.12
    assert found.p_value < 1e-4


def ratio(samples: Sequence[Floats]) -> float:
    """Of sums."""
    part, whole = np.sum(samples, axis=0)
    return float(part / whole) if whole else float("nan")


def test_a_pooled_statistic_is_of_all_seeds_together() -> None:
    samples = [np.array([1.0, 1.0]), np.array([0.0, 9.0]), np.array([3.0, 10.0])]
    found = pooled(ratio, samples)
    assert found is not None
    assert found.mean == pytest.approx(4.0 / 20.0)  # the mean of the seeds' own ratios is .43
    assert found.low < found.mean < found.high
    assert pooled(ratio, samples) == found


@pytest.mark.parametrize("count", [2, 3, 6, 20])
def test_pooled_pairs_of_equal_systems_are_seldom_told_apart(count: int) -> None:
    """Losses with heavy tails: as few seeds as two do not make a difference out of nothing."""
    rng, apart, rounds = np.random.default_rng(11), 0, 60
    for _ in range(rounds):
        one, other = ([np.array([x, 3.0]) for x in rng.lognormal(0.0, 1.0, count)] for _ in range(2))
        found = pooled_pair(ratio, one, other, lambda first, second: first - second)
        assert found is not None
        apart += found.low > 0.0 or found.high < 0.0
    assert apart / rounds < 0.15  # nominally .05; without the stretch .5 for two seeds
