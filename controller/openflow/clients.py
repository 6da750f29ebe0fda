"""Clients of a running controller: lines of JSON on a UNIX socket (`topologies.openflow`), root's alone.

A client that sends what cannot be read, or more than LONGEST at once, or no longer receives, loses its connection.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from testbed.logs import logger
from topologies.decoding import UNDECODABLE
from topologies.openflow import FromController, ToController

log = logger("reclaimnet.openflow")

LONGEST = 1 << 20  # of a line: thousands of ways
SEND_WITHIN_S = 1.0  # a client that does not read for so long is gone


class Client:
    """A client's connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def tell(self, message: FromController) -> None:
        """Send this, if the client still listens."""
        with contextlib.suppress(OSError):
            self._connection.sendall(msgspec.json.encode(message) + b"\n")


class Clients(socketserver.ThreadingUnixStreamServer):
    """A listener for clients; each client's thread calls `take` with (client, message), None after the connection's end."""

    daemon_threads = True

    def __init__(self, path: Path, take: Callable[[Client, ToController | None], None]) -> None:
        self.take = take
        path.unlink(missing_ok=True)
        super().__init__(str(path), _Connection)
        path.chmod(0o600)
        threading.Thread(target=self.serve_forever, name="clients", daemon=True).start()


class _Connection(socketserver.StreamRequestHandler):
    server: Clients

    def handle(self) -> None:
        """Pass on a client's messages until it leaves."""
        client, decoder = Client(self.request), msgspec.json.Decoder(ToController)
        # sends give up after a while; reading waits for ever
        limit = int(SEND_WITHIN_S).to_bytes(8, "little") + bytes(8)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        try:
            while (line := self.rfile.readline(LONGEST)).endswith(b"\n"):
                self.server.take(client, decoder.decode(line))
        except (OSError, *UNDECODABLE) as error:
            log.warning("a client loses its connection: %s", error)
        finally:
            self.server.take(client, None)
