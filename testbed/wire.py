"""Messages over a trio stream: `Channel` puts the frames of `testbed.framing` on any `trio.abc.Stream`.

The stream's own errors (`trio.BrokenResourceError` when the peer is gone, `trio.ClosedResourceError` after `aclose`) pass
through unchanged; only what the peer *said* becomes a RemoteProtocolError.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic

import trio

from testbed.errors import RemoteProtocolError
from testbed.framing import MAX_BYTES, VERSION, Codec, Decoder, M

__all__ = ["MAX_BYTES", "VERSION", "Channel", "Codec", "Decoder"]

RECEIVE_BYTES: Final = 1 << 16


class Channel(Generic[M]):
    """One connection that carries the messages of a codec, both ways.

    Until `allow` says otherwise, a frame that arrives may have `most_bytes`, by default the codec's bound. `received_bytes`
    counts all that came.
    """

    def __init__(self, stream: trio.abc.Stream, codec: Codec[M], most_bytes: int | None = None) -> None:
        self.stream = stream
        self._codec = codec
        self._decoder = codec.decoder()
        if most_bytes is not None:
            self._decoder.max_bytes = most_bytes
        self._arrived: deque[M] = deque()
        self.received_bytes = 0
        self._sending = trio.Lock()
        self._cut_off = False

    async def send(self, message: M) -> None:
        """Sends one message, whole: concurrent calls take turns.

        Raises LocalProtocolError (nothing sent, the channel still good) and the stream's errors. A send that was cancelled
        may have left half a frame on the wire, so afterwards the channel sends no more: BrokenResourceError.
        """
        frame = self._codec.encode(message)
        async with self._sending:
            if self._cut_off:
                raise trio.BrokenResourceError("an earlier message was cut off while it was sent")
            self._cut_off = True
            await self.stream.send_all(frame)
            self._cut_off = False

    async def send_each(self, messages: trio.MemoryReceiveChannel[M]) -> None:
        """Sends what arrives in memory, in order, until that channel's other end is closed."""
        async for message in messages:
            await self.send(message)

    async def receive(self) -> M | None:
        """The next message; None when the peer has closed between two frames. Raises RemoteProtocolError, stream errors."""
        while not self._arrived:
            self._arrived.extend(
                self._decoder.feed(b"")
            )  # tells an error that came right behind good messages
            data = await self.stream.receive_some(RECEIVE_BYTES)
            if not data:
                self._decoder.eof()
                return None
            self.received_bytes += len(data)
            self._arrived.extend(self._decoder.feed(data))
        return self._arrived.popleft()

    def allow(self, most_bytes: int) -> None:
        """Let frames be so long, from the next one on."""
        self._decoder.max_bytes = most_bytes

    def require_silence(self) -> None:
        """Before raw bytes follow on the stream. Raises RemoteProtocolError if the peer has already said more."""
        self._arrived.extend(self._decoder.feed(b""))
        if self._arrived or self._decoder.buffered_bytes:
            raise RemoteProtocolError("the peer spoke before it was its turn")

    async def aclose(self) -> None:
        """Closes the stream."""
        await self.stream.aclose()
