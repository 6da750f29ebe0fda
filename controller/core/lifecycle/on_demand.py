"""GPUs that no owner takes, and which job may have one.

A job that paper B sends to on-demand has whichever is open. For each job with a deadline one is kept free from its acceptance on
(`HostState.kept`, `job_deadlines`), until it has it or is over: no other job gets that.
"""

from __future__ import annotations

from controller.core.model.cluster import Cluster
from controller.core.model.entities import HostState, JobState
from topologies.spec import Role


def on_demand_hosts(cluster: Cluster) -> list[HostState]:
    """The hosts that rent out GPUs, whether they can be told anything now or not."""
    return [host for host in cluster.ownerless if host.spec.role is Role.ON_DEMAND]


def slots(cluster: Cluster, job: JobState) -> list[HostState]:
    """The hosts that have a GPU for it, and can be told; that which keeps one for it first, then the emptiest."""
    hosts = [
        host
        for host in on_demand_hosts(cluster)
        if host.usable and cluster.fits(job, host) and (host.open_gpus > 0 or host.name == job.kept_on)
    ]
    return sorted(hosts, key=lambda h: (h.name != job.kept_on, len(h.jobs) / h.spec.gpus, h.name))
