"""Raw bytes from a socket into a reception, in a thread of its own.

At more than 1 GB/s a trip through the event loop for every read would cost more than hashing what was read, and a disk that
makes its writer wait must not make the agent deaf. The thread reads the non-blocking descriptor that trio's socket owns,
and polls it together with an eventfd through which it is told to stop, so that the connection can still say why it ends.
"""

from __future__ import annotations

import os
import select

from testbed.checkpoints import Reception
from testbed.transfer.errors import TransferFailed


class Intake:
    """Reads chunks off `sock` until all are verified, or the peer is silent for `idle_s`, or `stop` becomes readable."""

    def __init__(self, sock: int, stop: int, reception: Reception, idle_s: float) -> None:
        self._sock, self._stop, self._reception, self._idle_s = sock, stop, reception, idle_s
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(stop, select.POLLIN)

    def take(self, chunks: list[int]) -> None:
        """Receives these chunks, in order. Raises TransferFailed, ChunkMismatch, OSError of the disk."""
        manifest = self._reception.manifest
        buffer = memoryview(bytearray(manifest.chunk_bytes))
        for chunk in chunks:
            data = buffer[: manifest.span(chunk)[1]]
            self._fill(data)
            self._reception.write(chunk, data)

    def _fill(self, data: memoryview) -> None:
        got = 0
        while got < len(data):
            count = self._read(data[got:])
            if count == 0:
                raise TransferFailed("the sender closed the connection before the end", retryable=True)
            got += max(0, count)

    def _read(self, space: memoryview) -> int:
        """Bytes read; 0 at the end of the stream; -1 after waiting for some."""
        try:
            return os.readv(self._sock, [space])
        except BlockingIOError:
            self._wait()
            return -1
        except ConnectionError as error:
            raise TransferFailed(f"the connection broke: {error}", retryable=True) from error

    def _wait(self) -> None:
        ready = self._poll.poll(self._idle_s * 1e3)
        if not ready:
            raise TransferFailed(f"the sender sent nothing for {self._idle_s:g} s", retryable=True)
        if any(fd == self._stop for fd, _ in ready):
            raise TransferFailed("stopped by its host", retryable=True)
