"""Hosts that come and go: agents that register, fall silent or return, owners that reclaim and lend.

A host that falls silent is not a host whose jobs are dead. They may run until the lease lapses that the last acknowledged
heartbeat gave them; only then are they interrupted. An agent that comes back before says what still runs.
"""

from __future__ import annotations

from math import inf

from controller.core.lifecycle.attempts import withdraw_offers
from controller.core.lifecycle.cancellation import tell_to_end
from controller.core.lifecycle.checkpoints import all_stored_by
from controller.core.lifecycle.grants import expect_again, tell_grants
from controller.core.lifecycle.job_reports import job_ended
from controller.core.lifecycle.link_changes import take_live_ways
from controller.core.lifecycle.migration import (
    abandon,
    land_unheard,
    order,
    plan_moves,
    replan,
)
from controller.core.lifecycle.offers import interrupt, offer_all
from controller.core.lifecycle.protection import forget_standby
from controller.core.lifecycle.rollforward import take_up
from controller.core.lifecycle.second_copy import stop_copying
from controller.core.model import effects as do
from controller.core.model import facts
from controller.core.model.cluster import Cluster, present
from controller.core.model.entities import HostState, Phase
from testbed.messages import (
    CancelTransfers,
    Heartbeat,
    HeartbeatAck,
    Hello,
    OwnerReclaims,
    StopJob,
    Welcome,
)


def register(cluster: Cluster, host: HostState, hello: Hello) -> None:
    """Reconcile a registering agent with what was ordered there; then offer its free GPUs."""
    told = expected_attempts(cluster, host)  # what is decided below, it cannot claim yet
    join(cluster, host, hello)
    for ended in hello.ended:
        job_ended(cluster, host, ended)
    all_stored_by(cluster, host, hello)
    reconcile_attempts(cluster, host, hello, told)
    resend_orders(cluster, host)
    offer_all(cluster, host)
    take_up(cluster, host)


def join(cluster: Cluster, host: HostState, hello: Hello) -> None:
    """Accept the agent: it may run jobs from here on."""
    now_s, protocol = cluster.now_s, cluster.protocol
    cluster.connect(host)
    host.incarnation, host.data_port, host.closures = hello.incarnation, hello.data_port, hello.closures
    cluster.lend(host, hello.lent, None if hello.reclaim_in_s is None else now_s + hello.reclaim_in_s)
    expect_again(cluster, host.name)
    heard(cluster, host)
    if host.is_volunteer and host.usable:
        cluster.hazards.lend(host.name, now_s)
    cluster.tell(host.name, Welcome(protocol.lease_s, protocol.heartbeat_s))
    cluster.record(facts.HostJoined(host.name, hello.incarnation, hello.lent))
    stop_copying(cluster, host.name)


def not_yet(cluster: Cluster, host: HostState, hello: Hello, now_s: float) -> str:
    """Return the reason why this agent cannot register now; empty: it can.

    An agent that connects anew, known by its incarnation, always can. Another one may be what was started in place
    of one that died, or a stranger on that machine. Its report that no job runs there would end a lease under which one may run.
    So it waits until that lease has lapsed (or, if no job was to run there, until the first one's connection is gone).
    """
    if host.incarnation in (-1, hello.incarnation):
        return ""
    if host.connected:
        lapses_s = host.lease_until_s + cluster.protocol.fence_margin_s
    else:
        lapses_s = host.fence_at_s if host.fence_at_s < inf and expected_attempts(cluster, host) else -inf
    if now_s >= lapses_s:
        return ""
    return f"the lease of another agent of {host.name} runs for {lapses_s - now_s:.3f} s yet: try again then"


def expected_attempts(cluster: Cluster, host: HostState) -> list[tuple[str, int]]:
    """Return (job, attempt) of what the host was ordered to run, by name: what its Hello should claim."""
    here = [job for job in cluster.jobs_on(host) if job.host == host.name and job.phase is not Phase.FETCHING]
    return [(job.name, job.attempt) for job in here]


def reconcile_attempts(cluster: Cluster, host: HostState, hello: Hello, told: list[tuple[str, int]]) -> None:
    """Interrupt what was ordered and is not claimed; stop what runs or is sent without an order.

    `told`: orders from before its Hello; it cannot claim later ones yet.
    """
    claimed = {(claim.job, claim.attempt): claim for claim in hello.jobs}
    for name, attempt in told:
        job = present(cluster, host, name, attempt)
        if job is None:
            continue
        claim = claimed.pop((name, attempt), None)
        if claim is not None:
            job.did(claim.step)
            job.interval_s = None
        elif not land_unheard(cluster, job):
            interrupt(cluster, job, "agent_lost")
    for name, attempt in sorted(claimed):
        cluster.tell(host.name, StopJob(name, attempt))
    for name, destination in hello.sending:  # the order to stop was lost with its connection
        if f"{name}:{host.name}>{destination}" not in cluster.flows:
            cluster.tell(host.name, CancelTransfers(name, destination))


def resend_orders(cluster: Cluster, host: HostState) -> None:
    """Send again what the host may have missed: rates, and what was decided for its jobs meanwhile."""
    tell_grants(cluster, host.name)
    here = [job for job in cluster.jobs_on(host) if job.host == host.name]
    running = [job for job in here if job.phase is Phase.RUNNING]
    if cluster.routes.has_choice and any(job.phase is Phase.MOVING for job in here):
        take_live_ways(cluster)  # it plans those anew that have none
    moving = [job for job in here if job.phase is Phase.MOVING]
    for job in here:
        if job.phase is Phase.CANCELLING:
            tell_to_end(cluster, job)
    if host.reclaim_at_s is not None:
        for job in moving:
            order(cluster, job)
        plan_moves(cluster, [job for job in running if job.phase is Phase.RUNNING])
        return
    for job in moving:
        if job.final_sequence is None:
            abandon(cluster, job)
        else:  # it has stopped: it goes where it was sent
            order(cluster, job)


def heard(cluster: Cluster, host: HostState) -> None:
    """Renew the lease: a heartbeat is about to be acknowledged."""
    cluster.lease(host, cluster.now_s + cluster.protocol.lease_s)


def heartbeat(cluster: Cluster, host: HostState, beat: Heartbeat) -> None:
    """Renew the lease, and record what the agent counted: steps, transfers, the egress of its samples."""
    heard(cluster, host)
    for claim in beat.jobs:
        if job := present(cluster, host, claim.job, claim.attempt):
            job.did(claim.step)
        elif claim.job in cluster.jobs and cluster.jobs[claim.job].phase is Phase.CANCELLED:
            cluster.tell(host.name, StopJob(claim.job, claim.attempt))  # its start came after its end
    expect_ends(cluster, host, {(claim.job, claim.attempt) for claim in beat.jobs})
    host.flows = {flow.transfer: flow for flow in beat.flows}
    cluster.tell(host.name, HeartbeatAck(beat.number))
    window_s = sum(sample.period_s for sample in beat.samples)
    if window_s <= 0.0:
        return
    drops = sum(count.drops for count in beat.classes.values())
    cluster.record(
        facts.EgressMeasured(
            host.name,
            window_s,
            sum(sample.migration_bytes for sample in beat.samples),
            sum(sample.research_bytes for sample in beat.samples),
            drops - host.drops,
            max(s.migration_bytes / s.period_s for s in beat.samples if s.period_s > 0.0),
            sum(sample.held_bytes for sample in beat.samples),
            max(s.held_bytes / s.period_s for s in beat.samples if s.period_s > 0.0),
            beat.loop_lag_s,
        )
    )
    host.drops = drops


def expect_ends(cluster: Cluster, host: HostState, claimed: set[tuple[str, int]]) -> None:
    """Await the end of each job that should run there and that a heartbeat does not list."""
    for job in cluster.jobs_on(host):
        if job.host != host.name or job.phase is not Phase.RUNNING:
            continue
        wait = cluster.timeouts.get(job.name)
        if (job.name, job.attempt) in claimed:
            if wait is not None and wait.phase is Phase.RUNNING:
                del cluster.timeouts[job.name]
        elif wait is None:
            cluster.arm_timeout(job, 0.0)


def on_disconnect(cluster: Cluster, host: HostState, reason: str) -> None:
    """Give up a lost connection: nothing is sent there, nothing new starts there, its jobs are fenced."""
    if host.connected:
        disconnect(cluster, host)
        mark_lost(cluster, host, reason)


def disconnect(cluster: Cluster, host: HostState) -> None:
    """Record that nothing can be sent there; its jobs are fenced once its lease has lapsed."""
    cluster.disconnect(host)
    cluster.hazards.withdraw(host.name, cluster.now_s)
    withdraw_offers(cluster, host)


def mark_lost(cluster: Cluster, host: HostState, reason: str) -> None:
    """Replace all that counted on a host that is not expected back soon."""
    cluster.record(facts.HostLost(host.name, reason, sorted(host.jobs)))
    release_dependents(cluster, host)


def fence(cluster: Cluster, host: HostState) -> None:
    """Interrupt the jobs of a host whose lease has lapsed: no copy runs there any more."""
    cluster.fence(host, inf)
    _interrupt_all(cluster, host, "agent_lost")


def _interrupt_all(cluster: Cluster, host: HostState, cause: str) -> None:
    """Interrupt the jobs of a host on which nothing runs any more."""
    for job in [job for job in cluster.jobs_on(host) if job.host == host.name]:
        interrupt(cluster, job, cause)


def silent(cluster: Cluster, host: HostState, why: str = "silent for a whole lease") -> None:
    """Disconnect an agent that does not answer."""
    cluster.outbox.append(do.Disconnect(host.name))
    on_disconnect(cluster, host, why)


def hear_longer(cluster: Cluster, host: HostState) -> None:
    """Put off the verdict on a silent host by a heartbeat: a longer lease is always safe to assume."""
    until_s = cluster.now_s + cluster.protocol.heartbeat_s
    if host.connected:
        cluster.lease(host, until_s - cluster.protocol.fence_margin_s)
    else:
        cluster.fence(host, until_s)


def owner_reclaims(cluster: Cluster, host: HostState, message: OwnerReclaims) -> None:
    """Move what runs there, with notice; without, or when the notice is over, it is dead already."""
    now_s, announced = cluster.now_s, host.reclaim_at_s is not None
    for claim in message.stopped:
        if job := present(cluster, host, claim.job, claim.attempt):
            job.did(claim.step)
    here = [job for job in cluster.jobs_on(host) if job.host == host.name]
    names = [job.name for job in here]
    cluster.record(facts.HostReclaimed(host.name, message.notice_s, message.grace, names))
    withdraw_offers(cluster, host)
    host.closures, cluster.plan_stale = message.closures, True
    reclaim_at_s = now_s + message.notice_s
    cluster.lend(host, False, reclaim_at_s if message.notice_s > 0.0 else None)
    if message.notice_s > 0.0:
        cluster.hazards.withdraw(host.name, now_s, message.notice_s)
        for job in here:  # a second notice with an earlier end: moves that were admitted with the later one
            if job.move is not None and job.move.deadline_s > reclaim_at_s + 1e-9:
                replan(cluster, job)
        running = [
            job for job in cluster.jobs_on(host) if job.host == host.name and job.phase is Phase.RUNNING
        ]
        release_dependents(cluster, host)
        plan_moves(cluster, running)
        return
    if announced:
        cluster.hazards.withdraw(host.name, now_s, 0.0)
    else:
        cluster.hazards.emergency(host.name, now_s)
    release_dependents(cluster, host)
    _interrupt_all(cluster, host, "deadline" if announced else "emergency")


def owner_returns(cluster: Cluster, host: HostState) -> None:
    """Offer every free GPU, and call off moves that have not stopped their job yet."""
    lent_again(cluster, host)
    for job in cluster.jobs_on(host):
        if job.host == host.name and job.phase is Phase.MOVING and job.final_sequence is None:
            abandon(cluster, job)
    offer_all(cluster, host)
    take_up(cluster, host)


def lent_again(cluster: Cluster, host: HostState) -> None:
    """Record that the owner has returned the host: jobs there need not leave, and its copies are in reach."""
    cluster.lend(host, True, None)
    cluster.plan_stale = True
    cluster.hazards.lend(host.name, cluster.now_s)
    cluster.record(facts.HostReturned(host.name))
    for job in cluster.jobs_on(host):
        if job.host == host.name:
            job.degraded = False


def release_dependents(cluster: Cluster, host: HostState) -> None:
    """Replace all that counted on this host: standbys, fetches, destinations of moves, senders."""
    name = host.name
    counting = [
        job
        for job in cluster.jobs.unfinished()
        if job.standby == name or job.host == name or (job.move is not None and job.move.destination == name)
    ]
    for job in counting:
        if job.phase is Phase.FETCHING and job.host == host.name:
            interrupt(cluster, job, "destination_lost")
        elif job.move is not None and job.move.destination == host.name:
            replan(cluster, job)
        elif job.standby == host.name:
            forget_standby(cluster, job)
    if cluster.can_send(host.name):
        return
    stop_copying(cluster, host.name)
    for flow in cluster.flows.from_host(host.name):
        job = cluster.jobs[flow.job]
        if job.phase is Phase.FETCHING:  # it starts again from another holder
            interrupt(cluster, job, "checkpoint_lost")
