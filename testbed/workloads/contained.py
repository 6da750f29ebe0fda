"""A program inside its job's process namespace, of which the job's process is the first.

When the program has ended, whatever it has left behind is killed, sessions and daemons too: nothing runs while its files are
packed. Where a job has no namespace of its own (a user without CAP_SYS_ADMIN), what the program has left outlives it. Outside of
a sandbox its mounts are its own, too: no checkpoint, and no removal of its folder, meets what it had mounted there.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from testbed.linux import end_with_parent, own_mounts


class Contained:
    """A program that runs. Its output is this process's; `fileno()` is readable when there is something for `poll`."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        """Start it in that folder. OSError: no process can be had."""
        self.status: int | None = None  # once it is over: its exit status, or minus the signal that ended it
        self.failure = ""  # why it could not be executed
        self._is_first = os.getpid() == 1  # of its namespace: all other processes there are the program's
        try:
            started = subprocess.Popen(
                argv, env=dict(environment), cwd=folder, start_new_session=True, preexec_fn=_before_program
            )
        except OSError as error:
            self.status, self.failure = 127, f"{error.filename or argv[0]}: {error.strerror}"
            self._pid, self._pidfd = -1, os.eventfd(1)
            return
        started.returncode = 0  # not Popen waits for it, but this object
        self._pid, self._pidfd = started.pid, os.pidfd_open(started.pid)

    def fileno(self) -> int:
        """Return the descriptor to select."""
        return self._pidfd

    def poll(self) -> bool:
        """Return True if it is over: none of its processes runs any more."""
        return self.status is not None or self._reap(os.WNOHANG)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program (not to what it has started)."""
        if self.status is None:
            os.kill(self._pid, number)

    def catches(self, number: signal.Signals) -> bool:
        """Return True if it has a handler for that signal, which would end it otherwise."""
        with suppress(OSError, ValueError):
            for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return False

    def kill(self) -> None:
        """Send SIGKILL to all of it, and wait until it is gone."""
        if self.status is None:
            os.kill(self._pid, signal.SIGKILL)
            self._reap(0)

    def _reap(self, options: int) -> bool:
        """Reap what has ended, orphans too; once the program has, end what it left."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1 if self._is_first else self._pid, options))[0]:
                if ended[0] == self._pid:
                    self.status = os.waitstatus_to_exitcode(ended[1])
                    os.close(self._pidfd)
                    if not self._is_first:
                        break
                    options = 0
                    with suppress(ProcessLookupError):  # nothing is left
                        os.kill(-1, signal.SIGKILL)
        return self.status is not None


def _before_program() -> None:
    """Die with the job's process, and have mounts of its own where it may have any."""
    end_with_parent()
    with suppress(OSError):
        own_mounts()
