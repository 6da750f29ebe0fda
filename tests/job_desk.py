"""Jobs in processes of their own, for tests: started by one fork server, listened to, and none is left behind."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from testbed.program import Program, ProgramRun
from testbed.workloads.launch import ForkServer
from testbed.workloads.lease import LeaseFile
from testbed.workloads.messages import WorkloadSpec
from testbed.workloads.process import Event, WorkloadProcess

MANY_BYTES = 1 << 30


@dataclass
class Desk:
    """Starts jobs in a folder, where they look for modules and each has a log of its own."""

    path: Path
    lease: LeaseFile
    forks: ForkServer
    jobs: list[WorkloadProcess] = field(default_factory=list)

    async def start(self, spec: WorkloadSpec, restore: Path | None = None) -> WorkloadProcess:
        log = self.log_of(len(self.jobs) + 1)
        job = await WorkloadProcess.start(
            spec, restore=restore, lease=self.lease, log=log, launch=self.forks.launch
        )
        self.jobs.append(job)
        return job

    async def run(
        self, program: Program, restore: Path | None = None, *, steps: int = 400, **given: Any
    ) -> WorkloadProcess:
        """Start one more attempt of a program."""
        number = len(self.jobs) + 1
        folder = self.path / f"attempt{number}"
        folder.mkdir()
        settings = {"step_s": 0.002, "grace_s": 5.0, "most_bytes": MANY_BYTES, **given}
        run = ProgramRun(program, "a", number, str(folder), steps, **settings)
        return await self.start(WorkloadSpec("executable", {}, program=run), restore)

    def log_of(self, number: int) -> Path:
        return self.path / f"a.{number}.log"

    def log(self, number: int | None = None) -> str:
        """What a job printed, or what all did."""
        numbers = range(1, len(self.jobs) + 1) if number is None else (number,)
        return "".join(self.log_of(each).read_text() for each in numbers)

    async def until(self, text: str, number: int = 1) -> None:
        """Wait until a job has printed this."""
        with trio.fail_after(20.0):
            while text not in self.log(number):
                await trio.sleep(0.01)


@asynccontextmanager
async def desk(
    path: Path, lease_s: float = math.inf, within_s: float = 60.0, modules: Path | None = None
) -> AsyncIterator[Desk]:
    """`modules`: where jobs run and look for modules; by default in `path`."""
    lease = LeaseFile.create(path / "lease", time.monotonic() + lease_s)
    opened = Desk(path, lease, ForkServer(modules or path))
    try:
        with trio.fail_after(within_s):
            yield opened
    finally:
        with trio.CancelScope(shield=True):
            for job in opened.jobs:
                job.kill()
                await job.stop()
        opened.forks.close()
        lease.close()


async def next_of(job: WorkloadProcess, kind: type) -> Any:
    async for event in job.events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} came; {job.exited}")


async def all_events(job: WorkloadProcess) -> list[Event]:
    return [event async for event in job.events]
