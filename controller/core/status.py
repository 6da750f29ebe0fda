"""The coordinator's view, for operators."""

from __future__ import annotations

from heapq import nlargest

from controller.core.model.cluster import Cluster
from controller.core.model.entities import HostState, Phase
from testbed.messages import EndedJob, HostStatus, JobStatus, Status

# a status stays small, however many jobs there were and whatever they reported
LISTED, REASON_LENGTH = 200, 400


def status(cluster: Cluster, now_s: float) -> Status:
    """Return all that is not over, and the figures so far."""
    hosts = [
        HostStatus(
            host.name,
            host.spec.building,
            host.spec.role.value,
            _state(host),
            host.spec.gpus,
            [job.name for job in cluster.jobs_on(host)],
            None if host.reclaim_at_s is None else max(0.0, host.reclaim_at_s - now_s),
        )
        for host in cluster.hosts.values()
    ]
    jobs = []
    for job in cluster.jobs.unfinished:
        flow = cluster.flows.get(f"{job.name}:{job.host}>{job.move.destination if job.move else job.standby}")
        jobs.append(
            JobStatus(
                job.name,
                job.phase.value,
                job.host or "",
                job.standby or "",
                job.step,
                job.spec.steps,
                job.attempt,
                job.interval_s,
                flow.rate_bytes_per_s if flow else None,
                "; ".join(filter(None, ("no sandbox" * (job.spec.sandbox == "none"), job.quicker(now_s)))),
            )
        )
    ended = ((job, job.end) for job in cluster.jobs.values() if job.end is not None)
    over = nlargest(LISTED, ended, key=lambda each: each[1].at_s)
    counts = dict.fromkeys((phase.value for phase in Phase), 0)
    for job in cluster.jobs.values():
        counts[job.phase.value] += 1
    counts["submitted"] = len(cluster.jobs)
    counts["on_demand"] = sum(job.redirected_after_s is not None for job in cluster.jobs.values())
    statistics = cluster.queue.statistics
    return Status(
        now_s,
        hosts,
        jobs,
        [
            EndedJob(
                job.name, job.phase.value, end.host, job.step, job.spec.steps, end.at_s, end.reason[:REASON_LENGTH]
            )
            for job, end in reversed(over)
        ],
        cluster.queue.waiting(),
        cluster.queue.controller.level,
        statistics.mean_cost(cluster.terms.on_demand_cost),
        statistics.mean_delay_s,
        counts,
    )


def _state(host: HostState) -> str:
    """Return the state of the host in one word."""
    if host.incarnation < 0:
        return "absent"
    if not host.connected:
        return "lost"
    if host.reclaim_at_s is not None:
        return "noticed"
    if not host.lent:
        return "reclaimed"
    return "busy" if host.jobs else "idle"
