"""An attempt of a job on one host: begun, ordered from the host, given up, over.

A job resumes from the completed checkpoint with the most work in it that some host can still send; if its new host does not hold
that one, it is fetched first. Which host a job gets is decided in `offers`, and for migrations in `migration`.
"""

from __future__ import annotations

from controller.core.lifecycle.candidates import reserved_rate, residual
from controller.core.lifecycle.grants import close_flows, open_flow, recovery_bytes
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import Checkpoint, CheckpointFlow, HostState, JobState
from testbed.bounds import LARGEST_SEQUENCE, TRICKLE_BYTES_PER_S
from testbed.messages import Forget, StartJob
from topologies.spec import TrafficClass

EVERYTHING = LARGEST_SEQUENCE + 1  # above every sequence: Forget all of a job

TIMEOUT_FACTOR = 10.0  # times what it should take: what is later than that is asked for


def dispatch(
    cluster: Cluster, job: JobState, host: HostState, first: tuple[float, float] | None = None
) -> None:
    """Give a waiting job to a host, with its freshest checkpoint, which the holder sends that can have it there first.

    `first` is (cost, delay in s) if paper B counts this dispatch.
    """
    checkpoint = cluster.freshest(job)
    begin_attempt(cluster, job, host, checkpoint, first)
    if checkpoint is None or host.name in checkpoint.holders:
        cluster.advance(job, "offered")
        start(cluster, job, host)
        return
    cluster.advance(job, "fetch")
    free = residual(cluster, reserved_rate)
    carried = job.spec.payload_bytes + recovery_bytes(cluster)  # beside the other recoveries on these links

    def takes_s(holder: str) -> float:
        way = [*cluster.paths.of(holder, host.name)]
        return float((carried[way] / free[way].clip(TRICKLE_BYTES_PER_S)).max(initial=0.0))

    sender = min(cluster.holders(checkpoint), key=lambda holder: (takes_s(holder), holder))
    sequence = checkpoint.stored.sequence
    flow = CheckpointFlow(job.name, sender, host.name, TrafficClass.PLANNED, sequence=sequence)
    open_flow(cluster, flow)
    cluster.orders[flow.key] = None


def begin_attempt(
    cluster: Cluster,
    job: JobState,
    host: HostState,
    checkpoint: Checkpoint | None,
    first: tuple[float, float] | None = None,
) -> None:
    """Reserve the GPU, number the attempt, and account for the work that will be done again."""
    restore_step = checkpoint.stored.step if checkpoint else 0
    again_s = (job.step - restore_step) * job.spec.step_s * job.spec.gpus
    job.attempt += 1
    if job.stopped_cause and again_s > 0.0:
        cause = job.stopped_cause
        cluster.record(facts.WorkLost(job.name, job.attempt, cause, job.step, restore_step, again_s))
    # what was given up, or out of reach before, need not be computed again
    if job.stopped_cause and again_s < 0.0:
        cluster.record(facts.WorkTakenUp(job.name, job.attempt, job.step, restore_step, -again_s))
    job.host, job.restore, job.step, job.final_sequence = host.name, checkpoint, restore_step, None
    job.last_checkpoint_s, job.interval_s, job.sent_bytes = None, None, None
    cluster.timers += 1
    job.timer = cluster.timers
    job.traces.add(host.name)
    reserve(cluster, job, host)
    cost, delay_s = first or (None, None)
    sequence = checkpoint.stored.sequence if checkpoint else None
    cluster.record(
        facts.JobDispatched(job.name, job.attempt, host.name, sequence, restore_step, cost, delay_s)
    )


def reserve(cluster: Cluster, job: JobState, host: HostState) -> None:
    """Hold the job's GPUs for it, and withdraw offers that they backed."""
    host.jobs[job.name] = job.spec.gpus
    withdraw_offers(cluster, host, keep=max(0, host.free_gpus))


def withdraw_offers(cluster: Cluster, host: HostState, keep: int = 0) -> None:
    """Withdraw offers of the host until `keep` are left."""
    for number in cluster.offers_of(host)[keep:]:
        cluster.queue.withdraw_offer(number)
        del cluster.offers[number]


def start_s(cluster: Cluster, job: JobState) -> float:
    """Return the seconds to start a job whose state is read as slowly as it is written."""
    return cluster.protocol.restart_s + cluster.protocol.writes_s(job.spec.payload_bytes)


def start(cluster: Cluster, job: JobState, host: HostState) -> None:
    """Order the host to run the attempt, and arm the timeout of its answer."""
    cluster.arm_timeout(job, TIMEOUT_FACTOR * start_s(cluster, job))
    restore = job.restore.stored if job.restore else None
    cluster.tell(host.name, StartJob(job.spec, job.attempt, restore, host.closures))


def release(cluster: Cluster, job: JobState) -> None:
    """Take the job off its host: no flow of it is open any more, and nothing is reserved for it."""
    close_flows(cluster, job=job.name, tell=True)
    names = {job.host, job.move.destination if job.move else None, replica_of(cluster, job)}
    for name in sorted(name for name in names if name is not None):
        cluster.free_gpu(job, cluster.hosts[name])
    job.host, job.standby, job.move, job.landing, job.degraded = None, None, None, None, False


def drop_move(cluster: Cluster, job: JobState) -> None:
    """Give back the GPU that a migration had reserved."""
    if job.move is not None:
        destination = cluster.hosts[job.move.destination]
        if job.name in destination.jobs:  # a rescue to a disk has none
            cluster.free_gpu(job, destination)
        job.move = None


def replica_of(cluster: Cluster, job: JobState) -> str | None:
    """Return the standby if it holds a GPU for the job and computes too."""
    held = job.standby is not None and job.name in cluster.hosts[job.standby].jobs
    return job.standby if held and job.standby != job.host else None


def cancelled(cluster: Cluster, job: JobState, trigger: str) -> None:
    """End a job that its user wants no more, and of which no process is left."""
    cluster.record(facts.JobCancelled(job.name, job.attempt, job.host or "", job.step))
    over(cluster, job, trigger)


def over(cluster: Cluster, job: JobState, trigger: str) -> None:
    """End a job that is finished, has failed or is cancelled, and have its checkpoints deleted everywhere."""
    cluster.advance(job, trigger)
    job.ended_s, job.last_host = cluster.now_s, job.host or ""
    holders = job.traces | ({job.standby} if job.standby else set())
    release(cluster, job)
    for name in sorted(holders):
        cluster.tell(name, Forget(job.name, EVERYTHING))
