"""The coordinator's view, for operators."""

from __future__ import annotations

from controller.core.model.cluster import Cluster
from controller.core.model.entities import (
    CheckpointFlow,
    HostState,
    JobState,
    Phase,
)
from testbed.messages import FlowCount, HostStatus, JobStatus, Status, TransferStatus


def status(cluster: Cluster, now_s: float) -> Status:
    """Everything that is not over, and the figures so far."""
    statistics = cluster.queue.statistics
    return Status(
        now_s,
        [_host(cluster, host, now_s) for host in cluster.hosts.values()],
        [_job(cluster, job) for job in cluster.unfinished()],
        [transfer for host in cluster.hosts.values() for transfer in _transfers(cluster, host)],
        cluster.queue.waiting(),
        cluster.queue.controller.level,
        statistics.mean_cost(cluster.settings.on_demand_cost),
        statistics.mean_delay_s,
        _counts(cluster),
    )


def _host(cluster: Cluster, host: HostState, now_s: float) -> HostStatus:
    reclaim_in_s = None if host.reclaim_at_s is None else max(0.0, host.reclaim_at_s - now_s)
    return HostStatus(
        host.name,
        host.spec.building,
        host.spec.role.value,
        _state(host),
        host.spec.gpus,
        [job.name for job in cluster.jobs_on(host) if job.host == host.name],
        reclaim_in_s,
    )


def _state(host: HostState) -> str:
    if host.incarnation < 0:
        return "absent"
    if not host.connected:
        return "lost"
    if host.reclaim_at_s is not None:
        return "noticed"
    if not host.lent:
        return "reclaimed"
    return "busy" if host.jobs else "idle"


def _job(cluster: Cluster, job: JobState) -> JobStatus:
    to = job.move.destination if job.move else job.standby
    flow = cluster.flows.get(f"{job.name}:{job.host}>{to}")
    return JobStatus(
        job.name,
        job.phase.value,
        job.host or "",
        job.standby or "",
        job.step,
        job.spec.steps,
        job.attempt,
        job.interval_s,
        flow.rate_bytes_per_s if flow else None,
    )


def _transfers(cluster: Cluster, host: HostState) -> list[TransferStatus]:
    shown = []
    for count in host.flows.values():
        job, _, destination = count.transfer.partition(">")
        flow = cluster.flows.get(f"{job.split(':')[0]}:{host.name}>{destination}")
        if flow is not None:
            shown.append(_transfer(flow, count))
    return shown


def _transfer(flow: CheckpointFlow, count: FlowCount) -> TransferStatus:
    goodput = count.payload_bytes / count.age_s if count.age_s > 0.0 else 0.0
    return TransferStatus(
        count.transfer,
        flow.source,
        flow.destination,
        flow.traffic_class.value,
        count.grant_bytes_per_s,
        goodput,
        count.payload_bytes,
    )


def _counts(cluster: Cluster) -> dict[str, int]:
    counts = dict.fromkeys((phase.value for phase in Phase), 0)
    for job in cluster.jobs.values():
        counts[job.phase.value] += 1
    counts["submitted"] = len(cluster.jobs)
    counts["on_demand"] = sum(job.on_demand for job in cluster.jobs.values())
    return counts
