"""Find the numbers of a column that have moved by enough to be told."""

from __future__ import annotations

import numpy as np

from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled


@compiled
def rates_moved(
    old: Floats,
    new: Floats,
    is_stream: Mask,
    least_fall: float,
    least_rise: float,
    least_stream_rise: float,
) -> Numbers:
    """Rows whose rate changed enough to announce: falls first. Streams use a higher threshold for rises."""
    fell = np.flatnonzero(old > new * (1.0 + least_fall))
    return np.append(
        fell, np.flatnonzero(new > old * (1.0 + np.where(is_stream, least_stream_rise, least_rise)))
    )


@compiled
def intervals_moved(old_s: Floats, new_s: Floats, least: float) -> Numbers:
    """Rows whose interval changed enough to announce, from a known one (else NaN) to a finite one."""
    return np.flatnonzero(np.isfinite(new_s) & ~(np.abs(new_s - old_s) <= least * old_s))
