"""A checkpoint that is arriving: a `.partial` file in which only verified chunks count.

What is present is decided by hashing the file itself, never by remembering what was once written: an earlier attempt that
was cut anywhere, even by a power cut, is resumed by re-hashing what it left. Content that the store already has, in any
payload, is copied inside the kernel and verified like everything else. A chunk that occurs several times in one payload is
asked for once. A first attempt may be given the file of a dropped payload: where its manifest has the same chunk in the same
place, the bytes are looked at, and stay if they hash right.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3

from testbed.checkpoints.errors import CheckpointError, ChunkMismatch, StoreFull
from testbed.checkpoints.files import PayloadFile, copy_span, data_spans, free_bytes, hash_span
from testbed.checkpoints.manifest import Manifest

Finder = Callable[[bytes], tuple[int, int] | None]  # hash -> (open file, offset) of a stored copy


class Reception:
    """A checkpoint being received. Not thread-safe: one thread at a time, any thread.

    Made by `CheckpointStore.begin`; `file` is the partial one. Must end in `abandon`, which may stand in a `finally`: after
    `commit` it does nothing.
    """

    def __init__(
        self,
        manifest: Manifest,
        partial: Path,
        file: PayloadFile,
        publish: Callable[[Manifest, Path, PayloadFile], None],
        release: Callable[[], None],
    ) -> None:
        self.manifest = manifest
        self._partial, self._file = partial, file
        self._publish, self._release = publish, release
        self._is_open = True
        self._wanted: dict[bytes, list[int]] = {}
        for number, digest in enumerate(manifest.chunks):
            self._wanted.setdefault(digest, []).append(number)
        self._buffer = memoryview(bytearray(manifest.chunk_bytes))

    def prepare(self, find: Finder) -> None:
        """Resume what an earlier attempt left, look whether there is room for all of it, and copy what the store has.

        Raises StoreFull; an attempt that left something keeps it.
        """
        chunks, chunk_bytes = self.manifest.chunks, self.manifest.chunk_bytes
        likely: set[int] = set()
        if (held := self._file.held) is None:  # what an earlier attempt touched
            for start, end in list(data_spans(self.fileno())):
                likely.update(range(start // chunk_bytes, min(len(chunks), -(-end // chunk_bytes))))
        elif held.chunk_bytes == chunk_bytes:  # what the dropped payload has in the same place
            pairs = enumerate(zip(held.chunks, chunks, strict=False))
            likely.update(number for number, (theirs, ours) in pairs if theirs == ours)
        needed = max(0, self.manifest.payload_bytes - os.fstat(self.fileno()).st_blocks * 512)
        if needed > (free := free_bytes(self._partial.parent)):
            raise StoreFull(self._partial.parent, needed, free)
        self._file.resize(self.manifest.payload_bytes)
        for number in sorted(likely):
            if (digest := chunks[number]) in self._wanted and self._holds(number, digest):
                self._settle(digest, number)
        for digest, numbers in list(self._wanted.items()):
            place, (offset, length) = find(digest), self.manifest.span(numbers[0])
            if (
                place is not None
                and copy_span(*place, self.fileno(), offset, length)
                and self._holds(numbers[0], digest)
            ):
                self._settle(digest, numbers[0])

    @property
    def missing(self) -> list[int]:
        """Chunks still to be written, ascending; of equal chunks only the first."""
        return sorted(numbers[0] for numbers in self._wanted.values())

    def fileno(self) -> int:
        """Return the file, for bytes that are put at a chunk's own place: they count after `seal`."""
        if not self._is_open:
            raise CheckpointError(f"{self._partial}: this reception has ended")
        return self._file.fd

    @property
    def memory(self) -> memoryview | None:
        """Return the file's bytes where it is mapped: bytes may be put there instead."""
        return None if self._file.memory is None else memoryview(self._file.memory)

    def seal(self, chunk: int) -> None:
        """Verify a missing chunk whose bytes were put into the file from outside. Raises ChunkMismatch."""
        digest = self.manifest.chunks[chunk]
        if not self._holds(chunk, digest):
            raise ChunkMismatch(chunk)
        self._settle(digest, chunk)

    def commit(self) -> Manifest:
        """Make the checkpoint durable and visible: it is completed when this returns. Raises CheckpointError if not whole."""
        fd = self.fileno()
        if self._wanted:
            raise CheckpointError(f"{self._partial}: {len(self.missing)} chunks are still missing")
        os.fsync(fd)
        self._publish(self.manifest, self._partial, self._file)
        self._end()
        return self.manifest

    def abandon(self, *, keep_partial: bool = True) -> None:
        """Give up. What arrived stays for the next attempt, unless `keep_partial` is False."""
        if not self._is_open:
            return
        if not keep_partial or os.fstat(self._file.fd).st_blocks == 0:
            self._partial.unlink(missing_ok=True)
        self._file.close()
        self._end()

    def _end(self) -> None:
        self._is_open = False
        self._release()

    def _holds(self, chunk: int, digest: bytes) -> bool:
        offset, length = self.manifest.span(chunk)
        if (memory := self.memory) is not None:
            return blake3(memory[offset : offset + length]).digest() == digest
        return hash_span(self.fileno(), offset, length, self._buffer) == digest

    def _settle(self, digest: bytes, chunk: int) -> None:
        """Copy a chunk that is in its place to the places of its equals."""
        offset, length = self.manifest.span(chunk)
        for other in self._wanted[digest]:
            if other != chunk:
                copy_span(self.fileno(), offset, self.fileno(), self.manifest.span(other)[0], length)
        del self._wanted[digest]
