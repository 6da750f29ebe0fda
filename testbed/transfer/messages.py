"""The conversation of one transfer, one TCP connection:

    sender      Hello(transfer, manifest)
    receiver    Busy ...                        while it looks through what it has; again later, while it syncs
    receiver    Want(bitmap of chunks)          or Rejected, or Stored (it has it already)
    sender      the bytes of those chunks, in order, without any framing
    receiver    Stored(digest) | Rejected       at any moment

The bitmap bounds the answer: one bit a chunk, at most 16 KiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Final

import msgspec

from testbed.checkpoints import Manifest
from testbed.errors import RemoteProtocolError
from testbed.framing import Codec

REASON_CHARACTERS: Final = 1000
_Reason = Annotated[str, msgspec.Meta(max_length=REASON_CHARACTERS)]
_TransferName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Hello(msgspec.Struct, tag="hello", frozen=True, forbid_unknown_fields=True):
    """The sender offers a checkpoint. `transfer` is the name under which both hosts know this attempt."""

    transfer: _TransferName
    manifest: Manifest


class Busy(msgspec.Struct, tag="busy", frozen=True, forbid_unknown_fields=True):
    """The receiver is alive and works on its disk."""


class Want(msgspec.Struct, tag="want", frozen=True, forbid_unknown_fields=True):
    """The chunks to send: bit n % 8 of byte n // 8 is chunk n."""

    chunks: bytes


class Stored(msgspec.Struct, tag="stored", frozen=True, forbid_unknown_fields=True):
    """Completed at the receiver; `fresh` is False if it was so before this transfer."""

    digest: bytes
    fresh: bool


class Rejected(msgspec.Struct, tag="rejected", frozen=True, forbid_unknown_fields=True):
    """No. See `TransferFailed` for the fields."""

    reason: _Reason
    retryable: bool
    chunk: int | None = None


Message = Hello | Busy | Want | Stored | Rejected
CODEC: Final[Codec[Message]] = Codec(Message, max_bytes=8 << 20)  # a manifest of 2**17 chunks has 4.5 MB


def bitmap_of(chunks: list[int], count: int) -> bytes:
    """The bitmap of these chunk numbers out of `count`."""
    bits = bytearray(-(-count // 8))
    for chunk in chunks:
        bits[chunk >> 3] |= 1 << (chunk & 7)
    return bytes(bits)


def chunks_of(bitmap: bytes, count: int) -> list[int]:
    """The chunk numbers in a bitmap. Raises RemoteProtocolError if it has not `count` bits or names other chunks."""
    if len(bitmap) != -(-count // 8):
        raise RemoteProtocolError(f"a bitmap of {len(bitmap)} bytes for {count} chunks")
    chunks = [8 * i + bit for i, byte in enumerate(bitmap) if byte for bit in range(8) if byte >> bit & 1]
    if chunks and chunks[-1] >= count:
        raise RemoteProtocolError(f"the peer wants chunk {chunks[-1]} of {count}")
    return chunks


def runs(chunks: list[int]) -> Iterator[tuple[int, int]]:
    """[first, after last) of each run of consecutive ascending chunk numbers."""
    edges = [i for i, (a, b) in enumerate(pairwise(chunks), start=1) if b != a + 1]
    for start, end in pairwise([0, *edges, len(chunks)]):
        if end > start:
            yield chunks[start], chunks[end - 1] + 1
