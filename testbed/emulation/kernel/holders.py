"""The processes that hold a campus's namespaces, one each: started together, ended together."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from testbed.emulation.kernel.helper import Helper
from testbed.errors import SetupError

PROGRAM = Path(__file__).with_name("holder.py")
NEXT_S = 30.0  # until the next namespace stands: a thousand times what it takes


class Holders(Helper):
    """A group of `count` processes, each (after `unshare`) in a network namespace of its own; `pid` is their parent's."""

    def __init__(self, count: int, environment: dict[str, str]) -> None:
        command = [sys.executable, "-I", "-S", str(PROGRAM), str(os.getpid()), str(count)]
        super().__init__(f"the parent of {count} namespaces", command, environment)
        self._count = count

    def wait_forked(self) -> list[int]:
        """Return their pids."""
        return [int(word) for word in self.read_line().split()]

    def unshare(self) -> None:
        """Have each process unshare its network; wait until every namespace stands."""
        self.write(b"g")
        ready = 0
        while ready < self._count:
            piece = self.read(NEXT_S)  # of one that was killed meanwhile nothing ever comes
            ready += piece.count(b".")
            if b"!" in piece:
                raise SetupError(f"no network namespace could be made (needs root): {self.ended()}")
