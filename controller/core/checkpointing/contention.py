"""Jobs and links that compete: the part of an allocation in which a choice has to be made.

Drops links that cannot saturate even with every job at its upper bound (a host's own uplink among them: it is its one job's
upper bound), and jobs that cross none of the rest; those simply get their bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.core.checkpointing.cost import CheckpointCosts
from controller.numerics.arrays import Floats, Numbers
from controller.numerics.jit import compiled

MIN_PART = 1e-9  # of a job's upper bound: what a guess gives it at least
TINY = 1e-300  # in place of 0, where something is divided by it


class Market(NamedTuple):
    """The links that are contended for, numbered anew, and the jobs that cross one; all other jobs have their ceilings."""

    costs: CheckpointCosts
    jobs: Numbers  # their numbers among all
    ways: Numbers  # a row a job: its contended links, padded with their number
    lower: Floats
    upper: Floats
    capacity: Floats


@compiled
def ceilings(
    costs: CheckpointCosts, lower: Floats, upper: Floats, routes: Numbers, capacity: Floats
) -> Floats:
    """Return the most each job can get: its upper bound or narrowest link, or its lower bound where more gains nothing."""
    ceiling = upper.copy()
    for job in range(len(ceiling)):
        for link in routes[job]:
            if link < len(capacity):
                ceiling[job] = min(ceiling[job], capacity[link])
        if costs.hazard_per_s[job] + costs.slope_per_s[job] == 0.0:
            ceiling[job] = lower[job]
    return ceiling


@compiled
def contended_links(ceiling: Floats, routes: Numbers, capacity: Floats) -> Numbers:
    """Return the links that would be over their budgets with all jobs at their ceilings."""
    load = np.zeros(len(capacity) + 1)
    for job in range(len(ceiling)):
        for link in routes[job]:
            load[link] += ceiling[job]
    return np.flatnonzero(load[:-1] > capacity)


@compiled
def market_of(
    costs: CheckpointCosts,
    lower: Floats,
    ceiling: Floats,
    routes: Numbers,
    capacity: Floats,
    contended: Numbers,
) -> Market:
    """Return the market of the contended links."""
    none = len(contended)
    number = np.full(len(capacity) + 1, none)
    number[contended] = np.arange(none)
    jobs, ways = np.empty(len(ceiling), np.intp), np.full(routes.shape, none)
    count = 0
    for job in range(len(ceiling)):
        crossed = 0
        for link in routes[job]:
            if number[link] < none and ceiling[job] > 0.0:
                ways[count, crossed] = number[link]
                crossed += 1
        if crossed:
            jobs[count] = job
            count += 1
    jobs = jobs[:count]
    return Market(costs, jobs, ways[:count], lower[jobs], ceiling[jobs], capacity[contended])


@compiled
def carry(market: Market, load: Floats, job: int, rate: float) -> None:
    """Add a job's rate to the links of its way."""
    for link in market.ways[job]:
        if link < len(load):
            load[link] += rate


@compiled
def paid(market: Market, multipliers: Floats, job: int) -> float:
    """Return the price of a byte/s on a job's way."""
    paid = 0.0
    for link in market.ways[job]:
        if link < len(multipliers):
            paid += multipliers[link]
    return paid


@compiled
def between(value: float, low: float, high: float) -> float:
    """Clip the value."""
    return min(max(value, low), high)
