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
    """Whose rate fell, then whose rose, by more than such a part of it; a stream's rises by another."""
    fell = np.flatnonzero(old > new * (1.0 + least_fall))
    return np.append(
        fell, np.flatnonzero(new > old * (1.0 + np.where(is_stream, least_stream_rise, least_rise)))
    )


@compiled
def intervals_moved(old_s: Floats, new_s: Floats, least: float) -> Numbers:
    """Whose interval did by more than such a part of it, from anything that is known (else NaN) to anything finite."""
    return np.flatnonzero(np.isfinite(new_s) & ~(np.abs(new_s - old_s) <= least * old_s))
