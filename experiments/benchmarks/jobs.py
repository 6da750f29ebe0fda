"""Time of a job's start, from its agent's order to its first step: a bare fork, namespaces alone, and the whole sandbox.

The ways take turns, since a machine's speed changes from second to second; the jobs that were started go on.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, Final

import trio
from rich.table import Table

from experiments.benchmarks.frame import Goal, Result, Run, at_most, in_ms, table_of
from testbed import control_groups
from testbed.agent.core import events as ev
from testbed.agent.io.processes import JobProcesses
from testbed.checkpoints import CheckpointStore
from testbed.errors import SetupError
from testbed.messages import JobSpec
from testbed.workloads.launch import ForkServer, Launched
from testbed.workloads.lease import LeaseFile
from testbed.workloads.sandbox import Sandbox

STARTS, QUICK_STARTS = 250, 40
GOAL_S: Final = 0.006  # beyond a bare fork, in the median
WAYS: Final = ("fork", "namespaces", "sandbox")


def measure(run: Run) -> dict[str, Any]:
    """Start as many jobs in each way. SetupError: not root."""
    if os.geteuid() != 0:
        raise SetupError("measure jobs: jobs get a sandbox from root only (sudo)")
    return {"load": os.getloadavg()[0], "starts_s": trio.run(_start_jobs, run, QUICK_STARTS if run.quick else STARTS)}


async def _start_jobs(run: Run, count: int) -> dict[str, list[float]]:
    top = f"{control_groups.TOP}/{os.getpid():x}starts"
    started: dict[str, float] = {}

    def handle(event: ev.Event) -> None:
        if isinstance(event, ev.WorkloadStarted):
            started[event.job] = time.perf_counter()

    async def fork(sock: int, lease: int, output: int, _: Sandbox | None, __: bool) -> Launched:
        return await forks.launch(sock, lease, output, None, apart=False)

    took_s: dict[str, list[float]] = {way: [] for way in WAYS}
    with ExitStack() as opened:
        for folder in control_groups.folders(top):
            opened.callback(control_groups.remove, folder)
        store = opened.enter_context(CheckpointStore(run.folder / "store"))
        forks = opened.enter_context(ForkServer())
        lease = opened.enter_context(closing(LeaseFile.create(run.folder / "lease", math.inf)))
        ways = {
            way: JobProcesses(store, lease, run.folder, handle, fork if way == "fork" else forks.launch, group=group)
            for way, group in zip(WAYS, ("", "", f"{top}/h1"), strict=True)
        }
        async with trio.open_nursery() as nursery:
            for number, way in ((number, way) for number in range(count) for way in WAYS):
                spec = JobSpec(f"{way}{number}", 10**6, 1000.0, 1000, sandbox="auto" if way == "sandbox" else "none")
                ways[way].expect((spec.name, 1))
                began_s = time.perf_counter()
                nursery.start_soon(ways[way].run, spec, 1, None)
                while spec.name not in started:
                    await trio.sleep(0.0002)
                took_s[way].append(started[spec.name] - began_s)
            nursery.cancel_scope.cancel()
    return took_s


def goals(result: Result) -> Iterator[Goal]:
    """Yield what the sandbox adds beside its goal."""
    of = {way: statistics.median(found) for way, found in result["starts_s"].items()}
    yield at_most("a start in the sandbox, beyond a bare fork", of["sandbox"] - of["fork"], GOAL_S, in_ms)


def tables(result: Result) -> Iterator[Table]:
    """Yield the table of starts."""
    rows = [
        (way, *(in_ms(statistics.quantiles(found, n=100)[part]) for part in (9, 49, 89)))
        for way, found in result["starts_s"].items()
    ]
    yield table_of(f"starts of jobs; load {result['load']:.1f}", ("", "10 %", "median", "90 %"), rows)
