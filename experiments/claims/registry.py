"""Every claim there is. A new table or figure is one file and one row."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.claims import a_fig4, a_fig5, a_gap, b2, b3, b4, b5
from experiments.claims.claim import Claim
from topologies.errors import SpecError

CLAIMS: dict[str, Claim] = {
    "A-fig4": a_fig4.CLAIM,
    "A-fig5": a_fig5.CLAIM,
    "A-gap": a_gap.CLAIM,
    "B2": b2.CLAIM,
    "B3": b3.CLAIM,
    "B4": b4.CLAIM,
    "B5": b5.CLAIM,
}


def chosen(names: Sequence[str]) -> list[Claim]:
    """Those named, in the order of the registry, each once; `all` or nothing names all. SpecError: no such claim."""
    by_lower = {name.lower(): name for name in CLAIMS}
    unknown = [name for name in names if name.lower() not in {*by_lower, "all"}]
    if unknown:
        raise SpecError("claim", ", ".join(unknown), f"must be all, or of {', '.join(CLAIMS)}")
    wanted = {by_lower[name.lower()] for name in names if name.lower() != "all"}
    every = not names or any(name.lower() == "all" for name in names)
    return [claim for name, claim in CLAIMS.items() if every or name in wanted]
