"""Conversations between parties that have names: TLS 1.3, with the certificates of both ends.

A party is known by the name in its certificate, never by its address. The name is a URI as SPIFFE writes it,
`spiffe://CAMPUS/host/h3`. No session is resumed, so a certificate is shown and verified on each connection.

Keys touch no disk: a process gets them in its memory, and OpenSSL reads them from a file that has no name.
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import trio

from testbed.bounds import NAME_PATTERN, NAME_RULE
from testbed.errors import RemoteProtocolError

_URI = re.compile(r"spiffe://([^/]+)/([^/]+)/([^/]+)\Z")


class Role(StrEnum):
    """The part that a party plays in a campus."""

    HOST = "host"
    OPERATOR = "operator"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Name:
    """Name of a party, as its certificate carries it; `subject` is the host's, or the operator's."""

    campus: str
    role: Role
    subject: str

    def __post_init__(self) -> None:
        for part in (self.campus, self.subject):
            if not re.match(NAME_PATTERN, part):
                raise ValueError(f"{part!r} in a certificate's name: {NAME_RULE}")

    def __str__(self) -> str:
        return f"spiffe://{self.campus}/{self.role}/{self.subject}"

    @classmethod
    def parse(cls, uri: str) -> Name:
        """Return the name that a URI writes. ValueError: it is none."""
        found = _URI.match(uri)
        if found is None:
            raise ValueError(f"{uri!r}: names are spiffe://CAMPUS/ROLE/SUBJECT")
        return cls(found[1], Role(found[2]), found[3])


@dataclass(frozen=True, slots=True)
class Credentials:
    """Name, private key and certificate of a party, and the certificates of the authorities that it trusts, all in PEM."""

    name: Name
    key: bytes = field(repr=False)
    certificate: bytes
    trusted: bytes


@dataclass
class Identity:
    """Proof of a party's name to others. New `credentials` hold from the next connection on."""

    credentials: Credentials

    def renew(self, credentials: Credentials) -> None:
        """Show another certificate, or trust other authorities, on connections made from now on."""
        self.credentials = credentials
        for made in ("server", "client"):
            self.__dict__.pop(made, None)

    @property
    def name(self) -> Name:
        """The party's own name."""
        return self.credentials.name

    @cached_property
    def server(self) -> ssl.SSLContext:
        """The settings of connections that this party accepts."""
        context = _context(ssl.PROTOCOL_TLS_SERVER, self.credentials)
        context.num_tickets = 0  # a third of a handshake's cost, for sessions that nobody resumes
        return context

    @cached_property
    def client(self) -> ssl.SSLContext:
        """The settings of connections that this party opens."""
        return _context(ssl.PROTOCOL_TLS_CLIENT, self.credentials)


def _context(protocol: int, credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # `peer_name` is compared instead
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=credentials.trusted.decode())
    nameless = os.memfd_create("credentials", os.MFD_CLOEXEC)
    try:
        os.write(nameless, credentials.key + credentials.certificate)
        context.load_cert_chain(f"/proc/self/fd/{nameless}")
    finally:
        os.close(nameless)
    return context


async def accepted(
    stream: trio.abc.Stream, identity: Identity, *roles: Role
) -> tuple[trio.SSLStream[trio.abc.Stream], Name]:
    """Return the conversation on a connection that a peer opened, and its name, which has one of these roles.

    RemoteProtocolError: the peer proves no such name. The stream's errors pass.
    """
    return await _secured(trio.SSLStream(stream, identity.server, server_side=True), identity, roles)


async def opened(
    stream: trio.abc.Stream, identity: Identity, *roles: Role
) -> tuple[trio.SSLStream[trio.abc.Stream], Name]:
    """Return the conversation on a connection that this party opened, and the peer's name. Raises as `accepted` does."""
    return await _secured(trio.SSLStream(stream, identity.client), identity, roles)


async def _secured(
    stream: trio.SSLStream[trio.abc.Stream], identity: Identity, roles: tuple[Role, ...]
) -> tuple[trio.SSLStream[trio.abc.Stream], Name]:
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError as error:
        if isinstance(error.__cause__, ssl.SSLZeroReturnError | ssl.SSLEOFError):
            raise trio.BrokenResourceError("closed during its handshake") from error
        if isinstance(error.__cause__, ssl.SSLError):
            raise RemoteProtocolError(f"no handshake: {_words(error.__cause__)}") from error
        raise
    name = peer_name(stream)
    if name.campus != identity.name.campus or name.role not in roles:
        raise RemoteProtocolError(f"{name} has no business here")
    return stream, name


def _words(error: ssl.SSLError) -> str:
    verified: str = getattr(error, "verify_message", "")
    return verified or (error.reason or str(error)).lower().replace("_", " ")


def peer_name(stream: trio.SSLStream[trio.abc.Stream]) -> Name:
    """Return the name in the peer's certificate, which was verified. RemoteProtocolError: it holds not one name."""
    match (stream.getpeercert() or {}).get("subjectAltName", ()):
        case (("URI", uri),):
            try:
                return Name.parse(uri)
            except ValueError as error:
                raise RemoteProtocolError(str(error)) from error
    raise RemoteProtocolError("its certificate holds not one name")


def beneath(stream: trio.abc.Stream) -> trio.abc.Stream:
    """Return the connection below a conversation: for raw bytes, once it was agreed that they follow, and for its settings."""
    return stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
