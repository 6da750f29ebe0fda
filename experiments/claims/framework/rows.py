"""Rows and curves of a values file from the results of many seeds: the few shapes that claims need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from controller.numerics.arrays import Floats
from experiments.claims.framework.values import Point, Value
from experiments.results.statistics import ConfidenceInterval, Paired, interval, intervals, paired


def row(
    group: str, system: str, quantity: str, unit: str, found: ConfidenceInterval, note: str = "", **more: Any
) -> Value:
    """Return a row with a statistic's interval. `more`: exact, published, p_value."""
    return Value(group, system, quantity, unit, found.mean, found.low, found.high, found.seeds, note=note, **more)


def mean_row(
    group: str, system: str, quantity: str, unit: str, samples: Sequence[float], note: str = "", **more: Any
) -> Value:
    """Return the mean of one number a seed."""
    return row(group, system, quantity, unit, interval(samples), note, **more)


def paired_row(
    group: str, system: str, quantity: str, unit: str, first: Sequence[float], second: Sequence[float], **more: Any
) -> Value:
    """Return the mean of first - second, seed by seed, with Wilcoxon's p."""
    found: Paired = paired(first, second)
    return row(group, system, quantity, unit, found.difference, p_value=found.p_value, **more)


def curve(group: str, system: str, quantity: str, xs: Sequence[float] | Floats, samples: Floats) -> Iterator[Point]:
    """Yield a point at each x, from samples of shape (seeds, points)."""
    numbers = zip(np.asarray(xs, np.float64).tolist(), intervals(samples), strict=True)
    return (Point(group, system, quantity, x, *ends) for x, ends in numbers)
