"""A better checkpoint that comes into reach again: the job leaves what it has begun anew, and goes on from there.

Copies of a job's work may all lie on hosts that their owners have just taken. Nobody knows when those come back, so the job
begins again from what can be reached, at worst from its first step, and does not wait. When a holder returns with more work
in its copy than the present attempt has done, the attempt is stopped and the job resumed like any other, from the freshest
checkpoint, if that saves clearly more time than fetching it takes. So an interruption costs at most about the time for which
the owner was there.

Paper A does not say what becomes of old copies; rows that follow it to the letter do not take them up (`Policy.takes_up`).
"""

from __future__ import annotations

from controller.core.checkpointing.intervals import transfer_s
from controller.core.lifecycle.candidates import promised, residual
from controller.core.model import effects as do
from controller.core.model.cluster import Cluster
from controller.core.model.entities import (
    Checkpoint,
    HostState,
    JobState,
    Phase,
)
from controller.core.network.bandwidth import bottleneck
from testbed.messages import StopJob

WORTH = 2.0  # times what it takes to fetch a checkpoint and to start from it: what going on from it must save


def take_up(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """Orders to stop for the running jobs that a checkpoint on this host, which can be reached again, takes further."""
    if not cluster.policy.takes_up:
        return []
    return [
        effect
        for job in cluster.unfinished()
        if host.name in job.traces
        for effect in take_up_better(cluster, job, now_s)
    ]


def take_up_better(cluster: Cluster, job: JobState, now_s: float) -> list[do.Effect]:
    """The order to stop if some checkpoint in reach takes this running job clearly further than it is."""
    better = further(cluster, job)
    if better is None or job.phase is not Phase.RUNNING or not cluster.policy.takes_up:
        return []
    saved_s = (better.stored.step - job.step) * job.spec.step_s
    if job.host is None or saved_s < WORTH * _takes_s(cluster, job, better, now_s):
        return []
    return [do.Tell(job.host, StopJob(job.name, job.attempt))]


def further(cluster: Cluster, job: JobState) -> Checkpoint | None:
    """The freshest checkpoint in reach, if it has more work in it than the present attempt is known to have done."""
    if all(known.stored.step <= job.step for known in job.checkpoints.values()):
        return None
    freshest = cluster.freshest(job)
    return freshest if freshest is not None and freshest.stored.step > job.step else None


def _takes_s(cluster: Cluster, job: JobState, checkpoint: Checkpoint, now_s: float) -> float:
    """To bring the checkpoint to the job's host, as far as is free now, and to start from it."""
    free, host = residual(cluster, now_s, promised), job.host or ""
    ways = [cluster.routes.route(holder, host) for holder in cluster.holders(checkpoint) if holder != host]
    fetch_s = min(
        (transfer_s(job.spec.payload_bytes, bottleneck(way, free).bytes_per_s) for way in ways), default=0.0
    )
    return (0.0 if host in checkpoint.holders else fetch_s) + cluster.settings.restart_s
