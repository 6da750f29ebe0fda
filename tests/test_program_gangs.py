"""Gangs of programs: n executables that are asked together, kept at one step, and started again together."""

from __future__ import annotations

import math
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from testbed.messages import JobSpec
from testbed.program import Program, ProgramRun
from testbed.workloads.messages import (
    Failed,
    Finished,
    Place,
    SnapshotFailed,
    SnapshotTaken,
    Started,
    WorkloadSpec,
)
from testbed.workloads.process import Exited
from testbed.workloads.program_gang import (
    CODEC,
    Again,
    Alive,
    AreYouThere,
    Ask,
    CheckpointWanted,
    Ended,
    Fell,
    GangFailed,
    Keep,
    LeftBehind,
    NoCheckpoint,
    Over,
    ProgramGang,
    Verdicts,
)
from testbed.workloads.rendezvous import Rendezvous
from testbed.workloads.submission import cannot_run
from tests.gang_ranks import EXAMPLES, HOSTS, Ranks, ranks, sums_of_together

TOGETHER = str(EXAMPLES / "together.py")
STEPS = 120


def checkpointed(step: int, *, told: bool = True) -> Ended:
    return Ended("checkpointed", step, told)


FINISHED = Ended("finished", 9, told=True)


# ---------------------------------------------------------------- what rank 0 decides, without a clock


def test_one_wish_asks_all_and_what_all_exited_with_is_kept_under_its_number() -> None:
    verdicts = Verdicts(2, 10.0, asks=True)
    assert verdicts.hear(1, CheckpointWanted(7, halts=False), 0.0) == [Ask(7, halts=False)]
    assert verdicts.hear(0, CheckpointWanted(7, halts=False), 0.1) == []
    assert verdicts.hear(1, checkpointed(4), 1.0) == []
    assert verdicts.hear(0, checkpointed(4), 1.0) == [Keep(7, halts=False, step=4)]
    assert verdicts.next_s == math.inf


def test_a_wish_to_leave_that_comes_meanwhile_makes_it_the_last() -> None:
    verdicts = Verdicts(2, 10.0, asks=True)
    verdicts.hear(1, CheckpointWanted(7, halts=False), 0.0)
    assert verdicts.hear(0, CheckpointWanted(8, halts=True), 1.0) == [Ask(8, halts=True)]
    assert verdicts.next_s == 11.0
    verdicts.hear(0, checkpointed(4), 2.0)
    assert verdicts.hear(1, checkpointed(4), 2.0) == [Keep(8, halts=True, step=4)]


def test_ranks_that_nobody_asked_are_only_started_again() -> None:
    verdicts = Verdicts(2, 10.0, asks=False)
    verdicts.hear(0, checkpointed(4), 2.0)
    assert verdicts.hear(1, checkpointed(4), 2.0) == [Again()]


def test_programs_that_tell_different_steps_have_no_checkpoint_of_the_gang() -> None:
    verdicts = Verdicts(2, 10.0, asks=True)
    verdicts.hear(0, CheckpointWanted(7, halts=False), 0.0)
    verdicts.hear(0, checkpointed(4), 2.0)
    [failed] = verdicts.hear(1, checkpointed(5), 2.0)
    assert isinstance(failed, GangFailed)
    assert "rank 0 at step 4, rank 1 at step 5" in failed.reason


def test_steps_that_the_clock_counts_give_way_to_told_ones() -> None:
    verdicts = Verdicts(2, 10.0, asks=True)
    verdicts.hear(0, CheckpointWanted(7, halts=False), 0.0)
    verdicts.hear(0, checkpointed(9, told=False), 2.0)
    assert verdicts.hear(1, checkpointed(5), 2.0) == [Keep(7, halts=False, step=5)]


def test_a_question_that_no_rank_answers_in_its_grace_is_dropped_and_all_run_on() -> None:
    verdicts = Verdicts(2, 10.0, asks=True)
    verdicts.hear(0, CheckpointWanted(7, halts=False), 5.0)
    assert verdicts.wake(14.9) == []
    [dropped] = verdicts.wake(15.0)
    assert isinstance(dropped, NoCheckpoint)
    assert dropped.sequence == 7
    assert verdicts.next_s == math.inf


def test_ranks_that_do_not_follow_those_that_exited_break_the_attempt() -> None:
    verdicts = Verdicts(3, 10.0, asks=False)
    verdicts.hear(0, CheckpointWanted(7, halts=False), 0.0)
    assert verdicts.next_s == math.inf  # without a signal there is no time in which to answer
    verdicts.hear(1, checkpointed(4), 20.0)
    [broken] = verdicts.wake(30.0)
    assert isinstance(broken, LeftBehind)
    assert broken.late == [0, 2]


def test_a_failure_is_believed_when_every_other_rank_is_there_to_hear_of_it() -> None:
    verdicts = Verdicts(2, 10.0, asks=True)
    assert verdicts.hear(1, Fell("exit code 3"), 0.0) == []
    verdicts.hear(0, Fell("another rank is gone"), 0.1)
    assert verdicts.wake(verdicts.next_s) == [AreYouThere()]
    assert verdicts.hear(0, Alive(), 1.0) == []
    assert verdicts.hear(1, Alive(), 1.0) == [GangFailed("rank 1: exit code 3")]


def test_the_gang_is_over_when_all_have_finished_and_fails_if_some_want_to_be_started_again() -> None:
    verdicts = Verdicts(2, 10.0, asks=True)
    verdicts.hear(0, FINISHED, 0.0)
    assert verdicts.wake(1e6) == []  # the last one may write its results for as long as it likes
    assert verdicts.hear(1, FINISHED, 1e6) == [Over()]
    verdicts.hear(0, FINISHED, 0.0)
    [failed] = verdicts.hear(1, checkpointed(9), 0.0)
    assert isinstance(failed, GangFailed)


def test_a_rank_0_whose_program_ends_last_has_finished_though_the_others_are_gone_by_then() -> None:
    """On a busy machine they were, and the gang computed on from its last checkpoint, half a minute later."""
    ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    with ExitStack() as held:
        for each in (*ours, *theirs):
            held.enter_context(each)
        place = Place("g", 1, 0, HOSTS)
        gang = ProgramGang(place, Rendezvous(place, ours, []), 10.0, asks=True)
        for peer in theirs:
            peer.sendall(CODEC.encode(FINISHED))
        assert gang.hear() == []
        gang.say(FINISHED)
        for peer in theirs:
            assert CODEC.decoder().feed(peer.recv(1000)) == [Over()]
            peer.close()
        assert gang.hear() == [Over()]


# ---------------------------------------------------------------- processes


def programs(path: Path, attempt: int, *commands: list[str], **more: Any) -> list[WorkloadSpec]:
    specs = []
    for number, words in enumerate(commands):
        folder = path / f"attempt{attempt}.{number}"
        folder.mkdir()
        run = ProgramRun(
            Program(words, **more.get("program", {})),
            f"g.{number}of{len(commands)}",
            attempt,
            str(folder),
            STEPS,
            0.05,
            more.get("grace_s", 10.0),
            1 << 20,
        )
        specs.append(WorkloadSpec("executable", {}, progress_per_s=1000.0, program=run))
    return specs


async def until_logs_say(desk: Ranks, text: str) -> None:
    with trio.fail_after(20.0):
        while not all(text in (desk.path / f"log{n}").read_text() for n in range(len(desk.said))):
            await trio.sleep(0.02)


@pytest.mark.alone
@pytest.mark.trio
async def test_three_programs_are_kept_at_one_step_started_again_and_restored_to_the_same_result(
    tmp_path: Path,
) -> None:
    async with ranks(tmp_path) as desk:
        await desk.start(specs=programs(tmp_path, 1, *[[TOGETHER]] * 3))
        await desk.wait(Started)
        await trio.sleep(0.8)
        await desk.processes[1].snapshot_together(1_000_001, halts=False)
        taken = await desk.wait(SnapshotTaken)
        assert {event.number for event in taken} == {1_000_001}
        [step] = {event.step for event in taken}
        await until_logs_say(desk, f"begins at {step}")
        await trio.sleep(0.5)
        await desk.processes[2].snapshot_together(1_000_002, halts=True)
        with trio.fail_after(10.0):
            while not all(any(isinstance(e, SnapshotTaken) and e.halted for e in said) for said in desk.said):
                await trio.sleep(0.02)
        last = [said[-1] for said in desk.said]
        assert len({event.step for event in last}) == 1
        assert last[0].step > step
        await trio.sleep(0.5)
        assert not any(isinstance(event, Finished | Exited) for said in desk.said for event in said)
        for process in desk.processes:
            process.kill()
        files: list[Path | None] = [tmp_path / f"r{number}.1000002" for number in range(3)]
        await desk.start(attempt=2, restore=files, specs=programs(tmp_path, 2, *[[TOGETHER]] * 3))
        assert {event.step for event in await desk.wait(Started)} == {last[0].step}
        assert {event.step for event in await desk.wait(Finished)} == {STEPS}
        for number, result in enumerate(sums_of_together(3, STEPS)):
            assert (tmp_path / f"log{number}").read_text().endswith(f"the number is {result}\n")


@pytest.mark.alone
@pytest.mark.trio
async def test_what_the_clock_counted_before_a_program_told_its_first_step_is_no_step_of_the_gang(
    tmp_path: Path,
) -> None:
    """A gang that took its time to meet had failed for good: its first checkpoint was at steps that the clock had guessed."""
    slow = (
        "trap asked=1 TERM; sleep {}; echo 1 > $RECLAIMNET_STEP_FILE; "
        "while [ -z $asked ]; do sleep 0.05; done; echo x > $RECLAIMNET_CHECKPOINT_DIRECTORY/state; exit 85"
    )
    commands = [["sh", "-c", slow.format(delay_s)] for delay_s in (0.1, 2.0)]
    async with ranks(tmp_path) as desk:
        await desk.start(hosts=HOSTS[:2], specs=programs(tmp_path, 1, *commands))
        await desk.wait(Started)
        await trio.sleep(1.0)
        await desk.processes[0].snapshot_together(1_000_001, halts=False)
        assert [event.step for event in await desk.wait(SnapshotTaken)] == [1, 1]


@pytest.mark.alone
@pytest.mark.trio
async def test_programs_whose_fellow_is_killed_have_not_failed(tmp_path: Path) -> None:
    """They end with an error of their own, `another rank is gone`: the gang comes back, and does not fail for that."""
    async with ranks(tmp_path) as desk:
        await desk.start(specs=programs(tmp_path, 1, *[[TOGETHER]] * 3))
        await desk.wait(Started)
        await trio.sleep(0.5)
        desk.processes[1].kill()
        await desk.wait(Exited, 1)
        await trio.sleep(2.0)
        assert not any(isinstance(event, Failed) for said in desk.said for event in said)
        assert (await desk.processes[0].stop()).peer_lost
        assert (await desk.processes[2].stop()).peer_lost


@pytest.mark.alone
@pytest.mark.trio
async def test_a_program_that_fails_is_named_as_the_reason_at_every_rank(tmp_path: Path) -> None:
    async with ranks(tmp_path) as desk:
        bad = ["/bin/sh", "-c", "echo out of cheese; exit 3"]
        await desk.start(specs=programs(tmp_path, 1, [TOGETHER], bad, [TOGETHER]))
        began_s = time.monotonic()
        failed = await desk.wait(Failed)
        assert time.monotonic() - began_s < 8.0
        for event in failed:
            assert "rank 1: it ended with exit code 3; its last line: out of cheese" in event.reason


@pytest.mark.alone
@pytest.mark.trio
async def test_programs_that_do_not_listen_run_on_without_a_checkpoint(tmp_path: Path) -> None:
    deaf = ["/bin/sh", "-c", "sleep 2"]
    async with ranks(tmp_path) as desk:
        await desk.start(specs=programs(tmp_path, 1, deaf, deaf, grace_s=0.5), hosts=HOSTS[:2])
        await desk.wait(Started)
        await desk.processes[0].snapshot_together(1_000_001, halts=False)
        assert {event.number for event in await desk.wait(SnapshotFailed)} == {1_000_001}
        await desk.wait(Finished)


@pytest.mark.alone
@pytest.mark.trio
async def test_a_program_that_does_not_follow_the_others_is_killed_as_from_outside(tmp_path: Path) -> None:
    listens = ["/bin/sh", "-c", "trap 'exit 85' TERM; while :; do sleep 0.1; done"]
    async with ranks(tmp_path) as desk:
        deaf = ["/bin/sh", "-c", "sleep 60"]
        await desk.start(specs=programs(tmp_path, 1, listens, deaf, grace_s=0.5), hosts=HOSTS[:2])
        await desk.wait(Started)
        await trio.sleep(0.3)
        await desk.processes[0].snapshot_together(1_000_001, halts=False)
        [late] = await desk.wait(Exited, 1)
        assert late.from_outside
        assert (await desk.processes[0].stop()).peer_lost


def test_a_gang_of_programs_that_criu_should_save_is_refused_with_the_reason() -> None:
    spec = JobSpec("g", 10, 1.0, 1000, "executable", program=Program(["x"], checkpoint_by="criu"), ranks=2)
    assert "CRIU saves each program by itself" in cannot_run(spec)
