"""On-demand hosts: GPUs that no owner takes."""

from __future__ import annotations

from controller.core.model.cluster import Cluster
from controller.core.model.entities import HostState, JobState
from topologies.spec import Role


def slots(cluster: Cluster, job: JobState) -> list[HostState]:
    """Return the connected on-demand hosts that have the job's GPUs free, the emptiest first."""
    hosts = [
        host
        for host in cluster.index.ownerless
        if host.spec.role is Role.ON_DEMAND
        and host.usable
        and host.free_gpus >= job.spec.gpus
        and cluster.fits(job, host)
    ]
    return sorted(hosts, key=lambda h: (h.taken_gpus / h.spec.gpus, h.name))
