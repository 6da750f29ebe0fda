"""Names that parties may still get, and names that are no longer good. Keys and certificates are no part of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Names:
    """Tokens that were not used, by the digest of the secret: name, and when they end. Revoked names, and since when."""

    tokens: dict[str, tuple[str, float]] = field(default_factory=dict)
    revoked: dict[str, float] = field(default_factory=dict)  # seconds of the epoch

    def refusal(self, digest: str, name: str, now_s: float) -> str:
        """Return the reason to refuse a joiner; "" to let it in."""
        owner, until_s = self.tokens.get(digest, ("", 0.0))
        if not owner:
            return "no token of this campus, or it was used"
        if now_s >= until_s:
            return "the token is too old"
        return "" if owner == name else "the token is for another name"
