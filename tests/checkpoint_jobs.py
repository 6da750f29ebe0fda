"""Jobs with checkpoints, in units that are easy to write: one link from a host, one that all share, emergencies an hour."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from controller.core.checkpointing.intervals import CheckpointJob, CheckpointSchedule, constrained_interval
from controller.core.checkpointing.planner import ClosedForm, JobColumns, PlanColumns
from controller.core.network.links import Network, Paths
from controller.core.policies.table import Policy
from topologies.spec import DirectedLink

HOUR_S = 3600.0
TRUNK, LEAF = DirectedLink("sw", "core"), DirectedLink("h1", "sw")


def job(
    key: str,
    payload: float = 1e9,
    per_h: float = 1.0,
    cap: float = math.inf,
    loss_budget_s: float = math.inf,
    links: tuple[DirectedLink, ...] = (TRUNK,),
) -> CheckpointJob:
    return CheckpointJob(key, payload, per_h / HOUR_S, links, cap, loss_budget_s)


def in_columns(
    planner: ClosedForm,
    jobs: Sequence[CheckpointJob],
    capacity: Mapping[DirectedLink, float],
    beta: float,
    pause_s: float,
) -> PlanColumns:
    """Plan jobs whose snapshots all stop them for `pause_s`."""
    network = Network(capacity)
    payload, hazard, budget = (
        np.array([getattr(job, name) for job in jobs], dtype=float)
        for name in ("payload_bytes", "hazard_per_s", "loss_budget_s")
    )
    paths = Paths.of([network.path(job.links) for job in jobs])
    columns = planner.seen(JobColumns(payload, hazard, budget, np.full(len(jobs), pause_s), paths))
    return planner(columns, network, network.column(capacity), beta)


def planned_by(
    row: Policy, jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float
) -> dict[str, CheckpointSchedule]:
    """Plan as a row does, by name."""
    if not isinstance(row.plan, ClosedForm):
        return row.plan(jobs, capacity, beta)
    rates = in_columns(row.plan, jobs, capacity, beta, 0.5).rates_bytes_per_s.tolist()
    return {
        job.key: CheckpointSchedule(
            rate,
            constrained_interval(job.hazard_per_s, job.payload_bytes, rate, job.loss_budget_s, beta, 0.5),
        )
        for job, rate in zip(jobs, rates, strict=True)
    }
