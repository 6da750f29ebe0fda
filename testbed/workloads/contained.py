"""A program in a process-ID namespace of its own: when its first process ends, or its starter does, the kernel ends all of it.

    starter ── init ── program ── whatever it starts, sessions and daemons too

`init`, a fork of the starter, is process 1 of the namespace: it starts the program, reaps what is orphaned, and ends when the
program has ended; then nothing of the namespace runs any more. (The program is not process 1 itself: on that signals without
a handler have no effect.) `/proc` is still the host's. Without the right to make a namespace (CAP_SYS_ADMIN) init is an
ordinary process, and what the program has left behind outlives it. Its mounts are its own, too: they are gone when it has ended,
so neither a checkpoint nor the removal of its folder meets what it had mounted there.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from testbed.linux import end_with_parent, first_child_apart, own_mounts

_CREDENTIALS: Final = struct.Struct("3i")  # of the sender, its process id in the namespace of the receiver
_MESSAGE_BYTES: Final = 4096
# what comes from inside: the program's process is there; it could not be executed, and why; it has ended, and its status
_HERE, _FAILED, _ENDED = b"h", b"f", b"e"


class Contained:
    """A program that runs. Its output is this process's; `fileno()` is readable when there is something for `poll`."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        """Start it in that folder. OSError: no process can be had."""
        self.status: int | None = None  # once it is over: its exit status, or minus the signal that ended it
        self.failure = ""  # why it could not be executed
        self._pid, self._pidfd = -1, -1
        self._inside, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._inside.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with theirs, first_child_apart():
            self._init = os.fork()
            if self._init == 0:
                _become_init(theirs, argv, environment, folder)
        self._hear(wait=True)

    def fileno(self) -> int:
        """Return the descriptor to select."""
        return self._inside.fileno()

    def poll(self) -> bool:
        """Return True if it is over: none of its processes runs any more."""
        while self.status is None and self._hear(wait=False):
            pass
        return self.status is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program (not to what it has started)."""
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

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
            os.kill(self._init, signal.SIGKILL)
            while self.status is None:
                self._hear(wait=True)

    def _hear(self, *, wait: bool) -> bool:
        """Take in the next message; False: there is none yet."""
        space = socket.CMSG_SPACE(_CREDENTIALS.size)
        try:
            message, control, *_ = self._inside.recvmsg(_MESSAGE_BYTES, space, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            message, control = b"", []
        if message == _HERE:
            self._pid = _CREDENTIALS.unpack(control[0][2][: _CREDENTIALS.size])[0]
            with suppress(ProcessLookupError):  # it has ended already
                self._pidfd = os.pidfd_open(self._pid)
        elif message[:1] == _FAILED:
            self.failure = message[1:].decode(errors="replace")
        else:
            self._over(message)
        return True

    def _over(self, message: bytes) -> None:
        """Note the program's status, or that it has been killed with all of it."""
        _, how = os.waitpid(self._init, 0)  # its end is that of the namespace
        ended = os.waitstatus_to_exitcode(how)
        self.status = int(message[1:]) if message[:1] == _ENDED else ended
        self._inside.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _become_init(outside: socket.socket, argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> NoReturn:
    """Become process 1 of the namespace."""
    try:
        end_with_parent()
        keep = outside.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, 1 << 16)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        with suppress(PermissionError):
            own_mounts()
        program = os.fork()
        if program == 0:
            _become_program(outside, argv, environment, folder)
        while True:
            pid, how = os.wait()
            if pid == program:
                outside.send(_ENDED + str(os.waitstatus_to_exitcode(how)).encode())
                break
    finally:
        os._exit(0)


def _become_program(
    outside: socket.socket, argv: Sequence[str], environment: Mapping[str, str], folder: Path
) -> NoReturn:
    try:
        end_with_parent()
        os.setsid()  # its process group is its own: `kill 0` in a script ends nothing else
        outside.send(_HERE)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(folder)
        os.execvpe(argv[0], list(argv), dict(environment))
    except OSError as error:
        outside.send(_FAILED + f"{error.filename or argv[0]}: {error.strerror}".encode()[: _MESSAGE_BYTES - 1])
    finally:
        os._exit(127)
