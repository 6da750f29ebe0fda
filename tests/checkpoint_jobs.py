"""Jobs with checkpoints, in units that are easy to write: one link from a host, one that all share, emergencies an hour."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from controller.core.checkpointing.intervals import CheckpointJob
from controller.core.checkpointing.planner import ClosedForm, JobColumns, PlanColumns
from controller.core.network.links import Network, Paths
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
    columns = (
        np.array([getattr(job, name) for job in jobs], dtype=float)
        for name in ("payload_bytes", "hazard_per_s", "write_cap_bytes_per_s", "loss_budget_s")
    )
    paths = Paths.of([network.path(job.links) for job in jobs])
    seen = planner.seen(JobColumns(*columns, np.full(len(jobs), pause_s), paths))
    return planner.plan(seen, network, network.column(capacity), beta)
