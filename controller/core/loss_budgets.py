"""Which loss budgets are kept when links cannot carry them all: a knapsack, and the rule for it.

A loss budget L_max is a promise: a reclaim costs at most so much work on average. It takes a slice of C/(2 beta L_max) on
every link to the standby (`checkpointing`). Where the slices together are more than a link has, some promises have to be
broken, and which is a choice: breaking all of them (as `checkpointing.plan` does) or cutting all slices alike helps
nobody, because a slice just too small keeps no promise.

The rule: **break as few as possible.** Jobs that cross an overloaded link are taken in order of what they need of the
overloaded links, as a share of each, summed; the smallest first, and whoever still fits is kept. On one link that is
the most that can be kept; on several it is the greedy rule for packing, and nobody is refused who would have fitted
beside those kept. Equals go by rank (the order of their names), so the order of the list has no say. A tenth of an
overloaded link is withheld from the budgets that are kept: those who are not kept share it, with what else is left, by
what it costs them, so that no job goes without checkpoints because others' promises just filled the link.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.core.checkpoint_cost import Array

WITHHELD = 0.1  # of an overloaded link
SLACK = 1e-9  # what rounding may add to a sum that fits

Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]


def kept(needed_bytes_per_s: Array, routes: Indices, capacity_bytes_per_s: Array, rank: Indices) -> Mask:
    """Whose slices are kept; `routes` as in `exact_allocation.Problem`, `rank` breaks ties (smaller first).

    What is kept fits on every link. Jobs that need nothing are kept always.
    """
    links = len(capacity_bytes_per_s)
    crossing = np.broadcast_to(needed_bytes_per_s[:, None], routes.shape)
    load = np.bincount(routes.ravel(), weights=crossing.ravel(), minlength=links + 1)
    over = np.append(load[:-1] > capacity_bytes_per_s * (1.0 + SLACK), False)
    contests = over[routes].any(axis=1) & (needed_bytes_per_s > 0.0)
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


def _packed(needed: Array, routes: Indices, room: Array) -> Mask:
    """One after the other, whoever fits: in rounds, each deciding all who fit even beside everybody before them.

    Whoever does not fit alone is out for good, since room only shrinks. The first of a round is always decided.
    """
    fits = np.zeros(len(needed), dtype=bool)
    open_ = np.arange(len(needed))
    room = room.copy()
    while open_.size:
        wants, crossed = needed[open_], routes[open_]
        least = room[crossed].min(axis=1)
        before = _taken_before(wants, crossed, len(room))
        sure = (before + wants[:, None] <= room[crossed]).all(axis=1)
        fits[open_[sure]] = True
        repeated = np.broadcast_to(wants[:, None], crossed.shape)[sure]
        room -= np.bincount(crossed[sure].ravel(), weights=repeated.ravel(), minlength=len(room))
        open_ = open_[~sure & (wants <= least)]
    return fits


def _taken_before(wants: Array, crossed: Indices, links: int) -> Array:
    """For each job and place of its route, what the jobs before it want of that link."""
    flat = crossed.ravel()
    order = np.argsort(flat, kind="stable")
    amounts = np.broadcast_to(wants[:, None], crossed.shape).ravel()[order]
    running = np.cumsum(amounts) - amounts
    start = np.searchsorted(flat[order], np.arange(links))
    first = running[np.minimum(start, len(running) - 1)]
    answer = np.empty(len(flat))
    answer[order] = running - first[flat[order]]
    return answer.reshape(crossed.shape)
