"""Passes: claims that their issuer signed and that expire, as JSON Web Tokens (RFC 7519).

One algorithm is accepted, whatever the header of a token names: ES256, by keys as certificates have them. The `audience` is the
service that a pass is for; no other takes it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, cast

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from testbed.errors import RemoteProtocolError

ALGORITHM: Final = "ES256"
# the last two: of JSON that is deeply nested, of text that is no Unicode
_UNREADABLE = (jwt.InvalidTokenError, RecursionError, UnicodeError)


def new_pass(key: ec.EllipticCurvePrivateKey, audience: str, life_s: float, **claims: str) -> str:
    """Return a pass with these claims. Its end is in whole seconds, and never late."""
    return jwt.encode({**claims, "aud": audience, "exp": int(time.time() + life_s)}, cast(Any, key), ALGORITHM)


def claims_of(token: str, audience: str, keys: Sequence[ec.EllipticCurvePublicKey], *required: str) -> dict[str, Any]:
    """Return the claims of a pass that one of these keys signed. RemoteProtocolError: it is none, or too old."""
    why: Exception = jwt.InvalidTokenError("no key")
    for key in cast(Sequence[Any], keys):  # older versions of the library know text alone
        try:
            return jwt.decode(
                token, key, [ALGORITHM], options={"require": ["exp", "aud", *required]}, audience=audience
            )
        except jwt.ExpiredSignatureError as error:
            raise RemoteProtocolError("the token is too old") from error
        except _UNREADABLE as error:
            why = error
    raise RemoteProtocolError(f"no token for this: {why}") from why


def claims_unproved(token: str) -> dict[str, Any]:
    """Return the claims of a pass whose signature its holder cannot verify. RemoteProtocolError: it is no pass."""
    try:
        return jwt.decode(token, options={"verify_signature": False})
    except _UNREADABLE as error:
        raise RemoteProtocolError(f"no token: {error}") from error
