"""Seeds as a user writes them."""

from __future__ import annotations

from experiments.inputs.scenario.scenario import MAX_SEED
from topologies.errors import SpecError


def seed_range(text: str, key: str = "--seeds") -> range:
    """Return the seeds of `A:B`, from A to B - 1. SpecError, for `key`: it is none, or of too many."""
    first, _, last = text.partition(":")
    digits = len(str(MAX_SEED))
    numbers = all(each.isascii() and each.isdecimal() and len(each) <= digits for each in (first, last))
    if not (numbers and int(first) < int(last) <= MAX_SEED):
        raise SpecError(key, text[:80], f"A:B with whole numbers A < B <= {MAX_SEED}: from A to B - 1")
    return range(int(first), int(last))
