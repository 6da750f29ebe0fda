"""P1's closed forms (paper A, section V): intervals, joint allocation, and what adapting to the state saves.

Seconds, bytes, bytes/s, hazards per second. The formulas are `controller.core.checkpointing`'s, which the coordinator runs;
here are their domains, the costs at the optimum, and Theorem 2 for a lognormal state.

Theorem 2's story is printed backwards. The gap is the Cauchy-Schwarz defect of (sqrt lambda, sqrt 1/B): if hazard and
slowness rise *together*, the best interval sqrt(2C/(lambda B)) hardly moves, and one fixed interval is nearly right.
Correlation of lambda and 1/B shrinks the gap, and lambda B constant is only the extreme of it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from controller.core.checkpointing import intervals
from controller.core.checkpointing.intervals import (
    BETA,
    AdaptivityGap,
    CheckpointJob,
    Interval,
)
from controller.core.placement import hazard
from experiments.theory.domain import DomainError, not_negative, positive, require


@dataclass(frozen=True, slots=True)
class Allocation:
    """Rates b_i (bytes/s), intervals (s; infinite: never) and the sum of the cost rates at them (s lost per s)."""

    rates: tuple[float, ...]
    intervals_s: tuple[float, ...]
    total_cost: float


def local_interval_s(hazard_per_s: float, payload_bytes: float, rate_bytes_per_s: float) -> float:
    """sqrt(2C/(lambda B)) (Lemma 1, eq. 2); infinite without hazard or bandwidth. DomainError: a negative argument."""
    _job(hazard_per_s, payload_bytes, rate_bytes_per_s)
    return intervals.local_interval_s(hazard_per_s, payload_bytes, rate_bytes_per_s)


def cost_rate(interval_s: float, hazard_per_s: float, payload_bytes: float, rate_bytes_per_s: float) -> float:
    """lambda D/2 + C/(B D) (eq. 1 and 3). DomainError: an interval that is not above 0 and finite."""
    _job(hazard_per_s, payload_bytes, rate_bytes_per_s)
    return intervals.cost_rate(
        positive("interval", interval_s), hazard_per_s, payload_bytes, rate_bytes_per_s
    )


def least_cost_rate(hazard_per_s: float, payload_bytes: float, rate_bytes_per_s: float) -> float:
    """sqrt(2 lambda C/B), the cost at Lemma 1's interval; 0 without hazard, infinite without bandwidth."""
    _job(hazard_per_s, payload_bytes, rate_bytes_per_s)
    if hazard_per_s == 0.0:
        return 0.0
    return math.sqrt(2.0 * hazard_per_s * intervals.transfer_s(payload_bytes, rate_bytes_per_s))


def allocation(
    hazards_per_s: Sequence[float],
    payloads_bytes: Sequence[float],
    budget_bytes_per_s: float,
    caps_bytes_per_s: Sequence[float] | None = None,
) -> Allocation:
    """The joint optimum of jobs on one budget (Theorem 1), under write caps W_i (Lemma 2).

    A budget above the sum of the caps is left unused; a job without hazard gets nothing, unless none has any.
    DomainError: lists of different lengths, or values outside their domains.
    """
    caps = [math.inf] * len(payloads_bytes) if caps_bytes_per_s is None else list(caps_bytes_per_s)
    lengths = (len(hazards_per_s), len(payloads_bytes), len(caps))
    require(len(set(lengths)) == 1, "hazards, payloads and caps", lengths, "must be lists of one length")
    not_negative("budget", budget_bytes_per_s)
    try:
        jobs = [
            CheckpointJob(f"{i}", payload, rate, (), cap)
            for i, (rate, payload, cap) in enumerate(zip(hazards_per_s, payloads_bytes, caps, strict=True))
        ]
    except ValueError as error:
        raise DomainError("job", str(error), "must be in the domain of Lemma 2") from error
    found = intervals.allocate(jobs, budget_bytes_per_s)
    rates = tuple(found[job.key] for job in jobs)
    priced = [(job.hazard_per_s, job.payload_bytes, rate) for job, rate in zip(jobs, rates, strict=True)]
    return Allocation(
        rates,
        tuple(intervals.local_interval_s(*each) for each in priced),
        math.fsum(least_cost_rate(*each) for each in priced),
    )


def adaptivity_gap(
    hazards_per_s: Sequence[float], rates_bytes_per_s: Sequence[float], payload_bytes: float = 1.0
) -> AdaptivityGap:
    """Theorem 2 (eq. 6-8) on epochs of equal length. DomainError: no epochs, B <= 0, or no hazard at all (0/0)."""
    lengths = (len(hazards_per_s), len(rates_bytes_per_s))
    require(
        min(lengths) == max(lengths) > 0,
        "epochs",
        lengths,
        "must be one hazard and one rate each, at least one",
    )
    for h, b in zip(hazards_per_s, rates_bytes_per_s, strict=True):
        not_negative("hazard", h)
        positive("rate", b)
    require(any(hazards_per_s), "hazards", hazards_per_s, "must not all be 0: the ratio is 0/0")
    return intervals.adaptivity_gap(hazards_per_s, rates_bytes_per_s, positive("payload", payload_bytes))


def fixed_interval_s(
    hazards_per_s: Sequence[float], rates_bytes_per_s: Sequence[float], payload_bytes: float = 1.0
) -> float:
    """sqrt(2 C E[1/B]/E[lambda]), the best interval that does not follow the state (Theorem 2's proof)."""
    require(len(hazards_per_s) == len(rates_bytes_per_s) > 0, "epochs", len(hazards_per_s), "must be paired")
    slowness = [1.0 / positive("rate", b) for b in rates_bytes_per_s]
    mean_hazard, mean_slowness = statistics.fmean(hazards_per_s), statistics.fmean(slowness)
    return intervals.stationary_interval_s(payload_bytes, mean_hazard, mean_slowness)


def lognormal_gap_ratio(cv_hazard: float, cv_slowness: float, log_correlation: float = 0.0) -> float:
    """Eq. (6) for lognormal lambda and 1/B: exp((s^2 + t^2 - 2 rho s t)/8), s^2 = log(1 + cv^2).

    `log_correlation`: rho of their logarithms, in [-1, 1]. It shrinks the gap.
    """
    require(-1.0 <= log_correlation <= 1.0, "correlation", log_correlation, "must be from -1 to 1")
    s, t = (math.sqrt(math.log1p(not_negative("CV", cv) ** 2)) for cv in (cv_hazard, cv_slowness))
    return math.exp((s * s + t * t - 2.0 * log_correlation * s * t) / 8.0)


def write_s(payload_bytes: float, rate_bytes_per_s: float) -> float:
    """C/B, the time of a write; infinite without bandwidth. DomainError: a negative argument."""
    _job(0.0, payload_bytes, rate_bytes_per_s)
    return intervals.transfer_s(payload_bytes, rate_bytes_per_s)


@dataclass(frozen=True, slots=True)
class BindingRegimes:
    """Where the link and not the disk limits a write: the share of epochs, and eq. (6)'s ratio of all and of those epochs."""

    share: float
    ratio: float
    ratio_where_binding: float | DomainError


def binding_regimes(
    hazards_per_s: Sequence[float], link_bytes_per_s: Sequence[float], write_bytes_per_s: float
) -> BindingRegimes:
    """Appendix C-A, with B_eff = min(W, B); ties are the link's. Raises as `adaptivity_gap`.

    The ratio of the epochs in which the link binds is the DomainError where there are none, or none with a hazard.
    """
    positive("W", write_bytes_per_s)
    both = list(zip(hazards_per_s, link_bytes_per_s, strict=False))
    binding = [(hazard, link) for hazard, link in both if link <= write_bytes_per_s]
    ratio = adaptivity_gap(hazards_per_s, [min(link, write_bytes_per_s) for link in link_bytes_per_s]).ratio
    try:
        there: float | DomainError = adaptivity_gap([h for h, _ in binding], [b for _, b in binding]).ratio
    except DomainError as error:
        there = error
    return BindingRegimes(len(binding) / len(both), ratio, there)


def constrained_interval(
    hazard_per_s: float,
    payload_bytes: float,
    rate_bytes_per_s: float,
    loss_budget_s: float = math.inf,
    beta: float = BETA,
) -> Interval:
    """Eq. (9): Young's interval between C/(beta b) and 2 L_max; a floor above the cap wins and is flagged.

    DomainError: beta outside (0, 1], or negative values.
    """
    _job(hazard_per_s, payload_bytes, rate_bytes_per_s)
    require(loss_budget_s >= 0.0, "L_max", loss_budget_s, "must be 0 or more")
    require(0.0 < beta <= 1.0, "beta", beta, "must be a share above 0, up to 1")
    return intervals.constrained_interval(hazard_per_s, payload_bytes, rate_bytes_per_s, loss_budget_s, beta)


def network_floor_s(payload_bytes: float, rate_bytes_per_s: float, beta: float = BETA) -> float:
    """C/(beta b): the shortest interval whose writes take at most beta of the slice; infinite without bandwidth."""
    _job(0.0, payload_bytes, rate_bytes_per_s)
    require(0.0 < beta <= 1.0, "beta", beta, "must be a share above 0, up to 1")
    return intervals.network_floor_s(payload_bytes, rate_bytes_per_s, beta)


def hazard_bounds(events: float, exposure: float, level: float = hazard.LEVEL) -> hazard.Hazard:
    """n/T with exact one-sided Poisson bounds; per the unit of `exposure`. DomainError: a level outside (0, 1)."""
    require(0.0 < level < 1.0, "level", level, "must be above 0 and below 1")
    not_negative("events", events)
    return hazard.bounds(hazard.Experience(events, not_negative("exposure", exposure)), level)


def final_checkpoint_s(payload_bytes: float, rate_bytes_per_s: float, restart_s: float) -> float:
    """C/b + T_r, to be held against the notice (section V-A); infinite without bandwidth."""
    _job(0.0, payload_bytes, rate_bytes_per_s)
    return intervals.transfer_s(payload_bytes, rate_bytes_per_s) + not_negative("T_r", restart_s)


def _job(hazard_per_s: float, payload_bytes: float, rate_bytes_per_s: float) -> None:
    not_negative("hazard", hazard_per_s)
    not_negative("payload", payload_bytes)
    require(rate_bytes_per_s >= 0.0, "rate", rate_bytes_per_s, "must be 0 or more")
