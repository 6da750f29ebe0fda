"""Group commit: events are written to a slow log in batches, one batch at a time.

The core decides at once. All that follows from a batch (messages, answers, facts for others to see) waits until its line
stands, in order. So nobody learns of a decision that another coordinator could make otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter

import msgspec
import trio

from controller.persistence.journal import Journal
from controller.persistence.lines import Entry, Log

MAX_EVENTS, MAX_BYTES = 100, 64 << 10  # of a batch; a larger event is one of its own
_SIZE = msgspec.msgpack.Encoder()
Then = Callable[[], None]


class GroupCommit:
    """Writer of a coordinator's events to `log`, and of lines that stand to its own `journal`."""

    def __init__(self, log: Log, journal: Journal, stood: Callable[[float], None]) -> None:
        self._log, self._journal, self._stood = log, journal, stood
        self._waiting: deque[tuple[Entry | None, int, Then, float]] = deque()
        self._in_flight = False
        self._more = trio.Event()

    @property
    def idle(self) -> bool:
        """True if all that was decided stands."""
        return not self._waiting and not self._in_flight

    def add(self, entry: Entry | None, then: Then) -> None:
        """Write an entry in its turn, and call `then` when it stands; without an entry, when all before it does."""
        size = 0 if entry is None else min(MAX_BYTES, len(_SIZE.encode(entry.event)))
        self._waiting.append((entry, size, then, perf_counter()))
        self._more.set()

    async def write_all(self, beat_s: float) -> None:
        """Write batches for ever, and a sign of life after so long without one. Deposed."""
        while True:
            with trio.move_on_after(beat_s):
                await self._more.wait()
            self._more = trio.Event()
            batch, entries, size = [], list[Entry](), 0
            while self._waiting and len(entries) < MAX_EVENTS and (size := size + self._waiting[0][1]) <= MAX_BYTES:
                batch.append(self._waiting.popleft())
                entries += filter(None, batch[-1][:1])
            if entries or not batch:
                self._in_flight = True
                await trio.to_thread.run_sync(self._log.append, entries, abandon_on_cancel=True)
                self._journal.append(entries)
                self._in_flight = False
            for _, _, then, decided_s in batch:
                then()
                self._stood(perf_counter() - decided_s)
            if self._waiting:
                self._more.set()
