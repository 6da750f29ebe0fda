"""Names for parties: with a token for one that joins, and by the certificate that it has from then on.

A token is `HASH::SECRET`: the hash of the certificate of the campus's authority, and a secret that is good once, for one name,
for a while. So a joiner knows that it speaks with the campus before it sends the secret.

    server    Trust: the authorities of the campus
    joiner    checks the hash, connects again, and verifies the server by that authority
    server    Trust
    joiner    Join: secret, role and subject, its public key
    server    Issued: its certificate; or Refused

Renewal needs no name: the certificate is for the one under which the conversation runs.
"""

from __future__ import annotations

import hashlib
import secrets
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import trio
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from msgspec import Struct

from testbed.bounds import Digest
from testbed.errors import RemoteProtocolError
from testbed.framing import Codec
from testbed.messages import Certificates, Issued, Refused, Renew, Trust
from testbed.trust.authority import new_key, pem_of, pem_of_key
from testbed.trust.channel import Credentials, Identity, Name, PartyRole, context_of, peer_name, shaken
from testbed.wire import Channel

SECRET_BYTES: Final = 32
FRAME_BYTES: Final = 1 << 13  # two certificates and a key
SETTLE_S: Final = 1.0  # after which every party has heard of another authority
AGAIN_S: Final = 10.0  # after a request for a new certificate that nobody answered
Open = Callable[[], Awaitable[trio.abc.Stream]]


class Join(Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """Request for the name that the token is for, with the public key that its certificate is to have (DER)."""

    secret: Digest
    role: Digest
    subject: Digest
    public_key: Certificates


CODEC: Final[Codec[Join | Trust | Issued | Refused]] = Codec(Join | Trust | Issued | Refused, FRAME_BYTES)


def new_token(authority: x509.Certificate) -> tuple[str, str]:
    """Return a token of this authority's campus, and the digest by which its secret is known."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    return f"{_hash_of(authority)}::{secret}", digest_of(secret)


def digest_of(secret: str) -> str:
    """Return what may be kept of a token's secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def public_key_of(der: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key that a peer wants certified. RemoteProtocolError: it is of another kind."""
    try:
        key = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise RemoteProtocolError(f"no public key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise RemoteProtocolError("a key of another kind than ECDSA P-256")
    return key


async def join(open_stream: Open, token: str, role: PartyRole, subject: str) -> Credentials:
    """Return the credentials that a token is good for: of this host, or operator.

    RemoteProtocolError: the server is not of that campus, and was sent nothing, or it refuses the token.
    """
    expected, _, secret = token.partition("::")
    async with await open_stream() as stream:
        trust = await Channel(trio.SSLStream(stream, context_of(ssl.PROTOCOL_TLS_CLIENT, None)), CODEC).receive()
    try:
        certificates = x509.load_pem_x509_certificates(trust.trusted) if isinstance(trust, Trust) else []
    except ValueError as error:
        raise RemoteProtocolError(f"the server shows no certificates: {error}") from error
    authority = next((each for each in certificates if _hash_of(each) == expected), None)
    if authority is None:
        raise RemoteProtocolError("the server is of another campus than the token: it was sent nothing")
    async with await open_stream() as stream:
        context = context_of(ssl.PROTOCOL_TLS_CLIENT, pem_of(authority))
        conversation = await shaken(trio.SSLStream(stream, context))
        if peer_name(conversation).role is not PartyRole.COORDINATOR:
            raise RemoteProtocolError("the server is no coordinator: it was sent nothing")
        channel, key = Channel(conversation, CODEC), new_key()
        trust = await channel.receive()  # proved, this time
        await channel.send(Join(secret, role, subject, der_of(key)))
        answer = await channel.receive()
    if not isinstance(answer, Issued) or not isinstance(trust, Trust):
        raise RemoteProtocolError(answer.reason if isinstance(answer, Refused) else "the server gave no answer")
    return Credentials(name_in(answer.certificate), pem_of_key(key), answer.certificate, trust.trusted)


def name_in(certificate: bytes) -> Name:
    """Return the name that a certificate carries."""
    names = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    [uri] = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    return Name.parse(uri)


def der_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the public half of a key."""
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _hash_of(certificate: x509.Certificate) -> str:
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()


class Renewal:
    """Renewal of an agent's certificate: at half its life, and soon after another authority is trusted.

    `ask` sends the request, and it may be lost: it is sent again.
    """

    def __init__(self, identity: Identity, ask: Callable[[Renew], None]) -> None:
        self.identity = identity
        self._ask = ask
        self._key: ec.EllipticCurvePrivateKey | None = None  # for which a certificate was asked
        self._wanted, self._answered = trio.Event(), trio.Event()

    async def run(self) -> None:
        """Renew for ever."""
        while True:
            with trio.move_on_after(renew_in_s(self.identity.credentials.certificate)):
                await self._wanted.wait()
            await trio.sleep(SETTLE_S)
            self._answered, self._key = trio.Event(), self._key or new_key()
            self._ask(Renew(der_of(self._key)))
            with trio.move_on_after(AGAIN_S):
                await self._answered.wait()

    def take(self, message: Issued | Trust) -> None:
        """Take what the coordinator sent: a certificate, or whom to trust and whom not."""
        mine = self.identity.credentials
        if isinstance(message, Issued):
            if self._key is not None:
                self.identity.renew(replace(mine, key=pem_of_key(self._key), certificate=message.certificate))
                self._key, self._wanted = None, trio.Event()
                self._answered.set()
            return
        if message.trusted != mine.trusted:
            self.identity.renew(replace(mine, trusted=message.trusted))
            self._wanted.set()
        self.identity.deny(message.denied)


def renew_in_s(certificate: bytes) -> float:
    """Return the seconds until half of a certificate's life is over; 0: it is."""
    made = x509.load_pem_x509_certificate(certificate)
    half = made.not_valid_before_utc + (made.not_valid_after_utc - made.not_valid_before_utc) / 2
    return max(0.0, (half - datetime.now(UTC)).total_seconds())
