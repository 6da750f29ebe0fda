"""Chunks coded on their way: smaller where that can be had, the same bytes at the other end, and no peer is let do harm."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.model import effects as do
from controller.core.model import facts as f
from experiments.results.accounting import summarise
from experiments.results.narration import describe
from testbed import messages as m
from testbed.checkpoints import Manifest
from testbed.errors import RemoteProtocolError
from testbed.transfer import Hello, ReceiveFailed, TransferFailed, serve_checkpoints
from testbed.transfer.coding import (
    CODEC,
    DELTA,
    FASTEST_BYTES_PER_S,
    HEADER,
    PLANES,
    STORED,
    WHOLE,
    ChunkDecoder,
    ChunkEncoder,
)
from testbed.transfer.messages import ANSWER, HELLO, NOT_UNDERSTOOD, Contents, Describe, Rejected, Want
from tests import run_story
from tests.test_transfer import CHUNK, content, peer, relay, serving
from tests.test_waiting import Silent

pytestmark = pytest.mark.alone


def weights(floats: int = 1 << 17, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """As a model's: 32 chunks of them."""
    return np.random.default_rng(seed).normal(0.0, 0.02, floats).astype(np.float32)


def trained(before: np.ndarray[Any, Any], seed: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A step later."""
    step = np.random.default_rng(seed).normal(0.0, 1e-5, before.shape)
    return (before + step).astype(np.float32)


# ------------------------------------------------------------ a chunk by itself


@given(
    data=st.binary(min_size=1, max_size=200) | st.binary(min_size=1, max_size=3).map(lambda part: part * 999),
    base=st.none() | st.binary(max_size=200),
)
@settings(max_examples=200, deadline=None)
def test_what_comes_out_is_what_went_in(data: bytes, base: bytes | None) -> None:
    with memory(data) as file, memory(base or b"") as base_file:
        of_base = None if base is None else base_file
        coded = ChunkEncoder(manifest_of(data), file, of_base).encode([0])
        method, length = HEADER.unpack_from(coded)
        body = coded[HEADER.size :]
        assert length == len(body) <= len(data)
        assert ChunkDecoder(of_base).decode(method, body, 0, len(data)) == data
        stored = ChunkEncoder(manifest_of(data), file, of_base).encode([0], stored=True)
        assert stored == HEADER.pack(STORED, len(data)) + data


@contextmanager
def memory(data: bytes) -> Iterator[int]:
    """An open file of these bytes."""
    fd = os.memfd_create("chunk")
    try:
        os.write(fd, data)
        yield fd
    finally:
        os.close(fd)


def manifest_of(data: bytes) -> Manifest:
    return Manifest.of("job", 1, 1, len(data), CHUNK, [bytes(32)] * -(-len(data) // CHUNK))


def frame(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(data)


def plane(coded: bytes) -> bytes:
    return struct.pack(">I", len(coded)) + coded


BOMB = frame(bytes(100 << 20))
WRONG = {
    "a method that there is not": (9, b""),
    "more or fewer bytes than the chunk has": (STORED, b"x" * 1001),
    "a frame that declares what no chunk has": (WHOLE, plane(BOMB)),
    "a frame that declares 1000 bytes and holds 100 MB": (
        WHOLE,
        plane(BOMB.replace(struct.pack("<I", 100 << 20), struct.pack("<I", 1000))),
    ),
    "a frame that does not declare": (
        WHOLE,
        plane(zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 1000)),
    ),
    "a frame behind the frame": (WHOLE, plane(frame(b"x" * 1000) + frame(b"x" * 1000))),
    "no frame": (WHOLE, plane(b"x" * 10)),
    "a plane that is longer than it says": (WHOLE, struct.pack(">I", 2000) + b"x" * 900),
    "planes that are missing": (PLANES, plane(b"x" * 250)),
    "bytes behind the planes": (PLANES, 4 * plane(b"x" * 250) + b"x"),
    "a difference to nothing": (DELTA, 4 * plane(b"x" * 250)),
}


@pytest.mark.parametrize(("method", "body"), WRONG.values(), ids=WRONG)
def test_a_body_that_is_no_chunk_of_1000_bytes_is_an_error_before_memory_is_taken_for_it(
    method: int, body: bytes
) -> None:
    with pytest.raises(RemoteProtocolError):
        ChunkDecoder(None).decode(method, body, 0, 1000)


# ------------------------------------------------------------ between two stores


@pytest.mark.trio
async def test_numbers_go_in_fewer_bytes_and_fewer_still_once_both_ends_have_the_last_ones(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as pair:
        first = weights()
        plain_bytes = first.nbytes
        sent = await pair.send(pair.ingest(first.tobytes(), 1))
        assert sent.coding is not None
        assert sent.coding.plain_bytes == plain_bytes
        assert sent.bytes_sent < 0.9 * plain_bytes
        again = await pair.send(pair.ingest(trained(first).tobytes(), 2))
        assert again.bytes_sent < 0.8 * sent.bytes_sent
        assert again.bytes_deduplicated == 0
        assert again.coding is not None
        assert again.coding.encode_s > 0.0 < again.coding.decode_s
        assert pair.target.payload(pair.target.get("job", 2)).read_bytes() == trained(first).tobytes()


@pytest.mark.trio
async def test_random_bytes_go_as_they_are_and_nothing_is_said_of_codecs(tmp_path: Path) -> None:
    async with serving(tmp_path) as pair:
        await pair.send(pair.ingest(content(4), 1))
        # three of four chunks are known: their being equal to the last ones is no reason to code the fourth
        result = await pair.send(pair.ingest(content(3) + content(1, seed=9), 2))
        assert (result.coding, result.bytes_sent) == (None, CHUNK)


@pytest.mark.trio
@pytest.mark.parametrize("options", [{"rate_bytes_per_s": 1.01 * FASTEST_BYTES_PER_S}, {"codes": False}])
async def test_a_flow_that_is_granted_more_than_a_coder_keeps_up_with_is_not_coded(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    async with serving(tmp_path) as pair:
        data = weights().tobytes()
        result = await pair.send(pair.ingest(data), **options)
        assert (result.coding, result.bytes_sent) == (None, len(data))


@pytest.mark.trio
async def test_a_wire_that_waits_for_the_coder_gets_every_other_part_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, asked = ChunkEncoder.encode, []

    def slowly(self: ChunkEncoder, chunks: Sequence[int], *, stored: bool = False) -> bytes:
        asked.append(stored)
        time.sleep(0.2)
        return encode(self, chunks, stored=stored)

    monkeypatch.setattr(ChunkEncoder, "encode", slowly)
    async with serving(tmp_path) as pair:
        data = weights(1 << 19)
        result = await pair.send(pair.ingest(data.tobytes()))
        assert asked == [False, False, True, False]
        assert result.starved
        assert 0.8 * data.nbytes < result.bytes_sent < 0.95 * data.nbytes


@pytest.mark.trio
async def test_a_receiver_that_takes_no_codec_gets_plain_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.test_transfer.serve_checkpoints", without_codecs)
    async with serving(tmp_path) as pair:
        data = weights().tobytes()
        result = await pair.send(pair.ingest(data))
        assert (result.coding, result.bytes_sent) == (None, len(data))
        assert not pair.of(ReceiveFailed)


async def without_codecs(*arguments: Any, **named: Any) -> None:
    await serve_checkpoints(*arguments, codecs=(), **named)


@pytest.mark.trio
async def test_a_receiver_of_an_older_program_is_asked_again_in_its_own_words(tmp_path: Path) -> None:
    """It refuses a Hello with fields that it does not know."""

    def old(data: bytes, offset: int) -> bytes | None:
        return data.replace(b"codecs", b"codexs")  # a name that this program does not know either

    async with serving(tmp_path) as pair, relay(pair.address, old) as address:
        data, connected = weights().tobytes(), []
        result = await pair.send(pair.ingest(data), address=address, on_connected=connected.append)
        assert (result.coding, result.bytes_sent, len(connected)) == (None, len(data), 2)
        assert pair.of(ReceiveFailed)[0].reason.startswith(NOT_UNDERSTOOD)


@pytest.mark.trio
async def test_a_sender_of_an_older_program_is_answered_in_its_own_words(tmp_path: Path) -> None:
    async with serving(tmp_path) as pair:
        manifest = pair.ingest(weights().tobytes())
        said = msgspec.msgpack.decode(HELLO.encode(Hello.of("t", manifest))[10:])
        assert not {"codecs", "bases"} & said.keys()
        async with peer(pair) as sender:
            await sender.send(Hello.of("t", manifest))
            assert isinstance(await sender.receive(), Describe)
            await sender.send(Contents(manifest))
            want = await sender.receive()
        assert isinstance(want, Want)
        assert msgspec.msgpack.decode(ANSWER.encode(want)[10:]).keys() == {"type", "chunks"}


@pytest.mark.trio
async def test_a_hostile_sender_of_coded_chunks_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as pair:
        manifest = pair.ingest(weights().tobytes())
        for answer in (
            HEADER.pack(WHOLE, len(plane(BOMB))) + plane(BOMB),
            HEADER.pack(WHOLE, CHUNK + 1),
            HEADER.pack(7, 0),
        ):
            async with peer(pair) as sender:
                await sender.send(Hello.of("t", manifest, codecs=(CODEC,)))
                assert isinstance(await sender.receive(), Describe)
                await sender.send(Contents(manifest))
                assert await sender.receive() == Want(b"\xff", CODEC)
                await sender.stream.send_all(answer)
                refused = await sender.receive()
            assert isinstance(refused, Rejected)
            assert not refused.retryable
            assert not list((tmp_path / "target").glob("*/*.partial"))
        assert pair.target.manifests() == []


@pytest.mark.trio
async def test_chunks_that_are_not_what_the_manifest_says_are_refused_and_asked_for_again(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as pair:
        manifest = pair.ingest(weights().tobytes())
        async with peer(pair) as sender:
            await sender.send(Hello.of("t", manifest, codecs=(CODEC,)))
            assert isinstance(await sender.receive(), Describe)
            await sender.send(Contents(manifest))
            assert await sender.receive() == Want(b"\xff", CODEC)
            await sender.stream.send_all(HEADER.pack(WHOLE, len(plane(frame(bytes(CHUNK))))))
            await sender.stream.send_all(plane(frame(bytes(CHUNK))))
            refused = await sender.receive()
        assert isinstance(refused, Rejected)
        assert (refused.retryable, refused.chunk) == (True, 0)


@pytest.mark.trio
async def test_a_base_that_is_damaged_at_one_end_is_not_used_a_second_time(tmp_path: Path) -> None:
    async with serving(tmp_path) as pair:
        first = weights()
        await pair.send(pair.ingest(first.tobytes(), 1))
        stored = pair.target.payload(pair.target.get("job", 1))
        with stored.open("r+b") as file:
            file.write(b"not what it was")
        second = pair.ingest(trained(first).tobytes(), 2)
        with pytest.raises(TransferFailed) as failure:
            await pair.send(second)
        assert (failure.value.retryable, failure.value.chunk) == (True, 0)
        result = await pair.send(second)
        assert result.coding is not None
        assert pair.target.holds(second)
        pair.target.drop("job", 1)  # what the fixture looks at in the end is whole


@pytest.mark.trio
async def test_a_coded_transfer_that_broke_off_goes_on_where_it_was(tmp_path: Path) -> None:
    async with serving(tmp_path) as pair:
        data = weights().tobytes()
        manifest = pair.ingest(data)

        def cut(part: bytes, offset: int) -> bytes | None:
            return part if offset < len(data) // 2 else None

        async with relay(pair.address, cut) as address:
            with pytest.raises(TransferFailed) as failure:
                await pair.send(manifest, address=address)
        assert failure.value.retryable
        result = await pair.send(manifest)
        assert result.bytes_deduplicated >= 2 * CHUNK
        assert pair.target.payload(manifest).read_bytes() == data


@pytest.mark.trio
async def test_a_paced_flow_of_coded_chunks_takes_as_long_as_its_wire_bytes_take(tmp_path: Path) -> None:
    """A grant is payload of the wire: coding shortens the transfer by what it saves, and never goes faster than the grant."""
    rate_bytes_per_s = 2e6

    def pace(sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, 47, int(rate_bytes_per_s))  # SO_MAX_PACING_RATE

    async with serving(tmp_path) as pair:
        data = weights(1 << 20).tobytes()
        told: list[int] = []
        result = await pair.send(
            pair.ingest(data), on_connected=pace, on_progress=lambda sent, _: told.append(sent)
        )
        assert result.bytes_sent == told[-1] < 0.9 * len(data)
        assert result.duration_s > 0.85 * (result.bytes_sent - (1 << 18)) / rate_bytes_per_s


# ------------------------------------------------------------ what is told of it


def test_what_coding_came_to_is_a_fact_and_adds_up_in_the_summary() -> None:
    silent = Silent()
    coding = m.Coding(CODEC, 100_000, 0.002, 0.001)
    told = m.TransferEnded("t", "a", 7, silent.job.standby or "", True, 60_000, 0, 0.1, coding=coding)
    facts = [e.fact for e in silent.say(silent.host, told) if isinstance(e, do.Record)]
    [coded] = [fact for fact in facts if isinstance(fact, f.TransferCoded)]
    assert (coded.plain_bytes, coded.wire_bytes, coded.source) == (100_000, 60_000, silent.host)
    assert silent.job.sent_bytes == 60_000  # what P1 plans the next one with
    plain = m.TransferEnded("t", "a", 8, silent.job.standby or "", True, 60_000, 0, 0.1)
    effects = silent.say(silent.host, plain)
    assert not [e for e in effects if isinstance(e, do.Record) and isinstance(e.fact, f.TransferCoded)]

    context = run_story.context()
    figures = summarise([(1.0, coded), (2.0, coded)], context).checkpoints
    assert (figures.coded, figures.plain_mean_bytes, figures.coded_mean_bytes) == (2, 100_000, 60_000)
    assert figures.coding_s == pytest.approx(0.006)
    assert "was coded: 100 kB as 60 kB" in describe(coded)
