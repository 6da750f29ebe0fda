"""Jobs with checkpoints, in units that are easy to write: one link from a host, one that all share, emergencies an hour."""

import math

from controller.core.checkpointing.intervals import CheckpointJob
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
