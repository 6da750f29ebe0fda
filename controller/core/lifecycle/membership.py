"""Hosts that come and go: agents that are lost or fall silent, owners that reclaim and lend.

A host that falls silent is not a host whose jobs are dead. They may run until the lease lapses that the last acknowledged
heartbeat gave them; only then are they interrupted. An agent that comes back before reports what still runs (`reconcile`).
"""

from __future__ import annotations

from math import inf

from controller.core.lifecycle.attempts import withdraw_offers
from controller.core.lifecycle.job_events import take_up
from controller.core.lifecycle.migration import abandon, plan_moves, replan
from controller.core.lifecycle.offers import interrupt, offer_all
from controller.core.lifecycle.protection import forget_standby
from controller.core.lifecycle.second_copy import stop_copying
from controller.core.model import effects as do
from controller.core.model import facts
from controller.core.model.cluster import Cluster, present
from controller.core.model.entities import HostState, Phase
from testbed.messages import OwnerReclaims

# A host that is taken so soon after it was lent gets no job for a lease when it is lent again, then for twice as long, and so on.
# One that was toggled twice a second got the same job twelve times in seven seconds, and each time it began to fetch its state.
MOMENT_LEASES, MAX_REST_LEASES = 2.0, 20.0


def end_rests(cluster: Cluster) -> None:
    """Offer the GPUs of hosts that have rested."""
    for name in [name for name, until_s in cluster.resting.items() if until_s <= cluster.now_s]:
        del cluster.resting[name]
        offer_all(cluster, cluster.hosts[name])


def on_disconnect(cluster: Cluster, host: HostState, reason: str) -> None:
    """Give up a lost connection: nothing is sent there, nothing new starts there, its jobs are fenced."""
    if host.connected:
        disconnect(cluster, host)
        mark_lost(cluster, host, reason)


def disconnect(cluster: Cluster, host: HostState) -> None:
    """Record that nothing can be sent there; its jobs are fenced once its lease has lapsed."""
    host.connected = False
    cluster.plan_stale = cluster.rates_stale = True
    cluster.fence(host, max(cluster.now_s, host.lease_until_s + cluster.protocol.fence_margin_s))
    cluster.hazards.lose(host.name, cluster.now_s)
    withdraw_offers(cluster, host)


def mark_lost(cluster: Cluster, host: HostState, reason: str) -> None:
    """Replace all that counted on a host that is not expected back soon."""
    cluster.record(facts.HostLost(host.name, reason, sorted(host.jobs)))
    release_dependents(cluster, host)


def fence(cluster: Cluster, host: HostState, cause: str = "agent_lost") -> None:
    """Interrupt the jobs of a host on which no copy runs any more: its lease has lapsed, or its owner has it."""
    for job in cluster.jobs_on(host):
        interrupt(cluster, job, cause)


def silent(cluster: Cluster, host: HostState, why: str = "silent for a whole lease") -> None:
    """Disconnect an agent that does not answer."""
    cluster.outbox.append(do.Disconnect(host.name))
    on_disconnect(cluster, host, why)


def end_leases(cluster: Cluster) -> None:
    """Disconnect hosts whose lease is over, and fence the jobs of those that were disconnected before.

    Where this process stood still, what a host has sent meanwhile may not have been read yet. Its end is put off by a
    heartbeat: a longer lease is always safe to assume.
    """
    now_s, margin_s = cluster.now_s, cluster.protocol.fence_margin_s
    for host, since_s in cluster.leases.ended(now_s):
        if now_s > since_s + margin_s:
            until_s = now_s + cluster.protocol.heartbeat_s
            if host.connected:
                cluster.lease(host, until_s - margin_s)
            else:
                cluster.fence(host, until_s)
            continue
        if host.connected and now_s >= host.lease_until_s + margin_s:
            silent(cluster, host)
        if now_s >= host.fence_at_s:
            cluster.fence(host, inf)
            fence(cluster, host)


def owner_reclaims(cluster: Cluster, host: HostState, message: OwnerReclaims) -> None:
    """Move what runs there, with notice; without, or when the notice is over, it is dead already."""
    now_s, announced, lease_s = cluster.now_s, host.reclaim_at_s is not None, cluster.protocol.lease_s
    if host.lent:
        in_a_moment = now_s - host.lent_at_s < MOMENT_LEASES * lease_s
        host.rest_s = min(max(lease_s, 2.0 * host.rest_s), MAX_REST_LEASES * lease_s) if in_a_moment else 0.0
        cluster.resting.pop(host.name, None)
    for claim in message.stopped:
        if job := present(cluster, host, claim.job, claim.attempt):
            job.did(claim.step)
    here = cluster.jobs_on(host)
    names = [job.name for job in here]
    cluster.record(facts.HostReclaimed(host.name, message.notice_s, message.grace, names))
    withdraw_offers(cluster, host)
    host.closures, cluster.plan_stale = message.closures, True
    reclaim_at_s = now_s + message.notice_s
    if cluster.calendars and reclaim_at_s >= cluster.protocol.week.end_s(host.spec.lent, now_s):
        # the part of the hazard that is known, not that of what was seen
        cluster.hazards.lose(host.name, now_s)
    else:
        cluster.hazards.depart(host.name, now_s, message.notice_s)
    host.lent, host.reclaim_at_s = False, reclaim_at_s if message.notice_s > 0.0 else None
    if message.notice_s > 0.0:
        for job in here:  # a second notice with an earlier end: moves that were admitted with the later one
            if job.move is not None and job.move.deadline_s > reclaim_at_s + 1e-9:
                replan(cluster, job)
        running = [job for job in cluster.jobs_on(host) if job.phase is Phase.RUNNING]
        release_dependents(cluster, host)
        plan_moves(cluster, running)
        return
    release_dependents(cluster, host)
    fence(cluster, host, "deadline" if announced else "emergency")


def owner_returns(cluster: Cluster, host: HostState) -> None:
    """Offer every free GPU, and call off moves that have not stopped their job yet."""
    lent_again(cluster, host)
    for job in cluster.jobs_on(host):
        if job.phase is Phase.MOVING and job.final_sequence is None:
            abandon(cluster, job)
    offer_all(cluster, host)
    take_up(cluster, host)


def lent_again(cluster: Cluster, host: HostState) -> None:
    """Record that the owner has returned the host: jobs there need not leave, and its copies are in reach."""
    host.lent, host.reclaim_at_s, host.lent_at_s = True, None, cluster.now_s
    if host.rest_s > 0.0:
        cluster.resting[host.name] = cluster.now_s + host.rest_s
    cluster.plan_stale = True
    cluster.hazards.lend(host.name, cluster.now_s)
    cluster.record(facts.HostReturned(host.name))
    for job in cluster.jobs_on(host):
        job.degraded = False


def release_dependents(cluster: Cluster, host: HostState) -> None:
    """Replace all that counted on this host: standbys, fetches, destinations of moves, senders."""
    name = host.name
    counting = [
        job
        for job in cluster.jobs.unfinished
        if job.standby == name or job.host == name or (job.move is not None and job.move.destination == name)
    ]
    for job in counting:
        if job.phase is Phase.FETCHING and job.host == host.name:
            interrupt(cluster, job, "destination_lost")
        elif job.move is not None and job.move.destination == host.name:
            replan(cluster, job)
        elif job.standby == host.name:
            forget_standby(cluster, job)
    if host.can_send:
        return
    stop_copying(cluster, host.name)
    for flow in cluster.flows.from_host(host.name):
        job = cluster.jobs[flow.job]
        if job.phase is Phase.FETCHING:  # it starts again from another holder
            interrupt(cluster, job, "checkpoint_lost")
