"""P1 as paper A has it: intervals and rates of checkpoints (section V and Algorithm 1), and the baselines' fixed periods.

A checkpoint interval D trades lost work against bandwidth. A reclaim loses D/2 on average, lambda D/2 per second; a payload C
written at rate b every D seconds occupies the slice for a share C/(b D) of the time (eq. 1 and 3). For one job the best is
D = sqrt(2C/(lambda b)) (Lemma 1, Young's formula with measured quantities), at a cost of sqrt(2 lambda C/b). Many jobs on one
budget minimise sum sqrt(2 lambda_i C_i/b_i) subject to sum b_i <= B and b_i <= W_i. Stationarity makes b_i proportional to
(lambda_i C_i)^(1/3) (Theorem 1), and bounds clip it (Lemma 2): one call of `max_min.fill` with these weights, whose level is, up
to a constant, the Lagrange multiplier to the power -2/3. Lemma 2's printed loop computes the same point, a cap at a time.

Departures from the paper's text:

- **Many links.** The paper has one budget. Here every link has one, and the cube-root weights are shared max-min over the
  network. That equals Theorem 1 on a single link. On a network it is not the exact minimiser.
- **Loss budgets** bound D/2 by L_max, as in the paper, and not D/2 + C/b, the mean loss at a reclaim. Eq. (9) clips D into
  [C/(beta b), 2 L_max]. Where the floor is above the cap, the floor wins, and the budget is flagged as infeasible.
- **A snapshot protects only when its write has completed**: the mean loss at a reclaim is D/2 + C/b, not D/2.
- **Zero hazard** has weight 0: such a job gets no rate.
- **Algorithm 1** redistributes inside its loop, once a job; here once over all jobs. Its test for a final checkpoint is true in
  every tick once it is true. Here it is made once, when the reclaim is admitted, with the rate that P3 guarantees (`admission`).

Hazards are per second. With hazards per hour and rates per second the formula returns the right number, in minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from controller.core.network import sharing
from controller.core.network.links import fits
from controller.numerics.portable_math import cbrt
from topologies.spec import DirectedLink

BETA = 0.2  # share of a slice that checkpoint writes may occupy (paper A, section V-E)
STATIC_INTERVAL_S = 600.0  # paper A's B3: 10 min, by grid search over 5, 10, 15 min (appendix C)
INVERSE_GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0


class RateBound(StrEnum):
    """Terms that can decide an interval."""

    YOUNG = "young"  # Lemma 1, unconstrained
    NETWORK = "network"  # the floor C/(beta b)
    LOSS_BUDGET = "loss_budget"  # the cap 2 L_max


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """A running job as P1 sees it."""

    key: str
    payload_bytes: float
    hazard_per_s: float  # the *upper* bound of its host's emergency hazard
    links: tuple[DirectedLink, ...]  # to its standby host
    write_cap_bytes_per_s: float = math.inf  # W, what its disk or administrator allows
    loss_budget_s: float = math.inf  # L_max: the interval is at most twice as long

    def __post_init__(self) -> None:
        _check(self.key, "payload", self.payload_bytes, 0.0 < self.payload_bytes < math.inf, "above 0")
        _check(self.key, "hazard", self.hazard_per_s, 0.0 <= self.hazard_per_s < math.inf, "0 or more")
        _check(
            self.key, "write cap", self.write_cap_bytes_per_s, self.write_cap_bytes_per_s >= 0.0, "0 or more"
        )
        _check(self.key, "loss budget", self.loss_budget_s, self.loss_budget_s >= 0.0, "0 or more")

    @property
    def weight(self) -> float:
        """Weight (lambda C)^(1/3) of Theorem 1."""
        return cbrt(self.hazard_per_s * self.payload_bytes)


@dataclass(frozen=True, slots=True)
class Interval:
    """Eq. (9)'s answer."""

    interval_s: float
    bound: RateBound
    loss_budget_infeasible: bool  # the network floor C/(beta b) is above 2 L_max; the interval is the floor
    expected_loss_s: float  # mean work lost at a reclaim, D/2 + C/b


@dataclass(frozen=True, slots=True)
class CheckpointSchedule:
    """P1's plan for a job: write at `rate_bytes_per_s` every `interval_s`."""

    rate_bytes_per_s: float
    interval: Interval

    @property
    def interval_s(self) -> float:
        """Seconds from one checkpoint's start to the next one's; infinite: never."""
        return self.interval.interval_s


Planner = Callable[
    [Sequence[CheckpointJob], Mapping[DirectedLink, float], float], dict[str, CheckpointSchedule]
]


def transfer_s(payload_bytes: float, rate_bytes_per_s: float) -> float:
    """Return C/b, seconds on the wire; 0 for nothing to send, infinity without bandwidth."""
    if payload_bytes == 0.0:
        return 0.0
    return payload_bytes / rate_bytes_per_s if rate_bytes_per_s > 0.0 else math.inf


def local_interval_s(hazard_per_s: float, payload_bytes: float, rate_bytes_per_s: float) -> float:
    """Return sqrt(2C/(lambda b)), the interval of least cost (paper A, Lemma 1, eq. 2).

    Infinite without hazard or bandwidth.
    """
    if hazard_per_s == 0.0:
        return math.inf
    return math.sqrt(2.0 * transfer_s(payload_bytes, rate_bytes_per_s) / hazard_per_s)


def network_floor_s(payload_bytes: float, rate_bytes_per_s: float, beta: float = BETA) -> float:
    """Return C/(beta b), the shortest interval whose writes occupy at most beta of the slice (paper A, eq. 9)."""
    return transfer_s(payload_bytes, rate_bytes_per_s) / beta


def bandwidth_needed(payload_bytes: float, loss_budget_s: float, beta: float = BETA) -> float:
    """Return C/(2 beta L_max) in bytes/s, at which eq. (9)'s floor meets its cap: less cannot keep the budget."""
    return transfer_s(payload_bytes, 2.0 * beta * loss_budget_s)


def constrained_interval(
    hazard_per_s: float,
    payload_bytes: float,
    rate_bytes_per_s: float,
    loss_budget_s: float = math.inf,
    beta: float = BETA,
    pause_s: float = math.inf,
) -> Interval:
    """Clip Lemma 1 into [C/(beta b), 2 L_max] (paper A, eq. 9); a floor above the cap wins.

    `pause_s`: seconds for which a checkpoint stops the job, where that is less than the whole write: sqrt(2 pause/lambda) then
    stands in Lemma 1's place.
    """
    floor_s, cap_s = network_floor_s(payload_bytes, rate_bytes_per_s, beta), 2.0 * loss_budget_s
    interval_s, bound = local_interval_s(hazard_per_s, payload_bytes, rate_bytes_per_s), RateBound.YOUNG
    if pause_s < math.inf:
        interval_s = math.sqrt(2.0 * pause_s / hazard_per_s) if hazard_per_s > 0.0 else math.inf
    if interval_s > cap_s:
        interval_s, bound = cap_s, RateBound.LOSS_BUDGET
    if interval_s < floor_s:
        interval_s, bound = floor_s, RateBound.NETWORK
    return _interval(interval_s, bound, payload_bytes, rate_bytes_per_s, loss_budget_s, beta)


def plan_as_printed(
    jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float = BETA
) -> dict[str, CheckpointSchedule]:
    """Allocate by cube roots, and apply eq. (9) after it: loss budgets do not affect the allocation."""
    shared = sharing.fill([_demand(job) for job in jobs], capacity)
    return {job.key: _planned(job, shared, beta) for job in jobs}


def plan_one_interval(
    jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float = BETA
) -> dict[str, CheckpointSchedule]:
    """Plan one interval for all, sqrt(2 C Theta/lambda) of the means of this epoch (paper A, appendix C: B7).

    Rates are as in `plan_as_printed`. The tightest loss budget caps the interval for all (eq. 9): with different constraints
    a comparison would not show the effect of adaptivity alone.
    """
    shared = sharing.fill([_demand(job) for job in jobs], capacity)
    slowness = [1.0 / rate for rate in shared.rates.values() if rate > 0.0]
    if not slowness:  # no job has bandwidth, or there is none
        return {job.key: _fixed(job, shared, math.inf, beta) for job in jobs}
    interval_s = stationary_interval_s(
        payload_bytes=_mean([job.payload_bytes for job in jobs]),
        mean_hazard_per_s=_mean([job.hazard_per_s for job in jobs]),
        mean_s_per_byte=_mean(slowness),
    )
    capped_s = min([interval_s, *(2.0 * job.loss_budget_s for job in jobs)])
    return {job.key: _fixed(job, shared, capped_s, beta) for job in jobs}


@dataclass(frozen=True, slots=True)
class StaticPlanner:
    """Planner with one period for all jobs, whatever is measured (paper A's B3), and equal shares of the links."""

    interval_s: float = STATIC_INTERVAL_S

    def __call__(
        self, jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float = BETA
    ) -> dict[str, CheckpointSchedule]:
        shared = sharing.fill([replace(_demand(job), weight=1.0) for job in jobs], capacity)
        return {job.key: _fixed(job, shared, self.interval_s, beta, floored=False) for job in jobs}


def latest_final_start_s(
    deadline_s: float, restart_s: float, payload_bytes: float, rate_bytes_per_s: float
) -> float:
    """Return tau - T_r - C/b on the clock of `deadline_s`: a start at this moment keeps the work of the window.

    At P3's bare minimum rate this is the moment of the notice itself. A job that is to start later asks P3
    for the rate from that later start (`MigrationRequest.start_s`), since only a floor is guaranteed. Minus
    infinity without bandwidth.
    """
    return deadline_s - restart_s - transfer_s(payload_bytes, rate_bytes_per_s)


def stagger(index: int, interval_s: float) -> float:
    """Return the first-fire offset in [0, interval) of the index-th job's timer.

    Multiples of the golden ratio, modulo 1: any n jobs numbered in a row are at least 0.38/n of an interval
    apart, whatever n becomes later (three-gap theorem), so no timer moves when a job arrives. Deadline
    flows are never staggered: it breaks Theorem 3. An infinite interval (never) has an infinite offset.
    """
    if math.isinf(interval_s):
        return math.inf
    return math.fmod(index * INVERSE_GOLDEN_RATIO, 1.0) * interval_s


@dataclass(frozen=True, slots=True)
class AdaptivityGap:
    """Saving of intervals that follow the state (paper A, Theorem 2)."""

    ratio: float  # eq. (6)
    defect: float  # Delta_CS, eq. (8)
    gap: float  # the cost difference, eq. (7)


def adaptivity_gap(
    hazards_per_s: Sequence[float], rates_bytes_per_s: Sequence[float], payload_bytes: float
) -> AdaptivityGap:
    """Compute Theorem 2 on epochs of equal length, their hazards and bandwidths paired. ValueError: not so.

    The identity holds on any trace. Correlation of hazard with 1/bandwidth *shrinks* the gap; the paper has it the other way.
    """
    if not hazards_per_s or len(hazards_per_s) != len(rates_bytes_per_s):
        raise ValueError("hazards and rates: one of each for every epoch, at least one epoch")
    theta = _mean([1.0 / rate for rate in rates_bytes_per_s])
    root = math.sqrt(_mean(hazards_per_s) * theta)
    mean_w = _mean([math.sqrt(h / b) for h, b in zip(hazards_per_s, rates_bytes_per_s, strict=True)])
    defect = root * root - mean_w * mean_w
    return AdaptivityGap(root / mean_w, defect, math.sqrt(2.0 * payload_bytes) * (root - mean_w))


def stationary_interval_s(payload_bytes: float, mean_hazard_per_s: float, mean_s_per_byte: float) -> float:
    """Return sqrt(2 C Theta/lambda), Theta = E[1/B]: the best single interval (Theorem 2's proof)."""
    if mean_hazard_per_s == 0.0:
        return math.inf
    return math.sqrt(2.0 * payload_bytes * mean_s_per_byte / mean_hazard_per_s)


def _demand(job: CheckpointJob) -> sharing.Demand:
    return sharing.Demand(job.key, job.links, job.weight, cap_bytes_per_s=job.write_cap_bytes_per_s)


def _planned(job: CheckpointJob, shared: sharing.Filling, beta: float) -> CheckpointSchedule:
    rate = shared.rates[job.key]
    interval = constrained_interval(job.hazard_per_s, job.payload_bytes, rate, job.loss_budget_s, beta)
    return CheckpointSchedule(rate, interval)


def _fixed(
    job: CheckpointJob, shared: sharing.Filling, interval_s: float, beta: float, *, floored: bool = True
) -> CheckpointSchedule:
    """Schedule a given interval, held to the network floor if `floored`; the flags are those of the job's loss budget."""
    rate = shared.rates[job.key]
    floor_s = network_floor_s(job.payload_bytes, rate, beta) if floored else 0.0
    chosen_s, bound = (floor_s, RateBound.NETWORK) if floor_s > interval_s else (interval_s, RateBound.YOUNG)
    interval = _interval(chosen_s, bound, job.payload_bytes, rate, job.loss_budget_s, beta)
    return CheckpointSchedule(rate, interval)


def _interval(
    interval_s: float,
    bound: RateBound,
    payload_bytes: float,
    rate_bytes_per_s: float,
    loss_budget_s: float,
    beta: float,
) -> Interval:
    write_s = transfer_s(payload_bytes, rate_bytes_per_s)
    return Interval(
        interval_s=interval_s,
        bound=bound,
        loss_budget_infeasible=not fits(write_s / beta, 2.0 * loss_budget_s),
        expected_loss_s=interval_s / 2.0 + write_s,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _check(key: str, what: str, value: float, good: bool, allowed: str) -> None:
    if not good:
        raise ValueError(
            f"checkpoint job {key}: {what} {value}: a number {allowed}, finite where it has to be"
        )
