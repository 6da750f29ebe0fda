"""Named streams of random numbers: one a purpose, so that drawing more for one purpose never moves another."""

from __future__ import annotations

import random

from controller.numerics.portable_math import exp, log
from experiments.inputs.scenario import InverseLaw, Owners


def stream(seed: int, *purpose: str) -> random.Random:
    """Return the stream of this seed and purpose; the same on every machine, in every process."""
    return random.Random(f"{seed}/{'/'.join(purpose)}")


def unit_exponential(rng: random.Random) -> float:
    """Return a draw of mean 1, from one uniform number."""
    return -log(1.0 - rng.random())


def host_factor(owners: Owners, host: str, seed: int) -> float:
    """Return the factor between this host's hazard and that of `owners`; its mean over hosts is 1."""
    if not (sigma := owners.host_sigma):
        return 1.0
    law = InverseLaw("lognormal", exp(-sigma * sigma / 2.0), sigma)
    return law.quantile(stream(seed, "owner", host, "factor").random())
