"""Frames: whatever the network does to the bytes, messages come out whole, or the peer is told off."""

import socket
import struct
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import RemoteProtocolError
from testbed.wire import VERSION, Channel, Codec, Decoder, MessageStream


class Ping(msgspec.Struct, tag="ping", frozen=True):
    number: int


class Text(msgspec.Struct, tag="text", frozen=True):
    words: list[str]
    blob: bytes = b""


class Stranger(msgspec.Struct, tag="stranger", frozen=True):
    number: int


CODEC: Codec[Ping | Text] = Codec(Ping | Text, max_bytes=4096)
MESSAGES = st.one_of(
    st.builds(Ping, st.integers(-(2**63), 2**63 - 1)),
    st.builds(Text, st.lists(st.text(max_size=8), max_size=4), st.binary(max_size=64)),
)


def frame(body: bytes, magic: bytes = b"RCLM", version: int = VERSION) -> bytes:
    return struct.pack(">4sHI", magic, version, len(body)) + body


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def take(decoder: Decoder[Any], parts: list[bytes], found: list[Any]) -> None:
    """Feed the whole of a stream; what it holds is appended to `found`."""
    for part in parts:
        decoder.feed(part)
        while (message := decoder.next()) is not None:
            found.append(message)
    decoder.eof()


@given(st.lists(MESSAGES, max_size=6), st.lists(st.integers(0, 2000), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_messages(messages: list[Any], cuts: list[int]) -> None:
    data = b"".join(CODEC.encode(message) for message in messages)
    decoder = CODEC.decoder()
    found: list[Any] = []
    take(decoder, pieces(data, cuts), found)
    assert found == messages


@given(st.lists(MESSAGES, max_size=3), st.binary(min_size=1, max_size=80), st.lists(st.integers(0, 500), max_size=5))
def test_garbage_raises_only_remote_errors_and_never_costs_the_messages_before_it(
    messages: list[Any], garbage: bytes, cuts: list[int]
) -> None:
    data = b"".join(CODEC.encode(message) for message in messages) + garbage
    decoder, found = CODEC.decoder(), []
    with pytest.raises(RemoteProtocolError):
        take(decoder, pieces(data, cuts), found)
    assert found == messages


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n", "begins with"),
        (b"X", "begins with"),
        (frame(b"", version=9), f"version 9, this side version {VERSION}"),
        (struct.pack(">4sHI", b"RCLM", VERSION, 4097), "4097 bytes: at most 4096"),
        (frame(b"\xc1"), "not a message"),
        (frame(b"\x91" * 3000), "not a message"),
        (frame(msgspec.msgpack.encode({"type": "ping", "number": "one"})), r"\$\.number"),
        (frame(msgspec.msgpack.encode({"type": "text", "words": ["a", 2]})), r"\$\.words\[1\]"),
        (frame(msgspec.msgpack.encode({"type": "ping"})), "number"),
        (frame(msgspec.msgpack.encode(Stranger(1))), "stranger"),
        (frame(msgspec.msgpack.encode({"type": "text", "words": []}) + b"\x00"), "not a message"),
        (frame(b"\x82\xa4type\xa4text\xa5words\x91\xa2\xff\xfe"), "not a message"),
        (frame(b"\x82\xa4type\xa4text\xa5words\xdd\xff\xff\xff\xff"), "not a message"),
    ],
)
def test_wrong_bytes_are_refused_with_what_was_wrong(data: bytes, said: str) -> None:
    with pytest.raises(RemoteProtocolError, match=said):
        take(CODEC.decoder(), [data], [])


def test_connection_cut_inside_a_frame_is_an_error() -> None:
    with pytest.raises(RemoteProtocolError, match="ended after"):
        take(CODEC.decoder(), [CODEC.encode(Ping(1))[:-1]], [])


def test_frame_that_came_alone_is_one_message() -> None:
    whole = CODEC.encode(Ping(1))
    assert CODEC.decode(whole) == Ping(1)
    for wrong in (b"", whole[:-1], whole + b"R", b"X"):
        with pytest.raises(RemoteProtocolError):
            CODEC.decode(wrong)


async def test_channel_carries_messages_both_ways_and_ends_cleanly() -> None:
    left, right = trio.testing.memory_stream_pair()
    a, b = Channel(left, CODEC), Channel(right, CODEC)
    await a.send(Ping(1))
    await b.send(Text(["x"]))
    assert await b.receive() == Ping(1)
    assert await a.receive() == Text(["x"])
    await a.aclose()
    assert await b.receive() is None


async def test_concurrent_sends_do_not_mix_their_bytes() -> None:
    left, right = trio.testing.lockstep_stream_pair()
    a, b = Channel(left, CODEC), Channel(right, CODEC)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(a.send, Ping(number))
        received = [await b.receive() for _ in range(20)]
    assert sorted(m.number for m in received if isinstance(m, Ping)) == list(range(20))


# ---------------------------------------------------------------- over a socket
def sockets() -> tuple[socket.socket, socket.socket]:
    """Two connected ones that do not block."""
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setblocking(False)
    return ours, theirs


async def test_messages_longer_than_the_kernel_takes_at_once_arrive_whole() -> None:
    ours, theirs = sockets()
    codec: Codec[Ping | Text] = Codec(Ping | Text, max_bytes=4 << 20)
    here, there = Channel(MessageStream(ours), codec), Channel(MessageStream(theirs), codec)
    sent = [Text(["long"], bytes(3 << 20)), Ping(1), Text([], b"x" * 100_000)]

    async def say() -> None:
        for message in sent:
            await here.send(message)
        await here.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(say)
        with trio.fail_after(60):
            arrived = [await there.receive() for _ in range(4)]
    assert arrived == [*sent, None]
    await there.aclose()


async def test_a_peer_that_is_gone_and_an_end_that_was_closed_are_told_apart() -> None:
    ours, theirs = sockets()
    here = Channel(MessageStream(ours), CODEC)
    theirs.close()
    with pytest.raises(trio.BrokenResourceError):
        await here.send(Ping(1))
    await here.aclose()
    await here.stream.aclose()
    for use in (here.stream.send_all(b"x"), here.stream.receive_some()):
        with pytest.raises(trio.ClosedResourceError):
            await use


async def test_closing_ends_a_receive_that_waits() -> None:
    ours, theirs = sockets()
    stream = MessageStream(ours)
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await stream.receive_some()

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        await stream.aclose()
    theirs.close()
