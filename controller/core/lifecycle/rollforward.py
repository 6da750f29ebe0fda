"""A better checkpoint that comes into reach again: the job leaves what it has begun anew, and goes on from there.

Copies of a job's work may all lie on hosts that their owners have just taken. It is not known when those come back, so the job
begins again from what can be reached, at worst from its first step, and does not wait. When a holder returns with more work
in its copy than the present attempt has done, the attempt is stopped and the job resumed like any other, from the freshest
checkpoint, if that saves clearly more time than fetching it takes. So an interruption
costs at most about the time for which the owner was there.

Paper A does not say what becomes of old copies; rows that follow it to the letter do not take them up (`Policy.takes_up`).
"""

from __future__ import annotations

from controller.core.checkpointing.intervals import transfer_s
from controller.core.lifecycle.candidates import reserved_rate, residual
from controller.core.model.cluster import Cluster
from controller.core.model.entities import (
    Checkpoint,
    HostState,
    JobState,
    Phase,
)
from controller.core.network.bandwidth import bottleneck
from testbed.bounds import SEQUENCES_PER_ATTEMPT
from testbed.messages import StopJob

WORTH = 2.0  # times what it takes to fetch a checkpoint and to start from it: what going on from it must save


def take_up(cluster: Cluster, host: HostState) -> None:
    """Stop running jobs that have a better checkpoint on this host, which is in reach again."""
    for job in cluster.jobs.unfinished():
        if host.name in job.traces:
            take_up_better(cluster, job)


def take_up_better(cluster: Cluster, job: JobState) -> None:
    """Stop this running job if resuming saves clearly more than fetching the better checkpoint takes."""
    if not cluster.policy.takes_up or job.phase is not Phase.RUNNING or job.host is None:
        return
    better = further(cluster, job)
    if better is None:
        return
    takes_s = cluster.protocol.restart_s + _fetch_s(cluster, job, better)
    if (better.stored.step - job.step) * job.spec.step_s >= WORTH * takes_s:
        cluster.tell(job.host, StopJob(job.name, job.attempt))


def _fetch_s(cluster: Cluster, job: JobState, checkpoint: Checkpoint) -> float:
    """Return how long the job's host takes to fetch a checkpoint, over what links have free now."""
    if job.host is None or job.host in checkpoint.holders:
        return 0.0
    free = residual(cluster, cluster.now_s, reserved_rate)
    ways = [cluster.routes.way(holder, job.host) for holder in cluster.holders(checkpoint)]
    return transfer_s(job.spec.payload_bytes, max(bottleneck(way, free).bytes_per_s for way in ways))


def further(cluster: Cluster, job: JobState) -> Checkpoint | None:
    """Return the freshest checkpoint in reach if it has more work than the present attempt is known to have done.

    A checkpoint of the present attempt never has more.
    """
    if all(known.stored.step <= job.step for known in job.checkpoints.values()):
        return None
    freshest = cluster.freshest(job)
    if freshest is None or freshest.stored.step <= job.step:
        return None
    return freshest if freshest.stored.sequence // SEQUENCES_PER_ATTEMPT < job.attempt else None
