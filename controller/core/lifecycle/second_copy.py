"""A second copy: what is left when a job's host and its standby go together.

Owners take machines in bursts: in a few of a hundred interruptions the standby is closed too, or in the same minute.
All that the job ever computed is then out of reach. When a job's standby has stored a checkpoint, it sends it on to
the job's vault, if its last copy has arrived: the best connected host that has no owner, or else a volunteer of P2's
choice, in a building of its own if there is one. The copy travels as a checkpoint does, no faster than the job's own,
and nothing waits for it. It may take longer than the next checkpoint takes to come: the standby keeps what it is
sending until the transfer has ended (`testbed.agent.io.transfers`).

A vault of thousands of hosts is sent more than its port takes. A copy begins only while few are coming or the port
has room (`_is_full`), else a later checkpoint tries: copies that share a port by the hundred arrive no sooner, and
each that comes or goes changes the rates of all others.

Paper A has one copy; rows that follow it to the letter have no vault (`Policy.vault`).
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.core.lifecycle.attempts import fair_shares, safe_store
from controller.core.lifecycle.grants import LEAST_STREAM_RISE, close_flow, open_flow, presync_flow
from controller.core.lifecycle.protection import choose_volunteer
from controller.core.model.cluster import Cluster
from controller.core.model.entities import Checkpoint, CheckpointFlow, JobState, Phase
from topologies.spec import TrafficClass

# to one vault at once: as many as hosts at 1 Gbit/s fill a port of ten with, and more. Fewer share whatever port there is.
FEW_COPIES = 16
FULL = 0.98  # of what checkpoints may use of a link: what is given out of it is a little less than it has
# a copy over links that streams of checkpoints fill takes from them: one is sent in the time of so many checkpoints. It is needed
# in a 36th of the interruptions (q), and costs as much as it saves every 2/sqrt(q) checkpoints, by Young's formula
SELDOM = 12


def keep_safe(cluster: Cluster, job: JobState, checkpoint: Checkpoint) -> None:
    """Send the checkpoint that the standby has stored on to the vault, if its last copy has arrived and the vault has room."""
    if not cluster.policy.vault or job.phase is not Phase.RUNNING or job.interval_s is None:
        return
    if job.standby is None or job.standby not in checkpoint.holders:
        return
    if not cluster.hosts[job.standby].is_volunteer:
        return
    serves = job.vault not in (None, job.host, job.standby) and cluster.hosts[job.vault or ""].usable
    held = [copy.stored.step for copy in job.checkpoints.values() if serves and job.vault in copy.holders]
    newer_s = (checkpoint.stored.step - max(held, default=0)) * cluster.step_s(job)
    own = cluster.flows.get(presync_flow(job.name, job.host or "", job.standby, 0.0).key)
    if newer_s <= 0.0 or own is None or own.cap_bytes_per_s <= 0.0:
        return  # nothing new, or the job itself sends no checkpoints
    if copies_to_vaults(cluster, job.standby):
        return
    if not serves:
        job.vault = _choose(cluster, job)
    if job.vault is None or _is_full(cluster, job.vault):
        return
    sending_s = job.checkpoint_bytes / own.cap_bytes_per_s
    if newer_s < SELDOM * sending_s and _streams_fill(cluster, cluster.paths.of(job.standby, job.vault)):
        return
    flow = CheckpointFlow(
        job.name,
        job.standby,
        job.vault,
        TrafficClass.PRESYNC,
        cap_bytes_per_s=own.cap_bytes_per_s,
        sequence=checkpoint.stored.sequence,
    )
    open_flow(cluster, flow)
    cluster.orders[flow.key] = None


def _is_full(cluster: Cluster, vault: str) -> bool:
    """Return whether copies on their way to a vault fill its port: one more would delay all of them."""
    coming = cluster.flows.to_host(vault)
    if len(coming) < FEW_COPIES:
        return False
    port = cluster.paths.of(coming[0].source, vault)[-1]
    granted = sum([min(flow.rate_bytes_per_s, flow.cap_bytes_per_s) for flow in coming])
    # some may be granted a little more, which is not worth a message
    return granted * (1.0 + LEAST_STREAM_RISE) >= FULL * float(cluster.capacity.checkpoint_column[port])


def _streams_fill(cluster: Cluster, links: Sequence[int]) -> bool:
    """Return whether streams of checkpoints fill one of these links, as P1 has planned."""
    planned = dict.fromkeys(links, 0.0)
    for flow in cluster.flows.streams():
        for link in planned.keys() & set(cluster.paths.of(flow.source, flow.destination)):
            planned[link] += flow.cap_bytes_per_s
    room = cluster.capacity.checkpoint_column
    return any(load >= FULL * float(room[link]) for link, load in planned.items())


def copies_to_vaults(cluster: Cluster, source: str) -> list[CheckpointFlow]:
    """Return the flows from a host of checkpoints of jobs that run elsewhere."""
    return [
        flow
        for flow in cluster.flows.from_host(source)
        if flow.traffic_class is TrafficClass.PRESYNC and cluster.jobs[flow.job].host != source
    ]


def stop_copying(cluster: Cluster, source: str, job: str | None = None) -> None:
    """Close the copies that this host was sending (of that job only)."""
    for flow in copies_to_vaults(cluster, source):
        if job in (None, flow.job):
            close_flow(cluster, flow)


def _choose(cluster: Cluster, job: JobState) -> str | None:
    """Return the best connected host without an owner, or P2's volunteer, in a building of its own if there is one."""
    assert job.host is not None
    assert job.standby is not None
    [free] = fair_shares(cluster, [job])
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
