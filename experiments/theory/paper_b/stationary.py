"""Exact stationary numbers of paper B's queue under r = N + p, where neither arrivals nor spots need be Poisson.

One of the two processes is a clock that ticks at constant rate v, in s phases: Poisson (s = 1) or a gamma law of whole
shape s (Erlang). The other one, of any law X, is looked at when it happens. Between two of its events the number waiting
and the phase move only with the clock's ticks, by a stochastic matrix P; the number of ticks in X has probabilities w_m, and
u_m is the time in X spent after m of them (`quadrature.waiting_weights`, to 1e-14). So

    M = sum w_m P^m  leads from just after one event to just before the next,
    U = sum u_m P^m  holds the times spent between,

and alpha = alpha M R (R: what the event does) is the state just after an event. With spots as the events this gives
Theorem 1's pi_0 and, by alpha U/E[X], the time averages; with jobs as the events (spots being the clock) it gives the
share of jobs that join, each of which is served in the end. E[T] is E[n]/lambda (Little). Where neither process is a
clock, `lattice` gives the numbers on a grid of times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, sparse

from controller.core.queueing.controllers.fixed import admit_probability
from experiments.theory.domain import DomainError, not_negative, require
from experiments.theory.laws import Exponential, Floats, Gamma, Law
from experiments.theory.quadrature import waiting_weights

MOST_LEVELS = 64
Solver = Callable[[Law, Law, float, float], "Stationary"]


@dataclass(frozen=True, slots=True)
class Stationary:
    """E[T] over all jobs (h), E[C], P(a spot finds somebody waiting), share of time that somebody waits.

    `levels`: share of time with n = 0, 1, ... waiting.
    """

    delay_h: float
    cost: float
    spot_busy: float
    time_busy: float
    levels: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Fixpoint:
    """r* at which E[T] = delta, and the cost there; infinite r* where even an unlimited queue keeps delta."""

    r_star: float
    cost: float


def under_level(jobs: Law, spots: Law, r: float, k: float = 10.0) -> Stationary:
    """The queue under r = N + p: join below N, with probability p at N, wait for ever (paper B, Algorithm 1's policy).

    Exact where jobs or spots are Poisson or gamma of whole shape, on a grid otherwise. DomainError: r outside [0, 64].
    """
    require(0.0 <= r <= MOST_LEVELS, "r", r, f"must be a number from 0 to {MOST_LEVELS}")
    require(1.0 <= k < math.inf, "k", k, "must be a finite cost of 1 or more")
    if _phases(jobs) is not None:
        return _seen_by_spots(jobs, spots, r, k)
    if _phases(spots) is not None:
        return _seen_by_jobs(jobs, spots, r, k)
    from experiments.theory.paper_b import lattice  # which imports this file's Stationary

    return lattice.under_level(jobs, spots, r, k)


def fixpoint(jobs: Law, spots: Law, delta_h: float, k: float = 10.0) -> Fixpoint:
    """r* with E[T] = delta, which is where Algorithm 1 settles, and its cost.

    DomainError: delta needs more than 64 waiting.
    """
    if not_negative("delta", delta_h) == 0.0:
        return Fixpoint(0.0, under_level(jobs, spots, 0.0, k).cost)
    high = 1.0
    while (found := under_level(jobs, spots, high, k)).delay_h < delta_h:
        if high == MOST_LEVELS:
            return _slack(jobs, spots, found, delta_h, k)
        high = min(2.0 * high, MOST_LEVELS)
    low = 0.0 if high == 1.0 else high / 2.0
    r_star = float(
        optimize.brentq(
            lambda r: under_level(jobs, spots, r, k).delay_h - delta_h, low, high, xtol=1e-12, rtol=1e-13
        )
    )
    return Fixpoint(r_star, under_level(jobs, spots, r_star, k).cost)


def erlang_phases(law: Law) -> tuple[int, float] | None:
    """(phases, rate of each) of a law that is a clock: exponential or gamma of whole shape; None for others."""
    return _phases(law)


def _phases(law: Law) -> tuple[int, float] | None:
    if isinstance(law, Exponential):
        return 1, 1.0 / law.mean_h
    if isinstance(law, Gamma) and law.shape == math.floor(law.shape):
        return int(law.shape), 1.0 / law.scale
    return None


def _slack(jobs: Law, spots: Law, most: Stationary, delta_h: float, k: float) -> Fixpoint:
    """Nothing up to the most levels reaches delta: is the queue as long as it ever gets, or would it go on?"""
    before = under_level(jobs, spots, MOST_LEVELS - 1.0, k)
    require(
        most.delay_h - before.delay_h < 1e-9 * delta_h,
        "delta",
        delta_h,
        f"needs more than {MOST_LEVELS} waiting",
    )
    return Fixpoint(math.inf, most.cost)


def _seen_by_spots(jobs: Law, spots: Law, r: float, k: float) -> Stationary:
    phases, rate = _clock(jobs)
    count = _count(r)
    tick = _ticks(phases, _joining(r, count))
    serve = sparse.kron(_serving(count), sparse.identity(phases), format="csr")
    before, during = _cycle(spots, rate, tick, serve)
    busy = 1.0 - float(before[:phases].sum())
    return _answer(jobs, spots, k, busy, during.reshape(count, phases).sum(axis=1))


def _seen_by_jobs(jobs: Law, spots: Law, r: float, k: float) -> Stationary:
    phases, rate = _clock(spots)
    count = _count(r)
    tick = _ticks(phases, _serving(count))
    join = sparse.kron(_joining(r, count), sparse.identity(phases), format="csr")
    before, during = _cycle(jobs, rate, tick, join)
    found = before.reshape(count, phases).sum(axis=1)
    joined = float(found @ [admit_probability(r, n) for n in range(count)])
    return _answer(jobs, spots, k, joined * spots.mean / jobs.mean, during.reshape(count, phases).sum(axis=1))


def _clock(law: Law) -> tuple[int, float]:
    phases = _phases(law)
    if phases is None:
        raise DomainError("law", law, "must be exponential or gamma of whole shape")
    return phases


def _answer(jobs: Law, spots: Law, k: float, spot_busy: float, levels: Floats) -> Stationary:
    served = jobs.mean / spots.mean * spot_busy
    delay_h = float(levels @ np.arange(len(levels))) * jobs.mean
    return Stationary(
        delay_h, k - (k - 1.0) * served, spot_busy, 1.0 - float(levels[0]), tuple(levels.tolist())
    )


def _count(r: float) -> int:
    """How many levels 0, 1, ... can be reached."""
    return math.ceil(r) + 1


def _joining(r: float, count: int) -> sparse.csr_matrix:
    """What a job does to the number waiting."""
    joins = np.array([admit_probability(r, n) for n in range(count)])
    return sparse.diags([1.0 - joins, joins[:-1]], [0, 1], format="csr")


def _serving(count: int) -> sparse.csr_matrix:
    """What a spot does to the number waiting."""
    return sparse.diags([np.eye(1, count)[0], np.ones(count - 1)], [0, -1], format="csr")


def _ticks(phases: int, event: sparse.csr_matrix) -> sparse.csr_matrix:
    """The clock's tick on (number waiting, phase): the next phase, and after the last one the event."""
    onward = sparse.diags([np.ones(phases - 1)], [1], shape=(phases, phases))
    last = sparse.csr_matrix(([1.0], ([phases - 1], [0])), shape=(phases, phases))
    return sparse.kron(sparse.identity(event.shape[0]), onward, "csr") + sparse.kron(event, last, "csr")


def _cycle(law: Law, rate: float, tick: sparse.csr_matrix, event: sparse.csr_matrix) -> tuple[Floats, Floats]:
    """(distribution just before the events of `law`, time-average distribution)."""
    counted, spent = _weights(law, rate)
    leads = _series(tick, counted)
    around = leads @ event.toarray()
    equations = around.T - np.eye(len(around))
    equations[-1] = 1.0
    after: Floats = np.linalg.solve(equations, np.eye(len(around))[-1])
    during = _row_series(after, tick, spent)
    return after @ leads, during / during.sum()


def _series(tick: sparse.csr_matrix, coefficients: Floats) -> Floats:
    """sum c_m P^m by Horner's rule."""
    identity = np.eye(tick.shape[0])
    total = np.zeros_like(identity)
    for coefficient in coefficients[::-1]:
        total = tick @ total + coefficient * identity
    return total


def _row_series(row: Floats, tick: sparse.csr_matrix, coefficients: Floats) -> Floats:
    """row times sum c_m P^m."""
    total, transposed = np.zeros_like(row), tick.T.tocsr()
    for coefficient in coefficients:
        total += coefficient * row
        row = transposed @ row
    return total


@lru_cache(maxsize=64)
def _weights(law: Law, rate: float) -> tuple[Floats, Floats]:
    """`waiting_weights`, cut where nothing is left."""
    counted, spent = waiting_weights(law, rate)
    last = int(np.nonzero(spent > 1e-18 * law.mean)[0][-1]) + 2
    return counted[:last], spent[:last]
