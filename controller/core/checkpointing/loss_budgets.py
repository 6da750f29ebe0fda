"""Which loss budgets are kept when links cannot carry them all: two rules, and a knapsack.

A loss budget L_max is a promise: a reclaim costs at most so much work on average. It takes a slice of C/(2 beta L_max) on
every link to the standby (`checkpointing`). Where the slices together are more than a link has, some promises have to be
broken, and which is a choice: breaking all of them (as `checkpointing.plan` does) or cutting all slices alike helps
nobody, because a slice just too small keeps no promise.

**Break as few as possible** (`kept`). Jobs that cross an overloaded link are taken in order of what they need of the
overloaded links, as a share of each, summed; the smallest first, and whoever still fits is kept. On one link that is the
most that nine tenths of it can keep; on several it is the greedy rule for packing, and nobody is refused who would have
fitted beside those kept. Equals go by rank (the order of their names), so the order of the list has no say. A tenth of an
overloaded link is withheld from the budgets that are kept: those who are not kept share it, with what else is left, by
what it costs them, so that no job goes without checkpoints because others' promises just filled the link. A budget that
would need some of that tenth is broken, even if it is the only one that the link could keep.

**Lose little** (`uncontested`). Where budgets do not fit, none of those that cross the overloaded link binds, and its
rates go where they save most: by a curve (`checkpoint_cost`) that is the job's own loss where its best interval is within
2 L_max, and near it elsewhere. The certificate of the allocation is of these curves; on random contested links the work
lost was .2 % above the least on average, 2.5 % at most. More promises are broken than by the first rule, and less work is
lost: keeping many small ones starves the few that need most, whose intervals then grow by hours. On paper A's campus that
is worth a fifth of what emergencies cost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from controller.core.checkpointing.cost import Array
from controller.numerics.jit import compiled

WITHHELD = 0.1  # of an overloaded link
SLACK = 1e-9  # what rounding may add to a sum that fits

Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Keep = Callable[
    [Array, Indices, Array, Indices], Mask
]  # needed bytes/s, routes, capacities, rank -> whose are kept


def uncontested(
    needed_bytes_per_s: Array, routes: Indices, capacity_bytes_per_s: Array, rank: Indices
) -> Mask:
    """Whose slices fit together with those of all others on every link that they cross; arguments as of `kept`."""
    return _in_peace(needed_bytes_per_s, routes, capacity_bytes_per_s)


@compiled
def _in_peace(needed: Array, routes: Indices, capacity: Array) -> Mask:
    return ~_contests(needed, routes, _overloaded(needed, routes, capacity))


def kept(needed_bytes_per_s: Array, routes: Indices, capacity_bytes_per_s: Array, rank: Indices) -> Mask:
    """Whose slices are kept; `routes` as in `exact_allocation.Problem`, `rank` breaks ties (smaller first).

    What is kept fits on every link. Jobs that need nothing are kept always.
    """
    over = _overloaded(needed_bytes_per_s, routes, capacity_bytes_per_s)
    contests = _contests(needed_bytes_per_s, routes, over)
    answer = ~contests
    if contests.any():
        room = np.append(capacity_bytes_per_s * (1.0 - WITHHELD), np.inf)
        room[~over] = np.inf
        jobs = np.flatnonzero(contests)
        with np.errstate(divide="ignore"):
            share = np.where(over, 1.0 / np.append(capacity_bytes_per_s, np.inf), 0.0)
        size = needed_bytes_per_s[jobs] * share[routes[jobs]].sum(axis=1)
        jobs = jobs[np.lexsort((rank[jobs], size))]
        answer[jobs] = _packed(needed_bytes_per_s[jobs], routes[jobs], room)
    return answer


@compiled
def _overloaded(needed: Array, routes: Indices, capacity: Array) -> Mask:
    """Links (and the place behind them, never) that the slices together are too much for."""
    load, over = np.zeros(len(capacity) + 1), np.zeros(len(capacity) + 1, np.bool_)
    for job in range(len(needed)):
        for link in routes[job]:
            load[link] += needed[job]
    over[:-1] = load[:-1] > capacity * (1.0 + SLACK)
    return over


@compiled
def _contests(needed: Array, routes: Indices, over: Mask) -> Mask:
    """Who needs something of an overloaded link."""
    contests = np.zeros(len(needed), np.bool_)
    for job in range(len(needed)):
        for link in routes[job]:
            contests[job] |= over[link] and needed[job] > 0.0
    return contests


def _packed(needed: Array, routes: Indices, room: Array) -> Mask:
    """One after the other, whoever fits beside those before it that did: all at once, by guessing who did.

    Reckoned as if everybody before it did, who fits does for sure; as if only those did, who does not is out for sure;
    and so on, from both sides, until a guess proves itself. Each pass is right at least one job further than the last.
    """
    job, link, first = _by_link(routes, np.isfinite(room)[routes])
    amount, limit, fits = needed[job], room[link], np.ones(len(needed), dtype=bool)
    while True:
        taken = np.cumsum(np.where(fits[job], amount, 0.0))
        before = taken - np.where(fits[job], amount, 0.0)
        over = before - before[first] + amount > limit
        anew = np.bincount(job[over], minlength=len(needed)) == 0
        if np.array_equal(anew, fits):
            return fits
        fits = anew


def _by_link(routes: Indices, counts: Mask) -> tuple[Indices, Indices, Indices]:
    """Pairs of a job and a link that counts, link by link and in order of jobs: (jobs, links, where each link begins)."""
    job, place = np.nonzero(counts)
    link = routes[job, place]
    order = np.argsort(link, kind="stable")
    link = link[order]
    return job[order], link, np.searchsorted(link, link)
