"""Measuring processes, each forked into a network namespace; with the process a namespace of its own and its interfaces end.

A node receives orders, which are dictionaries, and answers each with one.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from testbed.errors import CommandFailed, SetupError
from testbed.linux import CLONE_NEWNET, end_with_parent, setns, unshare
from testbed.namespaces import NetworkNamespace

NOT_FOUND = 127  # a shell's status
FORK = multiprocessing.get_context("fork")

Serve = Callable[[dict[str, Any]], dict[str, Any]]


class Node:
    """Forked process in `network`, or in a namespace of its own, that answers orders."""

    def __init__(self, serve: Serve = lambda order: {}, network: NetworkNamespace | None = None) -> None:
        self._ours, theirs = FORK.Pipe()
        self._process = FORK.Process(target=_obey, args=(theirs, serve, network, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()
        self.answer()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.network = NetworkNamespace.of_process(self.pid)

    def ask(self, **order: Any) -> None:
        """Send an order; `answer` waits for its outcome."""
        self._ours.send(order)

    def answer(self) -> dict[str, Any]:
        """Return the reply; SetupError with the node's text if it failed."""
        try:
            reply: dict[str, Any] = self._ours.recv()
        except (EOFError, ConnectionError):
            reply = {"error": "a measuring process died"}
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
        self._process.kill()
        self._process.join()
        self._ours.close()
        if self.network.fd is not None:
            os.close(self.network.fd)


def _obey(orders: Connection, serve: Serve, network: NetworkNamespace | None, parent: int) -> None:
    """Live as a node's process: it ends with its parent."""
    end_with_parent(parent)
    try:
        if network is None:
            unshare(CLONE_NEWNET)
        elif network.fd is not None:
            setns(network.fd)
    except OSError as error:
        orders.send({"error": f"a measuring process has no network namespace: {error}"})
        return
    orders.send({})
    while True:
        order = orders.recv()
        try:
            orders.send(serve(order))
        except Exception as error:  # noqa: BLE001 - whatever it was, the parent reports it
            orders.send({"error": repr(error)})


def run_in(network: NetworkNamespace, *argv: str, text: str | None = None) -> None:
    """Run a command inside a namespace; CommandFailed if it fails, or is not installed."""
    try:
        with network.entered():
            done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CommandFailed(argv, NOT_FOUND, f"{argv[0]} is not installed") from error
    if done.returncode:
        raise CommandFailed(argv, done.returncode, f"{done.stderr}{text or ''}")
