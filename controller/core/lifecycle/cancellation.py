"""A job that its user wants no more: it ends as cancelled, whatever it was doing, and never computes again.

A job that waits, or whose checkpoint is still on its way to a host, is cancelled at once. One that a host was told to run is
*cancelling* until that host has said that its process is gone, or can have none any more (its owner has taken it, its lease has
lapsed): its GPU is not free before. It is protected, moved and restored no more from the moment on at which it is cancelled.
The order to end it is told again to a host that comes back (`membership`) or does not answer (`timeouts`).
"""

from __future__ import annotations

from controller.core.lifecycle.attempts import PATIENCE, cancelled, drop_move
from controller.core.lifecycle.grants import close_flows
from controller.core.lifecycle.protection import forget_standby
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import OVER, TOLD, JobState, Phase
from testbed.messages import Cancelled, Rejected, StopJob


def cancel(cluster: Cluster, event: ev.CancelAsked) -> None:
    """End the job and answer; refuse with the reason if the job is unknown or over."""
    job, answer = cluster.jobs.get(event.job), do.Answer
    if job is None:
        refusal = Rejected(event.job, "no job of this name was submitted")
        cluster.outbox.append(answer(event.operator, refusal))
        return
    if job.phase in OVER and job.phase is not Phase.CANCELLED:
        cluster.outbox.append(answer(event.operator, Rejected(job.name, f"it is over: {job.phase}")))
        return
    before = job.phase in (Phase.CANCELLING, Phase.CANCELLED)
    if not before:
        _end(cluster, job)
    cluster.outbox.append(answer(event.operator, Cancelled(event.job, job.host or "", before)))


def _end(cluster: Cluster, job: JobState) -> None:
    if job.phase not in TOLD:
        cluster.queue.cancel(job.name)
        cluster.requeued.pop(job.name, None)
        cluster.homes.pop(job.name, None)
        if job.name in cluster.backlog:
            cluster.backlog.remove(job.name)
        cancelled(cluster, job, "cancel")
        return
    assert job.host is not None
    cluster.record(facts.CancelOrdered(job.name, job.attempt, job.host))
    forget_standby(cluster, job)
    close_flows(cluster, job=job.name, tell=True)
    drop_move(cluster, job)
    job.landing, job.degraded = None, False
    cluster.advance(job, "cancel")
    cluster.arm_timeout(job, PATIENCE * (job.spec.grace_s + cluster.protocol.restart_s))
    tell_to_end(cluster, job)


def tell_to_end(cluster: Cluster, job: JobState) -> None:
    """Order the host to end the process of a job that is cancelling."""
    assert job.host is not None
    cluster.tell(job.host, StopJob(job.name, job.attempt, job.spec.grace_s))
