"""Cold-start multipliers: nearly max-min shares by cube roots, each job charged at its tightest link."""

from __future__ import annotations

import numpy as np

from controller.core.checkpointing.contention import MIN_PART, TINY, Market, between
from controller.core.checkpointing.cost import worth
from controller.numerics.arrays import Floats
from controller.numerics.jit import cbrt, compiled

FIRST_ROUNDS = 8  # of water filling
CONTENT = 1.0 - 1e-9  # of what a link offers: a job that takes less is held back elsewhere


@compiled
def first_guess(market: Market) -> Floats:
    """Nearly max-min shares by cube roots; each job pays at the link that gives it least."""
    weight = np.empty(len(market.jobs))
    for job in range(len(weight)):
        of = market.jobs[job]
        steep = market.costs.hazard_per_s[of] + market.costs.slope_per_s[of]
        weight[job] = cbrt(steep * market.costs.payload_bytes[of])
    level = np.full(len(market.capacity), np.inf)
    for _ in range(1 + FIRST_ROUNDS):
        level = _higher_level(market, weight, level)
    spent, sold = np.zeros(len(level)), np.zeros(len(level))
    for job in range(len(weight)):
        payer = _narrowest(market, level, job)
        least = max(market.lower[job], MIN_PART * market.upper[job])
        rate = between(level[payer] * weight[job], least, market.upper[job])
        spent[payer] += worth(market.costs, market.jobs[job], rate) * rate
        sold[payer] += rate
    return spent / np.maximum(sold, TINY)


@compiled
def _narrowest(market: Market, level: Floats, job: int) -> int:
    """The link of the job's way that gives it least."""
    narrowest = market.ways[job, 0]
    for link in market.ways[job]:
        if link < len(level) and level[link] < level[narrowest]:
            narrowest = link
    return int(narrowest)


@compiled
def _higher_level(market: Market, weight: Floats, level: Floats) -> Floats:
    """Levels at which each link is full, if jobs that are held back on other links stay there."""
    taken, thirst = np.zeros(len(level)), np.zeros(len(level))
    for job in range(len(weight)):
        offered = level[_narrowest(market, level, job)] * weight[job]
        rate = between(offered, market.lower[job], market.upper[job])
        for link in market.ways[job]:
            if link >= len(level):
                continue
            if rate < level[link] * weight[job] * CONTENT and level[link] < np.inf:
                taken[link] += rate
            else:
                thirst[link] += weight[job]
    room = np.maximum(market.capacity - taken, 0.0)
    return np.where(thirst > 0.0, room / np.maximum(thirst, TINY), 2.0 * level)
