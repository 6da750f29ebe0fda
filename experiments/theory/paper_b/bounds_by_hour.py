"""The least cost of any policy that knows the hour, as a linear program: Poisson jobs and spots whose rates repeat by day.

Where spots are Poisson but their rate is that of the hour, the age of the gap tells nothing that the hour does not tell better:
the state of the optimum is (number waiting, hour).

Let z_n(t) be the probability of n waiting at time t of the day. Jobs that come may join, so probability moves up from n at a
rate of at most lambda(t) z_n(t); spots take it down from n at mu(t) z_n(t); jobs may be sent away, so it moves down at will;
and the day's end is its beginning. What is served is the integral of mu(t) (1 - z_0(t)) a day, the mean delay of all jobs the
average number waiting over the average rate of jobs (Little); both are linear. A day is cut into cells of one rate; within a
cell z is linear, and jobs are sent away at the cells' borders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize, sparse

from experiments.theory.domain import DomainError, not_negative, require
from experiments.theory.paper_b.bounds import SPARE_LEVELS, CostBound

DAY_H = 24.0
CELLS = 120  # a day, at least: five an hour give four digits
# of the level in `bounds`, which is a mean over the day here: at the peak several times as many wait
PEAK = 3


def level_and_hour(
    jobs_per_h: Sequence[float],
    spots_per_h: Sequence[float],
    delta_h: float,
    k: float,
    most: int | None = None,
    cells: int = CELLS,
) -> CostBound:
    """Poisson jobs and spots at these rates in equal parts of a day of 24 h: the optimum over policies of (number waiting, hour).

    `most`: the longest queue considered, by default several times what delta allows on average. `cells`: of the day, at
    least. DomainError: no rates, unlike many of jobs and spots, rates below 0, no job at all.
    """
    parts = len(spots_per_h)
    require(len(jobs_per_h) == parts > 0, "rates", len(jobs_per_h), "must be as many of jobs as of spots")
    require(min(*jobs_per_h, *spots_per_h) >= 0.0, "rates", (jobs_per_h, spots_per_h), "must be 0 or more")
    require(sum(jobs_per_h) > 0.0, "rates of jobs", jobs_per_h, "must not all be 0")
    require(1.0 <= k < math.inf, "k", k, "must be a finite cost of 1 or more")
    a_part = math.ceil(cells / parts)
    step_h = DAY_H / (parts * a_part)
    joining = np.repeat(np.asarray(jobs_per_h, np.float64), a_part) * step_h  # jobs that come in a cell
    serving = np.repeat(np.asarray(spots_per_h, np.float64), a_part) * step_h
    wanted = not_negative("delta", delta_h) * float(joining.sum()) / DAY_H  # the mean number waiting
    count = 1 + (most if most is not None else SPARE_LEVELS + math.ceil(3.0 * PEAK * wanted))
    size = len(joining)

    # Unknowns, cell by cell: z just after the cell's beginning, what moves up from n, what spots take down to n.
    here, moved = sparse.identity(count, format="csr"), sparse.csr_matrix((count, count - 1))
    shift = sparse.diags([-np.ones(count), np.ones(count - 1)], [0, -1], shape=(count, count - 1))
    begin = sparse.hstack([here, moved, moved], "csr")
    middle = sparse.hstack([here, 0.5 * shift, -0.5 * shift], "csr")
    last = sparse.hstack([here, shift, -shift], "csr")
    edges = sparse.identity(count - 1, format="csr")
    none = sparse.csr_matrix((count - 1, count))
    up = sparse.hstack([none, edges, 0.0 * edges], "csr")
    down = sparse.hstack([none, 0.0 * edges, edges], "csr")
    every = sparse.identity(size, format="csr")
    rising = sparse.kron(every, up) - sparse.kron(sparse.diags([joining], [0]), middle[: count - 1])
    falling = sparse.kron(every, down) - sparse.kron(sparse.diags([serving], [0]), middle[1:])
    # at the border of two cells P(at least n waiting), n = 1, 2, ..., does not rise
    tails = sparse.csr_matrix(np.triu(np.ones((count, count)))[1:])
    following = sparse.csr_matrix(np.roll(np.eye(size), 1, axis=1))
    border = sparse.kron(following, tails @ begin) - sparse.kron(every, tails @ last)
    waiting = sparse.kron(np.full((1, size), 1.0 / size), middle, "csr")
    levels = np.arange(count, dtype=np.float64)
    limits = sparse.vstack([rising, border, sparse.csr_matrix(levels) @ waiting], "csr")
    mass = sparse.kron(every, np.concatenate([np.ones(count), np.zeros(2 * count - 2)])[None, :])
    exact = sparse.vstack([falling, mass], "csr")
    served = np.tile(np.asarray(down.sum(axis=0)).ravel(), size)

    found = optimize.linprog(
        -served,
        limits,
        np.append(np.zeros(limits.shape[0] - 1), wanted),
        exact,
        np.append(np.zeros(falling.shape[0]), np.ones(size)),
        bounds=(0.0, None),
        method="highs",
    )
    if found.status != 0:
        raise DomainError("linear program", found.message, "must have a finite optimum")
    chances = waiting @ found.x
    cost = k - (k - 1.0) * float(served @ found.x) / float(joining.sum())
    delay_h = float(levels @ chances) * DAY_H / float(joining.sum())
    return CostBound(cost, delay_h, tuple(chances.tolist()))
