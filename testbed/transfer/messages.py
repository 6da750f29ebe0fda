"""The conversation of one transfer, one TCP connection, and the error that ends it on either side.

    sender      Hello(which checkpoint)
    receiver    Describe                        or Rejected, or Stored (it has it already)
    sender      Contents(manifest)
    receiver    Busy ...                        while it looks through what it has; again later, while it syncs
    receiver    Want(bitmap of chunks)
    sender      the bytes of those chunks, in order; no framing, but where sealed (`testbed.trust.sealing`)
    receiver    Stored(digest) | Rejected       at any moment

A stranger may send HELLO_BYTES and no more. Only a Hello that was accepted is followed by a manifest, of no more bytes
than the Hello allows. The bitmap bounds the answer: one bit a chunk, at most 16 KiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Final

import msgspec

from testbed.bounds import LONGEST_QUOTE, Name, PayloadBytes, Sequence, Ticket, quoted
from testbed.checkpoints import Manifest
from testbed.checkpoints.manifest import DIGEST_BYTES, MAX_CHUNKS, ChunkBytes, Hash
from testbed.errors import RemoteProtocolError, TestbedError
from testbed.framing import Codec
from testbed.trust.sealing import KEY_BYTES

# how the reason begins that a receiver gives for what it cannot read
NOT_UNDERSTOOD: Final = "the sender broke the protocol"
Key = Annotated[bytes, msgspec.Meta(max_length=KEY_BYTES)]
_Reason = Annotated[str, msgspec.Meta(max_length=LONGEST_QUOTE)]
# of a Hello: a name of 64 characters, a digest, four numbers, the keys
HELLO_BYTES: Final = 1 << 9
# of an answer: a bitmap of MAX_CHUNKS bits, or a reason
ANSWER_BYTES: Final = 1 << 15
# of a manifest besides its hashes: as a Hello; of a hash: its own bytes and two that hold how many they are
_PLAIN_BYTES: Final = HELLO_BYTES
_HASH_BYTES: Final = DIGEST_BYTES + 2


class Hello(msgspec.Struct, tag="hello", frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Offer of the checkpoint whose manifest has this digest.

    Named as the agent's first message is: each protocol begins with its Hello.

    `ticket` is the one-time number under which the coordinator announced it to the receiver.
    """

    ticket: Ticket
    job: Name
    sequence: Sequence
    payload_bytes: PayloadBytes
    chunk_bytes: ChunkBytes
    digest: Hash

    @classmethod
    def of(cls, manifest: Manifest, ticket: int = 0) -> Hello:
        """Return the Hello that offers this manifest."""
        return cls(
            ticket, manifest.job, manifest.sequence, manifest.payload_bytes, manifest.chunk_bytes, manifest.digest
        )

    @property
    def contents_bytes(self) -> int:
        """The most bytes that its manifest has on the wire."""
        return _PLAIN_BYTES + _HASH_BYTES * min(MAX_CHUNKS, -(-self.payload_bytes // self.chunk_bytes))


class Describe(msgspec.Struct, tag="describe", frozen=True, forbid_unknown_fields=True):
    """Acceptance of the announced checkpoint: the sender describes it now."""


class Contents(msgspec.Struct, tag="contents", frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Contents of the offered checkpoint, and the key under which its chunks come sealed: none, they come as they are."""

    manifest: Manifest
    key: Key = b""


class Busy(msgspec.Struct, tag="busy", frozen=True, forbid_unknown_fields=True):
    """Sign that the receiver is alive and works on its disk."""


class Want(msgspec.Struct, tag="want", frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The chunks to send: bit n % 8 of byte n // 8 is chunk n."""

    chunks: bytes


class Stored(msgspec.Struct, tag="stored", frozen=True, forbid_unknown_fields=True):
    """Completion at the receiver, by this transfer or before it."""

    digest: bytes


class Rejected(msgspec.Struct, tag="rejected", frozen=True, forbid_unknown_fields=True):
    """Rejection. See `TransferFailed` for the fields. Each protocol has its Rejected: the coordinator's refuses a job."""

    reason: _Reason
    retryable: bool
    chunk: int | None = None


Message = Hello | Contents | Describe | Busy | Want | Stored | Rejected
HELLO: Final[Codec[Message]] = Codec(Message, max_bytes=HELLO_BYTES)
CONTENTS: Final[Codec[Message]] = Codec(Message, max_bytes=_PLAIN_BYTES + _HASH_BYTES * MAX_CHUNKS)
ANSWER: Final[Codec[Message]] = Codec(Message, max_bytes=ANSWER_BYTES)


class TransferFailed(TestbedError):
    """A checkpoint that did not get there. The receiver's completed checkpoints are as they were.

    `reason` is for people, and goes on to the coordinator: what it quotes of a peer is cut. `retryable`: the same call
    may succeed later with nothing else changed (what arrived is kept, and not sent again). `bytes_sent` is what this
    attempt put on the wire; `chunk` is the index of a chunk that arrived damaged, if that was it. `own_fault`: the
    sender has no such checkpoint, or found its copy damaged.
    """

    def __init__(
        self, reason: str, *, retryable: bool, bytes_sent: int = 0, chunk: int | None = None, own_fault: bool = False
    ) -> None:
        self.reason, self.retryable, self.own_fault = quoted(reason), retryable, own_fault
        self.bytes_sent, self.chunk = bytes_sent, chunk
        super().__init__(self.reason)


def bitmap_of(chunks: list[int], count: int) -> bytes:
    """Return the bitmap of these chunk numbers out of `count`."""
    bits = bytearray(-(-count // 8))
    for chunk in chunks:
        bits[chunk >> 3] |= 1 << (chunk & 7)
    return bytes(bits)


def chunks_of(bitmap: bytes, count: int) -> list[int]:
    """Return the chunk numbers in a bitmap. Raises RemoteProtocolError if it has not `count` bits or names other chunks."""
    if len(bitmap) != -(-count // 8):
        raise RemoteProtocolError(f"a bitmap of {len(bitmap)} bytes for {count} chunks")
    chunks = [8 * i + bit for i, byte in enumerate(bitmap) if byte for bit in range(8) if byte >> bit & 1]
    if chunks and chunks[-1] >= count:
        raise RemoteProtocolError(f"the peer wants chunk {chunks[-1]} of {count}")
    return chunks


def runs(chunks: list[int]) -> Iterator[tuple[int, int]]:
    """Return [first, after last) of each run of consecutive ascending chunk numbers."""
    edges = [i for i, (a, b) in enumerate(pairwise(chunks), start=1) if b != a + 1]
    for start, end in pairwise([0, *edges, len(chunks)]):
        if end > start:
            yield chunks[start], chunks[end - 1] + 1
