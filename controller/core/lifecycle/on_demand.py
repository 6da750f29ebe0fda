"""GPUs that no owner takes, and which job may have one.

A job that paper B sends to on-demand has whichever is open. For each job with a deadline one is kept free from its acceptance on
(`KeptGpu`, `job_deadlines`), until it is over: no job without a deadline gets that, and those that it is kept for take turns.
"""

from __future__ import annotations

from controller.core.model.cluster import Cluster
from controller.core.model.entities import HostState, JobState
from topologies.spec import Role


def on_demand_hosts(cluster: Cluster) -> list[HostState]:
    """The hosts that rent out GPUs, whether they can be told anything now or not."""
    return [host for host in cluster.ownerless if host.spec.role is Role.ON_DEMAND]


def slots(cluster: Cluster, job: JobState) -> list[HostState]:
    """The hosts that have a GPU for it, and can be told: that which holds one for its move, then that where its turn is, then
    the emptiest."""
    its = turn_on(cluster, job)
    hosts = [
        host
        for host in on_demand_hosts(cluster)
        if host.usable
        and cluster.fits(job, host)
        and (host.open_gpus > 0 or host.name == its or job.name in host.jobs)
    ]
    return sorted(
        hosts, key=lambda h: (job.name not in h.jobs, h.name != its, len(h.jobs) / h.spec.gpus, h.name)
    )


def turn_on(cluster: Cluster, job: JobState) -> str | None:
    """The host whose GPU is kept for it, if that GPU is free and it is its turn there."""
    if job.kept is None:
        return None
    host = cluster.hosts[job.kept.host]
    return host.name if job.kept.taken_by(host) is None and job.kept.turn(host) is job else None


def is_on_demand(cluster: Cluster, job: JobState) -> bool:
    """Whether its attempt, or its move, has a GPU that no owner takes."""
    names = (job.host, None if job.move is None else job.move.destination)
    return any(
        name is not None and not cluster.hosts[name].is_volunteer and job.name in cluster.hosts[name].jobs
        for name in names
    )
