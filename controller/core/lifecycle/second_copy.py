"""A second copy, seldom: what is left when a job's host and its standby go together.

Owners take machines in bursts: in a few of a hundred interruptions the standby is closed too, or in the same minute, and all
that the job ever computed is out of reach. When a job's standby has stored a checkpoint, it sends it on to the job's vault, if
what is there is old enough for that to pay (`checkpointing.second_level`): the best connected host that has no owner, or else a
volunteer of P2's choice, in a building of its own if there is one. The copy travels as a checkpoint does, no faster than the
job's own, and nothing waits for it. It may take longer than the next checkpoint takes to come: the standby keeps what it is
sending until the transfer has ended (`testbed.agent.io.transfers`).

A vault of thousands of hosts is sent more than its port takes. A copy begins only while few are coming or the port has room
(`_is_full`), else a later checkpoint tries: copies that share a port by the hundred arrive no sooner, and each that comes or goes
has all others told another rate.

Paper A has one copy; rows that follow it to the letter have no vault (`Policy.vault`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from controller.core.checkpointing.second_level import second_interval_s
from controller.core.lifecycle.candidates import aims_of, fair_share, safe_store
from controller.core.lifecycle.grants import (
    LEAST_STREAM_RISE,
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
from controller.core.model.open_flows import FULL
from controller.numerics.arrays import Floats
from topologies.spec import TrafficClass

# to one vault at once: as many as hosts at 1 Gbit/s fill a port of ten with, and more. Fewer share whatever port there is.
FEW_COPIES = 16


def keep_safe(cluster: Cluster, job: JobState, checkpoint: Checkpoint) -> None:
    """Send the checkpoint that the standby has stored on to the vault, if a copy is due."""
    if not cluster.policy.vault or job.phase is not Phase.RUNNING or job.interval_s is None:
        return
    if job.standby is None or job.standby not in checkpoint.holders:
        return
    if not cluster.hosts[job.standby].is_volunteer:
        return
    serves = _serves(cluster, job)
    held = [copy.stored.step for copy in job.checkpoints.values() if serves and job.vault in copy.holders]
    newer_s = (checkpoint.stored.step - max(held, default=0)) * job.spec.step_s
    own = cluster.flows.get(presync_flow(job.name, job.host or "", job.standby, 0.0).key)
    if newer_s <= 0.0 or own is None or own.cap_bytes_per_s <= 0.0:
        return  # nothing new, or the job itself sends no checkpoints
    if copies_to_vaults(cluster, job.standby):
        return
    if not serves:
        job.vault = _choose(cluster, job)
    if job.vault is None or _is_full(cluster, job.vault):
        return
    if newer_s < _due_after_s(cluster, job, job.standby, job.vault):
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


def _serves(cluster: Cluster, job: JobState) -> bool:
    return job.vault not in (None, job.host, job.standby) and cluster.hosts[job.vault or ""].usable


def _due_after_s(cluster: Cluster, job: JobState, standby: str, vault: str) -> float:
    """Return how much work the copy may lack before the next one is due, in seconds (`second_level`)."""
    price = price_of(cluster, cluster.paths.of(standby, vault))
    if price <= 0.0:
        return 0.0  # whatever the hazard
    [hazard_per_s] = cluster.hazards_now_per_s([job], cluster.now_s).tolist()
    together = cluster.hazards.joint.q(job.host or "", standby, cluster.now_s)
    return second_interval_s(job.checkpoint_bytes, price, hazard_per_s, together)


def price_of(cluster: Cluster, links: Sequence[int]) -> float:
    """Return the work, in seconds, that each byte of a copy over these links costs the checkpoint streams there.

    A copy has an equal share of a link while it is sent, and a stream loses in proportion to one over its rate: n streams
    that give up 1/(n + 1) of their rates lose (n + 1)/n as much as bytes are worth at the margin.
    """
    return sum(worth * (1.0 + 1.0 / streams) for worth, streams in worth_of(cluster, links))


def worth_of(cluster: Cluster, links: Sequence[int]) -> Iterator[tuple[float, float]]:
    """(what a byte/s is worth to the checkpoint streams there, seconds of work a second; how many there are) of links they fill.

    P1's multipliers are that. Links that the same streams cross are one link, since P1 may charge on any of them. There is no
    multiplier where a planner knows none, or where no stream is in another's way: one that is alone, or streams that are held
    elsewhere to what the link has. There it is what the stream would save that saves least, less what it pays on its way.
    """
    full = cluster.flows.full_links(cluster.capacity.checkpoint_column).intersection(links)
    if not full:
        return
    (flows, paths), crossing = cluster.flows.streams(), cluster.flows.crossing()
    multipliers = np.zeros(len(crossing))
    counted = set[int]()
    for link in sorted(full):
        if link in counted:
            continue
        here = paths.crossing([link])
        among = paths.load(here.astype(float), len(crossing))  # how many of these streams cross each link
        alike = (among == among[link]) & (crossing == among[link])
        counted.update(np.flatnonzero(alike).tolist())
        charged = float(multipliers[alike].sum())
        if charged == 0.0:
            rows = [row for row in np.flatnonzero(here).tolist() if flows[row].cap_bytes_per_s > 0.0]
            ways = [paths.link[paths.start[row] : paths.start[row + 1]] for row in rows]
            saved = _saved_per_byte(cluster, [flows[row] for row in rows]).tolist()
            left = [each - float(multipliers[way].sum()) for each, way in zip(saved, ways, strict=True)]
            charged = max(0.0, min(left, default=0.0))
        if charged > 0.0:
            yield charged, float(among[link])


def _saved_per_byte(cluster: Cluster, flows: Sequence[CheckpointFlow]) -> Floats:
    """-dg/db of `checkpointing.cost` where jobs go on while they are sent: what each stream would save with more, s a byte."""
    jobs, beta = [cluster.jobs[flow.job] for flow in flows], cluster.checkpoint_share
    hazards = cluster.hazards_now_per_s(jobs, cluster.now_s)
    payloads = np.array([job.spec.payload_bytes for job in jobs], dtype=float)
    budgets = np.array([job.spec.loss_budget_s for job in jobs], dtype=float)
    rates = np.array([flow.cap_bytes_per_s for flow in flows])
    sending_s = np.array([job.checkpoint_bytes for job in jobs], dtype=float) / rates
    # the rate also holds the interval up where sending takes longer than that lets it
    turn_s = beta * aims_of(cluster, payloads, budgets, hazards)
    longer = np.maximum(0.0, 1.0 - (turn_s / sending_s) ** 2)
    saved: Floats = hazards * (1.0 + longer / (2.0 * beta)) * sending_s / rates
    return saved


def copies_to_vaults(cluster: Cluster, source: str) -> list[CheckpointFlow]:
    """Flows from a host of checkpoints of jobs that run elsewhere."""
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
    free = fair_share(cluster, job, cluster.now_s)
    safe = safe_store(cluster, job, job.standby, free)
    if safe is not None:
        return safe
    others = cluster.fit_hosts(job) - {job.host, job.standby}
    taken = {cluster.hosts[name].spec.building for name in (job.host, job.standby)}
    apart = {name for name in others if cluster.hosts[name].spec.building not in taken}
    for among in (apart, others):
        chosen = choose_volunteer(cluster, job, free, needs_gpu=False, among=among, is_last=True)
        if chosen is not None:
            return chosen
    return None
