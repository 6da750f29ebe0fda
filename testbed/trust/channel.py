"""Conversations between parties that have names: TLS 1.3, with the certificates of both ends.

A party is known by the name in its certificate, never by its address. The name is a URI as SPIFFE writes it,
`spiffe://CAMPUS/host/h3`. No session is resumed, so a certificate is shown and verified on each connection.

Keys touch no disk: a process gets them in its memory, and OpenSSL reads them from a file that has no name.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final
from weakref import WeakKeyDictionary

import trio

from testbed.bounds import NAME_PATTERN, NAME_RULE
from testbed.errors import RemoteProtocolError
from testbed.wire import MessageStream

SKEW_S: Final = 300.0  # by which clocks of a campus may differ: certificates are dated back by it
_URI = re.compile(r"spiffe://([^/]+)/([^/]+)/([^/]+)\Z")


class PartyRole(StrEnum):
    """The part that a party plays in a campus."""

    HOST = "host"
    OPERATOR = "operator"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Name:
    """Name of a party, as its certificate carries it; `subject` is the host's, or the operator's."""

    campus: str
    role: PartyRole
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
        return cls(found[1], PartyRole(found[2]), found[3])


@dataclass(frozen=True, slots=True)
class Credentials:
    """Name, private key and certificate of a party, and the certificates of the authorities that it trusts, all in PEM."""

    name: Name
    key: bytes = field(repr=False)
    certificate: bytes
    trusted: bytes


@dataclass
class Identity:
    """Proof of a party's name to others. New `credentials` hold from the next connection on.

    `denied` are names that were revoked, and when: a certificate that such a name got before is no longer good.
    """

    credentials: Credentials
    denied: dict[str, float] = field(default_factory=dict)
    # under way: the peer's name, and when its certificate was issued
    _peers: WeakKeyDictionary[trio.SSLStream[trio.abc.Stream], tuple[str, float]] = field(
        default_factory=WeakKeyDictionary
    )

    def deny(self, denied: dict[str, float]) -> None:
        """Deny these names and no others, and cut the conversations with them that are under way."""
        self.denied = denied
        for stream, (name, issued_s) in [*self._peers.items()]:
            if issued_s <= denied.get(name, 0.0):
                with suppress(OSError):  # it has ended
                    socket_beneath(stream).shutdown(socket.SHUT_RDWR)

    def issued_s(self, name: str) -> float:
        """Return when the latest certificate was issued by which this name converses; 0: it does not."""
        return max((issued_s for peer, issued_s in self._peers.values() if peer == name), default=0.0)

    def admit(self, stream: trio.SSLStream[trio.abc.Stream], roles: Collection[PartyRole]) -> Name:
        """Return the name of a conversation's peer, which is cut off once that is denied.

        RemoteProtocolError: it is denied already, or has none of these roles in this campus.
        """
        name, certificate = peer_name(stream), stream.getpeercert()
        if name.campus != self.name.campus or name.role not in roles:
            raise RemoteProtocolError(f"{name} has no business here")
        issued_s = ssl.cert_time_to_seconds(str(certificate["notBefore"])) + SKEW_S
        if issued_s <= self.denied.get(str(name), 0.0):
            raise RemoteProtocolError(f"{name} was revoked")
        self._peers[stream] = str(name), issued_s
        return name

    def renew(self, credentials: Credentials) -> None:
        """Show another certificate, or trust other authorities, on connections made from now on."""
        self.credentials = credentials
        for made in ("server", "desk", "client"):
            self.__dict__.pop(made, None)

    @property
    def name(self) -> Name:
        """The party's own name."""
        return self.credentials.name

    @cached_property
    def server(self) -> ssl.SSLContext:
        """The settings of connections that this party accepts."""
        context = context_of(ssl.PROTOCOL_TLS_SERVER, self.credentials.trusted, self.credentials)
        context.num_tickets = 0  # a third of a handshake's cost, for sessions that nobody resumes
        return context

    @cached_property
    def desk(self) -> ssl.SSLContext:
        """The settings of connections that a party without a certificate may open, too: it joins."""
        context = context_of(ssl.PROTOCOL_TLS_SERVER, self.credentials.trusted, self.credentials)
        context.num_tickets, context.verify_mode = 0, ssl.CERT_OPTIONAL
        return context

    @cached_property
    def client(self) -> ssl.SSLContext:
        """The settings of connections that this party opens."""
        return context_of(ssl.PROTOCOL_TLS_CLIENT, self.credentials.trusted, self.credentials)


def context_of(protocol: int, trusted: bytes | None, own: Credentials | None = None) -> ssl.SSLContext:
    """Return the settings of a side that trusts these authorities, in PEM, and shows its own certificate, if it has one.

    None: any peer is taken, and what it sends is checked otherwise.
    """
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # `peer_name` is compared instead
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.verify_mode = ssl.CERT_NONE if trusted is None else ssl.CERT_REQUIRED
    if trusted is not None:
        context.load_verify_locations(cadata=trusted.decode())
    if own is not None:
        nameless = os.memfd_create("credentials", os.MFD_CLOEXEC)
        try:
            os.write(nameless, own.key + own.certificate)
            context.load_cert_chain(f"/proc/self/fd/{nameless}")
        finally:
            os.close(nameless)
    return context


async def accepted(
    stream: trio.abc.Stream, identity: Identity, *roles: PartyRole, joiners: bool = False
) -> tuple[trio.SSLStream[trio.abc.Stream], Name | None]:
    """Return the conversation on a connection that a peer opened, and its name, which has one of these roles.

    Of `joiners`, which show no certificate, the name is None. RemoteProtocolError: the peer proves no such name. The stream's
    errors pass.
    """
    context = identity.desk if joiners else identity.server
    conversation = await shaken(trio.SSLStream(stream, context, server_side=True))
    return conversation, identity.admit(conversation, roles) if not joiners or conversation.getpeercert() else None


async def opened(
    stream: trio.abc.Stream, identity: Identity, *roles: PartyRole
) -> tuple[trio.SSLStream[trio.abc.Stream], Name]:
    """Return the conversation on a connection that this party opened, and the peer's name. Raises as `accepted` does."""
    conversation = await shaken(trio.SSLStream(stream, identity.client))
    return conversation, identity.admit(conversation, roles)


async def shaken(stream: trio.SSLStream[trio.abc.Stream]) -> trio.SSLStream[trio.abc.Stream]:
    """Return the conversation after its handshake. RemoteProtocolError: that failed."""
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError as error:
        if isinstance(error.__cause__, ssl.SSLZeroReturnError | ssl.SSLEOFError):
            raise trio.BrokenResourceError("closed during its handshake") from error
        if isinstance(error.__cause__, ssl.SSLError):
            raise RemoteProtocolError(f"no handshake: {_words(error.__cause__)}") from error
        raise
    return stream


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


def socket_beneath(stream: trio.abc.Stream) -> socket.socket | trio.socket.SocketType:
    """Return the socket below a conversation."""
    connection = beneath(stream)
    assert isinstance(connection, trio.SocketStream | MessageStream)
    return connection.socket
