"""A job's process and its agent: frames over a blocking socket, whose end is the end of the process."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Sequence
from typing import Final, NoReturn

from testbed.workloads.messages import CODEC, Order, Report

EXIT_AGENT_GONE: Final = 71
_RECEIVE_BYTES: Final = 1 << 16


class RunnerLink:
    """Frames over the blocking socket to the agent. The agent gone means the end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._decoder = CODEC.decoder()
        self._sending = threading.Lock()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def send(self, report: Report) -> None:
        """Send a message to the agent; from any thread."""
        try:
            with self._sending:
                self._sock.sendall(CODEC.encode(report))
        except ConnectionError:
            leave(EXIT_AGENT_GONE)

    def wake(self) -> None:
        """End a `receive` that waits, or the next; from any thread."""
        os.eventfd_write(self._bell, 1)

    def receive(self, timeout_s: float | None, also: Sequence[int] = ()) -> Order | Report | None:
        """Return the next order; None if none comes within the time, or before `wake`, or before one of `also` can be read."""
        while (order := self._decoder.next()) is None:
            watched: list[socket.socket | int] = [self._sock, self._bell, *also]
            heard = select.select(watched, [], [], timeout_s)[0]
            if self._bell in heard:
                os.eventfd_read(self._bell)
            if self._sock not in heard:
                return None
            try:
                data = self._sock.recv(_RECEIVE_BYTES)
            except ConnectionError:
                leave(EXIT_AGENT_GONE)
            self._decoder.feed(data or leave(EXIT_AGENT_GONE))
        return order


def leave(status: int) -> NoReturn:
    """End the process here and now, without any clean-up."""
    os._exit(status)
