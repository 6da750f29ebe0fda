"""A manifest: which job's state after which step, and the hash of every chunk of it.

The digest covers every other field, so two manifests with one digest describe the same checkpoint to the last byte. A
manifest whose fields were changed on the way no longer matches its own name. Hashes are BLAKE3 (256 bits).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from blake3 import blake3

from testbed.bounds import NAME_RULE, Name, PayloadBytes, Sequence, Step, is_name
from testbed.checkpoints.errors import BadManifest

# small enough to share much between snapshots, large enough for few calls a second
CHUNK_BYTES: Final = 256 << 10
MIN_CHUNK_BYTES: Final = 4 << 10
MAX_CHUNK_BYTES: Final = 16 << 20
# 32 GiB at 256 KiB; keeps a manifest under 5 MB and its map of missing chunks at 16 KiB
MAX_CHUNKS: Final = 1 << 17
DIGEST_BYTES: Final = 32

Key = tuple[str, int]  # of a checkpoint in a store: job, sequence
ChunkBytes = Annotated[int, msgspec.Meta(ge=MIN_CHUNK_BYTES, le=MAX_CHUNK_BYTES)]
Hash = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]

_FIELDS = struct.Struct(">QQQQQ")
_CONTEXT = "reclaimnet 2026-01-01 checkpoint manifest v1"


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a checkpoint. Build with `Manifest.of`; call `validate` on one that came from elsewhere.

    `sequence` counts a job's checkpoints, `step` is the workload's own count; sizes in bytes; every chunk is
    `chunk_bytes` long but the last, which may be shorter.
    """

    job: Name
    sequence: Sequence
    step: Step
    payload_bytes: PayloadBytes
    chunk_bytes: ChunkBytes
    chunks: tuple[Hash, ...]
    digest: Hash

    @classmethod
    def of(
        cls, job: str, sequence: int, step: int, payload_bytes: int, chunk_bytes: int, chunks: Iterable[bytes]
    ) -> Manifest:
        """Return the manifest of these fields, with its digest. Raises BadManifest if they contradict each other."""
        hashes = tuple(chunks)
        draft = cls(job, sequence, step, payload_bytes, chunk_bytes, hashes, bytes(DIGEST_BYTES))
        draft._check_fields()
        return msgspec.structs.replace(draft, digest=draft._computed_digest())

    @property
    def key(self) -> Key:
        """Key in a store."""
        return self.job, self.sequence

    def span(self, chunk: int) -> tuple[int, int]:
        """Return (offset, length) in bytes of a chunk in the payload."""
        offset = chunk * self.chunk_bytes
        return offset, min(self.chunk_bytes, self.payload_bytes - offset)

    def validate(self) -> None:
        """Raise BadManifest if any field is out of bounds, sizes and count disagree, or the digest is not that of the fields."""
        self._check_fields()
        if self.digest != self._computed_digest():
            raise BadManifest(f"{self.job}/{self.sequence}: the digest does not match the manifest's own fields")

    def _check_fields(self) -> None:
        try:
            msgspec.convert(msgspec.structs.asdict(self), Manifest)
        except msgspec.ValidationError as error:
            raise BadManifest(f"manifest: {error}") from None
        size, count = self.chunk_bytes, -(-self.payload_bytes // self.chunk_bytes)
        if size & (size - 1):
            raise BadManifest(f"manifest: chunk_bytes = {size}: a power of two")
        if count > MAX_CHUNKS:
            most = f"at most {MAX_CHUNKS * size} at this chunk size"
            raise BadManifest(f"manifest: payload_bytes = {self.payload_bytes}: {most}")
        if len(self.chunks) != count:
            wanted = f"{count} hashes, for {self.payload_bytes} bytes in chunks of {size}"
            raise BadManifest(f"manifest: chunks = {len(self.chunks)}: {wanted}")

    def _computed_digest(self) -> bytes:
        job = self.job.encode()
        hasher = blake3(derive_key_context=_CONTEXT)
        hasher.update(_FIELDS.pack(len(job), self.sequence, self.step, self.payload_bytes, self.chunk_bytes))
        hasher.update(job)
        hasher.update(b"".join(self.chunks))
        return hasher.digest()


def check_job(job: str) -> None:
    """Raise BadManifest unless `job` is a plain name: it becomes the name of a directory."""
    if not is_name(job):
        raise BadManifest(f"manifest: job = {job!r}: {NAME_RULE}")
