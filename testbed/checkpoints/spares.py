"""Payload files that no checkpoint needs any more, kept to be written over by the next one that arrives.

A byte that goes into a new file costs a new page, and on a virtual machine that page may cost more than receiving, copying and
hashing what goes into it: overwriting pages that the file system already has is what makes a verified reception as fast as one
that keeps nothing. And of two checkpoints of one job most chunks are often equal and in the same place: over its predecessor's
predecessor a checkpoint need not even write those.

What makes it safe:

- Nobody reads a file that is written over. Whoever had a payload open when it was dropped (a sender, a restore, a mapping) goes
  on reading the old bytes, as after unlink(2). The kernel is asked: a write lease (F_SETLEASE, fcntl(2)) is granted only while
  no other open file description of the file exists, and a spare has no name that others know.
- The old checkpoint is gone for good before its file becomes a spare: its manifest's removal and the renaming are on the disk
  first, or a power cut could bring back a manifest over another checkpoint's bytes.
- Nothing in a spare is believed: a reception counts only chunks whose bytes in the file have the right hash.
- Room that spares hold is given back before anybody is told that there is none.

Where the kernel grants no leases, or files can share blocks (overwriting those needs new room, so that the promise "a full
disk is known before a byte moves" would break), nothing is recycled.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.checkpoints.files import free_bytes
from testbed.checkpoints.manifest import Manifest

MAX_SPARES: Final = (
    2  # a standby writes one checkpoint of a job over the last but one; a second job may do likewise
)
FREE_SHARE: Final = 0.25  # of the file system's free room, the most that spares may hold together
MAX_SIZE_RATIO: Final = (
    2.0  # a spare is worth cutting or growing to a payload up to this much smaller or larger
)
_FICLONE: Final = 0x40049409  # ioctl_ficlone(2): the target shares the source's blocks


@dataclass(frozen=True, slots=True)
class Spare:
    """A file that may be written over, and what it held: a guess about its bytes, never a proof."""

    path: Path
    manifest: Manifest


class Spares:
    """A bounded number of spare files in a directory of their own, which is emptied at the start. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._spares: list[Spare] = []  # oldest first
        self._names = 0
        self._guard = threading.Lock()
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        self.possible = _recycling_is_safe(directory)

    def __len__(self) -> int:
        return len(self._spares)

    @property
    def held_bytes(self) -> int:
        """What the spares take of the file system."""
        return sum(spare.manifest.payload_bytes for spare in self._spares)

    def retire(self, payload: Path, manifest: Manifest) -> Spare | None:
        """Takes a dropped payload out of sight: aside if it fits the bounds, else it is unlinked.

        What is returned must be handed to `offer` once the old name's removal is on the disk.
        """
        with self._guard:
            if not self._fits(manifest.payload_bytes):
                payload.unlink(missing_ok=True)
                return None
            self._names += 1
            aside = self._directory / f"{self._names}.spare"
        try:
            payload.rename(aside)
        except FileNotFoundError:  # somebody removed one of the two by hand
            payload.unlink(missing_ok=True)
            return None
        return Spare(aside, manifest)

    def offer(self, spare: Spare) -> None:
        """From now on `take` may hand it out; the oldest make way."""
        with self._guard:
            self._spares.append(spare)
            for surplus in self._spares[:-MAX_SPARES]:
                surplus.path.unlink(missing_ok=True)
            del self._spares[:-MAX_SPARES]

    def take(self, manifest: Manifest, target: Path) -> Manifest | None:
        """Renames a file that nobody has open to `target`, and says what it held; None if there is none that suits."""
        with self._guard:
            for spare in self._by_merit(manifest):
                if _nobody_has_open(spare.path):
                    self._spares.remove(spare)
                    spare.path.rename(target)
                    return spare.manifest
        return None

    def make_room(self, needed_bytes: int) -> None:
        """Removes every spare if less than this is free beside them."""
        if self._spares and free_bytes(self._directory.parent) < needed_bytes:
            self.shed()

    def shed(self, job: str | None = None) -> None:
        """Removes the spares that a job left, or all."""
        with self._guard:
            for spare in [s for s in self._spares if job in (None, s.manifest.job)]:
                spare.path.unlink(missing_ok=True)
                self._spares.remove(spare)

    def close(self) -> None:
        """Removes all of it, for good."""
        self.possible = False
        self.shed()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _fits(self, size_bytes: int) -> bool:
        if not self.possible or size_bytes == 0:
            return False
        return self.held_bytes + size_bytes <= FREE_SHARE * free_bytes(self._directory.parent)

    def _by_merit(self, manifest: Manifest) -> list[Spare]:
        """The job's own files first, then by likeness of size."""
        sized = [
            (spare, _ratio(spare.manifest.payload_bytes, manifest.payload_bytes)) for spare in self._spares
        ]
        suitable = [(spare, ratio) for spare, ratio in sized if ratio <= MAX_SIZE_RATIO]
        suitable.sort(key=lambda pair: (pair[0].manifest.job != manifest.job, pair[1]))
        return [spare for spare, _ in suitable]


def _ratio(a_bytes: int, b_bytes: int) -> float:
    smaller, larger = sorted((a_bytes, b_bytes))
    return larger / smaller if smaller else float("inf")


def _nobody_has_open(path: Path) -> bool:
    """Does no other open file description of this file exist? False too where the kernel will not say."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return _lease(fd)
    finally:
        os.close(fd)


def _lease(fd: int) -> bool:
    """Takes a write lease and gives it back: the answer is whether it was granted."""
    try:
        fcntl.fcntl(
            fd, fcntl.F_SETSIG, signal.SIGURG
        )  # a stranger's open() meanwhile: SIGIO would end this process
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def _recycling_is_safe(directory: Path) -> bool:
    """Tries it out: leases are granted, one reader prevents them, and blocks are not shared between files."""
    probe, clone = directory / "probe", directory / "clone"
    try:
        probe.write_bytes(bytes(4096))
        clone.touch()
        return _nobody_has_open(probe) and _reader_prevents_lease(probe) and not _can_clone(probe, clone)
    finally:
        probe.unlink(missing_ok=True)
        clone.unlink(missing_ok=True)


def _reader_prevents_lease(path: Path) -> bool:
    with path.open("rb"):
        return not _nobody_has_open(path)


def _can_clone(source: Path, target: Path) -> bool:
    with source.open("rb") as readable, target.open("r+b") as writable:
        try:
            fcntl.ioctl(writable.fileno(), _FICLONE, readable.fileno())
        except OSError:
            return False
    return True
