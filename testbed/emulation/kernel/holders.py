"""The processes that hold a campus's namespaces, one each: started together, ended together."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import SetupError

PROGRAM = Path(__file__).with_name("holder.py")
STOP_TIMEOUT_S = 10.0


class Holders:
    """A group of `count` processes, each (after `release`) in a network namespace of its own.

    Call from the main thread: the processes die with the thread that starts them. `pids` are in the order of asking.
    """

    def __init__(self, count: int, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM), str(os.getpid()), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={**os.environ, **environment},
            bufsize=0,
            start_new_session=True,  # what is typed at the campus's terminal interrupts the campus, which ends them
        )
        self.pids: Sequence[int] = ()
        self._count = count

    @property
    def parent_pid(self) -> int:
        """The process that forked them."""
        return self._process.pid

    def wait_forked(self) -> None:
        """Read the pids; SetupError if fewer could be forked than asked."""
        assert self._process.stdout is not None
        line = bytearray()
        while not line.endswith(b"\n"):
            piece = self._process.stdout.read(65536)
            if not piece:
                raise SetupError(f"could not fork {self._count} processes: {self._reason()}")
            line += piece
        self.pids = [int(word) for word in line.split()]

    def release(self) -> None:
        """Let each process unshare its network; returns at once."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"g")

    def wait_unshared(self) -> None:
        """Wait until every namespace stands; SetupError with the kernel's reason if one does not."""
        assert self._process.stdout is not None
        ready = 0
        while ready < self._count:
            piece = self._process.stdout.read(65536)
            ready += piece.count(b".")
            if not piece or b"!" in piece:
                raise SetupError(f"could not create a network namespace: {self._reason()} (needs root)")

    def _reason(self) -> str:
        self.stop()
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace").strip() or "the helper process ended"

    def stop(self) -> None:
        """Kill all holders and reap them; safe to repeat."""
        if self._process.poll() is not None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Stop, and close the pipes."""
        self.stop()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
