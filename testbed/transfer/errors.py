"""Errors that end a transfer."""

from __future__ import annotations

from testbed.bounds import quoted
from testbed.errors import TestbedError


class TransferFailed(TestbedError):
    """A checkpoint that did not get there. The receiver's completed checkpoints are as they were.

    `reason` is for people, and goes on to the coordinator: what it quotes of a peer is cut. `retryable`: the same call
    may succeed later with nothing else changed (what arrived is kept, and not sent again). `bytes_sent` is what this
    attempt put on the wire; `chunk` is the index of a chunk that arrived damaged, if that was it. `own_fault`: the
    sender has no such checkpoint, or found its copy damaged.
    """

    def __init__(
        self,
        reason: str,
        *,
        retryable: bool,
        bytes_sent: int = 0,
        chunk: int | None = None,
        own_fault: bool = False,
    ) -> None:
        self.reason, self.retryable, self.own_fault = quoted(reason), retryable, own_fault
        self.bytes_sent, self.chunk = bytes_sent, chunk
        super().__init__(self.reason)
