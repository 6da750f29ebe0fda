"""The prober: after each use of a kill-switch, new connections to the host are tried from another one."""

from __future__ import annotations

import errno
import json
import select
import socket
import time

TRY_FOR_S = 0.5
TRY_EVERY_S = 0.02
PATIENCE_S = 0.25  # how long the last tries may take to be answered


def serve(commands: socket.socket) -> None:
    """Run the prober's process: an (address, port) a line in, a count of tries a line out."""
    with commands, commands.makefile("rw") as lines:
        for line in lines:
            address, port = json.loads(line)
            lines.write(json.dumps(knock(address, port)) + "\n")
            lines.flush()


def knock(address: str, port: int) -> tuple[int, int]:
    """Try to connect again and again for TRY_FOR_S; nothing is sent. (connections tried, those that were established)."""
    pending: dict[int, socket.socket] = {}
    tried = 0
    end_s = time.monotonic() + TRY_FOR_S
    try:
        while time.monotonic() < end_s:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setblocking(False)
            pending[sock.fileno()] = sock
            tried += 1
            if sock.connect_ex((address, port)) not in (0, errno.EINPROGRESS):
                pending.pop(sock.fileno()).close()
            time.sleep(TRY_EVERY_S)
        poller = select.poll()
        for fd in pending:
            poller.register(fd, select.POLLOUT)
        time.sleep(PATIENCE_S)
        ready = [fd for fd, _ in poller.poll(0)]
        return tried, sum(pending[fd].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 for fd in ready)
    finally:
        for sock in pending.values():
            sock.close()
