"""Payload files that no checkpoint needs any more, kept to be written over by the next one that arrives.

A byte that goes into a new file costs a new page. On a virtual machine that page may cost more than receiving, copying
and hashing what goes into it. Overwriting pages that the file system already has makes a verified reception as fast as
one that keeps nothing. And of two checkpoints of one job most chunks are often equal and in the same place. Over its
predecessor's predecessor a checkpoint need not even write those.

What makes it safe:

- A file that is written over has no reader. What had a payload open when it was dropped (a sender, a restore, a mapping) goes
  on reading the old bytes, as after unlink(2). The kernel is asked (`MappedFile.is_ours_alone`), and a spare has no name that
  others know.
- The old checkpoint is gone for good before its file becomes a spare: its manifest's removal and the renaming are on the disk
  first, or a power cut could bring back a manifest over another checkpoint's bytes.
- Nothing in a spare is believed: a reception counts only chunks whose bytes in the file have the right hash.
- Room that spares hold is given back before an error reports that there is none.

Where the kernel grants no leases, or files can share blocks, nothing is recycled. (Overwriting shared blocks needs new
room, so the promise "a full disk is known before a byte moves" would break.)
"""

from __future__ import annotations

import fcntl
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from testbed.checkpoints.files import free_bytes
from testbed.checkpoints.manifest import Manifest
from testbed.checkpoints.mapped import MappedFile

# a standby writes one checkpoint of a job over the last but one; a second job may do likewise
MAX_SPARES: Final = 2
FREE_SHARE: Final = 0.25  # of the file system's free room, the most that spares may hold together
# a spare is worth cutting or growing to a payload up to this much smaller or larger
MAX_SIZE_RATIO: Final = 2.0
_FICLONE: Final = 0x40049409  # ioctl_ficlone(2): the target shares the source's blocks


@dataclass(frozen=True, slots=True)
class Spare:
    """A file that may be written over, and what it held: a guess about its bytes, never a proof."""

    path: Path
    manifest: Manifest
    file: MappedFile

    def discard(self) -> None:
        """Give its room back."""
        self.path.unlink(missing_ok=True)
        self.file.close()


class Spares:
    """A bounded number of spare files in a directory of their own, which is emptied at the start. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._spares: list[Spare] = []  # oldest first
        self._names = 0
        self._guard = threading.Lock()
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(exist_ok=True)

    def __len__(self) -> int:
        return len(self._spares)

    @cached_property
    def possible(self) -> bool:
        """True if files can be recycled here. Tested at the first use, so that starting a thousand hosts costs nothing."""
        return _recycling_is_safe(self._directory)

    @property
    def held_bytes(self) -> int:
        """The bytes that the spares take of the file system."""
        return sum(spare.manifest.payload_bytes for spare in self._spares)

    def retire(self, payload: Path, manifest: Manifest, file: MappedFile) -> Spare | None:
        """Take a dropped payload, open as `file`, out of sight: aside if it fits the bounds, else it is unlinked.

        What is returned must be handed to `offer` once the old name's removal is on the disk.
        """
        with self._guard:
            self._names += 1
            spare = Spare(self._directory / f"{self._names}.spare", manifest, file)
            room = FREE_SHARE * free_bytes(self._directory.parent)
            size = manifest.payload_bytes
            fits = self.possible and size > 0 and self.held_bytes + size <= room
        if fits:
            with suppress(FileNotFoundError):  # one of the two was removed by hand
                payload.rename(spare.path)
                return spare
        payload.unlink(missing_ok=True)
        spare.discard()
        return None

    def offer(self, spare: Spare) -> None:
        """Let `take` hand it out from now on; the oldest make way."""
        with self._guard:
            self._spares.append(spare)
            for surplus in self._spares[:-MAX_SPARES]:
                surplus.discard()
            del self._spares[:-MAX_SPARES]

    def take(self, manifest: Manifest, target: Path) -> tuple[Manifest, MappedFile] | None:
        """Rename a file that no other process has open to `target`; return what it held, and the file; None if none suits.

        The job's own files come first, then those that are most like it in size.
        """
        merits = []
        with self._guard:
            for place, spare in enumerate(self._spares):
                smaller, larger = sorted((spare.manifest.payload_bytes, manifest.payload_bytes))
                if larger <= MAX_SIZE_RATIO * smaller:
                    merits.append((spare.manifest.job != manifest.job, larger / smaller, place, spare))
            for *_, spare in sorted(merits, key=lambda merit: merit[:3]):
                if spare.file.is_ours_alone() and spare.path.exists():
                    spare.path.rename(target)
                    self._spares.remove(spare)
                    return spare.manifest, spare.file
        return None

    def make_room(self, needed_bytes: int) -> None:
        """Remove every spare if less than this is free beside them."""
        if self._spares and free_bytes(self._directory.parent) < needed_bytes:
            self.shed()

    def shed(self) -> None:
        """Remove all."""
        with self._guard:
            for spare in self._spares:
                spare.discard()
            self._spares.clear()

    def close(self) -> None:
        """Remove all of it, for good."""
        self.possible = False
        self.shed()
        shutil.rmtree(self._directory, ignore_errors=True)


def _recycling_is_safe(directory: Path) -> bool:
    """Try it out: leases are granted, one reader prevents them, and blocks are not shared between files."""
    probe, clone = directory / "probe", directory / "clone"
    probe.write_bytes(bytes(4096))
    clone.touch()
    file = MappedFile(probe)
    try:
        file.map(4096)
        if not file.is_ours_alone():
            return False
        with probe.open("rb") as reader, clone.open("r+b") as writable:
            if file.is_ours_alone():
                return False
            try:
                fcntl.ioctl(writable.fileno(), _FICLONE, reader.fileno())
            except OSError:
                return True
            return False
    finally:
        file.close()
        probe.unlink()
        clone.unlink()
