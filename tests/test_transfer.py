"""Transfers over real sockets: only what is missing moves, and nothing unverified ever counts."""

import errno
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from blake3 import blake3

from testbed.checkpoints import CheckpointStore, Manifest
from testbed.transfer import (
    CheckpointServer,
    Hello,
    ReceiveCompleted,
    ReceiveEvent,
    ReceiveFailed,
    SendResult,
    TransferFailed,
    send_checkpoint,
    unacknowledged_bytes,
)
from testbed.transfer.intake import LIMITS, Intake, Limits
from testbed.transfer.messages import (
    CONTENTS,
    Busy,
    Contents,
    Describe,
    Message,
    Rejected,
    Stored,
    Want,
    bitmap_of,
    chunks_of,
)
from testbed.trust import door
from testbed.trust.authority import Authority
from testbed.trust.channel import Identity, Name, PartyRole
from testbed.trust.door import Door
from testbed.wire import Channel
from tests import stores
from tests.patience import until
from tests.stores import ingest

CHUNK = 64 << 10
PATIENT_S = 60.0  # for what takes milliseconds on a quiet machine
pytestmark = pytest.mark.alone


@dataclass
class Pair:
    """A store with a checkpoint to send, a store that receives, and what the receiver told."""

    origin: CheckpointStore
    target: CheckpointStore
    address: tuple[str, int] = ("", 0)
    events: list[ReceiveEvent] = field(default_factory=list)
    refusal: str | None = None
    names: dict[str, Any] = field(default_factory=dict)  # how the sender proves its own, and whose it wants

    def ingest(self, data: bytes, sequence: int = 1, job: str = "job") -> Manifest:
        return ingest(self.origin, data, sequence, job)

    async def fails(self, manifest: Manifest, said: str | None, *, retryable: bool, **options: Any) -> TransferFailed:
        """Send in vain, with that reason."""
        with pytest.raises(TransferFailed, match=said) as caught:
            await self.send(manifest, **options)
        assert caught.value.retryable is retryable
        return caught.value

    async def send(self, manifest: Manifest, **options: Any) -> SendResult:
        options = {"on_connected": lambda _: None, "idle_timeout_s": PATIENT_S, **self.names, **options}
        return await send_checkpoint(self.origin, *manifest.key, options.pop("address", self.address), **options)

    async def note(self, event: ReceiveEvent) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, kind: type, count: int = 1) -> None:
        await until(lambda: len(self.of(kind)) >= count)


def content(chunks: int, seed: int = 0, tail: int = 0) -> bytes:
    return stores.content(chunks, seed, tail, CHUNK)


@asynccontextmanager
async def serving(
    tmp_path: Path,
    idle_timeout_s: float = PATIENT_S,
    limits: Limits = LIMITS,
    is_sealed: bool = False,
    is_named: bool = False,
) -> AsyncIterator[Pair]:
    with (
        CheckpointStore(tmp_path / "origin", chunk_bytes=CHUNK) as origin,
        CheckpointStore(tmp_path / "target", chunk_bytes=CHUNK) as target,
    ):
        pair, entrance = Pair(origin, target), Door()
        if is_named:
            authority = Authority.new("lab")
            sender, receiver = (
                Identity(authority.credentials(Name("lab", PartyRole.HOST, name))) for name in ("h1", "h2")
            )
            pair.names, entrance = {"identity": sender, "receiver": "h2"}, Door(receiver, PartyRole.HOST)
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            pair.address = listeners[0].socket.getsockname()

            async def accept(hello: Hello, address: str) -> None:
                if pair.refusal is not None:
                    raise TransferFailed(pair.refusal, retryable=False)

            server = CheckpointServer(
                store=target,
                on_event=pair.note,
                accept=accept,
                door=entrance,
                idle_s=idle_timeout_s,
                limits=limits,
                is_sealed=is_sealed,
            )
            await nursery.start(trio.serve_listeners, server.serve, listeners)
            yield pair
            nursery.cancel_scope.cancel()
        for manifest in target.manifests():  # the invariant of every test
            target.verify(manifest)


@asynccontextmanager
async def relay(target: tuple[str, int], fault: Callable[[bytes, int], bytes | None]) -> AsyncIterator[tuple[str, int]]:
    """A TCP relay whose sender-to-receiver bytes pass through `fault(data, offset)`; None cuts both connections."""

    async def forward(source: trio.SocketStream, sink: trio.SocketStream, faulty: bool) -> None:
        offset = 0
        try:
            async for data in source:
                passed = fault(bytes(data), offset) if faulty else bytes(data)
                offset += len(data)
                if passed is None:
                    await source.aclose()
                    await sink.aclose()
                    return
                await sink.send_all(passed)
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await source.aclose()
            await sink.aclose()

    async def both(stream: trio.SocketStream) -> None:
        onward = await trio.open_tcp_stream(*target)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forward, stream, onward, True)
            nursery.start_soon(forward, onward, stream, False)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, both, listeners)
        yield listeners[0].socket.getsockname()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def peer(pair: Pair, address: str = "127.0.0.1") -> AsyncIterator[Channel[Message]]:
    """A hand-made sender, that can say anything."""
    stream = await trio.open_tcp_stream(*pair.address, local_address=address)
    async with stream:
        yield Channel(stream, CONTENTS)


async def offer(sender: Channel[Message], manifest: Manifest, announced: Manifest | None = None) -> Message | None:
    """Hello (of another checkpoint, if one is given) and manifest; what the receiver wants, or why it does not."""
    await sender.send(Hello.of(announced or manifest))
    answer = await sender.receive()
    if not isinstance(answer, Describe):
        return answer
    await sender.send(Contents(manifest))
    return await verdict(sender)


async def verdict(sender: Channel[Message]) -> Message | None:
    """The next answer that is more than a sign of life."""
    while isinstance(answer := await sender.receive(), Busy):
        pass
    return answer


async def describe(channel: Channel[Message]) -> None:
    """Hears a hello and its manifest."""
    await channel.receive()
    await channel.send(Describe())
    await channel.receive()


@asynccontextmanager
async def receiver(behaviour: Callable[[Channel[Message]], Any]) -> AsyncIterator[tuple[str, int]]:
    """A hand-made receiver, that can do anything."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def handle(stream: trio.SocketStream) -> None:
            async with stream:
                await behaviour(Channel(stream, CONTENTS))

        nursery.start_soon(trio.serve_listeners, handle, listeners)
        yield listeners[0].socket.getsockname()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("tail", [0, 1, CHUNK - 1])
async def test_checkpoint_arrives_to_the_byte(tmp_path: Path, tail: int, is_named: bool) -> None:
    async with serving(tmp_path, is_named=is_named) as pair:
        data = content(5, tail=tail)
        manifest = pair.ingest(data)
        seen: list[tuple[int, int]] = []
        result = await pair.send(manifest, on_progress=lambda sent, total: seen.append((sent, total)))
        assert pair.target.payload(manifest).read_bytes() == data
        assert (result.bytes_sent, result.bytes_deduplicated) == (len(data), 0)
        assert seen == sorted(seen)
        assert seen[-1] == (len(data), len(data))
        assert pair.events == [ReceiveCompleted(manifest)]


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_copy_whose_bytes_went_bad_on_the_disk_is_received_anew(tmp_path: Path, is_gone: bool) -> None:
    async with serving(tmp_path) as pair:
        manifest = pair.ingest(content(3))
        await pair.send(manifest)
        payload = pair.target.payload(manifest)
        payload.chmod(0o600)
        with payload.open("r+b") as file:
            file.write(b"rot")
        if is_gone:
            payload.unlink()
        again = await pair.send(manifest)
        assert 0 < again.bytes_sent <= len(content(3))
        pair.target.verify(manifest)


async def test_only_changed_chunks_of_the_next_checkpoint_are_sent(tmp_path: Path) -> None:
    async with serving(tmp_path) as pair:
        old = content(8)
        await pair.send(pair.ingest(old, 1))
        new = old[: 2 * CHUNK] + content(1, seed=5) + old[3 * CHUNK : 6 * CHUNK] + content(2, seed=6)
        manifest = pair.ingest(new, 2)
        result = await pair.send(manifest)
        assert (result.bytes_sent, result.bytes_deduplicated) == (3 * CHUNK, 5 * CHUNK)
        assert pair.target.payload(manifest).read_bytes() == new


async def test_cut_connection_is_resumed_without_resending_what_arrived(tmp_path: Path) -> None:
    async with serving(tmp_path) as pair:
        data = content(32)
        manifest = pair.ingest(data)
        cut = 20 * CHUNK
        async with relay(pair.address, lambda piece, at: piece if at + len(piece) < cut else None) as through:
            await pair.fails(manifest, None, retryable=True, address=through)
        assert pair.target.manifests() == []
        await pair.until(ReceiveFailed)
        result = await pair.send(manifest)
        assert result.bytes_sent < 20 * CHUNK
        assert result.bytes_sent + result.bytes_deduplicated == len(data)
        assert pair.target.payload(manifest).read_bytes() == data


async def test_flipped_byte_is_found_and_only_the_rest_is_sent_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as pair:
        old = pair.ingest(content(2, seed=9), 1)
        await pair.send(old)
        manifest = pair.ingest(content(16), 2)
        place = 10 * CHUNK

        def flip(piece: bytes, at: int) -> bytes:
            changed = bytearray(piece)
            if at <= place < at + len(piece):
                changed[place - at] ^= 0x01
            return bytes(changed)

        async with relay(pair.address, flip) as through:
            failure = await pair.fails(manifest, "do not have the hash", retryable=True, address=through)
        assert failure.chunk in (9, 10)
        assert pair.target.manifests() == [old]
        result = await pair.send(manifest)
        assert result.bytes_sent <= 7 * CHUNK
        assert pair.target.get(*manifest.key) == manifest


@pytest.mark.parametrize("is_named", [False, True])
async def test_damage_in_the_senders_own_copy_is_said_and_not_retried(tmp_path: Path, is_named: bool) -> None:
    """The refusal comes by the conversation while raw bytes go beneath it, the other way."""
    async with serving(tmp_path, is_named=is_named) as pair:
        manifest = pair.ingest(content(4))
        with pair.origin.payload(manifest).open("r+b") as file:
            file.seek(2 * CHUNK)
            file.write(b"rot")
        assert (await pair.fails(manifest, "own copy is damaged", retryable=False)).own_fault
        os.truncate(pair.origin.payload(manifest), CHUNK)
        assert (await pair.fails(manifest, "another size", retryable=False)).own_fault
        assert pair.target.manifests() == []


@pytest.mark.parametrize("is_named", [False, True])
async def test_host_may_refuse_with_its_reason(tmp_path: Path, is_named: bool) -> None:
    async with serving(tmp_path, is_named=is_named) as pair:
        pair.refusal = "the owner is back"
        await pair.fails(pair.ingest(content(1)), "the owner is back", retryable=False)
        assert pair.of(ReceiveFailed)[0].reason == "the owner is back"


@pytest.mark.parametrize(
    ("is_announced", "chunks", "lie", "said"),
    [
        (True, 4, {"payload_bytes": 5 * CHUNK}, "5 hashes"),
        (True, 4, {"job": "../../../etc/cron.d"}, "job"),
        (True, 4, {"chunk_bytes": 1}, "`int` >= 4096"),
        (True, 4, {"step": 99}, "digest"),
        (False, 1, {}, "not the one of the hello"),
        (False, 100, {}, "are allowed"),
    ],
)
async def test_lying_manifest_is_refused_and_others_are_served(
    tmp_path: Path, is_announced: bool, chunks: int, lie: dict[str, Any], said: str
) -> None:
    async with serving(tmp_path) as pair:
        honest, other = pair.ingest(content(1)), pair.ingest(content(chunks), 2)
        async with peer(pair) as liar:
            forged = msgspec.structs.replace(other, **lie)
            answer = await offer(liar, forged, announced=forged if is_announced else honest)
            assert isinstance(answer, Rejected)
            assert said in answer.reason
            assert not answer.retryable
            assert await liar.receive() is None
        assert list(tmp_path.glob("target/*/*")) == []
        assert (await pair.send(honest)).bytes_sent > 0


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "begins with"),
        (CONTENTS.encode(Busy()), "begins with a hello"),
        (CONTENTS.encode(Busy())[:5], "ended after"),
        (b"", "begins with a hello"),
        # longer than a hello: the receiver keeps no more
        (b"RCLM" + (1).to_bytes(2, "big") + (8 << 20).to_bytes(4, "big"), "at most 512 are allowed"),
    ],
)
async def test_stranger_is_closed_alone(tmp_path: Path, first: bytes, said: str) -> None:
    async with serving(tmp_path) as pair:
        stream = await trio.open_tcp_stream(*pair.address)
        async with stream:
            await stream.send_all(first)
            await stream.send_eof()
            await pair.until(ReceiveFailed)
        failure = pair.of(ReceiveFailed)[0]
        assert said in failure.reason
        assert failure.checkpoint is None
        assert (await pair.send(pair.ingest(content(1)))).bytes_sent > 0


async def test_silent_sender_is_given_up_and_its_chunks_kept(tmp_path: Path) -> None:
    async with serving(tmp_path, idle_timeout_s=1.0) as pair:
        data = content(4)
        manifest = pair.ingest(data)
        async with peer(pair) as silent:
            await offer(silent, manifest)
            await silent.stream.send_all(data[: 2 * CHUNK + 5])
            answer = await verdict(silent)
        assert isinstance(answer, Rejected)
        assert answer.retryable
        assert "sent 0 bytes in 1 s" in answer.reason
        assert (await pair.send(manifest)).bytes_sent == 2 * CHUNK


async def test_peer_with_too_many_connections_is_refused_and_heard_again_when_it_has_fewer(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=Limits(connections_of_peer=3)) as pair:
        manifest = pair.ingest(content(1))
        async with AsyncExitStack() as idle:
            for job in ("a", "b", "c"):
                other = await idle.enter_async_context(peer(pair))
                assert isinstance(await offer(other, pair.ingest(content(1), job=job)), Want)
            await pair.fails(manifest, "too many connections", retryable=True)
        await pair.until(ReceiveFailed, 4)
        assert (await pair.send(manifest)).bytes_sent > 0


async def test_another_host_that_answers_is_sent_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, is_named=True) as pair:
        manifest = pair.ingest(content(1))
        await pair.fails(manifest, "spiffe://lab/host/h2 answers instead of h3", retryable=True, receiver="h3")
        strange = Identity(Authority.new("lab").credentials(Name("lab", PartyRole.HOST, "h1")))
        await pair.fails(manifest, "h2 did not prove its name: no handshake", retryable=True, identity=strange)
        await pair.fails(manifest, None, retryable=True, identity=None)
        await pair.until(ReceiveFailed, 3)
        assert pair.target.manifests() == []
        assert (await pair.send(manifest)).bytes_sent > 0


async def test_hosts_that_fill_a_receivers_door_delay_others_and_keep_none_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight hosts with more connections than there are places in line; each ends when no handshake has come in time."""
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.5)
    async with serving(tmp_path, is_named=True) as pair, AsyncExitStack() as idle:
        for last in range(2, 10):
            for _ in range(door.HANDSHAKES_OF_ONE):
                stream = await trio.open_tcp_stream(*pair.address, local_address=f"127.0.0.{last}")
                await idle.enter_async_context(stream)
        assert (await pair.send(pair.ingest(content(1)))).bytes_sent > 0


async def test_sender_that_dribbles_does_not_keep_a_thread(tmp_path: Path) -> None:
    """It is never silent, yet sends less than the least rate."""
    limits = Limits(least_rate_bytes_per_s=1e6)
    async with serving(tmp_path, 2.0, limits) as pair, peer(pair) as slow:
        manifest = pair.ingest(content(2))
        assert isinstance(await offer(slow, manifest), Want)
        with trio.fail_after(PATIENT_S):
            while not pair.of(ReceiveFailed):
                await slow.stream.send_all(b"x")
                await trio.sleep(0.01)
        assert "at least 2e+06 are needed" in pair.of(ReceiveFailed)[0].reason
        assert pair.of(ReceiveFailed)[0].retryable
        left = sum(path.stat().st_blocks * 512 for path in tmp_path.glob("target/*/*.partial"))
        assert left <= CHUNK  # what it sent, until it is collected


async def test_receiver_wakes_for_chunks_and_not_for_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    wake_at = Intake._wake_at

    def noted(intake: Intake, least_bytes: int) -> None:
        waits.append(least_bytes)
        wake_at(intake, least_bytes)

    monkeypatch.setattr(Intake, "_wake_at", noted)
    async with serving(tmp_path) as pair, peer(pair) as slow:
        data = content(3, tail=100)
        manifest = pair.ingest(data)
        assert isinstance(await offer(slow, manifest), Want)
        for at in range(0, len(data), 1000):
            await slow.stream.send_all(data[at : at + 1000])
            await trio.sleep(0.001)
        assert isinstance(await verdict(slow), Stored)
    assert len(waits) <= 2 * 4 + 1  # for each chunk, and once for all to be as it was
    assert max(waits) > CHUNK // 2
    assert waits[-1] == 1


async def test_room_is_taken_as_bytes_come_and_no_earlier(tmp_path: Path) -> None:
    """512 MiB are announced and one is sent."""
    chunk = 1 << 20
    first = os.urandom(chunk)
    hashes = [blake3(first).digest(), *(n.to_bytes(32, "big") for n in range(1, 512))]
    manifest = Manifest.of("job", 1, 1, 512 * chunk, chunk, hashes)
    async with serving(tmp_path) as pair:
        partial = tmp_path / "target/job/1.partial"
        async with peer(pair) as sender:
            assert isinstance(await offer(sender, manifest), Want)
            assert partial.stat().st_blocks == 0
            await sender.stream.send_all(first)
        await pair.until(ReceiveFailed)
        assert partial.stat().st_blocks * 512 <= 2 * chunk
        async with peer(pair) as sender:
            wanted = await offer(sender, manifest)
            assert chunks_of(wanted.chunks, 512)[0] == 1  # the verified one was kept


async def test_receiver_that_never_answers_is_given_up_once_no_more_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(range(40))
    monkeypatch.setattr("testbed.transfer.send.unacknowledged_bytes", lambda _: left.pop() if left else 0)
    async with serving(tmp_path) as pair, receiver(lambda _: trio.sleep_forever()) as address:
        manifest = pair.ingest(content(1))
        await pair.fails(manifest, "no sign of life", retryable=True, address=address, idle_timeout_s=0.1)
    assert left == []


async def test_receiver_has_some_time_however_fast_its_grant(tmp_path: Path) -> None:
    async def behave(channel: Channel[Message]) -> None:
        await describe(channel)
        await channel.send(Busy())
        await channel.send(Stored(manifest.digest))
        await channel.receive()

    async with serving(tmp_path) as pair, receiver(behave) as address:
        manifest = pair.ingest(content(1))
        sent = await pair.send(manifest, address=address, allowed_bytes=lambda: inf, least_patience_s=PATIENT_S)
    assert sent.bytes_sent == 0


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_disk_that_cannot_be_read_is_the_senders_own_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    def refuses(*_: object) -> int:
        raise OSError(errno.EIO if is_own else errno.EPIPE, "so it is")

    async with serving(tmp_path) as pair:
        manifest = pair.ingest(content(1))
        monkeypatch.setattr(os, "sendfile", refuses)
        said = "own copy cannot be read: .*so it is" if is_own else "before the end"
        assert (await pair.fails(manifest, said, retryable=not is_own)).own_fault is is_own


async def test_a_peer_whose_manifests_are_not_read_yet_waits_with_the_next(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=Limits(manifest_bytes_of_peer=1000)) as pair:
        manifest = pair.ingest(content(1))
        async with peer(pair) as slow:
            await slow.send(Hello.of(manifest))
            assert isinstance(await slow.receive(), Describe)
            await pair.fails(manifest, "too many manifests", retryable=True)
        await pair.until(ReceiveFailed, 2)
        assert (await pair.send(manifest)).bytes_sent > 0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Want(b"\xff"), "wants chunk 7 of 2"),
        (Want(b"\x01\x00"), "2 bytes for 2 chunks"),
        (Stored(bytes(32)), "out of turn"),
        (Describe(), "out of turn"),
        (None, "without an answer"),
    ],
)
async def test_receiver_that_answers_nonsense_fails_the_transfer(
    tmp_path: Path, answer: Message | None, said: str
) -> None:
    async def behave(channel: Channel[Message]) -> None:
        await describe(channel)
        if answer is not None:
            await channel.send(answer)
            await channel.receive()

    async with serving(tmp_path) as pair, receiver(behave) as address:
        await pair.fails(pair.ingest(content(2)), said, retryable=answer is None, address=address)


@pytest.mark.parametrize("how", ["busy before it wants anything", "busy behind the last byte", "reads a little"])
async def test_receiver_that_only_shows_signs_of_life_is_given_up(tmp_path: Path, how: str) -> None:
    """It held the job that it is the standby of without a checkpoint, for ever."""
    chunks, began_s = 512, trio.current_time()
    payload_bytes = chunks * CHUNK

    async def behave(channel: Channel[Message]) -> None:
        await describe(channel)
        if how != "busy before it wants anything":
            await channel.send(Want(bitmap_of(list(range(chunks)), chunks)))
        if how == "reads a little":
            while await channel.stream.receive_some(2 * CHUNK):
                await trio.sleep(0.05)
        if how == "busy behind the last byte":
            left = payload_bytes
            while left:
                left -= len(await channel.stream.receive_some(left))
        with suppress(trio.BrokenResourceError):
            while True:
                await channel.send(Busy())
                await trio.sleep(0.02)

    async with serving(tmp_path) as pair, receiver(behave) as address:
        manifest = pair.ingest(content(1) * chunks)
        await pair.fails(
            manifest,
            "64 times as long",
            retryable=True,
            address=address,
            idle_timeout_s=8.0,  # it is looked at four times in that
            least_patience_s=0.2,
            allowed_bytes=lambda: 80.0 * payload_bytes * (trio.current_time() - began_s),
        )


@pytest.mark.parametrize("address", ["", "nowhere", "300.1.1.1", "::1%none%", "10.0.0.1/8", "127.0.0.1"])
async def test_order_to_send_to_no_address_fails_and_where_nobody_listens_is_tried_again(
    tmp_path: Path, address: str
) -> None:
    is_one = address == "127.0.0.1"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with serving(tmp_path) as pair:
            manifest, to = pair.ingest(content(1)), (address, unused.getsockname()[1])
            await pair.fails(manifest, "refused" if is_one else "address", retryable=is_one, address=to)


async def test_sender_runs_ahead_of_a_receiver_that_is_not_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a full receive window holds up, a paced flow never makes up for."""
    take, size = Intake.take, 24 * CHUNK  # 1.6 MB
    socks: list[socket.socket] = []
    handed, ahead = [0], [0]

    def take_late(self: Intake, chunks: list[int]) -> None:
        until_s = time.monotonic() + PATIENT_S
        while ahead[-1] < size and time.monotonic() < until_s:
            time.sleep(0.005)
            ahead.append(handed[-1] - unacknowledged_bytes(socks[0]))
        take(self, chunks)

    monkeypatch.setattr(Intake, "take", take_late)
    async with serving(tmp_path) as pair:
        manifest = pair.ingest(content(24))
        await pair.send(manifest, on_connected=socks.append, on_progress=lambda sent, _: handed.append(sent))
    assert ahead[-1] == size


async def test_later_checkpoint_of_the_same_host_supersedes_and_goes_on_with_what_arrived(tmp_path: Path) -> None:
    async with serving(tmp_path) as pair:
        data = content(6)
        changed = content(1, seed=9) + data[CHUNK:]
        earlier, later = pair.ingest(data), pair.ingest(changed, sequence=2)
        async with peer(pair) as first:
            assert isinstance(await offer(first, earlier), Want)
            await first.stream.send_all(data[: 4 * CHUNK])
            partial = tmp_path / "target/job/1.partial"
            await until(lambda: partial.read_bytes()[: 4 * CHUNK] == data[: 4 * CHUNK])
            result = await pair.send(later)
        assert result.bytes_sent == 3 * CHUNK  # the one that changed, and two that had not arrived
        assert [event.checkpoint for event in pair.of(ReceiveFailed)] == ["job:1"]


async def test_a_checkpoint_of_the_job_from_another_host_leaves_an_arrival_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as pair:
        data = content(6)
        first, other = pair.ingest(data), pair.ingest(content(6, seed=9), sequence=2)
        async with peer(pair, "127.0.0.2") as sender:
            assert isinstance(await offer(sender, first), Want)
            await pair.send(other)
            await sender.stream.send_all(data)
            await pair.until(ReceiveCompleted, 2)
        assert not pair.of(ReceiveFailed)


async def test_checkpoints_that_a_sender_breaks_off_one_after_another_fill_no_disk(tmp_path: Path) -> None:
    """Each of a lower number than the one before: 40 of them held 40 times the payload, for as long as the job was announced."""
    async with serving(tmp_path) as pair:
        for sequence in range(6, 0, -1):
            data = content(8, seed=sequence)
            manifest = pair.ingest(data, sequence)
            async with peer(pair) as sender:
                assert isinstance(await offer(sender, manifest), Want)
                await sender.stream.send_all(data[: 7 * CHUNK])
            await pair.until(ReceiveFailed, 7 - sequence)
        assert len(list((tmp_path / "target/job").glob("*.partial"))) <= 2


async def test_many_senders_of_one_checkpoint_complete_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as pair:
        manifest = pair.ingest(content(40))
        outcomes: list[str] = []
        publish, published = pair.target._publish, list[Manifest]()

        def counted(manifest: Manifest, *where: Any) -> None:
            published.append(manifest)
            publish(manifest, *where)

        monkeypatch.setattr(pair.target, "_publish", counted)

        async def attempt(name: str) -> None:
            try:
                await pair.send(manifest)
                outcomes.append("stored")
            except TransferFailed as failure:
                assert "superseded" in failure.reason and not failure.retryable
                outcomes.append("superseded")

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(attempt, f"t{number}")
        assert published == [manifest]
        assert len(outcomes) == 6
        assert len(pair.of(ReceiveCompleted)) == outcomes.count("stored") > 0
        assert pair.target.get(*manifest.key) == manifest


@pytest.mark.kernel
async def test_full_file_system_is_refused_and_the_old_checkpoint_stays(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    (tmp_path / "target").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "reclaim-test", str(tmp_path / "target")]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        async with serving(tmp_path) as pair:
            old, large = pair.ingest(content(4), 1), pair.ingest(content(8, seed=2), 2)
            await pair.send(old)
            with pytest.raises(TransferFailed, match="no room for"):
                await pair.send(large)
            assert pair.target.manifests() == [old]
            assert sorted(p.name for p in (tmp_path / "target/job").iterdir()) == ["1.manifest", "1.payload"]
            fits = pair.ingest(content(2, seed=3), 3)
            assert (await pair.send(fits)).bytes_sent > 0
    finally:
        subprocess.run(["umount", str(tmp_path / "target")], check=True)
