"""The least cost of any policy, as linear programs; three of them, that know more and more.

- `knapsack` is paper B's (9)-(11) as printed: any distribution with mean lambda delta, whether or not a policy has it, and
  the same one over time and at spots: no bound at all unless spots are Poisson.
- `level_only`: Poisson jobs and spots; policies that see the number waiting may refuse jobs and send waiting ones away.
  Its optimum *is* Theorem 4's policy (`markov.optimum`).
- `level_and_age`: Poisson jobs, any spot law; policies that see the number waiting *and* the time since the last spot. For
  spots that are not Poisson this age is worth a lot: it tells how near the next spot is.

For the last one let z_n(t) be the probability of n waiting at age t of a gap, given that the gap is not over. Refusing and
sending away are all that a policy can do, so z moves up a level at a rate of at most lambda z_n(t), and down at will; at
the end of the gap one job is served, so z(0) is the average of z(S), one down. What is served is E[1 - z_0(S)] a gap, the
delay E[integral of sum n z_n over the gap], both linear. The age is cut into cells of equal weight; within a cell z is
linear and moves down only at its beginning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, sparse

from experiments.theory.domain import DomainError, not_negative, positive, require
from experiments.theory.laws import Floats, Law
from experiments.theory.quadrature import effective_end

CELLS = 240
FINE = 20_000
SPARE_LEVELS = 5


@dataclass(frozen=True, slots=True)
class CostBound:
    """The least cost, the delay at which it is had (h), and P(n waiting) over time."""

    cost: float
    delay_h: float
    levels: tuple[float, ...]


def knapsack(mean_job_h: float, mean_spot_h: float, delta_h: float, k: float) -> float:
    """k - (k - 1) (mu/lambda) min(1, lambda delta, lambda/mu): paper B's (9)-(11).

    For Poisson spots a bound, that no policy need reach; for others not even that.
    """
    positive("1/mu", mean_spot_h)
    served = min(not_negative("delta", delta_h) / positive("1/lambda", mean_job_h), 1.0)
    return k - (k - 1.0) * min(1.0, served * mean_job_h / mean_spot_h)


def level_only(mean_job_h: float, mean_spot_h: float, delta_h: float, k: float, most: int = 60) -> CostBound:
    """M/M, policies of the number waiting: max sum of pi_n with mu pi_(n+1) <= lambda pi_n and E[n] <= lambda delta.

    `most`: the longest queue considered; the answer is exact if the optimum does not use it. DomainError: no such values.
    """
    rho = positive("1/mu", mean_spot_h) / positive("1/lambda", mean_job_h)
    wanted = not_negative("delta", delta_h) / mean_job_h
    n = np.arange(most + 1, dtype=np.float64)
    rises = sparse.diags([-rho * np.ones(most), np.ones(most)], [0, 1], shape=(most, most + 1))
    solved = _solve(
        -(n > 0.0).astype(np.float64),
        sparse.vstack([rises, n[None, :]], "csr"),
        np.append(np.zeros(most), wanted),
        sparse.csr_matrix(np.ones((1, most + 1))),
        np.ones(1),
    )
    cost = k - (k - 1.0) * (1.0 - float(solved[0])) / rho
    return CostBound(cost, float(n @ solved) * mean_job_h, tuple(solved.tolist()))


def level_and_age(
    mean_job_h: float, spots: Law, delta_h: float, k: float, most: int | None = None, cells: int = CELLS
) -> CostBound:
    """Poisson jobs, any spot law, policies of (number waiting, time since the last spot): the age-aware optimum.

    `most`: the longest queue considered, by default several times what delta allows on average. `cells`: of the age;
    240 give four digits. DomainError: values that are not above 0.
    """
    positive("1/lambda", mean_job_h)
    require(1.0 <= k < math.inf, "k", k, "must be a finite cost of 1 or more")
    wanted = not_negative("delta", delta_h) / mean_job_h
    count = 1 + (most if most is not None else SPARE_LEVELS + math.ceil(3.0 * wanted))
    ages = _cells(spots, cells)
    program = _Program.of(mean_job_h, spots, ages, count)
    solved = program.solve(wanted)
    time = program.time @ solved
    served = float(program.served @ solved) * mean_job_h / spots.mean
    return CostBound(
        k - (k - 1.0) * served, float(np.arange(count) @ time) * mean_job_h, tuple(time.tolist())
    )


@dataclass(frozen=True, slots=True)
class _Program:
    """Unknowns, cell by cell: z just after the cell's beginning, then what moves up from each level within the cell.

    `served`: P(a spot finds somebody); `time`: share of time at each level; `equations` = `right`; `limits` <= 0.
    """

    served: Floats
    time: sparse.csr_matrix
    equations: sparse.csr_matrix
    right: Floats
    limits: sparse.csr_matrix

    @classmethod
    def of(cls, mean_job_h: float, spots: Law, ages: Floats, count: int) -> _Program:
        ends = spots.cdf(ages[1:]) - spots.cdf(ages[:-1])
        ends[0] += float(spots.cdf(0.0))
        ends[-1] += 1.0 - float(spots.cdf(ages[-1]))
        held = np.diff([spots.limited_mean(float(age)) for age in ages])
        held[-1] += spots.mean - held.sum()
        one = sparse.identity(count, format="csr")
        shift = sparse.diags([-np.ones(count), np.ones(count - 1)], [0, -1], shape=(count, count - 1))
        middle = sparse.hstack([one, 0.5 * shift], "csr")  # z halfway through a cell
        last = sparse.hstack([one, shift], "csr")
        cells = len(ends)
        every = sparse.identity(cells, format="csr")
        busy = sparse.csr_matrix(np.append(0.0, np.ones(count - 1)))
        return cls(
            served=np.asarray(sparse.kron(ends[None, :], busy @ middle).todense()).ravel(),
            time=sparse.kron(held[None, :] / spots.mean, middle, "csr"),
            equations=_mass(every, count),
            right=np.ones(cells),
            limits=sparse.vstack(
                [
                    _no_more_than_comes(every, middle, np.diff(ages) / mean_job_h),
                    _only_down_between_cells(cells, count, last),
                    _no_more_than_is_left(ends, count, middle),
                ],
                "csr",
            ),
        )

    def solve(self, wanted: float) -> Floats:
        count = self.time.shape[0]
        length = sparse.csr_matrix(np.arange(count, dtype=np.float64)) @ self.time
        limits = sparse.vstack([self.limits, length], "csr")
        upper = np.append(np.zeros(self.limits.shape[0]), wanted)
        return _solve(-self.served, limits, upper, self.equations, self.right)


def _tails(count: int) -> sparse.csr_matrix:
    """P(at least n waiting), n = 1, 2, ..., of a distribution."""
    return sparse.csr_matrix(np.triu(np.ones((count, count)))[1:])


def _mass(every: sparse.csr_matrix, count: int) -> sparse.csr_matrix:
    """Each cell's z sums to 1."""
    return sparse.kron(every, np.append(np.ones(count), np.zeros(count - 1))[None, :], "csr")


def _no_more_than_comes(
    every: sparse.csr_matrix, middle: sparse.csr_matrix, jobs: Floats
) -> sparse.csr_matrix:
    """What moves up from n within a cell is at most (jobs that come in it) times z_n."""
    count = middle.shape[0]
    moves = sparse.hstack([sparse.csr_matrix((count - 1, count)), sparse.identity(count - 1)], "csr")
    return sparse.kron(every, moves, "csr") - sparse.kron(
        sparse.diags([jobs], [0]), middle[: count - 1], "csr"
    )


def _only_down_between_cells(cells: int, count: int, last: sparse.csr_matrix) -> sparse.csr_matrix:
    """At the border of two cells jobs may be sent away: P(at least n) does not rise."""
    tails = _tails(count)
    begin = sparse.hstack([tails, sparse.csr_matrix((count - 1, count - 1))], "csr")
    following = sparse.diags([np.ones(cells - 1)], [1], shape=(cells - 1, cells))
    present = sparse.diags([np.ones(cells - 1)], [0], shape=(cells - 1, cells))
    return sparse.kron(following, begin, "csr") - sparse.kron(present, tails @ last, "csr")


def _no_more_than_is_left(ends: Floats, count: int, middle: sparse.csr_matrix) -> sparse.csr_matrix:
    """After a spot, at least n wait only where at least n + 1 did."""
    tails = _tails(count)
    begin = sparse.hstack([tails, sparse.csr_matrix((count - 1, count - 1))], "csr")
    first = sparse.csr_matrix(np.eye(1, len(ends)))
    longer = sparse.vstack([tails[1:], sparse.csr_matrix((1, count))], "csr")
    return sparse.kron(first, begin, "csr") - sparse.kron(ends[None, :], longer @ middle, "csr")


def _cells(spots: Law, cells: int) -> Floats:
    """Borders of age: equal parts of a mixture of the law, of the time that is spent at an age, and of the clock."""
    end = effective_end(spots)
    fine = np.union1d(np.linspace(0.0, end, FINE), end * np.geomspace(1e-8, 1.0, FINE))
    fine = np.union1d(fine, [c for c in spots.corners if 0.0 < c < end])
    spent = np.array([spots.limited_mean(float(t)) for t in fine]) / spots.mean
    span = min(end, float(fine[np.searchsorted(spots.cdf(fine), 0.999)]))
    weight = spots.cdf(fine) + spent + 2.0 * np.minimum(fine / span, 1.0) + 0.1 * fine / end
    borders = np.interp(np.linspace(weight[0], weight[-1], cells + 1), weight, fine)
    borders[0], borders[-1] = 0.0, end
    return np.unique(borders)


def _solve(
    costs: Floats,
    limits: sparse.csr_matrix,
    upper: Floats,
    equations: sparse.csr_matrix,
    right: Floats,
) -> Floats:
    found = optimize.linprog(costs, limits, upper, equations, right, bounds=(0.0, None), method="highs")
    if found.status != 0:
        raise DomainError("linear program", found.message, "must have a finite optimum")
    return np.asarray(found.x)
