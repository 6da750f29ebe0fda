"""Completed checkpoints and the transfers that carry them: who holds what, what a failed transfer means, what can be forgotten.

A checkpoint is completed by the word of a host that has it verified and fsynced, and by nothing else.
"""

from __future__ import annotations

from controller.core.lifecycle.dispatch import EVERYTHING, PATIENCE, interrupt, start, start_s
from controller.core.lifecycle.grants import close_flows, settle
from controller.core.lifecycle.migration import land, replan
from controller.core.lifecycle.protection import forget_standby, protect
from controller.core.lifecycle.second_copy import keep_safe, stop_copying
from controller.core.model import effects as do
from controller.core.model import facts
from controller.core.model.cluster import Cluster, record
from controller.core.model.entities import (
    OVER,
    Checkpoint,
    HostState,
    JobState,
    Phase,
)
from testbed import messages as m
from topologies.spec import DirectedLink

UNFIT_PERIODS = 10  # control periods for which a host is avoided that would not take a job's checkpoint
MAX_MISSES = 2  # checkpoints in a row that may fail before another standby is sought


def stored_by(cluster: Cluster, host: HostState, stored: m.StoredCheckpoint, now_s: float) -> list[do.Effect]:
    """A host says that it holds a checkpoint, verified and fsynced. The first to say so completes it."""
    job = cluster.jobs.get(stored.job)
    if job is None or job.phase in OVER:
        return [do.Tell(host.name, m.Forget(stored.job, EVERYTHING))]
    if why := _not_ordered(job, host, stored):
        refused = record(facts.CheckpointRefused(job.name, stored.sequence, host.name, why))
        is_stranger = host.name not in job.keepers
        return [refused, do.Tell(host.name, m.Forget(job.name, EVERYTHING))] if is_stranger else [refused]
    is_known = stored.sequence in job.completed or stored.sequence in job.taken
    effects = _complete(cluster, job, host, stored)
    if is_known and host.name == job.standby and stored.sequence in job.checkpoints:
        effects += keep_safe(cluster, job, job.checkpoints[stored.sequence], now_s)
    restore = job.restore
    if job.phase is Phase.FETCHING and job.host == host.name and restore is not None:
        if restore.stored.sequence == stored.sequence:
            job.to("stored")
            cluster.expect_word(job, PATIENCE * start_s(cluster, job))
            effects += [*close_flows(cluster, job=job.name), start(job, host), *settle(cluster)]
        return effects
    return [*effects, *land_if_there(cluster, job, now_s)]


def _not_ordered(job: JobState, host: HostState, stored: m.StoredCheckpoint) -> str:
    """Why a checkpoint cannot be what was ordered: its host, its attempt, its step or its content; empty if it can."""
    if host.name not in job.keepers:
        return "nothing of this job was ordered to that host"
    if not 1 <= stored.sequence // m.SEQUENCES_PER_ATTEMPT <= job.attempt:
        return f"attempts so far are 1 to {job.attempt}"
    if stored.step > job.spec.steps:
        return f"step {stored.step}, and the job has {job.spec.steps}"
    told = job.taken.get(stored.sequence, stored.step)
    if told != stored.step:
        return f"step {stored.step}, and the snapshot of that number was of step {told}"
    known = job.checkpoints.get(stored.sequence)
    if known is not None and known.stored != stored:
        return "another checkpoint of that number is known"
    return ""


def _complete(
    cluster: Cluster, job: JobState, host: HostState, stored: m.StoredCheckpoint
) -> list[do.Effect]:
    for sequence, older in job.checkpoints.items():
        if sequence < stored.sequence:
            older.holders.discard(host.name)  # a store keeps a job's latest only
    job.traces.add(host.name)
    known = job.checkpoints.setdefault(stored.sequence, Checkpoint(stored))
    if host.name in known.holders:
        return []
    known.holders.add(host.name)
    if stored.sequence in job.completed:
        return [record(facts.CheckpointHeld(job.name, stored.sequence, host.name))]
    job.completed.add(stored.sequence)
    completed = facts.CheckpointCompleted(
        job.name, stored.sequence, stored.step, host.name, stored.payload_bytes
    )
    if host.name == job.host or not host.usable:
        return [record(completed)]  # it may be gone in a moment, with its host
    return [record(completed), *_forget_older(cluster, job, stored)]


def _forget_older(cluster: Cluster, job: JobState, stored: m.StoredCheckpoint) -> list[do.Effect]:
    """Hosts that have become of no use to the job give their disk back."""
    keep = {job.host, job.standby, job.vault, job.move.destination if job.move else None}
    old = {h for c in job.checkpoints.values() if c.stored.step <= stored.step for h in c.holders}
    useless = sorted(old - keep - job.checkpoints[stored.sequence].holders)
    for checkpoint in job.checkpoints.values():
        checkpoint.holders.difference_update(useless)
    job.checkpoints = {number: c for number, c in job.checkpoints.items() if c.holders}
    return [do.Tell(name, m.Forget(job.name, stored.sequence)) for name in useless]


def land_if_there(cluster: Cluster, job: JobState, now_s: float) -> list[do.Effect]:
    """Both halves of a hand-over are known: the source has stopped the job, the destination has its last state."""
    if job.phase is not Phase.MOVING or job.move is None or job.final_sequence is None:
        return []
    final = job.checkpoints.get(job.final_sequence)
    if final is None or job.move.destination not in final.holders:
        return []
    return land(cluster, job, final, now_s)


def transfer_ended(
    cluster: Cluster, host: HostState, message: m.TransferEnded, now_s: float
) -> list[do.Effect]:
    """The sender's account. A good end means nothing until the receiver has spoken; a bad one is final."""
    job = cluster.jobs.get(message.job)
    finished = facts.TransferFinished(
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
    effects: list[do.Effect] = [record(finished)]
    if job is None or job.phase in OVER:
        return effects
    _note_delivery(cluster, host, message, now_s)
    if job.host != host.name and (copied := stop_copying(cluster, host.name, job.name)):
        if not message.ok:
            job.unfit[message.destination] = _again_s(cluster, now_s)
        return [*effects, *copied, *settle(cluster)]
    if message.ok:
        if job.phase is Phase.FETCHING and job.host == message.destination:
            cluster.expect_word(job, 0.0)  # the receiver has it, and is to say so
        if message.destination == job.standby and job.host == host.name:
            job.sent_bytes, job.misses = message.bytes_sent, 0
        return effects
    return [*effects, *_failed(cluster, job, host, message, now_s), *protect(cluster, now_s)]


def _failed(
    cluster: Cluster, job: JobState, host: HostState, message: m.TransferEnded, now_s: float
) -> list[do.Effect]:
    """For good: the agent has tried what could be tried again. The destination is to blame, the second time the sender."""
    to, again_s = message.destination, _again_s(cluster, now_s)
    if job.phase is Phase.FETCHING and job.host == to:
        if now_s < max(job.unfit.values(), default=now_s):
            for checkpoint in job.checkpoints.values():
                checkpoint.holders.discard(host.name)
        job.unfit[to] = again_s
        return interrupt(cluster, job, "checkpoint_lost", now_s)
    if job.host != host.name:
        return []
    if job.move is not None and job.move.destination == to:
        job.unfit[to] = again_s
        return replan(cluster, job, now_s)
    if job.standby == to:
        job.misses += 1
        if job.misses >= MAX_MISSES:
            job.unfit[to] = again_s
            return forget_standby(cluster, job)
    return []


def _again_s(cluster: Cluster, now_s: float) -> float:
    return now_s + UNFIT_PERIODS * cluster.settings.control_period_s


def _note_delivery(cluster: Cluster, host: HostState, message: m.TransferEnded, now_s: float) -> None:
    flow = cluster.flows.get(f"{message.job}:{host.name}>{message.destination}")
    if flow is None or message.goodput_over_grant is None or not flow.bottleneck:
        return
    source, _, target = flow.bottleneck.partition(">")
    cluster.bandwidth.delivered(DirectedLink(source, target), message.goodput_over_grant, now_s)
