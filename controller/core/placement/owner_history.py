"""History of owners: the hazard of departures, and their notices.

A host that is taken back after a notice hurts a job only if the notice ends before its last checkpoint or its move is done. Most
notices are too short for that, and a copy's holder that leaves with notice is gone as well. So `OwnerHistory` counts departures
of any kind, each once from when it is announced, and the hazard that counts for a job is their rate times P(notice < what the job
needs). A policy that does not mind short notices counts emergencies alone.

**Notices** are kept as counts in bins, eight to an octave (at most an eighth wide, so 120 s is the edge of one), spread evenly
within each, for the last `window_s` seconds; a departure without notice is one of 0 s. With n departures in the window, k of them
with a notice below x,

    P(notice < x) = (k + 1/2) / (n + 1)

the posterior mean of a proportion after Jeffreys' prior: 1/2 where nothing was seen, and never quite 0 or 1.

An agent that is lost without its owner's doing (`withdraw` without a notice) ends the time lent and is no departure: a
coordinator that restarts loses all agents at once, and must not learn that all owners leave together.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from controller.core.placement.hazard import DAY_S, Experience, HazardWindow
from controller.numerics.arrays import Floats
from controller.numerics.jit import compiled

PARTS = 8  # bins of an octave
# octaves: from 2^-8 s (4 ms: shorter ones are none) to 2^24 s, half a year
LOWEST, HIGHEST = -8, 24
BINS = 1 + PARTS * (HIGHEST - LOWEST)  # bin 0: no notice
# Jeffreys' prior of a proportion is beta(1/2, 1/2): a success and a failure, half of each
HALF = 0.5


class OwnerHistory(HazardWindow):
    """A `HazardWindow` of departures of any kind, and their `notices`; of emergencies alone without `short_notices`.

    `prior`, an emergency in so much time, is believed of departures as well: there are as many at least. Times must not go
    backwards.
    """

    def __init__(
        self,
        window_s: float,
        prior: Experience | None = None,
        day_s: float = DAY_S,
        day_start_s: float = 0.0,
        *,
        short_notices: bool = True,
    ) -> None:
        super().__init__(window_s, prior, day_s, day_start_s)
        self._short_notices, self.notices = short_notices, NoticeWindow(window_s)
        self._lent: set[str] = set()  # hosts of which no owner has announced an end

    def lend(self, host: str, now_s: float) -> None:
        """Note that the host is lent from now on; nothing new if it already was."""
        super().lend(host, now_s)
        self._lent.add(host)

    def withdraw(self, host: str, now_s: float, notice_s: float | None = None) -> None:
        """Note that the host is lent no more, without an emergency.

        `notice_s`: the notice that its owner gives (0: it ends now, as announced or not); None: its owner did nothing.
        """
        if notice_s is not None and self._short_notices:
            self._depart(host, now_s, notice_s)
            return
        self._lent.discard(host)
        super().withdraw(host, now_s)

    def emergency(self, host: str, now_s: float) -> None:
        """Note that the owner took the host back without notice: one event, and the end of the time lent."""
        if self._short_notices:
            self._depart(host, now_s, 0.0)
        else:
            super().emergency(host, now_s)

    def _depart(self, host: str, now_s: float, notice_s: float) -> None:
        if host in self._lent:  # else it was announced before
            self._lent.remove(host)
            super().emergency(host, now_s)
            self.notices.departed(now_s, notice_s)


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
