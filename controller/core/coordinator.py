"""The coordinator's decisions as one function: (event, now) -> effects, and the time at which it wants to be woken.

What follows from an event is decided here and in the modules named after it: `membership` (hosts), `dispatch` (offers, attempts,
interruption), `reports` (what agents say about jobs), `checkpoints` (who holds what), `migration` (P2, P3), `protection` (P1),
`grants` (rates), `reunion` (a restart). They all work on one `Cluster`, and nothing else does.

Same events, same effects: a coordinator that is handed the events of a journal is the one that wrote it (see `recovery`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from controller.core.admission.admission import migration_share
from controller.core.lifecycle import membership, resync
from controller.core.lifecycle.announcements import with_announcements
from controller.core.lifecycle.checkpoints import stored_by, transfer_ended
from controller.core.lifecycle.dispatch import (
    choose_offer,
    expire_offers,
    resume_requeued,
    send_off_waiting,
    serve_waiting,
    submit,
)
from controller.core.lifecycle.grants import settle
from controller.core.lifecycle.job_reports import job_ended, job_started, snapshot_taken
from controller.core.lifecycle.measured import links_measured
from controller.core.lifecycle.migration import retry_degraded
from controller.core.lifecycle.protection import improve_standby, protect
from controller.core.lifecycle.status import status
from controller.core.lifecycle.waiting import ask_again
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.cluster import Cluster, present, record
from controller.core.model.entities import HostState, JobState
from controller.core.network.bandwidth import LinkBandwidth
from controller.core.placement.hazard import Experience, HazardWindow
from controller.core.policies.table import LEARNERS, Policy, policy
from controller.core.queueing.queue import (
    Controller,
    Fixed,
    Offer,
    SpotJob,
    SpotQueue,
)
from controller.core.settings import DAY_S, Settings
from testbed import messages as m
from topologies.paths import Routes
from topologies.spec import Campus, Host, Role
from topologies.units import PAYLOAD_SHARE

UNLIMITED = 1e9  # a level r that no queue reaches: everybody waits


class Coordinator:
    """Pure: no clock, no socket, no chance of its own. `draw` is a named stream of uniform numbers in [0, 1).

    `secret` (at most 64 bytes): what no host knows; numbers of transfers are made with it.
    """

    def __init__(
        self, campus: Campus, settings: Settings, draw: Callable[[], float], secret: bytes = b""
    ) -> None:
        row = policy(
            settings.policy,
            settings.day_s / DAY_S,
            alpha=settings.stability_penalty,
            k_min=settings.k_min,
        )
        queue = SpotQueue(_learner(campus, settings, row), settings.offer_ttl_s, self._choose)
        reserve = row.reserve(campus.research_reserve)
        prior = Experience(1.0, 1.0 / settings.prior_hazard_per_s)
        self.cluster = Cluster(
            campus,
            settings,
            row,
            Routes(campus),
            migration_share(campus.capacity_bytes_per_s, reserve, PAYLOAD_SHARE),
            queue,
            HazardWindow(settings.hazard_window_s, prior, settings.day_s, settings.day_start_s),
            LinkBandwidth(campus.capacity_bytes_per_s, reserve),
            {host.name: HostState(host) for host in campus.hosts if _has_agent(host, settings)},
            draw,
            secret=secret,
        )
        self._tick_s = inf  # the first agent starts the clock
        self._learn_s = inf  # when there may be something to learn from
        self._reunion: resync.Reunion | None = None  # after a restart, until it is known who is there

    # ------------------------------------------------------------ the two calls

    def handle(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        """Everything that follows from `event` at `now_s` (seconds; never less than before), in order."""
        self.cluster.now_s = now_s
        level = self.cluster.queue.controller.level
        effects = with_announcements(self.cluster, [*self._react(event, now_s), *self._due(now_s)])
        learned = self.cluster.queue.controller.level
        return effects if learned == level else [*effects, record(facts.LevelLearned(learned))]

    def next_deadline_s(self) -> float:
        """When `handle(Woke(), …)` is wanted; inf if only events matter."""
        if self._reunion is not None:
            return self._reunion.until_s
        cluster, queue_s = self.cluster, self.cluster.queue.next_deadline_s()
        next_s = min(self._tick_s, self._learn_s, cluster.regrant_at_s, cluster.plan_at_s, queue_s)
        next_s = min(next_s, cluster.next_word_s())
        if cluster.requeued:
            next_s = min(next_s, *cluster.requeued.values())
        if watched := cluster.watched():
            margin_s = cluster.settings.fence_margin_s
            leases = [h.lease_until_s + margin_s for h in watched if h.connected]
            next_s = min(next_s, *leases, *[h.fence_at_s for h in watched])
        return next_s

    def status(self, now_s: float) -> m.Status:
        """What an operator sees."""
        return status(self.cluster, now_s)

    # ------------------------------------------------------------ events

    def _react(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        if self._reunion is not None and not isinstance(event, ev.Restarted):
            return self._while_gathering(self._reunion, event, now_s)
        match event:
            case ev.AgentSaid(host, message):
                return self._agent_said(self.cluster.hosts[host], message, now_s)
            case ev.AgentGone(host, reason):
                return membership.leave(self.cluster, self.cluster.hosts[host], reason, now_s)
            case ev.JobSubmitted():
                return self._submitted(event, now_s)
            case ev.Woke():
                return self._learn(now_s)
            case ev.LinksMeasured():
                return links_measured(self.cluster, event, now_s)
            case ev.Restarted(silent_s):
                self._reunion = resync.begin(self.cluster, self._reunion, now_s)
                return [record(facts.CoordinatorRestarted(silent_s, sorted(self._reunion.awaited)))]

    def _due(self, now_s: float) -> list[do.Effect]:
        if self._reunion is not None:
            if not self._reunion.over(now_s):
                return []
            return [*self._judge(self._reunion, now_s), *self._due(now_s)]
        cluster = self.cluster
        effects: list[do.Effect] = []
        if now_s >= cluster.queue.next_deadline_s():
            effects += [*expire_offers(cluster, now_s), *send_off_waiting(cluster, now_s)]
        for host in self._overdue(now_s):
            if host.connected and now_s >= host.lease_until_s + cluster.settings.fence_margin_s:
                effects += membership.silent(cluster, host, now_s)
            if now_s >= host.fence_at_s:
                effects += membership.fence(cluster, host, now_s)
        effects += resume_requeued(cluster, now_s)
        if now_s >= cluster.next_word_s():
            effects += ask_again(cluster, now_s)
        if now_s >= cluster.regrant_at_s:
            effects += settle(cluster)
        if now_s >= self._tick_s:
            self._tick_s = now_s + cluster.settings.control_period_s
            effects += [*retry_degraded(cluster, now_s), *serve_waiting(cluster, now_s)]
            effects += [*improve_standby(cluster, now_s), *protect(cluster, now_s)]
        elif now_s >= cluster.plan_at_s:
            effects += protect(cluster, now_s)
        return effects

    def _overdue(self, now_s: float) -> list[HostState]:
        """Hosts whose lease, or whose fence, may be over."""
        margin_s = self.cluster.settings.fence_margin_s
        hosts = self.cluster.watched()
        return [h for h in hosts if h.lease_until_s + margin_s <= now_s or h.fence_at_s <= now_s]

    def _learn(self, now_s: float) -> list[do.Effect]:
        """A slice of what the queue's controller can do between decisions; the next slice is another event."""
        decides = now_s >= min(self._tick_s, self.cluster.queue.next_deadline_s())
        if now_s >= self._learn_s and not decides:
            self._learn_s = now_s if self.cluster.queue.controller.work() else inf
        return []

    def _submitted(self, event: ev.JobSubmitted, now_s: float) -> list[do.Effect]:
        spec, cluster = event.job, self.cluster
        known = cluster.jobs.get(spec.name)
        if known is not None and known.spec == spec:  # said again: the first answer was not heard
            return [do.Answer(event.operator, m.Accepted(spec.name))]
        if refusal := self._unacceptable(spec):
            return [do.Answer(event.operator, m.Rejected(spec.name, refusal))]
        job = cluster.jobs[spec.name] = JobState(spec, now_s)
        self._learn_s = now_s
        submitted = facts.JobSubmitted(spec.name, spec.steps, spec.step_s, spec.payload_bytes)
        accepted = do.Answer(event.operator, m.Accepted(spec.name))
        return [record(submitted), accepted, *submit(cluster, job, event.draw, now_s)]

    def _unacceptable(self, spec: m.JobSpec) -> str:
        if spec.name in self.cluster.jobs:
            return "another job of this name was submitted before"
        probe = JobState(spec, 0.0)
        for role in (Role.VOLUNTEER, Role.ON_DEMAND):
            hosts = [host for host in self.cluster.hosts.values() if host.spec.role is role]
            if hosts and not any(self.cluster.fits(probe, host) for host in hosts):
                return (
                    f"no {role.value} host has a GPU with {spec.memory_bytes:.4g} bytes of memory "
                    f"and compute capability {spec.min_capability:g}"
                )
        return ""

    def _choose(self, job: SpotJob, offers: Sequence[Offer]) -> int | None:
        """The queue asks which of several offers a job should take."""
        return choose_offer(self.cluster, job, {o.offer_id: self.cluster.offers[o.offer_id] for o in offers})

    # ------------------------------------------------------------ after a restart

    def _while_gathering(self, gathered: resync.Reunion, event: ev.Event, now_s: float) -> list[do.Effect]:
        match event:
            case ev.AgentSaid(_, m.Hello() as hello):
                self._begin_ticking(now_s)
                return gathered.came(self.cluster, hello, now_s)
            case ev.AgentSaid(host, m.Heartbeat() as beat):
                return self._heartbeat(self.cluster.hosts[host], beat, now_s)
            case ev.AgentGone(host, _):
                gathered.went(self.cluster, self.cluster.hosts[host], now_s)
            case ev.AgentSaid() | ev.JobSubmitted() | ev.LinksMeasured():
                gathered.kept.append(event)
        return []

    def _judge(self, gathered: resync.Reunion, now_s: float) -> list[do.Effect]:
        self._reunion = None
        effects = resync.judge(self.cluster, gathered, now_s)
        return [*effects, *(effect for event in gathered.kept for effect in self._react(event, now_s))]

    # ------------------------------------------------------------ what agents say

    def _agent_said(self, host: HostState, message: m.FromAgent, now_s: float) -> list[do.Effect]:
        match message:
            case m.TransferEnded():
                return transfer_ended(self.cluster, host, message, now_s)
            case m.CheckpointStored(checkpoint=stored):
                return stored_by(self.cluster, host, stored, now_s)
            case m.Hello():
                return self._hello(host, message, now_s)
            case m.Heartbeat():
                return self._heartbeat(host, message, now_s)
            case m.OwnerReclaims():
                return membership.owner_reclaims(self.cluster, host, message, now_s)
            case m.OwnerReturns():
                return membership.owner_returns(self.cluster, host, now_s)
            case m.JobStarted():
                return job_started(self.cluster, host, message, now_s)
            case m.JobEnded():
                return job_ended(self.cluster, host, message, now_s)
            case m.SnapshotTaken():
                return snapshot_taken(self.cluster, host, message, now_s)

    def _hello(self, host: HostState, hello: m.Hello, now_s: float) -> list[do.Effect]:
        self._begin_ticking(now_s)
        told = membership.told_to_run(self.cluster, host)  # what is decided below, it cannot claim yet
        effects = membership.join(self.cluster, host, hello, now_s)
        for ended in hello.ended:
            effects += job_ended(self.cluster, host, ended, now_s)
        for stored in hello.stored:
            effects += stored_by(self.cluster, host, stored, now_s)
        return [*effects, *membership.reconcile(self.cluster, host, hello, told, now_s)]

    def _begin_ticking(self, now_s: float) -> None:
        if self._tick_s == inf:
            self._tick_s = now_s + self.cluster.settings.control_period_s

    def _heartbeat(self, host: HostState, beat: m.Heartbeat, now_s: float) -> list[do.Effect]:
        membership.heard(self.cluster, host, now_s)
        for claim in beat.jobs:
            if job := present(self.cluster, host, claim.job, claim.attempt):
                job.step = max(job.step, claim.step)
        host.flows = {flow.transfer: flow for flow in beat.flows}
        acknowledged: do.Effect = do.Tell(host.name, m.HeartbeatAck(beat.number))
        return [acknowledged, *_measured(host, beat)]


def _has_agent(host: Host, settings: Settings) -> bool:
    return host.role is not Role.COORDINATOR or settings.head_stores


def _learner(campus: Campus, settings: Settings, row: Policy) -> Controller:
    """Paper B's r, as the policy learns it; without on-demand hosts there is nowhere to send a job, so all wait."""
    if not any(host.role is Role.ON_DEMAND for host in campus.hosts):
        return Fixed(UNLIMITED)
    return LEARNERS.get(settings.learner, row.learner)(settings)


def _measured(host: HostState, beat: m.Heartbeat) -> list[do.Effect]:
    """The egress counters of the samples that came with a heartbeat, summed up."""
    window_s = sum(sample.period_s for sample in beat.samples)
    if window_s <= 0.0:
        return []
    drops = sum(count.drops for count in beat.classes.values())
    measured = facts.EgressMeasured(
        host.name,
        window_s,
        sum(sample.migration_bytes for sample in beat.samples),
        sum(sample.research_bytes for sample in beat.samples),
        drops - host.drops,
        max(s.migration_bytes / s.period_s for s in beat.samples if s.period_s > 0.0),
    )
    host.drops = drops
    return [record(measured)]
