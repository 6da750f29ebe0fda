"""A lease: the time until which a job's process may run, in eight bytes of shared memory.

The agent that started a job extends its lease again and again. An agent that is stopped, swapped out or cut off extends
nothing, and the job ends by itself when the lease lapses: a second copy that is started after that time is the only one, even if
the first one's agent wakes up later. Times are CLOCK_MONOTONIC in nanoseconds, the same in every process of the machine.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Final, Self

SIZE_BYTES: Final = 8
NEVER_NS: Final = (1 << 64) - 1


class LeaseFile:
    """A file of one unsigned 64-bit number: lease_until_ns. The store of an aligned word is atomic."""

    def __init__(self, fd: int, access: int = mmap.ACCESS_WRITE) -> None:
        """Map an open lease file, and own the descriptor."""
        self._fd = fd
        self._map = mmap.mmap(fd, SIZE_BYTES, access=access)
        self._word = memoryview(self._map).cast("Q")

    @classmethod
    def create(cls, path: Path, until_s: float) -> Self:
        """Return a new lease file; replaces an older one, whose holders keep the old lease."""
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(fd, SIZE_BYTES)
        lease = cls(fd)
        lease.extend(until_s)
        return lease

    def extend(self, until_s: float) -> None:
        """Set when the lease lapses: seconds of CLOCK_MONOTONIC; infinity for never.

        A holder asleep notices a *shorter* lease only when the old one lapses.
        """
        self._word[0] = min(NEVER_NS, int(until_s * 1e9)) if until_s < 1e10 else NEVER_NS

    def left_s(self) -> float:
        """Return the seconds until it lapses; 0 or less when it has."""
        return (self._word[0] - time.monotonic_ns()) / 1e9

    def fileno(self) -> int:
        """Return the descriptor, to be inherited by a job's process."""
        return self._fd

    def close(self) -> None:
        """Unmap; the holders' own mappings stay."""
        self._word.release()
        self._map.close()
        os.close(self._fd)
