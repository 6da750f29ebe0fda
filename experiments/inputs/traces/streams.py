"""Named streams of random numbers: one a purpose, so that drawing more for one purpose never moves another."""

from __future__ import annotations

import random

from controller.numerics.portable_math import log


def stream(seed: int, *purpose: str) -> random.Random:
    """The stream of this seed and purpose; the same on every machine, in every process."""
    return random.Random(f"{seed}/{'/'.join(purpose)}")


def unit_exponential(rng: random.Random) -> float:
    """A draw of mean 1, from one uniform number."""
    return -log(1.0 - rng.random())
