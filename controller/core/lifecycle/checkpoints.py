"""Completed checkpoints and the transfers that carry them: which hosts hold what, what a failed transfer means, what may go.

A checkpoint is completed by the word of a host that has it verified and fsynced, and by nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from controller.core.lifecycle import gangs
from controller.core.lifecycle.attempts import EVERYTHING, start
from controller.core.lifecycle.grants import close_flows
from controller.core.lifecycle.job_deadlines import safe_checkpoint
from controller.core.lifecycle.migration import land, release_links, replan
from controller.core.lifecycle.offers import interrupt
from controller.core.lifecycle.protection import forget_standby
from controller.core.lifecycle.second_copy import copies_to_vaults, in_vaults, keep_safe, stop_copying
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import (
    MOST_DOUBTS,
    OVER,
    Checkpoint,
    Gang,
    HostState,
    JobState,
    Phase,
)
from testbed import messages as m
from testbed.ranks import superseded

UNFIT_PERIODS = 10  # control periods for which a host is avoided that would not take a job's checkpoint
MOST_HELD = 16  # checkpoints of one job that a host may say it holds (testbed.ranks says what a store keeps)
MAX_MISSES = 2  # checkpoints in a row that may fail before another standby is sought


def all_stored_by(cluster: Cluster, host: HostState, hello: m.Hello) -> None:
    """A host lists what it holds, and nothing else: its disk may be an older one. It may have fetched an older number after a
    newer one, so it may hold both."""
    listed = defaultdict[str, set[int]](set)
    for stored in hello.stored:
        listed[stored.job].add(stored.sequence)
    for job in cluster.unfinished():
        for sequence, known in job.checkpoints.items():
            if sequence not in listed[job.name]:
                known.holders.discard(host.name)
    for stored in hello.stored:
        stored_by(cluster, host, stored, listed[stored.job])


def stored_by(
    cluster: Cluster, host: HostState, stored: m.StoredCheckpoint, beside: Set[int] = frozenset()
) -> None:
    """A host says that it holds a checkpoint, verified and fsynced. The first to say so completes it.

    `beside`: sequences of the same job that it says to hold as well.
    """
    job = cluster.jobs.get(stored.job)
    if job is None or job.phase in OVER:
        cluster.tell(host.name, m.Forget(stored.job, EVERYTHING))
        return
    if why := _not_ordered(cluster, job, host, stored):
        cluster.record(facts.CheckpointRefused(job.name, stored.sequence, host.name, why))
        if host.name not in job.keepers:
            cluster.tell(host.name, m.Forget(job.name, EVERYTHING))
        job.traces.add(host.name)  # it lies there until the job is over
        return
    is_known = stored.sequence in job.completed or stored.sequence in job.taken
    _complete(cluster, job, host, stored, beside)
    if is_known and host.name == job.standby and stored.sequence in job.checkpoints:
        keep_safe(cluster, job, job.checkpoints[stored.sequence])
    if job.phase is not Phase.FETCHING or job.host != host.name or job.restore is None:
        land_if_there(cluster, job)
    elif job.restore.stored.sequence == stored.sequence:
        close_flows(cluster, job=job.name)
        _start_fetched(cluster, job)


def _start_fetched(cluster: Cluster, job: JobState) -> None:
    """Its checkpoint is at its host. The ranks of a gang are started when all of them have theirs.

    A host that had its rank's part may have come back without it, from an older disk: nothing is on its way there then, and all
    begin again from what there is.
    """
    lacking = [
        rank
        for rank in job.all_ranks
        if rank.phase is not Phase.FETCHING or rank.restore is None or rank.host not in rank.restore.holders
    ]
    if lacking and job.gang is not None:
        cluster.waits.pop(job.name, None)
        on_their_way = {(flow.job, flow.destination) for flow in cluster.flows.values()}
        fetching = [rank for rank in lacking if rank.phase is Phase.FETCHING]
        if any((rank.name, rank.host) not in on_their_way for rank in fetching):
            interrupt(cluster, job, "checkpoint_lost")
        return
    for rank in job.all_ranks:
        cluster.advance(rank, "stored")
        start(cluster, rank, cluster.hosts[rank.host or ""])


def _not_ordered(cluster: Cluster, job: JobState, host: HostState, stored: m.StoredCheckpoint) -> str:
    """Why a checkpoint cannot be what was ordered: its host, its attempt, its step or its content; empty if it can."""
    if host.name not in job.keepers:
        return "nothing of this job was ordered to that host"
    first, last = job.attempts_above + 1, max(job.attempt, cluster.attempts_above)
    if not first <= stored.sequence // m.SEQUENCES_PER_ATTEMPT <= last:
        return f"attempts so far are {first} to {last}"
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
    if known is None and job.disbelieves(host.name) and stored.sequence not in job.taken:
        return "no other has told of it, and what this host told of before could not be had"
    if known is None and sum(host.name in c.holders for c in job.checkpoints.values()) >= MOST_HELD:
        return f"it says that it holds more than {MOST_HELD} of this job"
    return ""


def _complete(
    cluster: Cluster, job: JobState, host: HostState, stored: m.StoredCheckpoint, beside: Set[int]
) -> None:
    """Note the holder; the first one completes the checkpoint, and hosts that are of no use to the job forget theirs."""
    steps = {
        number: known.stored.step for number, known in job.checkpoints.items() if host.name in known.holders
    }
    for sequence in superseded(job.name, steps | {stored.sequence: stored.step}, stored.sequence):
        if sequence not in beside:
            job.checkpoints[sequence].holders.discard(host.name)
            if not job.checkpoints[sequence].holders:
                del job.checkpoints[sequence]
    job.traces.add(host.name)
    claimed_by = "" if stored.sequence in job.taken else host.name
    known = job.checkpoints.setdefault(stored.sequence, Checkpoint(stored, claimed_by=claimed_by))
    if host.name in known.holders:
        return
    known.holders.add(host.name)
    if stored.sequence in job.completed:
        cluster.record(facts.CheckpointHeld(job.name, stored.sequence, host.name))
        return
    job.completed.add(stored.sequence)
    cluster.record(
        facts.CheckpointCompleted(job.name, stored.sequence, stored.step, host.name, stored.payload_bytes)
    )
    if job.gang is not None:
        _forget_older(cluster, job.gang)
        return
    if host.name == job.host or not host.usable:
        return  # it may be gone in a moment, with its host
    if known.claimed_by:
        return  # it may be none
    of_use = {job.host, job.standby, job.vault, job.move.destination if job.move else None}
    if job.name in cluster.dated and (safe := safe_checkpoint(cluster, job)) is not None:
        of_use.update(cluster.safe_holders(safe))  # its deadline counts with it
    # a host forgets by number: one that holds a later number of less work, of a later attempt, keeps it and stays its holder
    older = [c for number, c in job.checkpoints.items() if number < stored.sequence]
    old = {h for c in older if c.stored.step <= stored.step for h in c.holders}
    useless = sorted(old - of_use - known.holders)
    for checkpoint in older:
        checkpoint.holders.difference_update(useless)
    job.checkpoints = {number: c for number, c in job.checkpoints.items() if c.holders}
    for name in useless:
        cluster.tell(name, m.Forget(job.name, stored.sequence))


def _forget_older(cluster: Cluster, gang: Gang) -> None:
    """Parts that are older than the latest checkpoint which is whole, and safe from the loss of any rank's host, may go."""

    def is_safe(rank: JobState, known: Checkpoint) -> bool:
        elsewhere = any(name != rank.host and cluster.hosts[name].usable for name in known.holders)
        return elsewhere and not known.claimed_by

    safe = cluster.common(gang, is_safe)
    if safe is None:
        return
    kept = in_vaults(cluster, gang)
    for rank in gang.ranks:
        step = rank.checkpoints[safe].stored.step
        older = {n: c for n, c in rank.checkpoints.items() if n < safe and c.stored.step <= step}
        for name in sorted({name for known in older.values() for name in known.holders}):
            here = [n for n, c in rank.checkpoints.items() if name in c.holders]
            # a vault keeps what is whole there, or else what it has, until the other ranks' parts have come
            before = min(safe, max(here) if kept is None else kept) if name == rank.vault else safe
            if min(here) < before and all(n >= before or n in older for n in here):
                cluster.tell(name, m.Forget(rank.name, before))
                for number, known in older.items():
                    if number < before:
                        known.holders.discard(name)
        rank.checkpoints = {n: c for n, c in rank.checkpoints.items() if c.holders}


def land_if_there(cluster: Cluster, job: JobState) -> None:
    """Both halves of a hand-over are known: the source has stopped the job, the destination has its last state.

    The ranks of a gang land together, and begin where each is then.
    """
    ranks = job.all_ranks
    handed_over = [rank for rank in ranks if gangs.is_handed_over(rank)]
    if len(handed_over) == len(ranks) and len({rank.final_sequence for rank in ranks}) == 1:
        land(cluster, job)
    else:
        newest = max((rank.final_sequence or 0 for rank in handed_over), default=0)
        release_links(cluster, {rank.name for rank in handed_over if rank.final_sequence == newest})


def transfer_ended(cluster: Cluster, host: HostState, message: m.TransferEnded) -> None:
    """The sender's account. A good end means nothing until the receiver has spoken; a bad one is final."""
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
    if (coding := message.coding) is not None:
        cluster.record(
            facts.TransferCoded(
                message.job,
                message.sequence,
                host.name,
                message.destination,
                coding.codec,
                coding.plain_bytes,
                message.bytes_sent,
                coding.encode_s,
                coding.decode_s,
            )
        )
    if job is None or job.phase in OVER:
        return
    flow = cluster.flows.get(f"{message.job}:{host.name}>{message.destination}")
    if flow is not None and message.goodput_over_grant is not None and flow.bottleneck:
        cluster.delivered(flow, message.goodput_over_grant)
    if job.host != host.name and any(f.job == job.name for f in copies_to_vaults(cluster, host.name)):
        if not message.ok:
            job.unfit[message.destination] = _again_s(cluster)
        stop_copying(cluster, host.name, job.name)
    elif not message.ok:
        _failed(cluster, job, host, message)
    elif job.phase is Phase.FETCHING and job.host == message.destination:
        cluster.expect_word(job, 0.0)  # the receiver has it, and is to say so
    elif message.destination == job.standby and job.host == host.name:
        job.sent_bytes, job.misses = message.bytes_sent, 0


def _failed(cluster: Cluster, job: JobState, host: HostState, message: m.TransferEnded) -> None:
    """For good: the agent has tried what could be tried again. The destination is to blame, unless the sender says that its own
    copy is, or did not get it to others either (`JobState.fetch_failed`)."""
    to = message.destination
    if job.phase is Phase.FETCHING and job.host == to:
        if message.own_fault:
            if (checkpoint := job.checkpoints.get(message.sequence)) is not None:
                checkpoint.holders.discard(host.name)
                if checkpoint.claimed_by == host.name:  # others' copies may rot without its fault
                    job.doubt(host.name, MOST_DOUBTS)
        else:
            job.fetch_failed(host.name)
            job.unfit[to] = _again_s(cluster)
        interrupt(cluster, job, "checkpoint_lost")
    elif job.host != host.name:
        return
    elif job.move is not None and job.move.destination == to:
        job.unfit[to] = _again_s(cluster)
        replan(cluster, job)
    elif job.standby == to:
        job.misses += 1
        if job.misses >= MAX_MISSES:
            job.unfit[to] = _again_s(cluster)
            forget_standby(cluster, job)


def _again_s(cluster: Cluster) -> float:
    """When a host that would not take a checkpoint is tried again."""
    return cluster.now_s + UNFIT_PERIODS * cluster.settings.control_period_s
