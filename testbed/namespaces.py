"""Network namespaces as a process that serves several hosts sees them: sockets are opened in one, and stay there.

A namespace belongs to a thread, a socket to the namespace in which it was made. So a thread can enter a host's network, open a
socket, and leave again; the socket goes on in the host's network, whatever the thread does.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import trio

from testbed.linux import setns

# above the services of most machines, and this project's own ports
RESERVED_PORTS: Final = range(730, socket.IPPORT_RESERVED)
PORT_TRIES: Final = 8
# of a port: to bind it, to connect from it to where it was connected a moment ago, and to have it without being root
TAKEN: Final = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)


class NetworkNamespace:
    """Namespace of a host's sockets. `fd` is its descriptor; None: the process's own namespace."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = fd

    @classmethod
    def of_process(cls, pid: int) -> NetworkNamespace:
        """Return the namespace in which a process is; OSError if it is gone."""
        return cls(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put the calling thread into it meanwhile. Nothing may be awaited: other tasks of the thread would be in it too."""
        if self.fd is None:
            yield
            return
        home_fd = _home_fd(os.getpid())
        setns(self.fd)
        try:
            yield
        finally:
            setns(home_fd)

    async def connect(self, address: tuple[str, int]) -> socket.socket:
        """Return a socket connected to `address`, from one of root's ports if this process may have one (`testbed.trust.door`).

        OSError: it cannot be reached.
        """
        ports = random.sample(RESERVED_PORTS, PORT_TRIES)
        for port in [*ports, 0]:
            sock = self.socket()
            try:
                # an earlier connection may hold the port for a minute
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("", port))
                await trio.socket.from_stdlib_socket(sock).connect(address)
            except BaseException as error:
                sock.close()
                if not (port and isinstance(error, OSError) and error.errno in TAKEN):
                    raise
            else:
                break
        return sock

    def socket(self) -> socket.socket:
        """Return a new non-blocking TCP socket in it."""
        with self.entered():
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


OWN_NETWORK = NetworkNamespace()


@cache
def _home_fd(_pid: int) -> int:
    """Return the namespace in which this process began."""
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
