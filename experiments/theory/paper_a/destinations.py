"""P2's closed forms (paper A, section VI): transfer times, survival and the score; by `controller.core.placement`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from controller.core.checkpointing import intervals
from controller.core.placement import hazard, select
from experiments.theory.domain import not_negative, require, share

HOURS = 24


def migration_s(payload_bytes: float, bottleneck_bytes_per_s: float, restart_s: float) -> float:
    """T_mig = C/bw + T_r (eq. 10); infinite without bandwidth. DomainError: a negative argument."""
    not_negative("payload", payload_bytes)
    require(bottleneck_bytes_per_s >= 0.0, "bw", bottleneck_bytes_per_s, "must be 0 or more")
    return intervals.transfer_s(payload_bytes, bottleneck_bytes_per_s) + not_negative("T_r", restart_s)


def survival(hourly_per_s: Sequence[float], start_s: float, duration_s: float) -> float:
    """S = exp(-integral of h) over an hourly table that wraps at midnight (section VI-B).

    `start_s` is a time of day (any: it wraps); an infinite duration is survived only without hazard. DomainError: not 24
    rates of 0 or more, or a negative duration.
    """
    _table(hourly_per_s, start_s, duration_s)
    return hazard.survival(hourly_per_s, start_s, duration_s)


def expected_reclaims(hourly_per_s: Sequence[float], start_s: float, duration_s: float) -> float:
    """The integral of h, which does not saturate as 1 - S does. Domain as for `survival`."""
    _table(hourly_per_s, start_s, duration_s)
    return hazard.expected_reclaims(hourly_per_s, start_s, duration_s)


def score_s(migration_s: float, survival: float, mean_onward_s: float, alpha: float = select.ALPHA) -> float:
    """T_mig + alpha (1 - S) mean T_mig(d), in seconds (eq. 11). DomainError: S outside [0, 1], or a negative argument."""
    for name, value in (("T_mig", migration_s), ("mean T_mig", mean_onward_s), ("alpha", alpha)):
        require(value >= 0.0, name, value, "must be 0 or more")
    return select.score_s(migration_s, 1.0 - share("S", survival), mean_onward_s, alpha)


@dataclass(frozen=True, slots=True)
class Locality:
    """Lemma 3 on given bottlenecks: the best transfer within the building and across it, restart included.

    `separated`: no path within is slower than the quickest across, which is what the lemma assumes.
    """

    local_s: float
    cross_s: float
    separated: bool


def locality(
    payload_bytes: float, local: Sequence[float], cross: Sequence[float], restart_s: float
) -> Locality:
    """Lemma 3, from the bottlenecks (bytes/s) of paths within the building and across. DomainError: none of either."""
    require(min(len(local), len(cross)) > 0, "paths", (len(local), len(cross)), "must be some of both kinds")
    within, across = (
        [migration_s(payload_bytes, bandwidth, restart_s) for bandwidth in some] for some in (local, cross)
    )
    return Locality(min(within), min(across), min(local) >= max(cross))


def _table(hourly_per_s: Sequence[float], start_s: float, duration_s: float) -> None:
    require(len(hourly_per_s) == HOURS, "hourly table", len(hourly_per_s), "must have 24 rates")
    for rate in hourly_per_s:
        not_negative("hourly rate", rate)
    require(math.isfinite(start_s), "start", start_s, "must be a finite time of day")
    require(duration_s >= 0.0, "duration", duration_s, "must be 0 or more")
