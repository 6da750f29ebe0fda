"""P1's inputs and answers for all protected jobs of the live campus at once.

A planner that takes columns is given columns; one that takes `CheckpointJob`s is given those. Either way the answer is
`Planned`: a rate and an interval a job, and the details of one job's interval when they are asked for, which is when its
agent is told of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from controller.core.checkpointing.intervals import CheckpointJob, Interval, constrained_interval
from controller.core.checkpointing.planner import ExactPlanner, JobColumns
from controller.core.lifecycle.candidates import left_for_checkpoints
from controller.core.model.cluster import Cluster
from controller.core.model.entities import JobState
from controller.core.model.occupants import checkpoint_bytes
from controller.core.network.links import filled
from controller.numerics.arrays import Floats, Mask, Numbers

MOST_ROWS = 100_000  # routes remembered: some 10 MB
_HOST, _HOST_STANDBY, _SENT_BYTES = (
    attrgetter("host"),
    attrgetter("host", "standby"),
    attrgetter("sent_bytes"),
)
_PAYLOAD, _LOSS_BUDGET = attrgetter("spec.payload_bytes"), attrgetter("spec.loss_budget_s")
_SPEED = attrgetter("speed")


@dataclass(frozen=True, slots=True)
class Planned:
    """Of each job in order: bytes/s, seconds (infinite: never), whether its loss budget cannot be kept, its hazard."""

    rates_bytes_per_s: Floats
    intervals_s: Floats
    infeasible: Mask
    hazards_per_s: Floats
    interval: Callable[[int], Interval]


def plan_all(cluster: Cluster, jobs: Sequence[JobState], now_s: float) -> Planned:
    """Rates and intervals of all these jobs, every one of which has a host (a volunteer) and a standby."""
    hazards = cluster.hazards_now_per_s(jobs, now_s)
    payloads = np.array(list(map(_PAYLOAD, jobs)), dtype=float)
    counted = checkpoint_bytes(payloads, np.array(list(map(_SENT_BYTES, jobs)), dtype=float))
    if isinstance(cluster.policy.plan, ExactPlanner):
        planned = _in_columns(cluster, cluster.policy.plan, jobs, hazards, payloads, counted, now_s)
    else:
        planned = _in_objects(cluster, jobs, hazards, counted, now_s)
    return _in_step(planned, jobs) if cluster.gangs else planned


def _in_step(planned: Planned, jobs: Sequence[JobState]) -> Planned:
    """The same with one interval for each gang, the longest of its ranks': they take their checkpoints at one step, and none may
    be begun before the slowest stream has carried the last."""
    rows: dict[str, list[int]] = {}
    for row, job in enumerate(jobs):
        if job.gang is not None:
            rows.setdefault(job.gang.spec.name, []).append(row)
    intervals_s = planned.intervals_s.copy()
    for of_gang in rows.values():
        intervals_s[of_gang] = planned.intervals_s[of_gang].max()

    def interval(row: int) -> Interval:
        own, common_s = planned.interval(row), float(intervals_s[row])
        later_s = common_s - own.interval_s
        return replace(own, interval_s=common_s, expected_loss_s=own.expected_loss_s + later_s / 2.0)

    return replace(planned, intervals_s=intervals_s, interval=interval)


def _in_columns(
    cluster: Cluster,
    planner: ExactPlanner,
    jobs: Sequence[JobState],
    hazards: Floats,
    payloads: Floats,
    counted: Floats,
    now_s: float,
) -> Planned:
    budgets = np.array(list(map(_LOSS_BUDGET, jobs)), dtype=float)
    everybody, beta = np.arange(len(jobs)), cluster.checkpoint_share
    pauses_s = planner.pauses_s(_stand_still_s(cluster, jobs, payloads))
    columns, pauses_s = planner.seen(
        JobColumns(counted, hazards, filled(np.inf, len(jobs)), budgets, _routes(cluster, jobs), everybody),
        pauses_s,
    )
    free = left_for_checkpoints(cluster, now_s).column
    found = planner.columns(columns, free, beta, cluster.known.multipliers, pauses_s)
    cluster.known.multipliers, rates = found.allocation.multipliers, found.rates_bytes_per_s

    def interval(row: int) -> Interval:
        hazard, payload, rate, budget, pause_s = (
            float(c[row]) for c in (columns.hazard_per_s, counted, rates, columns.loss_budget_s, pauses_s)
        )
        return constrained_interval(hazard, payload, rate, budget, beta, pause_s)

    return Planned(rates, found.intervals_s, ~found.budget_kept, hazards, interval)


def _stand_still_s(cluster: Cluster, jobs: Sequence[JobState], payloads: Floats) -> Floats:
    """Seconds that a snapshot of the whole payload, however little of it is sent, stops each job at its host; all ranks of a gang
    stop for that of the slowest."""
    hosts, settings = cluster.hosts, cluster.settings
    speeds = list(map(_SPEED, map(hosts.__getitem__, map(_HOST, jobs))))
    if speeds.count(None) == len(speeds):
        still_s = settings.pauses_s(payloads)
    else:
        known = [row for row, speed in enumerate(speeds) if speed is not None]
        rates = np.array([speed.pause_bytes_per_s for speed in speeds if speed is not None], dtype=float)
        still_s = settings.pauses_s(payloads)
        still_s[known] = settings.pauses_s(payloads[known], rates)
    if cluster.gangs:
        for row, job in enumerate(jobs):
            if job.gang is not None:
                there = [hosts[rank.host or job.host or ""].speed for rank in job.all_ranks]
                measured = [None if speed is None else speed.pause_bytes_per_s for speed in there]
                still_s[row] = max(settings.pauses_s(float(payloads[row]), rate) for rate in measured)
    return still_s


def _in_objects(
    cluster: Cluster, jobs: Sequence[JobState], hazards: Floats, counted: Floats, now_s: float
) -> Planned:
    asked = [
        CheckpointJob(
            job.name,
            payload,
            hazard,
            cluster.routes.way(job.host or "", job.standby or ""),
            loss_budget_s=job.spec.loss_budget_s,
        )
        for job, payload, hazard in zip(jobs, counted.tolist(), hazards.tolist(), strict=True)
    ]
    free = left_for_checkpoints(cluster, now_s)
    by_name = cluster.policy.plan(asked, free, cluster.checkpoint_share)
    plans = [by_name[job.name] for job in jobs]
    return Planned(
        np.array([plan.rate_bytes_per_s for plan in plans], dtype=float),
        np.array([plan.interval_s for plan in plans], dtype=float),
        np.array([plan.interval.loss_budget_infeasible for plan in plans], dtype=bool),
        hazards,
        lambda row: plans[row].interval,
    )


def _routes(cluster: Cluster, jobs: Sequence[JobState]) -> Numbers:
    """Links from each job's host to its standby; only pairs of hosts that were not asked for before are looked up."""
    known = cluster.known.routes
    ends: list[tuple[str, str]] = list(map(_HOST_STANDBY, jobs))
    rows = list(map(known.row.get, ends))
    if None in rows:
        if len(known.row) > MOST_ROWS:
            known.row.clear()
        new = [pair for pair in dict.fromkeys(ends) if pair not in known.row]
        known.add(new, [cluster.path(host, standby) for host, standby in new], len(cluster.network))
        rows = list(map(known.row.get, ends))
    return known.links[np.array(rows, dtype=np.intp)]
