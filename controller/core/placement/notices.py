"""Notices that owners give: the probability that a departure's notice is too short for what has to be done.

A host that is taken back after a notice hurts a job only if the notice ends before its last checkpoint or its move is done.
So the hazard that counts for a job is that of departures of any kind, times P(notice < what the job needs). Notices are kept as
counts in bins, eight to an octave (at most an eighth wide, so 120 s is the edge of one), spread evenly within each, for the
last `window_s` seconds; a departure without notice is one of 0 s. With n departures in the window, k of them with a
notice below x,

    P(notice < x) = (k + 1/2) / (n + 1)

the posterior mean of a proportion after Jeffreys' prior: 1/2 where nothing was seen, and never quite 0 or 1.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from controller.numerics.arrays import Floats
from controller.numerics.jit import compiled

PARTS = 8  # bins of an octave
# octaves: from 2^-8 s (4 ms: shorter ones are none) to 2^24 s, half a year
LOWEST, HIGHEST = -8, 24
BINS = 1 + PARTS * (HIGHEST - LOWEST)  # bin 0: no notice
# Jeffreys' prior of a proportion is beta(1/2, 1/2): a success and a failure, half of each
HALF = 0.5


class NoticeWindow:
    """Notices of the departures of the last `window_s` seconds. Times must not go backwards."""

    def __init__(self, window_s: float) -> None:
        if not window_s > 0.0:
            raise ValueError(f"a window of {window_s} s: a duration above 0")
        self.window_s = window_s
        self._log: deque[tuple[float, int]] = deque()  # (when, bin), of the window
        self._counts = np.zeros(BINS)

    def departed(self, now_s: float, notice_s: float) -> None:
        """An owner took a host back with so much notice; 0: without."""
        number = 0
        if notice_s > 0.0:
            mantissa, exponent = math.frexp(notice_s)
            part = 1 + PARTS * (exponent - 1 - LOWEST) + int((mantissa - 0.5) * (2 * PARTS))
            number = max(0, min(part, BINS - 1))
        self._log.append((now_s, number))
        self._counts[number] += 1.0

    def seen(self, now_s: float) -> int:
        """Departures in the window that ends now."""
        from_s = now_s - self.window_s
        while self._log and self._log[0][0] < from_s:
            self._counts[self._log.popleft()[1]] -= 1.0
        return len(self._log)

    def too_short_column(self, needed_s: Floats, now_s: float) -> Floats:
        """P(notice < needed_s) of each; 0 if nothing is needed, 1 if no notice is long enough (infinite)."""
        n = self.seen(now_s)
        return _too_short(needed_s, self._counts, n)


@compiled
def needed_s(
    payload_bytes: Floats | float,
    rates_bytes_per_s: Floats,
    snapshot_s: float,
    snapshot_bytes_per_s: float,
) -> Floats:
    """Return the notice needed to send so much at each rate: one snapshot may have to be written after another."""
    writes_s = snapshot_s + payload_bytes / snapshot_bytes_per_s
    needed: Floats = payload_bytes / rates_bytes_per_s + 2.0 * writes_s
    return needed


@compiled
def _too_short(needed_s: Floats, counts: Floats, n: int) -> Floats:
    """`too_short_column` of n departures, so many in each bin."""
    answer, before = np.zeros(len(needed_s)), np.zeros(BINS + 1)  # departures in all bins before each
    for number in range(BINS):
        before[number + 1] = before[number] + counts[number]
    for place in range(len(needed_s)):
        if needed_s[place] == np.inf:
            answer[place] = 1.0
        elif needed_s[place] > 0.0:
            mantissa, exponent = math.frexp(needed_s[place])
            within = (mantissa - 0.5) * (2 * PARTS)
            number = 1 + PARTS * (exponent - 1 - LOWEST) + int(within)
            part = within - np.floor(within) if 1 <= number < BINS else 0.0
            number = min(max(number, 1), BINS)
            below = before[number] + part * counts[min(number, BINS - 1)]
            answer[place] = (below + HALF) / (n + 1.0)
    return answer
