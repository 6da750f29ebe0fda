"""Reconciliation: what agents report is compared with what was decided for them, and the difference is sent.

An agent registers with a Hello: what runs there, what it holds, what it sends. That is acknowledged, and it is sent
what was decided meanwhile and what it has missed (`reconcile`). Heartbeats do the same for jobs alone. What no report
has acknowledged for too long is sent again (`retry_overdue`): the order to send a checkpoint (a receiver that has it
reports it), or to stop a job. That is answered whatever has become of it. Each timeout is twice as long as the one
before. A checkpoint that is still missing after `MAX_ASKED` is fetched from elsewhere. An agent that goes on with its
heartbeats and leaves `MAX_UNANSWERED` orders unanswered is disconnected.

**After a restart** nothing is acknowledged, and each agent reports its own half only. A move whose final checkpoint
has arrived is known to its destination, and at its source nothing is left of the job: a coordinator that judged the
source's Hello alone would take the job for dead. So Hellos are answered, which renews leases. Everything else is kept
until every agent that was connected has come back, or until `RECOVERY_HEARTBEATS` are over. Then all are reconciled
together.

Leases need no clock that outlived the process. An agent's lease runs from a heartbeat that the process acknowledged,
so it ends within one lease of the restart. Until then (and a margin) the jobs of an agent that does not come back are
fenced. What was reserved stays reserved. Recoveries, which an agent stops sending when it loses the coordinator, are
ordered again. Offers are made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from controller.core.lifecycle.checkpoints import all_stored_by
from controller.core.lifecycle.grants import expected
from controller.core.lifecycle.job_events import job_ended, take_up, tell_to_end
from controller.core.lifecycle.link_changes import take_live_ways
from controller.core.lifecycle.membership import disconnect, lent_again, mark_lost, release_dependents, silent
from controller.core.lifecycle.migration import abandon, land_unheard, order, plan_moves
from controller.core.lifecycle.offers import interrupt, offer_all
from controller.core.lifecycle.second_copy import stop_copying
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.cluster import Cluster, present
from controller.core.model.entities import HostState, Phase
from testbed import messages as m

# heartbeats for which agents are awaited after a restart: two attempts of one to connect at its slowest, and less than a lease
RECOVERY_HEARTBEATS = 2
# with a first time of ten times what it should take, that is three hundred times as long
MAX_ASKED = 5
# an order to stop is answered in a moment, whatever has become of the job: the second is for one that was lost
MAX_UNANSWERED = 2

Came = Sequence[tuple[HostState, m.Hello]]  # agents that have registered, and their Hellos


# ---------------------------------------------------------------- registrations


def register(cluster: Cluster, host: HostState, hello: m.Hello) -> None:
    """Accept an agent, reconcile it, and go on from better checkpoints that it has brought back."""
    join(cluster, host, hello)
    reconcile(cluster, [(host, hello)])
    take_up(cluster, host)


def join(cluster: Cluster, host: HostState, hello: m.Hello) -> None:
    """Accept the agent: it may run jobs from here on, and is sent what it is to expect."""
    now_s, protocol = cluster.now_s, cluster.protocol
    host.connected, host.fence_at_s = True, inf
    host.incarnation, host.data_port, host.closures = hello.incarnation, hello.data_port, hello.closures
    host.lent = hello.lent
    host.reclaim_at_s = None if hello.reclaim_in_s is None else now_s + hello.reclaim_in_s
    cluster.plan_stale = cluster.rates_stale = True

    cluster.lease(host, now_s + protocol.lease_s)
    if host.is_volunteer and host.usable:
        cluster.hazards.lend(host.name, now_s)
    cluster.tell(host.name, m.Welcome(protocol.lease_s, protocol.heartbeat_s))
    for flow in cluster.flows.to_host(host.name):
        cluster.tell(host.name, expected(cluster, flow))
    cluster.record(facts.HostJoined(host.name, hello.incarnation, hello.lent))
    stop_copying(cluster, host.name)


def not_yet(cluster: Cluster, host: HostState, hello: m.Hello, now_s: float) -> str:
    """Return the reason why this agent cannot register now; empty: it can.

    An agent that connects again, known by its incarnation, always can. Another one may be what was started in place
    of one that died, or a stranger on that machine. Its report that no job runs there would end a lease under which
    one may run. So it waits until that lease has lapsed (or, if no job was to run there, until the first one's
    connection is gone).
    """
    if host.incarnation in (-1, hello.incarnation):
        return ""
    if host.connected:
        lapses_s = host.lease_until_s + cluster.protocol.fence_margin_s
    else:
        lapses_s = host.fence_at_s if host.fence_at_s < inf and _ordered(cluster, host) else -inf
    if now_s >= lapses_s:
        return ""
    return f"the lease of another agent of {host.name} runs for {lapses_s - now_s:.3f} s yet: try again then"


def _ordered(cluster: Cluster, host: HostState) -> list[tuple[str, int]]:
    """Return (job, attempt) of what the host was ordered to run, by name: what its Hello should claim."""
    return [(job.name, job.attempt) for job in cluster.jobs_on(host) if job.phase is not Phase.FETCHING]


def reconcile(cluster: Cluster, came: Came, missing: Iterable[str] = ()) -> None:
    """Take the Hellos for the truth, and send each of these agents the difference. `missing`: hosts that did not come back.

    Stored checkpoints are handled first, since a move is over when its destination has the last state, whatever its
    source reports.
    """
    ordered = {host.name: _ordered(cluster, host) for host, _ in came}  # what is decided below none can claim
    for host, hello in came:
        all_stored_by(cluster, host, hello)
    for name in missing:
        mark_lost(cluster, cluster.hosts[name], "did not come back after the coordinator")
    for host, _ in came:
        if not host.usable:
            release_dependents(cluster, host)
    for host, hello in came:
        for ended in hello.ended:
            job_ended(cluster, host, ended)
    for host, hello in came:
        _reconcile_attempts(cluster, host, hello, ordered[host.name])
    for host, _ in came:
        _resend(cluster, host)
    for host, _ in came:
        offer_all(cluster, host)


def _reconcile_attempts(cluster: Cluster, host: HostState, hello: m.Hello, ordered: list[tuple[str, int]]) -> None:
    """Interrupt what was ordered and is not claimed; stop what runs or is sent without an order."""
    claimed = {(claim.job, claim.attempt): claim for claim in hello.jobs}
    for name, attempt in ordered:
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
        cluster.tell(host.name, m.StopJob(name, attempt))
    for name, destination in hello.sending:  # the order to stop was lost with its connection
        if f"{name}:{host.name}>{destination}" not in cluster.flows:
            cluster.tell(host.name, m.CancelTransfers(name, destination))


def _resend(cluster: Cluster, host: HostState) -> None:
    """Send what the host may have missed: rates, recoveries to send, and what was decided for its jobs meanwhile."""
    sent_here = sorted((flow.key, flow) for flow in cluster.flows.from_host(host.name))
    for _, flow in sent_here:  # a fall to no rate comes with no new interval
        cluster.tell(host.name, m.Grant(flow.job, flow.destination, flow.rate_bytes_per_s))
    here = cluster.jobs_on(host)
    running = [job for job in here if job.phase is Phase.RUNNING]
    if cluster.routes.has_choice and any(job.phase is Phase.MOVING for job in here):
        take_live_ways(cluster)  # it plans those again that have none
    for job in here:
        if job.phase is Phase.CANCELLING:
            tell_to_end(cluster, job)
        elif job.phase is Phase.MOVING and (host.reclaim_at_s is not None or job.final_sequence is not None):
            order(cluster, job)  # one that has stopped goes where it was sent
        elif job.phase is Phase.MOVING:
            abandon(cluster, job)
    if host.reclaim_at_s is not None:
        plan_moves(cluster, [job for job in running if job.phase is Phase.RUNNING])
    for key, flow in sent_here:
        if flow.is_recovery and key in cluster.flows and cluster.jobs[flow.job].phase is Phase.FETCHING:
            cluster.orders[key] = None


# ---------------------------------------------------------------- heartbeats and timeouts


def heartbeat(cluster: Cluster, host: HostState, beat: m.Heartbeat) -> None:
    """Renew the lease, and record what the agent counted: steps, and the egress of its samples."""
    cluster.lease(host, cluster.now_s + cluster.protocol.lease_s)
    for claim in beat.jobs:
        if job := present(cluster, host, claim.job, claim.attempt):
            job.did(claim.step)
        elif claim.job in cluster.jobs and cluster.jobs[claim.job].phase is Phase.CANCELLED:
            cluster.tell(host.name, m.StopJob(claim.job, claim.attempt))  # its start came after its end
    _expect_ends(cluster, host, {(claim.job, claim.attempt) for claim in beat.jobs})
    cluster.tell(host.name, m.HeartbeatAck(beat.number))
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


def _expect_ends(cluster: Cluster, host: HostState, claimed: set[tuple[str, int]]) -> None:
    """Await the end of each job that should run there and that a heartbeat does not list."""
    for job in cluster.jobs_on(host):
        if job.phase is not Phase.RUNNING:
            continue
        if (job.name, job.attempt) in claimed:
            cluster.timeouts.pop(job.name, None)
        elif job.name not in cluster.timeouts:
            cluster.arm_timeout(job, 0.0)


def retry_overdue(cluster: Cluster) -> None:
    """Send the order of each job again whose timeout has passed, or give it up."""
    for name, wait in list(cluster.timeouts.items()):
        if cluster.now_s < wait.until_s or cluster.timeouts.get(name) is not wait:
            continue
        job = cluster.jobs[name]
        asked, host = wait.asked + 1, job.host or ""
        flows = [flow for flow in cluster.flows.values() if flow.job == name and flow.destination == host]
        if job.phase is not Phase.FETCHING and asked > MAX_UNANSWERED and cluster.hosts[host].connected:
            job.obstacles.unfit[host] = cluster.now_s + asked * wait.within_s
            silent(cluster, cluster.hosts[host], f"{asked - 1} orders to stop {name} were not answered")
        elif job.phase is not Phase.FETCHING:
            cluster.tell(host, m.StopJob(name, job.attempt))
        elif asked > MAX_ASKED or not flows or job.restore is None:
            job.obstacles.unfit[host] = cluster.now_s + asked * cluster.protocol.control_period_s
            for flow in flows:
                job.fetch_failed(flow.source)
            interrupt(cluster, job, "checkpoint_lost")
        else:
            cluster.orders[flows[0].key] = None
        if cluster.timeouts.get(name) is wait:
            cluster.arm_timeout(job, 2.0 * wait.within_s, asked)


# ---------------------------------------------------------------- restarts


@dataclass
class Resync:
    """Agents awaited after a restart, until when, and what was received meanwhile."""

    awaited: set[str]
    until_s: float
    hellos: dict[str, m.Hello] = field(default_factory=dict)
    kept: list[ev.Event] = field(default_factory=list)

    def collect(self, cluster: Cluster, event: ev.Event) -> None:
        """Keep what was received for later; Hellos and heartbeats alone are answered at once."""
        match event:
            case ev.AgentSaid(name, m.Hello() as hello):
                self.awaited.discard(name)
                self.hellos[name] = hello
                join(cluster, cluster.hosts[name], hello)
            case ev.AgentSaid(name, m.Heartbeat() as beat):
                heartbeat(cluster, cluster.hosts[name], beat)
            case ev.AgentGone(name, _):
                if self.hellos.pop(name, None) is not None:  # it will report all of it again
                    disconnect(cluster, cluster.hosts[name])
                    self.awaited.add(name)
                    self.kept = [e for e in self.kept if not isinstance(e, ev.AgentSaid) or e.host != name]
            case ev.Woke() | ev.Restarted():
                pass
            case _:
                self.kept.append(event)

    def over(self, now_s: float) -> bool:
        """Return whether all are there, or have been awaited for long enough."""
        return now_s >= self.until_s or not self.awaited

    def finish(self, cluster: Cluster) -> list[ev.Event]:
        """Reconcile all agents that came back; return what else was received, to be handled now."""
        for name in self._take_returns():
            lent_again(cluster, cluster.hosts[name])
        came = [(cluster.hosts[name], hello) for name, hello in sorted(self.hellos.items())]
        reconcile(cluster, came, sorted(self.awaited))
        return self.kept

    def _take_returns(self) -> list[str]:
        """Return hosts whose owners have returned them since their Hellos, in order, and drop these messages."""
        first: dict[str, ev.AgentSaid] = {}
        for event in self.kept:
            if isinstance(event, ev.AgentSaid) and isinstance(event.message, m.OwnerReturns | m.OwnerReclaims):
                first.setdefault(event.host, event)
        found = [event for event in first.values() if isinstance(event.message, m.OwnerReturns)]
        self.kept = [event for event in self.kept if not any(event is each for each in found)]
        return [event.host for event in found]


def begin_resync(cluster: Cluster, before: Resync | None) -> Resync:
    """Await all agents: no connection survived. What was received once is kept from an earlier resync that ended so."""
    now_s, protocol = cluster.now_s, cluster.protocol
    awaited = {host.name for host in cluster.hosts.values() if host.connected}
    awaited |= before.awaited if before else set()
    for host in cluster.hosts.values():
        if host.connected:
            disconnect(cluster, host)
        if host.jobs or host.name in awaited:
            cluster.fence(host, now_s + protocol.lease_s + protocol.fence_margin_s)
    once = (ev.SubmitAsked, ev.CancelAsked, ev.LinksChanged)
    kept: list[ev.Event] = [e for e in before.kept if isinstance(e, once)] if before else []
    return Resync(awaited, now_s + RECOVERY_HEARTBEATS * protocol.heartbeat_s, kept=kept)
