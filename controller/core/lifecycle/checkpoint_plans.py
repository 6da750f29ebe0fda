"""P1's inputs and answers for all protected jobs of the live campus at once.

A planner that takes columns is given columns; one that takes `CheckpointJob`s is given those. Either way the answer is
`Planned`: a rate and an interval a job, and the details of one job's interval when they are asked for, which is when its
agent is told of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

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
from controller.core.model.host_index import checkpoint_bytes
from controller.core.network.links import filled
from controller.numerics.arrays import Floats, Mask

_HOST, _HOST_STANDBY, _SENT_BYTES = (
    attrgetter("host"),
    attrgetter("host", "standby"),
    attrgetter("sent_bytes"),
)
_PAYLOAD, _LOSS_BUDGET = attrgetter("spec.payload_bytes"), attrgetter("spec.loss_budget_s")
_SPEED = attrgetter("speed")


@dataclass(frozen=True, slots=True)
class Planned:
    """Plan of each job in order: bytes/s, seconds (infinite: never), whether its loss budget cannot be kept, its hazard."""

    rates_bytes_per_s: Floats
    intervals_s: Floats
    infeasible: Mask
    hazards_per_s: Floats
    interval: Callable[[int], Interval]


def plan_all(cluster: Cluster, jobs: Sequence[JobState], now_s: float) -> Planned:
    """Return rates and intervals of these jobs, each of which has a volunteer as host, and a standby."""
    hazards = cluster.hazards_now_per_s(jobs, now_s)
    payloads = np.array(list(map(_PAYLOAD, jobs)), dtype=float)
    counted = checkpoint_bytes(payloads, np.array(list(map(_SENT_BYTES, jobs)), dtype=float))
    if isinstance(cluster.policy.plan, ClosedForm):
        return _in_columns(cluster, cluster.policy.plan, jobs, hazards, payloads, counted, now_s)
    return _in_objects(cluster, cluster.policy.plan, jobs, hazards, counted, now_s)


def _in_columns(
    cluster: Cluster,
    planner: ClosedForm,
    jobs: Sequence[JobState],
    hazards: Floats,
    payloads: Floats,
    counted: Floats,
    now_s: float,
) -> Planned:
    budgets = np.array(list(map(_LOSS_BUDGET, jobs)), dtype=float)
    paths = cluster.paths.of_all(list(map(_HOST_STANDBY, jobs)))
    columns = planner.seen(
        JobColumns(
            counted,
            hazards,
            filled(np.inf, len(jobs)),
            budgets,
            _stand_still_s(cluster, jobs, payloads),
            paths,
        )
    )
    free, beta = left_for_checkpoints(cluster, now_s).column, cluster.checkpoint_share
    found = planner.plan(columns, cluster.network, free, beta)
    rates = found.rates_bytes_per_s

    def interval(row: int) -> Interval:
        hazard, payload, rate, budget, pause_s = (
            float(column[row])
            for column in (columns.hazard_per_s, counted, rates, columns.loss_budget_s, columns.pauses_s)
        )
        return constrained_interval(hazard, payload, rate, budget, beta, pause_s)

    return Planned(rates, found.intervals_s, ~found.budget_kept, hazards, interval)


def _stand_still_s(cluster: Cluster, jobs: Sequence[JobState], payloads: Floats) -> Floats:
    """Seconds for which a snapshot of the whole payload stops each job on its host."""
    hosts, protocol = cluster.hosts, cluster.protocol
    speeds = list(map(_SPEED, map(hosts.__getitem__, map(_HOST, jobs))))
    still_s = protocol.pauses_s(payloads)
    known = [row for row, speed in enumerate(speeds) if speed is not None]
    if known:
        rates = np.array([speed.pause_bytes_per_s for speed in speeds if speed is not None], dtype=float)
        still_s[known] = protocol.pauses_s(payloads[known], rates)
    return still_s


def _in_objects(
    cluster: Cluster,
    planner: Planner,
    jobs: Sequence[JobState],
    hazards: Floats,
    counted: Floats,
    now_s: float,
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
    by_name = planner(asked, free, cluster.checkpoint_share)
    plans = [by_name[job.name] for job in jobs]
    return Planned(
        np.array([plan.rate_bytes_per_s for plan in plans], dtype=float),
        np.array([plan.interval_s for plan in plans], dtype=float),
        np.array([plan.interval.loss_budget_infeasible for plan in plans], dtype=bool),
        hazards,
        lambda row: plans[row].interval,
    )
