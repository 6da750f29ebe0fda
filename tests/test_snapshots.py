"""Snapshots of jobs that go on: what is copied, when a job stands still instead, what is left of one that comes to nothing."""

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.speed import GAIN, SnapshotSpeeds
from testbed.messages import JobSpec, SnapshotCost
from testbed.workloads import copying, memory
from testbed.workloads.copying import CopiedSnapshot, PartsCopy, why_not
from testbed.workloads.synthetic import Synthetic
from tests.job_desk import AgentJobs, agent_jobs, begun_copy
from tests.patience import until


# ---------------------------------------------------------------- one copy
def begun(path: Path, size_bytes: int, parts: list[bytes | bytearray] | None) -> tuple[CopiedSnapshot, list[Any]]:
    return begun_copy(path, PartsCopy(lambda: parts, size_bytes))


def test_copy_is_the_state_at_the_moment_of_the_copy_whatever_the_job_does_then(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "snap")  # the write waits for a reader: by then the job has gone on
    state, trailer = bytearray(b"a" * 100_000), b"end"
    snapshot, told = begun(tmp_path / "snap", 100_003, [state, trailer])
    assert snapshot.ready
    assert snapshot.copy(step=5)
    assert not snapshot.ready
    state[:] = b"b" * len(state)
    assert (tmp_path / "snap").read_bytes() == b"a" * 100_000 + b"end"
    snapshot.join()
    [taken] = told
    assert (taken.number, taken.step, taken.stopped) == (7, 5, "")
    assert not snapshot.under_way


def test_state_that_has_no_parts_any_more_is_not_copied(tmp_path: Path) -> None:
    snapshot, told = begun(tmp_path / "snap", 10, None)
    assert not snapshot.copy(step=1)
    snapshot.join()
    assert snapshot.obstacle == copying.NO_PARTS
    assert told == []
    assert not (tmp_path / "snap").exists()


def test_copy_that_finds_no_room_on_the_disk_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "snap").symlink_to("/dev/full")
    snapshot, told = begun(tmp_path / "snap", 3, [b"abc"])
    assert snapshot.copy(step=1)
    snapshot.join()
    assert "No space left" in told[0].reason
    assert list(tmp_path.iterdir()) == []


def test_memory_of_a_copy_is_given_back(tmp_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before, size = resident(), 64 << 20
    snapshot, _ = begun(tmp_path / "snap", size, [b"x"])
    assert resident() - before > size / 2
    assert snapshot.copy(step=1)
    snapshot.join()
    assert resident() - before < size / 2


# ---------------------------------------------------------------- whether there is memory
def machine(path: Path, available_kb: int, cgroup: str = "") -> Path:
    (path / "self").mkdir(parents=True)
    (path / "meminfo").write_text(f"MemTotal: 999 kB\nMemAvailable:  {available_kb} kB\n")
    (path / "self/cgroup").write_text(cgroup)
    return path


def test_available_memory_is_the_least_of_the_machine_and_of_every_group_above(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    proc = machine(tmp_path / "proc", 1000, "0::/a/b\n")
    assert memory.available_bytes(proc, groups) == 1_024_000.0
    (groups / "a" / "b").mkdir(parents=True)
    (groups / "a/b/memory.max").write_text("max\n")
    (groups / "a/b/memory.current").write_text("5\n")
    assert memory.available_bytes(proc, groups) == 1_024_000.0
    (groups / "a/memory.max").write_text("1000\n")
    (groups / "a/memory.current").write_text("900\n")
    assert memory.available_bytes(proc, groups) == 100.0
    (groups / "a/memory.stat").write_text("anon 3\ninactive_file 40\n")
    assert memory.available_bytes(proc, groups) == 140.0
    assert memory.available_bytes(machine(tmp_path / "tight", 0, "0::/a/b\n"), groups) == 0.0


def test_copy_needs_room_for_itself_and_for_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "available_bytes", lambda: 200e6)
    assert why_not(PartsCopy(lambda: None, 100_000_000)) == ""
    assert why_not(PartsCopy(lambda: None, 101_000_000)) == "200 MB of memory are available, a copy needs 202"
    assert why_not(None) == copying.NO_PARTS


# ---------------------------------------------------------------- what a host has measured
def test_speeds_are_exponential_averages_of_seconds_a_byte() -> None:
    speeds = SnapshotSpeeds()
    size = 100_000_000
    speeds.observe(1 << 20, SnapshotCost(9.0, 9.0), final=False)  # too small to show a speed
    speeds.observe(size, SnapshotCost(9.0, 0.1), final=True)  # it stops the job anyway: its write alone counts
    assert speeds.told is None
    speeds.observe(size, SnapshotCost(0.01, 0.1), final=False)
    speeds.observe(size, SnapshotCost(0.02, 0.3), final=False)
    told = speeds.told
    assert size / told.pause_bytes_per_s == pytest.approx(0.01 + GAIN * 0.01)
    assert size / told.write_bytes_per_s == pytest.approx(0.1 + GAIN * 0.2)


# ---------------------------------------------------------------- an agent's jobs
SPEC = JobSpec("job", 100_000, 0.01, 300_000)
KEY = ("job", 1)


@asynccontextmanager
async def running(path: Path, **how: bool) -> AsyncIterator[AgentJobs]:
    """A job that computes."""
    with agent_jobs(path, **how) as agent:
        async with trio.open_nursery() as nursery:
            agent.begin(nursery, SPEC)
            await agent.until(ev.WorkloadStarted)
            yield agent
            agent.kill(KEY)


ORDER = do.TakeSnapshot("job", 1, 1_000_001, False)


@pytest.mark.alone
@pytest.mark.parametrize("snapshots_stop", [False, True])
async def test_snapshot_is_in_the_store_and_says_what_it_took(tmp_path: Path, snapshots_stop: bool) -> None:
    async with running(tmp_path, snapshots_stop=snapshots_stop) as agent:
        await agent.take_snapshot(ORDER)
        done = await agent.until(ev.SnapshotDone)
        assert done.cost.stopped == ""
        assert done.cost.pause_s > 0.0
        assert (done.cost.pause_s < done.cost.write_s) or not snapshots_stop
        restored = Synthetic({"payload_bytes": 300_000, "steps": 100_000, "step_s": 0.01})
        restored.load(agent.store.payload(agent.store.get("job", 1_000_001)))
        assert restored.step_number == done.checkpoint.step
        restored.verify()
        for sequence in (1_000_002, 1_000_003):
            await agent.take_snapshot(replace(ORDER, sequence=sequence))
        assert [known.sequence for known in agent.store.manifests()] == [1_000_002, 1_000_003]
        [room] = agent.scratch
        assert list((agent.store.root / ".scratch" / room).iterdir()) == []


@asynccontextmanager
async def half_written(agent: AgentJobs) -> AsyncIterator[None]:
    """While a snapshot is being written that cannot be written to its end: into a pipe that nobody empties."""
    fifo = agent._rooms[KEY].snapshot(1_000_001)
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.take_snapshot, ORDER)
        reader = await trio.to_thread.run_sync(os.open, fifo, os.O_RDONLY)  # until the writer has opened it
        try:
            yield
            await agent.until(ev.SnapshotFailed)
            await until(lambda: not agent.scratch)  # nothing of the job is left but checkpoints
            assert agent.store.manifests() == []
        finally:
            os.close(reader)


@pytest.mark.alone
async def test_job_goes_on_while_its_snapshot_is_written_and_killed_then_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as agent:
        pid = agent._running[KEY].pid
        async with half_written(agent):
            for _ in range(3):
                agent.events.clear()
                await agent.until(ev.WorkloadsProgressed)
            agent.kill(KEY)
        assert "SIGKILL" in (await agent.until(ev.SnapshotFailed)).reason
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.alone
async def test_snapshot_that_was_written_when_its_attempt_was_killed_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence comes between the last byte and the store's word."""
    async with running(tmp_path) as agent:
        ingest, reached, go_on = agent.store.ingest, threading.Event(), threading.Event()

        def slow(*args: object) -> object:
            reached.set()
            go_on.wait()
            return ingest(*args)

        monkeypatch.setattr(agent.store, "ingest", slow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.take_snapshot, ORDER)
            await until(reached.is_set)
            agent.kill(KEY)
            go_on.set()
        assert (await agent.until(ev.SnapshotFailed)).reason == "the job was killed meanwhile"
        assert agent.store.manifests() == []
        await until(lambda: not agent.scratch)
