"""A program beside a campus: written to by its standard input, whose end ends it, and read by its standard output."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Mapping, Sequence

from testbed.errors import SetupError

STOP_TIMEOUT_S = 10.0


class Helper:
    """The running program. SetupError, with what it wrote to standard error, where it has ended or does not answer.

    Call from the main thread: programs of a campus die with the thread that starts them.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={**os.environ, **environment},
            bufsize=0,
            start_new_session=True,  # what is typed at the campus's terminal interrupts the campus, which ends it
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._in, self._out, self._err = self._process.stdin, self._process.stdout, self._process.stderr
        self.pid = self._process.pid

    @property
    def is_running(self) -> bool:
        """False once it has ended."""
        return self._process.poll() is None

    def write(self, data: bytes) -> None:
        """Write to its standard input."""
        try:
            self._in.write(data)
        except BrokenPipeError:
            raise self.ended() from None

    def read(self, limit_s: float | None = None) -> bytes:
        """Return what it writes next, within `limit_s` (None: for ever)."""
        poller = select.poll()
        poller.register(self._out, select.POLLIN)
        if not poller.poll(None if limit_s is None else limit_s * 1e3):
            raise SetupError(f"{self.name} did not answer within {limit_s:.0f} s")
        piece = self._out.read(65536)
        if not piece:
            raise self.ended()
        return piece

    def read_line(self, limit_s: float | None = None) -> str:
        """Return the next line, without its end."""
        line = b""
        while not line.endswith(b"\n"):
            line += self.read(limit_s)
        return line.decode().rstrip("\n")

    def close(self) -> None:
        """End it, by the end of its input, and close the pipes; safe to repeat."""
        self._stop()
        self._out.close()
        self._err.close()

    def ended(self) -> SetupError:
        """Return the error of its end, after ending it if need be."""
        status = self._stop()
        reason = self._err.read().decode(errors="replace").strip() or f"status {status}"
        return SetupError(f"{self.name} ended: {reason}")

    def _stop(self) -> int:
        with contextlib.suppress(OSError):
            self._in.close()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
