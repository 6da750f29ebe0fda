"""What reclaims cost: the one definition of work loss, per event and in GPU-hours, for summaries, claims and the oracle.

An *interruption* is an attempt that ended before its job did: a host was taken back, with notice or without, or died. It
lost the steps that the next attempt computes again (`WorkLost`; 0 where a migration carried everything over), and its
downtime is from the stop until the job is proved to run again. What was given up for lost and taken up later, from a copy
whose holder came back, was not lost (`WorkTakenUp`): it comes off the losses of that job, the latest first, and the attempt
that was stopped for it is no interruption. *Work loss* is the sum over all interruptions, in hours of
a GPU, since a job holds one. *Per event* is that sum over the number of interruptions, those that lost nothing included.
A job that is not dispatched again before the run ends has lost nothing yet, and is counted as open.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec import structs

from controller.core import facts as f
from experiments.history import Attempt, Timed, attempts, only

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
    lost_s = {(lost.job, lost.attempt): lost.work_lost_s for lost in work_lost(facts)}
    downtimes_s, last = _downtimes(facts), _last_attempts(tries)
    found = []
    for attempt in tries:
        if attempt.ended_s is None or attempt.how in ("finished", "failed", "superseded"):
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


def work_lost(facts: Iterable[Timed]) -> list[f.WorkLost]:
    """What was lost for good: every `WorkLost`, less what was taken up after all."""
    stand: list[f.WorkLost] = []
    for _, fact in only(facts, (f.WorkLost, f.WorkTakenUp)):
        if isinstance(fact, f.WorkLost):
            stand.append(fact)
        elif isinstance(fact, f.WorkTakenUp):
            _take_off(stand, fact)
    return stand


def _take_off(stand: list[f.WorkLost], taken_up: f.WorkTakenUp) -> None:
    left_s = taken_up.work_s
    for place in reversed(range(len(stand))):
        if stand[place].job == taken_up.job and left_s > 0.0:
            off_s = min(left_s, stand[place].work_lost_s)
            stand[place] = structs.replace(stand[place], work_lost_s=stand[place].work_lost_s - off_s)
            left_s -= off_s


def _downtimes(facts: Iterable[Timed]) -> dict[tuple[str, int], float]:
    """By (job, the attempt that ran again)."""
    return {
        (fact.job, fact.attempt): fact.downtime_s
        for _, fact in only(facts, (f.JobRunning,))
        if isinstance(fact, f.JobRunning) and fact.downtime_s is not None
    }


def _last_attempts(tries: Iterable[Attempt]) -> dict[str, int]:
    found: dict[str, int] = {}
    for attempt in tries:
        found[attempt.job] = max(attempt.attempt, found.get(attempt.job, 0))
    return found
