"""Names for parties: with a token for one that joins, and by the certificate that it has from then on.

A token is a pass (`passes`) that the authority signed: good once (`jti`), for one name (`sub`), for a while (`exp`). Its claim
`ca` is the hash of the authority's certificate. So a joiner knows that it speaks with the campus before it sends the token.

    server    Trust: the authorities of the campus
    joiner    checks the hash, connects again, and verifies the server by that authority
    server    Trust
    joiner    Join: the token, its public key
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
from typing import Annotated, Final

import trio
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from msgspec import Meta, Struct

from testbed.errors import RemoteProtocolError
from testbed.framing import Codec
from testbed.messages import Certificates, Issued, Refused, Renew, Trust
from testbed.trust.authority import Authority, new_key, pem_of, pem_of_key
from testbed.trust.channel import Credentials, Identity, Name, PartyRole, context_of, peer_name, shaken
from testbed.trust.passes import claims_of, claims_unproved, new_pass
from testbed.wire import Channel

AUDIENCE: Final = "join"
FRAME_BYTES: Final = 1 << 13  # two certificates and a key
LOOK_S: Final = 60.0  # between two at the clock: a machine that slept has not waited
SETTLE_S: Final = 1.0  # after which every party has heard of another authority
AGAIN_S: Final = 10.0  # after a request for a new certificate that nobody answered
Open = Callable[[], Awaitable[trio.abc.Stream]]


class Join(Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """Request for the name that the token is for, with the public key that its certificate is to have (DER)."""

    token: Annotated[str, Meta(max_length=2048)]
    public_key: Certificates


CODEC: Final[Codec[Join | Trust | Issued | Refused]] = Codec(Join | Trust | Issued | Refused, FRAME_BYTES)


def new_token(authority: Authority, name: Name, life_s: float) -> tuple[str, str]:
    """Return a token, by whose authority a joiner verifies the coordinator, and its number."""
    number = secrets.token_urlsafe(16)
    hashed = _hash_of(authority.certificate)
    return new_pass(authority.key, AUDIENCE, life_s, sub=str(name), jti=number, ca=hashed), number


def number_and_name(token: str, authority: Authority) -> tuple[str, Name]:
    """Return number and name of a token. RemoteProtocolError: no authority that is trusted signed it, or it is too old."""
    claims = claims_of(token, AUDIENCE, authority.public_keys, "sub", "jti")
    return claims["jti"], Name.parse(claims["sub"])


def public_key_of(der: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key that a peer wants certified. RemoteProtocolError: it is of another kind."""
    try:
        key = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise RemoteProtocolError(f"no public key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise RemoteProtocolError("a key of another kind than ECDSA P-256")
    return key


async def join(open_stream: Open, token: str, role: PartyRole) -> Credentials:
    """Return the credentials that a token is good for, of a party of this role.

    RemoteProtocolError: the token is for another role, or the server is not of its campus, and was sent nothing; or it
    refuses the token.
    """
    claims = claims_unproved(token)
    if f"/{role}/" not in str(claims.get("sub")):
        raise RemoteProtocolError(f"the token is for {claims.get('sub')}, which is no {role}")
    async with await open_stream() as stream:
        trust = await Channel(trio.SSLStream(stream, context_of(ssl.PROTOCOL_TLS_CLIENT, None)), CODEC).receive()
    try:
        certificates = x509.load_pem_x509_certificates(trust.trusted) if isinstance(trust, Trust) else []
    except ValueError as error:
        raise RemoteProtocolError(f"the server shows no certificates: {error}") from error
    authority = next((each for each in certificates if _hash_of(each) == claims.get("ca")), None)
    if authority is None:
        raise RemoteProtocolError("the server is of another campus than the token: it was sent nothing")
    async with await open_stream() as stream:
        context = context_of(ssl.PROTOCOL_TLS_CLIENT, pem_of(authority))
        conversation = await shaken(trio.SSLStream(stream, context))
        if peer_name(conversation).role is not PartyRole.COORDINATOR:
            raise RemoteProtocolError("the server is no coordinator: it was sent nothing")
        channel, key = Channel(conversation, CODEC), new_key()
        trust = await channel.receive()  # proved, this time
        await channel.send(Join(token, der_of(key)))
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

    `ask` sends the request, and it may be lost: it is sent again. `keep` gets each change of the credentials.
    """

    def __init__(
        self, identity: Identity, ask: Callable[[Renew], None], keep: Callable[[Credentials], None] | None = None
    ) -> None:
        self.identity = identity
        self._ask, self._keep = ask, keep
        self._key: ec.EllipticCurvePrivateKey | None = None  # for which a certificate was asked
        self._wanted, self._answered = trio.Event(), trio.Event()

    async def run(self) -> None:
        """Renew for ever."""
        while True:
            while (left_s := renew_in_s(self.identity.credentials.certificate)) > 0.0 and not self._wanted.is_set():
                with trio.move_on_after(min(left_s, LOOK_S)):
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
            made = x509.load_pem_x509_certificate(message.certificate)
            if self._key is not None and made.public_key() == self._key.public_key():  # else it was asked for twice
                self._renew(replace(mine, key=pem_of_key(self._key), certificate=message.certificate))
                self._key, self._wanted = None, trio.Event()
                self._answered.set()
            return
        if message.trusted != mine.trusted:
            self._renew(replace(mine, trusted=message.trusted))
            self._wanted.set()
        self.identity.deny(message.denied)

    def _renew(self, credentials: Credentials) -> None:
        self.identity.renew(credentials)
        if self._keep is not None:
            self._keep(credentials)


def renew_in_s(certificate: bytes) -> float:
    """Return the seconds until half of a certificate's life is over; 0: it is."""
    made = x509.load_pem_x509_certificate(certificate)
    half = made.not_valid_before_utc + (made.not_valid_after_utc - made.not_valid_before_utc) / 2
    return max(0.0, (half - datetime.now(UTC)).total_seconds())
