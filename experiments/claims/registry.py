"""Every claim there is: a new table or figure is one file, one row here, and its statement in `claims.toml`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from experiments.claims import both_papers
from experiments.claims.framework.claim import Check, Claim, Config
from experiments.claims.framework.panels import Panel
from experiments.claims.framework.values import Values
from experiments.claims.paper_a import drift, fig3, fig4, fig6, fig7, fig9, gap, table3, table4
from experiments.claims.paper_b import learning, learning_checks
from experiments.claims.policy_comparison import traces
from topologies.errors import SpecError, nearest

_STATEMENTS = msgspec.toml.decode(Path(__file__).with_name("claims.toml").read_bytes())
_Parts = tuple[Callable[[Config], Values], Sequence[Panel], Callable[[Values], Iterable[Check]]]
_PARTS: dict[str, _Parts] = {  # run, panels, checks
    "A-table3": (table3.run, table3.PANELS, table3.checks),
    "A-table4": (table4.run, table4.PANELS, table4.checks),
    "A-fig3": (fig3.run, fig3.PANELS, fig3.checks),
    "A-fig4": (fig4.run, fig4.PANELS, fig4.checks),
    "A-fig6": (fig6.run, fig6.PANELS, fig6.checks),
    "A-fig7": (fig7.run, fig7.PANELS, fig7.checks),
    "A-fig9": (fig9.run, fig9.PANELS, fig9.checks),
    "A-drift": (drift.run, drift.PANELS, drift.checks),
    "A-gap": (gap.run, gap.PANELS, gap.checks),
    **{
        name: (partial(learning.run, cases), learning.panels(cases), partial(learning_checks.checks, cases))
        for name, cases in learning.FIGURES.items()
    },
    "AB-queue": (both_papers.run, both_papers.PANELS, both_papers.checks),
    "traces": (traces.run, traces.PANELS, traces.checks),
}
CLAIMS: dict[str, Claim] = {
    name: Claim(name, **_STATEMENTS["claims"][name], run=run, panels=panels, checks=checks)
    for name, (run, panels, checks) in _PARTS.items()
}
# results in the papers that no claim judges -> the reason
NOT_COVERED: dict[str, str] = _STATEMENTS["not_covered"]
# played only where a folder of records is given: none is a part of this program
OF_RECORDS = ("traces",)
# compare systems that a user names
COMPARING = ("A-table3", "traces")
# made of cases that can be asked for singly
OF_CASES = ("traces",)


def chosen(names: Sequence[str], *, has_records: bool = True) -> list[Claim]:
    """Return the claims named, in the order of the registry, each once; `all` or nothing names all that can be played.

    SpecError: no such claim, or one that is named lacks records.
    """
    by_lower = {name.lower(): name for name in CLAIMS}
    unknown = [name for name in names if name.lower() not in {*by_lower, "all"}]
    if unknown:
        raise SpecError(
            "claim", ", ".join(unknown), f"must be all, or of {', '.join(CLAIMS)}{nearest(unknown[0], CLAIMS)}"
        )
    wanted = {by_lower[name.lower()] for name in names if name.lower() != "all"}
    lacking = {} if has_records else dict.fromkeys(OF_RECORDS)
    if missing := wanted & lacking.keys():
        raise SpecError("--trace", "", f"a folder with records of owners, for {', '.join(missing)}")
    every = not names or any(name.lower() == "all" for name in names)
    return [claim for name, claim in CLAIMS.items() if (every and name not in lacking) or name in wanted]
