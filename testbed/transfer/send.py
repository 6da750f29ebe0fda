"""The sending side: offer what there is, learn what is missing, let the kernel send it from the page cache, or seal it.

One task streams, with sendfile(2) or encrypted chunks, and knows nothing else. Another receives from the receiver, which may
refuse at any moment, and watches for life. Life is any of: a message, bytes handed to the socket, bytes acknowledged by the
peer's kernel (SIOCOUTQ falling). The last one matters at low granted rates: a paced socket takes its whole send buffer at
once and then accepts nothing for seconds, although bytes leave all the time.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import sys
import termios
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio

from testbed.checkpoints import CheckpointDamaged, CheckpointStore, Manifest, NotStored
from testbed.errors import RemoteProtocolError
from testbed.namespaces import OWN_NETWORK, NetworkNamespace
from testbed.transfer.messages import (
    ANSWER,
    CONTENTS,
    Busy,
    Contents,
    Describe,
    Hello,
    Message,
    Rejected,
    Stored,
    TransferFailed,
    Want,
    chunks_of,
    runs,
)
from testbed.trust.channel import Identity, PartyRole, opened
from testbed.trust.sealing import END, TAG_BYTES, Sealer, new_key
from testbed.wire import Channel

IDLE_TIMEOUT_S: Final = 10.0
# A receiver that shows signs of life for ever, a byte or a Busy now and then, would leave its sender's job without protection.
# It has so many times what the payload takes at its grant (the paper's bucket leaves a flow 4 %). It also has a slow disk's time.
PATIENCE: Final = 64.0
MIN_PATIENCE_S: Final = 60.0
# most that one call is asked to take: as much as a grown send buffer holds
SENDFILE_BYTES: Final = 4 << 20
# most that waits unsent in the socket: trio's 16 KiB would wake us for every packet
UNSENT_BYTES: Final = 1 << 20

Progress = Callable[[int, int], None]
Allowance = Callable[[], Awaitable[int]]


async def all_at_once() -> int:
    """Return the allowance of a flow that nothing holds back but the kernel."""
    return SENDFILE_BYTES


@dataclass(frozen=True, slots=True)
class SendResult:
    """A completed transfer. Times in seconds; bytes are TCP's payload, without headers and hello; with the tags of sealed chunks.

    `duration_s` runs from the call until the receiver reports the checkpoint on disk.
    """

    bytes_sent: int
    bytes_deduplicated: int
    duration_s: float


async def send_checkpoint(
    store: CheckpointStore,
    job: str,
    sequence: int,
    address: tuple[str, int],
    *,
    ticket: int = 0,
    on_connected: Callable[[socket.socket], None],
    on_progress: Progress | None = None,
    allowance: Allowance = all_at_once,
    idle_timeout_s: float = IDLE_TIMEOUT_S,
    network: NetworkNamespace = OWN_NETWORK,
    allowed_bytes: Callable[[], float] | None = None,
    least_patience_s: float = MIN_PATIENCE_S,
    identity: Identity | None = None,
    receiver: str = "",
    is_sealed: bool = False,
) -> SendResult:
    """Bring a completed checkpoint of `store` to the receiver at `address` (numeric IP, port).

    `ticket` is the number under which the receiver expects it, `network` where the connection begins. `on_connected` gets the
    connected socket before the first byte: pace and mark it there, and keep it to change the pace later (it is closed when
    this returns, or before the next is given). `on_progress(sent_bytes, wanted_bytes)` counts bytes handed to the kernel, and
    the plain bytes of what the receiver wants; `allowance` is asked before each call how many bytes it may hand over, and
    may wait. `allowed_bytes` is what its rates would have carried since it was connected: a receiver that has not finished when
    that is PATIENCE times the payload is given up, after `least_patience_s` at the earliest. `identity` proves this host's name,
    and the peer has to prove that it is `receiver`; None: without certificates. `is_sealed`: chunks go encrypted, as the
    receiver must expect. Raises TransferFailed; a cancelled or failed transfer can be tried again and sends only what did
    not arrive.
    """
    started_s = trio.current_time()
    try:
        manifest = store.get(job, sequence)
        path = store.payload(manifest)
        file = path.open("rb")
    except (NotStored, FileNotFoundError) as error:
        raise TransferFailed(f"not here any more: {error}", retryable=False, own_fault=True) from error
    with file:
        if os.fstat(file.fileno()).st_size != manifest.payload_bytes:
            raise TransferFailed(
                f"this host's own copy is damaged: {path} has another size", retryable=False, own_fault=True
            )
        with await _connect(address, idle_timeout_s, network) as sock:
            on_connected(sock)
            most_bytes = PATIENCE * manifest.payload_bytes

            def is_too_slow() -> bool:
                if allowed_bytes is None or trio.current_time() < started_s + least_patience_s:
                    return False
                return allowed_bytes() >= most_bytes

            session = SendSession(sock, file.fileno(), manifest, on_progress, allowance, idle_timeout_s, is_too_slow)
            if is_sealed:
                session.key = new_key()
            try:
                if identity is not None:
                    await session.meet(identity, receiver)
                await session.converse(Hello.of(manifest, ticket))
            except TransferFailed as failure:
                raise await session.explained(store, failure) from failure
    saved = manifest.payload_bytes - session.wanted_bytes
    return SendResult(session.sent_bytes, saved, trio.current_time() - started_s)


class SendSession:
    """A connection, from hello to the verdict."""

    def __init__(
        self,
        sock: socket.socket,
        file: int,
        manifest: Manifest,
        on_progress: Progress | None,
        allowance: Allowance,
        idle_s: float,
        is_too_slow: Callable[[], bool],
    ) -> None:
        self._is_too_slow = is_too_slow
        self.sent_bytes = 0
        self.wanted_bytes = 0
        self.file_error: OSError | None = None
        self.key = b""
        self._sock, self._file, self._manifest = sock, file, manifest
        self._on_progress, self._allowance, self._idle_s = on_progress, allowance, idle_s
        ahead = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        # trio has set its own of 16 KiB, which would wake us for every packet
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, ahead)
        self._converse_on(stream)
        self._alive_s = trio.current_time()
        self._unacknowledged_bytes = 0

    def _converse_on(self, stream: trio.abc.Stream) -> None:
        self._out: Channel[Message] = Channel(stream, CONTENTS)
        self._in: Channel[Message] = Channel(stream, ANSWER)

    async def meet(self, identity: Identity, receiver: str) -> None:
        """Converse by TLS from now on, with the host of this name and no other. Chunks go beneath it. Raises TransferFailed."""
        try:
            with trio.fail_after(self._idle_s):
                stream, name = await opened(self._out.stream, identity, PartyRole.HOST)
        except (RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError) as error:
            raise TransferFailed(f"{receiver} did not prove its name: {error}", retryable=True) from error
        if name.subject != receiver:
            raise TransferFailed(f"{name} answers instead of {receiver}", retryable=True)
        self._converse_on(stream)

    async def converse(self, hello: Hello) -> None:
        """Return once the receiver has confirmed that it is completed. Raises TransferFailed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._say, hello)
            answer = await self._hear()
            if isinstance(answer, Describe):
                nursery.start_soon(self._say, Contents(self._manifest, self.key))
                answer = await self._hear()
                if isinstance(answer, Want):
                    try:
                        chunks = chunks_of(answer.chunks, len(self._manifest.chunks))
                    except RemoteProtocolError as error:
                        answer = TransferFailed(f"the receiver broke the protocol: {error}", retryable=False)
                    else:
                        self.wanted_bytes = sum(self._manifest.span(chunk)[1] for chunk in chunks)
                        nursery.start_soon(self._stream, chunks)
                        answer = await self._hear()
            nursery.cancel_scope.cancel()
        match answer:
            case TransferFailed():
                raise answer
            case Stored(digest=digest) if digest == self._manifest.digest:
                return
            case Rejected(reason=reason, retryable=retryable, chunk=chunk):
                raise TransferFailed(f"the receiver refused: {reason}", retryable=retryable, chunk=chunk)
            case _:
                raise TransferFailed(f"the receiver answered out of turn: {answer!r}", retryable=False)

    async def _say(self, message: Message) -> None:
        with suppress(trio.BrokenResourceError):  # `_hear` learns why
            await self._out.send(message)

    async def _hear(self) -> Message | TransferFailed:
        """Return the next answer that is more than a sign of life, or why there will be none."""
        while True:
            with trio.move_on_after(self._idle_s / 4) as patience:
                try:
                    message = await self._in.receive()
                except trio.BrokenResourceError as error:
                    return TransferFailed(f"the connection broke: {error.__cause__ or error}", retryable=True)
                except RemoteProtocolError as error:
                    return TransferFailed(f"the receiver broke the protocol: {error}", retryable=False)
                if message is None:
                    return TransferFailed("the receiver closed the connection without an answer", retryable=True)
                if not isinstance(message, Busy):
                    return message
            if self._is_too_slow():
                return TransferFailed(
                    f"the receiver lives, and took more than {PATIENCE:g} times as long as its grant allows",
                    retryable=True,
                )
            now_s, left = trio.current_time(), unacknowledged_bytes(self._sock)
            if not patience.cancelled_caught or left < self._unacknowledged_bytes:
                self._alive_s = now_s
            self._unacknowledged_bytes = left
            if now_s - self._alive_s >= self._idle_s:
                return TransferFailed(f"the receiver gave no sign of life for {self._idle_s:g} s", retryable=True)

    async def explained(self, store: CheckpointStore, failure: TransferFailed) -> TransferFailed:
        """Return the same failure with its cost, after looking whether the fault is in our own copy."""
        own = ""
        if self.file_error is not None:
            own = f"this host's own copy cannot be read: {self.file_error}"
        elif failure.chunk is not None:
            try:
                await trio.to_thread.run_sync(store.verify, self._manifest)
            except (CheckpointDamaged, NotStored) as error:
                own = f"this host's own copy is damaged: {error}"
        return TransferFailed(
            own or failure.reason,
            retryable=failure.retryable and not own,
            bytes_sent=self.sent_bytes,
            chunk=failure.chunk,
            own_fault=bool(own),
        )

    def _handed_over(self, taken: int) -> None:
        """Count bytes that the kernel has taken."""
        self._alive_s = trio.current_time()
        self.sent_bytes += taken
        if self._on_progress is not None:
            self._on_progress(self.sent_bytes, self.wanted_bytes)

    async def _stream(self, chunks: list[int]) -> None:
        """Hand these chunks to the kernel. Where that ends early `_hear` learns why."""
        try:
            if self.key:
                await self._stream_sealed(chunks)
            else:
                await self._stream_plain(chunks)
        except OSError as error:
            if error.errno == errno.EIO:
                self.file_error = error
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)  # the receiver need not wait for more

    async def _stream_plain(self, chunks: list[int]) -> None:
        span = self._manifest.span
        for start, end in runs(chunks):
            offset, stop = span(start)[0], sum(span(end - 1))
            while offset < stop:
                await trio.lowlevel.wait_writable(self._sock)
                most = await self._allowance()
                try:
                    taken = os.sendfile(self._sock.fileno(), self._file, offset, min(stop - offset, most))
                except BlockingIOError:
                    continue
                if taken == 0:  # the file is too short
                    return
                offset += taken
                self._handed_over(taken)

    async def _stream_sealed(self, chunks: list[int]) -> None:
        """Read and seal as many chunks as the socket takes at a time, and hand them over: a trip for each would cost more.

        Chunks are sealed where they were read: a second buffer would take a tenth of the sender's processor time.
        """
        sealer, chunk_bytes = Sealer(self.key), self._manifest.chunk_bytes
        at_a_time = max(1, UNSENT_BYTES // chunk_bytes)
        records = memoryview(bytearray(at_a_time * (chunk_bytes + TAG_BYTES)))
        numbers = [*chunks, END]
        for first in range(0, len(numbers), at_a_time):
            end = 0
            for chunk in numbers[first : first + at_a_time]:
                offset, length = (0, 0) if chunk == END else self._manifest.span(chunk)
                record = records[end : (end := end + length + TAG_BYTES)]
                if os.preadv(self._file, [record[:length]], offset) < length:  # the file is too short
                    return
                sealer.seal(chunk, record)
            sent = 0
            while sent < end:
                await trio.lowlevel.wait_writable(self._sock)
                most = await self._allowance()
                with suppress(BlockingIOError):
                    sent += (taken := self._sock.send(records[sent : min(end, sent + most)]))
                    self._handed_over(taken)


def unacknowledged_bytes(sock: socket.socket) -> int:
    """Return the bytes handed to a TCP socket that the peer's kernel has not acknowledged yet (SIOCOUTQ)."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


async def _connect(address: tuple[str, int], timeout_s: float, network: NetworkNamespace) -> socket.socket:
    try:
        ipaddress.IPv4Address(address[0])
    except ValueError as error:
        raise TransferFailed(f"the address of the receiver: {error}", retryable=False) from error
    try:
        with trio.fail_after(timeout_s):
            sock = await network.connect(address)
    except trio.TooSlowError as error:
        raise TransferFailed(f"{address}: no answer for {timeout_s:g} s", retryable=True) from error
    except OSError as error:
        raise TransferFailed(f"{address}: {error.strerror or error}", retryable=True) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    return sock
