"""The connection to the coordinator: kept open, opened again."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from math import inf

import trio

from testbed import messages as m
from testbed.agent import events as ev
from testbed.agent.edge import Edge
from testbed.errors import ProtocolError
from testbed.wire import Channel, Codec

RECONNECT_S = 0.2
LOG = logging.getLogger("agent")
OUT: Codec[m.FromAgent] = Codec(m.FromAgent)
IN: Codec[m.ToAgent] = Codec(m.ToAgent)


class Uplink:
    """Says what it is told while there is a connection; what is said meanwhile is lost (the next Hello says it all)."""

    def __init__(self, coordinator: tuple[str, int], edge: Edge, handle: Callable[[ev.Event], None]) -> None:
        self._coordinator, self._edge, self._handle = coordinator, edge, handle
        self._outbox: trio.MemorySendChannel[m.FromAgent] | None = None

    def say(self, message: m.FromAgent) -> None:
        """Puts a message on its way, in order."""
        if self._outbox is not None:
            self._outbox.send_nowait(message)

    async def stay_connected(self) -> None:
        """Connects again whenever the connection is lost, for ever."""
        while True:
            try:
                stream = await trio.open_tcp_stream(*self._coordinator)
            except OSError as error:
                LOG.info("no coordinator at %s: %s", self._coordinator, error)
            else:
                await self._talk(stream)
            await trio.sleep(RECONNECT_S)

    async def _talk(self, stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outbox, unsent = trio.open_memory_channel[m.FromAgent](inf)
        self._handle(ev.Connected())
        try:
            with self._edge.as_metadata(stream):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_send_all, unsent, Channel(stream, OUT))
                    await self._listen(Channel(stream, IN))
                    nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as group:
            LOG.info("connection to the coordinator lost: %s", group.exceptions[0])
        except* ProtocolError as group:
            LOG.warning("the coordinator broke the protocol: %s", group.exceptions[0])
        finally:
            self._outbox = None
            await trio.aclose_forcefully(stream)
        self._handle(ev.Disconnected())

    async def _listen(self, channel: Channel[m.ToAgent]) -> None:
        while (message := await channel.receive()) is not None:
            if isinstance(message, m.Refused):
                LOG.error("the coordinator refuses this agent: %s", message.reason)
            self._handle(ev.Received(message))


async def _send_all(unsent: trio.MemoryReceiveChannel[m.FromAgent], channel: Channel[m.FromAgent]) -> None:
    async for message in unsent:
        await channel.send(message)
