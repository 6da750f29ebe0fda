"""Which loss budgets are kept when links cannot carry them all: two rules, and a knapsack.

A loss budget L_max says that intervals are at most 2 L_max (paper A's eq. 9), so that half of one is at most L_max; the
checkpoint on its way, C/b, comes on top of what a reclaim costs on average. It takes a slice of C/(2 beta L_max) on every link to
the standby (`intervals`). Where the slices together are more than a link has, some budgets have to be
broken, and which is a choice: breaking all of them (as `intervals.plan` does) or cutting all slices alike helps
no job, because a slice just too small keeps no budget.

**Break as few as possible** (`kept`). Jobs that cross an overloaded link are taken in order of what they need of the
overloaded links, as a share of each, summed; the smallest first, and each that still fits is kept. On one link that is the
most that nine tenths of it can keep; on several it is the greedy rule for packing, and no job is refused that would have
fitted beside those kept. Equals go by rank (the order of their names), so the order of the list has no say. A tenth of an
overloaded link is withheld from the budgets that are kept: jobs whose budgets are not share it, with what else is left, by
what it costs them, so that no job goes without checkpoints because others' budgets just filled the link. A budget that
would need some of that tenth is broken, even if it is the only one that the link could keep.

**Lose little** (`uncontested`). Where budgets do not fit, none of those that cross the overloaded link binds, and its rates go
where they save most: by a curve (`cost`) that is the job's own loss where its best interval is within 2 L_max, and near it
elsewhere. The certificate of the allocation is of these curves; on 203 random contested links of two or three jobs the work
lost was .4 % above the least on average, 3 % at most. More budgets are broken than by the first rule, and less work is lost:
keeping many small ones starves the few that need most, whose intervals then grow by hours. On paper A's campus that is worth a
fifth of what emergencies cost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from controller.core.network.links import SLACK
from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled

WITHHELD = 0.1  # of an overloaded link

# needed bytes/s, routes, capacities, rank -> the jobs whose budgets are kept
Keep = Callable[[Floats, Numbers, Floats, Numbers], Mask]


def uncontested(
    needed_bytes_per_s: Floats, routes: Numbers, capacity_bytes_per_s: Floats, rank: Numbers
) -> Mask:
    """The jobs whose slices fit together with those of all others on every link that they cross; arguments as of `kept`."""
    over = _overloaded(needed_bytes_per_s, routes, capacity_bytes_per_s)
    return ~_contests(needed_bytes_per_s, routes, over)


def kept(needed_bytes_per_s: Floats, routes: Numbers, capacity_bytes_per_s: Floats, rank: Numbers) -> Mask:
    """The jobs whose slices are kept; `routes` as in `dual_newton.cheapest`, `rank` breaks ties (smaller first).

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
def _overloaded(needed: Floats, routes: Numbers, capacity: Floats) -> Mask:
    """Links (and the place behind them, never) that the slices together are too much for."""
    load, over = np.zeros(len(capacity) + 1), np.zeros(len(capacity) + 1, np.bool_)
    for job in range(len(needed)):
        for link in routes[job]:
            load[link] += needed[job]
    over[:-1] = load[:-1] > capacity * (1.0 + SLACK)
    return over


@compiled
def _contests(needed: Floats, routes: Numbers, over: Mask) -> Mask:
    """The jobs that need something of an overloaded link."""
    contests = np.zeros(len(needed), np.bool_)
    for job in range(len(needed)):
        for link in routes[job]:
            contests[job] |= over[link] and needed[job] > 0.0
    return contests


def _packed(needed: Floats, routes: Numbers, room: Floats) -> Mask:
    """One after the other, each job that fits beside those before it that did: all at once, by guessing which did.

    Reckoned as if all before it did, a job that fits does for sure; as if only those did, one that does not is out for sure;
    and so on, from both sides, until a guess proves itself. Each pass is right at least one job further than the last.
    """
    # pairs of a job and a link with a limit, link by link and in order of jobs; `first`: where each link begins
    job, place = np.nonzero(np.isfinite(room)[routes])
    link = routes[job, place]
    order = np.argsort(link, kind="stable")
    job, link = job[order], link[order]
    first = np.searchsorted(link, link)
    amount, limit, fits = needed[job], room[link], np.ones(len(needed), dtype=bool)
    while True:
        taken = np.cumsum(np.where(fits[job], amount, 0.0))
        before = taken - np.where(fits[job], amount, 0.0)
        over = before - before[first] + amount > limit
        anew = np.bincount(job[over], minlength=len(needed)) == 0
        if np.array_equal(anew, fits):
            return fits
        fits = anew
