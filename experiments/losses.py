"""What reclaims cost: the one definition of work loss, per event and in GPU-hours, for summaries, claims and the oracle.

An *interruption* is an attempt that ended before its job did: a host was taken back, with notice or without, or died. It
lost the steps that the next attempt computes again (`WorkLost`; 0 where a migration carried everything over), and its
downtime is from the stop until the job is proved to run again. *Work loss* is the sum over all interruptions, in hours of
a GPU, since a job holds one. *Per event* is that sum over the number of interruptions, those that lost nothing included.
A job that is not dispatched again before the run ends has lost nothing yet, and is counted as open.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.core import facts as f
from experiments.history import Attempt, Timed, attempts

SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Interruption:
    """One attempt that ended before its job: `cause` as in `history`, `is_open` if nobody has gone on with the job."""

    at_s: float
    job: str
    host: str
    cause: str
    lost_s: float
    downtime_s: float | None
    is_open: bool


@dataclass(frozen=True, slots=True)
class Losses:
    """Of a run. `per_event_s` is None where nothing was interrupted."""

    events: int
    gpu_h: float
    per_event_s: float | None


def interruptions(facts: Sequence[Timed]) -> list[Interruption]:
    """All of them, in order of time."""
    tries = attempts(facts)
    lost_s, downtimes_s, last = _lost(facts), _downtimes(facts), _last_attempts(tries)
    found = []
    for attempt in tries:
        if attempt.ended_s is None or attempt.how in ("finished", "failed"):
            continue
        following = attempt.job, attempt.attempt + 1
        found.append(
            Interruption(
                attempt.ended_s,
                attempt.job,
                attempt.host,
                attempt.how,
                lost_s.get(following, 0.0),
                downtimes_s.get(following),
                last[attempt.job] == attempt.attempt,
            )
        )
    return sorted(found, key=lambda each: (each.at_s, each.job))


def losses(found: Iterable[Interruption]) -> Losses:
    """Sum and mean."""
    each_s = [one.lost_s for one in found]
    total_s = sum(each_s)
    return Losses(len(each_s), total_s / SECONDS_AN_HOUR, statistics.fmean(each_s) if each_s else None)


def _lost(facts: Iterable[Timed]) -> dict[tuple[str, int], float]:
    """By (job, the attempt that computes it again)."""
    found: dict[tuple[str, int], float] = {}
    for _, fact in facts:
        if isinstance(fact, f.WorkLost):
            key = fact.job, fact.attempt
            found[key] = found.get(key, 0.0) + fact.work_lost_s
    return found


def _downtimes(facts: Iterable[Timed]) -> dict[tuple[str, int], float]:
    """By (job, the attempt that ran again)."""
    return {
        (fact.job, fact.attempt): fact.downtime_s
        for _, fact in facts
        if isinstance(fact, f.JobRunning) and fact.downtime_s is not None
    }


def _last_attempts(tries: Iterable[Attempt]) -> dict[str, int]:
    found: dict[str, int] = {}
    for attempt in tries:
        found[attempt.job] = max(attempt.attempt, found.get(attempt.job, 0))
    return found
