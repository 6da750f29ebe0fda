"""What connections may take before they have said who they are: so many in all and from one address, and few lines of log.

Whatever a peer does wrong ends its own connection. These are the errors by which it can (`PEER_ERRORS`); anything else that is
raised while it is served is a fault of the coordinator's own and ends the run: so a plain OSError is none of them, since a
disk's would be taken for a peer's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

import trio

from testbed.errors import ProtocolError

# LocalProtocolError is one of them: an answer that is too long for a frame
PEER_ERRORS = (trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError)
# a line tells what goes on; a peer that tries again ten times a second must not fill a disk
LINES = 5
PERIOD_S = 60.0


class Crowded(ProtocolError):
    """There are as many connections as may be: this one is closed."""


@dataclass
class Connections:
    """Those that are open: at most `most`, and `most_of_one` from one address."""

    most: int
    most_of_one: int
    _open: Counter[str] = field(default_factory=Counter)
    _count: int = 0

    @contextmanager
    def counted(self, address: str) -> Iterator[Callable[[], None]]:
        """One more until the block ends, or until the function that is yielded is called; Crowded: that is too many."""
        if self._count >= self.most:
            raise Crowded(f"{self._count} connections are open, and {self.most} may be")
        if self._open[address] >= self.most_of_one:
            raise Crowded(f"{self.most_of_one} connections from there are open, and no more may be")
        self._open[address] += 1
        self._count += 1
        counted = True

        def leave() -> None:
            nonlocal counted
            if counted:
                counted = False
                self._count -= 1
                self._open[address] -= 1
                if not self._open[address]:
                    del self._open[address]

        try:
            yield leave
        finally:
            leave()


@dataclass
class Complaints:
    """Warnings about peers: `LINES` in `PERIOD_S` seconds of trio's clock; the next line after them counts those left out."""

    log: logging.Logger
    left_out: int = 0
    _lines: int = 0
    _until_s: float = -inf

    def add(self, text: str) -> None:
        """Log it, or count it."""
        now_s = trio.current_time()
        if now_s >= self._until_s:
            self._lines, self._until_s = 0, now_s + PERIOD_S
        if self._lines >= LINES:
            self.left_out += 1
            return
        self._lines += 1
        if self.left_out:
            self.log.warning("%d more complaints about peers were not logged", self.left_out)
            self.left_out = 0
        self.log.warning("%s", text)
