"""`kill -9` of a coordinator's real process, over real sockets: an agent comes back, its job runs on, nothing is lost.

Each scenario is a process in a network namespace of its own, whose loopback has the address of the campus's one volunteer.
"""

import logging
import os
import re
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing, nullcontext, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec import structs

from controller import host
from controller.core.model import facts as f
from controller.core.parameters import Protocol, Queue
from controller.persistence.journal import NoJournal, read_facts
from controller.process import CoordinatorConfig, run_coordinator
from controller.warm_up import rehearse
from experiments.worlds.live.operator import Operator, connected
from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.agent import AgentCore
from testbed.agent.io.coordinator_link import CoordinatorLink
from testbed.clock import MonotonicClock
from testbed.driver import Driver
from testbed.linux import CLONE_NEWNET, end_with_parent, unshare
from tests.patience import until
from topologies.presets import three_tier
from topologies.spec import TrafficClass

PORT = 7100
ETH_IPV4, RST = 0x800, 4
LONG_LEASE_S = 40.0  # the start of a Python takes seconds where many run


class _NoKernel:
    """What the uplink wants of the kernel: to mark its packets."""

    def as_metadata(self, stream: trio.SocketStream) -> Any:
        return nullcontext()


class Agent(Driver[ev.Event, do.Effect]):
    """A real agent's core and its real connection; a workload starts at once and computes until it is killed."""

    core: AgentCore

    def __init__(self) -> None:
        self.core = AgentCore("h1", 1, 7200)
        self.started: list[tuple[str, int]] = []
        self.killed: list[tuple[str, int]] = []
        self.link = CoordinatorLink(("10.1.0.1", PORT), _NoKernel(), self.handle)

    def perform(self, effect: do.Effect) -> None:
        match effect:
            case do.Send(message):
                self.link.say(message)
            case do.StartWorkload(spec, attempt, _):
                self.started.append((spec.name, attempt))
                self.handle(ev.WorkloadStarted(spec.name, attempt, 0, "d"))
            case do.KillWorkload(job, attempt):
                self.killed.append((job, attempt))

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.link.stay_connected)
            nursery.start_soon(self.wake, ev.Woke())


class Process:
    """A coordinator in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.journal, self.socket, self.log = folder / "journal.sqlite", folder / "o.sock", folder / "log"
        self.lease_s = 3.0
        self.spare = [spare(serve) for _ in range(3)]
        self.now: Any = None

    def start(self) -> None:
        self.now, begin = self.spare.pop()
        begin.send((self.lease_s, self.journal, self.socket, self.log))

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.now.pid, how)
        self.now.join(10)

    async def asked(self, ask: Callable[[Operator], Any]) -> Any:
        """Ask it something, as soon as it listens."""
        with trio.fail_after(30.0):
            while True:
                try:
                    async with connected(self.socket) as operator:
                        return await ask(operator)
                except (OSError, trio.BrokenResourceError):
                    await trio.sleep(0.02)

    async def until(self, kind: type, count: int) -> list[Any]:
        """Until the journal holds so many facts of a kind."""
        await until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)

    def of(self, kind: type) -> list[Any]:
        return [fact for _, fact in self.facts() if isinstance(fact, kind)]

    def since_snapshot(self) -> int | None:
        """Return how many events its journal holds behind the latest snapshot, if there is one."""
        events = "SELECT count(*) FROM input WHERE body != x'' AND number > latest"
        query = f"SELECT ({events}) FROM (SELECT max(event) AS latest FROM snapshot) WHERE latest"
        with closing(sqlite3.connect(f"{self.journal.as_uri()}?mode=ro", uri=True)) as found:
            return next((count for (count,) in found.execute(query)), None)

    def facts(self) -> list[tuple[float, Any]]:
        with suppress(NoJournal):  # not begun
            return list(read_facts(self.journal))
        return []


def serve(lease_s: float, journal: Path, operator: Path, log: Path) -> None:
    """A coordinator with that lease, and snapshots as often as they are made."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    host.SAVE_AFTER_S = 0.0
    protocol = Protocol(lease_s=lease_s)
    run_coordinator(
        CoordinatorConfig(
            three_tier(1, 1, 0),
            protocol,
            Queue(),
            1,
            journal,
            operator,
            "10.1.0.1",
            PORT,
            secret=b"x",
            comes_first=True,
        )
    )


def spare(serve: Callable[..., None]) -> tuple[Any, Connection]:
    """Return a process that serves when its arguments are sent, and where to send them.

    It is made before Trio runs, by a process that has imported all: that takes others seconds.
    """

    maker = os.getpid()

    def served() -> None:
        end_with_parent(maker)
        logging.getLogger().handlers.clear()  # pytest's, as its errors are
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        serve(*arguments.recv())

    fork = get_context("fork")
    arguments, begin = fork.Pipe(duplex=False)
    process = fork.Process(target=served, daemon=True)
    process.start()
    return process, begin


# ---------------------------------------------------------------- scenarios, in the namespace
async def a_job_runs_on(process: Process, agent: Agent) -> None:
    """Ended by SIGTERM, then killed, and started again at once: the same attempt runs on under a renewed lease."""
    process.lease_s = LONG_LEASE_S
    process.start()
    assert await process.asked(lambda operator: operator.submit(JOB)) == m.Accepted("a")
    await process.until(f.JobRunning, 1)
    assert os.sched_getscheduler(process.now.pid) == os.SCHED_RR
    for restarts, how in ((1, signal.SIGTERM), (2, signal.SIGKILL)):
        await until(lambda: process.since_snapshot() is not None)
        process.end(how)
        since_snapshot = process.since_snapshot()
        lease_until_s = agent.core.lease.lease_until_s
        process.start()
        await process.until(f.CoordinatorRestarted, restarts)
        await process.until(f.HostJoined, restarts + 1)
    # its end was no loss of a host: connections end with it
    assert process.of(f.HostLost) == []
    times = [at_s for at_s, _ in process.facts()]
    assert times == sorted(times)
    await until(lambda: agent.core.lease.lease_until_s > lease_until_s)
    assert agent.killed == []
    status = await process.asked(lambda operator: operator.status())
    assert [(job.job, job.phase, job.attempt) for job in status.jobs] == [("a", "running", 1)]
    agent.handle(ev.WorkloadEnded(m.JobEnded("a", 1, "finished", JOB.steps, "d")))
    await process.until(f.JobFinished, 1)
    assert agent.started == [("a", 1)]
    # from its snapshot, not from the beginning
    decided_again = int(re.findall(r"(\d+) events of .* decided again", process.log.read_text())[-1])
    assert decided_again == since_snapshot < len(process.facts())


async def it_ends_while_nobody_hears(process: Process, agent: Agent) -> None:
    """The end of a job is said again, and a job is not accepted twice."""
    process.lease_s = LONG_LEASE_S
    process.start()
    await process.asked(lambda operator: operator.submit(JOB))
    await process.until(f.JobRunning, 1)
    process.end()
    agent.handle(ev.WorkloadEnded(m.JobEnded("a", 1, "finished", JOB.steps, "d")))
    process.start()
    await process.until(f.JobFinished, 1)
    assert await process.asked(lambda operator: operator.submit(JOB)) == m.Accepted("a", before=True)
    other = structs.replace(JOB, steps=1)
    refused = await process.asked(lambda operator: operator.submit(other))
    assert refused == m.Rejected("a", "another job of this name was submitted before")
    assert len(await process.until(f.JobSubmitted, 1)) == 1
    assert await process.asked(lambda operator: operator.submit_new(JOB)) == m.Accepted("a_2")
    assert await process.asked(lambda operator: operator.submit_new(other)) == m.Accepted("a_3")
    assert await process.asked(lambda operator: operator.describe("a")) == m.SubmittedJob(JOB, "finished")
    assert await process.asked(lambda operator: operator.describe("b")) is None


async def the_lease_ends(process: Process, agent: Agent) -> None:
    """Nobody is there for longer than a lease: the agent stops the job at its end, and it begins again after."""
    process.start()
    await process.asked(lambda operator: operator.submit(JOB))
    await process.until(f.JobRunning, 1)
    process.end()
    await until(lambda: agent.killed)
    assert trio.current_time() >= agent.core.lease.lease_until_s
    assert agent.killed == [("a", 1)]
    process.start()
    await process.until(f.JobRunning, 2)
    assert agent.started == [("a", 1), ("a", 2)]
    [restarted] = process.of(f.CoordinatorRestarted)
    assert restarted.silent_s > 2.5


JOB = m.JobSpec("a", 10_000, 0.1, 1_000_000)
SCENARIOS: dict[str, Callable[[Process, Agent], Awaitable[None]]] = {
    each.__name__: each for each in (a_job_runs_on, it_ends_while_nobody_hears, the_lease_ends)
}


async def _play(name: str, process: Process) -> None:
    async with trio.open_nursery() as nursery:
        agent = Agent()
        nursery.start_soon(agent.run)
        with trio.fail_after(85.0):
            await SCENARIOS[name](process, agent)
        nursery.cancel_scope.cancel()


def marks_from(port: int, seen: socket.socket) -> set[int]:
    """Return the code points of captured TCP packets from a port, of resets without a socket apart."""
    seen.setblocking(False)
    marks = set()
    with suppress(BlockingIOError):
        while packet := seen.recv(64):
            tos, source, flags = struct.unpack("!xB18xH11xB", packet[:34])
            if source == port and packet[9] == socket.IPPROTO_TCP and not flags & RST:
                marks.add(tos >> 2)
    return marks


def play(name: str, folder: Path) -> None:
    """One scenario, in a namespace of this process's own."""
    unshare(CLONE_NEWNET)
    for argv in (["link", "set", "lo", "up"], ["address", "add", "10.1.0.1/32", "dev", "lo"]):
        subprocess.run(["ip", *argv], check=True)
    process = Process(folder)
    seen = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_IPV4))
    try:
        trio.run(_play, name, process, clock=MonotonicClock())
        assert marks_from(PORT, seen) == {TrafficClass.EMERGENCY.dscp}
    finally:
        for each in [process.now, *(each for each, _ in process.spare)]:
            each.kill()


@pytest.mark.kernel
@pytest.mark.apart
@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_coordinator_that_is_killed_and_started_again(name: str, tmp_path: Path) -> None:
    rehearse()  # else each coordinator loads the machine code of decisions
    process = get_context("fork").Process(target=play, args=(name, tmp_path))
    process.start()
    process.join(100)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode == 0, (tmp_path / "log").read_text()
