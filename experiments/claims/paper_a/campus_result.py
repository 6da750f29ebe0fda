"""The result kept of a run of a campus: a few kilobytes from which tables, figures and rankings are made.

Times of day are hours of the run, which begins at midnight. Jobs are named by their number in the trace, so that a
claim can ask for their payload or class without the trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from experiments.inputs.traces import Trace
from experiments.results.history import OVER, Attempt, attempts, notices
from experiments.results.loss_budgets import hours_over_budget
from experiments.results.losses import SECONDS_AN_HOUR, interruptions, work_lost
from experiments.results.lost_time import LostPart
from experiments.results.summary import LostGpuTime
from experiments.worlds.virtual import VirtualRun

DAY_S = 86_400.0


def compact(run: VirtualRun, trace: Trace) -> dict[str, Any]:
    """Return the result of a run for JSON.

    `interruptions` and `migrations` are a list each, see the functions. `days`, `over_budget`, `lost_time` and
    counts follow. `expected_emergencies_s` and `online_s` are null where they cannot be computed. `research` holds
    the shortfall of research flows; null if there are none.
    """
    summary = run.summary()
    lost = summary.lost_time
    return {
        "interruptions": [_rounded(row) for row in _interruptions(run, trace)],
        "migrations": [_rounded(row) for row in _migrations(run)],
        "days": [_rounded(row) for row in _days(run, trace)],
        "over_budget": _rounded(hours_over_budget(run.facts, trace.arrivals, run.context)),
        # seconds of a GPU, by part
        "lost_time": {part: round(getattr(lost, f"{part}_s"), 3) for part in LostPart},
        "work_lost_s": lost.work_lost_s,
        "useful_s": lost.useful_s,
        "expected_emergencies_s": lost.expected_emergencies_s,
        "online_s": online_of(lost),
        "research": None if run.background is None else run.background.figures(),
        "submitted": summary.jobs.submitted,
        "finished": summary.jobs.finished,
        "checkpoint_gb": round(summary.checkpoints.bytes_sent / 1e9, 3),
        "broken": sorted({broken.rule for broken in summary.invariants_broken}),
    }


def online_of(lost: LostGpuTime) -> list[float] | None:
    """Return (any, within loss budgets, its forced part): the least sum of mean emergencies and pauses; None: it is unknown."""
    found = lost.online_bound_s, lost.online_bound_within_budgets_s, lost.online_bound_forced_s
    return None if None in found else [each for each in found if each is not None]


def _interruptions(run: VirtualRun, trace: Trace) -> Iterator[list[Any]]:
    """Yield [hour of the run, job number, its payload in GB, cause, s of work lost, downtime in s]; null: not gone on yet."""
    numbers = {arrival.job.name: number for number, arrival in enumerate(trace.arrivals)}
    for one in interruptions(run.facts):
        number = numbers[one.job]
        payload_gb = trace.arrivals[number].job.payload_bytes / 1e9
        lost_s = None if one.is_open else one.lost_s
        yield [one.at_s / SECONDS_AN_HOUR, number, payload_gb, one.cause, lost_s, one.downtime_s]


def _migrations(run: VirtualRun) -> Iterator[list[Any]]:
    """Yield a row a job and notice: [hour, notice in s, outcome, downtime in s or null, same building or null, payload in GB].

    Outcomes: `in time`, `late`, `refused` (at once or later), `other` (the job ended first, or the run).
    """
    building = {host.name: host.building for host in run.context.campus.hosts}
    for notice in notices(run.facts):
        moved = notice.finished_s is not None and notice.destination is not None
        same = building[notice.source] == building[notice.destination or ""] if moved else None
        outcome = "in time" if notice.in_time else "late" if moved else "refused" if notice.degraded else "other"
        hour = notice.at_s / SECONDS_AN_HOUR
        payload_gb = notice.payload_bytes / 1e9
        yield [hour, notice.notice_s, outcome, notice.downtime_s, same, payload_gb]


def _days(run: VirtualRun, trace: Trace) -> list[list[float]]:
    """Return the GPU-hours of each day: [of jobs begun and not done, useful ones of these, lent by owners].

    A job is begun with its first dispatch; interruptions count until it is done. Attempts that go on at the end are
    left out.
    """
    end_s = run.context.ended_at_s or 0.0
    borders_s = DAY_S * np.arange(max(1, math.ceil(end_s / DAY_S - 1e-3)) + 1)
    borders_s[-1] = math.inf
    days = np.zeros((len(borders_s) - 1, 3))

    def spread(column: int, from_s: float, until_s: float, gpus: float) -> None:
        """Count so many GPUs from one time to another."""
        within_s = np.minimum(until_s, borders_s[1:]) - np.maximum(from_s, borders_s[:-1])
        days[:, column] += gpus * np.maximum(0.0, within_s) / SECONDS_AN_HOUR

    again_s = {(lost.job, lost.attempt): lost.work_s for lost in work_lost(run.facts)}
    step_s = {arrival.job.name: arrival.job.step_s for arrival in trace.arrivals}
    of_job: dict[str, list[Attempt]] = {}
    for attempt in attempts(run.facts):
        of_job.setdefault(attempt.job, []).append(attempt)
        if attempt.ended_s is not None and attempt.ended_s > attempt.dispatched_s:
            executed_s = (attempt.to_step - attempt.from_step) * step_s[attempt.job] / attempt.speed
            useful_s = executed_s - again_s.get((attempt.job, attempt.attempt), 0.0)
            share = useful_s / (attempt.ended_s - attempt.dispatched_s)
            spread(1, attempt.dispatched_s, attempt.ended_s, share)
    # a job is in progress until it ends; one that is on a host at the end, until it came there
    for tries in of_job.values():
        last = tries[-1]
        is_over = last.how in OVER
        until_s = last.dispatched_s if last.ended_s is None else last.ended_s if is_over else end_s
        spread(0, tries[0].dispatched_s, until_s, 1.0)
    gpus = {host.name: host.gpus for host in run.context.campus.hosts}
    for host, from_s, until_s in lent_spells(trace, gpus, end_s):
        spread(2, from_s, until_s, gpus[host])
    found: list[list[float]] = days.tolist()
    return found


def lent_spells(trace: Trace, hosts: Iterable[str], end_s: float) -> Iterator[tuple[str, float, float]]:
    """Yield (host, from, until) of each time that an owner lends a host; a host under notice is still lent."""
    away = set(trace.away)
    lent: dict[str, float] = {host: 0.0 for host in hosts if host not in away}
    for event in trace.owner_events:
        if event.kind == "return":
            lent[event.host] = event.at_s
        elif event.host in lent:
            yield event.host, lent.pop(event.host), min(end_s, event.gone_s)
    for host, from_s in lent.items():
        yield host, from_s, end_s


def _rounded(row: Sequence[Any]) -> list[Any]:
    return [round(cell, 4) if isinstance(cell, float) else cell for cell in row]
