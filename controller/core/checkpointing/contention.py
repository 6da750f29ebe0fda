"""Who competes for which links: the part of an allocation in which a choice has to be made.

Links that could not fill even if all their jobs had their upper bounds never enter (a host's own uplink among them: it is its
one job's upper bound), nor do jobs that cross no other; these have their ceilings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.core.checkpointing.cost import Array, CheckpointCosts
from controller.numerics.jit import compiled

Indices = NDArray[np.intp]


class Market(NamedTuple):
    """The links that are contended for, numbered anew, and the jobs that cross one; everybody else has its ceiling.

    `jobs`: their numbers among all; `ways`: a row a job, its contended links, padded with their number.
    """

    costs: CheckpointCosts
    jobs: Indices
    ways: Indices
    lower: Array
    upper: Array
    capacity: Array


@compiled
def ceilings(costs: CheckpointCosts, lower: Array, upper: Array, routes: Indices, capacity: Array) -> Array:
    """No job can get more than its narrowest link, nor wants anything where nothing is gained by it."""
    ceiling = upper.copy()
    for job in range(len(ceiling)):
        for link in routes[job]:
            if link < len(capacity):
                ceiling[job] = min(ceiling[job], capacity[link])
        if costs.hazard_per_s[job] + costs.slope_per_s[job] == 0.0:
            ceiling[job] = lower[job]
    return ceiling


@compiled
def contended_links(ceiling: Array, routes: Indices, capacity: Array) -> Indices:
    """Links that would be over their budgets with all jobs at their ceilings."""
    load = np.zeros(len(capacity) + 1)
    for job in range(len(ceiling)):
        for link in routes[job]:
            load[link] += ceiling[job]
    return np.flatnonzero(load[:-1] > capacity)


@compiled
def market_of(
    costs: CheckpointCosts, lower: Array, ceiling: Array, routes: Indices, capacity: Array, contended: Indices
) -> Market:
    nobody = len(contended)
    number = np.full(len(capacity) + 1, nobody)
    number[contended] = np.arange(nobody)
    jobs, ways = np.empty(len(ceiling), np.intp), np.full(routes.shape, nobody)
    count = 0
    for job in range(len(ceiling)):
        crossed = 0
        for link in routes[job]:
            if number[link] < nobody and ceiling[job] > 0.0:
                ways[count, crossed] = number[link]
                crossed += 1
        if crossed:
            jobs[count] = job
            count += 1
    jobs = jobs[:count]
    return Market(costs, jobs, ways[:count], lower[jobs], ceiling[jobs], capacity[contended])


@compiled
def carry(market: Market, load: Array, job: int, rate: float) -> None:
    """Puts a job's rate on the links of its way."""
    for link in market.ways[job]:
        if link < len(load):
            load[link] += rate


@compiled
def paid(market: Market, multipliers: Array, job: int) -> float:
    """What a job pays on its way for a byte/s."""
    paid = 0.0
    for link in market.ways[job]:
        if link < len(multipliers):
            paid += multipliers[link]
    return paid


@compiled
def between(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
