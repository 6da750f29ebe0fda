"""System calls that Python 3.11 does not offer: namespaces, mounts, the parent-death signal, descriptors. OSError passes."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.errors import SetupError

CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 0x1000, 0x4000, 0x40000, 0x80000
PR_SET_PDEATHSIG = 1
SYS_PIDFD_GETFD = 438  # on every architecture
FIRST_NICE = -15  # some thirty times the share of another process
NOTHING_ABOVE = 0x7FFFFFFF  # last descriptor for close_range
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def checked(status: int, what: str) -> int:
    """Return the status of a call, unless it is negative."""
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return status


def setns(fd: int, kind: int = CLONE_NEWNET) -> None:
    """Move the calling thread into the namespace behind `fd`."""
    checked(LIBC.setns(fd, kind), "setns")


def unshare(kind: int) -> None:
    """Give the calling thread a namespace of its own."""
    checked(LIBC.unshare(kind), "unshare")


def mount(
    source: bytes | None, target: bytes, flags: int, kind: bytes | None = None, options: bytes | None = None
) -> None:
    """Mount a folder or a file system at a folder, or change how mounts below `target` spread."""
    checked(LIBC.mount(source, target, kind, flags, options), f"mount {os.fsdecode(target)}")


def map_page(fd: int) -> int:
    """Map the first page behind a descriptor for reading and writing; return its address. Python's mmap keeps a descriptor."""
    address = LIBC.mmap(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        number = ctypes.get_errno()
        raise OSError(number, f"mmap: {os.strerror(number)}")
    return int(address)


def unmap_page(address: int) -> None:
    """Undo `map_page`."""
    checked(LIBC.munmap(ctypes.c_void_p(address), mmap.PAGESIZE), "munmap")


def end_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    If its parent is not `parent` any more, that has happened already: it ends at once.
    """
    checked(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def end_with(pidfd: int, status: int = 1) -> None:
    """End with the parent, given as a pidfd: in a process namespace it has no number. What has ended already ends this one."""
    end_with_parent()
    if select.select([pidfd], [], [], 0)[0]:
        os._exit(status)


def come_first() -> None:
    """Give this process's threads the processor before all others (in real time); what is refused is left as it was.

    A share of it alone has them wait: behind ten other processes 45 ms were seen (Linux 6.18), each had its slice.
    """
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), FIRST_NICE)
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def find_program(name: str) -> str | None:
    """Return the path of a program; where only root's folders have it (cron, `su`), they join PATH for its children."""
    if found := shutil.which(name):
        return found
    wider = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    if found := shutil.which(name, path=wider):
        os.environ["PATH"] = wider
    return found


def children_of(pid: int) -> list[int]:
    """Return the processes that the threads of a process have started and not reaped, as far as it is still there."""
    children: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return children


def remove_folder(folder: str | Path) -> None:
    """Remove a folder as far as that is possible: what a job left there may be nested deeper than Python recurses."""
    subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL, check=False)


def own_mounts() -> None:
    """Give this process and its children mounts of their own, seen by no other, that end with them; what others mount they see.

    A folder is removed with whatever is mounted in it: what a program had mounted there, and left behind, would be lost.
    """
    unshare(CLONE_NEWNS)
    mount(None, b"/", MS_REC | MS_SLAVE)


@contextmanager
def first_child_apart() -> Iterator[bool]:
    """Make the child that is started meanwhile process 1 of a process-ID namespace: when it ends, the kernel ends all in it.

    Yields whether it is: that needs CAP_SYS_ADMIN. Later children are of this process's own namespace again.
    """
    home, me = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC), os.getpid()
    try:
        is_apart = LIBC.unshare(CLONE_NEWPID) == 0
        try:
            yield is_apart
        finally:
            if is_apart and os.getpid() == me:
                setns(home, CLONE_NEWPID)
    finally:
        os.close(home)


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


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor that is not in `keep`."""
    first = 0
    for fd in [*sorted(keep), NOTHING_ABOVE]:
        if fd > first:
            os.closerange(first, fd)
        first = fd + 1


def packet_sockets(pid: int) -> Iterator[socket.socket]:
    """Return packet sockets of another process, as descriptors of this one. OSError: it may not.

    A setting made there is made for both.
    """
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if not str(entry.readlink()).startswith("socket:"):
                    continue
                fd = LIBC.syscall(SYS_PIDFD_GETFD, pidfd, int(entry.name), 0)
                if fd < 0 and ctypes.get_errno() == errno.EBADF:
                    continue
                checked(fd, "pidfd_getfd")
                with socket.socket(fileno=fd) as found:
                    if found.family == socket.AF_PACKET:
                        yield found
    finally:
        os.close(pidfd)


def network_inode(pid: int | str = "thread-self") -> int | None:
    """Return the number of a process's network namespace; None if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    return None
