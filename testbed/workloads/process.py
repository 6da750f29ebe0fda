"""The agent's side of a job's process: start it, receive from it, snapshot it, end it.

There is no background task: the callers that wait (for an event, for a snapshot) take turns in reading the socket, and
sort what arrives. The process is started (`launch`) in the thread that runs trio. A helper thread's end would look to
the kernel like the agent's death (PR_SET_PDEATHSIG is tied to the thread that forks).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import trio

from testbed.errors import LocalProtocolError, RemoteProtocolError, TestbedError
from testbed.identity import signal_name
from testbed.linux import children_of
from testbed.wire import Channel, MessageStream
from testbed.workloads.fork_server import KILLED, OF_PEOPLE
from testbed.workloads.launch import Launch, Launched
from testbed.workloads.lease import LeaseFile
from testbed.workloads.link import EXIT_AGENT_GONE
from testbed.workloads.messages import (
    CODEC,
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
from testbed.workloads.runner import EXIT_FAILED, EXIT_LEASE_LAPSED
from testbed.workloads.sandbox import Sandbox
from testbed.workloads.submission import is_saved_from_outside

STOP_GRACE_S: Final = 2.0
# of a job's process, that are ended apart: it has one where it is not the first of a namespace, whose end ends all
MAX_CHILDREN: Final = 16
# sent by the OOM killer, by people, and by the end of their sessions; other signals are a program's own faults
KILLS: Final = (signal.SIGKILL, *OF_PEOPLE)
_REASONS: Final = {
    0: "ended with exit code 0",
    EXIT_FAILED: "failed; see its log",
    EXIT_AGENT_GONE: "its agent was gone",
    EXIT_LEASE_LAPSED: "its lease lapsed",
}


@dataclass(frozen=True, slots=True)
class Exited:
    """End of the process: always the last event. `status` is its exit status, or minus the signal that killed it.

    `from_outside`: one of KILLS, which this agent did not send.
    """

    status: int
    reason: str
    from_outside: bool = False

    @property
    def lease_lapsed(self) -> bool:
        """True if the process ended because its lease was not extended."""
        return self.status == EXIT_LEASE_LAPSED


Event = Started | Progress | Finished | Failed | Exited


class ProcessGone(TestbedError):
    """End of the process before it did what was asked."""


class SnapshotImpossible(TestbedError):
    """Failure to write the state; the job goes on."""


class _ProcessStream(MessageStream):
    """The agent's end of a process's socket. It ends with the process, though a child of that may hold the other end open."""

    def __init__(self, sock: socket.socket, pidfd: int) -> None:
        super().__init__(sock)
        self._pidfd = pidfd
        self._either = select.epoll()
        self._either.register(sock, select.EPOLLIN)
        self._either.register(pidfd, select.EPOLLIN)

    async def wait_readable(self) -> None:
        await trio.lowlevel.wait_readable(self._either)
        if any(ready == self._pidfd for ready, _ in self._either.poll(0)):
            # what has been sent remains to be read; a child that it left can send no more
            self.socket.shutdown(socket.SHUT_RD)

    async def aclose(self) -> None:
        self._either.close()
        await super().aclose()


class WorkloadProcess:
    """A job in a process of its own. Make it with `start`; end it with `kill` or `stop`.

    Its events must be read to the end (`Exited`), by `async for event in process`: that is when the
    process is reaped and its socket closed.
    """

    def __init__(self, launched: Launched, channel: Channel[Order | Report]) -> None:
        self.exited: Exited | None = None
        self._killed_here = False
        self._wrong = ""  # what it sent that no job may send
        # pidfds: the kernel ends a program's namespace some time after its starter
        self._children: list[int] = []
        self._reaped = False
        self._launched, self._channel = launched, channel
        self._turn = trio.Lock()
        self._events: deque[Event] = deque()
        self._snapshots = 0
        self._answers: dict[int, SnapshotTaken | SnapshotFailed | None] = {}

    @classmethod
    async def start(
        cls, order: Start, *, lease: LeaseFile, log: Path, launch: Launch, sandbox: Sandbox | None = None
    ) -> Self:
        """Start the process and send it the order; `Started` or `Failed` comes as its first event.

        Its output is appended to `log`. Only in the main thread, where trio runs: LocalProtocolError elsewhere, and
        where so much cannot be sent.
        """
        if threading.current_thread() is not threading.main_thread():
            raise LocalProtocolError("a job is started in the main thread: its life is tied to the thread that forks")
        CODEC.encode(order)  # what cannot be sent is known before there is a process
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with trio.CancelScope(shield=True):  # a process that was started is always handed out
            try:
                with theirs, log.open("a+b") as output:  # a job reads its last line
                    apart = not is_saved_from_outside(order.job)  # CRIU makes the program's namespace itself
                    launched = await launch(theirs.fileno(), lease.fileno(), output.fileno(), sandbox, apart)
            except BaseException:
                ours.close()
                raise
            channel: Channel[Order | Report] = Channel(_ProcessStream(ours, launched.pidfd), CODEC)
            process = cls(launched, channel)
            await process._send(order)
        return process

    @property
    def pid(self) -> int:
        """The process id; also its process group."""
        return self._launched.pid

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Return the next event: Started, then Progress, then Finished or Failed, then (always, last) Exited."""
        await self._pump_until(lambda: bool(self._events))
        if not self._events:
            raise StopAsyncIteration
        return self._events.popleft()

    async def snapshot(self, path: Path, *, stop: bool = False, final: bool = False) -> SnapshotTaken:
        """Have the state written to `path`.

        The job stands still while its state is copied in memory. With `stop`, and where that cannot be (the answer
        gives the reason), it stands still until it is written. After a `final` one it is not to go on: kill it.

        Raises SnapshotImpossible (the job goes on, no file is left) and ProcessGone (what was written is there).
        """
        self._snapshots += 1
        number = self._snapshots
        self._answers[number] = None
        try:
            await self._send(Snapshot(number, str(path), stop or final, final))
            await self._pump_until(lambda: self._answers[number] is not None)
            answer = self._answers[number]
        finally:
            del self._answers[number]
        if isinstance(answer, SnapshotFailed):
            raise SnapshotImpossible(f"{path}: {answer.reason}")
        if answer is None:
            raise ProcessGone(f"no snapshot: the job's process has gone ({self.exited})")
        return answer

    def kill(self) -> None:
        """Send SIGKILL to the process, its group and its children, now.

        Events report when it is gone, and what it had started.
        """
        self._killed_here = True
        if not (self._children or self._reaped):
            for child in children_of(self.pid)[:MAX_CHILDREN]:
                with suppress(ProcessLookupError):  # it has gone
                    self._children.append(os.pidfd_open(child))
        self._kill_group()
        if not self._reaped:
            for child in self._children:  # one may have left the group
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(child, signal.SIGKILL)

    def _kill_group(self) -> None:
        if not self._reaped:  # else its pid may be another's
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> Exited:
        """Ask it to end, kill it if it does not within that time, and wait until it is gone."""
        if self.exited is None:
            with trio.move_on_after(grace_s):
                await self._send(Stop())
                await self._pump_until(lambda: False)
            self.kill()
            await self._pump_until(lambda: False)
        assert self.exited is not None
        return self.exited

    async def _send(self, order: Order) -> None:
        try:
            await self._channel.send(order)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # it is gone, or going: the events report it

    async def _pump_until(self, ready: Callable[[], bool]) -> None:
        """Read and sort what arrives until it is what the caller waits for, or the process is gone."""
        while not (ready() or self.exited):
            async with self._turn:
                if not (ready() or self.exited):
                    await self._pump()

    async def _pump(self) -> None:
        try:
            message = await self._channel.receive()
        except trio.BrokenResourceError:
            message = None  # it died with something unread
        except RemoteProtocolError as error:
            self._wrong = str(error)
            self.kill()
            message = None
        match message:
            case None:
                await self._reap()
            case SnapshotTaken() | SnapshotFailed():
                if message.number in self._answers:
                    self._answers[message.number] = message
            case Started() | Progress() | Finished() | Failed():
                self._events.append(message)
            case _:
                self._wrong = f"{type(message).__name__} is an order"
                self.kill()

    async def _reap(self) -> None:
        """End both the socket and the process, since one of them has ended, at once or when they are made to."""
        with trio.move_on_after(STOP_GRACE_S) as grace:
            await trio.lowlevel.wait_readable(self._launched.pidfd)
        self._killed_here |= grace.cancelled_caught
        self._kill_group()  # itself, if it still runs, and what it left
        with trio.CancelScope(shield=True):
            await trio.lowlevel.wait_readable(self._launched.pidfd)
            await self._channel.aclose()
            self._reaped = True
            status = await self._launched.reap()
            status = KILLED - status if status - KILLED in OF_PEOPLE else status
            with trio.move_on_after(STOP_GRACE_S):  # a namespace of many processes takes its time
                for child in self._children:
                    await trio.lowlevel.wait_readable(child)
        for pidfd in (self._launched.pidfd, *self._children):
            os.close(pidfd)
        reason = _REASONS.get(status, "ended by the workload itself")
        if self._wrong:
            reason = f"it was ended for what it said: {self._wrong}"
        elif status < 0:
            reason = f"killed by {signal_name(-status)}"
        self.exited = Exited(status, reason, -status in KILLS and not self._killed_here)
        self._events.append(self.exited)
