"""The coordinator's connection to the controller of a programmed network.

Ways and loads go out; ways in force and trunks to be drained come in. A network whose controller is dead is tried again
and again. Each message holds the whole state, so nothing is lost with a connection.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import trio

from controller.core.model import effects as do
from controller.core.model import events as ev
from topologies.decoding import UNDECODABLE
from topologies.openflow import FromController, ToController, ToDrain, TrunkLoads, WantedWays, WayPin, WaysInForce

AGAIN_S = 0.1  # between two tries to reach it
LONGEST = 1 << 20  # of a line
_DECODER = msgspec.json.Decoder(FromController)


class NetworkLink:
    """A connection to the network's controller."""

    def __init__(self, socket: Path, handle: Callable[[ev.Event], None], is_trunk: Callable[[str, str], bool]) -> None:
        self._socket, self._handle, self._is_trunk = socket, handle, is_trunk
        self._wanted: WantedWays | None = None
        self._loads: TrunkLoads | None = None
        self._news = trio.Event()

    def want(self, ways: do.SetWays) -> None:
        """Send ways to the controller, now or when it is there."""
        pins = tuple(WayPin(way.number, tuple(way.nodes)) for way in ways.ways)
        self._wanted = WantedWays(ways.number, pins, tuple(ways.draining))
        self._news.set()

    def weigh(self, loads: do.SetLoads) -> None:
        """Send loads to the controller, now or when it is there."""
        self._loads = TrunkLoads(tuple(loads.loads))
        self._news.set()

    async def serve(self) -> None:
        """Keep the connection until cancelled."""
        while True:
            stream = None
            with suppress(OSError):
                stream = await trio.open_unix_socket(self._socket)
            if stream is not None:
                await self._serve(stream)
            await trio.sleep(AGAIN_S)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            async with stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._send, stream)
                await self._receive(stream)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, *UNDECODABLE):
            pass  # it has died, or is no such controller

    async def _send(self, stream: trio.SocketStream) -> None:
        said: list[ToController | None] = [None, None]
        while True:
            self._news = trio.Event()
            for number, message in enumerate((self._wanted, self._loads)):
                if message is not said[number] and message is not None:
                    said[number] = message
                    await stream.send_all(msgspec.json.encode(message) + b"\n")
            await self._news.wait()

    async def _receive(self, stream: trio.SocketStream) -> None:
        """Handle messages until the connection is closed, or one cannot be read."""
        unread = b""
        while got := await stream.receive_some():
            *lines, unread = (unread + got).split(b"\n")
            if len(unread) > LONGEST:
                return
            for line in lines:
                match _DECODER.decode(line):
                    case WaysInForce(number):
                        if self._wanted is not None and number <= self._wanted.number:
                            self._handle(ev.WaysSet(number))
                    case ToDrain(trunks):
                        self._handle(ev.DrainAsked([ends for ends in trunks if self._is_trunk(*ends)]))
