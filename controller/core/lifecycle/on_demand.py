"""On-demand hosts: GPUs that no owner takes."""

from __future__ import annotations

from controller.core.model.cluster import Cluster
from controller.core.model.entities import HostState, JobState
from topologies.spec import Role


def slots(cluster: Cluster, job: JobState) -> list[HostState]:
    """Return the connected on-demand hosts that have a free GPU for the job, the emptiest first."""
    hosts = [
        host
        for host in cluster.ownerless
        if host.spec.role is Role.ON_DEMAND and host.usable and host.free_gpus > 0 and cluster.fits(job, host)
    ]
    return sorted(hosts, key=lambda h: (len(h.jobs) / h.spec.gpus, h.name))
