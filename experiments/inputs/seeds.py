"""Seeds as a user writes them."""

from __future__ import annotations

import re

from experiments.inputs.scenario.scenario import MAX_SEED
from topologies.errors import SpecError

MANY = 1_000_000


def seeds_of(text: str) -> tuple[int, ...]:
    """Return the seeds of `N`, from 1 to N; of `A:B`, from A to B - 1; or of whole numbers with commas.

    SpecError: none of them, or more than a million.
    """
    if not re.fullmatch(r"[0-9]{1,20}(:[0-9]{1,20}|( *, *[0-9]{1,20})*)", text.strip()):
        chosen: range | tuple[int, ...] = ()
    elif "," in text:
        chosen = tuple(map(int, text.split(",")))
    else:
        first, last = map(int, text.split(":")) if ":" in text else (1, int(text) + 1)
        chosen = range(first, last)[: MANY + 1]
    if not 0 < len(chosen) <= MANY or max(chosen) >= MAX_SEED:
        allowed = (
            "N, from 1 to N; A:B with whole numbers A < B, from A to B - 1; or whole numbers with commas; "
            f"less than {MAX_SEED}, at most {MANY} of them"
        )
        raise SpecError("--seeds", text[:80], allowed)
    return tuple(chosen)
