"""P1's inputs and answers for all protected jobs of the live campus at once.

A planner that takes columns is given columns; one that takes `CheckpointJob`s is given those. Either way the answer is
`Planned`: a rate and an interval a job, and the details of one job's interval when they are asked for, which is when its
agent is told of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from controller.core.checkpointing.intervals import (
    CheckpointJob,
    Interval,
    Planner,
    constrained_interval,
)
from controller.core.checkpointing.planner import ClosedForm, JobColumns
from controller.core.lifecycle.candidates import left_for_checkpoints
from controller.core.model.cluster import Cluster
from controller.core.model.entities import JobState
from controller.core.network.links import filled
from controller.numerics.arrays import Floats, Mask


@dataclass(frozen=True, slots=True)
class Planned:
    """Plan of each job in order: bytes/s, seconds (infinite: never), whether its loss budget cannot be kept, its hazard."""

    rates_bytes_per_s: Floats
    intervals_s: Floats
    infeasible: Mask
    hazards_per_s: Floats
    interval: Callable[[int], Interval]


def plan_all(cluster: Cluster, jobs: Sequence[JobState]) -> Planned:
    """Return rates and intervals of these jobs, each of which has a volunteer as host, and a standby."""
    hazards = cluster.hazards_now_per_s(jobs)
    counted = np.array([job.checkpoint_bytes for job in jobs], dtype=float)
    if isinstance(cluster.policy.plan, ClosedForm):
        return _in_columns(cluster, cluster.policy.plan, jobs, hazards, counted)
    return _in_objects(cluster, cluster.policy.plan, jobs, hazards, counted)


def _in_columns(
    cluster: Cluster,
    planner: ClosedForm,
    jobs: Sequence[JobState],
    hazards: Floats,
    counted: Floats,
) -> Planned:
    budgets = np.array([job.spec.loss_budget_s for job in jobs], dtype=float)
    paths = cluster.paths.of_all([(job.host or "", job.standby or "") for job in jobs])
    caps = filled(np.inf, len(jobs))
    columns = planner.seen(JobColumns(counted, hazards, caps, budgets, _stand_still_s(cluster, jobs), paths))
    free, beta = left_for_checkpoints(cluster).column, cluster.checkpoint_share
    found = planner.plan(columns, cluster.network, free, beta)
    rates = found.rates_bytes_per_s

    def interval(row: int) -> Interval:
        hazard, payload, rate, budget, pause_s = (
            float(column[row])
            for column in (columns.hazard_per_s, counted, rates, columns.loss_budget_s, columns.pauses_s)
        )
        return constrained_interval(hazard, payload, rate, budget, beta, pause_s)

    return Planned(rates, found.intervals_s, ~found.budget_kept, hazards, interval)


def _stand_still_s(cluster: Cluster, jobs: Sequence[JobState]) -> Floats:
    """Return the seconds for which a snapshot of the whole payload stops each job on its host."""
    protocol, still_s = cluster.protocol, []
    for job in jobs:
        speed, payload_bytes = cluster.hosts[job.host or ""].speed, float(job.spec.payload_bytes)
        still_s.append(protocol.pauses_s(payload_bytes, None if speed is None else speed.pause_bytes_per_s))
    return np.array(still_s, dtype=float)


def _in_objects(
    cluster: Cluster,
    planner: Planner,
    jobs: Sequence[JobState],
    hazards: Floats,
    counted: Floats,
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
    free = left_for_checkpoints(cluster)
    by_name = planner(asked, free, cluster.checkpoint_share)
    plans = [by_name[job.name] for job in jobs]
    return Planned(
        np.array([plan.rate_bytes_per_s for plan in plans], dtype=float),
        np.array([plan.interval_s for plan in plans], dtype=float),
        np.array([plan.interval.loss_budget_infeasible for plan in plans], dtype=bool),
        hazards,
        lambda row: plans[row].interval,
    )
