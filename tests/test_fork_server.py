"""Jobs that a fork server forks, as a pool of agents has one: they live as jobs with an interpreter of their own do."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from testbed.workloads.launch import ForkServer
from testbed.workloads.lease import LeaseFile
from testbed.workloads.messages import Finished, Started, WorkloadSpec
from testbed.workloads.process import Event, Exited, WorkloadProcess
from tests.test_workloads_process import state_of

pytestmark = [pytest.mark.alone, pytest.mark.trio]


def stepping(steps: int, step_s: float = 0.01) -> WorkloadSpec:
    return WorkloadSpec("synthetic", {"payload_bytes": 1000, "steps": steps, "step_s": step_s})


@asynccontextmanager
async def forks(path: Path, lease_s: float = math.inf) -> AsyncIterator[tuple[ForkServer, LeaseFile]]:
    lease, server = LeaseFile.create(path / "lease", time.monotonic() + lease_s), ForkServer()
    try:
        with trio.fail_after(30):
            yield server, lease
    finally:
        server.close()
        lease.close()


async def start(
    forks: tuple[ForkServer, LeaseFile], path: Path, spec: WorkloadSpec, restore: Path | None = None
) -> WorkloadProcess:
    server, lease = forks
    return await WorkloadProcess.start(
        spec, restore=restore, lease=lease, log=path / "log", launch=server.launch
    )


async def lives(job: WorkloadProcess) -> list[Event]:
    return [event async for event in job.events]


async def test_jobs_of_one_server_run_to_their_ends_and_prove_their_states(tmp_path: Path) -> None:
    async with forks(tmp_path) as served:
        jobs = [await start(served, tmp_path, stepping(steps)) for steps in (3, 5, 8)]
        assert len({os.getsid(job.pid) for job in jobs}) == 3
        for steps, job in zip((3, 5, 8), jobs, strict=True):
            *_, finished, exited = await lives(job)
            assert isinstance(finished, Finished)
            assert finished.step == steps
            assert exited == Exited(0, "ended")
            assert state_of(job.pid) is None, "it is reaped"


async def test_snapshot_of_a_forked_job_is_where_the_next_one_begins(tmp_path: Path) -> None:
    async with forks(tmp_path) as served:
        job = await start(served, tmp_path, stepping(100_000, 0.001))
        assert isinstance(await job.receive(), Started)
        taken = await job.snapshot(tmp_path / "snapshot")
        job.kill()
        assert (await lives(job))[-1] == Exited(-signal.SIGKILL, "killed by SIGKILL")
        again = await start(served, tmp_path, stepping(100_000, 0.001), tmp_path / "snapshot")
        started = await again.receive()
        assert isinstance(started, Started)
        assert started.step == taken.step
        again.kill()
        await lives(again)


async def test_lapsed_lease_ends_a_forked_job(tmp_path: Path) -> None:
    async with forks(tmp_path, lease_s=0.6) as served:
        exited = (await lives(await start(served, tmp_path, stepping(100_000))))[-1]
        assert isinstance(exited, Exited)
        assert exited.lease_lapsed


async def test_server_that_is_killed_takes_its_jobs_with_it_and_the_next_job_has_another(
    tmp_path: Path,
) -> None:
    async with forks(tmp_path) as served:
        job = await start(served, tmp_path, stepping(100_000))
        assert isinstance(await job.receive(), Started)
        server = int(Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(server, signal.SIGKILL)
        exited = (await lives(job))[-1]
        assert isinstance(exited, Exited)
        assert exited.from_outside, "it may resume elsewhere"
        assert isinstance((await lives(await start(served, tmp_path, stepping(2))))[-2], Finished)
