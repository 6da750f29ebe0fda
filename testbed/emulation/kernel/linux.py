"""The few system calls that Python 3.11 does not offer: namespaces, parent-death signal, and a process's identity.

A process is identified by its pid *and* the kernel's start time of it: pids are reused (32768 of them here), the pair is not
within one boot.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

from testbed.errors import SetupError
from testbed.namespaces import CLONE_NEWNET, setns

PR_SET_PDEATHSIG = 1
NOTHING_ABOVE = 0x7FFFFFFF  # last descriptor for close_range

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


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot (field 22 of proc(5) stat); None if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def is_alive(pid: int, started: int) -> bool:
    """Whether the very process that started then still runs."""
    return start_time(pid) == started


def network_inode(pid: int | str = "thread-self") -> int | None:
    """The number of a process's network namespace; None if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    return None


def pids() -> list[int]:
    """Every process there is now."""
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def kill_exactly(pid: int, started: int, signum: int = signal.SIGKILL) -> bool:
    """Signal the process only if it is still the one that started then; True if it was signalled.

    The pidfd is opened before the start time is read, so that the pid cannot be reused in between.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(fd, signum)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
