"""Measuring processes, each forked into a network namespace; with the process a namespace of its own and its interfaces end.

A node receives orders as lines of JSON and answers each with one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from testbed.errors import CommandFailed, SetupError
from testbed.linux import CLONE_NEWNET, end_with_parent, setns, unshare
from testbed.namespaces import NetworkNamespace

NOT_FOUND = 127  # a shell's status


class Node:
    """Forked process in `network`, or in a namespace of its own, that answers orders."""

    def __init__(
        self,
        serve: Callable[[dict[str, Any]], dict[str, Any]] = lambda order: {},
        network: NetworkNamespace | None = None,
    ) -> None:
        self._ours, theirs = socket.socketpair()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:  # the life of a node's process: it ends with its parent
            try:
                end_with_parent(parent)
                lines = theirs.makefile("rw")
                reply: dict[str, Any] = {"ready": True}
                try:
                    if network is None:
                        unshare(CLONE_NEWNET)
                    elif network.fd is not None:
                        setns(network.fd)
                except OSError as error:
                    reply = {"error": f"a measuring process has no network namespace: {error}"}
                while True:
                    lines.write(json.dumps(reply) + "\n")
                    lines.flush()
                    line = lines.readline()
                    if not line:
                        break
                    try:
                        reply = serve(json.loads(line))
                    except Exception as error:  # noqa: BLE001 - whatever it was, the parent reports it
                        reply = {"error": repr(error)}
            finally:
                os._exit(0)
        theirs.close()
        self._lines = self._ours.makefile("rw")
        self.answer()
        self.network = NetworkNamespace.of_process(self.pid)

    def ask(self, **order: Any) -> None:
        """Send an order; `answer` waits for its outcome."""
        self._lines.write(json.dumps(order) + "\n")
        self._lines.flush()

    def answer(self) -> dict[str, Any]:
        """Return the reply; SetupError with the node's text if it failed."""
        line = self._lines.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"error": "a measuring process died"}
        if "error" in reply:
            raise SetupError(str(reply["error"]))
        return reply

    def order(self, **order: Any) -> dict[str, Any]:
        """Send an order and wait for its answer."""
        self.ask(**order)
        return self.answer()

    def run(self, *argv: str, text: str | None = None) -> None:
        """Run a command inside the node's namespace; CommandFailed if it fails."""
        run_in(self.network, *argv, text=text)

    def close(self) -> None:
        """End the process; its namespace and interfaces go with it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._lines.close()
        self._ours.close()
        if self.network.fd is not None:
            os.close(self.network.fd)


def run_in(network: NetworkNamespace, *argv: str, text: str | None = None) -> None:
    """Run a command inside a namespace; CommandFailed if it fails, or is not installed."""
    try:
        with network.entered():
            done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CommandFailed(argv, NOT_FOUND, f"{argv[0]} is not installed") from error
    if done.returncode:
        raise CommandFailed(argv, done.returncode, f"{done.stderr}{text or ''}")
