"""The inside of a job's process: listens, steps, saves, and ends itself when it has no right to run any more.

Three things end it whatever the workload does. Its agent dies: the kernel kills it (PR_SET_PDEATHSIG). The agent closes
the socket. Its lease lapses: a watchdog thread sees that even during a long step. The lease is also looked at before
every step, so a process that was stopped and continued does not take one more.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from testbed.errors import RemoteProtocolError, SpecError
from testbed.garbage import survivors_set_aside
from testbed.linux import end_with
from testbed.workloads.base import Workload, announce_index, load_workload, params_of
from testbed.workloads.copying import CopiedSnapshot, copy_of, why_not
from testbed.workloads.lease import LeaseFile
from testbed.workloads.link import EXIT_AGENT_GONE, RunnerLink, leave
from testbed.workloads.messages import (
    Failed,
    Finished,
    Order,
    Progress,
    Report,
    Snapshot,
    SnapshotFailed,
    SnapshotTaken,
    Start,
    Started,
    Stop,
)

# the environment of a job: numbers of its GPUs on its host, with commas; and the same as CUDA reads it
GPUS, CUDA_DEVICES = "RECLAIMNET_GPUS", "CUDA_VISIBLE_DEVICES"
EXIT_FAILED: Final = 1
EXIT_LEASE_LAPSED: Final = 72
LONGEST_SLEEP_S: Final = 3600.0
# emulated computing makes up for this much delay, e.g. by a busy machine, not for more
CATCH_UP_S: Final = 0.25
TELL_S: Final = 0.2  # between two reports of how far it is


class Runner:
    """A job's run, from Start to Finished."""

    def __init__(self, link: RunnerLink, lease: LeaseFile) -> None:
        self._link, self._lease = link, lease
        self._snapshot: CopiedSnapshot | None = None  # the last one that was begun
        self._speed = 1.0  # of its GPUs

    def run(self) -> None:
        """Return when the job is finished or stopped. Whatever the workload raises passes through."""
        start = self._link.receive(None)
        if not isinstance(start, Start):
            raise RemoteProtocolError(f"the first order is Start, not {start!r}")
        take_gpus(start.slots)
        self._speed = start.speed
        announce_index(start.job)
        if start.job.output is not None:
            from testbed.workloads.returned import make_output_folder

            make_output_folder(start.job, start.folder)
        if start.job.program is not None:
            from testbed.workloads.executable import run_program  # other jobs start without it

            run_program(self._link, start)
            return
        workload = load_workload(start.job.workload, params_of(start.job))
        if start.restore is None:
            workload.begin()
        else:
            workload.load(Path(start.restore))
        self._link.send(Started(workload.step_number, digest_of(workload)))
        # of a process with torch in it a full collection takes 0.2 s, now and then while a snapshot is taken
        with survivors_set_aside():
            self._compute(workload)

    def _compute(self, workload: Workload) -> None:
        """Compute step after step; return when the job is finished or stopped."""
        told_s = 0.0
        due_s = time.monotonic() + workload.step_s / self._speed
        while workload.step_number < workload.steps_total:
            paused_s = self._listen_until(due_s, workload)
            if paused_s is None:
                return
            if self._lease.left_s() <= 0.0:
                leave(EXIT_LEASE_LAPSED)
            before = workload.step_number
            workload.step()
            if workload.step_number <= before:
                raise SpecError("step_number", workload.step_number, f"{before + 1}: step() has to advance it by one")
            due_s = max(due_s + paused_s, time.monotonic() - CATCH_UP_S) + workload.step_s / self._speed
            now_s = time.monotonic()
            if now_s >= told_s + TELL_S:
                told_s = now_s
                self._link.send(Progress(workload.step_number))
        self._link.send(Finished(workload.step_number, digest_of(workload)))

    def _listen_until(self, due_s: float, workload: Workload) -> float | None:
        """Obey orders until the time; the seconds for which snapshots held the job up, or None if it is to stop."""
        paused_s = 0.0
        while True:
            if self._snapshot is not None and self._snapshot.ready:
                paused_s += self._copy(self._snapshot, workload)
            wait_s = max(0.0, due_s + paused_s - time.monotonic())
            order = self._link.receive(min(wait_s, LONGEST_SLEEP_S))
            if isinstance(order, Stop):
                return None
            if order is not None:
                paused_s += self._obey(order, workload)
            elif time.monotonic() >= due_s + paused_s:
                return paused_s

    def _obey(self, order: Order | Report, workload: Workload) -> float:
        """Begin a snapshot, or take it at once; the seconds for which the job stood still."""
        if not isinstance(order, Snapshot):
            raise RemoteProtocolError(f"not an order for a running job: {order!r}")
        began_s = time.monotonic()
        if (present := self._snapshot) is not None and present.under_way:  # one at a time, in order
            present.wait_until_ready()
            if present.ready:
                self._copy(present, workload)
            present.join()
        copy = None if order.stop else copy_of(workload)
        obstacle = "" if order.stop else why_not(copy)
        if obstacle or copy is None:
            self._write_at_once(order, workload, obstacle)
        else:
            self._snapshot = CopiedSnapshot(order, copy, self._link.wake, self._link.send)
            self._snapshot.stood_s = time.monotonic() - began_s
        return time.monotonic() - began_s

    def _copy(self, snapshot: CopiedSnapshot, workload: Workload) -> float:
        """Copy the state as it is now into the snapshot's memory; return the seconds that the job stood still.

        Without room for it, it goes to its file while the job stands still.
        """
        began_s = time.monotonic()
        if not snapshot.copy(workload.step_number):
            self._write_at_once(snapshot.order, workload, snapshot.obstacle)
        return time.monotonic() - began_s

    def _write_at_once(self, order: Snapshot, workload: Workload, obstacle: str) -> None:
        path, began_s = Path(order.path), time.monotonic()
        try:
            workload.save(path)
        except OSError as error:
            path.unlink(missing_ok=True)
            self._link.send(SnapshotFailed(order.number, str(error)))
            return
        took_s = time.monotonic() - began_s
        step = workload.step_number
        self._link.send(SnapshotTaken(order.number, step, took_s, took_s, obstacle))


def take_gpus(slots: Sequence[int]) -> None:
    """Set the environment to these GPUs. CUDA sees no others, if the machine has a device of each of these numbers.

    Emulated hosts may have more GPUs than their machine: there a job sees all devices, as any other process does.
    """
    numbers = ",".join(map(str, slots))
    os.environ[GPUS] = numbers
    if all(Path(f"/dev/nvidia{slot}").exists() for slot in slots):
        os.environ[CUDA_DEVICES] = numbers


def digest_of(workload: Workload) -> bytes:
    """Return the digest of the workload's verified state. SpecError: it is not bytes."""
    digest = workload.verify()
    if not isinstance(digest, bytes):
        raise SpecError("verify()", digest, f"bytes: the digest of the state; this is of type {type(digest).__name__}")
    return digest


def watch(lease: LeaseFile) -> None:
    """End the process when the lease lapses, whatever its main thread does then."""
    while (left_s := lease.left_s()) > 0.0:
        time.sleep(min(left_s, LONGEST_SLEEP_S))
    leave(EXIT_LEASE_LAPSED)


def main(server: int, sock_fd: int, lease_fd: int, prepare: Callable[[], str | None]) -> None:
    """Run a job in this process, a child of the fork server (a pidfd), over its socket and under its lease.

    `prepare`: what it does first; what that returns is for the log.
    """
    end_with(server, EXIT_AGENT_GONE)
    os.set_inheritable(sock_fd, False)
    sock = socket.socket(fileno=sock_fd)
    os.register_at_fork(after_in_child=sock.close)  # a child has nothing to send, and may live on
    to_read = os.open(f"/proc/self/fd/{lease_fd}", os.O_RDONLY | os.O_CLOEXEC)  # a job does not extend it
    os.close(lease_fd)
    link, lease = RunnerLink(sock), LeaseFile(to_read, mmap.ACCESS_READ)
    sys.excepthook = _reporter(link)
    if remark := prepare():
        print(f"[reclaimnet] {remark}", flush=True)
    threading.Thread(target=watch, args=(lease,), daemon=True, name="lease").start()
    Runner(link, lease).run()


def _reporter(link: RunnerLink) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """Return an excepthook that reports to the agent before the traceback goes to the log; the interpreter then exits with 1."""

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        link.send(Failed(f"{kind.__name__}: {error}"[:2000]))
        sys.__excepthook__(kind, error, trace)

    return report
