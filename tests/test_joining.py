"""Names while a campus runs: tokens, renewals, revocations, another authority; hostile ones, too."""

import errno
import json
import random
import ssl
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jwt
import pytest
import trio
from click.testing import Result
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from typer.testing import CliRunner

from controller import host
from controller.core.coordinator import Coordinator
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.names import Names
from controller.core.parameters import Protocol, Queue
from controller.persistence.group_commit import GroupCommit
from controller.persistence.journal import Journal, read_facts
from controller.persistence.recovery import JournalReplay
from controller.registrar import Registrar
from experiments.cli.main import app
from experiments.inputs.scenario import Scenario, Trust
from experiments.worlds.live.operator import Operator, connected
from experiments.worlds.live.world import authority_of
from testbed import messages as m
from testbed.bounds import quoted
from testbed.checkpoints import CheckpointStore
from testbed.errors import RemoteProtocolError, SetupError
from testbed.installed.agent import Lent
from testbed.installed.unit import Service
from testbed.transfer import CheckpointServer, ReceiveEvent, TransferFailed, send_checkpoint
from testbed.trust import joining
from testbed.trust.authority import Authority, domain_of, nameless_file, new_key, pem_of
from testbed.trust.channel import SKEW_S, Credentials, Identity, Name, PartyRole, context_of, opened
from testbed.trust.door import Door
from testbed.trust.joining import Renewal, der_of, join
from testbed.trust.passes import claims_unproved, new_pass
from testbed.wire import Channel
from tests.patience import until
from tests.stores import content, ingest
from tests.test_host_peers import CAMPUS, LEASE_S, Agent, Running, running
from topologies.errors import SpecError
from topologies.presets import three_tier

pytestmark = pytest.mark.alone
SOON_S = 20.0  # for what takes milliseconds on a quiet machine
H1, H2 = (Name(CAMPUS, PartyRole.HOST, name) for name in ("h1", "h2"))
COORD = Name(CAMPUS, PartyRole.COORDINATOR, "coord")
ANNA = Name(CAMPUS, PartyRole.OPERATOR, "anna")


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[Running]:
    """A coordinator that gives names."""
    async with running(tmp_path, gives_names=True) as serving:
        yield serving


async def asked(coordinator: Running, message: m.FromOperator, answer: type = m.Noted) -> m.ToOperator:
    """What the local operator is answered."""
    async with connected(coordinator.operators) as operator:
        return await operator.ask(message, answer)


async def token_for(coordinator: Running, name: Name = H1, ttl_s: float = 60.0) -> str:
    made = await asked(coordinator, m.MakeToken(str(name.role), name.subject, ttl_s), m.Token)
    assert isinstance(made, m.Token)
    return made.token


async def joined(coordinator: Running, token: str, role: PartyRole = PartyRole.HOST) -> Credentials:
    with trio.fail_after(SOON_S):
        return await join(partial(trio.open_tcp_stream, "127.0.0.1", coordinator.desk), token, role)


def signed(
    by: Authority | None, of: Authority, audience: str = joining.AUDIENCE, life_s: float = 60.0, **more: str
) -> str:
    """A token for h1 by one authority, which names another as the campus's; by nobody, and it says so."""
    claims = {"sub": str(H1), "jti": "7", "ca": joining._hash_of(of.certificate), **more}
    if by is None:
        return jwt.encode({**claims, "aud": audience, "exp": 1 << 40}, "", "none")
    return new_pass(by.key, audience, life_s, **claims)


def with_claims(token: str, **changed: str) -> str:
    """A token whose claims were changed under its signature."""
    head, _, signature = token.split(".")
    claims = json.dumps({**claims_unproved(token), **changed}).encode()
    return ".".join((head, urlsafe_b64encode(claims).decode().rstrip("="), signature))


async def agent_of(coordinator: Running, identity: Identity) -> Agent:
    """An agent that said Hello under its name."""
    stream, _ = await opened(await coordinator.connect(), identity, PartyRole.COORDINATOR)
    agent = Agent(stream)
    await agent.out.send(m.Hello(identity.name.subject, 1, 7200, [], [], [], True))
    return agent


async def welcomed(agent: Agent) -> m.Trust:
    """What a welcome agent is to trust."""
    with trio.fail_after(SOON_S):
        trust = await agent.heard()
        assert isinstance(trust, m.Trust)
        assert isinstance(await agent.heard(), m.Welcome)
    return trust


def identity_of(coordinator: Running, name: Name = H1, life_s: float = 3600.0) -> Identity:
    return Identity(coordinator.authority.credentials(name, life_s))


def identity_by(authority: Authority) -> Identity:
    return Identity(authority.credentials(H1))


def changes(coordinator: Running) -> list[str]:
    found = [fact for _, fact in read_facts(coordinator.host.journal.path)]
    return [f"{fact.name}: {fact.change}" for fact in found if isinstance(fact, facts.NameChanged)]


# ---------------------------------------------------------------- tokens


async def test_a_token_joins_once_and_its_host_is_welcome(coordinator: Running) -> None:
    token = await token_for(coordinator)
    identity = Identity(await joined(coordinator, token))
    await welcomed(await agent_of(coordinator, identity))
    with pytest.raises(RemoteProtocolError, match="the token was used"):
        await joined(coordinator, token)
    assert changes(coordinator) == [f"{H1}: a token was made", f"{H1}: joined with a token"]
    signature = token.rpartition(".")[2].encode()
    files = coordinator.host.journal.path.parent.glob("journal.sqlite*")
    assert not any(signature in file.read_bytes() for file in files)


async def test_a_token_stays_spent_when_the_coordinator_begins_again(tmp_path: Path) -> None:
    async with running(tmp_path, gives_names=True) as coordinator:
        token, other = await token_for(coordinator), await token_for(coordinator, H2)
        await joined(coordinator, token)
        third = await token_for(coordinator, ANNA)
        await asked(coordinator, m.Revoke("host", "h2"))
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        again = Coordinator(three_tier(2, 1, 0), Protocol(lease_s=LEASE_S), Queue(), random.Random(1).random)
        JournalReplay(journal, again, AssertionError).advance()
        names = again.cluster.names
    assert len({claims_unproved(each)["jti"] for each in (token, other, third)}) == 3
    assert names.tokens == {claims_unproved(third)["jti"]: str(ANNA)}  # one is spent, and the name of one is revoked
    assert names.revoked.keys() == {str(H2)}
    fresh = Identity(coordinator.authority.credentials(Name(CAMPUS, PartyRole.COORDINATOR, "coord")))
    Registrar(tmp_path / "authority.pem", fresh, names, lambda _: None, lambda _: None)
    assert str(H2) in fresh.denied


def test_names_change_at_once_though_agents_are_awaited_and_another_restart_forgets_none() -> None:
    core = Coordinator(three_tier(2, 1, 0), Protocol(lease_s=LEASE_S), Queue(), random.Random(1).random)
    names = core.cluster.names
    core.handle(ev.AgentSaid("h1", m.Hello("h1", 1, 7200, [], [], [], True)), 1.0)
    core.handle(ev.Restarted(0.5), 2.0)
    core.handle(ev.TokenMade("1", str(H1)), 2.0)
    core.handle(ev.TokenMade("2", str(H2)), 2.0)
    assert core.is_resyncing
    assert names.tokens.keys() == {"1", "2"}
    core.handle(ev.TokenSpent("1"), 2.1)
    core.handle(ev.NameRevoked(str(H2), 7.0), 2.1)
    assert (names.tokens, names.revoked) == ({}, {str(H2): 7.0})
    core.handle(ev.Restarted(0.5), 2.2)
    core.handle(ev.Woke(), 60.0)
    assert not core.is_resyncing
    assert (names.tokens, names.revoked) == ({}, {str(H2): 7.0})


DEEP = urlsafe_b64encode(b"[" * 1400).decode()  # JSON that no reader's stack holds
TOKENS: dict[str, tuple[Callable[[str, Authority], str], str]] = {
    "another authority's": (lambda _, mine: signed(Authority.new(CAMPUS), mine), "Signature verification failed"),
    "nobody's": (lambda _, mine: signed(None, mine), "alg"),
    "of another algorithm": (
        lambda token, mine: jwt.encode(claims_unproved(token), pem_of(mine.certificate).decode()[30:90], "HS256"),
        "alg",
    ),
    "of a made-up number": (lambda _, mine: signed(mine, mine), "the token was used"),
    "too late": (lambda _, mine: signed(mine, mine, life_s=-1.0), "too old"),
    "for another service": (lambda _, mine: signed(mine, mine, "page"), "audience"),
    "without a number": (lambda _, mine: new_pass(mine.key, "join", 60.0, sub=str(H1)), "jti"),
    "of a changed name": (lambda token, _: with_claims(token, sub=str(H2)), "Signature verification failed"),
    "of a changed campus": (lambda token, _: with_claims(token, ca="0"), "Signature verification failed"),
    "too deep": (lambda _, __: f"{DEEP}.{DEEP}.{DEEP}"[:2048], "no token for this"),
    "nothing": (lambda _, __: "", "no token for this"),
}


def test_a_token_may_come_by_standard_input(tmp_path: Path) -> None:
    token = new_pass(new_key(), joining.AUDIENCE, 60.0, sub=str(H1))
    said = CliRunner().invoke(app, ["join", "-", "127.0.0.1", "--out", str(tmp_path)], input=f"{token}\n").exception
    assert str(said) == f"the token is for {H1}, which is no operator"


@pytest.mark.parametrize("kind", TOKENS)
async def test_a_forged_or_changed_token_is_refused_and_counted(coordinator: Running, kind: str) -> None:
    """By the coordinator, whatever a joiner checks before it sends it."""
    made, said = TOKENS[kind]
    token = await token_for(coordinator)
    stream = trio.SSLStream(
        await trio.open_tcp_stream("127.0.0.1", coordinator.desk), context_of(ssl.PROTOCOL_TLS_CLIENT, None)
    )
    channel = Channel(stream, joining.CODEC)
    with trio.fail_after(SOON_S):
        await channel.receive()
        await channel.send(joining.Join(made(token, coordinator.authority), der_of(new_key())))
        answer = await channel.receive()
    assert isinstance(answer, m.Refused)
    assert said in answer.reason
    assert quoted(answer.reason) in str(coordinator.host._refusals._counts)
    assert "joined" not in str(changes(coordinator))
    await joined(coordinator, token)  # whoever it is for may still use it


@pytest.mark.parametrize(
    ("token", "said"),
    [("no-token", "no token"), ("\udcff", "no token"), ("", "no token"), (None, "which is no operator")],
)
async def test_a_joiner_sends_nothing_for_a_token_that_it_cannot_use(
    coordinator: Running, token: str | None, said: str
) -> None:
    token = await token_for(coordinator) if token is None else token
    with pytest.raises(RemoteProtocolError, match=said):
        await joined(coordinator, token, PartyRole.OPERATOR)
    assert coordinator.host._refusals._counts == {}


async def test_an_authority_that_follows_takes_tokens_of_the_last_one(coordinator: Running) -> None:
    tokens = [await token_for(coordinator) for _ in range(2)]
    await asked(coordinator, m.RotateAuthority())
    await joined(coordinator, tokens[0])
    await asked(coordinator, m.RotateAuthority())
    with pytest.raises(RemoteProtocolError):
        await joined(coordinator, tokens[1])


@pytest.mark.parametrize("said", [b"", b"rubbish", b"RCLM\0\1\0\0\0\1\xc0"])
async def test_a_joiner_that_says_nothing_or_rubbish_keeps_nobody_out(
    coordinator: Running, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.registrar.JOIN_WITHIN_S", 0.2)
    token = await token_for(coordinator)
    stream = trio.SSLStream(
        await trio.open_tcp_stream("127.0.0.1", coordinator.desk), context_of(ssl.PROTOCOL_TLS_CLIENT, None)
    )
    await stream.send_all(said or b"R")
    with trio.fail_after(SOON_S), suppress(trio.BrokenResourceError):
        while await stream.receive_some():  # who is here; then the end
            pass
    await joined(coordinator, token)


@asynccontextmanager
async def impostor(
    greeting: bytes, credentials: Credentials
) -> AsyncIterator[tuple[Callable[[], Awaitable[trio.abc.Stream]], list[bytes]]]:
    """A server that is none to join at: the way to it, and what it was sent in words."""
    identity, heard = Identity(credentials), list[bytes]()

    async def serve(stream: trio.SocketStream) -> None:
        conversation = trio.SSLStream(stream, identity.desk, server_side=True)
        with pytest.raises((trio.BrokenResourceError, trio.ClosedResourceError)):
            await Channel(conversation, joining.CODEC).send(m.Trust(greeting, {}))
            while data := await conversation.receive_some():
                heard.append(data)
            raise trio.ClosedResourceError

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield partial(trio.open_tcp_stream, *listeners[0].socket.getsockname()), heard
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("why", ["of another campus", "self-signed certificate", "no coordinator"])
async def test_a_joiner_tells_its_secret_to_no_other_campus_and_to_no_host(coordinator: Running, why: str) -> None:
    """Also not to one that shows the true authority's certificate, which everybody may have."""
    mine, true = Authority.new(CAMPUS), coordinator.authority
    token = await token_for(coordinator)
    greeting = mine.trusted if "campus" in why else true.trusted + mine.trusted
    credentials = true.credentials(H2) if "no coordinator" in why else mine.credentials(COORD)
    async with impostor(greeting, credentials) as (open_stream, heard):
        with pytest.raises(RemoteProtocolError, match=why), trio.fail_after(SOON_S):
            await join(open_stream, token, PartyRole.HOST)
    assert heard == []


async def test_a_joiner_trusts_no_authority_that_only_a_stranger_showed(coordinator: Running) -> None:
    """A man in the middle adds his own to what is shown before anything is proved, and steps aside."""
    mine = Authority.new(CAMPUS)
    token = await token_for(coordinator)
    async with impostor(coordinator.authority.trusted + mine.trusted, mine.credentials(COORD)) as (first, _):
        ways = iter([first, partial(trio.open_tcp_stream, "127.0.0.1", coordinator.desk)])
        got = await join(lambda: next(ways)(), token, PartyRole.HOST)
    assert got.trusted == coordinator.authority.trusted


# ---------------------------------------------------------------- renewal


async def test_a_certificate_is_renewed_under_the_name_of_its_conversation(coordinator: Running) -> None:
    """Renewal has no name in it, so the key of one host gives no certificate of another."""
    agent = await agent_of(coordinator, identity_of(coordinator))
    await welcomed(agent)
    key = new_key()
    await agent.out.send(m.Renew(der_of(key)))
    answer = await agent.heard()
    assert isinstance(answer, m.Issued)
    assert joining.name_in(answer.certificate) == H1


async def test_no_certificate_is_renewed_by_a_coordinator_that_cannot_write(coordinator: Running) -> None:
    """Another one may lead by now, at which the name was revoked since."""
    agent = await agent_of(coordinator, identity_of(coordinator))
    await welcomed(agent)
    coordinator.host.group = group = GroupCommit(coordinator.host.journal, coordinator.host.journal, lambda _: None)
    group.add(None, lambda: None)  # and nobody writes
    await agent.out.send(m.Renew(der_of(new_key())))
    with trio.move_on_after(0.3) as silence:
        await agent.heard()
    assert silence.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(group.write_all, 0.1)
        with trio.fail_after(SOON_S):
            assert isinstance(await agent.heard(), m.Issued)
        nursery.cancel_scope.cancel()


OTHER_KINDS = [ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())]


@pytest.mark.parametrize("key", [b"", b"rubbish", b"0" * 500, *map(der_of, OTHER_KINDS)])
async def test_a_key_that_is_none_costs_its_sender_the_connection(coordinator: Running, key: bytes) -> None:
    agent = await agent_of(coordinator, identity_of(coordinator))
    await welcomed(agent)
    await agent.out.send(m.Renew(key))
    assert await agent.heard() is None
    await welcomed(await agent_of(coordinator, identity_of(coordinator, H2)))


@asynccontextmanager
async def living(coordinator: Running, identity: Identity) -> AsyncIterator[list[m.FromCoordinator]]:
    """An agent's way of keeping its name, on one connection; what it heard, and None at its end."""
    agent, heard = await agent_of(coordinator, identity), list[m.FromCoordinator | None]()
    async with trio.open_nursery() as nursery:
        renewal = Renewal(identity, lambda asked: nursery.start_soon(agent.out.send, asked))

        async def listen() -> None:
            message = await agent.heard()
            while message is not None:
                if isinstance(message, m.Issued | m.Trust):
                    renewal.take(message)
                heard.append(message)
                message = await agent.heard()
            heard.append(None)

        nursery.start_soon(renewal.run)
        nursery.start_soon(listen)
        await until(lambda: len(heard) >= 2)
        yield heard
        nursery.cancel_scope.cancel()


def serial(identity: Identity) -> int:
    return x509.load_pem_x509_certificate(identity.credentials.certificate).serial_number


def signer(identity: Identity) -> Callable[[Authority], bool]:
    """Whether an authority issued a certificate."""

    def is_by(authority: Authority) -> bool:
        try:
            x509.load_pem_x509_certificate(identity.credentials.certificate).verify_directly_issued_by(
                authority.certificate
            )
        except Exception:  # noqa: BLE001 - a signature that is wrong
            return False
        return True

    return is_by


async def test_half_of_its_life_over_an_agent_has_another_certificate(coordinator: Running) -> None:
    identity = identity_of(coordinator, life_s=SKEW_S + 1.0)  # dated back: its half is over in half a second
    before, key = serial(identity), identity.credentials.key
    async with living(coordinator, identity):
        await until(lambda: serial(identity) != before)
    assert identity.credentials.key != key
    await welcomed(await agent_of(coordinator, identity))


async def test_another_authority_is_asked_for_a_certificate_once(autojump_clock: object) -> None:
    first, askings = Authority.new(CAMPUS), list[m.Renew]()
    second = first.successor()

    def ask(asked: m.Renew) -> None:
        askings.append(asked)
        renewal.take(m.Issued(pem_of(second.issue(H1, joining.public_key_of(asked.public_key)))))

    renewal = Renewal(Identity(first.credentials(H1)), ask)
    renewal.take(m.Trust(second.trusted, {}))
    with trio.move_on_after(600.0):
        await renewal.run()
    assert len(askings) == 1


async def test_a_late_second_answer_is_no_certificate_of_the_next_key(autojump_clock: object) -> None:
    """The first request was answered too late, so there was another, and then another authority."""
    first, askings = Authority.new(CAMPUS), list[m.Renew]()
    identity = identity_by(first)
    renewal = Renewal(identity, askings.append)

    def answer(asked: m.Renew) -> None:
        renewal.take(m.Issued(pem_of(first.issue(H1, joining.public_key_of(asked.public_key)))))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(renewal.run)
        renewal.take(m.Trust(first.successor().trusted, {}))
        await trio.sleep(joining.SETTLE_S + joining.AGAIN_S + 2.0)
        assert len(askings) == 2
        answer(askings[0])
        renewal.take(m.Trust(first.trusted, {}))
        await trio.sleep(joining.SETTLE_S + 1.0)
        answer(askings[1])
        identity.client  # noqa: B018 - OpenSSL refuses a certificate of another key
        answer(askings[2])
        identity.client  # noqa: B018
        await trio.sleep(600.0)
        nursery.cancel_scope.cancel()
    assert len(askings) == 3


async def test_a_machine_that_slept_renews_by_the_clock_on_the_wall(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_s, askings = 6.0 * 3600.0, list[m.Renew]()
    monkeypatch.setattr(joining, "renew_in_s", lambda _: left_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Renewal(identity_by(Authority.new(CAMPUS)), askings.append).run)
        await trio.sleep(120.0)
        assert askings == []
        left_s = 0.0  # hours have passed for all others
        await trio.sleep(joining.LOOK_S + joining.SETTLE_S + 1.0)
        assert askings
        nursery.cancel_scope.cancel()


# ---------------------------------------------------------------- revocation


async def test_a_revoked_name_is_cut_within_a_second_and_comes_in_with_a_new_token(coordinator: Running) -> None:
    stolen, other = identity_of(coordinator), identity_of(coordinator, H2)
    before = await token_for(coordinator)
    async with living(coordinator, stolen) as cut, living(coordinator, other) as heard:
        await asked(coordinator, m.Revoke("host", "h1"))
        with trio.fail_after(1.0):
            await until(lambda: cut[-1] is None)
        await until(lambda: str(H1) in other.denied)  # so it refuses transfers of it, too
        with pytest.raises((AssertionError, trio.BrokenResourceError)):
            await welcomed(await agent_of(coordinator, stolen))
        assert "was revoked" in str(coordinator.host._refusals._counts)
        with pytest.raises(RemoteProtocolError, match="revoked since"):
            await joined(coordinator, before)
        await trio.sleep(1.1)  # certificates are dated in whole seconds
        async with living(coordinator, Identity(await joined(coordinator, await token_for(coordinator)))) as again:
            await asked(coordinator, m.Revoke("host", "h3"))
            await until(lambda: len(other.denied) == 2)
            await trio.sleep(0.05)
            assert None not in (heard[-1], again[-1])
    assert f"{H1}: revoked" in changes(coordinator)


async def test_a_clock_that_was_set_back_keeps_no_revoked_name_in(
    coordinator: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    stolen = identity_of(coordinator)
    async with living(coordinator, stolen) as cut:
        monkeypatch.setattr("controller.registrar.time", SimpleNamespace(time=lambda: time.time() - 86_400.0))
        await asked(coordinator, m.Revoke("host", "h1"))
        await until(lambda: cut[-1] is None)
    with pytest.raises((AssertionError, trio.BrokenResourceError)):
        await welcomed(await agent_of(coordinator, stolen))


def test_an_agent_on_a_full_disk_goes_on_with_another_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(Service, "save", full)
    first, other = (Authority.new(CAMPUS).credentials(H1) for _ in range(2))
    lent = Lent(address="", key=first.key, certificate=first.certificate, trusted=first.trusted, port=1)
    renewal = Renewal(Identity(first), lambda _: None, lent.keep)
    renewal.take(m.Trust(other.trusted, {}))
    assert renewal.identity.credentials.trusted == lent.trusted == other.trusted


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("by_the_receiver", [True, False])
async def test_transfers_under_way_are_cut_with_the_name_of_either_end(
    tmp_path: Path, by_the_receiver: bool, is_sealed: bool
) -> None:
    authority = Authority.new(CAMPUS)
    sender, receiver = (Identity(authority.credentials(name)) for name in (H1, H2))
    failed, sent_bytes = trio.Event(), 0

    async def slowly() -> int:
        await trio.sleep(0.01)
        return 4096

    def progressed(sent: int, _: int) -> None:
        nonlocal sent_bytes
        sent_bytes = sent

    async def note(_: ReceiveEvent) -> None:
        failed.set()

    async with trio.open_nursery() as nursery:
        with CheckpointStore(tmp_path / "origin") as origin, CheckpointStore(tmp_path / "target") as target:
            manifest = ingest(origin, content(1, chunk_bytes=4 << 20))
            lets_in = Door(receiver, PartyRole.HOST)
            server = CheckpointServer(store=target, on_event=note, door=lets_in, is_sealed=is_sealed)
            listeners = await nursery.start(trio.serve_tcp, server.serve, 0)

            async def send() -> None:
                address = "127.0.0.1", listeners[0].socket.getsockname()[1]
                with pytest.raises(TransferFailed):
                    await send_checkpoint(
                        origin,
                        *manifest.key,
                        address,
                        on_connected=lambda _: None,
                        on_progress=progressed,
                        allowance=slowly,
                        identity=sender,
                        receiver="h2",
                        is_sealed=is_sealed,
                    )
                nursery.cancel_scope.cancel()

            nursery.start_soon(send)
            await until(lambda: sent_bytes > 8192)
            with trio.fail_after(1.0):
                denies, other = (receiver, H1) if by_the_receiver else (sender, H2)
                denies.deny({str(other): time.time()})
                await failed.wait()
                await trio.sleep_forever()  # until the sender has failed, too
    assert sent_bytes < 4 << 20


# ---------------------------------------------------------------- another authority


async def test_authority_changes_while_all_stay_connected(coordinator: Running) -> None:
    path = coordinator.host.authority
    assert path is not None
    first, second = identity_of(coordinator), identity_of(coordinator, H2)
    async with living(coordinator, first) as one:
        async with living(coordinator, second) as two:
            await asked(coordinator, m.RotateAuthority())
            new = Authority.load(path)
            await until(lambda: all(signer(each)(new) for each in (first, second)))
            assert first.credentials.trusted.count(b"BEGIN CERTIFICATE") == 2
            assert None not in (*one, *two)
        # who was away knows the old one alone
        await welcomed(await agent_of(coordinator, identity_of(coordinator, H2)))
        await asked(coordinator, m.RotateAuthority())
        await until(lambda: signer(first)(Authority.load(path)))
        assert first.credentials.trusted.count(b"BEGIN CERTIFICATE") == 2
        assert None not in one
    await welcomed(await agent_of(coordinator, first))
    with pytest.raises((AssertionError, RemoteProtocolError, trio.BrokenResourceError)):
        await welcomed(await agent_of(coordinator, identity_of(coordinator)))  # two authorities later
    await joined(coordinator, await token_for(coordinator))


async def test_a_coordinator_that_follows_takes_over_names_as_another_left_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.registrar.LOOK_S", 0.02)
    path, names = tmp_path / "authority.pem", Names()
    first = Authority.new(CAMPUS)
    first.save(path)
    mine = [Identity(first.credentials(Name(CAMPUS, PartyRole.COORDINATOR, each))) for each in ("leads", "follows")]
    told = list[m.Trust]()
    leads, follows = (Registrar(path, each, names, lambda _: None, told.append) for each in mine)
    leads.obey(m.RotateAuthority())
    names.revoked[str(H1)] = 1.0
    follows.take_over()
    assert told[1] == m.Trust(Authority.load(path).trusted, {str(H1): 1.0}), "agents that came before are told"
    assert mine[1].credentials.trusted == told[1].trusted
    assert mine[1].denied == {str(H1): 1.0}
    names.revoked.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follows.keep_renewed)
        leads.obey(m.RotateAuthority())
        await until(lambda: signer(mine[1])(Authority.load(path)))
        assert mine[1].credentials.trusted == mine[0].credentials.trusted == Authority.load(path).trusted
        path.write_text("rubbish")
        names.revoked[str(H1)], mine[1].denied = 1.0, {}
        await trio.sleep(0.1)  # it goes on with what it has
        assert mine[1].denied == {str(H1): 1.0}
        nursery.cancel_scope.cancel()


async def test_a_file_without_a_name_holds_an_authority_at_every_moment() -> None:
    path, over = nameless_file(), threading.Event()
    (authority := Authority.new(CAMPUS)).save(path)

    def save() -> None:
        while not over.is_set():
            authority.save(path)

    writer = threading.Thread(target=save)
    writer.start()
    try:
        assert all(path.read_bytes().endswith(authority.trusted) for _ in range(20_000))
    finally:
        over.set()
        writer.join()


async def test_an_authority_that_cannot_be_written_is_followed_by_none(coordinator: Running) -> None:
    path = coordinator.host.authority
    assert path is not None
    path.with_name(f"{path.name}.new").mkdir()
    with pytest.raises(RemoteProtocolError, match="stays as it is"):
        await asked(coordinator, m.RotateAuthority())
    assert Authority.load(path).certificate == coordinator.authority.certificate
    await welcomed(await agent_of(coordinator, identity_of(coordinator)))


# ---------------------------------------------------------------- operators of other machines


async def test_an_operator_of_another_machine_asks_by_its_name(coordinator: Running) -> None:
    identity = Identity(await joined(coordinator, await token_for(coordinator, ANNA), ANNA.role))
    stream = await trio.open_tcp_stream("127.0.0.1", coordinator.desk)
    conversation, _ = await opened(stream, identity, PartyRole.COORDINATOR)
    assert len((await Operator(conversation).status()).hosts) == 2
    await asked(coordinator, m.Revoke("operator", "anna"))
    with pytest.raises((trio.BrokenResourceError, RemoteProtocolError)):
        await Operator(conversation).status()


async def test_an_operator_keeps_no_one_from_revoking_it(coordinator: Running) -> None:
    identity = Identity(coordinator.authority.credentials(ANNA))
    held = list[trio.abc.Stream]()
    for _ in range(3):
        stream = await trio.open_tcp_stream("127.0.0.1", coordinator.desk)
        held.append((await opened(stream, identity, PartyRole.COORDINATOR))[0])
        await Operator(held[-1]).status()
    of_anna = coordinator.host._operators.held["operator anna"]
    assert of_anna == 3
    with coordinator.host._operators.take("operator anna", host.OPERATORS - of_anna) as granted:
        assert granted
        await asked(coordinator, m.Revoke("operator", "anna"))
    with pytest.raises((trio.BrokenResourceError, RemoteProtocolError)):
        await Operator(held[0]).status()


async def test_a_host_is_no_operator(coordinator: Running) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", coordinator.desk)
    conversation, _ = await opened(stream, identity_of(coordinator), PartyRole.COORDINATOR)
    with pytest.raises((trio.BrokenResourceError, RemoteProtocolError)):
        await Operator(conversation).status()
    assert "no business here" in str(coordinator.host._refusals._counts)


async def test_nobody_revokes_the_coordinator(coordinator: Running) -> None:
    """Its agents would leave it, and refuse it for half a certificate's life. No token makes one, and no other name is there."""
    agent = await agent_of(coordinator, identity_of(coordinator))
    await welcomed(agent)
    coordinators = [m.MakeToken("coordinator", "coord", 60.0), m.Revoke("coordinator", "coord")]
    for message in (*coordinators, m.Revoke("coordinator2", "h1"), m.Revoke("host", "../h1")):
        with pytest.raises(RemoteProtocolError, match="for hosts and operators" if message in coordinators else None):
            await asked(coordinator, message)
    await agent.out.send(m.Renew(der_of(new_key())))
    assert isinstance(await agent.heard(), m.Issued)


# ---------------------------------------------------------------- an authority that outlives a run


def cli(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_an_authority_in_a_file_is_its_users_alone_and_of_one_campus(tmp_path: Path) -> None:
    file = tmp_path / "authority.pem"
    assert cli("ca", "init", str(file), "overheard").exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    found = Authority.load(file)
    again = cli("ca", "init", str(file), "overheard")
    assert again.exit_code != 0
    assert Authority.load(file).certificate == found.certificate

    def authority(campus: str) -> Path:
        return authority_of(Scenario("a", replace(three_tier(2, 1, 0), name=campus), trust=Trust(authority=str(file))))

    assert authority("overheard") == file
    with pytest.raises(SpecError, match="this one is for overheard"):
        authority("another")
    file.write_text("rubbish")
    with pytest.raises(SetupError, match="no authority of a campus"):
        authority("overheard")
    assert Authority.load(authority_of(Scenario("a", three_tier(2, 1, 0)))).campus == domain_of(
        three_tier(2, 1, 0).name
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ca", "revoke"], "one of --host and --operator"),
        (["token", "create", "--host", "h1", "--operator", "anna"], "one of --host and --operator"),
        (["token", "create", "--host", "h1", "--ttl", "soon"], "--ttl"),
    ],
)
def test_commands_about_names_say_what_they_want(words: list[str], said: str) -> None:
    answer = cli(*words)
    assert answer.exit_code != 0
    assert said in answer.output + str(answer.exception)
