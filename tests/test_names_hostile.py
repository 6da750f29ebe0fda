"""Holders of one key, of a wrong one, or of none: each is refused, counted, told in facts, and nobody else notices."""

import ssl
from collections.abc import AsyncIterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import trio

from controller import host
from controller.core.model import facts as f
from controller.persistence.journal import read_facts
from testbed import messages as m
from testbed.agent.config import AgentConfig
from testbed.agent.io.kernel_maps import KernelMaps
from testbed.agent.io.transfers import Transfers
from testbed.checkpoints import CheckpointStore
from testbed.errors import RemoteProtocolError
from testbed.messages import Expect
from testbed.transfer import TransferFailed, send_checkpoint
from testbed.trust import door
from testbed.trust.authority import Authority
from testbed.trust.channel import Identity, Name, PartyRole, opened
from testbed.trust.door import Refusals
from tests.patience import until
from tests.stores import ingest
from tests.test_host_peers import CAMPUS, Agent, Running, running

pytestmark = pytest.mark.alone


@pytest.fixture
async def coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A coordinator with an agent whose heartbeats are answered at once, before and after."""
    monkeypatch.setattr(door, "REPORT_S", 0.1)
    async with running(tmp_path) as serving:
        agent = await serving.welcome("h2", "127.0.0.2")
        await beats(agent, 1)
        yield serving
        await beats(agent, 2)


async def beats(agent: Agent, number: int) -> None:
    with trio.fail_after(1.0):
        await agent.out.send(m.Heartbeat(number, []))
        while not isinstance(answer := await agent.heard(), m.HeartbeatAck):
            assert answer is not None


async def refused(coordinator: Running, tmp_path: Path) -> f.PeersRefused:
    """The first refusal that the journal has."""
    while True:
        for _, fact in read_facts(tmp_path / "journal.sqlite"):
            if isinstance(fact, f.PeersRefused):
                assert fact.host == coordinator.host.core.cluster.campus.coordinator.name
                return fact
        await trio.sleep(0.05)


async def test_the_key_of_h1_speaks_for_no_other_host(coordinator: Running, tmp_path: Path) -> None:
    thief = await coordinator.member("h1")
    await thief.out.send(m.Hello("h2", 1, 7200, [], [], [], True))
    answer = await thief.heard()
    assert isinstance(answer, m.Refused)
    assert answer.reason == "h1 introduces itself as h2"
    fact = await refused(coordinator, tmp_path)
    assert (fact.source, fact.reason, fact.times) == ("127.0.0.1", "h1 introduces itself as h2", 1)


@pytest.mark.parametrize("role", [PartyRole.OPERATOR, PartyRole.COORDINATOR])
async def test_a_key_of_another_role_is_no_agents(coordinator: Running, tmp_path: Path, role: PartyRole) -> None:
    party = Identity(coordinator.authority.credentials(Name(CAMPUS, role, "h1")))
    stream, _ = await opened(await coordinator.connect(), party, PartyRole.COORDINATOR)
    assert await Agent(stream).heard() is None
    assert f"spiffe://lab/{role}/h1 has no business here" in (await refused(coordinator, tmp_path)).reason


async def test_a_key_that_another_authority_signed_is_none(coordinator: Running, tmp_path: Path) -> None:
    party = Identity(Authority.new(CAMPUS).credentials(Name(CAMPUS, PartyRole.HOST, "h1")))
    party.client.verify_mode = ssl.CERT_NONE
    with pytest.raises(RemoteProtocolError):
        await opened(await coordinator.connect(), party, PartyRole.COORDINATOR)
    assert (await refused(coordinator, tmp_path)).reason == "no handshake: self-signed certificate in certificate chain"


async def test_an_older_protocol_is_refused(coordinator: Running, tmp_path: Path) -> None:
    party = Identity(coordinator.authority.credentials(Name(CAMPUS, PartyRole.HOST, "h1")))
    party.client.minimum_version = party.client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((RemoteProtocolError, trio.BrokenResourceError)):
        await opened(await coordinator.connect(), party, PartyRole.COORDINATOR)
    assert (await refused(coordinator, tmp_path)).reason == "no handshake: unsupported protocol"


async def test_hellos_of_one_name_do_not_pile_up(coordinator: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that waits for its turn would be handled, a second each, when its sender has long gone."""
    monkeypatch.setattr(host, "WORDS_PER_S", 20.0)
    monkeypatch.setattr(host, "WORDS_AT_ONCE", 1.0)
    monkeypatch.setattr(coordinator.host, "paired", True)
    hellos = [await coordinator.agent("h1", f"127.0.0.{last}") for last in range(2, 12)]
    with trio.fail_after(5.0):
        for older in hellos[:-1]:
            while await older.heard() is not None:
                pass
        while not isinstance(await hellos[-1].heard(), m.Welcome):
            pass


LONG = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(0x3FFC)  # the first record of a ClientHello of 16 MiB


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (host.AGENT_IN.encode(m.Hello("h1", 1, 7200, [], [], [], True)), "no handshake: wrong version number"),
        (LONG, "no handshake: excessive message size"),
        (LONG[:100], "no handshake within 0.2 s"),
        (b"", "no handshake within 0.2 s"),
    ],
)
async def test_plain_oversized_and_slow_handshakes_end_soon(
    coordinator: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes, reason: str
) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.2)
    stream = await coordinator.connect()
    await stream.send_all(first)
    with trio.fail_after(5.0):
        assert (await refused(coordinator, tmp_path)).reason == reason
        assert await stream.receive_some() == b""


async def test_two_hundred_handshakes_a_second_are_refused_before_they_cost_anything(
    coordinator: Running, tmp_path: Path
) -> None:
    """Hosts come in meanwhile: from other addresses, and from this one by a port that only root may have."""
    for number in range(400):
        stream = await coordinator.connect()
        await stream.send_all(b"\x16")
        if number % 2:
            await trio.aclose_forcefully(stream)
    with trio.fail_after(2.0):
        await coordinator.welcome("h1", "127.0.0.2")
    fact = await refused(coordinator, tmp_path)
    assert fact.reason == "too many connections at once"
    with trio.fail_after(2.0):
        root = await coordinator.member("h1", by_root=True)
        await root.out.send(m.Hello("h1", 1, 7200, [], [], [], True))
        assert isinstance(await root.heard(), m.Welcome)


async def test_a_line_that_peers_from_elsewhere_fill_keeps_no_host_waiting(coordinator: Running) -> None:
    for last in range(3, 60):
        for _ in range(host.UNKNOWN_OF_ONE):
            await coordinator.connect(f"127.0.0.{last}")
    with trio.fail_after(2.0):
        await coordinator.welcome()


async def test_what_is_announced_from_h1_is_taken_from_no_other_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root of h3 has learned the number of another's transfer."""
    monkeypatch.setattr(door, "REPORT_S", 0.1)
    authority, told = Authority.new(CAMPUS), list[tuple[str, str, int]]()
    h1, h2, h3 = (Identity(authority.credentials(Name(CAMPUS, PartyRole.HOST, name))) for name in ("h1", "h2", "h3"))
    config = AgentConfig("h2", IPv4Address("127.0.0.1"), ("127.0.0.1", 1), tmp_path, data_port=0)
    expected = {7: Expect(7, "job", 1, 1, "h1", 1 << 20)}
    with CheckpointStore(tmp_path / "own") as own, CheckpointStore(tmp_path / "store") as store:
        ingest(own, bytes(100_000))
        refusals = Refusals(lambda *what: told.append(what))
        receiver = Transfers(
            store, KernelMaps(config), lambda: False, lambda: expected, lambda _: None, identity=h2, refusals=refusals
        )
        listeners = await receiver.listen()
        address = listeners[0].socket.getsockname()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receiver.serve, listeners)

            async def send(identity: Identity) -> None:
                await send_checkpoint(
                    own, "job", 1, address, ticket=7, on_connected=lambda _: None, identity=identity, receiver="h2"
                )

            with pytest.raises(TransferFailed, match="announced from h1, and comes from h3"):
                await send(h3)
            await until(lambda: told)
            await send(h1)
            nursery.cancel_scope.cancel()
        assert told == [("h3", "it is announced from h1, and comes from h3", 1)]
        assert [manifest.key for manifest in store.manifests()] == [("job", 1)]
