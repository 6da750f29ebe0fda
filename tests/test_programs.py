"""Any executable as a job: asked for checkpoints by a signal, restored from its directory, ended with all that it started."""

import io
import os
import shutil
import socket
import subprocess
import tarfile
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.messages import JobSpec
from testbed.program import Program, wrong
from testbed.workloads import criu, output
from testbed.workloads.archive import LARGE_BYTES, CannotKeep, ProgramProgress, digest, pack, unpack
from testbed.workloads.base import StateMismatch
from testbed.workloads.messages import CODEC, Failed, Finished, Progress, SnapshotFailed, Started
from testbed.workloads.process import Exited, SnapshotImpossible
from tests.job_desk import MANY_BYTES, Desk, agent_jobs, all_events, desk, needs_criu
from tests.patience import until

EXAMPLES = Path(__file__).parents[1] / "docs/examples"


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program of `stranger.c`."""
    if not (compiler := shutil.which("cc") or shutil.which("clang")):
        pytest.skip("needs a C compiler")
    program = tmp_path_factory.mktemp("stranger") / "stranger"
    subprocess.run([compiler, "-O1", "-o", program, Path(__file__).with_name("stranger.c")], check=True)
    return str(program)


async def test_a_program_of_a_stranger_computes_the_same_over_three_hosts(tmp_path: Path, stranger: str) -> None:
    """It is asked twice while it runs on, and moved twice; its result is that of an uninterrupted run."""
    steps, expected = 1500, 88172645463325252
    for _ in range(steps):
        expected ^= expected << 13 & (1 << 64) - 1
        expected ^= expected >> 7
        expected ^= expected << 17 & (1 << 64) - 1
    program = Program([stranger, str(steps)], checkpoint_signal="SIGUSR1")
    async with desk(tmp_path) as at:
        restore, reached = None, 0
        for number in (1, 2):
            job = await at.run(program, restore, steps=steps, step_s=0.02)  # by the clock
            await at.until(f"from {reached and ''}", number)
            await trio.sleep(0.15)
            copy = await job.snapshot(tmp_path / f"copy{number}")
            await trio.sleep(0.15)
            restore = tmp_path / f"final{number}"
            final = await job.snapshot(restore, final=True)
            assert final.step > copy.step > reached
            reached = final.step
            job.kill()
            await all_events(job)
        last = await at.run(program, restore, steps=steps)
        started, *between, finished, exited = await all_events(last)
        assert (started.step, finished.step, exited.status) == (reached, steps, 0)
        assert isinstance(started, Started) and isinstance(finished, Finished)
        assert all(isinstance(event, Progress) and event.step < steps for event in between)
        assert at.log(3).splitlines()[-1] == f"result {expected}"
        assert "from 0" not in at.log(3)


@pytest.mark.parametrize("how", ["itself", pytest.param("criu", marks=needs_criu)])
async def test_a_program_goes_on_after_a_checkpoint_for_which_it_stands_still(tmp_path: Path, how: str) -> None:
    program = Program([str(EXAMPLES / "adding.sh")], checkpoint_by=how)
    async with desk(tmp_path) as at:
        job = await at.run(program, steps=25)
        await at.until("step 10:")
        await job.snapshot(tmp_path / "copy", stop=True)
        *_, finished, exited = await all_events(job)
        assert (finished.step, exited.status) == (25, 0)


FINAL = do.TakeSnapshot("a", 1, 1_000_001, True)


def of_agent(program: Program) -> JobSpec:
    return JobSpec("a", 100_000, 0.05, 100_000, "executable", program=program)


def script(path: Path, text: str) -> Program:
    path.write_text("#!/bin/sh\n" + textwrap.dedent(text))
    path.chmod(0o755)
    return Program([str(path)])


async def failure(at: Desk, program: Program, **given: Any) -> str:
    *_, failed, exited = await all_events(await at.run(program, **given))
    assert isinstance(failed, Failed)
    assert isinstance(exited, Exited)
    assert failed.reason in at.log(len(at.jobs))
    return failed.reason


async def test_each_other_end_is_a_failure_with_its_reason_and_last_words(tmp_path: Path, stranger: str) -> None:
    async with desk(tmp_path) as at:
        assert await failure(at, Program([stranger, "1", "7"])) == (
            "it ended with exit code 7; its last line: " + at.log(1).splitlines()[1]
        )
        assert "SIGSEGV" in await failure(at, script(tmp_path / "crash", "kill -s SEGV $$"))
        missing = await failure(at, Program(["/nonexistent"]))
        assert missing == "it cannot be executed: /nonexistent: No such file or directory"
        (tmp_path / "plain").write_text("text")
        assert "Permission denied" in await failure(at, Program([str(tmp_path / "plain")]))


async def test_a_program_without_a_handler_is_not_killed_by_the_question(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        runs = f"echo runs; until [ -e {tmp_path}/over ]; do sleep 0.05; done; echo done"
        job = await at.run(script(tmp_path / "deaf", runs), grace_s=0.3)
        await at.until("runs")
        with pytest.raises(SnapshotImpossible, match="no handler for SIGTERM"):
            await job.snapshot(tmp_path / "copy")
        (tmp_path / "over").touch()
        assert isinstance((await all_events(job))[-2], Finished)
        assert "[reclaimnet] no checkpoint: it has no handler" in at.log()
        assert at.log().endswith("done\n")


async def test_a_program_that_does_not_answer_in_time_runs_on_but_not_behind_a_final_checkpoint(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.run(
            script(tmp_path / "slow", "trap 'echo asked' TERM; echo runs; while :; do sleep 0.05; done"), grace_s=0.3
        )
        await at.until("runs")
        with pytest.raises(SnapshotImpossible, match=r"within its grace of 0\.3 s"):
            await job.snapshot(tmp_path / "copy")
        await at.until("asked")
        with pytest.raises(SnapshotImpossible, match="grace"):
            await job.snapshot(tmp_path / "final", final=True)
        assert pids_of(tmp_path / "slow") == []


async def test_a_program_that_checkpoints_of_itself_is_saved_when_it_next_does(tmp_path: Path) -> None:
    counting = f"""
    cd "$RECLAIMNET_CHECKPOINT_DIRECTORY"; n=$(cat n 2>/dev/null || echo 0)
    for i in 1 2 3; do n=$((n + 1)); sleep 0.02; done
    echo $n > n; echo "at $n"; [ ! -e {tmp_path}/over ] || exit 0; exit 77
    """
    program = script(tmp_path / "periodic", counting)
    program = Program(program.command, checkpoint_signal="none", checkpoint_exit_code=77)
    async with desk(tmp_path) as at:
        job = await at.run(program)
        await job.snapshot(tmp_path / "copy")
        (tmp_path / "over").touch()
        unpacked = tmp_path / "unpacked"
        unpacked.mkdir()
        unpack(tmp_path / "copy", unpacked, MANY_BYTES)
        assert int((unpacked / "n").read_text()) % 3 == 0
        assert isinstance((await all_events(job))[-2], Finished)
        told = [line for line in at.log().splitlines() if line.startswith("at ")]
        assert told == [f"at {3 * number}" for number in range(1, len(told) + 1)]


def pids_of(path: Path) -> list[int]:
    """Living processes with that path in their command line."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal() and int(each.name) != os.getpid():
            try:
                if str(path).encode() in (each / "cmdline").read_bytes():
                    found.append(int(each.name))
            except OSError:
                continue
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a process-ID namespace")
@pytest.mark.parametrize("how", ["kill", "cancel", "checkpoint"])
async def test_nothing_that_a_program_started_outlives_it_not_even_a_daemon(tmp_path: Path, how: str) -> None:
    daemon = tmp_path / "daemon"
    script(daemon, "trap '' TERM HUP; while :; do sleep 0.05; done")
    program = script(
        tmp_path / "parent",
        f"""
        trap 'exit 85' TERM
        setsid {daemon} & setsid setsid {daemon} &
        sleep 0.2; echo started; while :; do sleep 0.02; done
        """,
    )
    async with desk(tmp_path) as at:
        job = await at.run(program)
        await at.until("started")
        assert len(pids_of(daemon)) >= 2
        if how == "kill":
            job.kill()
            await all_events(job)
        elif how == "cancel":
            assert (await job.stop(60.0)).status == 0
        else:
            await job.snapshot(tmp_path / "final", final=True)
        assert pids_of(daemon) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts")
async def test_what_a_program_has_mounted_is_neither_kept_nor_removed_with_its_folder(tmp_path: Path) -> None:
    """A folder of the user's, mounted in the program's own, was packed into checkpoints, and emptied when its folder went."""
    precious = tmp_path / "home/precious"
    precious.parent.mkdir()
    precious.write_text("years of work")
    program = script(
        tmp_path / "mounts",
        f"""
        trap 'exit 85' TERM
        mkdir $RECLAIMNET_CHECKPOINT_DIRECTORY/m
        mount --bind {precious.parent} $RECLAIMNET_CHECKPOINT_DIRECTORY/m && cat $RECLAIMNET_CHECKPOINT_DIRECTORY/m/precious
        echo; echo mounted; while :; do sleep 0.02; done
        """,
    )
    log = tmp_path / "logs/a.1.log"
    with agent_jobs(tmp_path) as jobs:
        async with trio.open_nursery() as nursery:
            jobs.begin(nursery, msgspec.structs.replace(of_agent(program), sandbox="none"))
            await until(lambda: log.exists() and "mounted" in log.read_text())
            await jobs.take_snapshot(FINAL)
        assert "years of work\n" in log.read_text(), "it was not mounted"
        assert jobs.scratch == []
        stored = (await jobs.until(ev.SnapshotDone)).checkpoint
        state = tmp_path / "state"
        state.mkdir()
        unpack(jobs.store.payload(jobs.store.get("a", stored.sequence)), state, MANY_BYTES)
        assert [path.name for path in state.rglob("*")] == ["m"]
    assert precious.read_text() == "years of work"


async def test_a_program_knows_what_it_is_and_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(criu.COMMAND, raising=False)
    program = script(tmp_path / "env", "pwd; env | grep -e RECLAIMNET -e ^MY_ | sort")
    given = {"working_directory": str(tmp_path), "environment": {"MY_LEVEL": "3 of 4"}}
    async with desk(tmp_path) as at:
        await all_events(await at.run(Program(program.command, **given), steps=7))
        top = tmp_path / "attempt1"
        assert at.log().splitlines() == [
            str(tmp_path),
            "MY_LEVEL=3 of 4",
            "RECLAIMNET_ATTEMPT=1",
            f"RECLAIMNET_CHECKPOINT_DIRECTORY={top}/work/checkpoint",
            "RECLAIMNET_GPUS=0",
            "RECLAIMNET_JOB=a",
            "RECLAIMNET_STEPS=7",
            f"RECLAIMNET_STEP_FILE={top}/step",
        ]


# ---------------------------------------------------------------- directories


def a_state(folder: Path) -> Path:
    (folder / "deep/er").mkdir(parents=True)
    (folder / "deep/er/weights").write_bytes(os.urandom(3 << 20))
    (folder / "deep/\udcff name").write_text("bytes that are no UTF-8")
    (folder / "empty").mkdir(mode=0o500)
    (folder / "run.sh").write_text("x")
    (folder / "run.sh").chmod(0o750)
    (folder / "latest").symlink_to("deep/er/weights")
    (folder / "deep/up").symlink_to("../run.sh")
    return folder


def test_a_directory_comes_back_as_it_was(tmp_path: Path) -> None:
    folder, back = a_state(tmp_path / "state"), tmp_path / "back"
    pack(folder, tmp_path / "archive", ProgramProgress(7, told=True), MANY_BYTES)
    back.mkdir()
    assert unpack(tmp_path / "archive", back, MANY_BYTES) == ProgramProgress(7, told=True)
    assert digest(back, MANY_BYTES) == digest(folder, MANY_BYTES)
    assert (back / "latest").readlink() == Path("deep/er/weights")
    pack(back, tmp_path / "again", ProgramProgress(7, told=True), MANY_BYTES)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "archive").read_bytes()
    for text, mode in (("y", 0o750), ("x", 0o700)):
        (back / "run.sh").write_text(text)
        (back / "run.sh").chmod(mode)
        assert digest(back, MANY_BYTES) != digest(folder, MANY_BYTES)


def test_an_empty_directory_is_a_checkpoint_too(tmp_path: Path) -> None:
    for name in ("state", "back"):
        (tmp_path / name).mkdir()
    pack(tmp_path / "state", tmp_path / "archive", ProgramProgress(7, told=True), MANY_BYTES)
    assert unpack(tmp_path / "archive", tmp_path / "back", MANY_BYTES) == ProgramProgress(7, told=True)
    assert not list((tmp_path / "back").iterdir())


def test_large_files_lie_at_the_same_place_whatever_small_ones_come(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "weights").write_bytes(os.urandom(LARGE_BYTES))
    packed = []
    for name in ("x", "a"):
        (folder / name).touch()
        pack(folder, tmp_path / name, ProgramProgress(7, told=True), MANY_BYTES)
        packed.append((tmp_path / name).read_bytes()[:LARGE_BYTES])
    assert packed[0] == packed[1]


def test_a_file_that_is_written_while_it_is_read_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = tarfile.TarFile.addfile

    def written_meanwhile(archive: tarfile.TarFile, member: tarfile.TarInfo, file: Any = None) -> None:
        add(archive, member, file)
        os.utime(tmp_path / "state/weights", (0, 0))  # as many bytes as before

    (tmp_path / "state").mkdir()
    (tmp_path / "state/weights").write_text("some")
    monkeypatch.setattr(tarfile.TarFile, "addfile", written_meanwhile)
    with pytest.raises(CannotKeep, match="'weights' changed while it was read"):
        pack(tmp_path / "state", tmp_path / "archive", ProgramProgress(0, told=False), MANY_BYTES)


def test_an_archive_of_too_many_entries_is_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    _many(folder)
    pack(folder, tmp_path / "archive", ProgramProgress(0, told=False), MANY_BYTES)
    monkeypatch.setattr("testbed.workloads.archive.MAX_ENTRIES", 20)
    (tmp_path / "back").mkdir()
    with pytest.raises(StateMismatch, match="more than 20 entries"):
        unpack(tmp_path / "archive", tmp_path / "back", MANY_BYTES)


def _socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(folder / "s"))


def _elsewhere(folder: Path) -> None:
    folder.rmdir()
    folder.symlink_to("/etc")


def _setuid(folder: Path) -> None:
    (folder / "tool").touch()
    (folder / "tool").chmod(0o4755)


def _sparse(folder: Path) -> None:
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)


def _many(folder: Path) -> None:
    for number in range(30):
        (folder / f"f{number}").touch()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_socket, "'s' is no file, directory or symbolic link"),
        (lambda folder: os.mkfifo(folder / "p"), "'p' is no file"),
        (lambda folder: os.mkfifo(bytes(folder) + b"/p\n\xff"), r"'p\\n\\udcff' is no file"),
        (lambda folder: (folder / "l").symlink_to("/etc/shadow"), "'l' links to '/etc/shadow', out of"),
        (lambda folder: (folder / "l").symlink_to("../../x"), r"'l' links to '../../x', out of"),
        (_setuid, r"'tool' runs as its owner \(setuid\)"),
        (_elsewhere, "is no directory any more"),
        (_sparse, "1099511627776 bytes, and at most"),
        (_many, "more than 20 entries"),
    ],
)
def test_what_would_not_come_back_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any, says: str
) -> None:
    monkeypatch.setattr("testbed.workloads.archive.MAX_ENTRIES", 20)
    folder = tmp_path / "state"
    folder.mkdir()
    spoil(folder)
    with pytest.raises(CannotKeep, match=says) as refused:
        pack(folder, tmp_path / "archive", ProgramProgress(0, told=False), MANY_BYTES)
    assert not (tmp_path / "archive").exists()
    CODEC.encode(SnapshotFailed(1, str(refused.value)))  # a name of other bytes than UTF-8 ended the job


def hostile(path: Path, step: str = "1", **member: Any) -> Path:
    """An archive with one entry of that kind, as a user of another host may make it."""
    headers = {"RECLAIMNET.step": step, "RECLAIMNET.told": "0"}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
        info = tarfile.TarInfo(member.pop("name", "x"))
        for key, value in member.items():
            setattr(info, key, value)
        archive.addfile(info, io.BytesIO(b"\0" * info.size))
    return path


@pytest.mark.parametrize(
    ("step", "member", "nested"),
    [
        ("1", {"name": "../x", "size": 1}, 0),
        ("1", {"name": "/tmp/reclaimnet-evil", "size": 1}, 0),
        ("1", {"name": "a/../../x", "size": 1}, 0),
        ("1", {"type": b"2", "linkname": "/etc"}, 0),
        ("1", {"type": b"2", "linkname": "../.."}, 0),
        ("1", {"type": b"1", "linkname": "/etc/passwd"}, 0),
        ("1", {"type": b"3", "devmajor": 1, "devminor": 1}, 0),
        ("1", {"type": b"6"}, 0),
        ("1", {"size": 5000}, 0),
        ("1", {"pax_headers": {"mtime": "1e300"}}, 0),  # a time that no clock has
        ("-2", {}, 0),
        (str(2**63), {}, 0),  # a step that no message carries
        ("1", {}, 2000),  # headers of headers of headers
    ],
)
def test_an_archive_of_a_hostile_host_is_no_state_and_writes_nothing_outside(
    tmp_path: Path, step: str, member: dict[str, Any], nested: int
) -> None:
    folder, archive = tmp_path / "in/folder", tmp_path / "archive"
    folder.mkdir(parents=True)
    whole = hostile(archive, step=step, **member).read_bytes()
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 512
    more = header.tobuf(tarfile.USTAR_FORMAT) + b"8 a=bcd\n".ljust(512, b"\0")
    archive.write_bytes(more * nested + whole)
    with pytest.raises(StateMismatch):
        unpack(archive, folder, 4000 if "size" in member else MANY_BYTES)
    assert list(tmp_path.rglob("x")) == [] or "type" not in member
    assert {path.name for path in tmp_path.iterdir()} == {"in", "archive"}
    assert list((tmp_path / "in").iterdir()) == [folder]


def test_links_that_lead_out_by_way_of_each_other_are_neither_kept_nor_made(tmp_path: Path) -> None:
    """`m` stays within by its letters, and a program that writes its state there would write beside its directory."""
    folder = tmp_path / "state"
    (folder / "d").mkdir(parents=True)
    (folder / "d/l").symlink_to("..")
    (folder / "m").symlink_to("d/l/../outside")
    with pytest.raises(CannotKeep, match=r"'m' links to 'd/l/\.\./outside', out of"):
        pack(folder, tmp_path / "archive", ProgramProgress(0, told=False), MANY_BYTES)
    headers = {"RECLAIMNET.step": "1", "RECLAIMNET.told": "0"}
    with tarfile.open(tmp_path / "forged", "w", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
        for name in ("d", "d/l", "m"):
            archive.add(folder / name, name, recursive=False)
    into = tmp_path / "in/folder"
    into.mkdir(parents=True)
    with pytest.raises(StateMismatch, match=r"'m' leads to 'd/l/\.\./outside', out of"):
        unpack(tmp_path / "forged", into, MANY_BYTES)
    assert not (tmp_path / "in/outside").exists()


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"command": [""]}, "command"),
        ({"working_directory": "here"}, "working_directory"),
        ({"checkpoint_directory": "../x"}, "checkpoint_directory"),
        ({"checkpoint_directory": "/x"}, "checkpoint_directory"),
        ({"checkpoint_signal": "SIGKILL"}, "checkpoint_signal"),
    ],
)
def test_a_program_that_no_agent_can_run_is_refused_by_key(changed: dict[str, Any], key: str) -> None:
    found = wrong(Program(**{"command": ["true"], **changed}))
    assert found[0] == key


# ---------------------------------------------------------------- logs


def test_logs_of_a_job_are_listed_by_attempt_and_not_those_of_one_whose_name_begins_alike(tmp_path: Path) -> None:
    for name in ("a.10.log", "a.2.log", "a.b.1.log", "aa.1.log"):
        (tmp_path / name).touch()
    assert [path.name for path in output.output_files(tmp_path, "a").values()] == ["a.2.log", "a.10.log"]


def test_a_log_that_grows_too_long_loses_its_middle_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LONGEST_BYTES", 1000)
    monkeypatch.setattr(output, "HEAD_BYTES", 100)
    monkeypatch.setattr(output, "TAIL_BYTES", 200)
    log = tmp_path / "a.1.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"first\n" + b"." * 990)
        assert not output.shorten(log)
        writer.write(b"last\n")
        assert output.shorten(log)
        writer.write(b"later\n")
    text = log.read_text()
    assert text.startswith("first\n")
    assert text.endswith(".last\nlater\n")
    assert "\n[reclaimnet] the log reached 1001 bytes: 701 were dropped here\n" in text


# ---------------------------------------------------------------- the agent's side


async def test_an_agent_stores_a_programs_state_restores_it_and_leaves_no_folder_behind(tmp_path: Path) -> None:
    """Its checkpoint goes through the store, verified; asked to end it is gone within its grace, and said to be."""
    spec, log = of_agent(Program([str(EXAMPLES / "adding.sh")])), tmp_path / "logs/a.2.log"
    with agent_jobs(tmp_path) as jobs:
        async with trio.open_nursery() as nursery:
            jobs.begin(nursery, spec)
            await jobs.until(ev.WorkloadsProgressed)
            await jobs.take_snapshot(FINAL)
            stored = (await jobs.until(ev.SnapshotDone)).checkpoint
            jobs.store.verify(jobs.store.get("a", 1_000_001))
        assert jobs.scratch == []
        jobs.events.clear()
        async with trio.open_nursery() as nursery:
            jobs.begin(nursery, spec, 2, stored)
            assert (await jobs.until(ev.WorkloadStarted)).step == stored.step > 0
            await until(lambda: "begins" in log.read_text())
            await jobs.end(("a", 2), 60.0)
            ended = (await jobs.until(ev.WorkloadEnded)).ended
            assert (ended.attempt, ended.reason) == (2, "ended with exit code 0"), "it was not killed"
        assert jobs.scratch == []
    assert log.read_text().startswith(f"begins at {stored.step}\n")


# ---------------------------------------------------------------- saved from outside


def any_program(path: Path, text: str) -> Program:
    return Program(script(path, text).command, checkpoint_by="criu")


@needs_criu
async def test_a_program_that_knows_nothing_of_checkpoints_goes_on_in_the_middle_on_another_host(
    tmp_path: Path,
) -> None:
    """Its state is a shell's variables, an open file and the processes it has started; its folder goes with it."""
    program = any_program(
        tmp_path / "counts",
        """
        exec 3>written
        (while :; do sleep 0.05; done) & other=$!
        n=0
        while [ $n -lt 90 ]; do
            n=$((n + 1)); echo $n; echo $n >&3; echo $n > now; mv now "$RECLAIMNET_STEP_FILE"; sleep 0.03
        done
        kill $other && wc -l < written
        """,
    )
    async with desk(tmp_path) as at:
        restore, said = None, list[str]()
        for number, until in ((1, "10"), (2, "40")):
            job = await at.run(program, restore, steps=90)
            await at.until(f"{until}\n", number)
            copy = await job.snapshot(tmp_path / f"copy{number}")
            await trio.sleep(0.2)
            restore = tmp_path / f"final{number}"
            final = await job.snapshot(restore, final=True)
            said += at.log(number).splitlines()
            assert [int(line) for line in said] == list(range(1, len(said) + 1))
            assert len(said) - 1 <= final.step <= len(said)  # it was stopped anywhere
            assert final.step > copy.step >= int(until) - 1
            job.kill()
            await all_events(job)
        last = await at.run(program, restore, steps=90)
        *_, finished, exited = await all_events(last)
        assert (finished.step, exited.status) == (90, 0)
        assert said + at.log(3).splitlines() == [*map(str, range(1, 91)), "90"]
        # from a copy that it outlived, too
        again = await at.run(program, tmp_path / "copy2", steps=90)
        assert isinstance((await all_events(again))[-2], Finished)
        assert at.log(4).splitlines()[-1] == "90"


@needs_criu
async def test_what_criu_or_an_archive_cannot_keep_is_no_checkpoint_and_the_program_goes_on(tmp_path: Path) -> None:
    program = any_program(tmp_path / "pipe", "mkfifo pipe; echo made; while [ -e pipe ]; do sleep 0.02; done; rm -f no")
    async with desk(tmp_path) as at:
        job = await at.run(program)
        await at.until("made")
        with pytest.raises(SnapshotImpossible, match="pipe is no file"):
            await job.snapshot(tmp_path / "copy")
        (tmp_path / "attempt1/kept/work/pipe").unlink()
        assert isinstance((await all_events(job))[-2], Finished)


@needs_criu
async def test_a_saved_program_ends_with_all_that_it_started_and_fails_with_its_exit_code(tmp_path: Path) -> None:
    daemon = tmp_path / "daemon"
    script(daemon, "trap '' TERM HUP; while :; do sleep 0.05; done")
    async with desk(tmp_path) as at:
        parent = any_program(tmp_path / "parent", f"setsid {daemon} & sleep 0.2; echo started; wait")
        job = await at.run(parent)
        await at.until("started")
        assert pids_of(daemon)
        final = tmp_path / "final"
        await job.snapshot(final, final=True)
        assert pids_of(daemon) == []
        again = await at.run(parent, final)
        assert isinstance(await anext(again), Started)
        assert pids_of(daemon)
        again.kill()
        await all_events(again)
        assert pids_of(daemon) == []
        assert await failure(at, any_program(tmp_path / "bad", "exit 7")) == "it ended with exit code 7"
        missing = Program(["/nonexistent"], checkpoint_by="criu")
        assert await failure(at, missing) == "it cannot be executed: /nonexistent: No such file or directory"


async def test_without_criu_it_fails_and_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(criu.COMMAND, "/nonexistent/criu")
    async with desk(tmp_path) as at:
        reason = await failure(at, any_program(tmp_path / "any", "exit 0"))
        assert "nothing here can checkpoint it" in reason
        assert "/nonexistent/criu" in reason
