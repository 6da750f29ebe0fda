"""Jobs with checkpoints, in units that are easy to write: one link from a host, one that all share, emergencies an hour."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controller.core.checkpointing.planner import BETA, CheckpointJobs, CheckpointPlans, Planner
from controller.core.network.links import Network, Paths
from topologies.spec import DirectedLink

HOUR_S = 3600.0
TRUNK, LEAF = DirectedLink("sw", "core"), DirectedLink("h1", "sw")


@dataclass(frozen=True)
class Job:
    """A row of `CheckpointJobs`."""

    name: str
    payload_bytes: float
    hazard_per_s: float
    links: tuple[DirectedLink, ...] = (TRUNK,)
    loss_budget_s: float = math.inf
    speed: float = 1.0


def job(
    name: str,
    payload: float = 1e9,
    per_h: float = 1.0,
    loss_budget_s: float = math.inf,
    links: tuple[DirectedLink, ...] = (TRUNK,),
) -> Job:
    return Job(name, payload, per_h / HOUR_S, links, loss_budget_s)


def plan(
    planner: Planner,
    jobs: Sequence[Job],
    capacity: Mapping[DirectedLink, float],
    beta: float = BETA,
    pause_s: float = 0.0,
) -> CheckpointPlans:
    """Plan jobs whose snapshots all stop them for `pause_s`."""
    network = Network(capacity)
    columns = (
        np.array([getattr(job, name) for job in jobs], dtype=float)
        for name in ("payload_bytes", "hazard_per_s", "loss_budget_s")
    )
    paths = Paths.of([network.path(job.links) for job in jobs])
    rows = CheckpointJobs(
        [job.name for job in jobs],
        *columns,
        np.full(len(jobs), pause_s),
        paths,
        np.array([each.speed for each in jobs]),
    )
    return planner(rows, network, network.column(capacity), beta)
