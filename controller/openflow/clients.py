"""Clients of a running controller: lines of JSON on a UNIX socket (`topologies.openflow`), root's alone.

A client that sends what cannot be read, or more than LONGEST at once, or no longer receives, loses its connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from testbed.logs import logger
from topologies.decoding import UNDECODABLE
from topologies.openflow import FromController, ToController

log = logger("reclaimnet.openflow")

LONGEST = 1 << 20  # of a line: thousands of ways
MOST_CLIENTS = 32
SEND_WITHIN_S = 1.0  # a client that does not read for so long is gone


class Client:
    """A client's connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def tell(self, message: FromController) -> None:
        """Send this, if the client still listens."""
        with contextlib.suppress(OSError):
            self._connection.sendall(msgspec.json.encode(message) + b"\n")


class Clients:
    """A listener for clients; each client's thread calls its callback with (client, message), None after the connection's end."""

    def __init__(self, path: Path, hear: Callable[[Client, ToController | None], None]) -> None:
        self._hear, self._slots = hear, threading.BoundedSemaphore(MOST_CLIENTS)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen(MOST_CLIENTS)
        threading.Thread(target=self._accept, name="clients", daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._slots.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        client = Client(connection)
        decoder = msgspec.json.Decoder(ToController)
        # sends give up after a while; reading waits for ever
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, int(SEND_WITHIN_S).to_bytes(8, "little") + bytes(8)
        )
        try:
            with connection, connection.makefile("rb") as lines:
                while (line := lines.readline(LONGEST)) and line.endswith(b"\n"):
                    self._hear(client, decoder.decode(line))
        except (OSError, *UNDECODABLE) as error:
            log.warning("a client loses its connection: %s", error)
        finally:
            self._slots.release()
            self._hear(client, None)
