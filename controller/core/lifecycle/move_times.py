"""What a move takes, beside its bytes: what P3 is asked for, and what a job's deadline counts with."""

from __future__ import annotations

from controller.core.admission.reservation import GOODPUT, LAG_S, MARGIN_S
from controller.core.checkpointing.intervals import transfer_s
from controller.core.lifecycle.attempts import start_s
from controller.core.model.cluster import Cluster
from controller.core.model.entities import JobState
from controller.core.network.bandwidth import bottleneck
from controller.core.network.links import Residual

# until all switches have a new way: some milliseconds for each of its switches (`measure fabric`)
PROGRAMMED_S = 0.05
# times what a move without a notice would take on what its way has free: so that P3 may admit it beside others
UNHURRIED = 2.0


def granted_bytes(cluster: Cluster, job: JobState) -> float:
    """What has to be granted to carry the payload: a flow gets a little less than its grant, which a reservation counts in."""
    return job.spec.payload_bytes / (GOODPUT if cluster.policy.reserves_rates else 1.0)


def lead_s(cluster: Cluster, job: JobState, source: str) -> float:
    """Seconds from the order to take the final snapshot there to its first byte: one may be being taken when it is due."""
    lag_s = LAG_S if cluster.policy.rates_vary else 0.0
    if cluster.chooses_ways:  # the order waits for the network
        lag_s += PROGRAMMED_S
    payload_bytes, speed = job.spec.payload_bytes, cluster.hosts[source].speed
    writes_s = cluster.settings.writes_s(payload_bytes)
    if speed is not None:  # a reservation is kept by a slow disk too
        writes_s = max(writes_s, cluster.settings.snapshot_s + payload_bytes / speed.write_bytes_per_s)
    return 2.0 * writes_s + lag_s


def unhurried_s(cluster: Cluster, job: JobState, source: str, to: str, free: Residual) -> float:
    """Seconds within which a job whose host has no notice runs on another; `free`: of each link, bytes/s. inf: no way there."""
    rate = bottleneck(cluster.routes.way(source, to), free).bytes_per_s
    sent_s = transfer_s(granted_bytes(cluster, job), rate) + lead_s(cluster, job, source)
    return UNHURRIED * sent_s + start_s(cluster, job) + MARGIN_S
