"""Snapshots of the coordinator's core as bytes, so that a restart need not begin with the first event of a long journal.

A snapshot is a shortcut and never the record. It names the event after which it was taken, and only the very program
that took it uses it (a digest over its modules). The events after it are decided again and compared as always. Without
one, or with one of another program, a restart is as right, and slower. It is a pickle, so it is read only from a file
of one's own.

Taking one takes some 10 ms with 12 hosts, 27 with 52 and 100 with 500, and nobody would be answered meanwhile: a fork of the
coordinator takes it. A restart costs a few milliseconds, and the decisions since.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from bpf.caches import fingerprint
from controller.core.coordinator import Coordinator
from testbed.linux import close_all_but, end_with_parent

# what decisions are made of
DECIDING = ("controller/core", "controller/numerics", "testbed/bounds.py", "testbed/messages.py", "topologies")
NICE = 10  # of the fork: whoever waits for an answer is served before it
HANGS_AFTER_S = 60  # it ends without bytes
UNREADABLE = (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, ValueError)


def freeze(core: Coordinator) -> bytes | None:
    """Return the whole core as bytes; None while it has none.

    Its controller may be in the middle of a search, which is over after a few events. Or a user's policy has a function
    that no module names (a closure, a lambda): then a restart decides all again. The key of transfers' numbers is left out.
    """
    secret, core.cluster.secret = core.cluster.secret, b""
    try:
        return pickle.dumps(core, pickle.HIGHEST_PROTOCOL)
    except (TypeError, AttributeError, pickle.PicklingError):
        return None
    finally:
        core.cluster.secret = secret


class Freezing:
    """A fork of this process that freezes a core as it is now, at low priority, and ends with this process."""

    def __init__(self, core: Coordinator) -> None:
        self._file, self._pid, parent = os.memfd_create("snapshot"), -1, os.getpid()
        with suppress(OSError):  # there is no room for another process, and there will be no bytes
            self._pid = os.fork()
        if self._pid == 0:
            status = 1
            with suppress(BaseException):
                gc.disable()  # what is garbage here may be open there
                close_all_but({self._file})  # what this process closes meanwhile is closed
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(HANGS_AFTER_S)
                end_with_parent(parent)
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, 0, NICE)
                with open(self._file, "wb", closefd=False) as file:
                    file.write(freeze(core) or b"")
                status = 0
            os._exit(status)

    def body(self) -> bytes | None:
        """Return the core as bytes, empty if it has none, and close what was open for it; None: not yet."""
        pid, status = (-1, -1) if self._pid < 0 else os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return None
        body = b"" if status else os.pread(self._file, os.fstat(self._file).st_size, 0)
        os.close(self._file)
        return body


def thaw(by: str, body: bytes, journal: Path) -> Coordinator | None:
    """Return the core; None if another program took it, another user may have written the file, or it cannot be read."""
    if by != program() or journal.stat().st_uid != os.geteuid():
        return None
    try:
        core = pickle.loads(body)  # of this program, and this user's file
    except UNREADABLE:
        return None
    return core if isinstance(core, Coordinator) else None


@cache
def program() -> str:
    """Return a digest of all that decisions are made of: modules, interpreter, and the libraries that compute."""
    parts = [Path(__file__).parents[2] / part for part in DECIDING]
    files = (path for part in parts for path in (sorted(part.rglob("*.py")) or [part]))
    libraries = (f"{name} {getattr(sys.modules.get(name), '__version__', '')}" for name in ("numpy", "msgspec"))
    return fingerprint(files, sys.version, *libraries)
