"""Messages over a trio stream: `Channel` puts the frames of `testbed.framing` on any `trio.abc.Stream`.

The stream's own errors (`trio.BrokenResourceError` when the peer is gone, `trio.ClosedResourceError` after `aclose`)
pass through unchanged; only what the peer *sent* becomes a RemoteProtocolError.

`MessageStream` is what live connections use. For each small message that the kernel takes at once, trio's own
SocketStream goes through the scheduler twice. It also asks for bytes before it waits for them.
"""

from __future__ import annotations

import socket
from typing import Final, Generic

import trio

from testbed.errors import RemoteProtocolError
from testbed.framing import MAX_BYTES, VERSION, Codec, Decoder, M

__all__ = ["MAX_BYTES", "VERSION", "Channel", "Codec", "Decoder", "MessageStream"]

RECEIVE_BYTES: Final = 1 << 16
# most messages that one write takes along, of those that wait: each write to a conversation is work for both ends
SENT_TOGETHER: Final = 16


class MessageStream(trio.abc.Stream):
    """A connected, non-blocking socket that carries small messages: one task sends at a time, and one receives."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    @classmethod
    def take_over(cls, stream: trio.SocketStream) -> MessageStream:
        """Take over the connection of a stream, which is of no use any more."""
        sock = socket.socket(fileno=stream.socket.detach())
        sock.setblocking(False)
        return cls(sock)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Hand all to the kernel; other tasks run meanwhile only if that has to be waited for."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.socket.send(rest) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self.socket)
            except OSError as error:
                if self.socket.fileno() < 0:
                    raise trio.ClosedResourceError("this connection has been closed") from error
                raise trio.BrokenResourceError(f"the connection broke: {error}") from error

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the kernel takes something."""
        await trio.lowlevel.wait_writable(self.socket)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; empty at the end of the stream."""
        while True:
            if self.socket.fileno() < 0:
                raise trio.ClosedResourceError("this connection has been closed")
            await self.wait_readable()
            try:
                return self.socket.recv(max_bytes or RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(f"the connection broke: {error}") from error

    async def wait_readable(self) -> None:
        """Wait until there is something to receive, or the stream has ended."""
        await trio.lowlevel.wait_readable(self.socket)

    async def aclose(self) -> None:
        """Close the socket."""
        if self.socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self.socket)
            self.socket.close()
        await trio.lowlevel.checkpoint()


class Channel(Generic[M]):
    """A connection that carries the messages of a codec, both ways.

    `received_bytes` counts all that came.
    """

    def __init__(self, stream: trio.abc.Stream, codec: Codec[M]) -> None:
        self.stream = stream
        self._codec = codec
        self._decoder = codec.decoder()
        self.received_bytes = 0
        self._sending = trio.Lock()
        self._cut_off = False

    async def send(self, *messages: M) -> None:
        """Send messages, whole: concurrent calls take turns.

        Raises LocalProtocolError (nothing sent, the channel still good) and the stream's errors. A send that was cancelled
        may have left half a frame on the wire, so afterwards the channel sends no more: BrokenResourceError.
        """
        frames = b"".join(map(self._codec.encode, messages))
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            if self._cut_off:
                raise trio.BrokenResourceError("an earlier message was cut off while it was sent")
            await trio.lowlevel.checkpoint_if_cancelled()  # while nothing of it is sent
            self._cut_off = True
            await self.stream.send_all(frames)
            self._cut_off = False
        finally:
            self._sending.release()

    async def send_each(self, messages: trio.MemoryReceiveChannel[M]) -> None:
        """Send what arrives in memory, in order, until that channel's other end is closed."""
        async for message in messages:
            waiting = min(messages.statistics().current_buffer_used, SENT_TOGETHER)
            await self.send(message, *[messages.receive_nowait() for _ in range(waiting)])

    async def receive(self) -> M | None:
        """Return the next message; None when the peer has closed between two frames.

        Raises RemoteProtocolError, and the stream's errors.
        """
        while (message := self._decoder.next()) is None:
            data = await self.stream.receive_some(RECEIVE_BYTES)
            if not data:
                self._decoder.eof()
                return None
            self.received_bytes += len(data)
            self._decoder.feed(data)
        return message

    def require_silence(self) -> None:
        """Check, before raw bytes follow on the stream, that the peer has sent no more. Raises RemoteProtocolError if it has."""
        if self._decoder.buffered_bytes:
            raise RemoteProtocolError("the peer spoke before it was its turn")

    async def aclose(self) -> None:
        """Close the stream."""
        await self.stream.aclose()
