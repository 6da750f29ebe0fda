"""A job in a process of its own: it can be heard, snapshotted, moved and ended, and never outlives its right to run."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from testbed.linux import children_of
from testbed.messages import JobSpec
from testbed.workloads.lease import LeaseFile
from testbed.workloads.messages import Failed, Finished, Progress, Started
from testbed.workloads.process import KILLS, Exited, ProcessGone, SnapshotImpossible, WorkloadProcess
from testbed.workloads.runner import EXIT_LEASE_LAPSED, TELL_S
from testbed.workloads.synthetic import Synthetic
from tests.job_desk import Desk, all_events, desk, job_of, next_of
from tests.patience import until

pytestmark = pytest.mark.alone

PAYLOAD = 300_000


def synthetic(steps: int = 40, step_s: float = 0.005, **params: Any) -> JobSpec:
    described = {"payload_bytes": PAYLOAD, "steps": steps, "step_s": step_s, **params}
    return job_of("synthetic", described)


def state_digest(step: int) -> bytes:
    workload = Synthetic({"payload_bytes": PAYLOAD, "steps": 10_000})
    workload.begin()
    for _ in range(step):
        workload.step()
    return workload.verify()


def third_party(path: Path, body: str) -> JobSpec:
    """A workload module that a user might write, in the job's working directory."""
    code = """
        import os, time
        from pathlib import Path
        from testbed.workloads.base import Workload

        class Mine(Workload):
            steps_total = 1000
            def begin(self): self.step_number = 0
            def step(self):
                self.work()
                self.step_number += 1
            def save(self, path): path.write_text(str(self.step_number))
            def load(self, path): self.step_number = int(path.read_text())
            def verify(self): return b"mine"
    """
    (path / "mine.py").write_text(textwrap.dedent(code) + textwrap.indent(textwrap.dedent(body), "    "))
    return job_of("mine:Mine", {})


@asynccontextmanager
async def begun(path: Path, spec: JobSpec, lease_s: float = math.inf) -> AsyncIterator[tuple[Desk, WorkloadProcess]]:
    async with desk(path, lease_s) as d:
        yield d, await d.start(spec)


@asynccontextmanager
async def running(path: Path, **how: Any) -> AsyncIterator[WorkloadProcess]:
    """A job that computes."""
    async with begun(path, synthetic(steps=1000, **how)) as (_, job):
        await next_of(job, Started)
        yield job


async def outlived_by_no(child: int) -> None:
    await until(lambda: state_of(child) in (None, "Z"))


async def test_job_runs_to_its_end_and_proves_its_state(tmp_path: Path) -> None:
    began_s = time.monotonic()
    async with desk(tmp_path) as d:
        events = await all_events(await d.start(synthetic(steps=60, step_s=0.001)))
        assert events[0] == Started(0, state_digest(0))
        assert events[-2:] == [Finished(60, state_digest(60)), Exited(0, "ended with exit code 0")]
        steps = [event.step for event in events[1:-2] if isinstance(event, Progress)]
        assert len(steps) == len(events) - 3 <= 1.0 + (time.monotonic() - began_s) / TELL_S
        assert steps == sorted(set(steps))
        assert d.log() == ""


async def test_jobs_of_one_server_are_sessions_of_their_own_and_reaped_and_outlived_by_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        jobs = [await d.start(synthetic(steps=steps)) for steps in (3, 5, 100_000)]
        assert len({os.getsid(job.pid) for job in jobs}) == 3
        for steps, job in zip((3, 5), jobs, strict=False):
            assert await next_of(job, Finished) == Finished(steps, state_digest(steps))
            assert await next_of(job, Exited) == Exited(0, "ended with exit code 0")
            assert state_of(job.pid) is None, "it is reaped"
        await next_of(jobs[2], Progress)
        os.kill(d.forks.pid, signal.SIGKILL)
        assert (await next_of(jobs[2], Exited)).from_outside, "it may resume elsewhere"
        assert (await next_of(await d.start(synthetic(steps=2)), Finished)).step == 2, "there is another server"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def work(self): self.step_number -= 1", "step_number = 0: 1: step() has to advance it by one"),
        (
            "def work(self): pass\n\ndef verify(self): return 'mine'",
            "verify() = 'mine': bytes: the digest of the state",
        ),
    ],
)
async def test_a_workload_that_keeps_no_count_or_proves_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    async with begun(tmp_path, third_party(tmp_path, body)) as (_, job):
        events = await all_events(job)
        assert [said in event.reason for event in events if isinstance(event, Failed)] == [True]


async def test_restored_job_goes_on_from_the_snapshot_in_a_new_process(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        first = await d.start(synthetic(steps=1000))
        while (await next_of(first, Progress)).step < 5:
            pass
        taken = await first.snapshot(tmp_path / "snap")
        first.kill()
        assert taken.step >= 5
        second = await d.start(synthetic(steps=taken.step + 3), restore=tmp_path / "snap")
        events = await all_events(second)
        assert events[0] == Started(taken.step, state_digest(taken.step))
        assert Finished(taken.step + 3, state_digest(taken.step + 3)) in events


async def test_snapshots_are_taken_while_the_job_runs_on(tmp_path: Path) -> None:
    async with running(tmp_path, step_s=0.002) as job:
        taken = [await job.snapshot(tmp_path / f"snap{n}") for n in range(5)]
        await next_of(job, Progress)
        steps = [t.step for t in taken]
        assert steps == sorted(steps)
        for snapshot, number in zip(taken, range(5), strict=True):
            workload = Synthetic({"payload_bytes": PAYLOAD, "steps": 1000})
            workload.load(tmp_path / f"snap{number}")
            assert workload.verify() == state_digest(snapshot.step)


async def test_snapshots_that_are_ordered_at_once_are_all_taken(tmp_path: Path) -> None:
    paths = [tmp_path / f"snap{number}" for number in range(3)]
    async with running(tmp_path, step_s=0.002) as job:
        async with trio.open_nursery() as nursery:
            for path in paths:
                nursery.start_soon(job.snapshot, path)
        assert all(path.exists() for path in paths)


async def test_workload_whose_state_grows_is_copied_once_there_is_room_for_it(tmp_path: Path) -> None:
    spec = third_party(
        tmp_path,
        """
        def work(self): time.sleep(0.001)
        def parts(self):
            self.asked = getattr(self, "asked", 0) + 1
            return [bytes(10 if self.asked == 1 else 20)]
        def save(self, path): path.write_bytes(bytes(20))
        """,
    )
    async with begun(tmp_path, spec) as (_, job):
        first, second = [await job.snapshot(tmp_path / f"snap{n}") for n in (1, 2)]
        assert first.stopped == "the state has grown to 20 bytes, there is room for 10"
        assert second.stopped == ""


async def test_snapshot_that_cannot_be_written_leaves_the_job_running(tmp_path: Path) -> None:
    async with running(tmp_path) as job:
        with pytest.raises(SnapshotImpossible, match="No such file"):
            await job.snapshot(tmp_path / "nowhere" / "snap")
        assert (await job.snapshot(tmp_path / "snap")).step >= 0
        await next_of(job, Progress)


async def test_rotten_state_is_never_run(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        job = await d.start(synthetic(steps=1000))
        await job.snapshot(tmp_path / "snap")
        with (tmp_path / "snap").open("r+b") as file:
            file.seek(1000)
            file.write(b"rot")
        events = await all_events(await d.start(synthetic(), restore=tmp_path / "snap"))
        assert isinstance(events[0], Failed)
        assert "StateMismatch" in events[0].reason
        assert events[1:] == [Exited(1, "failed; see its log")]
        missing = await d.start(synthetic(), restore=tmp_path / "missing")
        assert "No such file" in (await next_of(missing, Failed)).reason


async def test_error_in_a_workload_is_told_and_its_traceback_is_in_the_log(tmp_path: Path) -> None:
    spec = third_party(tmp_path, "def work(self): raise ZeroDivisionError('oh')")
    async with begun(tmp_path, spec) as (d, job):
        assert (await next_of(job, Failed)).reason == "ZeroDivisionError: oh"
        assert await next_of(job, Exited) == Exited(1, "failed; see its log")
        assert "in work" in d.log()


async def test_killed_job_is_gone_and_answers_nothing_more(tmp_path: Path) -> None:
    async with running(tmp_path) as job:
        job.kill()
        assert await next_of(job, Exited) == Exited(-9, "killed by SIGKILL")
        with pytest.raises(ProcessGone, match="SIGKILL"):
            await job.snapshot(tmp_path / "snap")
        with pytest.raises(StopAsyncIteration):
            await anext(job)
        job.kill()
        assert (await job.stop()).status == -9
        assert not Path(f"/proc/{job.pid}").exists()


@pytest.mark.parametrize("blow", KILLS)
async def test_signal_that_the_agent_did_not_send_is_told_as_one_from_outside(
    tmp_path: Path, blow: signal.Signals
) -> None:
    async with running(tmp_path) as job:
        os.kill(job.pid, blow)
        exited = await next_of(job, Exited)
        assert exited == Exited(-blow, f"killed by {blow.name}", from_outside=True)


@pytest.mark.parametrize("step", [2**62 + 1, 2**63])
async def test_job_that_says_a_step_which_no_message_carries_is_ended_and_named(tmp_path: Path, step: int) -> None:
    """Its agent repeated it in every Hello, and no coordinator took that host again."""
    spec = third_party(
        tmp_path, f"def work(self): time.sleep(0.01); self.step_number = {step} - 1; self.steps_total = 2**70"
    )
    async with begun(tmp_path, spec) as (_, job):
        exited = await next_of(job, Exited)
        assert (exited.status, exited.from_outside) == (-9, False)
        assert "ended for what it said" in exited.reason
        assert "$.step" in exited.reason


async def test_kill_during_a_snapshot_ends_the_wait_for_it(tmp_path: Path) -> None:
    async with running(tmp_path) as job:
        os.kill(job.pid, signal.SIGSTOP)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ProcessGone):
                    await job.snapshot(tmp_path / "snap")

            nursery.start_soon(ask)
            await trio.sleep(0.02)
            job.kill()


FORKS = """
def work(self):
    if self.step_number == 0:
        {before}
        pid = os.fork()
        if pid == 0:
            {child}
            time.sleep(60)
            os._exit(0)
        Path("child").touch()
    time.sleep(0.01)
"""


async def test_kill_takes_the_jobs_own_children_along(tmp_path: Path) -> None:
    spec = third_party(tmp_path, FORKS.format(before="pass", child="pass"))
    async with begun(tmp_path, spec) as (_, job):
        await next_of(job, Progress)
        [child] = children_of(job.pid)
        job.kill()
        await next_of(job, Exited)
        await outlived_by_no(child)


@pytest.mark.parametrize("dies", [True, False])
async def test_job_whose_child_lives_on_has_ended_and_its_child_ends(tmp_path: Path, dies: bool) -> None:
    # as a fork that Python is not told of keeps its socket: a library's, in C
    keeps_it = 'for fd in os.listdir("/proc/self/fd")[:-1]: os.dup(int(fd))'
    spec = third_party(tmp_path, FORKS.format(before=keeps_it, child="pass"))
    async with begun(tmp_path, spec) as (d, job):
        await until((tmp_path / "child").exists)
        [child] = children_of(job.pid)
        if dies:
            os.kill(job.pid, signal.SIGKILL)
        else:
            d.lease.extend(time.monotonic())
        exited = await next_of(job, Exited)
        assert (exited.from_outside, exited.lease_lapsed) == (dies, not dies)
        await outlived_by_no(child)


async def test_child_that_a_job_forks_holds_no_socket_of_the_agents(tmp_path: Path) -> None:
    says = 'os.system("ls -l /proc/$PPID/fd > fds"); os.rename("fds", "held")'
    spec = third_party(tmp_path, FORKS.format(before="pass", child=says))
    async with desk(tmp_path) as d:
        await d.start(spec)
        await until((tmp_path / "held").exists)
        assert "socket:" not in (tmp_path / "held").read_text()


async def test_no_secret_of_the_operators_environment_reaches_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "a-secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    says = "def work(self): os.system('env; cat /proc/$PPID/environ') or os._exit(0)"
    async with begun(tmp_path, third_party(tmp_path, says)) as (d, job):
        await all_events(job)
        assert "a-secret" not in d.log()
        assert {"OMP_NUM_THREADS=1", f"PATH={os.environ['PATH']}"} <= set(d.log().splitlines())


async def test_job_that_does_not_listen_is_killed_by_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.workloads.process.STOP_GRACE_S", 0.05)
    spec = third_party(tmp_path, "def work(self): Path('deaf').touch(); time.sleep(60)")
    async with begun(tmp_path, spec) as (_, job):
        await until((tmp_path / "deaf").exists)
        assert (await job.stop()).status == -9


@pytest.mark.parametrize("work", ["time.sleep(60)", "[0 for _ in iter(int, 1)]"])
async def test_lease_ends_a_job_in_the_middle_of_a_long_step(tmp_path: Path, work: str) -> None:
    async with begun(tmp_path, third_party(tmp_path, f"def work(self): {work}"), lease_s=1.0) as (d, job):
        exited = await next_of(job, Exited)
        assert exited.lease_lapsed
        assert exited.status == EXIT_LEASE_LAPSED
        assert d.lease.left_s() <= 0.0


async def test_job_stopped_beyond_its_lease_takes_no_further_step(tmp_path: Path) -> None:
    spec = third_party(tmp_path, "def work(self): open('steps', 'ab').write(b'.'); time.sleep(0.001)")
    async with begun(tmp_path, spec) as (d, job):
        await next_of(job, Progress)
        os.kill(job.pid, signal.SIGSTOP)
        await until(lambda: state_of(job.pid) == "T")
        before = (tmp_path / "steps").stat().st_size
        d.lease.extend(time.monotonic())
        os.kill(job.pid, signal.SIGCONT)
        assert (await next_of(job, Exited)).lease_lapsed
        assert (tmp_path / "steps").stat().st_size <= before + 1  # the step it was stopped in


AGENT = """
import json, os, sys, time, trio
from pathlib import Path
from testbed.workloads.launch import ForkServer
from testbed.workloads.lease import LeaseFile
from testbed.messages import JobSpec
from testbed.workloads.messages import Start
from testbed.workloads.process import WorkloadProcess

async def main():
    root = Path(sys.argv[1])
    lease = LeaseFile.create(root / "lease", 1e9)
    order = Start(JobSpec("a", 1000000, 0.01, 1), 1, None)
    forks = ForkServer()
    job = await WorkloadProcess.start(order, lease=lease, log=root / "log", launch=forks.launch)
    await anext(job)
    print(json.dumps(job.pid), flush=True)
    async for event in job:
        pass

trio.run(main)
"""


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
async def test_job_does_not_outlive_an_agent_that_is_killed_or_stopped(tmp_path: Path, blow: signal.Signals) -> None:
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        job = json.loads(agent.stdout.readline())
        assert state_of(job) in ("S", "R", "D")
        agent.send_signal(blow)
        if blow is signal.SIGSTOP:  # it extends nothing any more, and the lease lapses
            LeaseFile(os.open(tmp_path / "lease", os.O_RDWR)).extend(time.monotonic())
        await outlived_by_no(job)
    finally:
        agent.send_signal(signal.SIGKILL)
        agent.communicate()


def state_of(pid: int) -> str | None:
    """The kernel's letter for a process's state; None if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def test_lease_is_shared_through_the_file(tmp_path: Path) -> None:
    lease = LeaseFile.create(tmp_path / "lease", 12.5)
    reader = LeaseFile(os.open(tmp_path / "lease", os.O_RDWR))
    before_s = time.monotonic()
    assert 12.5 - before_s >= reader.left_s() >= 12.5 - time.monotonic()
    lease.extend(math.inf)
    assert reader.left_s() > 1e9
    lease.extend(time.monotonic() - 1.0)
    assert reader.left_s() < 0.0
    replaced = LeaseFile.create(tmp_path / "lease", math.inf)
    assert reader.left_s() < 0.0
    for each in (lease, reader, replaced):
        each.close()
