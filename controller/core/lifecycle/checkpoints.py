"""Completed checkpoints and the transfers that carry them: which hosts hold what, what a failed transfer means, what may go.

A checkpoint is completed by the word of a host that has it verified and fsynced, and by nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from controller.core.lifecycle.attempts import EVERYTHING, start
from controller.core.lifecycle.grants import close_flows
from controller.core.lifecycle.migration import land, replan
from controller.core.lifecycle.offers import interrupt
from controller.core.lifecycle.protection import forget_standby
from controller.core.lifecycle.second_copy import copies_to_vaults, keep_safe, stop_copying
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import OVER, Checkpoint, HostState, JobState, Phase
from testbed import messages as m

UNFIT_PERIODS = 10  # control periods for which a host is avoided that would not take a job's checkpoint
MOST_HELD = 16  # checkpoints of one job that a host may report to hold
MAX_MISSES = 2  # checkpoints in a row that may fail before another standby is sought


def all_stored_by(cluster: Cluster, host: HostState, hello: m.Hello) -> None:
    """Take the list of a registering host as all that it holds: its disk may be an older one.

    It may have fetched an older number after a newer one, so it may hold both.
    """
    listed = defaultdict[str, set[int]](set)
    for stored in hello.stored:
        listed[stored.job].add(stored.sequence)
    for job in cluster.jobs.unfinished:
        for sequence, known in job.checkpoints.items():
            if sequence not in listed[job.name]:
                known.holders.discard(host.name)
    for stored in hello.stored:
        stored_by(cluster, host, stored, listed[stored.job])


def stored_by(cluster: Cluster, host: HostState, stored: m.StoredCheckpoint, beside: Set[int] = frozenset()) -> None:
    """Record that a host holds a checkpoint, verified and fsynced; the first holder completes it.

    `beside`: sequences of the same job that the host lists as well.
    """
    job = cluster.jobs.get(stored.job)
    if job is None or job.phase in OVER:
        cluster.tell(host.name, m.Forget(stored.job, EVERYTHING))
        return
    if why := _mismatch(cluster, job, host, stored):
        cluster.record(facts.CheckpointRefused(job.name, stored.sequence, host.name, why))
        job.traces.add(host.name)  # it lies there until the job is over
        return
    _complete(cluster, job, host, stored, beside)
    if host.name == job.standby and stored.sequence in job.checkpoints:
        keep_safe(cluster, job, job.checkpoints[stored.sequence])
    if job.phase is not Phase.FETCHING or job.host != host.name or job.restore is None:
        land_if_there(cluster, job)
    elif job.restore.stored.sequence == stored.sequence:
        close_flows(cluster, job=job.name)
        cluster.advance(job, "stored")
        start(cluster, job, host)


def _mismatch(cluster: Cluster, job: JobState, host: HostState, stored: m.StoredCheckpoint) -> str:
    """Return the reason why a stored checkpoint is none of this job's: its attempt, step or content; "" if it is one."""
    first = job.attempts_above + 1
    if not first <= stored.sequence // m.SEQUENCES_PER_ATTEMPT <= job.attempt:
        return f"attempts so far are {first} to {job.attempt}"
    if stored.step > job.spec.steps:
        return f"step {stored.step}, and the job has {job.spec.steps}"
    step, digest = job.taken.get(stored.sequence, (stored.step, ""))
    if step != stored.step:
        return f"step {stored.step}, and the snapshot of that number was of step {step}"
    if digest not in ("", stored.digest):
        return "its bytes are not those of the snapshot of that number"
    known = job.checkpoints.get(stored.sequence)
    if known is not None and known.stored != stored:
        return "another checkpoint of that number is known"
    if known is None and sum(host.name in c.holders for c in job.checkpoints.values()) >= MOST_HELD:
        return f"it says that it holds more than {MOST_HELD} of this job"
    return ""


def _complete(cluster: Cluster, job: JobState, host: HostState, stored: m.StoredCheckpoint, beside: Set[int]) -> None:
    """Record the holder; the first one completes the checkpoint, and hosts of no more use delete older copies."""
    job.drop_copies(host.name, stored.sequence, beside)
    job.traces.add(host.name)
    known = job.checkpoints.setdefault(stored.sequence, Checkpoint(stored))
    if host.name in known.holders:
        return
    known.holders.add(host.name)
    if stored.sequence in job.completed:
        cluster.record(facts.CheckpointHeld(job.name, stored.sequence, host.name))
        return
    job.completed.add(stored.sequence)
    cluster.record(facts.CheckpointCompleted(job.name, stored.sequence, stored.step, host.name, stored.payload_bytes))
    if host.name == job.host or not host.usable:
        return  # it may be gone in a moment, with its host
    if stored.sequence not in job.taken:
        return  # older copies stay until the job's own host has reported the snapshot
    of_use = {job.host, job.standby, job.vault, job.move.destination if job.move else None}
    # a host forgets by number, and may hold an earlier number with more work, of an earlier attempt: then it keeps all
    before = [c for number, c in job.checkpoints.items() if number < stored.sequence]
    old = {h for c in before if c.stored.step <= stored.step for h in c.holders}
    ahead = {h for c in before if c.stored.step > stored.step for h in c.holders}
    for name in sorted(old - ahead - of_use - known.holders):
        job.drop_copies(name, stored.sequence)
        cluster.tell(name, m.Forget(job.name, stored.sequence))


def land_if_there(cluster: Cluster, job: JobState) -> None:
    """Complete the job's move if its source has stopped it for good and its destination has its last state."""
    if job.phase is not Phase.MOVING or job.move is None or job.final_sequence is None:
        return
    final = job.checkpoints.get(job.final_sequence)
    if final is not None and job.move.destination in final.holders:
        land(cluster, job)


def transfer_ended(cluster: Cluster, host: HostState, message: m.TransferEnded) -> None:
    """Record the sender's account of a transfer; only a failure has consequences, since the receiver reports success."""
    job = cluster.jobs.get(message.job)
    cluster.record(
        facts.TransferFinished(
            message.job,
            message.sequence,
            host.name,
            message.destination,
            message.ok,
            message.bytes_sent,
            message.bytes_deduplicated,
            message.duration_s,
            message.goodput_over_grant,
            message.drops,
            message.reason,
        )
    )
    if job is None or job.phase in OVER:
        return
    flow = cluster.flows.get(f"{message.job}:{host.name}>{message.destination}")
    if flow is not None and message.goodput_over_grant is not None and flow.bottleneck:
        cluster.capacity.delivered(flow.bottleneck, message.goodput_over_grant, cluster.now_s)
    if job.host != host.name and any(f.job == job.name for f in copies_to_vaults(cluster, host.name)):
        if not message.ok:
            job.obstacles.unfit[message.destination] = _again_s(cluster)
        stop_copying(cluster, host.name, job.name)
    elif not message.ok:
        _failed(cluster, job, host, message)
    elif job.phase is Phase.FETCHING and job.host == message.destination:
        cluster.arm_timeout(job, 0.0)  # the receiver has it, and is to report so
    elif message.destination == job.standby and job.host == host.name:
        job.stream.sent_bytes, job.stream.misses = message.bytes_sent, 0


def _failed(cluster: Cluster, job: JobState, host: HostState, message: m.TransferEnded) -> None:
    """React to a transfer that failed for good.

    The destination is avoided, unless the sender found its own copy damaged or failed with others too (`fetch_failed`).
    """
    to = message.destination
    if job.phase is Phase.FETCHING and job.host == to:
        if message.own_fault:
            if (checkpoint := job.checkpoints.get(message.sequence)) is not None:
                checkpoint.holders.discard(host.name)
        else:
            job.fetch_failed(host.name)
            job.obstacles.unfit[to] = _again_s(cluster)
        interrupt(cluster, job, "checkpoint_lost")
    elif job.host != host.name:
        return
    elif job.move is not None and job.move.destination == to:
        job.obstacles.unfit[to] = _again_s(cluster)
        replan(cluster, job)
    elif job.standby == to:
        job.stream.misses += 1
        if job.stream.misses >= MAX_MISSES:
            job.obstacles.unfit[to] = _again_s(cluster)
            forget_standby(cluster, job)


def _again_s(cluster: Cluster) -> float:
    """Return the time until which a host is avoided that would not take a checkpoint."""
    return cluster.now_s + UNFIT_PERIODS * cluster.protocol.control_period_s
