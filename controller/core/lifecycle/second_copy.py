"""A second copy, seldom: what is left when a job's host and its standby go together.

Owners take machines in bursts: in a few of a hundred interruptions the standby is closed too, or in the same minute, and all
that the job ever computed is out of reach. Checkpoints that survive that are a second level (multi-level checkpointing;
Moody et al., SC 2010), needed seldom, so taken seldom. By Young's formula at both levels the second interval is to the first
as one to the square root of the share of interruptions that the first level does not survive.

When a job's standby has stored a checkpoint, it sends it on to the job's vault, if what is there is so much older: the best
connected host that has no owner, or else a volunteer of P2's choice, in a building of its own if there is one. The copy
travels as a checkpoint does, no faster than the job's own, and nothing waits for it.

Paper A has one copy; rows that follow it to the letter have no vault (`Policy.vault`).
"""

from __future__ import annotations

from controller.core.lifecycle.candidates import fair_share, safe_store
from controller.core.lifecycle.grants import (
    close_flow,
    open_flow,
    presync_flow,
)
from controller.core.lifecycle.protection import choose_volunteer
from controller.core.model.cluster import Cluster
from controller.core.model.entities import (
    Checkpoint,
    CheckpointFlow,
    JobState,
    Phase,
)
from topologies.spec import TrafficClass

EVERY = 6.0  # checkpoints' intervals: in one interruption of 36 the standby is lost too


def keep_safe(cluster: Cluster, job: JobState, checkpoint: Checkpoint) -> None:
    """The standby has stored this one: on to the vault with it, if that is due."""
    if not cluster.policy.vault or job.phase is not Phase.RUNNING or job.interval_s is None:
        return
    if job.standby is None or not cluster.hosts[job.standby].is_volunteer:
        return
    serves = job.vault not in (None, job.host, job.standby) and cluster.hosts[job.vault or ""].usable
    held = (c.stored.step for c in job.checkpoints.values() if serves and job.vault in c.holders)
    newer_s = (checkpoint.stored.step - max(held, default=0)) * job.spec.step_s
    own = cluster.flows.get(presync_flow(job.name, job.host or "", job.standby, 0.0).key)
    cap = own.cap_bytes_per_s if own is not None else 0.0  # that of the job's own checkpoints
    if newer_s < EVERY * job.interval_s or cap <= 0.0 or copies_to_vaults(cluster, job.standby):
        return
    if not serves:
        job.vault = _choose(cluster, job)
    if job.vault is None:
        return
    sequence = checkpoint.stored.sequence
    flow = CheckpointFlow(
        job.name, job.standby, job.vault, TrafficClass.PRESYNC, cap_bytes_per_s=cap, sequence=sequence
    )
    open_flow(cluster, flow)
    cluster.orders[flow.key] = None


def copies_to_vaults(cluster: Cluster, source: str) -> list[CheckpointFlow]:
    """What a host sends on of jobs that run elsewhere."""
    flows = [flow for flow in cluster.flows.values() if flow.source == source]
    return [
        f for f in flows if f.traffic_class is TrafficClass.PRESYNC and cluster.jobs[f.job].host != source
    ]


def stop_copying(cluster: Cluster, source: str, job: str | None = None) -> None:
    """Copies that this host was sending (of that job only) are over, one way or the other."""
    for flow in copies_to_vaults(cluster, source):
        if job in (None, flow.job):
            close_flow(cluster, flow)


def _choose(cluster: Cluster, job: JobState) -> str | None:
    """The best connected host that no owner can take, or P2's volunteer, in a building of its own if there is one."""
    assert job.host is not None
    assert job.standby is not None
    free = fair_share(cluster, job, cluster.now_s)
    safe = safe_store(cluster, job, job.standby, free)
    if safe is not None:
        return safe
    others = cluster.fit_hosts(job) - {job.host, job.standby}
    taken = {cluster.hosts[name].spec.building for name in (job.host, job.standby)}
    apart = {name for name in others if cluster.hosts[name].spec.building not in taken}
    for among in (apart, others):
        chosen = choose_volunteer(cluster, job, free, needs_gpu=False, among=among)
        if chosen is not None:
            return chosen
    return None
