"""Sealed records: the chunks of one transfer under AES-256-GCM, beneath its conversation on the same connection.

A record is the chunk's ciphertext and a tag of TAG_BYTES. Both ends know which chunks come, and of which size, so no length
is sent. The key is fresh for each connection and is sent inside its conversation, so the nonce is a plain counter. The tag
covers the chunk's number and the count. A record that was changed, swapped, left out, repeated, or taken from another
connection is refused before any of its bytes count. A record of zero bytes ends the stream.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
NONCE_BYTES: Final = 12
# stands for a chunk's number in the last record: more than any chunk has
END: Final = (1 << 32) - 1


def new_key() -> bytes:
    """Return the key of one connection."""
    return os.urandom(KEY_BYTES)


class _Records:
    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._count = 0

    def _next(self, chunk: int) -> tuple[bytes, bytes]:
        """Return nonce and associated data of the next record."""
        count = self._count
        self._count += 1
        return count.to_bytes(NONCE_BYTES, "big"), chunk.to_bytes(4, "big") + count.to_bytes(8, "big")


class Sealer(_Records):
    """The sender's records of one connection."""

    def seal(self, chunk: int, record: memoryview) -> None:
        """Make a chunk, with TAG_BYTES of room behind it, the next record."""
        nonce, associated = self._next(chunk)
        self._cipher.encrypt_into(nonce, record[:-TAG_BYTES], associated, record)


class Opener(_Records):
    """The receiver's records of one connection."""

    def open(self, chunk: int, record: memoryview, plain: memoryview) -> bool:
        """Decrypt the next record into `plain`; False if it is not the one that was sealed."""
        nonce, associated = self._next(chunk)
        try:
            self._cipher.decrypt_into(nonce, record, associated, plain)
        except InvalidTag:
            return False
        return True
