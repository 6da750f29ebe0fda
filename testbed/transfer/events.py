"""Events that a receiver sends to its host."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.checkpoints import Manifest


@dataclass(frozen=True, slots=True)
class ReceiveCompleted:
    """A checkpoint verified, on disk, visible. Reported once for a checkpoint, before the sender is informed.

    `duration_s` runs from the connection; the last `commit_s` of it were waiting for the disk (fsync, renames).
    """

    transfer: str
    manifest: Manifest
    peer: str
    received_bytes: int
    found_bytes: int
    duration_s: float
    commit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReceiveRepeated:
    """A second offer of a checkpoint that is already completed here; nothing changed."""

    transfer: str
    job: str
    sequence: int
    peer: str


@dataclass(frozen=True, slots=True)
class ReceiveFailed:
    """A connection that ended without completing; `transfer` is None if the peer never sent a good hello."""

    transfer: str | None
    peer: str
    reason: str
    retryable: bool


ReceiveEvent = ReceiveCompleted | ReceiveRepeated | ReceiveFailed
