"""What peers do to a coordinator, over real sockets of the loopback: each loses its own connection and nothing else."""

import logging
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from msgspec import structs

from controller import host
from controller.core.coordinator import Coordinator
from controller.core.model import facts
from controller.core.model.cluster import keyed
from controller.core.model.events import AgentSaid, SubmitAsked
from controller.core.parameters import FENCE_MARGIN, Protocol, Queue
from controller.host import CoordinatorHost
from controller.persistence.journal import Journal, read_facts
from testbed import messages as m
from testbed.agent.config import AgentConfig
from testbed.agent.core import events as aev
from testbed.agent.io.coordinator_link import CoordinatorLink
from testbed.agent.io.kernel_maps import KernelMaps
from testbed.bounds import LONGEST_JOB_BYTES, LONGEST_QUOTE, MAX_ENDED, MAX_STORED
from testbed.errors import InvariantBroken
from testbed.namespaces import OWN_NETWORK
from testbed.trust.authority import Authority
from testbed.trust.channel import Identity, Name, PartyRole, beneath, opened
from testbed.trust.door import Door
from testbed.wire import Channel
from tests.patience import until
from topologies.presets import three_tier

CAMPUS = "lab"
LEASE_S = 1000.0  # no lease lapses while a test runs, however slow the machine is


@dataclass
class Running:
    """A coordinator that serves, and the ways to it."""

    host: CoordinatorHost
    port: int
    operators: Path
    authority: Authority
    desk: int = 0  # the port for operators of other machines and for who joins

    async def connect(self, source: str = "127.0.0.1", *, by_root: bool = False) -> trio.SocketStream:
        """A connection from that address."""
        if not by_root:
            return await trio.open_tcp_stream("127.0.0.1", self.port, local_address=source)
        sock = await OWN_NETWORK.connect(("127.0.0.1", self.port))
        return trio.SocketStream(trio.socket.from_stdlib_socket(sock))

    async def member(self, name: str = "h1", source: str = "127.0.0.1", *, by_root: bool = False) -> "Agent":
        """The holder of a host's key, that has said nothing yet."""
        identity = Identity(self.authority.credentials(Name(CAMPUS, PartyRole.HOST, name)))
        stream, _ = await opened(await self.connect(source, by_root=by_root), identity, PartyRole.COORDINATOR)
        return Agent(stream)

    async def agent(self, name: str = "h1", source: str = "127.0.0.1", incarnation: int = 1) -> "Agent":
        """An agent that has said Hello; what it is answered is to be read yet."""
        agent = await self.member(name, source)
        await agent.out.send(m.Hello(name, incarnation, 7200, [], [], [], True))
        return agent

    async def welcome(self, name: str = "h1", source: str = "127.0.0.1", incarnation: int = 1) -> "Agent":
        """An agent that is welcome."""
        agent = await self.agent(name, source, incarnation)
        assert isinstance(await agent.heard(), m.Welcome)
        return agent

    async def serves(self) -> None:
        """Fails unless a well-behaved agent is welcome."""
        await (await self.welcome("h2", "127.0.0.2")).stream.aclose()


class Agent:
    """One end of a connection to the coordinator."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.out, self._in = Channel(stream, host.AGENT_IN), Channel(stream, host.AGENT_OUT)

    async def heard(self) -> m.ToAgent | None:
        """The next word of the coordinator; None: it has closed."""
        return await self._in.receive()


@asynccontextmanager
async def running(folder: Path, *, gives_names: bool = False) -> AsyncIterator[Running]:
    """A coordinator on a port of its own, and one more if it gives names."""
    core = Coordinator(three_tier(2, 1, 0), Protocol(lease_s=LEASE_S), Queue(), random.Random(1).random)
    for number, name in enumerate(("h1", "h2"), 1):  # a campus is in 10.0.0.0/8, and the loopback is not
        host = core.cluster.hosts[name]
        object.__setattr__(host.spec, "address", IPv4Address(f"127.0.0.{number}"))
        host.address = str(host.spec.address)
    journal = Journal(folder / "journal.sqlite")
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    operators = folder / "o.sock"
    door = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    await door.bind(str(operators))
    door.listen(64)
    authority = Authority.new(CAMPUS)
    identity = Identity(authority.credentials(Name(CAMPUS, PartyRole.COORDINATOR, "coord")))
    kept = folder / "authority.pem" if gives_names else None
    if kept is not None:
        authority.save(kept)
    served = CoordinatorHost(core, journal, random.Random(2), identity=identity, authority=kept)
    desk = await trio.open_tcp_listeners(0, host="127.0.0.1")
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(served.serve, listeners, [trio.SocketListener(door)], desk)
            ports = [each.socket.getsockname()[1] for each in (*listeners, *desk)]
            yield Running(served, ports[0], operators, authority, ports[1])
            served.ending = True
            nursery.cancel_scope.cancel()
    finally:
        journal.close()


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[Running]:
    """A coordinator that serves; what it raises fails the test."""
    async with running(tmp_path) as serving:
        yield serving


def reset(stream: trio.abc.Stream) -> None:
    """Close it so that the other end has an error instead of an end."""
    stream = beneath(stream)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


# ---------------------------------------------------------------- one connection hurts no other
@pytest.mark.parametrize("said", [b"", b"R", b"GARBAGE\n", b"RCLM\0\1\0\0\0\4....", b"RCLM\0\1\0\0\0\x10half"])
async def test_bytes_and_a_reset_end_one_connection(coordinator: Running, said: bytes) -> None:
    for _ in range(20):
        stream = await coordinator.connect()
        if said:
            await stream.send_all(said)
        reset(stream)
    await coordinator.serves()


async def test_an_answer_that_no_frame_holds_ends_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.OPERATOR_OUT, "max_bytes", 10)
    async with running(tmp_path) as coordinator:
        stream = await trio.open_unix_socket(str(coordinator.operators))
        await Channel(stream, host.OPERATOR_IN).send(m.StatusRequest())
        assert await stream.receive_some() == b""
        await coordinator.serves()


async def test_a_broken_invariant_still_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, event: object, now_s: float) -> None:
        raise InvariantBroken("h1", "a promise")

    monkeypatch.setattr(Coordinator, "handle", broken)

    with pytest.raises(ExceptionGroup) as raised:
        async with running(tmp_path) as coordinator:
            await coordinator.agent()
            await trio.sleep_forever()
    assert raised.group_contains(InvariantBroken)


# ---------------------------------------------------------------- before it is known who is there
async def test_connections_of_one_address_are_so_many_and_no_more(coordinator: Running) -> None:
    idle = [await coordinator.connect() for _ in range(1 + host.UNKNOWN_OF_ONE)]
    more = await coordinator.connect()
    assert await more.receive_some() == b""
    await coordinator.serves()  # another address
    await idle[0].aclose()
    while (agent := await coordinator.agent()) and not isinstance(await agent.heard(), m.Welcome):
        await trio.sleep(0.001)  # until the first is known to be gone


async def test_who_has_no_name_waits_for_a_coordinator_that_follows_in_line(coordinator: Running) -> None:
    served = coordinator.host
    served.paired, served.leads, served._door = True, trio.Event(), Door(None, of_one=host.UNKNOWN_OF_ONE)
    for _ in range(3 * host.UNKNOWN_OF_ONE):
        await coordinator.connect()
    await until(lambda: len(served._waiting) >= host.UNKNOWN_OF_ONE)
    await trio.sleep(0.1)
    assert len(served._waiting) == host.UNKNOWN_OF_ONE


async def test_connections_from_elsewhere_keep_no_host_out(coordinator: Running) -> None:
    elsewhere = [await coordinator.connect(f"127.0.0.{last}") for last in range(3, 13) for _ in range(4)]
    assert len(elsewhere) > host.STRANGERS
    await coordinator.welcome()


def held(count: int) -> list[m.StoredCheckpoint]:
    """As long as a checkpoint's name, number and digest may be."""
    return [m.StoredCheckpoint(f"{n:064}", 2**61, 2**61, 2**49, "d" * 128) for n in range(count)]


async def test_a_host_that_holds_thousands_of_checkpoints_registers_with_all_of_them(coordinator: Running) -> None:
    """As many as it may list, of the longest names, have room in one frame."""
    reason = "x" * LONGEST_QUOTE
    ended = [m.JobEnded(f"e{n}", 1, "failed", 1, "d" * 128, reason) for n in range(MAX_ENDED)]
    hello = m.Hello("h1", 1, 7200, [], held(MAX_STORED), ended, True)
    told = list[object]()
    stream = (await coordinator.member()).stream

    async def open_stream() -> trio.abc.Stream:
        return stream

    def handle(event: aev.Event) -> None:
        told.append(event)
        if isinstance(event, aev.Connected):
            link.say(hello)

    link = CoordinatorLink(
        ("", 0), KernelMaps(AgentConfig("h1", IPv4Address("127.0.0.1"), ("", 0), Path())), handle, open_stream
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.stay_connected)
        await until(lambda: len(told) > 1)
        nursery.cancel_scope.cancel()
    assert isinstance(told[1].message, m.Welcome)
    heard = [e.message for *_, e in coordinator.host.journal.follow() if isinstance(e, AgentSaid)]
    assert heard == [structs.replace(hello, incarnation=keyed(b"", 1))]


async def test_a_member_that_dribbles_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HELLO_TIMEOUT_S", 0.05)
    async with running(tmp_path) as coordinator:
        member = await coordinator.member()
        await member.stream.send_all(b"RCLM")
        refused = await member.heard()
        assert isinstance(refused, m.Refused)
        assert "no Hello" in refused.reason


async def test_an_agent_that_says_too_much_is_heard_later_and_others_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 600 short words fit in what is read at a time: others' heartbeats came after all of them, six seconds late."""
    monkeypatch.setattr(host, "WORDS_AT_ONCE", 100.0)
    monkeypatch.setattr(host, "WORDS_PER_S", 10.0)
    async with running(tmp_path) as coordinator:

        def returns() -> int:
            journal = coordinator.host.journal
            return sum(b"HostReturned" in fact for _, fact in journal.facts())

        began_s, greedy = trio.current_time(), await coordinator.welcome("h1", "127.0.0.1")
        other = await coordinator.agent("h2", "127.0.0.2")
        word = host.AGENT_IN.encode(m.OwnerReturns())
        await greedy.stream.send_all(word * 2000)
        await other.out.send(m.Heartbeat(1, []))
        while not isinstance(word := await other.heard(), m.HeartbeatAck):
            assert word is not None
        assert returns() < 50
        await until(lambda: returns() >= 50)
        reset(greedy.stream)  # what it may say does not begin anew with its connection
        again = await coordinator.agent("h1", "127.0.0.1")
        await again.stream.send_all(host.AGENT_IN.encode(m.OwnerReturns()) * 2000)
        await trio.sleep(0.2)
        assert returns() <= 100 + 10.0 * (trio.current_time() - began_s)


def frame(words: object) -> bytes:
    """A frame of a body that is no message."""
    body = msgspec.msgpack.encode(words)
    return struct.pack(">4sHI", b"RCLM", 1, len(body)) + body


async def test_a_peers_own_words_are_quoted_in_one_short_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown tag or field of a megabyte was a line of the log, and of the journal, on each connection."""
    with caplog.at_level(logging.INFO):
        async with running(tmp_path) as coordinator:
            member = await coordinator.member()
            await member.stream.send_all(frame({"type": "Hello", "\x1b[2J" * 50_000: 1}))
            refused = await member.heard()
            assert isinstance(refused, m.Refused)
            agent = await coordinator.welcome()
            await agent.stream.send_all(frame({"type": "\n\x1b[31m" + "Z" * 1_000_000}))
            await until(lambda: "h1" not in coordinator.host.agents)
            await coordinator.serves()
    lost = [fact.reason for _, fact in read_facts(tmp_path / "journal.sqlite") if isinstance(fact, facts.HostLost)]
    for told in (*caplog.messages, *lost):
        assert len(told) < 2 * LONGEST_QUOTE
        assert told.isprintable()
    assert any("ZZZ" in told for told in lost)


# ---------------------------------------------------------------- leases
async def test_another_agent_of_a_host_does_not_end_the_first_ones_lease(coordinator: Running) -> None:
    first = await coordinator.welcome(incarnation=1)
    coordinator.host.handle(submitted("a"))
    order = await first.heard()
    assert isinstance(order, m.StartJob)
    second = await coordinator.agent(incarnation=2)
    refused = await second.heard()
    assert isinstance(refused, m.Refused)
    assert "lease" in refused.reason
    assert coordinator.host.core.cluster.jobs["a"].attempt == order.attempt
    await first.out.send(m.Heartbeat(1, []))
    assert isinstance(await first.heard(), m.HeartbeatAck)


async def test_an_agent_that_connects_again_takes_its_old_connections_place(coordinator: Running) -> None:
    first = await coordinator.welcome(incarnation=1)
    await coordinator.welcome(incarnation=1)
    assert await first.heard() is None


async def test_an_agent_that_was_started_anew_comes_back(coordinator: Running) -> None:
    """At once if no job was to run there; else when the first one's lease has lapsed."""
    first = await coordinator.welcome(incarnation=1)
    reset(first.stream)
    await until(lambda: "h1" not in coordinator.host.agents)
    second = await coordinator.welcome(incarnation=2)
    coordinator.host.handle(submitted("a"))
    assert isinstance(await second.heard(), m.StartJob)
    reset(second.stream)
    await until(lambda: "h1" not in coordinator.host.agents)
    third = await coordinator.agent(incarnation=3)
    assert isinstance(await third.heard(), m.Refused)
    coordinator.host.started_s -= (1.0 + FENCE_MARGIN) * LEASE_S + 1.0  # time passes
    await coordinator.welcome(incarnation=3)


def submitted(name: str) -> SubmitAsked:
    """The event that a job of that name was submitted."""
    return SubmitAsked(m.JobSpec(name, 1000, 1.0, 1000), 0.0)


# ---------------------------------------------------------------- jobs that no agent can run
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"payload_bytes": 2**50}, "payload_bytes"),
        ({"payload_bytes": 2**35}, "payload_bytes"),
        ({"workload": "nothing"}, "workload"),
        ({"workload": "os.path:join:x"}, "workload"),
        ({"workload": "../x:Y"}, "workload"),
        ({"params": {"speed": 2}}, "speed"),
        ({"params": {"dirty_fraction": 1.5}}, "dirty_fraction"),
        ({"params": {"dirty_fraction": "much"}}, "dirty_fraction"),
        ({"workload": "my:Work", "params": {"text": "x" * LONGEST_JOB_BYTES}}, f"at most {LONGEST_JOB_BYTES}"),
    ],
)
async def test_a_job_that_no_agent_can_run_is_refused_and_not_written_down(
    coordinator: Running, changes: dict[str, Any], why: str
) -> None:
    stream = await trio.open_unix_socket(str(coordinator.operators))
    ask, answers = Channel(stream, host.OPERATOR_IN), Channel(stream, host.OPERATOR_OUT)
    await ask.send(m.Submit(structs.replace(m.JobSpec("a", 10, 1.0, 1000), **changes)))
    refused = await answers.receive()
    assert isinstance(refused, m.Rejected)
    assert why in refused.reason
    assert coordinator.host.submitted == 0
    await ask.send(m.Submit(m.JobSpec("a", 10, 1.0, 1000, "somebody.elses:Work", {"speed": 2})))
    assert isinstance(await answers.receive(), m.Accepted)
