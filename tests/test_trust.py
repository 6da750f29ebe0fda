"""Names in certificates: who is let in, and who is not, over streams in memory."""

import operator
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography import x509
from trio.testing import memory_stream_pair

from testbed.errors import RemoteProtocolError
from testbed.trust.authority import LIFE_S, Authority, new_key, pem_of, pem_of_key
from testbed.trust.channel import Credentials, Identity, Name, PartyRole, accepted, beneath, opened, peer_name

CAMPUS = "lab"
HOST = Name(CAMPUS, PartyRole.HOST, "h3")
HEAD = Name(CAMPUS, PartyRole.COORDINATOR, "coord")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.new(CAMPUS)


def identity(authority: Authority, name: Name = HOST, **options: Any) -> Identity:
    return Identity(authority.credentials(name, **options))


async def met(server: Identity, client: Identity, *roles: PartyRole) -> tuple[Any, Any]:
    """What each end has of the other: conversation and name, or why there is none."""
    ours, theirs = memory_stream_pair()
    found: dict[str, Any] = {}

    async def end(key: str, secure: Callable[[], Any], stream: trio.abc.Stream) -> None:
        try:
            with trio.fail_after(60.0):
                found[key] = await secure()
                found[key] = (*found[key], await first_words(found[key][0]))
        except (RemoteProtocolError, trio.BrokenResourceError) as error:
            found[key] = error
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end, "server", partial(accepted, ours, server, *(roles or (PartyRole.HOST,))), ours)
        nursery.start_soon(end, "client", partial(opened, theirs, client, PartyRole.COORDINATOR), theirs)
    return found["server"], found["client"]


async def first_words(stream: trio.abc.Stream) -> bytes:
    """With TLS 1.3 a client knows only by the first bytes that it was let in."""
    await stream.send_all(b"words")
    return await stream.receive_some()


def is_refused(end: Any) -> bool:
    """Whether this end got nothing of the other."""
    return isinstance(end, Exception) or end[2] == b""


async def test_both_ends_know_each_other_by_name_and_keep_no_session_for_later(authority: Authority) -> None:
    server, client = await met(identity(authority, HEAD), identity(authority))
    assert (server[1], client[1]) == (HOST, HEAD)
    assert (server[2], client[2]) == (b"words", b"words")
    assert {end[0].version() for end in (server, client)} == {"TLSv1.3"}
    assert peer_name(server[0]) == HOST
    assert not (client[0].session_reused or client[0].session.has_ticket)


async def test_who_knows_the_last_authority_alone_knows_a_coordinator_of_the_one_that_follows(
    authority: Authority, tmp_path: Path
) -> None:
    """Such as a host that was off when it was told, and a coordinator that has begun again since."""
    authority.successor().save(tmp_path / "a.pem")
    second = Authority.load(tmp_path / "a.pem")
    server, client = await met(identity(second, HEAD), identity(authority))
    assert (server[1], client[1], client[2]) == (HOST, HEAD, b"words")
    server, client = await met(identity(second.successor(), HEAD), identity(authority))
    assert is_refused(server)
    assert is_refused(client)
    link = Authority(CAMPUS, second.key, second.certificate)
    assert is_refused((await met(identity(link, HEAD), identity(authority)))[1]), "it is the link that proves it"


async def test_a_name_of_another_role_or_campus_is_not_let_in_and_no_coordinator(authority: Authority) -> None:
    for name in (Name(CAMPUS, PartyRole.OPERATOR, "anna"), Name("other", PartyRole.HOST, "h3")):
        server, client = await met(identity(authority, HEAD), identity(authority, name))
        assert str(server) == f"{name} has no business here"
        assert is_refused(client)
    _, client = await met(identity(authority, HOST), identity(authority))
    assert str(client) == "spiffe://lab/host/h3 has no business here"


async def test_of_another_authority_nobody_is_let_in(authority: Authority) -> None:
    stranger = Authority.new(CAMPUS)
    for server, client in ((authority, stranger), (stranger, authority)):
        ends = await met(identity(server, HEAD), identity(client))
        assert any(isinstance(end, RemoteProtocolError) for end in ends)
        assert all(map(is_refused, ends))


async def test_without_a_certificate_nobody_is_let_in(authority: Authority) -> None:
    nobody = identity(authority)
    nobody.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.client.check_hostname = False
    nobody.client.load_verify_locations(cadata=authority.trusted.decode())
    server, client = await met(identity(authority, HEAD), nobody)
    assert isinstance(server, RemoteProtocolError)
    assert "peer did not return a certificate" in str(server)
    assert is_refused(client)


async def test_tls_1_2_is_refused(authority: Authority) -> None:
    old = identity(authority)
    old.client.minimum_version = ssl.TLSVersion.TLSv1_2
    old.client.maximum_version = ssl.TLSVersion.TLSv1_2
    server, client = await met(identity(authority, HEAD), old)
    assert "unsupported protocol" in str(server)
    assert is_refused(client)


async def test_a_certificate_that_is_over_is_refused(authority: Authority) -> None:
    server, _ = await met(identity(authority, HEAD), identity(authority, life_s=-1.0))
    assert "certificate has expired" in str(server)


def certified(authority: Authority, *names: x509.GeneralName) -> Identity:
    """A party whose certificate holds these names, signed by the authority as a mistake of its own would be."""
    key = new_key()
    right = authority.issue(HOST, key.public_key())
    builder = x509.CertificateBuilder(right.issuer, right.subject, key.public_key(), right.serial_number)
    builder = builder.not_valid_before(right.not_valid_before_utc).not_valid_after(right.not_valid_after_utc)
    for extension in right.extensions:
        if not isinstance(extension.value, x509.SubjectAlternativeName):
            builder = builder.add_extension(extension.value, extension.critical)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    signed = builder.sign(authority.key, right.signature_hash_algorithm)
    return Identity(Credentials(HOST, pem_of_key(key), pem_of(signed), authority.trusted))


@pytest.mark.parametrize(
    "uris",
    [
        ["spiffe://lab/host/h3", "spiffe://lab/host/h4"],
        ["spiffe://lab/host/h3/h4"],
        ["spiffe://lab/root/h3"],
        ["https://lab/host/h3"],
        ["spiffe://lab/host/h3?"],
        ["spiffe://lab/host/h3%0a"],
    ],
)
async def test_a_certificate_holds_one_name_and_nothing_else(authority: Authority, uris: list[str]) -> None:
    party = certified(authority, *map(x509.UniformResourceIdentifier, uris))
    server, _ = await met(identity(authority, HEAD), party)
    assert isinstance(server, RemoteProtocolError)


async def test_a_host_signs_no_certificates(authority: Authority) -> None:
    """Its own key signs one for h4: the chain is shown whole, and is too long."""
    key, mine = new_key(), new_key()
    host = Authority(CAMPUS, mine, authority.issue(HOST, mine.public_key()))
    forged = host.issue(Name(CAMPUS, PartyRole.HOST, "h4"), key.public_key())
    shown = pem_of(forged) + pem_of(host.certificate)
    server, _ = await met(
        identity(authority, HEAD), Identity(Credentials(HOST, pem_of_key(key), shown, authority.trusted))
    )
    assert isinstance(server, RemoteProtocolError)


async def test_one_authority_follows_another_and_both_are_trusted_meanwhile(authority: Authority) -> None:
    new = Authority.new(CAMPUS)
    new.other = authority.certificate
    old = Authority(CAMPUS, authority.key, authority.certificate, new.certificate)
    for head, host in ((new, old), (old, new)):
        server, client = await met(identity(head, HEAD), identity(host))
        assert (server[1], client[1]) == (HOST, HEAD)
    new.other = None
    server, _ = await met(identity(new, HEAD), identity(old))
    assert isinstance(server, RemoteProtocolError)


async def test_what_is_renewed_is_shown_from_the_next_connection_on(authority: Authority) -> None:
    head, host = identity(authority, HEAD), identity(authority)
    assert isinstance((await met(head, host))[0], tuple)
    host.renew(Authority.new(CAMPUS).credentials(HOST))
    assert all(map(is_refused, await met(head, host)))
    shown = head.server, head.desk, head.client
    head.renew(head.credentials)
    assert not any(map(operator.is_, shown, (head.server, head.desk, head.client)))


async def test_one_direction_ends_and_the_other_goes_on_beneath(authority: Authority) -> None:
    """A receiver that refuses says so, and reads what its sender had on its way: a reset would overtake the refusal."""
    head, host, read = identity(authority, HEAD), identity(authority), list[bytes]()

    async def serve(stream: trio.SocketStream) -> None:
        conversation, _ = await accepted(stream, head, PartyRole.HOST)
        await conversation.send_all(b"no")
        await stream.send_eof()
        while data := await stream.receive_some():
            read.append(data)
        done.set()

    done = trio.Event()
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        stream = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        conversation, _ = await opened(stream, host, PartyRole.COORDINATOR)
        assert await conversation.receive_some() == b"no"
        await beneath(conversation).send_all(b"raw")
        assert await conversation.receive_some() == b""
        await stream.aclose()
        with trio.fail_after(60.0):
            await done.wait()
        nursery.cancel_scope.cancel()
    assert b"".join(read) == b"raw"


def test_a_certificate_is_good_for_hours_and_has_the_names_of_its_kind(authority: Authority) -> None:
    made = authority.issue(HOST, new_key().public_key())
    left_s = (made.not_valid_after_utc - datetime.now(UTC)).total_seconds()
    assert 0.9 * LIFE_S < left_s <= LIFE_S
    [named] = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert named.value == "spiffe://lab/host/h3"
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_key_is_in_no_file_and_no_line(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    party = identity(authority)
    assert party.server is party.server
    assert party.client is not party.server
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and "credentials" in str(fd.readlink())]
    assert "PRIVATE" not in repr(party) + repr(authority)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("part", ["", "h 3", "h3/", "h3\n", "ü"])
def test_names_are_plain(part: str) -> None:
    with pytest.raises(ValueError, match="certificate's name"):
        Name(CAMPUS, PartyRole.HOST, part)
