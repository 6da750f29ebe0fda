"""Resynchronisation after a restart: every agent reports before the coordinator decides anything.

The journal brings back what the coordinator believed when it died, and that no connection survived it. The campus went on
without it: jobs computed and finished, checkpoints arrived, owners came and went. An agent that reconnects says all of that in
its Hello, but each says its own half only. A move whose final checkpoint has arrived is known to its destination, and at
its source nothing is left of the job; a coordinator that judged the source's Hello before it had heard the destination
would take the job for dead. So it collects first: Hellos are answered, which renews leases, and everything else waits until every
agent that was connected has come back, or until `PATIENCE` heartbeats are over. Then all are judged together: first whose owner
has returned it since, and what is stored, then which are missing, then what runs where; at last what else was said meanwhile.

Leases need no clock that outlived the process. An agent's lease runs from the sending of a heartbeat that was acknowledged by
the process that died, so it ends at the latest one lease after that death, thus within one lease of the restart, however
long the coordinator was down. Until then (and a margin) the jobs of an agent that does not come back are fenced.

What was reserved stays reserved: moves and their grants go on between agents that came back as they are. Recoveries, which an
agent stops sending when it loses the coordinator, are ordered again. Offers lapse and are made anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.core.lifecycle.checkpoints import all_stored_by
from controller.core.lifecycle.job_reports import job_ended
from controller.core.lifecycle.membership import (
    disconnect,
    expected_attempts,
    join,
    lent_again,
    mark_lost,
    reconcile_attempts,
    release_dependents,
    resend_orders,
)
from controller.core.lifecycle.offers import offer_all
from controller.core.lifecycle.rollforward import take_up
from controller.core.model import events as ev
from controller.core.model.cluster import Cluster
from controller.core.model.entities import HostState, Phase
from testbed.messages import Hello, OwnerReclaims, OwnerReturns

PATIENCE = 2  # heartbeats: two attempts of an agent to connect at its slowest, and less than a lease


@dataclass
class Resync:
    """Agents awaited after a restart, until when, and what was received meanwhile."""

    awaited: set[str]
    until_s: float
    hellos: dict[str, Hello] = field(default_factory=dict)
    kept: list[
        ev.AgentSaid
        | ev.JobSubmitted
        | ev.CancelAsked
        | ev.LinksMeasured
        | ev.LinksChanged
        | ev.WaysSet
        | ev.DrainAsked
    ] = field(default_factory=list)

    def over(self, now_s: float) -> bool:
        """Return whether all are there, or the patience is over."""
        return now_s >= self.until_s or not self.awaited

    def registered(self, cluster: Cluster, hello: Hello) -> None:
        """Accept a registering agent: it may go on with its jobs, and is reconciled later."""
        self.awaited.discard(hello.host)
        self.hellos[hello.host] = hello
        join(cluster, cluster.hosts[hello.host], hello)

    def take_returns(self) -> list[str]:
        """Return hosts whose owners have returned them since their Hellos, in order, and drop these messages."""
        first: dict[str, ev.AgentSaid] = {}
        for event in self.kept:
            if isinstance(event, ev.AgentSaid) and isinstance(event.message, OwnerReturns | OwnerReclaims):
                first.setdefault(event.host, event)
        found = [event for event in first.values() if isinstance(event.message, OwnerReturns)]
        self.kept = [event for event in self.kept if not any(event is each for each in found)]
        return [event.host for event in found]

    def disconnected(self, cluster: Cluster, host: HostState) -> None:
        """Forget the messages of a host that has lost its connection again: it will send them again."""
        if self.hellos.pop(host.name, None) is None:
            return
        disconnect(cluster, host)
        self.awaited.add(host.name)
        self.kept = [e for e in self.kept if not isinstance(e, ev.AgentSaid) or e.host != host.name]


def begin(cluster: Cluster, before: Resync | None) -> Resync:
    """Await all agents: no connection survived. What was told once is kept from an earlier resync that ended so."""
    now_s, protocol = cluster.now_s, cluster.protocol
    fence_at_s = now_s + protocol.lease_s + protocol.fence_margin_s
    awaited = {host.name for host in cluster.hosts.values() if host.connected}
    awaited |= before.awaited if before else set()
    for host in cluster.hosts.values():
        if host.connected:
            disconnect(cluster, host)
        if host.jobs or host.name in awaited:
            cluster.fence(host, fence_at_s)
    once = (ev.JobSubmitted, ev.CancelAsked, ev.LinksChanged)
    told_once = [event for event in before.kept if isinstance(event, once)] if before else []
    return Resync(awaited, now_s + PATIENCE * protocol.heartbeat_s, kept=list(told_once))


def reconcile(cluster: Cluster, resyncing: Resync) -> None:
    """Reconcile all agents that came back: from here on the state is the truth, as far as it can be known."""
    came = [(cluster.hosts[name], hello) for name, hello in sorted(resyncing.hellos.items())]
    for name in resyncing.take_returns():
        lent_again(cluster, cluster.hosts[name])
    told = {host.name: expected_attempts(cluster, host) for host, _ in came}
    for host, hello in came:
        all_stored_by(cluster, host, hello)
    for name in sorted(resyncing.awaited):
        mark_lost(cluster, cluster.hosts[name], "did not come back after the coordinator")
    for host, _ in came:
        if not host.usable:
            release_dependents(cluster, host)
    for host, hello in came:
        for ended in hello.ended:
            job_ended(cluster, host, ended)
    for host, hello in came:
        reconcile_attempts(cluster, host, hello, told[host.name])
    for host, _ in came:
        resend_orders(cluster, host)
        for _, flow in sorted(cluster.flows.items()):  # recoveries that were being sent from here
            job = cluster.jobs[flow.job]
            if flow.source == host.name and job.phase is Phase.FETCHING and job.restore is not None:
                cluster.orders[flow.key] = None
    for host, _ in came:
        offer_all(cluster, host)


def take_up_again(cluster: Cluster, resyncing: Resync) -> None:
    """Stop jobs for better checkpoints last, when messages received meanwhile have shown which hosts are still in reach."""
    for name in sorted(resyncing.hellos):
        take_up(cluster, cluster.hosts[name])
