"""Two coordinators on one log: the one that follows takes over, the one before decides nothing more, jobs run on.

Each scenario is a process in a network namespace of its own, with two coordinators, an agent, and members of etcd.
"""

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing, suppress
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from controller.core.model import facts as f
from controller.core.parameters import Protocol, Queue
from controller.persistence.etcd import EtcdLog
from controller.persistence.journal import Journal, NoJournal, read_facts
from controller.persistence.recovery import JournalReplay
from controller.process import DEPOSED, CoordinatorConfig, _core, run_coordinator
from controller.warm_up import rehearse
from experiments.worlds.live.operator import connected
from testbed import messages as m
from testbed.agent.core import events as ev
from testbed.agent.io import coordinator_link
from testbed.agent.io.coordinator_link import CoordinatorLink
from testbed.clock import MonotonicClock
from testbed.linux import CLONE_NEWNET, unshare
from testbed.trust.channel import Credentials
from tests.etcd_members import Members, etcd_members, needs_etcd
from tests.patience import until
from tests.test_restart_process import JOB, Agent, _NoKernel, spare
from topologies.presets import three_tier

ADDRESS, PORTS = "10.1.0.1", (7100, 7101)
LEASE_S = 20.0  # a machine that many share starts a Python in seconds
DAY_S = 86_400.0
SPARE = 4  # coordinators that a scenario starts, at most
CAMPUS = three_tier(1, 1, 0)


def config_of(folder: Path, number: int, members: Any, follows: bool, proof: Credentials | None) -> CoordinatorConfig:
    """Of one of the two coordinators."""
    return CoordinatorConfig(
        CAMPUS,
        Protocol(lease_s=LEASE_S, heartbeat_s=0.25),
        Queue(),
        1,
        folder / (f"journal-{number}.sqlite" if members else "journal.sqlite"),
        folder / "o.sock",
        ADDRESS,
        PORTS[number],
        started_s=1.0,
        secret=b"x",
        members=tuple(map(tuple, members)),
        log_credentials=proof,
        other_journal=folder / f"journal-{1 - number}.sqlite" if members else None,
        paired=True,
        follows=follows,
    )


def serve(folder: Path, number: int, members: Any, follows: bool, proof: Credentials | None, ahead_s: float) -> None:
    """A coordinator whose calendar is ahead."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    calendar = time.time
    time.time = lambda: calendar() + ahead_s  # type: ignore[assignment]
    run_coordinator(config_of(folder, number, members, follows, proof))


class Pair:
    """Two coordinators and an agent with a connection to each."""

    def __init__(self, folder: Path, etcd: Members | None) -> None:
        self.folder, self.etcd = folder, cast(Members, etcd)  # of the scenarios that have it
        self.members: list[list[tuple[str, int]]] = [list(etcd.addresses) if etcd else []] * 2
        self.processes: dict[int, Any] = {}
        self.spare = [spare(serve) for _ in range(SPARE)]
        self.ahead_s = [0.0, 0.0]
        self.cable = Cable()  # to etcd, of the first
        self.agent = Agent()
        self.agent.link = CoordinatorLink(
            (ADDRESS, PORTS[0]), _NoKernel(), self.agent.handle, standby=(ADDRESS, PORTS[1])
        )

    def start(self, number: int) -> None:
        """As the world does: it follows where the other one lives."""
        other = self.processes.get(1 - number)
        follows = other is not None and other.is_alive()
        proof = self.etcd.credentials if self.etcd else None
        self.processes[number], begin = self.spare.pop()
        begin.send((self.folder, number, self.members[number], follows, proof, self.ahead_s[number]))

    def leader(self) -> int | None:
        """The one whose socket operators find."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.setblocking(False)  # one that is stopped accepts nobody
            try:
                asked.connect(str(self.folder / "o.sock"))
            except OSError:
                return None
            pid, _, _ = struct.unpack("iII", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return next((number for number, each in self.processes.items() if each.pid == pid), None)

    async def led_by(self, number: int) -> None:
        await until(lambda: self.leader() == number)

    async def follows(self, number: int) -> None:
        """Until that one has a connection of the agent, which says nothing on it."""
        await until(lambda: f":{PORTS[number]} " in subprocess.getoutput("ss -Htn state established"))

    def signal(self, number: int, signum: signal.Signals) -> None:
        os.kill(self.processes[number].pid, signum)
        if signum == signal.SIGKILL:
            self.processes[number].join(10)

    async def begun(self) -> None:
        """The first leads, the second follows, a job runs."""
        self.start(0)
        await self.led_by(0)
        self.start(1)
        async with connected(self.folder / "o.sock") as operator:
            assert await operator.submit(JOB) == m.Accepted("a")
        await until(lambda: self.count(f.JobRunning) == 1)
        await self.follows(1)

    @property
    def journals(self) -> list[Path]:
        return sorted(self.folder.glob("journal*.sqlite"))

    def facts(self) -> list[Any]:
        found = []
        for path in self.journals:
            with suppress(NoJournal):  # not begun
                found.append([fact for _, fact in read_facts(path)])
        return max(found, key=len, default=[])

    def count(self, kind: type) -> int:
        return sum(isinstance(fact, kind) for fact in self.facts())

    async def taken_over_by(self, number: int) -> None:
        """Another one leads, and the job runs on."""
        began_s = trio.current_time()
        await self.led_by(number)
        print(f"leads after {trio.current_time() - began_s:.2f} s")
        await self.the_job_runs_on()

    async def deposed(self, number: int) -> None:
        await until(lambda: self.processes[number].exitcode is not None)
        assert self.processes[number].exitcode == DEPOSED
        await self.the_job_runs_on()

    async def the_job_runs_on(self) -> None:
        """One attempt, never killed, under a lease that the present leader renews; it is heard when it ends."""
        lease_until_s = self.agent.core.lease.lease_until_s
        await until(lambda: self.agent.core.lease.lease_until_s > lease_until_s)
        assert (self.agent.started, self.agent.killed) == ([("a", 1)], [])
        async with connected(self.folder / "o.sock") as operator:
            assert [(job.job, job.phase, job.attempt) for job in (await operator.status()).jobs] == [
                ("a", "running", 1)
            ]

    async def end(self) -> None:
        """Let the job end, then both coordinators."""
        self.agent.handle(ev.WorkloadEnded(m.JobEnded("a", 1, "finished", JOB.steps, "d")))
        await until(lambda: self.count(f.JobFinished) == 1)
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.join(10)
        self.check_journals()

    def check_journals(self) -> None:
        """Every journal is decided again, from its first event to its last, and leads to its facts; both to the same."""
        told = []
        for path in self.journals:
            with closing(Journal(path)) as journal:
                journal._db.execute("DELETE FROM snapshot")
                replay = JournalReplay(journal, _core(config_of(self.folder, 0, self.members[0], False, None)))
                replay.advance()
                lines = list(journal.follow())
            epochs = [line.epoch for line in lines]
            assert epochs == sorted(epochs), "a line of a coordinator that was deposed stands"
            told.append((lines, list(read_facts(path))))
        told.sort(key=lambda each: len(each[0]))
        shorter, longer = told[0], told[-1]
        for one, other in zip(shorter, longer, strict=True):
            assert one == other[: len(one)]
        if self.etcd:
            with closing(EtcdLog(self.etcd.addresses, "test", self.etcd.credentials, 10.0)) as log:
                of_log = [(number, epoch, event) for number, epoch, _, event in log.follow(0)]
                assert [(number, epoch, event) for number, epoch, _, event in longer[0]] == of_log[: len(longer[0])]
        assert self.count(f.JobFinished) == 1


# ---------------------------------------------------------------- scenarios, in the namespace
async def killed(pair: Pair) -> None:
    """SIGKILL, of either one, twice."""
    for leader, other in ((0, 1), (1, 0)):
        pair.signal(leader, signal.SIGKILL)
        await pair.taken_over_by(other)
        pair.start(leader)
        await pair.follows(leader)
    assert pair.count(f.CoordinatorRestarted) == 2


async def stopped(pair: Pair) -> None:
    """SIGSTOP, 2 s, SIGCONT: the other leads meanwhile, and the first ends at its next line."""
    pair.signal(0, signal.SIGSTOP)
    began_s = trio.current_time()
    await pair.taken_over_by(1)
    await trio.sleep_until(began_s + 2.0)
    facts = len(pair.facts())
    pair.signal(0, signal.SIGCONT)
    await pair.deposed(0)
    assert len(pair.facts()) >= facts
    assert pair.count(f.HostLost) == 0 or pair.agent.killed == []
    pair.start(0)
    await pair.follows(0)


async def clock_differs(pair: Pair) -> None:
    """The calendars of the two are two days apart: one a day ahead, the other a day behind."""
    pair.signal(0, signal.SIGKILL)
    await pair.taken_over_by(1)
    with closing(Journal(pair.journals[0])) as journal:
        at_s = [line.at_s for line in journal.follow()]
    assert at_s == sorted(at_s)
    assert max(b - a for a, b in pairwise(at_s[1:])) < 60.0


async def disk_is_full(pair: Pair) -> None:
    """The leader ends of it, the other leads as soon as there is room."""
    ballast = pair.folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 9):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    await until(lambda: pair.processes[0].exitcode is not None)
    assert pair.processes[0].exitcode not in (0, DEPOSED)
    await trio.sleep(1.0)
    assert pair.processes[1].exitcode is None
    ballast.unlink()
    await pair.taken_over_by(1)


async def both_die(pair: Pair) -> None:
    """What starts first leads at once, and the agent finds it."""
    for number in (0, 1):
        pair.signal(number, signal.SIGKILL)
    pair.start(1)
    pair.start(0)
    await pair.taken_over_by(1)


async def etcds_leader_dies(pair: Pair) -> None:
    """No coordinator changes for it, or one that has its answers; nothing is lost."""
    pair.etcd.kill(pair.etcd.leader())
    await pair.the_job_runs_on()


async def both_leaders_die(pair: Pair) -> None:
    """The coordinator and etcd's leader at once."""
    of_etcd = pair.etcd.leader()
    pair.signal(0, signal.SIGKILL)
    pair.etcd.kill(of_etcd)
    await pair.taken_over_by(1)


async def cut_off_from_etcd(pair: Pair) -> None:
    """The leader is alone with its agent: nothing that it decides is heard, and it ends when it reaches etcd again."""
    pair.cable.cut()
    await pair.taken_over_by(1)
    assert pair.processes[0].exitcode is None
    pair.cable.is_cut = False
    await pair.deposed(0)


class Cable:
    """Connections to members of etcd, which can be cut."""

    def __init__(self) -> None:
        self.is_cut = False
        self.scopes: list[trio.CancelScope] = []

    def cut(self) -> None:
        self.is_cut = True
        for scope in self.scopes:
            scope.cancel()

    async def reach(self, target: tuple[str, int], task_status: Any) -> None:
        """Serve the near end, whose address is started with."""

        async def pump(a: trio.SocketStream, b: trio.SocketStream) -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for data in a:
                    await b.send_all(data)
            await trio.aclose_forcefully(b)  # the other end is gone

        async def serve_one(near: trio.SocketStream) -> None:
            if self.is_cut:
                await near.aclose()
                return
            with suppress(OSError):  # that member has died
                async with near, await trio.open_tcp_stream(*target) as far, trio.open_nursery() as nursery:
                    self.scopes.append(nursery.cancel_scope)
                    nursery.start_soon(pump, near, far)
                    nursery.start_soon(pump, far, near)

        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        task_status.started(("127.0.0.1", listeners[0].socket.getsockname()[1]))
        await trio.serve_listeners(serve_one, listeners)


Scenario = Callable[[Pair], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {
    each.__name__: each
    for each in (
        *(killed, stopped, clock_differs, disk_is_full, both_die),
        *(etcds_leader_dies, both_leaders_die, cut_off_from_etcd),
    )
}
ONLY_ETCD = {"etcds_leader_dies", "both_leaders_die", "cut_off_from_etcd"}


def play(name: str, folder: Path, with_etcd: bool) -> None:
    """One scenario, in a namespace of this process's own."""
    coordinator_link.PARK_WITHIN_S = 0.2  # the agent turns to the one that follows
    unshare(CLONE_NEWNET | 0x20000)  # and mounts
    for argv in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)],
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"],
    ):
        subprocess.run(argv, check=True)

    async def main(pair: Pair) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.agent.run)
            if name == "clock_differs":
                pair.ahead_s = [DAY_S, -DAY_S]
            pair.members[0] = [await nursery.start(pair.cable.reach, address) for address in pair.members[0]]
            with trio.fail_after(85.0):
                await pair.begun()
                await SCENARIOS[name](pair)
                await pair.end()
            nursery.cancel_scope.cancel()

    with ExitStack() as stack:
        beside = folder.with_name(f"{folder.name}-etcd")
        beside.mkdir()
        etcd = stack.enter_context(etcd_members(beside)) if with_etcd else None
        pair = Pair(folder, etcd)
        try:
            trio.run(main, pair, clock=MonotonicClock())
        except BaseException:
            print((folder / "log").read_text())
            raise
        finally:
            for process in [*pair.processes.values(), *(process for process, _ in pair.spare)]:
                process.kill()


@pytest.mark.kernel
@pytest.mark.apart
@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@pytest.mark.parametrize(
    ("name", "with_etcd"),
    [
        *((name, False) for name in SCENARIOS if name not in ONLY_ETCD),
        *(pytest.param(name, True, marks=[needs_etcd, pytest.mark.long]) for name in ("killed", "stopped")),
        *(pytest.param(name, True, marks=needs_etcd) for name in sorted(ONLY_ETCD)),
    ],
)
def test_a_coordinator_that_another_one_follows(name: str, with_etcd: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    rehearse()  # else each coordinator loads the machine code of decisions
    process = get_context("fork").Process(target=play, args=(name, folder, with_etcd))
    process.start()
    process.join(120)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode == 0
