"""Jobs in processes of their own, for tests: of a desk that listens to each, or of an agent that keeps their checkpoints."""

import math
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from testbed.agent.core import events as ev
from testbed.agent.io.processes import JobProcesses
from testbed.checkpoints import CheckpointStore
from testbed.messages import JobSpec, StoredCheckpoint
from testbed.program import Program
from testbed.workloads import criu
from testbed.workloads.base import StateCopy
from testbed.workloads.copying import CopiedSnapshot
from testbed.workloads.launch import ForkServer
from testbed.workloads.lease import LeaseFile
from testbed.workloads.messages import Snapshot, Start
from testbed.workloads.process import Event, WorkloadProcess
from tests.patience import until

MANY_BYTES = 1 << 30


def job_of(workload: str, params: dict[str, Any]) -> JobSpec:
    """A job that is described by its workload's own parameters."""
    return JobSpec("a", 1, 1.0, 1, workload, params)


@dataclass
class Desk:
    """Starts jobs in a folder, where they look for modules and each has a log of its own."""

    path: Path
    lease: LeaseFile
    forks: ForkServer
    jobs: list[WorkloadProcess] = field(default_factory=list)

    async def start(self, spec: JobSpec, restore: Path | None = None, folder: str = "") -> WorkloadProcess:
        """Start one more attempt of a job."""
        number = len(self.jobs) + 1
        order = Start(spec, number, None if restore is None else str(restore), folder)
        log = self.log_of(number)
        job = await WorkloadProcess.start(order, lease=self.lease, log=log, launch=self.forks.launch)
        self.jobs.append(job)
        return job

    async def run(
        self, program: Program, restore: Path | None = None, *, steps: int = 400, **given: Any
    ) -> WorkloadProcess:
        """Start one more attempt of a program."""
        folder = self.path / f"attempt{len(self.jobs) + 1}"
        folder.mkdir()
        settings = {"step_s": 0.002, "grace_s": 5.0, "payload_bytes": MANY_BYTES, **given}
        spec = JobSpec("a", steps, workload="executable", program=program, **settings)
        return await self.start(spec, restore, str(folder))

    def log_of(self, number: int) -> Path:
        return self.path / f"a.{number}.log"

    def log(self, number: int | None = None) -> str:
        """What a job printed, or what all did."""
        numbers = range(1, len(self.jobs) + 1) if number is None else (number,)
        return "".join(self.log_of(each).read_text() for each in numbers)

    async def until(self, text: str, number: int = 1) -> None:
        """Wait until a job has printed this."""
        await until(lambda: text in self.log(number))


@asynccontextmanager
async def desk(
    path: Path, lease_s: float = math.inf, within_s: float = 60.0, modules: Path | None = None
) -> AsyncIterator[Desk]:
    """`modules`: where jobs run and look for modules; by default in `path`."""
    lease = LeaseFile.create(path / "lease", math.inf)
    opened = Desk(path, lease, ForkServer(modules or path))
    try:
        with trio.fail_after(within_s):
            if lease_s < math.inf:  # it counts from when the server has started, which a busy machine delays
                await all_events(await opened.start(JobSpec("a", 1, 0.001, 1)))
                opened.jobs.clear()
                lease.extend(time.monotonic() + lease_s)
            yield opened
    finally:
        with trio.CancelScope(shield=True):
            for job in opened.jobs:
                job.kill()
                await job.stop()
        opened.forks.close()
        lease.close()


async def next_of(job: WorkloadProcess, kind: type) -> Any:
    async for event in job:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} came; {job.exited}")


async def all_events(job: WorkloadProcess) -> list[Event]:
    return [event async for event in job]


def begun_copy(path: Path, copy: StateCopy) -> tuple[CopiedSnapshot, list[Any]]:
    """A snapshot of a job that goes on, ready to be copied, and how it ends."""
    told: list[Any] = []
    snapshot = CopiedSnapshot(Snapshot(7, str(path), stop=False), copy, lambda: None, told.append)
    snapshot.wait_until_ready()
    return snapshot, told


class AgentJobs(JobProcesses):
    """The jobs of an agent, over a real store; it keeps the events that the agent was handed."""

    def __init__(self, store: CheckpointStore, lease: LeaseFile, path: Path, forks: ForkServer, **how: Any) -> None:
        self.store, self.forks, self.events = store, forks, list[ev.Event]()
        super().__init__(store, lease, path / "logs", self.events.append, forks.launch, **how)

    def begin(
        self, nursery: trio.Nursery, spec: JobSpec, attempt: int = 1, restore: StoredCheckpoint | None = None
    ) -> None:
        self.expect((spec.name, attempt))
        nursery.start_soon(self.run, spec, attempt, restore)

    async def until(self, kind: type[ev.Event]) -> Any:
        """The last event of that kind, as soon as there is one."""
        return (await until(lambda: [event for event in self.events if isinstance(event, kind)]))[-1]

    @property
    def scratch(self) -> list[str]:
        """What lies in the store that is no checkpoint."""
        return [path.name for path in (self.store.root / ".scratch").iterdir()]


@contextmanager
def agent_jobs(path: Path, forks: ForkServer | None = None, **how: Any) -> Iterator[AgentJobs]:
    """`forks`: a server that stands, and serves others after."""
    with (
        CheckpointStore(path / "store") as store,
        nullcontext(forks) if forks else ForkServer() as forks,
        closing(LeaseFile.create(path / "lease", math.inf)) as lease,
    ):
        yield AgentJobs(store, lease, path, forks, **how)


def why_no_criu() -> str:
    """Return why CRIU does not work on this machine, or nothing."""
    if os.geteuid() != 0:
        return "needs root"
    try:
        criu.command()
    except OSError as error:
        return str(error)
    return ""


needs_criu = pytest.mark.skipif(bool(why_no_criu()), reason=f"CRIU: {why_no_criu()}")
