"""Raw bytes from a socket into a reception, in a thread of its own.

At more than 1 GB/s a trip through the event loop for every read would cost more than hashing what was read. A disk that
makes its writer wait must not make the agent deaf. The thread reads the non-blocking descriptor that trio's socket
owns. It polls it together with an eventfd through which it is stopped, so that the connection can still report why it
ends.

The bytes go from the socket through a pipe into the file by splice(2). The one copy is the one into the page cache,
where they are hashed while they are still in the processor's cache. One splice takes what the socket has, past the ends
of chunks, as far as the missing chunks are neighbours: a tenth faster than chunk by chunk. It was measured next to recv
into a buffer and pwrite, and to recv into a mapping of the file. It is as fast as the better of them on tmpfs. On ext4,
whose large folios make one splice cheap and many page faults dear, it is 1.5 to 1.8 times as fast. Hashing in a thread
of its own gains nothing where the sender has the other core. But a file in memory that an earlier reception left mapped
(`Reception.memory`) takes the bytes from the socket by themselves: no pipe, no page to look up, a quarter faster.

Sealed chunks come into a buffer, a record at a time. They are decrypted into the mapping, or in the buffer, which is
written to the file. None is hashed before its tag was right.

A thread that waits sleeps until the rest of its chunk is there (SO_RCVLOWAT): with less there is nothing to verify, and
a paced sender's packets come one by one.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from testbed.checkpoints import Reception
from testbed.transfer.messages import TransferFailed, runs
from testbed.trust.sealing import END, TAG_BYTES, Opener

if TYPE_CHECKING:
    import trio

# what an unprivileged process may ask for; fewer trips than the 64 KiB it would get
PIPE_BYTES: Final = 1 << 20
# of the time after which a slow peer is given up: how long less than a chunk may lie unread
LOOK_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one connection, of one peer and of all together, once a Hello was accepted. Beyond them a sender is refused."""

    # a host sends a checkpoint of each job that it runs, and as a standby what it keeps: seldom more than ten at once
    connections_of_peer: int = 24
    # of all hosts: only what the coordinator announced is accepted
    connections: int = 1024
    # of manifests that are being read: one of the longest (4.5 MB), and a few of usual length (a GiB: 140 kB)
    manifest_bytes_of_peer: int = 8 << 20
    manifest_bytes: int = 64 << 20
    # a flow that is granted nothing trickles at 8 kB/s; of that, the paper's bucket leaves 4 %
    least_rate_bytes_per_s: float = 128.0


LIMITS = Limits()


class Intake:
    """Intake of chunks from `sock` until all are verified, or `stop` becomes readable; of an `opener`, they come sealed.

    A peer that sends less than the least rate of `limits` for `idle_s` is given up: it would hold a thread for ever.
    """

    def __init__(
        self,
        sock: socket.socket | trio.socket.SocketType,
        stop: int,
        reception: Reception,
        idle_s: float,
        limits: Limits = LIMITS,
        opener: Opener | None = None,
    ) -> None:
        self._socket, self._sock, self._least_bytes, self._opener = sock, sock.fileno(), 1, opener
        self._stop, self._reception, self._idle_s = stop, reception, idle_s
        self._least_in_window = limits.least_rate_bytes_per_s * idle_s
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)
        self._poll.register(stop, select.POLLIN)
        self._window_ends_s, self._window_bytes = time.monotonic() + idle_s, 0

    def take(self, chunks: list[int]) -> None:
        """Receive these chunks, in order, and seal each as soon as it is whole.

        Raises TransferFailed, ChunkMismatch, OSError of the disk.
        """
        try:
            if self._opener is None:
                self._take_plain(chunks)
            else:
                self._take_sealed(chunks, self._opener)
        finally:
            self._wake_at(1)

    def _take_plain(self, chunks: list[int]) -> None:
        span = self._reception.manifest.span
        self._pipe_out, self._pipe_in = os.pipe2(os.O_CLOEXEC)
        try:
            with suppress(OSError):  # this user's pipes are at their limit: smaller ones work too
                fcntl.fcntl(self._pipe_in, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            for chunk, after in runs(chunks):
                offset, end, whole = span(chunk)[0], sum(span(after - 1)), sum(span(chunk))
                while offset < end:
                    moved = self._move(offset, min(PIPE_BYTES, end - offset), whole - offset)
                    offset += moved
                    self._count(moved)
                    while chunk < after and whole <= offset:
                        self._reception.seal(chunk)
                        chunk += 1
                        whole = sum(span(chunk)) if chunk < after else end
        finally:
            os.close(self._pipe_out)
            os.close(self._pipe_in)

    def _take_sealed(self, chunks: list[int], opener: Opener) -> None:
        manifest, reception = self._reception.manifest, self._reception
        record = memoryview(bytearray(manifest.chunk_bytes + TAG_BYTES))
        for chunk in (*chunks, END):
            offset, length = (0, 0) if chunk == END else manifest.span(chunk)
            rest = record[: length + TAG_BYTES]
            while rest:
                moved = self._taken(partial(os.readv, self._sock, [rest]), len(rest))
                rest = rest[moved:]
                self._count(moved)
            memory = reception.memory
            into = record[:length] if memory is None else memory[offset : offset + length]
            if not opener.open(chunk, record[: length + TAG_BYTES], into):
                what = "the end" if chunk == END else f"chunk {chunk}"
                raise TransferFailed(f"the sealed record of {what} was changed on its way", retryable=True)
            if chunk == END:
                return
            while memory is None and into:
                written = os.pwrite(reception.fileno(), into, offset)
                offset, into = offset + written, into[written:]
            reception.seal(chunk)

    def _count(self, moved: int) -> None:
        """Count bytes that came. TransferFailed where they are too few for the time that passed."""
        self._window_bytes += moved
        if (now_s := time.monotonic()) >= self._window_ends_s:
            if self._window_bytes < self._least_in_window:
                raise TransferFailed(
                    f"the sender sent {self._window_bytes} bytes in {self._idle_s:g} s: "
                    f"at least {self._least_in_window:g} are needed",
                    retryable=True,
                )
            self._window_ends_s, self._window_bytes = now_s + self._idle_s, 0

    def _move(self, offset: int, most: int, wanted: int) -> int:
        """Return the bytes moved from the socket to this place in the file; `wanted` are those that complete a chunk."""
        if (memory := self._reception.memory) is not None:
            return self._taken(lambda: os.readv(self._sock, [memory[offset : offset + most]]), wanted)
        arrived = rest = self._taken(lambda: os.splice(self._sock, self._pipe_in, most), wanted)
        while rest:
            rest -= os.splice(self._pipe_out, self._reception.fileno(), rest, offset_dst=offset + arrived - rest)
        return arrived

    def _taken(self, read: Callable[[], int], wanted: int) -> int:
        """Return the bytes read from the socket; 0 after waiting for `wanted`, or some.

        TransferFailed at the end of the stream.
        """
        try:
            count = read()
        except BlockingIOError:
            self._wake_at(min(wanted, PIPE_BYTES))
            if any(fd == self._stop for fd, _ in self._poll.poll(self._idle_s * LOOK_SHARE * 1e3)):
                raise TransferFailed("stopped by its host", retryable=True) from None
            return 0
        except OSError as error:
            raise TransferFailed(f"the connection broke: {error}", retryable=True) from error
        if count == 0:
            raise TransferFailed("the sender closed the connection before the end", retryable=True)
        return count

    def _wake_at(self, least_bytes: int) -> None:
        """Let the socket be readable once so many bytes lie there, or its stream has ended."""
        if least_bytes != self._least_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least_bytes)
            self._least_bytes = least_bytes
