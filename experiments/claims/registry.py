"""Every claim there is. A new table or figure is one file and one row; paper B's figures are rows of `figures`."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.claims.both import queue
from experiments.claims.framework.claim import Claim
from experiments.claims.paper_a import (
    drift,
    fig2,
    fig3,
    fig4,
    fig5,
    fig6,
    fig7,
    fig8,
    fig9,
    gap,
    kill,
    partial,
    table3,
    table4,
)
from experiments.claims.paper_b import figures
from topologies.errors import SpecError

ALL = (
    table3.CLAIM,
    table4.CLAIM,
    fig2.CLAIM,
    fig3.CLAIM,
    fig4.CLAIM,
    fig5.CLAIM,
    fig6.CLAIM,
    fig7.CLAIM,
    fig8.CLAIM,
    fig9.CLAIM,
    drift.CLAIM,
    gap.CLAIM,
    partial.CLAIM,
    kill.CLAIM,
    *figures.CLAIMS,
    queue.CLAIM,
)
CLAIMS: dict[str, Claim] = {claim.name: claim for claim in ALL}


def chosen(names: Sequence[str]) -> list[Claim]:
    """The claims named, in the order of the registry, each once; `all` or nothing names all. SpecError: no such claim."""
    by_lower = {name.lower(): name for name in CLAIMS}
    unknown = [name for name in names if name.lower() not in {*by_lower, "all"}]
    if unknown:
        raise SpecError("claim", ", ".join(unknown), f"must be all, or of {', '.join(CLAIMS)}")
    wanted = {by_lower[name.lower()] for name in names if name.lower() != "all"}
    every = not names or any(name.lower() == "all" for name in names)
    return [claim for name, claim in CLAIMS.items() if every or name in wanted]
