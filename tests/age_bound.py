"""The least cost of any policy, as a linear program: Poisson jobs, any spot law.

Policies see the number waiting *and* the time since the last spot. For spots that are not Poisson this age is worth a
lot: it shows how near the next spot is. (For Poisson spots the optimum is Theorem 4's policy. Paper
B's own program, (9)-(11), takes the queue over time for the queue at spots, and is no bound unless spots are Poisson.)

Let z_n(t) be the probability of n waiting at age t of a gap, given that the gap is not over. A policy can only refuse
jobs and send them away. So z moves up a level at a rate of at most lambda z_n(t), and down at will; at the end of the
gap one job is served, so z(0) is the average of z(S), one down. The jobs served are E[1 - z_0(S)] a gap, the delay
E[integral of sum n z_n over the gap], both linear. The age is cut into cells of equal weight; within a cell z is linear
and moves down only at its beginning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import integrate, optimize, sparse, special

from experiments.theory.domain import DomainError, not_negative, positive, require
from experiments.theory.laws import Law, effective_end

CELLS = 240
FINE = 20_000
SPARE_LEVELS = 5
NODES = 20  # of the quadrature within a cell


@dataclass(frozen=True, slots=True)
class CostBound:
    """The least cost, the delay at which it is had (h), and P(n waiting) over time."""

    cost: float
    delay_h: float
    levels: tuple[float, ...]


def level_and_age(
    mean_job_h: float, spots: Law, delta_h: float, k: float, most: int | None = None, cells: int = CELLS
) -> CostBound:
    """Return the age-aware optimum: Poisson jobs, any spot law, policies of (number waiting, time since the last spot).

    `most`: the longest queue considered, by default several times what delta allows on average. `cells`: of the age;
    240 give four digits. DomainError: values that are not above 0.
    """
    positive("1/lambda", mean_job_h)
    require(1.0 <= k < math.inf, "k", k, "must be a finite cost of 1 or more")
    wanted = not_negative("delta", delta_h) / mean_job_h
    count = 1 + (most if most is not None else SPARE_LEVELS + math.ceil(3.0 * wanted))
    # borders of age: equal parts of a mixture of the law, of the time that is spent at an age, and of the clock
    end = effective_end(spots)
    fine = np.union1d(np.linspace(0.0, end, FINE), end * np.geomspace(1e-8, 1.0, FINE))
    fine = np.union1d(fine, [c for c in spots.corners if 0.0 < c < end])
    spent = integrate.cumulative_trapezoid(1.0 - spots.cdf(fine), fine, initial=0.0) / spots.mean
    span = min(end, float(fine[np.searchsorted(spots.cdf(fine), 0.999)]))
    weight = spots.cdf(fine) + spent + 2.0 * np.minimum(fine / span, 1.0) + 0.1 * fine / end
    borders = np.interp(np.linspace(weight[0], weight[-1], cells + 1), weight, fine)
    borders[0], borders[-1] = 0.0, end
    ages = np.unique(borders)
    ends = np.diff(spots.cdf(ages))  # P(the gap ends in the cell)
    ends[0] += float(spots.cdf(0.0))
    ends[-1] += 1.0 - float(spots.cdf(ages[-1]))
    nodes, weights = special.roots_legendre(NODES)
    halves = np.diff(ages)[:, None] / 2.0
    left = 1.0 - spots.cdf(ages[:-1, None] + halves * (1.0 + nodes))
    held_h = (halves * weights * left).sum(axis=1)  # mean time in the cell
    held_h[-1] += spots.mean - held_h.sum()

    # Unknowns, cell by cell: z just after the cell's beginning, then what moves up from each level within the cell.
    every = sparse.identity(len(ends), format="csr")
    here = sparse.identity(count, format="csr")
    shift = sparse.diags([-np.ones(count), np.ones(count - 1)], [0, -1], shape=(count, count - 1))
    middle = sparse.hstack([here, 0.5 * shift], "csr")  # z halfway through a cell
    last = sparse.hstack([here, shift], "csr")  # z at its end
    busy = sparse.csr_matrix(np.append(0.0, np.ones(count - 1)))
    served = np.asarray(sparse.kron(ends[None, :], busy @ middle).todense()).ravel()
    time = sparse.kron(held_h[None, :] / spots.mean, middle, "csr")  # share of time at each level
    levels = np.arange(count, dtype=np.float64)
    # each cell's z sums to 1
    mass = sparse.kron(every, np.append(np.ones(count), np.zeros(count - 1))[None, :], "csr")
    # what moves up from n within a cell is at most (jobs that come in it) times z_n
    moves = sparse.hstack([sparse.csr_matrix((count - 1, count)), sparse.identity(count - 1)], "csr")
    jobs = sparse.diags([np.diff(ages) / mean_job_h], [0])
    rising = sparse.kron(every, moves, "csr") - sparse.kron(jobs, middle[: count - 1], "csr")
    # at the border of two cells jobs may be sent away: P(at least n waiting), n = 1, 2, ..., does not rise
    tails = sparse.csr_matrix(np.triu(np.ones((count, count)))[1:])
    begin = sparse.hstack([tails, sparse.csr_matrix((count - 1, count - 1))], "csr")
    border = (len(ends) - 1, len(ends))
    following = sparse.diags([np.ones(border[0])], [1], shape=border)
    present = sparse.diags([np.ones(border[0])], [0], shape=border)
    falling = sparse.kron(following, begin, "csr") - sparse.kron(present, tails @ last, "csr")
    # after a spot, at least n wait only where at least n + 1 did
    longer = sparse.vstack([tails[1:], sparse.csr_matrix((1, count))], "csr")
    first = sparse.csr_matrix(np.eye(1, len(ends)))
    after = sparse.kron(first, begin, "csr") - sparse.kron(ends[None, :], longer @ middle, "csr")
    limits = sparse.vstack([rising, falling, after, sparse.csr_matrix(levels) @ time], "csr")

    upper = np.append(np.zeros(limits.shape[0] - 1), wanted)
    found = optimize.linprog(
        -served, limits, upper, mass, np.ones(len(ends)), bounds=(0.0, None), method="highs"
    )
    if found.status != 0:
        raise DomainError("linear program", found.message, "must have a finite optimum")
    waiting = time @ found.x
    cost = k - (k - 1.0) * float(served @ found.x) * mean_job_h / spots.mean
    return CostBound(cost, float(levels @ waiting) * mean_job_h, tuple(waiting.tolist()))
