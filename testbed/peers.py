"""Limits of one peer at a service that serves many: a share of each thing, of its time, and of the log.

A campus host is anybody's machine. Whatever a service holds for a connection (the connection itself, memory, a thread) it holds
from two purses: the peer's own, which a hostile peer may empty for itself, and the common one, which one peer cannot empty.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# one line of each kind in this time: what a peer can cause as often as it likes must not fill a disk
WARN_EVERY_S: Final = 10.0


class Allotment:
    """Maximum held by each peer at a time, and by all peers together."""

    def __init__(self, a_peer: int, in_all: int) -> None:
        self.a_peer, self.in_all = a_peer, in_all
        self.held: Counter[str] = Counter()

    @contextmanager
    def take(self, peer: str, amount: int = 1) -> Iterator[bool]:
        """Reserve the amount for `peer` until the context ends; False if it is refused."""
        granted = self.held[peer] + amount <= self.a_peer and self.held.total() + amount <= self.in_all
        if granted:
            self.held[peer] += amount
        try:
            yield granted
        finally:
            if granted:
                self.held[peer] -= amount
            if not self.held[peer]:
                del self.held[peer]


class Budget:
    """Rate limit of a peer's requests: `per_s` in the long run, and a burst of at most `at_once`.

    A peer that asks for more is served later, and nothing of it is refused: TCP holds what it sends meanwhile.
    """

    def __init__(self, per_s: float, at_once: float) -> None:
        self._per_s, self._at_once = per_s, at_once
        self._left, self._looked_s = at_once, float("-inf")

    def spend(self, amount: float, now_s: float) -> float:
        """Return the seconds to wait before a request of this cost is read: 0 while allowance is left."""
        self._left = min(self._at_once, self._left + (now_s - self._looked_s) * self._per_s) - amount
        self._looked_s = now_s
        return max(0.0, -self._left / self._per_s)


class Occasions:
    """Throttled warnings that a peer can cause: each is counted, and logged once in WARN_EVERY_S for each kind."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter()
        self._log, self._clock = log, clock
        self._told: dict[str, tuple[float, int]] = {}  # kind -> (when, how many had been counted)

    def warn(self, kind: str, message: str) -> None:
        """Count an occasion of this kind; log it with the number of those since the last that were not logged."""
        self.counts[kind] += 1
        told_s, told = self._told.get(kind, (float("-inf"), 0))
        now_s = self._clock()
        if now_s - told_s >= WARN_EVERY_S:
            silent = self.counts[kind] - told - 1
            self._told[kind] = now_s, self.counts[kind]
            self._log.warning("%s%s", message, f" ({silent} more like it were not told)" if silent else "")
