"""Seeds as a user writes them."""

from __future__ import annotations

from experiments.inputs.scenario.scenario import MAX_SEED
from topologies.errors import SpecError


def seed_range(text: str, key: str = "--seeds") -> range:
    """Return the seeds of `A:B`, from A to B - 1, or of `N`, from 1 to N. SpecError, for `key`: it is neither, or of too many."""
    first, colon, last = text.partition(":")
    if not colon and first.isascii() and first.isdecimal() and len(first) < 20:
        first, last = "1", str(int(first) + 1)
    digits = len(str(MAX_SEED))
    numbers = all(each.isascii() and each.isdecimal() and len(each) <= digits for each in (first, last))
    if not (numbers and int(first) < int(last) <= MAX_SEED):
        raise SpecError(
            key, text[:80], f"N, from 1 to N; or A:B with whole numbers A < B <= {MAX_SEED}, from A to B - 1"
        )
    return range(int(first), int(last))
