"""The connection to the coordinator: kept open, opened again, for ever.

A coordinator's process that dies resets its connections, and its successor is found within `MAX_RECONNECT_S`. A machine
that dies sends nothing: then what was sent and not acknowledged for `UNHEARD_MS` ends the connection. One whose kernel
goes on acknowledging (its process stands still, or the connection ends in something between) ends it, too. Heartbeats
are answered, and an idle host sends one in half a lease. So a connection is broken if nothing comes for `SILENT_S`
longer than that. Jobs run on meanwhile, for as long as their lease does (`testbed.agent.core.lease`).

Where there are two coordinators there is a connection to each, and only the one that leads gets a Hello. The other is
parked, so that a take-over needs no handshakes. There is no hurry about it while the other leads: 500 hosts would make
their handshakes at once.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from math import inf

import trio

from testbed import messages as m
from testbed.agent.core import events as ev
from testbed.agent.core.lease import IDLE_SHARE
from testbed.agent.io.kernel_maps import KernelMaps
from testbed.errors import ProtocolError
from testbed.logs import logger
from testbed.namespaces import OWN_NETWORK, NetworkNamespace
from testbed.trust.channel import PartyRole, beneath, opened
from testbed.trust.joining import Renewal
from testbed.wire import Channel, Codec, MessageStream

# between two attempts: doubled each time that none answers
RECONNECT_S, MAX_RECONNECT_S = 0.2, 1.0
CONNECT_S = 3.0  # an attempt that was not answered
UNHEARD_MS = 10_000  # bytes that were not acknowledged: the other machine is gone
# nothing was received, beyond an idle host's pace: ten heartbeats at their usual one, as long as UNHEARD_MS
SILENT_S = 10.0
# of a coordinator that wants heartbeats seldom, so many of them
SILENT_HEARTBEATS = 4.0
BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)
PARK_WITHIN_S = 5.0
LOG = logger("agent")
OUT: Codec[m.ToCoordinator] = Codec(m.ToCoordinator)
IN: Codec[m.FromCoordinator] = Codec(m.FromCoordinator)
Open = Callable[[], Awaitable[trio.abc.Stream]]


class CoordinatorLink:
    """Connection to the coordinator. Messages sent while there is none are lost, and the next Hello reports the state.

    `open_stream` opens a connection, or raises OSError; by default to `coordinator`, by TCP, from `network`. With a `renewal`
    the conversation on it is by TLS, with a coordinator, under that identity.
    """

    def __init__(
        self,
        coordinator: tuple[str, int],
        kernel: KernelMaps,
        handle: Callable[[ev.Event], None],
        open_stream: Open | None = None,
        network: NetworkNamespace = OWN_NETWORK,
        renewal: Renewal | None = None,
        standby: tuple[str, int] | None = None,
    ) -> None:
        self._kernel, self._handle, self._renewal = kernel, handle, renewal
        addresses = [coordinator] if standby is None else [coordinator, standby]
        self._opens = {address: open_stream or partial(_open_tcp, address, network) for address in addresses}
        self._epoch = 0  # the highest that a coordinator has announced
        self._turn, self._talking = trio.Lock(), trio.CancelScope()
        # when the first attempt at all has ended; when the present conversation has
        self._tried, self._ended = trio.Event(), trio.Event()
        self._outbox: trio.MemorySendChannel[m.ToCoordinator] | None = None

    def say(self, message: m.ToCoordinator) -> None:
        """Put a message on its way, in order."""
        if self._outbox is not None:
            self._outbox.send_nowait(message)

    async def stay_connected(self) -> None:
        """Connect again whenever the connection is lost, for ever; to each coordinator."""
        async with trio.open_nursery() as nursery:
            for address in self._opens:
                nursery.start_soon(self._stay_connected, address)

    async def _stay_connected(self, address: tuple[str, int]) -> None:
        pause_s = RECONNECT_S
        if self._renewal is not None:
            self._renewal.identity.client  # noqa: B018 - OpenSSL reads a key for a millisecond: while the coordinator starts
        if address != next(iter(self._opens)):
            await self._tried.wait()
            await trio.sleep(RECONNECT_S)
        while True:
            if self._outbox is not None:
                with trio.move_on_after(random.uniform(0.0, PARK_WITHIN_S)):
                    await self._ended.wait()
            stream = words = None
            try:
                with trio.fail_after(CONNECT_S):
                    words = stream = await self._opens[address]()
                if self._renewal is not None:
                    with trio.fail_after(SILENT_S):  # it may have to wait in line, behind hundreds
                        words, _ = await opened(stream, self._renewal.identity, PartyRole.COORDINATOR)
            except (OSError, trio.TooSlowError, trio.BrokenResourceError, ProtocolError) as error:
                LOG.info("no coordinator at %s: %s", address, error or "no answer")
                if stream is not None:
                    await trio.aclose_forcefully(stream)
                words = None
            self._tried.set()
            if words is not None:
                await self._talk(words)
                pause_s = RECONNECT_S
            await trio.sleep(pause_s)
            pause_s = min(2.0 * pause_s, MAX_RECONNECT_S)

    async def _talk(self, stream: trio.abc.Stream) -> None:
        """Serve a connection from its first message to its last."""
        arriving: Channel[m.FromCoordinator] = Channel(stream, IN)
        try:
            with self._kernel.as_metadata(beneath(stream)), suppress(*BROKEN, ProtocolError):
                if len(self._opens) == 1 or await self._is_led(arriving):
                    self._talking.cancel()
                    async with self._turn:
                        await self._converse(stream, arriving)
        finally:
            await trio.aclose_forcefully(beneath(stream))

    async def _is_led(self, arriving: Channel[m.FromCoordinator]) -> bool:
        """Return, when the coordinator there leads, whether it has led last."""
        message = await arriving.receive()
        return isinstance(message, m.Leads) and self._is_latest(message.epoch)

    def _is_latest(self, epoch: int) -> bool:
        if epoch < self._epoch:
            LOG.warning("a coordinator of epoch %d is refused: another leads since %d", epoch, self._epoch)
        self._epoch = max(epoch, self._epoch)
        return epoch == self._epoch

    async def _converse(self, stream: trio.abc.Stream, arriving: Channel[m.FromCoordinator]) -> None:
        """Send what there is, and pass on what arrives, until the connection ends or another coordinator leads."""
        self._outbox, unsent = trio.open_memory_channel[m.ToCoordinator](inf)
        silent_s, self._ended = SILENT_S, trio.Event()
        self._handle(ev.Connected())
        try:
            with trio.CancelScope() as self._talking:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(Channel(stream, OUT).send_each, unsent)
                    message: m.FromCoordinator | None = None
                    while True:
                        with trio.move_on_after(silent_s) as patience:
                            message = await arriving.receive()
                        if patience.cancelled_caught:
                            LOG.warning("the coordinator has sent nothing for %g s", silent_s)
                        if patience.cancelled_caught or message is None:
                            break
                        if isinstance(message, m.Issued | m.Trust):
                            if self._renewal is not None:
                                self._renewal.take(message)
                            continue
                        if isinstance(message, m.Refused):
                            LOG.error("the coordinator refuses this agent: %s", message.reason)
                        elif isinstance(message, m.Welcome):
                            if not self._is_latest(message.epoch):
                                break
                            silent_s = max(SILENT_S, SILENT_HEARTBEATS * message.heartbeat_s)
                            silent_s += IDLE_SHARE * message.lease_s
                        self._handle(ev.Received(message))
                    nursery.cancel_scope.cancel()
        except* BROKEN as group:
            LOG.info("connection to the coordinator lost: %s", group.exceptions[0])
        except* ProtocolError as group:
            LOG.warning("the coordinator broke the protocol: %s", group.exceptions[0])
        finally:
            self._outbox = None
            self._ended.set()
        self._handle(ev.Disconnected())


async def _open_tcp(address: tuple[str, int], network: NetworkNamespace) -> MessageStream:
    """Return a connection that does not wait to fill packets, and ends when its bytes are not acknowledged for UNHEARD_MS.

    A parked one has no bytes: it is probed as often.
    """
    sock = await network.connect(address)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for pause in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        sock.setsockopt(socket.IPPROTO_TCP, pause, UNHEARD_MS // 1000)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MS)
    return MessageStream(sock)
