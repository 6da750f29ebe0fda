"""Chunks made smaller for their way: what is sent in place of a chunk, and how the chunk comes back out of it, exactly.

A training job's checkpoint has no chunk in common with the last one, and a general compressor finds next to nothing in numbers
of floating point. What can be found (`reclaimnet measure codecs` has the figures): of four neighbouring bytes those with sign and
exponent are far from random, the low ones are noise; and a weight that took a small step has most of its high bits left. So a
chunk is split into four planes (byte n of every four), each compressed by itself, or sent as it is where that gains nothing;
where both ends hold an earlier checkpoint of the job, the chunk is first XORed with the bytes that lie at its place there. Four
suits numbers of 16 bits as well. zstd's level 1 does it: higher ones cost several times as much and find no more.

    chunk on the wire   method, length of the body, body
    body of STORED      the chunk
    of the others       for each plane its length and its bytes; a length that is the plane's own: they are not compressed

The receiver knows how long the chunk, and so each plane, has to be, and takes nothing that says otherwise: a body is never longer
than its chunk, a frame has to declare exactly its plane's length before a byte of it is decompressed, and nothing may follow.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import zstandard

from testbed.checkpoints import Manifest
from testbed.errors import RemoteProtocolError

# the one codec there is; another format gets another name
CODEC: Final = "planes-zstd-1"
STORED, WHOLE, PLANES, DELTA = range(4)
HEADER: Final = struct.Struct(">BI")
# a receiver holds a few times as much for each transfer that it decodes
LARGEST_CHUNK_BYTES: Final = 1 << 20
# below that there is little to gain
LEAST_BYTES: Final = 16 << 10
# what one core codes in a second on this kind of machine: a flow that is granted more would wait for its coder
FASTEST_BYTES_PER_S: Final = 200e6
# a payload of which samples do not shrink to this is sent as it is
WORTH: Final = 0.95
SAMPLED_CHUNKS: Final = 3
SAMPLE_BYTES: Final = 16 << 10
_LEVEL: Final = 1
_WIDTH: Final = 4
_LENGTH: Final = struct.Struct(">I")

_Bytes = npt.NDArray[np.uint8]


class ChunkEncoder:
    """Codes chunks of one checkpoint. `base`: a file that holds an earlier one's bytes, known to the receiver, or None."""

    def __init__(self, manifest: Manifest, file: int, base: int | None) -> None:
        self.processor_s = 0.0
        self.base = base
        self._manifest, self._file = manifest, file
        self._zstd = zstandard.ZstdCompressor(level=_LEVEL)

    def encode(self, chunks: Sequence[int], *, stored: bool = False) -> bytes:
        """What is sent for these chunks; `stored`: as they are. OSError, also if the file is too short."""
        began_s = time.thread_time()
        coded = b"".join(self._stored(chunk) if stored else self._coded(chunk) for chunk in chunks)
        self.processor_s += time.thread_time() - began_s
        return coded

    def shrinks(self, chunks: Sequence[int]) -> bool:
        """Whether samples out of a few of these chunks become enough smaller."""
        began_s = time.thread_time()
        picked = {chunks[n * (len(chunks) - 1) // max(1, SAMPLED_CHUNKS - 1)] for n in range(SAMPLED_CHUNKS)}
        plain_bytes = coded_bytes = 0
        for chunk in picked:
            data, base = self._read(chunk)
            start, length = _sample(len(data))
            plain_bytes += length
            part = slice(start, start + length)
            coded_bytes += min(length, *(len(body) for _, body in self._ways(data[part], base, part)))
        self.processor_s += time.thread_time() - began_s
        return coded_bytes <= WORTH * plain_bytes

    def _stored(self, chunk: int) -> bytes:
        data = self._read(chunk)[0].tobytes()
        return HEADER.pack(STORED, len(data)) + data

    def _coded(self, chunk: int) -> bytes:
        data, base = self._read(chunk)
        start, length = _sample(len(data))
        part = slice(start, start + length)
        method, _ = min(self._ways(data[part], base, part), key=lambda way: len(way[1]))
        body = self._body(method, data, base)
        if len(body) >= len(data):
            method, body = STORED, data.tobytes()
        return HEADER.pack(method, len(body)) + body

    def _read(self, chunk: int) -> tuple[_Bytes, _Bytes | None]:
        """A chunk, and as many bytes of the base at its place; None: it has fewer there."""
        offset, length = self._manifest.span(chunk)
        data = os.pread(self._file, length, offset)
        if len(data) != length:
            raise OSError(f"{len(data)} bytes at {offset}, and not {length}")
        base = b"" if self.base is None else os.pread(self.base, length, offset)
        of_base = np.frombuffer(base, np.uint8) if len(base) == length else None
        return np.frombuffer(data, np.uint8), of_base

    def _ways(self, sample: _Bytes, base: _Bytes | None, part: slice) -> list[tuple[int, bytes]]:
        methods = (WHOLE, PLANES) if base is None else (WHOLE, PLANES, DELTA)
        of_base = None if base is None else base[part]
        return [(method, self._body(method, sample, of_base)) for method in methods]

    def _body(self, method: int, data: _Bytes, base: _Bytes | None) -> bytes:
        if method == DELTA and base is not None:
            data = data ^ base
        planes = [data] if method == WHOLE else [data[n::_WIDTH] for n in range(_WIDTH)]
        parts = []
        for plane in planes:
            plain = np.ascontiguousarray(plane)
            coded = self._zstd.compress(plain.data)
            if len(coded) >= len(plain):
                coded = plain.tobytes()
            parts += [_LENGTH.pack(len(coded)), coded]
        return b"".join(parts)


class ChunkDecoder:
    """Brings chunks back. `base` as the encoder's."""

    def __init__(self, base: int | None) -> None:
        self.processor_s = 0.0
        self._base = base
        self._zstd = zstandard.ZstdDecompressor()

    def decode(self, method: int, body: bytes | bytearray, offset: int, length: int) -> bytes:
        """The chunk of that length, which lies at `offset` in its payload. RemoteProtocolError for what is none."""
        began_s = time.thread_time()
        chunk = self._decoded(method, body, offset, length)
        self.processor_s += time.thread_time() - began_s
        return chunk

    def _decoded(self, method: int, body: bytes | bytearray, offset: int, length: int) -> bytes:
        if method == STORED:
            if len(body) != length:
                raise RemoteProtocolError(f"a chunk of {length} bytes, stored as {len(body)}")
            return bytes(body)
        if method == WHOLE:
            [chunk] = self._planes(body, [length])
            return chunk.tobytes()
        if method not in (PLANES, DELTA):
            raise RemoteProtocolError(f"no way to code a chunk: {method}")
        data = np.empty(length, np.uint8)
        for n, plane in enumerate(self._planes(body, [len(data[n::_WIDTH]) for n in range(_WIDTH)])):
            data[n::_WIDTH] = plane
        if method == DELTA:
            base = b"" if self._base is None else os.pread(self._base, length, offset)
            if len(base) != length:
                raise RemoteProtocolError("a difference to bytes that are not here")
            data ^= np.frombuffer(base, np.uint8)
        return data.tobytes()

    def _planes(self, body: bytes | bytearray, lengths: Sequence[int]) -> list[_Bytes]:
        at, planes = 0, []
        for length in lengths:
            if len(body) < at + _LENGTH.size:
                raise RemoteProtocolError("a plane of a chunk is missing")
            [coded_bytes] = _LENGTH.unpack_from(body, at)
            at += _LENGTH.size
            if coded_bytes > length or at + coded_bytes > len(body):
                raise RemoteProtocolError(f"{coded_bytes} bytes for a plane of {length}")
            coded = bytes(body[at : at + coded_bytes])
            at += coded_bytes
            planes.append(np.frombuffer(self._plane(coded, length), np.uint8))
        if at != len(body):
            raise RemoteProtocolError(f"{len(body) - at} bytes behind a chunk's planes")
        return planes

    def _plane(self, coded: bytes, length: int) -> bytes:
        if len(coded) == length:
            return coded
        try:
            declared = zstandard.frame_content_size(coded)
            if declared != length:  # -1: it does not say
                raise RemoteProtocolError(f"a plane of {length} bytes that declares {declared}")
            return self._zstd.decompress(coded, max_output_size=length, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise RemoteProtocolError(f"a plane that cannot be decompressed: {error}") from error


def _sample(length: int) -> tuple[int, int]:
    """(start, length) of the middle of a chunk."""
    sampled = min(length, SAMPLE_BYTES)
    return (length - sampled) // 2 // _WIDTH * _WIDTH, sampled
