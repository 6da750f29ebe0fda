"""Errors of checkpoints. None of these leaves anything half-done visible in a store."""

from __future__ import annotations

from pathlib import Path

from testbed.errors import TestbedError


class CheckpointError(TestbedError):
    """The root of this package's errors."""


class BadManifest(CheckpointError):
    """A manifest that contradicts itself or passes a limit: the message names the field and the allowed values."""


class NotStored(CheckpointError):
    """Absence of a completed checkpoint of that job and sequence (or of that digest) in the store."""


class CheckpointConflict(CheckpointError):
    """A job and sequence already stored with other content, or being received right now."""


class CheckpointDamaged(CheckpointError):
    """A stored payload that differs from its manifest; the message names the chunks that differ."""


class ChunkMismatch(CheckpointError):
    """Bytes given for a chunk that do not have the chunk's hash; `chunk` is its index."""

    def __init__(self, chunk: int) -> None:
        self.chunk = chunk
        super().__init__(f"chunk {chunk}: its bytes do not have the hash that the manifest gives")


class StoreFull(CheckpointError):
    """A file system without room for the payload: known before a byte moves."""

    def __init__(self, root: Path, needed_bytes: int, free_bytes: int) -> None:
        super().__init__(f"{root}: no room for {needed_bytes} bytes, {free_bytes} are free to this store")


class StoreInUse(CheckpointError):
    """A store that another process has open."""
