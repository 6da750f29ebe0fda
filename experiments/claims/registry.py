"""Every claim there is. A new table or figure is one file and one row; paper B's figures are rows of `figures`."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.claims.both import queue
from experiments.claims.framework.claim import Claim
from experiments.claims.paper_a import drift, fig3, fig4, fig6, fig7, fig8, fig9, gap, kill, table3, table4
from experiments.claims.paper_b import figures
from experiments.claims.policy_comparison import traces
from topologies.errors import SpecError

ALL = (
    table3.CLAIM,
    table4.CLAIM,
    fig3.CLAIM,
    fig4.CLAIM,
    fig6.CLAIM,
    fig7.CLAIM,
    fig8.CLAIM,
    fig9.CLAIM,
    drift.CLAIM,
    gap.CLAIM,
    kill.CLAIM,
    *figures.CLAIMS,
    queue.CLAIM,
    traces.CLAIM,
)
CLAIMS: dict[str, Claim] = {claim.name: claim for claim in ALL}
# played only where a folder of records is given: none is a part of this program
OF_RECORDS = (traces.CLAIM.name,)
# compare systems that a user names
COMPARING = (table3.CLAIM.name, traces.CLAIM.name)
# made of cases that can be asked for singly
OF_CASES = (traces.CLAIM.name,)


def chosen(names: Sequence[str], *, has_records: bool = True) -> list[Claim]:
    """Return the claims named, in the order of the registry, each once; `all` or nothing names all that can be played.

    SpecError: no such claim, or one that is named lacks records.
    """
    by_lower = {name.lower(): name for name in CLAIMS}
    unknown = [name for name in names if name.lower() not in {*by_lower, "all"}]
    if unknown:
        raise SpecError("claim", ", ".join(unknown), f"must be all, or of {', '.join(CLAIMS)}")
    wanted = {by_lower[name.lower()] for name in names if name.lower() != "all"}
    lacking = {} if has_records else dict.fromkeys(OF_RECORDS)
    if missing := wanted & lacking.keys():
        raise SpecError("--trace", "", f"a folder with records of owners, for {', '.join(missing)}")
    every = not names or any(name.lower() == "all" for name in names)
    return [claim for name, claim in CLAIMS.items() if (every and name not in lacking) or name in wanted]
