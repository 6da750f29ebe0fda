"""The processes of a gang's ranks: they meet, agree on every snapshot, and none computes without the others."""

from __future__ import annotations

import importlib.util
import os
import socket
import struct
import subprocess
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest
import trio

from testbed.wire import Channel
from testbed.workloads.messages import (
    CODEC,
    Failed,
    Finished,
    Order,
    Place,
    Report,
    SnapshotFailed,
    SnapshotTaken,
    Started,
    WorkloadSpec,
)
from testbed.workloads.process import Exited, WorkloadProcess
from testbed.workloads.rendezvous import PeerLost, Presence, Rendezvous, SnapshotWish, rendezvous_port
from tests.gang_ranks import HOSTS, SPEC, ranks

pytestmark = pytest.mark.alone


@pytest.mark.trio
async def test_ranks_begin_when_all_are_there_and_end_together(tmp_path: Path) -> None:
    async with ranks(tmp_path) as desk:
        await desk.start(numbers=[0, 2])
        await trio.sleep(1.0)
        assert not any(isinstance(event, Started) for said in desk.said for event in said)
        alone = desk.processes
        await_all = desk.said
        await desk.start(attempt=2)  # another attempt does not mix with the first
        done = await desk.wait(Finished)
        assert {event.step for event in done} == {60}
        assert len({event.digest for event in done}) == 3
        assert not any(isinstance(event, Started) for said in await_all for event in said)
        for process in alone:
            process.kill()


@pytest.mark.parametrize("word", [b"", b"\0", b"\xff\xff\xff\xff", b"\0\0\0\1\xc1"])
def test_strangers_who_connect_and_say_nothing_keep_no_ranks_apart(word: bytes) -> None:
    """Each was listened to for two seconds, one after another: any host could keep a gang of others from ever starting."""
    hosts = ["127.0.0.1", "127.0.0.2"]
    places = [Place(f"strangers {word!r}", 1, number, hosts) for number in range(2)]
    met = [threading.Thread(target=Rendezvous.meet, args=(place, 0, b""), daemon=True) for place in places]
    with ExitStack() as held:
        met[0].start()
        strangers: list[socket.socket] = []
        while len(strangers) < 3:
            with suppress(OSError):
                hub = (hosts[0], rendezvous_port(places[0]))
                stranger = socket.create_connection(hub, source_address=("127.0.0.9", 0))
                strangers.append(held.enter_context(stranger))
                stranger.send(word)
        met[1].start()
        for thread in met:
            thread.join(3.0)
            assert not thread.is_alive()


@pytest.mark.trio
async def test_a_snapshot_that_one_asks_for_is_taken_by_all_at_one_step_and_restores(tmp_path: Path) -> None:
    async with ranks(tmp_path) as desk:
        await desk.start()
        await desk.wait(Started)
        await desk.processes[1].snapshot_together(1_000_001, halts=False)
        await desk.processes[2].snapshot_together(1_000_001, halts=False)  # asked for twice, taken once
        taken = await desk.wait(SnapshotTaken)
        assert {event.number for event in taken} == {1_000_001}
        assert len({event.step for event in taken}) == 1
        await desk.wait(Finished)
        assert [sum(isinstance(e, SnapshotTaken) for e in said) for said in desk.said] == [1, 1, 1]
        files: list[Path | None] = [tmp_path / f"r{number}.1000001" for number in range(3)]
        await desk.start(attempt=2, restore=files)
        started = await desk.wait(Started)
        assert {event.step for event in started} == {taken[0].step}
        await desk.wait(Finished)


@pytest.mark.trio
async def test_after_a_last_snapshot_no_rank_does_another_step(tmp_path: Path) -> None:
    async with ranks(tmp_path) as desk:
        await desk.start()
        await desk.wait(Started)
        await desk.processes[0].snapshot_together(1_000_001, halts=True)
        taken = await desk.wait(SnapshotTaken)
        assert all(event.halted for event in taken)
        assert len({event.step for event in taken}) == 1
        await trio.sleep(1.0)
        assert not any(isinstance(event, Finished | Exited) for said in desk.said for event in said)


@pytest.mark.trio
async def test_ranks_that_lose_one_stand_still_and_can_be_stopped(tmp_path: Path) -> None:
    async with ranks(tmp_path) as desk:
        await desk.start()
        await desk.wait(Started)
        desk.processes[1].kill()
        await desk.wait(Exited, 1)
        await trio.sleep(1.0)
        assert not any(isinstance(event, Finished) for said in desk.said for event in said)
        ended = await desk.processes[0].stop()
        assert ended.peer_lost


@pytest.mark.trio
async def test_ranks_whose_states_do_not_fit_refuse_to_begin(tmp_path: Path) -> None:
    """One of another seed: its own state is proved, and the others find that it is not that of their gang."""

    other = WorkloadSpec("synthetic", {**SPEC.params, "seed": 7}, progress_per_s=1000.0)
    async with ranks(tmp_path) as desk:
        await desk.start(specs=[SPEC, other, SPEC])
        failed = await desk.wait(Failed)
        assert "the state of rank 1 is not what step 0 left there" in failed[0].reason


def presence(said: bytes) -> bytes:
    """What a rank says first, with that for the name of its gang."""
    return len(said).to_bytes(4, "big") + said


@pytest.mark.parametrize(
    "word",
    [
        presence(b"\x81\xa4gang\xa1\xff"),  # a text that is none
        presence(b"\x81\xa4gang" + b"\x91" * 20_000),
        presence(msgspec.msgpack.encode(Presence("g", 1, -1, 0, b""))),
        presence(msgspec.msgpack.encode(Presence("g", 1, 2**63, 0, b""))),
        b"\0\0",
    ],
)
def test_whatever_is_said_from_a_ranks_own_host_ends_no_gang(word: bytes) -> None:
    """Anybody's process there can connect: one wrong byte of a text ended rank 0's, and the job had failed for good."""
    hosts = ["127.0.0.1", "127.0.0.2"]
    places = [Place(f"from there {word[:12]!r}", 1, number, hosts) for number in range(2)]
    met: dict[int, Rendezvous] = {}

    def meet(number: int) -> None:
        met[number] = Rendezvous.meet(places[number], 0, b"")

    threads = [threading.Thread(target=meet, args=(number,), daemon=True) for number in range(2)]
    threads[0].start()
    other = None
    while other is None:
        with suppress(OSError):
            hub = (hosts[0], rendezvous_port(places[0]))
            other = socket.create_connection(hub, source_address=(hosts[1], 0))
    with other:
        other.send(word)
        with suppress(OSError):
            other.settimeout(3.0)
            assert other.recv(1) == b""
        threads[1].start()
        for thread in threads:
            thread.join(5.0)
    assert sorted(met) == [0, 1]


@pytest.mark.parametrize("number", [2**63 - 1, 2**62, 2_000_001, 2_000_000, -5, 1])
def test_a_rank_that_wants_a_snapshot_of_another_attempt_is_a_rank_that_is_gone(number: int) -> None:
    """Its agent would refuse the snapshot, or the coordinator pass over it, and every later one of the attempt."""
    for place in (Place("g", 1, 0, HOSTS[:2]), Place("g", 1, 1, HOSTS[:2])):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(struct.pack("!q?", number, False))
            if number < 0 and place.number == 0:  # rank 0 takes the highest
                assert Rendezvous(place, [ours], []).agree(SnapshotWish()) == SnapshotWish()
                continue
            with pytest.raises(PeerLost):
                Rendezvous(place, [ours], []).agree(SnapshotWish())


class Sleeping:
    """The process of a job that does nothing: what it says is said here."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["sleep", "60"], start_new_session=True)
        self.pid, self.pidfd = self.process.pid, os.pidfd_open(self.process.pid)

    async def reap(self) -> int:
        return self.process.wait()


@pytest.mark.trio
@pytest.mark.parametrize("word", [SnapshotTaken(2**62 - 1, 1, 0.0, 0.0, 1), SnapshotFailed(999_999, "x")])
async def test_a_rank_whose_process_names_a_snapshot_of_another_attempt_is_ended(
    word: SnapshotTaken | SnapshotFailed,
) -> None:
    """Any user's code may be in it. Its agent took the number over, and no coordinator heard of a snapshot of the rank again."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        channel: Channel[Order | Report] = Channel(
            trio.SocketStream(trio.socket.from_stdlib_socket(ours)), CODEC
        )
        job = WorkloadProcess(Sleeping(), channel, Place("g", 1, 0, HOSTS))
        theirs.sendall(CODEC.encode(SnapshotTaken(1_000_001, 1, 0.0, 0.0, 1)) + CODEC.encode(word))
        theirs.close()
        assert [event async for event in job.events][:-1] == [SnapshotTaken(1_000_001, 1, 0.0, 0.0, 1)]
        assert job.exited is not None
        assert job.exited.reason.endswith(f"{word.number} is no snapshot of its attempt")


@pytest.mark.trio
async def test_a_stranger_at_the_rendezvous_is_turned_away(tmp_path: Path) -> None:
    async with ranks(tmp_path) as desk:
        await desk.start(numbers=[0])
        port = rendezvous_port(Place("g", 1, 0, HOSTS))
        with trio.fail_after(10.0):
            while True:
                with suppress(OSError):
                    stranger = await trio.open_tcp_stream(HOSTS[0], port)
                    break
                await trio.sleep(0.05)
        await stranger.send_all(b"\x00\x00\x00\x05hello")
        with suppress(trio.BrokenResourceError):
            assert await stranger.receive_some(10) == b""
        zero, said = desk.processes, desk.said
        await desk.start(numbers=[1, 2])
        desk.said[0] = said[0]
        await desk.wait(Finished)
        assert zero


@pytest.mark.trio
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra `torch`")
async def test_four_ranks_of_the_gloo_example_hold_one_model_also_after_a_restore(tmp_path: Path) -> None:
    spec, hosts = WorkloadSpec("gloo:Training", {"steps": 30}, progress_per_s=1000.0), ["127.0.0.1"] * 4
    async with ranks(tmp_path) as desk:
        await desk.start(specs=[spec] * 4, hosts=hosts)
        await desk.wait(Started)
        await desk.processes[3].snapshot_together(1_000_001, halts=False)
        step = (await desk.wait(SnapshotTaken))[0].step
        whole = {event.digest for event in await desk.wait(Finished)}
        files: list[Path | None] = [tmp_path / f"r{number}.1000001" for number in range(4)]
        await desk.start(attempt=2, restore=files, specs=[spec] * 4, hosts=hosts)
        assert {event.step for event in await desk.wait(Started)} == {step}
        assert {event.digest for event in await desk.wait(Finished)} == whole
        assert len(whole) == 1
