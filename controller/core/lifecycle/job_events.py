"""Events of jobs: agents report that they started, ended, took a snapshot; users cancel them; better checkpoints come into reach.

A report may be of an attempt that is no longer the present one (it crossed an order): that changes nothing.

**Cancelled.** A job that waits, or whose checkpoint is still on its way to a host, is cancelled at once. One that a
host was ordered to run is *cancelling* until the host has reported that the process is gone, or can have none. (Then
its owner has taken it, or its lease has lapsed.) Its GPU is not free before. From then on it is protected, moved and
restored no more.

**Taken up.** Copies of a job's work may all lie on hosts that their owners have just taken. The job begins again from
what can be reached, and does not wait. A holder may return with more work in its copy than the present attempt has
done. The attempt is then stopped and the job resumed from there, if that saves clearly more time than fetching it
takes. Paper A does not state what becomes of old copies; rows that follow it to the letter do not take them up
(`Policy.takes_up`).
"""

from __future__ import annotations

from controller.core.checkpointing.planner import transfer_s
from controller.core.lifecycle.attempts import (
    EVERYTHING,
    TIMEOUT_FACTOR,
    cancelled,
    drop_move,
    over,
    reserved_rate,
    residual,
)
from controller.core.lifecycle.checkpoints import land_if_there
from controller.core.lifecycle.grants import close_flows, reservations
from controller.core.lifecycle.migration import landed, plan_moves, send_on
from controller.core.lifecycle.offers import interrupt
from controller.core.lifecycle.protection import forget_standby, hasten
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.cluster import Cluster, present
from controller.core.model.entities import OVER, TOLD, Checkpoint, HostState, JobState, Obstacles, Phase
from testbed import messages as m

# a machine that is short of memory for a moment is worth another try, and a job that is killed wherever it runs is not
MOST_KILLED = 5
# another host, another copy, an older checkpoint may do; from what a job cannot read it never goes on
MOST_FAILED_STARTS = 5
MOST_TAKEN = 16  # snapshots that are remembered: an order to send an older one has been replaced long ago
# by what a host's snapshots must have become quicker or slower before P1 counts it: intervals go with the root of a pause, and
# one that moves by less than a tenth is not sent (`protection.LEAST_CHANGE`)
SPEED_CHANGE = 1.2
WORTH = 2.0  # times what it takes to fetch a checkpoint and to start from it: what going on from it must save


# ---------------------------------------------------------------- reports of agents


def job_started(cluster: Cluster, host: HostState, message: m.JobStarted) -> None:
    """Protect a job that runs and whose state is proved; move it on if a notice came meanwhile."""
    job = present(cluster, host, message.job, message.attempt)
    if job is None or job.phase is not Phase.STARTING:
        return
    cluster.advance(job, "started")
    job.timer.since_s, job.obstacles = cluster.now_s, Obstacles()
    job.did(message.step)
    downtime_s = None if job.stop is None else cluster.now_s - job.stop.at_s
    cluster.record(
        facts.JobRunning(
            job.name, job.attempt, host.name, message.step, message.digest, message.restored_sequence, downtime_s
        )
    )
    landed(cluster, job)
    job.stop = None
    if host.reclaim_at_s is not None:
        plan_moves(cluster, [job])
    take_up_better(cluster, job)


def job_ended(cluster: Cluster, host: HostState, message: m.JobEnded) -> None:
    """End a job that has finished or failed; have one that was stopped, or that could not be restored, go on.

    On a broken host every job fails, so a job goes on after its first failure, elsewhere if it can.
    It goes on up to `MOST_KILLED` times after its process was killed or ended before its last step.
    After `MOST_FAILED_STARTS` restores in a row that failed it begins again from nothing.
    """
    job = present(cluster, host, message.job, message.attempt)
    if job is not None and job.phase is Phase.CANCELLING:  # however it ended: its user does not want it
        job.did(message.step)
        cancelled(cluster, job, "gone")
        return
    if job is None or job.phase not in TOLD:
        goes_on = message.job in cluster.jobs and cluster.jobs[message.job].phase not in OVER
        cluster.tell(host.name, m.Forget(message.job, 0 if goes_on else EVERYTHING))
        return
    job.did(message.step)
    outcome, reason, cause = message.outcome, message.reason, ""
    if outcome == "finished" and message.step != job.spec.steps:
        outcome, reason = "killed", f"it is said to have finished at step {message.step} of {job.spec.steps}"
    if outcome == "killed":
        job.killed += 1
        if job.killed > MOST_KILLED:
            outcome, reason = "failed", f"{reason}; {job.killed} times something like that has ended it"
        else:
            cause = "killed"
    elif outcome == "failed" and job.phase is Phase.STARTING and job.restore is not None:
        _of_no_use(cluster, job, job.restore, host)
        cause = "failed_start"
        job.obstacles.failed_at.append(host.name)
        if len(job.obstacles.failed_at) > MOST_FAILED_STARTS:
            _begin_anew(cluster, job)
    elif outcome == "failed":
        if job.failed_on:
            reason = f"{reason} ({job.failed_on} had said so before)"
        else:
            job.failed_on, cause = host.name, "failed"
    elif outcome == "stopped":
        if send_on(cluster, job):
            return
        cause = "superseded" if further(cluster, job) else "stopped"
    if cause:
        interrupt(cluster, job, cause)
    elif outcome == "finished":
        remark = job.quicker(cluster.now_s)
        cluster.record(facts.JobFinished(job.name, job.attempt, host.name, job.step, message.digest))
        over(cluster, job, "finished", remark)
    else:
        cluster.record(facts.JobFailed(job.name, job.attempt, host.name, reason))
        over(cluster, job, "failed", reason)


def _of_no_use(cluster: Cluster, job: JobState, checkpoint: Checkpoint, host: HostState) -> None:
    """Drop the copy from which its host could not start the job: next is another holder's, or an older one.

    The only copy gets a second try on its host, since the failure may have passed. The host deletes its copy. Else it
    would report to a sender that it has it already, and all older ones with it.
    """
    if checkpoint.holders == {host.name} and host.name not in job.obstacles.failed_at:
        return
    job.drop_copies(host.name, checkpoint.stored.sequence + 1)
    cluster.tell(host.name, m.Forget(job.name, checkpoint.stored.sequence + 1))


def _begin_anew(cluster: Cluster, job: JobState) -> None:
    """Have all checkpoints of the job deleted: it could not be restored from any, and later reports of them do not count."""
    job.attempts_above, job.obstacles.failed_at = job.attempt, []
    job.checkpoints, job.taken = {}, {}
    for name in sorted(job.traces):
        cluster.tell(name, m.Forget(job.name, (job.attempt + 1) * m.SEQUENCES_PER_ATTEMPT))


def _is_news(known: m.SnapshotSpeed | None, told: m.SnapshotSpeed) -> bool:
    """Return whether the host's measured snapshot speed changed enough to affect P1's plan."""
    if known is None:
        return True
    pairs = ((known.pause_bytes_per_s, told.pause_bytes_per_s), (known.write_bytes_per_s, told.write_bytes_per_s))
    return any(not now / SPEED_CHANGE <= before <= now * SPEED_CHANGE for before, now in pairs)


def snapshot_taken(cluster: Cluster, host: HostState, message: m.SnapshotTaken) -> None:
    """Record a snapshot on its own host. A final one has stopped the job, and its move waits for it."""
    job = present(cluster, host, message.job, message.attempt)
    if job is None or message.sequence // m.SEQUENCES_PER_ATTEMPT != job.attempt:
        return
    if message.step > job.spec.steps:  # no state of the job
        return
    # a final one is sent again on each new connection; an agent may also call one final that it has reported before
    is_final_now = message.final and job.final_sequence != message.sequence
    is_news = message.sequence not in job.taken or is_final_now
    job.timer.last_s = cluster.now_s if is_news else job.timer.last_s
    job.taken[message.sequence] = message.step, message.digest
    if len(job.taken) > MOST_TAKEN:
        del job.taken[min(job.taken)]
    if message.speed is not None and _is_news(host.speed, message.speed):
        host.speed, cluster.plan_stale = message.speed, True
    if is_news:
        cost = message.cost
        if cost is not None and job.spec.program and not message.final:
            cluster.plan_stale = cluster.plan_stale or cost.pause_s > SPEED_CHANGE * job.pause_s
            job.pause_s = cost.pause_s
        cluster.record(
            facts.CheckpointTaken(
                job.name,
                job.attempt,
                message.sequence,
                message.step,
                message.payload_bytes,
                message.final,
                None if cost is None else cost.pause_s,
                None if cost is None else cost.write_s,
                "" if cost is None else cost.stopped,
            )
        )
    if not message.final and is_news:
        hasten(cluster, job)
    if not message.final or job.phase is Phase.CANCELLING:
        return
    job.final_sequence = message.sequence
    job.stopped(cluster.now_s, "final_checkpoint")
    job.step = message.step
    if job.phase is not Phase.MOVING:  # no move waits for it any more: it goes on from this very checkpoint
        cluster.tell(host.name, m.StopJob(job.name, job.attempt))
        return
    for flow, reservation in reservations(cluster):  # what is sent from now on is the final snapshot
        if flow.job == job.name:
            reservation.begin(cluster.now_s)
            cluster.rates_stale = True
    land_if_there(cluster, job)


# ---------------------------------------------------------------- cancelled by users


def cancel(cluster: Cluster, event: ev.CancelAsked) -> None:
    """End the job and answer; refuse with the reason if the job is unknown or over."""
    job = cluster.jobs.get(event.job)
    answer: m.Rejected | m.Cancelled
    if job is None:
        answer = m.Rejected(event.job, "no job of this name was submitted")
    elif job.phase in OVER and job.phase is not Phase.CANCELLED:
        answer = m.Rejected(job.name, f"it is over: {job.phase}")
    else:
        before = job.phase in (Phase.CANCELLING, Phase.CANCELLED)
        if not before:
            _end(cluster, job)
        answer = m.Cancelled(event.job, job.host or "", before)
    cluster.outbox.append(do.Answer(event.operator, answer))


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
    cluster.arm_timeout(job, TIMEOUT_FACTOR * (job.spec.grace_s + cluster.protocol.restart_s))
    tell_to_end(cluster, job)


def tell_to_end(cluster: Cluster, job: JobState) -> None:
    """Order the host to end the process of a job that is cancelling."""
    assert job.host is not None
    cluster.tell(job.host, m.StopJob(job.name, job.attempt, job.spec.grace_s))


# ---------------------------------------------------------------- better checkpoints in reach


def take_up(cluster: Cluster, host: HostState) -> None:
    """Stop running jobs that have a better checkpoint on this host, which is in reach again."""
    for job in cluster.jobs.unfinished:
        if host.name in job.traces:
            take_up_better(cluster, job)


def take_up_better(cluster: Cluster, job: JobState) -> None:
    """Stop this running job if resuming saves clearly more than fetching the better checkpoint takes."""
    if not cluster.policy.takes_up or job.phase is not Phase.RUNNING or job.host is None:
        return
    better = further(cluster, job)
    if better is None:
        return
    takes_s = cluster.protocol.restart_s
    if job.host not in better.holders:
        free = residual(cluster, reserved_rate)
        rate = max(cluster.paths.rate(holder, job.host, free) for holder in cluster.holders(better))
        takes_s += transfer_s(job.spec.payload_bytes, rate)
    if (better.stored.step - job.step) * cluster.step_s(job) >= WORTH * takes_s:
        cluster.tell(job.host, m.StopJob(job.name, job.attempt))


def further(cluster: Cluster, job: JobState) -> Checkpoint | None:
    """Return the freshest checkpoint in reach if it has more work than the present attempt is known to have done.

    A checkpoint of the present attempt never has more.
    """
    freshest = cluster.freshest(job)
    if freshest is None or freshest.stored.step <= job.step:
        return None
    return freshest if freshest.stored.sequence // m.SEQUENCES_PER_ATTEMPT < job.attempt else None
