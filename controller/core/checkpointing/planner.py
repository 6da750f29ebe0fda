"""P1: interval and rate of each job's checkpoints (paper A, section V and Algorithm 1), and the baselines' fixed periods.

A checkpoint interval D trades lost work against bandwidth. A reclaim loses D/2 on average, lambda D/2 per second; a payload C
written at rate b every D seconds occupies the slice for a share C/(b D) of the time (eq. 1 and 3). For one job the best is
D = sqrt(2C/(lambda b)) (Lemma 1, Young's formula with measured quantities). Eq. (9) clips D into [C/(beta b), 2 L_max]; where
the floor is above the cap, the floor wins, and the loss budget is infeasible. Many jobs on one budget minimise the sum of
sqrt(2 lambda C/b) subject to sum b <= B. Stationarity makes b proportional to (lambda C)^(1/3) (Theorem 1, Lemma 2).

**As printed** (`plan_as_printed`). The paper has one budget. Here every link has one, and the cube-root weights are shared max-
min over the network (`max_min.fill`), which equals Theorem 1 on a single link; on a network it is not the exact minimiser. Zero
hazard has weight 0. Algorithm 1 redistributes inside its loop, once a job; here once over all jobs.

**In closed form** (`plan_each`). Here a job stops only for its snapshot, p seconds, and goes on while the checkpoint is sent. A
reclaim loses the work since the last *completed* checkpoint. So a job loses, in seconds a second,

    lambda (D/2 + C/b) + p/D,      C/(beta b) <= D <= 2 L_max.

The best D is sqrt(2 p/lambda). It depends on no rate, unless the network or the loss budget clips it. A loss budget needs a
slice of C/(2 beta L_max) on every link to the standby. Slices are floors on links that have room for all of them; elsewhere no
job is bound by its budget. The rest should make the sum of s lambda C/b least: a second lost on a GPU of speed s is s
seconds of work. On one link that is b in proportion to sqrt(s lambda C), so links are shared max-min with these weights.
On several links that is an approximation, and the worth of a shorter interval is left out. The speed of a job's own GPU changes
no best D: pauses and losses both cost its seconds. Over random instances the plan costs at most 2 % more than the least
joint cost.

**The share of an interval that sending may take**, beta, is 0.2 in the paper, whose job stands still meanwhile. In closed form
research and migrations have their shares of each link before P1 has any, so beta has nothing left to protect. It only keeps one
checkpoint from beginning before the last has arrived: SENDING_SHARE. With 0.2, intervals of large payloads were several times
as long as the best interval or the loss budget.

Hazards are per second. With hazards per hour and rates per second the formula returns the right number, in minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.core.network import max_min
from controller.core.network.links import SLACK, Network, Paths
from controller.numerics.arrays import Floats, Mask
from controller.numerics.portable_math import cbrt

BETA = 0.2  # share of a slice that checkpoint writes may occupy (paper A, section V-E)
# of an interval: the rest is for what a transfer takes beside its bytes at the rate of its grant. It is written before the first
# byte leaves (5 % of the sending, at 1.5 GB/s and 80 MB/s), and TCP does not quite fill a grant (3 %, `reservation.GOODPUT`)
SENDING_SHARE = 0.9
STATIC_INTERVAL_S = 600.0  # paper A's B3: 10 min, by grid search over 5, 10, 15 min (appendix C)
INVERSE_GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, slots=True)
class CheckpointJobs:
    """Running jobs as P1 sees them, a row each."""

    names: Sequence[str]
    payload_bytes: Floats  # C, above 0
    hazard_per_s: Floats  # lambda: the *upper* bound of the host's
    loss_budget_s: Floats  # L_max; infinite: none
    pauses_s: Floats  # p: for which a snapshot stops it
    paths: Paths  # to its standby
    speed: Floats  # of its GPU: the work of a second there, seconds of a reference GPU


@dataclass(frozen=True, slots=True)
class CheckpointPlans:
    """Plan of each job: to send at its rate, once in its interval."""

    rates_bytes_per_s: Floats
    intervals_s: Floats  # infinite: never
    infeasible: Mask  # its loss budget cannot be kept: C/(beta b) is above 2 L_max


# jobs, the network, what checkpoints may take of each link, beta -> their plans
Planner = Callable[[CheckpointJobs, Network, Floats, float], CheckpointPlans]


def transfer_s(payload_bytes: float, rate_bytes_per_s: float) -> float:
    """Return C/b, seconds on the wire; 0 for nothing to send, infinity without bandwidth."""
    if payload_bytes == 0.0:
        return 0.0
    return payload_bytes / rate_bytes_per_s if rate_bytes_per_s > 0.0 else math.inf


def best_intervals_s(costs_s: Floats, hazard_per_s: Floats) -> Floats:
    """Return sqrt(2 cost/lambda), the intervals of least cost (Lemma 1); infinite without hazard.

    A checkpoint costs C/b where the job stands still until it is sent (eq. 2), else its pause.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        best_s: Floats = np.where(hazard_per_s > 0.0, np.sqrt(2.0 * costs_s / hazard_per_s), np.inf)
    return best_s


def floors_s(jobs: CheckpointJobs, rates: Floats, beta: float) -> Floats:
    """Return C/(beta b), the shortest intervals whose writes occupy at most beta of the slice (eq. 9)."""
    with np.errstate(divide="ignore"):
        floors: Floats = jobs.payload_bytes / rates / beta
    return floors


def plan_each(jobs: CheckpointJobs, network: Network, capacity: Floats, beta: float) -> CheckpointPlans:
    """Plan in closed form."""
    payload, paths = jobs.payload_bytes, jobs.paths
    needed = payload / (2.0 * beta * jobs.loss_budget_s)
    fits = paths.load(needed, len(network.links)) <= capacity * (1.0 + SLACK)
    floor = np.where(paths.least(fits.astype(float)) > 0.0, needed, 0.0)
    rates = _shared(jobs, network, capacity, np.sqrt(jobs.speed * jobs.hazard_per_s * payload), floor)
    return _clipped(jobs, rates, best_intervals_s(jobs.pauses_s, jobs.hazard_per_s), beta)


def plan_alike(jobs: CheckpointJobs, network: Network, capacity: Floats, beta: float) -> CheckpointPlans:
    """Plan as if all jobs had the means of hazards and pauses, and the tightest budget.

    All then have one interval, where the network allows it.
    """
    if size := len(jobs.names):
        jobs = replace(
            jobs,
            hazard_per_s=np.full(size, jobs.hazard_per_s.mean()),
            loss_budget_s=np.full(size, jobs.loss_budget_s.min()),
            pauses_s=np.full(size, jobs.pauses_s.mean()),
            speed=np.ones(size),
        )
    return plan_each(jobs, network, capacity, beta)


def plan_as_printed(jobs: CheckpointJobs, network: Network, capacity: Floats, beta: float) -> CheckpointPlans:
    """Allocate by cube roots, and apply eq. (9) after it: loss budgets do not affect the allocation."""
    rates = _shared(jobs, network, capacity, _cube_roots(jobs))
    with np.errstate(divide="ignore"):
        sending_s = jobs.payload_bytes / rates
    return _clipped(jobs, rates, best_intervals_s(sending_s, jobs.hazard_per_s), beta)


def plan_one_interval(jobs: CheckpointJobs, network: Network, capacity: Floats, beta: float) -> CheckpointPlans:
    """Plan one interval for all, sqrt(2 C Theta/lambda) of the means of this epoch (paper A, appendix C: B7).

    Theta = E[1/b]: the best single interval (Theorem 2's proof). Rates are as in `plan_as_printed`. The tightest loss budget
    caps the interval for all (eq. 9): with different constraints a comparison would not show the effect of adaptivity alone.
    """
    rates = _shared(jobs, network, capacity, _cube_roots(jobs))
    slowness, interval_s = [1.0 / rate for rate in rates.tolist() if rate > 0.0], math.inf
    if slowness:
        payload, hazard = _mean(jobs.payload_bytes.tolist()), _mean(jobs.hazard_per_s.tolist())
        best_s = best_intervals_s(np.array(payload * _mean(slowness)), np.array(hazard))
        interval_s = min(float(best_s), *(2.0 * jobs.loss_budget_s).tolist())
    floors = floors_s(jobs, rates, beta)
    return _plans(jobs, rates, np.where(floors > interval_s, floors, interval_s), beta)


@dataclass(frozen=True, slots=True)
class StaticPlanner:
    """Planner with one period for all jobs, whatever is measured (paper A's B3), and equal shares of the links."""

    interval_s: float = STATIC_INTERVAL_S

    def __call__(self, jobs: CheckpointJobs, network: Network, capacity: Floats, beta: float) -> CheckpointPlans:
        rates = _shared(jobs, network, capacity, np.ones(len(jobs.names)))
        return _plans(jobs, rates, np.full(len(rates), self.interval_s), beta)


def stagger(index: int, interval_s: float) -> float:
    """Return the first-fire offset in [0, interval) of the index-th job's timer.

    Offsets are multiples of the golden ratio, modulo 1. Any n jobs numbered in a row are at least 0.38/n of an
    interval apart, whatever n becomes later (three-gap theorem). So no timer moves when a job arrives. Deadline flows
    are never staggered: it breaks Theorem 3. An infinite interval (never) has an infinite offset.
    """
    if math.isinf(interval_s):
        return math.inf
    return math.fmod(index * INVERSE_GOLDEN_RATIO, 1.0) * interval_s


def _shared(
    jobs: CheckpointJobs, network: Network, capacity: Floats, weight: Floats, floor: Floats | None = None
) -> Floats:
    """Return the rates of these weights and floors, without caps."""
    size = len(jobs.names)
    wants = max_min.Wants(
        network, jobs.paths, weight, np.zeros(size) if floor is None else floor, np.full(size, np.inf)
    )
    return max_min.fill(wants, capacity)[0]


def _cube_roots(jobs: CheckpointJobs) -> Floats:
    """Return the weights (lambda C)^(1/3) of Theorem 1."""
    return np.array([cbrt(product) for product in (jobs.hazard_per_s * jobs.payload_bytes).tolist()])


def _clipped(jobs: CheckpointJobs, rates: Floats, best_s: Floats, beta: float) -> CheckpointPlans:
    """Clip intervals by the loss budgets, then by the network's floors, which win (eq. 9)."""
    capped_s = np.minimum(best_s, 2.0 * jobs.loss_budget_s)
    return _plans(jobs, rates, np.maximum(capped_s, floors_s(jobs, rates, beta)), beta)


def _plans(jobs: CheckpointJobs, rates: Floats, intervals_s: Floats, beta: float) -> CheckpointPlans:
    infeasible = floors_s(jobs, rates, beta) > 2.0 * jobs.loss_budget_s * (1.0 + SLACK)
    return CheckpointPlans(rates, intervals_s, infeasible)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
