"""The few file operations that a store needs: durable, copied inside the kernel, hashed in place."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from blake3 import blake3

from testbed.checkpoints.manifest import Manifest
from topologies.writing import naming

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_KERNEL_COPY: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


def fsync_directory(path: Path) -> None:
    """Make renames and removals inside a directory survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file's content; the bytes are on the disk at return. Not atomic: write aside, then rename."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with naming(path), os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def replace_durably(path: Path, data: bytes) -> None:
    """Replace a file by one that its owner alone may read: readers get all of the old bytes, or all of the new."""
    aside = path.with_name(f"{path.name}.new")
    write_durably(aside, data)
    aside.replace(path)


def free_bytes(path: Path) -> int:
    """Return the bytes that this process could still write on the file system of `path`."""
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


class PayloadFile:
    """A payload's file, made if missing, that stays open for the checkpoint that is written over it. Not thread-safe.

    On tmpfs it stays mapped too: the processor need not look up each page again. `held` is the checkpoint that it was.
    """

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.held: Manifest | None = None
        self.memory: mmap.mmap | None = None

    def hold(self, manifest: Manifest) -> None:
        """Map the file, which is this whole payload, if it lies in memory: tmpfs is the file system that has seals."""
        self.held = manifest
        with suppress(OSError, ValueError):  # no room for addresses; an empty payload
            fcntl.fcntl(self.fd, fcntl.F_GET_SEALS)
            self.memory = self.memory or mmap.mmap(self.fd, manifest.payload_bytes)

    def resize(self, size_bytes: int) -> None:
        """Give the file this size. A mapping of another size goes."""
        if self.memory is not None and len(self.memory) != size_bytes:
            self.memory = None
        os.ftruncate(self.fd, size_bytes)

    def is_unread(self) -> bool:
        """Return True if no other process has the file open or mapped. False too if the kernel does not answer.

        The kernel grants a write lease (fcntl(2)) only while no other open file description of the file exists. A mapping
        counts as the description that it was made by.
        """
        try:
            # of a stranger's open() meanwhile: SIGIO would end us
            fcntl.fcntl(self.fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Give back the descriptor and the mapping."""
        self.memory = None
        os.close(self.fd)


def data_spans(fd: int) -> Iterator[tuple[int, int]]:
    """Return (start, end) of the written parts of a file; holes and untouched reservations are left out."""
    end = os.fstat(fd).st_size
    offset = 0
    while offset < end:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole to the end
                return
            raise
        offset = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, offset


def copy_span(source: int, source_offset: int, target: int, target_offset: int, length: int) -> bool:
    """Copy bytes between files without bringing them here (a reference where the file system can share blocks).

    False if the source was too short; OSError as of copy_file_range(2), but for kernels and file systems without it.
    """
    done = 0
    while done < length:
        try:
            moved = os.copy_file_range(source, target, length - done, source_offset + done, target_offset + done)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
            data = os.pread(source, min(length - done, 1 << 20), source_offset + done)
            moved = os.pwrite(target, data, target_offset + done) if data else 0
        if moved == 0:
            return False
        done += moved
    return True


def hash_span(fd: int, offset: int, length: int, buffer: memoryview) -> bytes:
    """Return the BLAKE3 of a part of a file, read through `buffer` (at least `length` long).

    If the file ends early, it is of what there is.
    """
    got = 0
    while got < length:
        count = os.preadv(fd, [buffer[got:length]], offset + got)
        if count == 0:
            break
        got += count
    return blake3(buffer[:got]).digest()
