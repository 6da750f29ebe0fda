"""The processes of one attempt of a gang, without agents: started, followed, and killed at the end."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from testbed.workloads.launch import Interpreter, Launched
from testbed.workloads.lease import LeaseFile
from testbed.workloads.messages import Place, WorkloadSpec
from testbed.workloads.process import Event, WorkloadProcess

SPEC = WorkloadSpec(
    "synthetic", {"payload_bytes": 200_000, "steps": 60, "step_s": 0.01}, progress_per_s=1000.0
)
EXAMPLES = Path(__file__).parents[1] / "docs/examples"
HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.2"]


@dataclass
class Ranks:
    """The processes of one attempt, and all that each of them said."""

    path: Path
    lease: LeaseFile
    nursery: trio.Nursery
    processes: list[WorkloadProcess] = field(default_factory=list)
    said: list[list[Event]] = field(default_factory=list)

    async def launch(self, *descriptors: int) -> Launched:
        return Interpreter(*descriptors, cwd=EXAMPLES)

    async def start(self, attempt: int = 1, restore: list[Path | None] | None = None, **given: Any) -> None:
        """All ranks, or those of `numbers`."""
        hosts = given.get("hosts", HOSTS)
        self.processes, self.said = [], [[] for _ in hosts]
        for number in given.get("numbers", range(len(hosts))):
            place = Place("g", attempt, number, hosts)
            process = await WorkloadProcess.start(
                given.get("specs", [SPEC] * len(hosts))[number],
                launch=self.launch,
                restore=None if restore is None else restore[number],
                lease=self.lease,
                log=self.path / f"log{number}",
                place=place,
                snapshots=f"{self.path}/r{number}.",
            )
            self.processes.append(process)
            self.nursery.start_soon(self._follow, number, process)

    async def _follow(self, number: int, process: WorkloadProcess) -> None:
        async for event in process.events:
            self.said[number].append(event)

    async def wait(self, kind: type, number: int | None = None) -> list[Any]:
        """The first event of a kind, of every rank or of that one."""
        numbers = range(len(self.said)) if number is None else [number]
        with trio.fail_after(20.0):
            while True:
                found = [[e for e in self.said[n] if isinstance(e, kind)] for n in numbers]
                if all(found):
                    return [events[0] for events in found]
                await trio.sleep(0.01)


@asynccontextmanager
async def ranks(path: Path) -> AsyncIterator[Ranks]:
    lease = LeaseFile.create(path / "lease", time.monotonic() + 60.0)
    async with trio.open_nursery() as nursery:
        desk = Ranks(path, lease, nursery)
        try:
            yield desk
        finally:
            for process in desk.processes:
                with suppress(ProcessLookupError):
                    process.kill()


def sums_of_together(count: int, steps: int) -> list[int]:
    """What the ranks of `docs/examples/together.py` have in the end if nothing interrupts them."""
    numbers = list(range(1, count + 1))
    for _ in range(steps):
        total = sum(numbers)
        numbers = [(31 * number + total) % 1_000_003 for number in numbers]
    return numbers
