"""A job in its sandbox gets at nothing that is not its own, and takes no more than its share: each attempt within ten seconds."""

import mmap
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from testbed import control_groups
from testbed.agent.core import events as ev
from testbed.agent.io import job_rooms
from testbed.agent.io.processes import stored_checkpoint
from testbed.checkpoints import BadManifest
from testbed.messages import JobSpec, StoredCheckpoint
from testbed.workloads import sandbox
from testbed.workloads.launch import ForkServer
from tests.job_desk import AgentJobs, agent_jobs
from tests.patience import until
from tests.prisoner import escapes

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.apart,
    pytest.mark.timeout(60),
    pytest.mark.skipif(os.geteuid() != 0 or bool(sandbox.lacks()), reason=f"no whole sandbox here: {sandbox.lacks()}"),
]
WITHIN_S = 10.0
NOWHERE = {
    "pid": os.getpid(),
    "port": 9,
    "restore": "",
    "group": "",
    "key": "",
    "other": "",
    "socket": "",
    "abstract": "",
}
# attempts that do no harm where they are not refused: the test sees that a job outside of a sandbox gets in
HARMLESS = {
    "key of the agent", "folder of another job", "root's home", "shadow", "raw socket", "packet socket", "coordinator",
    "abstract socket", "socket in /tmp", "clone into namespaces", "setns", "key ring",
}  # fmt: skip


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


@pytest.fixture
def host() -> Iterator[str]:
    """A host's control group of 200 MB; no job of it is left."""
    campus = f"{control_groups.TOP}/{os.getpid():x}escapes"
    name = f"{campus}/h1"
    control_groups.make(name, memory_bytes=200e6, cpu=0.9)
    try:
        yield name
    finally:
        for folder in control_groups.folders(campus):
            control_groups.remove(folder)


@pytest.fixture
def surroundings(tmp_path: Path, host: str) -> Iterator[dict[str, Any]]:
    """What is worth getting at: a key, another job's folder, sockets that anybody may use."""
    key, other, listening = tmp_path / "key", tmp_path / "other", Path(f"/tmp/escapes-{os.getpid()}")
    key.write_text("secret")
    key.chmod(0o600)
    other.mkdir(mode=0o700)
    with ExitStack() as opened:
        tcp = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        for address in (str(listening), f"\0{listening}"):
            unix = opened.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(address)
            unix.listen()
        listening.chmod(0o777)
        opened.callback(listening.unlink)
        [group, *_] = control_groups.folders(host, ["pids"])
        places = {"key": key, "other": other, "socket": listening, "abstract": listening, "group": group}
        yield NOWHERE | {name: str(place) for name, place in places.items()} | {"port": tcp.getsockname()[1]}


def job(escape: str, at: dict[str, Any], **given: Any) -> JobSpec:
    described = {"sandbox": "required", **given}
    return JobSpec("a", 1, 1.0, 1, "tests.prisoner:Prisoner", {**at, "escape": escape}, **described)


async def outcome(
    jobs: AgentJobs, spec: JobSpec, path: Path, restore: StoredCheckpoint | None = None
) -> tuple[ev.WorkloadEnded, str]:
    with trio.fail_after(WITHIN_S):
        jobs.expect((spec.name, 1))
        await jobs.run(spec, 1, restore)
        log = path / "logs/a.1.log"
        return await jobs.until(ev.WorkloadEnded), log.read_text() if log.exists() else ""


async def logged(log: Path, word: str) -> None:
    await until(lambda: log.exists() and word in log.read_text())


@pytest.mark.parametrize("escape", escapes(NOWHERE))
async def test_attempt_to_reach_out_is_refused(
    tmp_path: Path, forks: ForkServer, host: str, surroundings: dict[str, Any], escape: str
) -> None:
    with agent_jobs(tmp_path, forks, group=host) as jobs:
        stored = jobs.store.scratch("a", 1)
        stored.write_text("state")
        manifest = jobs.store.ingest("a", 1, 0, stored)
        surroundings["restore"] = str(jobs.store.payload(manifest))
        ended, log = await outcome(jobs, job(escape, surroundings), tmp_path, stored_checkpoint(manifest))
        assert (ended.ended.outcome, log[:8]) == ("finished", "refused:"), log
        if escape in HARMLESS:
            free = msgspec.structs.replace(job(escape, surroundings), name="b", sandbox="none")
            jobs.expect(("b", 1))
            await jobs.run(free, 1, None)
            assert "inside:" in (tmp_path / "logs/b.1.log").read_text()


async def test_fork_bomb_ends_at_its_limit_and_leaves_nothing(
    tmp_path: Path, forks: ForkServer, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_rooms, "MAX_PROCESSES", 40)
    with agent_jobs(tmp_path, forks, group=host) as jobs:
        ended, log = await outcome(jobs, job("fork bomb", NOWHERE), tmp_path)
        assert ended.ended.outcome == "finished"
        assert "Resource temporarily unavailable" in log
        assert jobs.scratch == []
    [group] = control_groups.folders(host, ["pids"])
    assert list(group.glob("*/")) == []


async def test_job_has_its_hosts_share_of_processors_and_its_own_user(
    tmp_path: Path, forks: ForkServer, host: str
) -> None:
    with agent_jobs(tmp_path, forks, group=host) as jobs:
        async with trio.open_nursery() as nursery:
            jobs.begin(nursery, job("waits", NOWHERE))
            await jobs.until(ev.WorkloadStarted)
            about = Path(f"/proc/{(pid := jobs._running[('a', 1)].pid)}")
            groups = [line.rpartition(":")[2] for line in (about / "cgroup").read_text().splitlines()]
            of_host = [group for group in groups if group.startswith(f"/{host}")]
            assert set(of_host) <= {f"/{host}", f"/{host}/a.1"} and len(of_host) == len(
                control_groups.folders(host, ["cpu", "memory", "pids"])
            )
            uids = next(line for line in (about / "status").read_text().splitlines() if line.startswith("Uid"))
            assert set(uids.split()[1:]) == {str(sandbox.OF_JOBS + pid)}
            jobs.kill(("a", 1))


async def test_job_that_takes_too_much_memory_has_failed_and_says_so(
    tmp_path: Path, forks: ForkServer, host: str
) -> None:
    with agent_jobs(tmp_path, forks, group=host) as jobs:
        ended, _ = await outcome(jobs, job("400 MB", NOWHERE), tmp_path)
        assert (ended.ended.outcome, "more memory" in ended.ended.reason) == ("failed", True)


async def test_job_that_takes_all_memory_is_ended_before_others(
    tmp_path: Path, forks: ForkServer, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_of_byte = 1.0 / (os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE)
    monkeypatch.setattr(job_rooms, "JOBS_SHARE", 600e6 * share_of_byte)
    monkeypatch.setattr(job_rooms, "JOB_SHARE", 400e6 * share_of_byte)
    with agent_jobs(tmp_path, forks, group=f"{Path(host).parent}/unlimited/h2") as jobs:
        async with trio.open_nursery() as nursery:
            jobs.begin(nursery, msgspec.structs.replace(job("80 MB", NOWHERE), name="b"))
            await logged(tmp_path / "logs/b.1.log", "MB")
            ended, _ = await outcome(jobs, job("hidden memory", NOWHERE), tmp_path)
            assert (ended.ended.outcome, "more memory" in ended.ended.reason) == ("failed", True)
            assert [event.ended.job for event in jobs.events if isinstance(event, ev.WorkloadEnded)] == ["a"]
            jobs.kill(("b", 1))


@pytest.mark.parametrize(
    ("escape", "why"),
    [
        ("full folder", "takes more than"),
        ("files without a name", "takes more than"),
        ("folders in folders", "too deep to be looked at"),
    ],
)
async def test_job_whose_folder_is_too_full_is_ended_and_says_so(
    tmp_path: Path, forks: ForkServer, host: str, monkeypatch: pytest.MonkeyPatch, escape: str, why: str
) -> None:
    monkeypatch.setattr(job_rooms, "MARGIN_BYTES", -(240 << 20))
    with agent_jobs(tmp_path, forks, group=host) as jobs:
        async with trio.open_nursery() as nursery:

            async def look() -> None:
                while True:
                    await trio.sleep(0.05)
                    jobs.bound_outputs()

            nursery.start_soon(look)
            ended, _ = await outcome(jobs, job(escape, NOWHERE), tmp_path)
            nursery.cancel_scope.cancel()
        assert (ended.ended.outcome, why in ended.ended.reason) == ("failed", True)
        assert jobs.scratch == []


async def test_jobs_meet_in_no_network(tmp_path: Path, forks: ForkServer, host: str) -> None:
    with agent_jobs(tmp_path, forks, group=host) as jobs:
        async with trio.open_nursery() as nursery:
            jobs.begin(nursery, msgspec.structs.replace(job("holds names", NOWHERE), name="b"))
            await logged(tmp_path / "logs/b.1.log", "holds")
            _, said = await outcome(jobs, job("takes names", NOWHERE), tmp_path)
            assert said.splitlines() == ["holds", "inside: None"]
            jobs.kill(("b", 1))


async def test_what_outlives_its_agent_is_ended_by_the_next_and_takes_no_descriptors(tmp_path: Path, host: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with agent_jobs(tmp_path, group=host) as jobs:
        async with trio.open_nursery() as nursery:
            jobs.begin(nursery, job("outlives its agent", NOWHERE))
            await logged(tmp_path / "logs/a.1.log", "waits")
            os.kill(jobs.forks.pid or 0, signal.SIGKILL)
            await trio.sleep(0.1)
            [group] = control_groups.folders(f"{host}/a.1", ["pids"])
            assert len([*control_groups.members(group)]) > 64
            AgentJobs(jobs.store, jobs._lease, tmp_path, jobs.forks, group=host)
            assert not group.exists()
            jobs.begin(nursery, job("outlives its agent", NOWHERE), 2)
            await jobs.until(ev.WorkloadEnded)
            await logged(tmp_path / "logs/a.2.log", "waits")
            resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 32, before[1]))
            try:
                jobs.kill(("a", 2))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("trick", ["link", "second name", "pipe", "folder"])
def test_snapshot_that_is_no_file_of_the_jobs_own_is_not_taken(tmp_path: Path, trick: str) -> None:
    written, secret = tmp_path / "snapshot.1", tmp_path / "secret"
    secret.write_text("a key")
    {
        "link": lambda: written.symlink_to(secret),
        "second name": lambda: written.hardlink_to(secret),
        "pipe": lambda: os.mkfifo(written),
        "folder": written.mkdir,
    }[trick]()
    with pytest.raises((BadManifest, OSError)):
        job_rooms.take_over(written, tmp_path / "taken")
    assert not (tmp_path / "taken").exists()


async def test_required_sandbox_that_the_machine_lacks_refuses_the_job(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lacking = "from testbed.workloads import sandbox; sandbox.landlock_version = lambda: 0"
    (tmp_path / "usercustomize.py").write_text(lacking)
    with agent_jobs(tmp_path, group=host) as jobs:
        ended, _ = await outcome(jobs, job("honest", NOWHERE), tmp_path)
        assert (ended.ended.outcome, "no landlock" in ended.ended.reason) == ("failed", True)
