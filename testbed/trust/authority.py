"""The authority of a campus: it issues the certificates by which parties know one another.

It lives in the memory of the process that starts the campus. Certificates are good for hours: a stolen one is soon worth nothing.
Their times are the wall clock's, so a clock that is off by more than SKEW_S refuses new certificates. Each party trusts two
authorities at most: so one follows another while a campus runs.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from testbed.checkpoints.files import replace_durably
from testbed.errors import SetupError
from testbed.trust.channel import SKEW_S, Credentials, Name

LIFE_S: Final = 12 * 3600.0
AUTHORITY_LIFE_S: Final = 365 * 24 * 3600.0
COMMON_NAME: Final = "authority of "
# of a key: a party's, an authority's, and those that none has
USAGES: Final = (
    *("digital_signature", "key_cert_sign", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(slots=True)
class Authority:
    """Key and certificate of a campus's authority. Parties trust it, and the `other` one that it follows or that follows it."""

    campus: str
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate
    other: x509.Certificate | None = None
    link: x509.Certificate | None = None  # of this one's key, by the one that it follows: for who knows that one alone

    @classmethod
    def new(cls, campus: str, after: Authority | None = None) -> Authority:
        """Return a new authority, whose certificate it signs itself; `after` another, which signs one of its key, too."""
        key = new_key()
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{COMMON_NAME}{campus}")])

        def signed_by(signer: ec.EllipticCurvePrivateKey) -> x509.Certificate:
            builder = _builder(issuer, key.public_key(), signer, AUTHORITY_LIFE_S).subject_name(issuer)
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            return builder.add_extension(_usage(is_authority=True), critical=True).sign(signer, hashes.SHA256())

        made = cls(campus, key, signed_by(key))
        return made if after is None else replace(made, other=after.certificate, link=signed_by(after.key))

    @classmethod
    def load(cls, path: Path) -> Authority:
        """Return the authority of a file. SetupError: it holds none."""
        try:
            body = path.read_bytes()
            key = serialization.load_pem_private_key(body, None)
            certificate, *others = x509.load_pem_x509_certificates(body)
            [common] = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except (OSError, ValueError) as error:
            raise SetupError(f"{path}: no authority of a campus (`reclaimnet ca init` makes one): {error}") from error
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(str(common.value).removeprefix(COMMON_NAME), key, certificate, *others[:2])

    def save(self, path: Path) -> None:
        """Write key and certificates to a file that its owner alone may read: the old content, or all of the new."""
        body = pem_of_key(self.key) + self.trusted + (b"" if self.link is None else pem_of(self.link))
        if path.is_relative_to("/proc"):  # a file without a name; it is at no moment empty
            with path.open("r+b") as file:
                file.write(body)
                file.truncate()
            return
        replace_durably(path, body)

    def successor(self) -> Authority:
        """Return another authority of the campus, which follows this one: both are trusted, and no earlier one."""
        return Authority.new(self.campus, self)

    @property
    def trusted(self) -> bytes:
        """Certificates of the authorities that parties trust, in PEM."""
        return b"".join(pem_of(each) for each in (self.certificate, self.other) if each is not None)

    @property
    def public_keys(self) -> list[ec.EllipticCurvePublicKey]:
        """Keys of the authorities that parties trust."""
        keys = [each.public_key() for each in (self.certificate, self.other) if each is not None]
        return [key for key in keys if isinstance(key, ec.EllipticCurvePublicKey)]

    def issue(
        self, name: Name, key: ec.EllipticCurvePublicKey, life_s: float = LIFE_S, at: str = ""
    ) -> x509.Certificate:
        """Return a certificate of a party's name and public key; of its address, too, for clients that look for that."""
        addresses = [x509.IPAddress(ip_address(at))] if at else []
        named = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(str(name)), *addresses])
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(self.certificate.subject, key, self.key, life_s).subject_name(x509.Name([]))
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(is_authority=False), critical=True)
        builder = builder.add_extension(named, critical=True).add_extension(usages, critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def shown(self, certificate: x509.Certificate) -> bytes:
        """Return a certificate as its party shows it: with the link, in PEM."""
        return pem_of(certificate) + (b"" if self.link is None else pem_of(self.link))

    def credentials(self, name: Name, life_s: float = LIFE_S, at: str = "") -> Credentials:
        """Return a new key, its certificate, and what is trusted, for a party that this process starts."""
        key = new_key()
        made = self.shown(self.issue(name, key.public_key(), life_s, at))
        return Credentials(name, pem_of_key(key), made, self.trusted)


def domain_of(campus: str) -> str:
    """Return the name of a campus as names of certificates have it: small letters, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.-]+", "-", campus.lower()).strip("-.") or "campus"


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key."""
    return ec.generate_private_key(ec.SECP256R1())


def pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in PEM, in the clear."""
    clear = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, clear)


def pem_of(certificate: x509.Certificate) -> bytes:
    """Return a certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _builder(
    issuer: x509.Name, key: ec.EllipticCurvePublicKey, signer: ec.EllipticCurvePrivateKey, life_s: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    begin, end = now - timedelta(seconds=SKEW_S), now + timedelta(seconds=life_s)
    builder = x509.CertificateBuilder(issuer).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(begin).not_valid_after(end).public_key(key)
    # two authorities of a campus have one name: their keys tell them apart
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    return builder.add_extension(signed_by, critical=False)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage == USAGES[is_authority] for usage in USAGES})


def nameless_file() -> Path:
    """Return the path of a file in memory, which is there while this process lives; the processes that it starts may read it."""
    return Path(f"/proc/{os.getpid()}/fd/{os.memfd_create('authority', os.MFD_CLOEXEC)}")
