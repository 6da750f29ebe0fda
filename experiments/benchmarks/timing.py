"""How long something takes, and what many times come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np


def seconds_of(work: Callable[[], object]) -> float:
    """How long the call takes."""
    begin_s = time.perf_counter()
    work()
    return time.perf_counter() - begin_s


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """`p50`, `p99` and `max`, in their unit."""
    return {
        "p50": float(np.quantile(values, 0.5)),
        "p99": float(np.quantile(values, 0.99)),
        "max": max(values),
    }
