"""What one peer may take of a service that serves many: a share of each thing, of its time, and of the log.

A campus host is anybody's machine. Whatever a service holds for a connection (the connection itself, memory, a thread) it holds
from two purses: the peer's own, which a hostile peer may empty for itself, and the common one, which one peer cannot empty.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

# one line of each kind in this time: what a peer can cause as often as it likes must not fill a disk
WARN_EVERY_S: Final = 10.0


class Allotment:
    """How much of one thing each peer may hold at a time, and all peers together."""

    def __init__(self, a_peer: int, in_all: int) -> None:
        self.a_peer, self.in_all = a_peer, in_all
        self.held: Counter[str] = Counter()

    @contextmanager
    def take(self, peer: str, amount: int = 1, left_over: int = 0) -> Iterator[bool]:
        """Whether `peer` gets so much, and `left_over` stays for others; given back at the end of the context."""
        granted = (
            self.held[peer] + amount <= self.a_peer and self.held.total() + amount + left_over <= self.in_all
        )
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
    """How much a peer may ask of a service: `per_s` in the long run, and at most `at_once` that it has not asked before.

    A peer that asks for more is heard later, and nothing of it is refused: TCP holds what it says meanwhile.
    """

    def __init__(self, per_s: float, at_once: float) -> None:
        self._per_s, self._at_once = per_s, at_once
        self._left, self._looked_s = at_once, float("-inf")

    def spend(self, amount: float, now_s: float) -> float:
        """Seconds after which what costs so much is to be heard: 0 as long as there is something left."""
        self._left = min(self._at_once, self._left + (now_s - self._looked_s) * self._per_s) - amount
        self._looked_s = now_s
        return max(0.0, -self._left / self._per_s)


class AddressSlots:
    """Which connections a service takes: each address that it waits for keeps a slot, all others share a few of their own.

    The first connection of an address that is waited for needs a free slot, a further one leaves a slot for each such address
    that has none. So other hosts keep none of them out, however many they are; nor does one of them another, as long as
    there are no more of them than slots.
    """

    def __init__(
        self, waited_for: Callable[[], Collection[str]], hosts: Allotment, strangers: Allotment
    ) -> None:
        self._waited_for, self._hosts, self._strangers = waited_for, hosts, strangers

    def connection(self, address: str) -> AbstractContextManager[bool]:
        """Whether one more connection from there is taken; its slot is given back at the end of the context."""
        waited_for = self._waited_for()
        if address not in waited_for:
            return self._strangers.take(address)
        if not self._hosts.held[address]:
            return self._hosts.take(address)
        slotless = sum(1 for other in waited_for if not self._hosts.held[other])
        return self._hosts.take(address, left_over=slotless)


class Occasions:
    """Warnings that a peer can cause: counted always, told at most once in WARN_EVERY_S for each kind."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter()
        self._log, self._clock = log, clock
        self._told: dict[str, tuple[float, int]] = {}  # kind -> (when, how many had been counted)

    def warn(self, kind: str, message: str) -> None:
        """Count one of this kind; tell it, with the number of those since the last that were not told."""
        self.counts[kind] += 1
        told_s, told = self._told.get(kind, (float("-inf"), 0))
        now_s = self._clock()
        if now_s - told_s >= WARN_EVERY_S:
            silent = self.counts[kind] - told - 1
            self._told[kind] = now_s, self.counts[kind]
            self._log.warning("%s%s", message, f" ({silent} more like it were not told)" if silent else "")
