"""The few system calls that Python 3.11 does not offer: namespaces, parent-death signal, descriptors."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import SetupError
from testbed.namespaces import CLONE_NEWNET, setns

PR_SET_PDEATHSIG = 1
NOTHING_ABOVE = 0x7FFFFFFF  # last descriptor for close_range
SYS_PIDFD_GETFD = 438  # on every architecture

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare_network() -> None:
    """Give the calling thread a network namespace of its own; OSError with the kernel's reason."""
    _checked(_libc.unshare(CLONE_NEWNET), "unshare(CLONE_NEWNET)")


def enter_network_of(pid: int) -> None:
    """Move the calling thread into the network namespace of process `pid`. SetupError: the process is gone."""
    try:
        fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise SetupError(
            f"process {pid}, which held a network namespace of the campus, was ended from outside"
        ) from error
    try:
        setns(fd)
    finally:
        os.close(fd)


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when the thread that forked it ends; ends at once if that already happened."""
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os._exit(1)


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor that is not in `keep`."""
    first = 0
    for fd in [*sorted(keep), NOTHING_ABOVE]:
        if fd > first:
            os.closerange(first, fd)
        first = fd + 1


def packet_sockets(pid: int) -> Iterator[socket.socket]:
    """Packet sockets of another process, as descriptors of this one: what is set there is set for both. OSError: it may not."""
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if not str(entry.readlink()).startswith("socket:"):
                    continue
                fd = _libc.syscall(SYS_PIDFD_GETFD, pidfd, int(entry.name), 0)
                if fd < 0 and ctypes.get_errno() == errno.EBADF:
                    continue
                _checked(min(fd, 0), "pidfd_getfd")
                with socket.socket(fileno=fd) as found:
                    if found.family == socket.AF_PACKET:
                        yield found
    finally:
        os.close(pidfd)


def network_inode(pid: int | str = "thread-self") -> int | None:
    """The number of a process's network namespace; None if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    return None
