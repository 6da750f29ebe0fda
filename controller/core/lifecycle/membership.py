"""Hosts that come and go: agents that register, fall silent or return, owners who reclaim and lend.

A host that falls silent is not a host whose jobs are dead. They may run until the lease lapses that the last acknowledged
heartbeat gave them; only then are they interrupted. Whoever comes back before says what still runs.
"""

from __future__ import annotations

from math import inf

from controller.core.lifecycle.announcements import announce_again
from controller.core.lifecycle.dispatch import gpu_freed, interrupt, withdraw_offers
from controller.core.lifecycle.grants import tell_grants
from controller.core.lifecycle.migration import (
    abandon,
    land_unheard,
    order,
    plan_moves,
    replan,
)
from controller.core.lifecycle.protection import forget_standby, protect, protect_soon
from controller.core.lifecycle.rollforward import take_up
from controller.core.lifecycle.second_copy import stop_copying
from controller.core.model import effects as do
from controller.core.model import facts
from controller.core.model.cluster import Cluster, present, record
from controller.core.model.entities import HostState, JobState, Phase
from testbed.messages import CancelTransfers, Hello, OwnerReclaims, StopJob, Welcome


def join(cluster: Cluster, host: HostState, hello: Hello, now_s: float) -> list[do.Effect]:
    """An agent registers, and may run jobs from here on; `reconcile` comes next."""
    host.connected, host.incarnation, host.data_port = True, hello.incarnation, hello.data_port
    host.lent, host.fence_at_s = hello.lent, inf
    host.reclaim_at_s = None if hello.reclaim_in_s is None else now_s + hello.reclaim_in_s
    host.closures = hello.closures
    announce_again(cluster, host.name)
    cluster.watch()
    heard(cluster, host, now_s)
    if host.is_volunteer and host.usable:
        cluster.hazards.lend(host.name, now_s)
    settings = cluster.settings
    effects: list[do.Effect] = [
        do.Tell(host.name, Welcome(settings.lease_s, settings.heartbeat_s)),
        record(facts.HostJoined(host.name, hello.incarnation, hello.lent)),
    ]
    return [*effects, *stop_copying(cluster, host.name)]


def not_yet(cluster: Cluster, host: HostState, hello: Hello, now_s: float) -> str:
    """Why this agent cannot register now; empty: it can. An agent that connects anew, known by its incarnation, always can.

    Another one may be what was started in place of one that died, or a stranger on that machine. Its word that no job runs there
    would end a lease under which one may run, so it waits until that lease has lapsed (or, if no job was to run there, until the
    first one's connection is gone).
    """
    if host.incarnation in (-1, hello.incarnation):
        return ""
    if host.connected:
        lapses_s = host.lease_until_s + cluster.settings.fence_margin_s
    else:
        lapses_s = host.fence_at_s if host.fence_at_s < inf and told_to_run(cluster, host) else -inf
    if now_s >= lapses_s:
        return ""
    return f"the lease of another agent of {host.name} runs for {lapses_s - now_s:.3f} s yet: try again then"


def told_to_run(cluster: Cluster, host: HostState) -> list[tuple[str, int]]:
    """(job, attempt) of what the host was told to run, by name: what its Hello should claim."""
    here = [job for job in cluster.jobs_on(host) if job.host == host.name and job.phase is not Phase.FETCHING]
    return [(job.name, job.attempt) for job in here]


def reconcile(
    cluster: Cluster, host: HostState, hello: Hello, told: list[tuple[str, int]], now_s: float
) -> list[do.Effect]:
    """After Hello: both sides agree on what runs there; then its free GPUs are offered.

    `told` is what it had been told to run before its Hello; what it was told since, it cannot claim yet.
    """
    effects = [*agree(cluster, host, hello, told, now_s), *remind(cluster, host, now_s)]
    effects += [*offer_all(cluster, host, now_s), *protect(cluster, now_s)]
    return [*effects, *take_up(cluster, host, now_s)]


def agree(
    cluster: Cluster, host: HostState, hello: Hello, told: list[tuple[str, int]], now_s: float
) -> list[do.Effect]:
    """What it was told to run and does not claim is interrupted; what it runs or sends unasked is stopped."""
    claimed = {(claim.job, claim.attempt): claim for claim in hello.jobs}
    effects: list[do.Effect] = []
    for name, attempt in told:
        job = present(cluster, host, name, attempt)
        if job is None:
            continue
        claim = claimed.pop((name, attempt), None)
        if claim is not None:
            job.step, job.interval_s = max(job.step, claim.step), None
        else:
            effects += land_unheard(cluster, job, now_s) or interrupt(cluster, job, "agent_lost", now_s)
    stopped = [do.Tell(host.name, StopJob(name, attempt)) for name, attempt in sorted(claimed)]
    return [*effects, *stopped, *_called_off(cluster, host, hello)]


def _called_off(cluster: Cluster, host: HostState, hello: Hello) -> list[do.Effect]:
    """What it sends without a grant: the order to stop was lost with its connection."""
    return [
        do.Tell(host.name, CancelTransfers(job, destination))
        for job, destination in hello.sending
        if f"{job}:{host.name}>{destination}" not in cluster.flows
    ]


def remind(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """Rates and orders that it may have missed."""
    return [*tell_grants(cluster, host.name), *_orders_again(cluster, host, now_s)]


def _orders_again(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """What was decided for its jobs while it could not be told, and what its owner did meanwhile."""
    here = [job for job in cluster.jobs_on(host) if job.host == host.name]
    moving = [job for job in here if job.phase is Phase.MOVING]
    if host.reclaim_at_s is None:  # no more; but who has stopped already goes where it was sent
        called_off = [job for job in moving if job.final_sequence is None]
        effects = order(cluster, [job for job in moving if job.final_sequence is not None], now_s)
        return [*effects, *(effect for job in called_off for effect in abandon(cluster, job, now_s))]
    again = order(cluster, moving, now_s)
    return [*again, *plan_moves(cluster, [job for job in here if job.phase is Phase.RUNNING], now_s)]


def heard(cluster: Cluster, host: HostState, now_s: float) -> None:
    """A heartbeat is about to be acknowledged: the lease runs from here, as far as this side may believe."""
    if host.lease_until_s == inf:
        cluster.watch()
    host.lease_until_s = now_s + cluster.settings.lease_s


def leave(cluster: Cluster, host: HostState, reason: str, now_s: float) -> list[do.Effect]:
    """The connection is gone: nothing is sent there, nothing new starts there, its jobs are fenced."""
    if not host.connected:
        return []
    disconnect(cluster, host, now_s)
    return [*lose(cluster, host, reason, now_s), *protect(cluster, now_s)]


def disconnect(cluster: Cluster, host: HostState, now_s: float) -> None:
    """Nothing can be said to it any more; what runs there is fenced when its lease has lapsed."""
    host.connected = False
    host.fence_at_s = max(now_s, host.lease_until_s + cluster.settings.fence_margin_s)
    cluster.watch()
    cluster.hazards.withdraw(host.name, now_s)
    withdraw_offers(cluster, host)


def lose(cluster: Cluster, host: HostState, reason: str, now_s: float) -> list[do.Effect]:
    """It is not expected back soon: whatever counted on it finds another."""
    lost = facts.HostLost(host.name, reason, sorted(host.jobs))
    return [record(lost), *let_go(cluster, host, now_s)]


def fence(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """The lease has lapsed: no copy runs there any more."""
    host.fence_at_s = inf
    jobs = [job for job in cluster.jobs_on(host) if job.host == host.name]
    return [effect for job in jobs for effect in interrupt(cluster, job, "agent_lost", now_s)]


def silent(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """Connected, but not heard for a whole lease: as good as gone."""
    return [do.Disconnect(host.name), *leave(cluster, host, "silent for a whole lease", now_s)]


def owner_reclaims(
    cluster: Cluster, host: HostState, message: OwnerReclaims, now_s: float
) -> list[do.Effect]:
    """With notice: move what runs there. Without, or when the notice is over: it is dead already."""
    for claim in message.stopped:
        job = cluster.jobs.get(claim.job)
        if job is not None and job.host == host.name and job.attempt == claim.attempt:
            job.step = max(job.step, claim.step)
    announced = host.reclaim_at_s is not None
    here = [job.name for job in cluster.jobs_on(host) if job.host == host.name]
    reclaimed = record(facts.HostReclaimed(host.name, message.notice_s, message.grace, here))
    withdraw_offers(cluster, host)
    host.lent, host.closures = False, message.closures
    if message.notice_s > 0.0:
        cluster.hazards.withdraw(host.name, now_s)
        host.reclaim_at_s = now_s + message.notice_s
        return [reclaimed, *_hurry(cluster, host, now_s), *_notice(cluster, host, now_s)]
    host.reclaim_at_s = None
    if announced:
        cluster.hazards.withdraw(host.name, now_s)
    else:
        cluster.hazards.emergency(host.name, now_s)
    return [reclaimed, *_closed(cluster, host, "deadline" if announced else "emergency", now_s)]


def owner_returns(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """A spot offer for every free GPU; moves that have not stopped their job yet are called off."""
    host.lent, host.reclaim_at_s = True, None
    cluster.hazards.lend(host.name, now_s)
    effects: list[do.Effect] = [record(facts.HostReturned(host.name))]
    for job in cluster.jobs_on(host):
        if job.host == host.name:
            job.degraded = False
            if job.phase is Phase.MOVING and job.final_sequence is None:
                effects += abandon(cluster, job, now_s)
    effects += [*offer_all(cluster, host, now_s), *protect(cluster, now_s)]
    return [*effects, *take_up(cluster, host, now_s)]


def offer_all(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """One offer for each GPU that is free and not offered."""
    gpus = range(max(0, host.free_gpus - len(host.offered)))
    return [effect for _ in gpus for effect in gpu_freed(cluster, host, now_s)]


def _notice(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """What runs there moves away; what was on its way there goes elsewhere."""
    running = [job for job in cluster.jobs_on(host) if job.host == host.name and job.phase is Phase.RUNNING]
    effects = let_go(cluster, host, now_s)
    return [*effects, *plan_moves(cluster, running, now_s, lambda cluster: protect_soon(cluster, now_s))]


def _hurry(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """A second notice with an earlier end: moves that were promised the later one are planned anew."""
    assert host.reclaim_at_s is not None
    effects: list[do.Effect] = []
    for job in [job for job in cluster.jobs_on(host) if job.host == host.name and job.move is not None]:
        if job.move is not None and job.move.deadline_s > host.reclaim_at_s + 1e-9:
            effects += replan(cluster, job, now_s)
    return effects


def _closed(cluster: Cluster, host: HostState, cause: str, now_s: float) -> list[do.Effect]:
    effects = let_go(cluster, host, now_s)
    for job in [job for job in cluster.jobs_on(host) if job.host == host.name]:
        effects += interrupt(cluster, job, cause, now_s)
    return [*effects, *protect_soon(cluster, now_s)]


def let_go(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """Whatever counted on this host for later finds another: standbys, fetches, destinations of moves."""
    effects: list[do.Effect] = []
    for job in [job for job in cluster.unfinished() if _counts_on(job, host.name)]:
        effects += _let_go_of(cluster, job, host, now_s)
    if not cluster.can_send(host.name):
        effects += _find_other_senders(cluster, host, now_s)
    return effects


def _counts_on(job: JobState, host: str) -> bool:
    return host in (job.standby, job.host) or (job.move is not None and job.move.destination == host)


def _let_go_of(cluster: Cluster, job: JobState, host: HostState, now_s: float) -> list[do.Effect]:
    if job.phase is Phase.FETCHING and job.host == host.name:
        return interrupt(cluster, job, "destination_lost", now_s)
    if job.move is not None and job.move.destination == host.name:
        return replan(cluster, job, now_s)
    if job.standby == host.name:
        return forget_standby(cluster, job)
    return []


def _find_other_senders(cluster: Cluster, host: HostState, now_s: float) -> list[do.Effect]:
    """Recoveries that were being sent from this host start again from another holder."""
    effects = stop_copying(cluster, host.name)
    for flow in [flow for flow in cluster.flows.values() if flow.source == host.name]:
        job = cluster.jobs[flow.job]
        if job.phase is Phase.FETCHING:
            effects += interrupt(cluster, job, "checkpoint_lost", now_s)
    return effects
