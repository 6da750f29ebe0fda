"""P1: how often each job checkpoints, and at what rate (paper A, section V and Algorithm 1).

A checkpoint interval D trades lost work against bandwidth: at a reclaim D/2 is lost on average, lambda D/2
per second; a payload C written at rate b every D seconds occupies the slice for a share C/(b D) of the time
(eq. 1 and 3). One job: D = sqrt(2C/(lambda b)) (Lemma 1, Young's formula with measured quantities), cost
sqrt(2 lambda C/b). Many jobs on one budget: minimise sum sqrt(2 lambda_i C_i/b_i) subject to sum b_i <= B and
b_i <= W_i. Stationarity gives b_i proportional to (lambda_i C_i)^(1/3) (Theorem 1), bounds clip it (Lemma 2),
and that is one call of `max_min.fill` with these weights: the level is, up to a constant, the Lagrange
multiplier to the power -2/3. Lemma 2's printed loop computes the same point, a cap at a time.

Where this follows the paper's formulas but departs from its text:

- **Many links.** The paper has one budget. Here every link crossed has one, and the cube-root weights are
  shared max-min over the network. That equals Theorem 1 on any single link; on a network it is the natural
  generalisation and not the exact minimiser (which is 3/2-fair: a flow pays at every link it crosses). The
  exact one is `planner`.
- **Loss budgets enter the allocation.** L_max bounds D/2, as in the paper, and not D/2 + C/b, the mean loss at a reclaim:
  with beta of .9 that is up to 2.8 L_max. Eq. (9) clips D into [C/(beta b), 2 L_max] after b is fixed. If the
  floor is above the cap, the clip has no answer (and a library's `clip` returns the cap, silently breaking
  beta). But floor <= cap is a statement on bandwidth, b >= C/(2 beta L_max), so it is given to the allocator
  as a lower bound.
- **Bounds that cannot be met** (over the write cap, or together over a link) are dropped for the jobs
  concerned: for these D is the floor, the loss budget is flagged infeasible and the loss that they will see
  is reported. Which jobs to save on an overloaded link is a knapsack; this rule does not choose, so it
  depends on no order.
- **A snapshot protects only when its write has completed**: the mean loss at a reclaim is D/2 + C/b, not D/2.
- **Zero hazard** has weight 0, so such a job gets its lower bound and the longest interval allowed, 2 L_max.
- **Algorithm 1** redistributes inside its loop, once a job; here once over all jobs. Its final-checkpoint
  test is true in every tick once it is true; here it is asked once, when the reclaim is admitted, with the
  rate that P3 guarantees (`admission`), and the flow goes through P3 like any other.

Hazards are per second. With hazards per hour and rates per second the formula returns the right number, in
minutes.
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
    """What decided an interval."""

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
        """(lambda C)^(1/3): Theorem 1."""
        return cbrt(self.hazard_per_s * self.payload_bytes)


@dataclass(frozen=True, slots=True)
class Interval:
    """Eq. (9)'s answer."""

    interval_s: float
    bound: RateBound
    loss_budget_infeasible: bool  # the network floor C/(beta b) is above 2 L_max; the interval is the floor
    physically_infeasible: bool  # even writing without a pause (beta = 1), C/b is above 2 L_max
    expected_loss_s: float  # mean work lost at a reclaim, D/2 + C/b
    bandwidth_needed_bytes_per_s: float  # the slice that would make the budget feasible, C/(2 beta L_max)


@dataclass(frozen=True, slots=True)
class CheckpointSchedule:
    """What P1 tells a job and exports to P3: write at `rate_bytes_per_s` every `interval_s`."""

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
    """C/b: seconds on the wire; 0 for nothing to send, infinity without bandwidth."""
    if payload_bytes == 0.0:
        return 0.0
    return payload_bytes / rate_bytes_per_s if rate_bytes_per_s > 0.0 else math.inf


def local_interval_s(hazard_per_s: float, payload_bytes: float, rate_bytes_per_s: float) -> float:
    """sqrt(2C/(lambda b)), the interval of least cost (paper A, Lemma 1, eq. 2).

    Infinite without hazard or bandwidth.
    """
    if hazard_per_s == 0.0:
        return math.inf
    return math.sqrt(2.0 * transfer_s(payload_bytes, rate_bytes_per_s) / hazard_per_s)


def cost_rate(interval_s: float, hazard_per_s: float, payload_bytes: float, rate_bytes_per_s: float) -> float:
    """Seconds lost per second: lambda D/2 + C/(b D), for 0 < D < infinity (paper A, eq. 1 and 3)."""
    return hazard_per_s * interval_s / 2.0 + transfer_s(payload_bytes, rate_bytes_per_s) / interval_s


def network_floor_s(payload_bytes: float, rate_bytes_per_s: float, beta: float = BETA) -> float:
    """C/(beta b): the shortest interval whose writes occupy at most beta of the slice (paper A, eq. 9)."""
    return transfer_s(payload_bytes, rate_bytes_per_s) / beta


def bandwidth_needed(payload_bytes: float, loss_budget_s: float, beta: float = BETA) -> float:
    """C/(2 beta L_max) in bytes/s, where eq. (9)'s floor meets its cap: less cannot keep the budget."""
    return transfer_s(payload_bytes, 2.0 * beta * loss_budget_s)


def constrained_interval(
    hazard_per_s: float,
    payload_bytes: float,
    rate_bytes_per_s: float,
    loss_budget_s: float = math.inf,
    beta: float = BETA,
    pause_s: float = math.inf,
) -> Interval:
    """Lemma 1 clipped into [C/(beta b), 2 L_max] (paper A, eq. 9); a floor above the cap wins.

    `pause_s`: what a checkpoint stops the job for, if that is not the whole write: sqrt(2 pause/lambda) in Lemma 1's place.
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


def allocate(
    jobs: Sequence[CheckpointJob], budget_bytes_per_s: float, beta: float = BETA
) -> dict[str, float]:
    """Rates b_i of jobs that share one budget B_ckpt (paper A, Theorem 1 and Lemma 2); links are ignored.

    The exact minimiser of sum sqrt(2 lambda_i C_i/b_i) under caps W_i and the loss budgets' lower bounds. A
    budget above the sum of the caps is left unused; an empty set gets an empty answer.
    """
    budget = DirectedLink("checkpoint", "budget")
    shared = [replace(job, links=(budget,)) for job in jobs]
    return _fill(shared, {budget: budget_bytes_per_s}, beta).rates


def plan(
    jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float = BETA
) -> dict[str, CheckpointSchedule]:
    """Rate and interval of every job over the links that they share: Algorithm 1's tick, corrected.

    `capacity` is each link's checkpoint budget in payload bytes/s, a lower bound, after P3's research
    reserve. ValueError: a link without a capacity, a key twice.
    """
    shared = _fill(jobs, capacity, beta)
    return {job.key: _planned(job, shared, beta) for job in jobs}


def plan_as_printed(
    jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float = BETA
) -> dict[str, CheckpointSchedule]:
    """Cube-root allocation first, eq. (9) after it: loss budgets have no say in the allocation."""
    shared = sharing.fill([_demand(job, 0.0) for job in jobs], capacity)
    return {job.key: _planned(job, shared, beta) for job in jobs}


def plan_one_interval(
    jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float = BETA
) -> dict[str, CheckpointSchedule]:
    """One interval for all, sqrt(2 C Theta/lambda) of the means of this epoch (paper A, appendix C: B7).

    Rates as in `plan_as_printed`; no job's own hazard or payload has a say in its interval. The tightest loss budget caps it
    for all (eq. 9): with different constraints, adaptivity would not be what is compared.
    """
    shared = sharing.fill([_demand(job, 0.0) for job in jobs], capacity)
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
    """A period set once for all jobs, whatever is measured (paper A's B3). Called like `plan`.

    Equal shares of the links; the network floor C/(beta b) still holds, unless `floor` says otherwise: it is P1's.
    """

    interval_s: float = STATIC_INTERVAL_S
    floor: bool = True

    def __call__(
        self, jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float = BETA
    ) -> dict[str, CheckpointSchedule]:
        shared = sharing.fill([replace(_demand(job, 0.0), weight=1.0) for job in jobs], capacity)
        occupies = beta if self.floor else math.inf
        return {job.key: _fixed(job, shared, self.interval_s, beta, occupies) for job in jobs}


def latest_final_start_s(
    deadline_s: float, restart_s: float, payload_bytes: float, rate_bytes_per_s: float
) -> float:
    """tau - T_r - C/b on the clock of `deadline_s`: start here, and the work of the window is kept.

    At P3's bare minimum rate this is the moment of the notice itself. A job that is to start later asks P3
    for the rate from that later start (`MigrationRequest.start_s`), since only a floor is guaranteed. Minus
    infinity without bandwidth.
    """
    return deadline_s - restart_s - transfer_s(payload_bytes, rate_bytes_per_s)


def stagger(index: int, interval_s: float) -> float:
    """First-fire offset in [0, interval) of the index-th job's timer.

    Multiples of the golden ratio, modulo 1: any n jobs numbered in a row are at least 0.38/n of an interval
    apart, whatever n becomes later (three-gap theorem), so no timer moves when a job arrives. Deadline
    flows are never staggered: it breaks Theorem 3. An infinite interval (never) has an infinite offset.
    """
    if math.isinf(interval_s):
        return math.inf
    return math.fmod(index * INVERSE_GOLDEN_RATIO, 1.0) * interval_s


@dataclass(frozen=True, slots=True)
class AdaptivityGap:
    """What intervals that follow the state save (paper A, Theorem 2)."""

    ratio: float  # eq. (6)
    defect: float  # Delta_CS, eq. (8)
    gap: float  # the cost difference, eq. (7)


def adaptivity_gap(
    hazards_per_s: Sequence[float], rates_bytes_per_s: Sequence[float], payload_bytes: float
) -> AdaptivityGap:
    """Theorem 2 on epochs of equal length, their hazards and bandwidths paired. ValueError: not so.

    The identity holds on any trace; correlation of hazard with 1/bandwidth *shrinks* the gap (the paper tells
    it the other way).
    """
    if not hazards_per_s or len(hazards_per_s) != len(rates_bytes_per_s):
        raise ValueError("hazards and rates: one of each for every epoch, at least one epoch")
    theta = _mean([1.0 / rate for rate in rates_bytes_per_s])
    root = math.sqrt(_mean(hazards_per_s) * theta)
    mean_w = _mean([math.sqrt(h / b) for h, b in zip(hazards_per_s, rates_bytes_per_s, strict=True)])
    defect = root * root - mean_w * mean_w
    return AdaptivityGap(root / mean_w, defect, math.sqrt(2.0 * payload_bytes) * (root - mean_w))


def stationary_interval_s(payload_bytes: float, mean_hazard_per_s: float, mean_s_per_byte: float) -> float:
    """sqrt(2 C Theta/lambda), Theta = E[1/B]: the best single interval (Theorem 2's proof)."""
    if mean_hazard_per_s == 0.0:
        return math.inf
    return math.sqrt(2.0 * payload_bytes * mean_s_per_byte / mean_hazard_per_s)


def _fill(
    jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float
) -> sharing.Filling:
    """Cube-root shares under caps and the lower bounds that can be kept."""
    # the slice that the loss budget needs; 0 where the write cap forbids it anyway
    needed = [bandwidth_needed(job.payload_bytes, job.loss_budget_s, beta) for job in jobs]
    bounded = [
        _demand(job, least if least <= job.write_cap_bytes_per_s and least < math.inf else 0.0)
        for job, least in zip(jobs, needed, strict=True)
    ]
    floors: dict[DirectedLink, list[float]] = {}
    for demand in bounded:
        for link in demand.links:
            floors.setdefault(link, []).append(demand.floor_bytes_per_s)
    over = {link for link, some in floors.items() if not fits(math.fsum(some), capacity.get(link, math.inf))}
    kept = [replace(d, floor_bytes_per_s=0.0) if over & set(d.links) else d for d in bounded]
    return sharing.fill(kept, capacity)


def _demand(job: CheckpointJob, floor_bytes_per_s: float) -> sharing.Demand:
    return sharing.Demand(job.key, job.links, job.weight, floor_bytes_per_s, job.write_cap_bytes_per_s)


def _planned(job: CheckpointJob, shared: sharing.Filling, beta: float) -> CheckpointSchedule:
    rate = shared.rates[job.key]
    interval = constrained_interval(job.hazard_per_s, job.payload_bytes, rate, job.loss_budget_s, beta)
    return CheckpointSchedule(rate, interval)


def _fixed(
    job: CheckpointJob, shared: sharing.Filling, interval_s: float, beta: float, occupies: float | None = None
) -> CheckpointSchedule:
    """A given interval, held to the network floor only; the flags tell what the job's budget would say.

    `occupies`: the share of its slice that writing may occupy, if it is not beta.
    """
    rate = shared.rates[job.key]
    floor_s = network_floor_s(job.payload_bytes, rate, beta if occupies is None else occupies)
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
        physically_infeasible=write_s > 2.0 * loss_budget_s,
        expected_loss_s=interval_s / 2.0 + write_s,
        bandwidth_needed_bytes_per_s=bandwidth_needed(payload_bytes, loss_budget_s, beta),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _check(key: str, what: str, value: float, good: bool, allowed: str) -> None:
    if not good:
        raise ValueError(
            f"checkpoint job {key}: {what} {value}: a number {allowed}, finite where it has to be"
        )
