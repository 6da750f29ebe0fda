"""A file that is written and hashed in place: its descriptor, and the mapping that hashing reads it through.

A mapping is dear to make and to give back. The processor faults for every sixteen pages of it, 55 to 100 ms of the 240
that a verified 512 MiB took. So a file that may be written over again keeps descriptor and mapping. It keeps them from
the reception that wrote it, through its time as a checkpoint and after it was dropped, to the next reception. Where files live in
memory, that reception may put its bytes straight into the mapping: 29 ms for the copy of 512 MiB. There pwrite(2) takes
85, since it looks up every page again. (On a disk each page would first have to be declared dirty by a fault of its
own.)
"""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
from pathlib import Path


class MappedFile:
    """A file open for reading and writing, made if missing. Not thread-safe; its holder must close it, or hand it on."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._map: mmap.mmap | None = None

    def map(self, size_bytes: int) -> mmap.mmap:
        """Return the file's first bytes; made once for a size. ValueError for more than the file has, or for none."""
        if self._map is None or len(self._map) != size_bytes:
            self._unmap()
            self._map = mmap.mmap(self.fd, size_bytes)
        return self._map

    def is_mapped_memory(self, size_bytes: int) -> bool:
        """Return True if a mapping of that size exists of a file in memory (tmpfs, the file system that supports seals)."""
        if self._map is None or len(self._map) != size_bytes:
            return False
        try:
            fcntl.fcntl(self.fd, fcntl.F_GET_SEALS)
        except OSError:
            return False
        return True

    def is_ours_alone(self) -> bool:
        """Return True if no other open file is this file, by any name. False too if the kernel does not answer.

        The kernel grants a write lease (fcntl(2)) only while no other open file description of the file exists. A
        mapping counts as the description that it was made by.
        """
        try:
            # of a stranger's open() meanwhile: SIGIO would end us
            fcntl.fcntl(self.fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            return False
        fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True

    def close(self) -> None:
        """Give both back; of a large payload that takes 30 ms a GiB."""
        self._unmap()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
