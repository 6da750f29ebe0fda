"""The receiving side: a connection is a conversation of its own, and its errors close that connection alone.

The bytes themselves are taken by a worker thread (`intake.py`). Everything that can end a conversation badly becomes
one TransferFailed, sent to the host as an event and to the peer as a Rejected.

A second transfer of a checkpoint that is already arriving supersedes the first: most often the first one's sender has
lost its connection and this side has not noticed yet. The successor resumes what the first one verified. So does a
transfer of another checkpoint of the job from the same host. A host sends one at a time, so it has given up the one
before. (The snapshot at a notice's beginning is given up for the final one.) What arrived of the one before is most of
this one.

What one peer can take of this host is bounded (`intake.Limits`). A connection has no thread, no file and no room on the
disk before its Hello was accepted; until then its peer stands in the `door`. There is a thread for every connection that may be.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final, TypeVar

import trio
from outcome import Outcome, capture

from testbed.checkpoints import CheckpointDamaged, CheckpointError, CheckpointStore, ChunkMismatch, Manifest, NotStored
from testbed.errors import RemoteProtocolError
from testbed.framing import Codec
from testbed.logs import logger
from testbed.peers import Allotment
from testbed.transfer.intake import LIMITS, Intake, Limits
from testbed.transfer.messages import (
    ANSWER,
    HELLO,
    NOT_UNDERSTOOD,
    Busy,
    Contents,
    Describe,
    Hello,
    Message,
    Rejected,
    Stored,
    TransferFailed,
    Want,
    bitmap_of,
)
from testbed.transfer.send import IDLE_TIMEOUT_S
from testbed.trust.door import HANDSHAKE_S, Door, address_in, source_of
from testbed.trust.sealing import KEY_BYTES, Opener
from testbed.wire import Channel

# How far a sender may be ahead of this host's reading. TCP's own choice follows rate and round trip (64 KiB here), and a paced
# flow never makes up for the time in which that was full. On a busy machine that is a tenth of a second: of 24 transfers of 10 MB
# at 13 MB/s the worst got .94 of its grant, with this .99.
AHEAD_BYTES: Final = 4 << 20
SO_RCVBUFFORCE: Final = 33  # also above net.core.rmem_max, for root
LINGER_S: Final = 2.0  # how long a refused sender may take to read the refusal
# of what a refused sender sends all the same, read at a time to be thrown away: little, since there may be many
DRAINED_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ReceiveCompleted:
    """A checkpoint verified, on disk, visible, as the sender is about to be informed; also if it was offered once more."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class ReceiveFailed:
    """A connection that ended without completing; `checkpoint` is None if the peer never sent a good hello."""

    checkpoint: str | None  # "JOB:SEQUENCE"
    peer: str
    reason: str
    retryable: bool


ReceiveEvent = ReceiveCompleted | ReceiveFailed

Accept = Callable[[Hello, str], Awaitable[None]]
Around = Callable[[trio.SocketStream], AbstractContextManager[object]]
OnEvent = Callable[[ReceiveEvent], Awaitable[None]]
LOG = logger("transfer")
T = TypeVar("T")


async def take_any(hello: Hello, sender: str) -> None:
    """Accept whatever is offered."""


@dataclass(slots=True, eq=False)
class _Arrival:
    """A transfer in progress, so that a later one can supersede it."""

    sender: str  # host of the peer
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)


@dataclass(eq=False, kw_only=True)
class CheckpointServer:
    """The reception of checkpoints into `store`: `trio.serve_listeners(CheckpointServer(...).serve, listeners)`.

    `door` lets peers in; without certificates a peer is known by its address. `accept(hello, sender)` raises TransferFailed
    to refuse what that peer offers. `around` makes a context that holds from an accepted hello to the end of its connection,
    for example to mark acknowledgements there. `is_sealed`: chunks come sealed, else as they are. `on_event` receives
    everything. A peer that sends nothing for `idle_s` is given up; what it sent is kept for the next attempt.
    """

    store: CheckpointStore
    on_event: OnEvent
    door: Door = field(default_factory=Door)
    accept: Accept = take_any
    around: Around = contextlib.nullcontext
    is_sealed: bool = False
    idle_s: float = IDLE_TIMEOUT_S
    limits: Limits = LIMITS
    arrivals: dict[tuple[str, int], _Arrival] = field(default_factory=dict)
    # connections are counted
    threads: trio.CapacityLimiter = field(default_factory=partial(trio.CapacityLimiter, inf))

    def __post_init__(self) -> None:
        limits = self.limits
        self.connections = Allotment(limits.connections_of_peer, limits.connections)
        self.manifests = Allotment(limits.manifest_bytes_of_peer, limits.manifest_bytes)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve a connection; never raise for what the peer or the disk does."""
        peer = "unknown"
        async with stream, AsyncExitStack() as entering:
            try:
                peer = source_of(stream)
                entered = await entering.enter_async_context(self.door.entering(stream, peer))
            except (RemoteProtocolError, trio.BrokenResourceError) as error:
                await self.on_event(ReceiveFailed(None, peer, str(error), retryable=True))
                return
            conversation = _Conversation(self, stream, *entered, peer)
            try:
                await conversation.run(entering)
            except TransferFailed as failure:
                await conversation.refuse(failure)

    @asynccontextmanager
    async def arriving(self, hello: Hello, sender: str) -> AsyncIterator[None]:
        """Provide the only reception of this checkpoint, after ending an earlier one. TransferFailed when superseded."""
        key = hello.job, hello.sequence
        while True:
            # of the same checkpoint, or of another one of the job that the same host was sending
            earlier = self.arrivals.get(key) or next(
                (
                    arrival
                    for (job, _), arrival in self.arrivals.items()
                    if job == hello.job and arrival.sender == sender
                ),
                None,
            )
            if earlier is None:
                break
            earlier.scope.cancel()
            await earlier.ended.wait()
        arrival = self.arrivals[key] = _Arrival(sender)
        try:
            with arrival.scope:
                yield
        finally:
            del self.arrivals[key]
            arrival.ended.set()
        if arrival.scope.cancelled_caught:
            raise TransferFailed("superseded by another transfer", retryable=False)


class _Conversation:
    """A connection with a peer, from its hello to the verdict."""

    def __init__(
        self, server: CheckpointServer, stream: trio.SocketStream, words: trio.abc.Stream, sender: str, peer: str
    ) -> None:
        # messages go by `words`; chunks come beneath it, by `stream`
        self._server, self._stream, self._words, self._peer = server, stream, words, peer
        self._sender = sender or address_in(peer)
        self._out: Channel[Message] = Channel(words, ANSWER)
        self._hello: Hello | None = None

    async def run(self, entering: AsyncExitStack) -> None:
        """Raise TransferFailed, which holds whether trying again makes sense, for whatever the peer or the disk does wrong."""
        server = self._server
        try:
            hello = await self._hear(HELLO, min(HANDSHAKE_S, server.idle_s), "no hello")
            if not isinstance(hello, Hello):
                raise TransferFailed(f"a transfer begins with a hello, not with {hello!r}", retryable=False)
            self._hello = hello
            await server.accept(hello, self._sender)
            await entering.aclose()
            with server.connections.take(self._sender) as granted, server.around(self._stream):
                if not granted:
                    raise TransferFailed("too many connections", retryable=True)
                if await self._repeated(hello):
                    return
                with server.manifests.take(self._sender, hello.contents_bytes) as granted:
                    if not granted:
                        raise TransferFailed("too many manifests are being read", retryable=True)
                    await self._say(Describe())
                    codec: Codec[Message] = Codec(Message, hello.contents_bytes)
                    within_s = server.idle_s + hello.contents_bytes / server.limits.least_rate_bytes_per_s
                    contents = await self._hear(codec, within_s, "no manifest")
                if not isinstance(contents, Contents):
                    raise TransferFailed(f"a manifest was asked for, not {contents!r}", retryable=False)
                manifest = contents.manifest
                manifest.validate()
                if len(contents.key) != (KEY_BYTES if server.is_sealed else 0):
                    here = "sealed" if server.is_sealed else "not sealed"
                    raise TransferFailed(f"this host takes chunks {here}", retryable=False)
                if Hello.of(manifest, hello.ticket) != hello:
                    raise TransferFailed("the manifest is not the one of the hello", retryable=False)
                async with server.arriving(hello, self._sender):
                    if not await self._repeated(hello):  # another connection may have completed it
                        await self._receive(manifest, Opener(contents.key) if contents.key else None)
        except ChunkMismatch as error:
            raise TransferFailed(str(error), retryable=True, chunk=error.chunk) from error
        except CheckpointError as error:
            raise TransferFailed(str(error), retryable=False) from error
        except RemoteProtocolError as error:
            raise TransferFailed(f"{NOT_UNDERSTOOD}: {error}", retryable=False) from error
        except trio.BrokenResourceError as error:
            raise TransferFailed(f"the connection broke: {error.__cause__ or error}", retryable=True) from error
        except OSError as error:
            raise TransferFailed(f"the receiver's disk: {error}", retryable=False) from error

    async def refuse(self, failure: TransferFailed) -> None:
        """Report to the host and, if possible, to the peer. A reset must not overtake the message: the peer closes first."""
        what = f"{self._hello.job}:{self._hello.sequence}" if self._hello else None
        await self._server.on_event(ReceiveFailed(what, self._peer, failure.reason, failure.retryable))
        with trio.move_on_after(LINGER_S):
            try:
                await self._out.send(Rejected(failure.reason, failure.retryable, failure.chunk))
                await self._stream.send_eof()
                while await self._stream.receive_some(DRAINED_BYTES):
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def _hear(self, codec: Codec[Message], within_s: float, lack: str) -> Message | None:
        """Receive a message, and nothing behind it."""
        channel: Channel[Message] = Channel(self._words, codec)
        with trio.move_on_after(within_s):
            message = await channel.receive()
            channel.require_silence()
            return message
        raise TransferFailed(f"{lack} within {within_s:g} s", retryable=True)

    async def _say(self, message: Message) -> None:
        with trio.move_on_after(self._server.idle_s):
            await self._out.send(message)
            return
        raise TransferFailed(f"the sender read nothing for {self._server.idle_s:g} s", retryable=True)

    async def _repeated(self, hello: Hello) -> bool:
        """Return True and notify the peer if the checkpoint is already completed here.

        Its bytes are read once more: it may be offered because a job could not start from them. A copy that went bad on
        the disk is dropped, to be received again.
        """
        store = self._server.store
        if not store.has(hello.job, hello.sequence, hello.digest):
            return False
        try:
            manifest = store.get(hello.job, hello.sequence)
            await self._in_thread(lambda: store.verify(manifest))
        except NotStored:  # dropped meanwhile
            return False
        except (CheckpointDamaged, FileNotFoundError) as error:
            LOG.warning("dropped, to be received anew: %s", error)
            with contextlib.suppress(NotStored):
                await self._in_thread(lambda: store.drop(hello.job, hello.sequence, keep_file=True))
            return False
        await self._completed(manifest)
        return True

    async def _completed(self, manifest: Manifest) -> None:
        """Report it to the host, then to the sender."""
        await self._server.on_event(ReceiveCompleted(manifest))
        await self._say(Stored(manifest.digest))

    async def _receive(self, manifest: Manifest, opener: Opener | None) -> None:
        """Ask for what is missing, take it in a thread, and complete the checkpoint."""
        server, sock = self._server, self._stream.socket
        try:
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, AHEAD_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, AHEAD_BYTES)
        reception = await self._in_thread(lambda: server.store.begin(manifest))

        async def stop_when_cancelled(stop: int) -> None:
            try:
                await trio.sleep_forever()
            finally:
                os.eventfd_write(stop, 1)

        try:
            missing = reception.missing
            await self._say(Want(bitmap_of(missing, len(manifest.chunks))))
            # on cancellation the thread is ordered to stop, and waited for
            stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            intake = Intake(sock, stop, reception, server.idle_s, server.limits, opener)
            try:
                taken = await self._in_thread_beside(partial(stop_when_cancelled, stop), lambda: intake.take(missing))
            finally:
                os.close(stop)
            taken.unwrap()
            with trio.CancelScope(shield=True):  # it is reported if it is there
                await self._in_thread(reception.commit)
                await self._completed(manifest)
        finally:
            await self._in_thread(reception.abandon)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do disk work in a thread that is not cancelled; meanwhile the peer receives keep-alives."""
        idle_s = self._server.idle_s

        async def say_busy() -> None:
            while True:
                await trio.sleep(idle_s / 4)
                try:
                    with trio.move_on_after(idle_s, shield=True):  # never half a frame
                        await self._out.send(Busy())
                except trio.BrokenResourceError:
                    return

        with trio.CancelScope(shield=True):
            result = await self._in_thread_beside(say_busy, work)
        return result.unwrap()

    async def _in_thread_beside(self, task: Callable[[], Awaitable[None]], work: Callable[[], T]) -> Outcome[T]:
        """Do work in a thread, and a task beside it until that is done; return what it gave or raised."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
            result = await trio.to_thread.run_sync(capture, work, limiter=self._server.threads)
            nursery.cancel_scope.cancel()
        return result
