"""A manifest: which job's state after which step, and the hash of every chunk of it.

The digest covers every other field, so two manifests with one digest describe the same checkpoint to the last byte. A
manifest whose fields were changed on the way no longer matches its own name. Hashes are BLAKE3 (256 bits).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec
from blake3 import blake3

from testbed.bounds import (
    LARGEST_COUNT,
    LARGEST_PAYLOAD_BYTES,
    LARGEST_SEQUENCE,
    NAME_RULE,
    Name,
    PayloadBytes,
    Sequence,
    Step,
    is_name,
)
from testbed.checkpoints.errors import BadManifest

# small enough to share much between snapshots, large enough for few calls a second
CHUNK_BYTES: Final = 256 << 10
MIN_CHUNK_BYTES: Final = 4 << 10
MAX_CHUNK_BYTES: Final = 16 << 20
# 32 GiB at 256 KiB; keeps a manifest under 5 MB and its map of missing chunks at 16 KiB
MAX_CHUNKS: Final = 1 << 17
DIGEST_BYTES: Final = 32

_FIELDS = struct.Struct(">QQQQQ")
_CONTEXT = "reclaimnet 2026-01-01 checkpoint manifest v1"
_LARGEST: Final = {
    "sequence": LARGEST_SEQUENCE,
    "step": LARGEST_COUNT,
    "payload_bytes": LARGEST_PAYLOAD_BYTES,
}


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a checkpoint. Build with `Manifest.of`; call `validate` on one that came from elsewhere.

    `sequence` counts a job's checkpoints, `step` is the workload's own count; sizes in bytes; every chunk is
    `chunk_bytes` long but the last, which may be shorter.
    """

    job: Name
    sequence: Sequence
    step: Step
    payload_bytes: PayloadBytes
    chunk_bytes: int
    chunks: tuple[bytes, ...]
    digest: bytes

    @classmethod
    def of(
        cls, job: str, sequence: int, step: int, payload_bytes: int, chunk_bytes: int, chunks: Iterable[bytes]
    ) -> Manifest:
        """Return the manifest of these fields, with its digest. Raises BadManifest if they contradict each other."""
        hashes = tuple(chunks)
        draft = cls(job, sequence, step, payload_bytes, chunk_bytes, hashes, b"")
        draft._check_fields()
        return msgspec.structs.replace(draft, digest=draft._computed_digest())

    @property
    def key(self) -> tuple[str, int]:
        """Key in a store: (job, sequence)."""
        return self.job, self.sequence

    def span(self, chunk: int) -> tuple[int, int]:
        """Return (offset, length) in bytes of a chunk in the payload."""
        offset = chunk * self.chunk_bytes
        return offset, min(self.chunk_bytes, self.payload_bytes - offset)

    def validate(self) -> None:
        """Raise BadManifest if any field is out of bounds, sizes and count disagree, or the digest is not that of the fields."""
        self._check_fields()
        if self.digest != self._computed_digest():
            raise BadManifest(
                f"{self.job}/{self.sequence}: the digest does not match the manifest's own fields"
            )

    def _check_fields(self) -> None:
        check_job(self.job)
        for name, largest in _LARGEST.items():
            value = getattr(self, name)
            _require(0 <= value <= largest, name, value, f"a whole number from 0 to {largest}")
        size = self.chunk_bytes
        _require(
            MIN_CHUNK_BYTES <= size <= MAX_CHUNK_BYTES and size & (size - 1) == 0,
            "chunk_bytes",
            size,
            f"a power of two from {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES}",
        )
        count = -(-self.payload_bytes // self.chunk_bytes)
        limit = MAX_CHUNKS * self.chunk_bytes
        _require(
            count <= MAX_CHUNKS, "payload_bytes", self.payload_bytes, f"at most {limit} at this chunk size"
        )
        _require(
            len(self.chunks) == count,
            "chunks",
            len(self.chunks),
            f"{count} hashes, for {self.payload_bytes} bytes in chunks of {self.chunk_bytes}",
        )
        odd = next((c for c in self.chunks if len(c) != DIGEST_BYTES), None)
        _require(odd is None, "chunks", odd, f"hashes of {DIGEST_BYTES} bytes")

    def _computed_digest(self) -> bytes:
        job = self.job.encode()
        hasher = blake3(derive_key_context=_CONTEXT)
        hasher.update(_FIELDS.pack(len(job), self.sequence, self.step, self.payload_bytes, self.chunk_bytes))
        hasher.update(job)
        hasher.update(b"".join(self.chunks))
        return hasher.digest()


def check_job(job: str) -> None:
    """Raise BadManifest unless `job` is a plain name: it becomes the name of a directory."""
    _require(is_name(job), "job", job, NAME_RULE)


def _require(holds: bool, field: str, value: object, allowed: str) -> None:
    if not holds:
        raise BadManifest(f"manifest: {field} = {value!r}: {allowed}")
