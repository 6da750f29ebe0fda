"""A raw netlink socket (NETLINK_ROUTE by default): many requests in one send, every refusal collected, dumps as bytes.

Creating 500 hosts is some 5000 requests. Sent one by one through a library that runs an event loop, Python's start-up and
scheduling cost more than the kernel's work; sent in one buffer, the kernel handles a request in a few microseconds. It
acknowledges the last, and answers any that it refuses. A refused request becomes an error that names the object, with the
kernel's own words (extended acknowledgement) where it gives any.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.errors import TestbedError

HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, type
NLMSG_ERROR, NLMSG_DONE = 2, 3
REQUEST, ACK, ROOT_MATCH, EXCL, CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
TYPE_MASK = 0x3FFF
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER_BYTES = 16 << 20  # 4000 refusals of 768 bytes of kernel memory each, five times over
BATCH_BYTES = 256 << 10  # requests in one send; one message of the socket may not exceed its send buffer
FLAG_CAPPED, FLAG_TLVS = 0x100, 0x200
ERRMSG_TEXT = 1  # NLMSGERR_ATTR_MSG


class NetlinkRefused(TestbedError):
    """The kernel's refusal of a request; `what` names the object, `errno` is the reason."""

    def __init__(self, what: str, errno: int, detail: str = "") -> None:
        self.what, self.errno, self.detail = what, errno, detail
        super().__init__(f"{what}: {os.strerror(errno)}{': ' + detail if detail else ''}")


@dataclass(frozen=True, slots=True)
class NetlinkRequest:
    """A message, ready to send but for its sequence number, and its description for errors."""

    data: bytes
    what: str


def attribute(kind: int, payload: bytes) -> bytes:
    """Return an encoded attribute, padded to four bytes."""
    length = ATTRIBUTE.size + len(payload)
    return ATTRIBUTE.pack(length, kind) + payload + b"\0" * (-length % 4)


def text(kind: int, value: str) -> bytes:
    """Return an attribute that holds a zero-terminated string."""
    return attribute(kind, value.encode() + b"\0")


def u32(kind: int, value: int) -> bytes:
    """Return an attribute that holds a 32-bit number."""
    return attribute(kind, struct.pack("=I", value))


def u64(kind: int, value: int) -> bytes:
    """Return an attribute that holds a 64-bit number."""
    return attribute(kind, struct.pack("=Q", value))


def request(kind: int, flags: int, body: bytes, what: str) -> NetlinkRequest:
    """Return a message with sequence 0; `NetlinkSocket.send` writes the real one."""
    data = HEADER.pack(HEADER.size + len(body), kind, REQUEST | flags, 0, 0) + body
    return NetlinkRequest(data, what)


def attributes(data: bytes | memoryview) -> dict[int, bytes]:
    """Return the attributes by type; of a type that occurs twice, the last."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset + 4 <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, offset)
        if length < 4:
            break
        found[kind & TYPE_MASK] = bytes(data[offset + 4 : offset + length])
        offset += (length + 3) & ~3
    return found


class NetlinkSocket:
    """A socket in the network namespace of the thread that creates it; usable from any thread afterwards."""

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.bind((0, 0))
        self._sequence = 0

    def close(self) -> None:
        """Close the socket; it no longer holds its namespace."""
        self._socket.close()

    def __enter__(self) -> NetlinkSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, requests: Sequence[NetlinkRequest]) -> None:
        """Perform all requests in order; NetlinkRefused names the first that failed (later ones were tried too)."""
        start = size = 0
        for index, request in enumerate(requests):
            if size + len(request.data) > BATCH_BYTES:
                self._send_batch(requests[start:index])
                start, size = index, 0
            size += len(request.data) + 4
        if start < len(requests):
            self._send_batch(requests[start:])

    def _send_batch(self, batch: Sequence[NetlinkRequest]) -> None:
        first = self._sequence + 1
        buffer = bytearray()
        for request in batch:
            self._sequence += 1
            start = len(buffer)
            buffer += request.data
            buffer += b"\0" * (-len(buffer) % 4)
            struct.pack_into("=I", buffer, start + 8, self._sequence)
        buffer[start + 6] |= ACK  # of the last; a refusal needs no flag
        self._socket.sendto(buffer, (0, 0))
        refused: NetlinkRefused | None = None
        while True:
            for kind, flags, sequence, body in _messages(self._socket.recv(1 << 20)):
                if kind != NLMSG_ERROR or not first <= sequence <= self._sequence:
                    continue
                refused = refused or _refusal(batch[sequence - first].what, flags, body)
                if sequence == self._sequence:
                    if refused:
                        raise refused
                    return

    def dump(self, kind: int, body: bytes, what: str) -> list[memoryview]:
        """Return bodies (without nlmsghdr) of all objects of a kind; NetlinkRefused if the kernel does not list them."""
        self._sequence += 1
        data = HEADER.pack(HEADER.size + len(body), kind, REQUEST | ROOT_MATCH, self._sequence, 0) + body
        self._socket.sendto(data, (0, 0))
        found: list[memoryview] = []
        while True:
            for answer, flags, sequence, content in _messages(self._socket.recv(1 << 20)):
                if sequence != self._sequence:
                    continue
                if answer == NLMSG_DONE:
                    return found
                if answer == NLMSG_ERROR:
                    raise _refusal(what, flags, content) or NetlinkRefused(what, 0)
                found.append(content)


def _messages(data: bytes) -> Iterator[tuple[int, int, int, memoryview]]:
    """Yield (type, flags, sequence, body) of each message."""
    view = memoryview(data)
    offset = 0
    while offset + HEADER.size <= len(view):
        length, kind, flags, sequence, _ = HEADER.unpack_from(view, offset)
        yield kind, flags, sequence, view[offset + HEADER.size : offset + length]
        offset += (length + 3) & ~3


def _refusal(what: str, flags: int, body: memoryview) -> NetlinkRefused | None:
    (status,) = struct.unpack_from("=i", body)
    if status == 0:
        return None
    detail = attributes(body[20:]).get(ERRMSG_TEXT, b"") if flags & FLAG_TLVS and flags & FLAG_CAPPED else b""
    return NetlinkRefused(what, -status, detail.rstrip(b"\0").decode(errors="replace"))
