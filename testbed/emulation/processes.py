"""Functions of this program, run as processes inside a host's namespace.

A forked child is already warm: 500 agents forked from one parent start in seconds, where 500 interpreters would take
minutes. The fork happens in the calling thread, which must be the main one or a `Keeper`. The child dies with the thread
that forked it, and only these live as long as the campus. The calling thread must hold no lock that the target needs:
other threads do not exist in the child. A parent that runs trio is fine: the child forgets the parent's run before it
calls the target, so that the target can call `trio.run` itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from testbed import control_groups, identity, linux
from testbed.emulation.safety.ledger import MARK, Ledger
from testbed.errors import SetupError

Target = Callable[[], object]
FAILED = 1  # exit status of a target that raised


@dataclass(slots=True)
class ForkedProcess:
    """A running target."""

    pid: int
    label: str
    host: str  # in whose network it runs
    log: Path | None  # where its output goes; None: the parent's streams
    started: int  # clock ticks since boot; with the pid, its identity
    pidfd: int  # readable once it has ended
    returncode: int | None = None  # as in subprocess.Popen: negative is the signal that ended it

    def fileno(self) -> int:
        """Return the pidfd, readable once the process has ended."""
        return self.pidfd

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        if self.returncode is None:
            self._reap(os.WNOHANG)
        return self.returncode

    def wait(self, timeout_s: float | None = None) -> int:
        """Return the exit status; TimeoutError if it still runs after the timeout."""
        if self.returncode is None:
            poller = select.poll()
            poller.register(self.pidfd, select.POLLIN)
            if not poller.poll(None if timeout_s is None else max(0.0, timeout_s) * 1e3):
                raise TimeoutError(f"{self.label} (process {self.pid}) still runs after {timeout_s} s")
            self._reap(0)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL; nothing if it has ended."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM; nothing if it has ended."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, signum: int) -> None:
        """Send any signal; nothing if it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signum)

    def close(self) -> None:
        """Close the pidfd; call once the process is done."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def _reap(self, options: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:  # another part of the program reaped it: the status is unknown
            self.returncode = FAILED
            return
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)


class Keeper(threading.Thread):
    """A thread that lives as long as the processes that it forks."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A process to fork."""

    host: str  # in whose network it runs
    target: Target
    label: str
    log: Path | None = None  # where its output goes; None: the parent's streams
    keep: tuple[int, ...] = ()  # descriptors that stay open
    group: Sequence[Path] = ()  # the folders of the control group that limits it


def fork_all(
    requests: Sequence[ForkRequest], ns_pids: Sequence[int], campus_id: str, ledger: Ledger
) -> list[ForkedProcess]:
    """Fork every request into the namespace of its holder; each waits until the ledger has it on disk.

    SetupError outside the main thread or a `Keeper`. OSError (EAGAIN) if the machine has no processes left; those already
    forked then end by themselves.
    """
    thread = threading.current_thread()
    if thread is not threading.main_thread() and not isinstance(thread, Keeper):
        raise SetupError("fork() must be called from the main thread: a child dies with the thread that forked it")
    _flush()
    gc.freeze()
    go_fd, release_fd = os.pipe()
    parent = os.getpid()
    children: list[ForkedProcess] = []
    try:
        for request, ns_pid in zip(requests, ns_pids, strict=True):
            pid = os.fork()
            if pid == 0:
                _child(request, ns_pid, campus_id, parent, go_fd, release_fd)
            started = identity.start_time(pid) or 0
            made = ForkedProcess(pid, request.label, request.host, request.log, started, os.pidfd_open(pid))
            children.append(made)
        ledger.record(*({"kind": "process", "pid": c.pid, "start": c.started, "label": c.label} for c in children))
        os.write(release_fd, b"g" * len(children))
    except BaseException:
        for child in children:
            child.kill()
            child.wait()
            child.close()
        raise
    finally:
        os.close(go_fd)
        os.close(release_fd)
        gc.unfreeze()
    return children


def _child(request: ForkRequest, ns_pid: int, campus_id: str, parent: int, go_fd: int, release_fd: int) -> NoReturn:
    """Run the forked process, from its first instruction to its last."""
    status = FAILED
    try:
        linux.end_with_parent(parent)
        os.close(release_fd)
        if not os.read(go_fd, 1):  # the parent failed before the ledger had us
            os._exit(FAILED)
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.umask(0o077)  # journals, checkpoints, logs: nobody else's on this machine
        if request.log is not None:
            out = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
            sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        control_groups.join(request.group)
        linux.close_all_but({0, 1, 2, *request.keep})
        linux.enter_network_of(ns_pid)
        os.environ[MARK] = campus_id
        # the parent may have been inside trio.run when it forked: that run does not exist here
        runner: Any = sys.modules.get("trio._core._run")
        if runner is not None:
            vars(runner.GLOBAL_RUN_CONTEXT).clear()
        sniffio: Any = sys.modules.get("sniffio._impl")
        if sniffio is not None:
            sniffio.thread_local.name = None
        request.target()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else FAILED if end.code else 0
    except BaseException:  # noqa: BLE001 - the edge of a process: nothing above could report it
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        print(f"{stamp} {request.label} on {request.host} ended by an error:", file=sys.stderr)
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            _flush()
        os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
