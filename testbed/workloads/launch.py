"""A job's process: the child of a fork server.

A new interpreter would take a third of a second of processor and 12 MB before each job's first step; a child of a fork server
takes some milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import trio

from testbed.namespaces import OWN_NETWORK, NetworkNamespace
from testbed.own_programs import own_program
from testbed.workloads.fork_server import ORDER_BYTES
from testbed.workloads.sandbox import Sandbox

# variables that reach jobs; whatever else the operator's shell has (tokens, keys) stays there. `LC_` and the like: beginnings
PASSED: Final = {
    "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PATH", "PYTHONHASHSEED", "PYTHONPATH", "TZ",
    "RECLAIMNET_CAMPUS", "RECLAIMNET_CRIU", "RECLAIMNET_LOG_LEVEL",
}  # fmt: skip
PASSED_BEGINNINGS: Final = ("CUBLAS_", "CUDA_", "LC_", "MKL_", "NVIDIA_", "OMP_", "OPENBLAS_")


@dataclass(frozen=True, slots=True)
class Launched:
    """A job's process: `pid`, which is also its process group, and `pidfd`, readable once it has ended.

    `reap` gives the exit status, or minus the signal that ended it; its pid is free after. Call it once `pidfd` is readable.
    """

    pid: int
    pidfd: int
    reap: Callable[[], Awaitable[int]]


# descriptors of the job's socket, lease and output, its sandbox, and whether it has a process namespace of its own; OSError if no
# process can be had
Launch = Callable[[int, int, int, Sandbox | None, bool], Awaitable[Launched]]


class ForkServer:
    """The agent's end of a fork server, which is started by the first job, and again should it die (its jobs die with it)."""

    def __init__(self, folder: Path | None = None) -> None:
        """Prepare the server. `folder`: where its jobs run and look for modules; by default where this process does."""
        self._folder = folder
        self._turn = trio.Lock()
        self._control: socket.socket | None = None
        self._program: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process while there is one."""
        return None if self._program is None else self._program.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def launch(
        self,
        sock: int,
        lease: int,
        output: int,
        sandbox: Sandbox | None = None,
        apart: bool = True,
        network: NetworkNamespace = OWN_NETWORK,
    ) -> Launched:
        """Fork a job's process in that network and return it. Call it in the main thread. OSError: it could not be forked."""
        beside = [] if network.fd is None or (sandbox and not sandbox.host_network) else [network.fd]
        async with self._turn:
            if self._program is not None and self._program.poll() is not None:
                self.close()
            if self._control is None:
                self._start()
            answer, pidfds = await self._ask({"apart": apart, "sandbox": sandbox}, [sock, lease, output, *beside])
        if "error" in answer:
            raise OSError(answer["error"])
        return Launched(answer["pid"], pidfds[0], partial(self._reap, answer["pid"], self._program))

    def close(self) -> None:
        """End it, and with it its jobs."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._program is not None:
            self._program.kill()
            self._program.wait()
            self._program = None

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        with theirs:
            words = [*own_program("testbed.workloads.fork_server"), os.getpid(), theirs.fileno()]
            self._program = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd=self._folder,
                env=passed_environment(),
            )

    async def _reap(self, pid: int, program: subprocess.Popen[bytes] | None) -> int:
        """Return the status of a job of `program`; minus SIGKILL if that has died, and with it the job."""
        async with self._turn:
            if program is self._program:
                try:
                    answer, _ = await self._ask({"reap": pid}, [])
                except OSError:
                    return -signal.SIGKILL
                return int(answer["status"])
        return -signal.SIGKILL

    async def _ask(self, order: dict[str, Any], descriptors: list[int]) -> tuple[dict[str, int], list[int]]:
        """Send an order and return its answer; ConnectionError if the server is gone. An order under way is not cancelled."""
        control = self._control
        if control is None:
            raise ConnectionResetError("the fork server has been closed")
        with trio.CancelScope(shield=True):
            socket.send_fds(control, [msgspec.json.encode(order)], descriptors)
            await trio.lowlevel.wait_readable(control)
            text, received, _, _ = socket.recv_fds(control, ORDER_BYTES, 1)
        if not text:
            raise ConnectionResetError("the fork server has ended")
        return json.loads(text), received


def passed_environment() -> dict[str, str]:
    """Return the variables that jobs get from this process's environment."""
    return {name: value for name, value in os.environ.items() if name in PASSED or name.startswith(PASSED_BEGINNINGS)}
