"""Frames on a byte stream, without the stream: bytes in, messages out, and the other way round.

A frame is a fixed header (magic, protocol version, length of the body) and a MessagePack body: one `msgspec.Struct` of
a tagged union. The header is judged byte by byte as it arrives. So a peer that speaks something else is known after its
first byte, and never makes us wait for, or keep, more than `max_bytes`. This module knows no trio, so that a workload's
process, which must start fast, can speak the same frames over a plain socket. `testbed.wire` puts them on a trio
stream.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Generic, TypeVar, get_args

import msgspec

from testbed.bounds import quoted
from testbed.errors import LocalProtocolError, RemoteProtocolError
from topologies.decoding import UNDECODABLE

M = TypeVar("M")

MAGIC: Final = b"RCLM"
VERSION: Final = 1
MAX_BYTES: Final = 1 << 20

_HEADER = struct.Struct(">4sHI")


class Codec(Generic[M]):
    """Encoder and decoder of the messages of one union, at most `max_bytes` a body.

    `union_type` is a tagged Struct or a union of tagged Structs; both ends must be given the same one.
    """

    __slots__ = ("_decoder", "_encoder", "_members", "max_bytes")

    def __init__(self, union_type: Any, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._members = frozenset(get_args(union_type) or (union_type,))
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(union_type)

    def encode(self, message: M) -> bytes:
        """Return the frame of a message.

        Raises LocalProtocolError if the message is not of the union, cannot be encoded, or is longer than `max_bytes`.
        """
        if type(message) not in self._members:
            names = ", ".join(sorted(member.__name__ for member in self._members))
            raise LocalProtocolError(f"{type(message).__name__} is not one of the messages sent here: {names}")
        try:
            body = self._encoder.encode(message)
        except (TypeError, ValueError, OverflowError) as error:
            raise LocalProtocolError(f"{type(message).__name__} cannot be encoded: {error}") from error
        if len(body) > self.max_bytes:
            raise LocalProtocolError(
                f"{type(message).__name__} of {len(body)} bytes: at most {self.max_bytes} are allowed"
            )
        return _HEADER.pack(MAGIC, VERSION, len(body)) + body

    def decoder(self) -> Decoder[M]:
        """Return a new decoder, for one connection."""
        return Decoder(self._decoder, self.max_bytes)

    def decode(self, frame: bytes) -> M:
        """Return the message of a frame that came alone. Raises RemoteProtocolError."""
        decoder = self.decoder()
        decoder.feed(frame)
        message = decoder.next()
        if message is None or decoder.buffered_bytes:
            raise RemoteProtocolError("not one frame")
        return message


class Decoder(Generic[M]):
    """The receiving half of one connection: bytes are fed, messages taken. After an error the connection must be closed."""

    __slots__ = ("_buffer", "_decoder", "max_bytes")

    def __init__(self, decoder: msgspec.msgpack.Decoder[M], max_bytes: int) -> None:
        self._decoder = decoder
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """Bytes fed and not taken yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take the bytes that came next."""
        self._buffer += data

    def eof(self) -> None:
        """Check the end of the stream, once all messages are taken. Raises RemoteProtocolError if it cut a frame off."""
        if self._buffer:
            raise RemoteProtocolError(f"the connection ended after {len(self._buffer)} bytes of a frame")

    def next(self) -> M | None:
        """Return the next message; None: more bytes are needed.

        Raises RemoteProtocolError for a wrong magic, another protocol version, a body too long, and a body that is not
        a message of the union.
        """
        buffer = self._buffer
        if buffer[:4] != MAGIC[: len(buffer)]:
            raise RemoteProtocolError(f"a frame begins with {MAGIC!r}, not with {bytes(buffer[:4])!r}")
        if len(buffer) < _HEADER.size:
            return None
        _, version, length = _HEADER.unpack_from(buffer)
        if version != VERSION:
            raise RemoteProtocolError(f"the peer speaks protocol version {version}, this side version {VERSION}")
        if length > self.max_bytes:
            raise RemoteProtocolError(f"a frame of {length} bytes: at most {self.max_bytes} are allowed")
        end = _HEADER.size + length
        if len(buffer) < end:
            return None
        body = buffer[_HEADER.size : end]
        del buffer[:end]
        try:
            return self._decoder.decode(body)
        except UNDECODABLE as error:
            # it may repeat what the peer sent, all of it
            raise RemoteProtocolError(f"not a message: {quoted(str(error))}") from error
