"""P1's inputs for all protected jobs of the campus at once, and its plans for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from controller.core.checkpointing.planner import CheckpointJobs, CheckpointPlans
from controller.core.lifecycle.candidates import reserved_rate, residual
from controller.core.model.cluster import Cluster
from controller.core.model.entities import JobState
from controller.core.network.links import Paths
from controller.numerics.arrays import Floats


def plan_all(cluster: Cluster, jobs: Sequence[JobState]) -> tuple[CheckpointJobs, CheckpointPlans]:
    """Return these jobs, each of which has a volunteer as host, and a standby, in columns, with their plans."""
    columns = CheckpointJobs(
        [job.name for job in jobs],
        np.array([job.checkpoint_bytes for job in jobs], dtype=float),
        cluster.hazards_now_per_s(jobs),
        np.array([job.spec.loss_budget_s for job in jobs], dtype=float),
        _stand_still_s(cluster, jobs),
        Paths.of([cluster.paths.of(job.host or "", job.standby or "") for job in jobs]),
    )
    free = residual(cluster, reserved_rate, for_checkpoints=True)
    left = np.maximum(0.0, free - cluster.capacity.withheld_column)
    return columns, cluster.policy.plan(columns, cluster.network, left, cluster.checkpoint_share)


def _stand_still_s(cluster: Cluster, jobs: Sequence[JobState]) -> Floats:
    """Return the seconds for which a snapshot of the whole payload stops each job on its host."""
    protocol, still_s = cluster.protocol, []
    for job in jobs:
        speed, payload_bytes = cluster.hosts[job.host or ""].speed, float(job.spec.payload_bytes)
        still_s.append(protocol.pauses_s(payload_bytes, None if speed is None else speed.pause_bytes_per_s))
    return np.array(still_s, dtype=float)
