"""Times and bytes of a move, as P3 is asked for them."""

from __future__ import annotations

from controller.core.admission.reservation import GOODPUT, LAG_S
from controller.core.model.cluster import Cluster
from controller.core.model.entities import JobState

# until all switches have a new way: some milliseconds for each of its switches (`measure fabric`)
PROGRAMMED_S = 0.05


def granted_bytes(cluster: Cluster, job: JobState) -> float:
    """Bytes to grant for the payload: a flow gets a little less than its grant, for which a reservation allows."""
    return job.spec.payload_bytes / (GOODPUT if cluster.policy.reserves_rates else 1.0)


def lead_s(cluster: Cluster, job: JobState, source: str) -> float:
    """Seconds from the order of the final snapshot to its first byte; another snapshot may be under way then."""
    lag_s = LAG_S if cluster.policy.rates_vary else 0.0
    if cluster.chooses_ways:  # the order waits for the network
        lag_s += PROGRAMMED_S
    payload_bytes, speed = job.spec.payload_bytes, cluster.hosts[source].speed
    writes_s = cluster.settings.writes_s(payload_bytes)
    if speed is not None:  # a reservation is kept by a slow disk too
        writes_s = max(writes_s, cluster.settings.snapshot_s + payload_bytes / speed.write_bytes_per_s)
    return 2.0 * writes_s + lag_s
