"""Names that parties may still get, and names that are no longer good. Keys and certificates are no part of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Names:
    """Names of tokens that were not used, by the token's number. Revoked names, and since when."""

    tokens: dict[str, str] = field(default_factory=dict)
    revoked: dict[str, float] = field(default_factory=dict)  # seconds of the epoch

    def revoke(self, name: str, at_unix_s: float) -> None:
        """End all that a name got until then: certificates, and tokens."""
        self.revoked[name] = at_unix_s
        self.tokens = {number: of for number, of in self.tokens.items() if of != name}
