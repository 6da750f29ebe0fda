"""From results of many seeds to rows of a values file: the few shapes that paper A's claims need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.claims.framework.values import Value
from experiments.results.statistics import (
    ConfidenceInterval,
    Paired,
    interval,
    paired,
)


def row(
    group: str, system: str, quantity: str, unit: str, found: ConfidenceInterval, note: str = "", **more: Any
) -> Value:
    """`more`: exact, published, p_value."""
    return Value(
        group, system, quantity, unit, found.mean, found.low, found.high, found.seeds, note=note, **more
    )


def mean_row(
    group: str, system: str, quantity: str, unit: str, samples: Sequence[float], note: str = "", **more: Any
) -> Value:
    """The mean of one number a seed."""
    return row(group, system, quantity, unit, interval(samples), note, **more)


def paired_row(
    group: str,
    system: str,
    quantity: str,
    unit: str,
    first: Sequence[float],
    second: Sequence[float],
    **more: Any,
) -> Value:
    """The mean of first - second, seed by seed, with Wilcoxon's p."""
    found: Paired = paired(first, second)
    return row(group, system, quantity, unit, found.difference, p_value=found.p_value, **more)


def exact_row(
    group: str, system: str, quantity: str, unit: str, ours: float, note: str = "", **more: Any
) -> Value:
    """A number without chance in it."""
    return Value(group, system, quantity, unit, ours, note=note, **more)
