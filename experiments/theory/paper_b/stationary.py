"""Exact stationary numbers of paper B's queue under r = N + p, where neither arrivals nor spots need be Poisson.

One of the two processes is a clock that ticks at constant rate v, in s phases: Poisson (s = 1) or a gamma law of whole
shape s (Erlang). The other one, of any law X, is looked at when it happens. Between two of its events the number waiting
and the phase move only with the clock's ticks, by a stochastic matrix P; the number of ticks in X has probabilities w_m, and
u_m is the time in X spent after m of them (`waiting_weights`, to 1e-13). So

    M = sum w_m P^m  leads from just after one event to just before the next;
    U = sum u_m P^m  holds the times spent between,

and alpha = alpha M R (R: what the event does) is the state just after an event. With spots as the events this gives
Theorem 1's pi_0 and, by alpha U/E[X], the time averages; with jobs as the events (spots being the clock) it gives the
share of jobs that join, each of which is served in the end. E[T] is E[n]/lambda (Little).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, sparse, special

from controller.core.queueing.replay import admit_probability
from controller.numerics.arrays import Floats
from experiments.theory.domain import DomainError, not_negative, require
from experiments.theory.laws import Exponential, Gamma, Law, effective_end, while_it_lasts

MAX_LEVELS = 64


@dataclass(frozen=True, slots=True)
class Stationary:
    """E[T] over all jobs (h), E[C], P(a spot finds a job waiting), share of time that one waits.

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
    """Return the queue under r = N + p: join below N, with probability p at N, wait for ever (paper B, Algorithm 1's policy).

    DomainError: r outside [0, 64], or neither jobs nor spots Poisson or gamma of whole shape.
    """
    require(0.0 <= r <= MAX_LEVELS, "r", r, f"must be a number from 0 to {MAX_LEVELS}")
    require(1.0 <= k < math.inf, "k", k, "must be a finite cost of 1 or more")
    count = math.ceil(r) + 1  # levels that can be reached
    joins = np.array([admit_probability(r, n) for n in range(count)])
    # what a job does to the number waiting
    joining = sparse.diags([1.0 - joins, joins[:-1]], [0, 1], format="csr")
    # and what a spot does
    serving = sparse.diags([np.eye(1, count)[0], np.ones(count - 1)], [0, -1], format="csr")
    if (clock := _clock(jobs)) is not None:
        found, levels = _cycle(spots, clock, joining, serving)
        busy = 1.0 - float(found[0])
    else:
        if (clock := _clock(spots)) is None:
            raise DomainError("laws", (jobs, spots), "one must be Poisson or gamma of whole shape")
        found, levels = _cycle(jobs, clock, serving, joining)
        busy = float(found @ joins) * spots.mean / jobs.mean
    delay_h = float(levels @ np.arange(len(levels))) * jobs.mean
    cost = k - (k - 1.0) * jobs.mean / spots.mean * busy
    return Stationary(delay_h, cost, busy, 1.0 - float(levels[0]), tuple(levels.tolist()))


def fixpoint(jobs: Law, spots: Law, delta_h: float, k: float = 10.0) -> Fixpoint:
    """Return r* with E[T] = delta, which is where Algorithm 1 settles, and its cost.

    DomainError: delta needs more than 64 waiting.
    """
    if not_negative("delta", delta_h) == 0.0:
        return Fixpoint(0.0, under_level(jobs, spots, 0.0, k).cost)
    high = 1.0
    while (found := under_level(jobs, spots, high, k)).delay_h < delta_h:
        if high == MAX_LEVELS:  # is the queue as long as it ever gets, or would it go on?
            grown_h = found.delay_h - under_level(jobs, spots, MAX_LEVELS - 1.0, k).delay_h
            require(grown_h < 1e-9 * delta_h, "delta", delta_h, f"needs more than {MAX_LEVELS} waiting")
            return Fixpoint(math.inf, found.cost)
        high = min(2.0 * high, MAX_LEVELS)
    low = 0.0 if high == 1.0 else high / 2.0
    r_star = float(
        optimize.brentq(lambda r: under_level(jobs, spots, r, k).delay_h - delta_h, low, high, xtol=1e-12, rtol=1e-13)
    )
    return Fixpoint(r_star, under_level(jobs, spots, r_star, k).cost)


def _clock(law: Law) -> tuple[int, float] | None:
    """Return (phases, rate of each) of a law that is a clock: exponential or gamma of whole shape; None for others."""
    if isinstance(law, Exponential):
        return 1, 1.0 / law.mean_h
    if isinstance(law, Gamma) and law.shape == math.floor(law.shape):
        return int(law.shape), 1.0 / law.scale
    return None


def _cycle(
    law: Law, clock: tuple[int, float], ticking: sparse.csr_matrix, event: sparse.csr_matrix
) -> tuple[Floats, Floats]:
    """Return P(n waiting just before an event of `law`), and the share of time with n waiting.

    `ticking`, `event`: what the end of the clock's last phase, and what an event of `law` does to the number waiting.
    """
    phases, rate = clock
    count = event.shape[0]
    onward = sparse.diags([np.ones(phases - 1)], [1], shape=(phases, phases))
    last = sparse.csr_matrix(([1.0], ([phases - 1], [0])), shape=(phases, phases))
    tick = sparse.kron(sparse.identity(count), onward, "csr") + sparse.kron(ticking, last, "csr")
    counted, spent = waiting_weights(law, rate)
    identity = np.eye(count * phases)
    leads = np.zeros_like(identity)  # M, by Horner's rule
    for chance in counted[::-1]:
        leads = tick @ leads + chance * identity
    around = leads @ sparse.kron(event, sparse.identity(phases), format="csr").toarray()
    equations = around.T - identity
    equations[-1] = 1.0
    after = np.linalg.solve(equations, identity[-1])
    during, row, transposed = np.zeros_like(after), after, tick.T.tocsr()  # alpha U
    for held_h in spent:
        during += held_h * row
        row = transposed @ row
    before, during = ((after @ leads), during / during.sum())
    return before.reshape(count, phases).sum(axis=1), during.reshape(count, phases).sum(axis=1)


@lru_cache(maxsize=64)
def waiting_weights(law: Law, rate: float) -> tuple[Floats, Floats]:
    """Return (w, u): w_m = P(a Poisson process of `rate` has m points in X), u_m = E[time within X that it has had m points].

    u_m is the integral of (1 - F(t)) e^(-vt) (vt)^m/m!, and w_m = [m = 0] + v (u_(m-1) - u_m); cut where nothing is
    left.
    """
    mean_count = rate * effective_end(law)
    counts = np.arange(int(mean_count + 12.0 * math.sqrt(mean_count) + 60.0), dtype=np.float64)
    logs = special.gammaln(counts + 1.0)
    spent = while_it_lasts(law, lambda t: np.exp(special.xlogy(counts, rate * t) - rate * t - logs))
    counted = -rate * np.diff(spent, prepend=1.0 / rate)
    last = int(np.nonzero(spent > 1e-18 * law.mean)[0][-1]) + 2
    return counted[:last], spent[:last]
