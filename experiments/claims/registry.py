"""Every claim there is. A new table or figure is one file and one row."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.claims import (
    a_drift,
    a_fig2,
    a_fig3,
    a_fig4,
    a_fig5,
    a_fig6,
    a_fig7,
    a_fig8,
    a_fig9,
    a_gap,
    a_kill,
    a_partial,
    a_table3,
    a_table4,
    b2,
    b3,
    b4,
    b5,
)
from experiments.claims.claim import Claim
from topologies.errors import SpecError

ALL = (
    a_table3.CLAIM,
    a_table4.CLAIM,
    a_fig2.CLAIM,
    a_fig3.CLAIM,
    a_fig4.CLAIM,
    a_fig5.CLAIM,
    a_fig6.CLAIM,
    a_fig7.CLAIM,
    a_fig8.CLAIM,
    a_fig9.CLAIM,
    a_drift.CLAIM,
    a_gap.CLAIM,
    a_partial.CLAIM,
    a_kill.CLAIM,
    b2.CLAIM,
    b3.CLAIM,
    b4.CLAIM,
    b5.CLAIM,
)
CLAIMS: dict[str, Claim] = {claim.name: claim for claim in ALL}


def chosen(names: Sequence[str]) -> list[Claim]:
    """Those named, in the order of the registry, each once; `all` or nothing names all. SpecError: no such claim."""
    by_lower = {name.lower(): name for name in CLAIMS}
    unknown = [name for name in names if name.lower() not in {*by_lower, "all"}]
    if unknown:
        raise SpecError("claim", ", ".join(unknown), f"must be all, or of {', '.join(CLAIMS)}")
    wanted = {by_lower[name.lower()] for name in names if name.lower() != "all"}
    every = not names or any(name.lower() == "all" for name in names)
    return [claim for name, claim in CLAIMS.items() if every or name in wanted]
