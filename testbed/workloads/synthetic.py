"""A job whose whole state is a closed function of (parameters, step): a restored copy can prove that it is right.

The payload is cut into blocks of 64 KiB. Block b in version v holds BLAKE3's output stream for the key (seed, b, v): it
cannot be guessed, and whatever knows the key recomputes it. Step n rewrites the next blocks round and round; after n
steps

    W(n) = floor(n f B)         blocks were written in all, of B, at dirty fraction f (kept in millionths, so W is exact);
    v(b, n) = ceil((W(n) - b) / B)   for b < W(n), else 0

so consecutive snapshots that are m steps apart differ in a fraction min(1, m f), in one contiguous stretch. The state
file is the payload followed by a trailer: blocks stay aligned to the chunks of a checkpoint, and only the last chunk
changes for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from blake3 import blake3

from testbed.workloads.base import StateMismatch, Workload, number, only, write_parts
from topologies.decoding import UNDECODABLE

BLOCK_BYTES: Final = 64 << 10
MILLION: Final = 1_000_000
_CONTEXT: Final = "reclaimnet 2026-01-01 synthetic workload block v1"
_TRAILER_BYTES: Final = 128
_KNOWN: Final = frozenset({"payload_bytes", "steps", "step_s", "dirty_fraction", "seed"})


class Params(msgspec.Struct, frozen=True):
    """`payload_bytes` of state; `steps` to do, one every `step_s`; each rewrites `dirty_millionths` of the blocks."""

    payload_bytes: int
    steps: int
    step_s: float
    dirty_millionths: int
    seed: int

    @classmethod
    def of(cls, params: Mapping[str, object]) -> Params:
        """Read a job's description: steps is required, the rest has defaults. Raises SpecError."""
        only(params, _KNOWN)
        dirty = number(params, "dirty_fraction", 0.1, 0.0, 1.0)
        return cls(
            payload_bytes=int(number(params, "payload_bytes", 16 << 20, 0, 1 << 36, whole=True)),
            steps=int(number(params, "steps", None, 1, 1 << 40, whole=True)),
            step_s=float(number(params, "step_s", 0.1, 0.0, 86400.0)),
            dirty_millionths=round(dirty * MILLION),
            seed=int(number(params, "seed", 0, 0, (1 << 63) - 1, whole=True)),
        )

    @property
    def blocks(self) -> int:
        """B: blocks of the payload; the last may be short."""
        return -(-self.payload_bytes // BLOCK_BYTES)

    @property
    def content(self) -> tuple[int, int, int]:
        """Parameters on which the state depends (not the speed or length of the job)."""
        return self.payload_bytes, self.dirty_millionths, self.seed

    def written(self, step: int) -> int:
        """Return W(step): blocks rewritten in all by the first `step` steps."""
        return step * self.dirty_millionths * self.blocks // MILLION

    def version(self, block: int, step: int) -> int:
        """Return v(block, step): the number of times a block was rewritten by then."""
        return max(0, -(-(self.written(step) - block) // self.blocks))

    def block(self, block: int, version: int) -> bytes:
        """Return the content of a block."""
        length = min(BLOCK_BYTES, self.payload_bytes - block * BLOCK_BYTES)
        key = f"{self.seed} {block} {version}".encode()
        return blake3(key, derive_key_context=_CONTEXT).digest(length=length)


class Trailer(msgspec.Struct, frozen=True, tag="synthetic", forbid_unknown_fields=True):
    """The end of a state file: of which state, at which step."""

    content: tuple[int, int, int]
    step: int


class Synthetic(Workload):
    """The workload "synthetic". Parameters: payload_bytes, steps, step_s, dirty_fraction, seed."""

    def __init__(self, params: Mapping[str, object]) -> None:
        super().__init__(params)
        self.params = Params.of(params)
        self.step_s = self.params.step_s
        self._payload = bytearray()

    @property
    def steps_total(self) -> int:
        """Number of steps, from the parameters."""
        return self.params.steps

    def begin(self) -> None:
        """Make version 0 of every block."""
        self.step_number = 0
        self._payload = bytearray(self.params.payload_bytes)
        for block in range(self.params.blocks):
            self._rewrite(block, 0)

    def step(self) -> None:
        """Rewrite blocks W(n) to W(n + 1), counted round and round."""
        params, n = self.params, self.step_number
        first, end = params.written(n), params.written(n + 1)
        for turn in range(max(first, end - params.blocks), end):
            self._rewrite(turn % params.blocks, turn // params.blocks + 1)
        self.step_number = n + 1

    def save(self, path: Path) -> None:
        """Write the payload, then the trailer."""
        write_parts(path, self.parts())

    def parts(self) -> list[bytes | bytearray]:
        """Return the payload as it lies there, and the trailer."""
        trailer = msgspec.msgpack.encode(Trailer(self.params.content, self.step_number))
        return [self._payload, bytes([len(trailer)]) + trailer.ljust(_TRAILER_BYTES - 1, b"\0")]

    def load(self, path: Path) -> None:
        """Take payload and step; does not yet prove them."""
        size = self.params.payload_bytes
        with path.open("rb", buffering=0) as file:
            found = os.fstat(file.fileno()).st_size
            if found != size + _TRAILER_BYTES:
                raise StateMismatch(f"{path}: {found} bytes, a state of this job has {size + _TRAILER_BYTES}")
            self._payload = bytearray(size)
            space = memoryview(self._payload)
            while space:
                count = os.readv(file.fileno(), [space])
                if count == 0:
                    raise StateMismatch("the file became shorter while it was read")
                space = space[count:]
            raw = file.read(_TRAILER_BYTES)
        try:
            trailer = msgspec.msgpack.decode(raw[1 : 1 + raw[0]], type=Trailer)
        except UNDECODABLE as error:
            raise StateMismatch(f"{path}: no state of a synthetic job: {error}") from error
        if trailer.content != self.params.content or not 0 <= trailer.step <= self.params.steps:
            raise StateMismatch(f"{path}: the state of another job: {trailer}")
        self.step_number = trailer.step

    def verify(self) -> bytes:
        """Recompute every block of this step from the parameters alone and compare."""
        params, view = self.params, memoryview(self._payload)
        for block in range(params.blocks):
            start = block * BLOCK_BYTES
            if view[start : start + BLOCK_BYTES] != params.block(block, params.version(block, self.step_number)):
                raise StateMismatch(f"block {block} is not what step {self.step_number} left there")
        return self.digest()

    def digest(self) -> bytes:
        """Return the BLAKE3 of step and payload."""
        return blake3(self.step_number.to_bytes(8, "big")).update(self._payload).digest()

    def _rewrite(self, block: int, version: int) -> None:
        start = block * BLOCK_BYTES
        content = self.params.block(block, version)
        self._payload[start : start + len(content)] = content
