"""Ends of processes and their mounts that follow another's end: its starting thread's, or a namespace's first process's."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CLONE_NEWPID: Final = 0x20000000
_CLONE_NEWNS: Final = 0x20000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends. OSError."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def own_mounts() -> None:
    """Give this process and its children mounts of their own, seen by no other, that end with them; what others mount they see.

    A folder is removed with whatever is mounted in it: what a program had mounted there, and left behind, would be lost. OSError:
    this process may not, nor may it mount anything.
    """
    if _LIBC.unshare(_CLONE_NEWNS) != 0 or _LIBC.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None) != 0:
        raise OSError(ctypes.get_errno(), "a mount namespace")


@contextmanager
def first_child_apart() -> Iterator[bool]:
    """The child that is started meanwhile is process 1 of a process-ID namespace: when it ends, the kernel ends all in it.

    Whether it is: that needs CAP_SYS_ADMIN. Later children are of this process's own namespace again.
    """
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        is_apart = _LIBC.unshare(_CLONE_NEWPID) == 0
        try:
            yield is_apart
        finally:
            if is_apart:
                _LIBC.setns(home, _CLONE_NEWPID)
    finally:
        os.close(home)
