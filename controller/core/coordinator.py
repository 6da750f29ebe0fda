"""The coordinator's decisions as one function: (event, now) -> effects, and the time at which it wants to be woken.

What follows from an event is decided here and in the modules named after it: `membership` (hosts), `dispatch` (offers, attempts,
interruption), `reports` (what agents say about jobs), `checkpoints` (who holds what), `migration` (P2, P3), `protection` (P1),
`grants` (rates), `reunion` (a restart). They all work on one `World`, and nothing else does.

Same events, same effects: a coordinator that is handed the events of a journal is the one that wrote it (`controller.restart`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from controller.core import effects as do
from controller.core import events as ev
from controller.core import facts, membership, reunion
from controller.core.admission import migration_share
from controller.core.bandwidth import PAYLOAD_SHARE, LinkBandwidth
from controller.core.checkpoints import stored_by, transfer_ended
from controller.core.dispatch import (
    choose_offer,
    expire_offers,
    resume_requeued,
    send_off_waiting,
    serve_waiting,
    submit,
)
from controller.core.grants import settle
from controller.core.hazard import Experience, HazardWindow
from controller.core.measured import links_measured
from controller.core.migration import retry_degraded
from controller.core.policies import LEARNERS, Policy, policy
from controller.core.protection import improve_standby, protect
from controller.core.queue import Controller, Fixed, Offer, SpotJob, SpotQueue
from controller.core.reports import job_ended, job_started, snapshot_taken
from controller.core.settings import DAY_S, Settings
from controller.core.state import HostState, JobState
from controller.core.status import status
from controller.core.world import World, present, record
from testbed import messages as m
from topologies.paths import Routes
from topologies.spec import Campus, Host, Role

UNLIMITED = 1e9  # a level r that no queue reaches: everybody waits


class Coordinator:
    """Pure: no clock, no socket, no chance of its own. `draw` is a named stream of uniform numbers in [0, 1)."""

    def __init__(self, campus: Campus, settings: Settings, draw: Callable[[], float]) -> None:
        row = policy(
            settings.policy,
            settings.day_s / DAY_S,
            alpha=settings.stability_penalty,
            k_min=settings.k_min,
        )
        queue = SpotQueue(_learner(campus, settings, row), settings.offer_ttl_s, self._choose)
        reserve = row.reserve(campus.research_reserve)
        prior = Experience(1.0, 1.0 / settings.prior_hazard_per_s)
        self.world = World(
            campus,
            settings,
            row,
            Routes(campus),
            migration_share(campus.capacity_bytes_per_s, reserve, PAYLOAD_SHARE),
            queue,
            HazardWindow(settings.hazard_window_s, prior, settings.day_s, settings.day_start_s),
            LinkBandwidth(campus.capacity_bytes_per_s, reserve, feeds={}),
            {host.name: HostState(host) for host in campus.hosts if _has_agent(host, settings)},
            draw,
        )
        self._tick_s = inf  # the first agent starts the clock
        self._learn_s = inf  # when there may be something to learn from
        self._reunion: reunion.Reunion | None = None  # after a restart, until it is known who is there

    # ------------------------------------------------------------ the two calls

    def handle(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        """Everything that follows from `event` at `now_s` (seconds; never less than before), in order."""
        self.world.now_s = now_s
        level = self.world.queue.controller.level
        effects = [*self._react(event, now_s), *self._due(now_s)]
        learned = self.world.queue.controller.level
        return effects if learned == level else [*effects, record(facts.LevelLearned(learned))]

    def next_deadline_s(self) -> float:
        """When `handle(Woke(), …)` is wanted; inf if only events matter."""
        if self._reunion is not None:
            return self._reunion.until_s
        world, queue_s = self.world, self.world.queue.next_deadline_s()
        next_s = min(self._tick_s, self._learn_s, world.regrant_at_s, world.plan_at_s, queue_s)
        if world.requeued:
            next_s = min(next_s, *world.requeued.values())
        if watched := world.watched():
            margin_s = world.settings.fence_margin_s
            leases = [h.lease_until_s + margin_s for h in watched if h.connected]
            next_s = min(next_s, *leases, *[h.fence_at_s for h in watched])
        return next_s

    def status(self, now_s: float) -> m.Status:
        """What an operator sees."""
        return status(self.world, now_s)

    # ------------------------------------------------------------ events

    def _react(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        if self._reunion is not None and not isinstance(event, ev.Restarted):
            return self._while_gathering(self._reunion, event, now_s)
        match event:
            case ev.AgentSaid(host, message):
                return self._agent_said(self.world.hosts[host], message, now_s)
            case ev.AgentGone(host, reason):
                return membership.leave(self.world, self.world.hosts[host], reason, now_s)
            case ev.JobSubmitted():
                return self._submitted(event, now_s)
            case ev.Woke():
                return self._learn(now_s)
            case ev.LinksMeasured():
                return links_measured(self.world, event, now_s)
            case ev.Restarted(silent_s):
                self._reunion = reunion.begin(self.world, self._reunion, now_s)
                return [record(facts.CoordinatorRestarted(silent_s, sorted(self._reunion.awaited)))]

    def _due(self, now_s: float) -> list[do.Effect]:
        if self._reunion is not None:
            if not self._reunion.over(now_s):
                return []
            return [*self._judge(self._reunion, now_s), *self._due(now_s)]
        world = self.world
        effects: list[do.Effect] = []
        if now_s >= world.queue.next_deadline_s():
            effects += [*expire_offers(world, now_s), *send_off_waiting(world, now_s)]
        for host in self._overdue(now_s):
            if host.connected and now_s >= host.lease_until_s + world.settings.fence_margin_s:
                effects += membership.silent(world, host, now_s)
            if now_s >= host.fence_at_s:
                effects += membership.fence(world, host, now_s)
        effects += resume_requeued(world, now_s)
        if now_s >= world.regrant_at_s:
            effects += settle(world)
        if now_s >= self._tick_s:
            self._tick_s = now_s + world.settings.control_period_s
            effects += [*retry_degraded(world, now_s), *serve_waiting(world, now_s)]
            effects += [*improve_standby(world, now_s), *protect(world, now_s)]
        elif now_s >= world.plan_at_s:
            effects += protect(world, now_s)
        return effects

    def _overdue(self, now_s: float) -> list[HostState]:
        """Hosts whose lease, or whose fence, may be over."""
        margin_s = self.world.settings.fence_margin_s
        hosts = self.world.watched()
        return [h for h in hosts if h.lease_until_s + margin_s <= now_s or h.fence_at_s <= now_s]

    def _learn(self, now_s: float) -> list[do.Effect]:
        """A slice of what the queue's controller can do between decisions; the next slice is another event."""
        decides = now_s >= min(self._tick_s, self.world.queue.next_deadline_s())
        if now_s >= self._learn_s and not decides:
            self._learn_s = now_s if self.world.queue.controller.work() else inf
        return []

    def _submitted(self, event: ev.JobSubmitted, now_s: float) -> list[do.Effect]:
        spec, world = event.job, self.world
        known = world.jobs.get(spec.name)
        if known is not None and known.spec == spec:  # said again: the first answer was not heard
            return [do.Answer(event.operator, m.Accepted(spec.name))]
        if refusal := self._unacceptable(spec):
            return [do.Answer(event.operator, m.Rejected(spec.name, refusal))]
        job = world.jobs[spec.name] = JobState(spec, now_s)
        self._learn_s = now_s
        submitted = facts.JobSubmitted(spec.name, spec.steps, spec.step_s, spec.payload_bytes)
        accepted = do.Answer(event.operator, m.Accepted(spec.name))
        return [record(submitted), accepted, *submit(world, job, event.draw, now_s)]

    def _unacceptable(self, spec: m.JobSpec) -> str:
        if spec.name in self.world.jobs:
            return "another job of this name was submitted before"
        probe = JobState(spec, 0.0)
        for role in (Role.VOLUNTEER, Role.ON_DEMAND):
            hosts = [host for host in self.world.hosts.values() if host.spec.role is role]
            if hosts and not any(self.world.fits(probe, host) for host in hosts):
                return (
                    f"no {role.value} host has a GPU with {spec.memory_bytes:.4g} bytes of memory "
                    f"and compute capability {spec.min_capability:g}"
                )
        return ""

    def _choose(self, job: SpotJob, offers: Sequence[Offer]) -> int | None:
        """The queue asks which of several offers a job should take."""
        return choose_offer(self.world, job, {o.offer_id: self.world.offers[o.offer_id] for o in offers})

    # ------------------------------------------------------------ after a restart

    def _while_gathering(self, gathered: reunion.Reunion, event: ev.Event, now_s: float) -> list[do.Effect]:
        match event:
            case ev.AgentSaid(_, m.Hello() as hello):
                self._begin_ticking(now_s)
                return gathered.came(self.world, hello, now_s)
            case ev.AgentSaid(host, m.Heartbeat() as beat):
                return self._heartbeat(self.world.hosts[host], beat, now_s)
            case ev.AgentGone(host, _):
                gathered.went(self.world, self.world.hosts[host], now_s)
            case ev.AgentSaid() | ev.JobSubmitted() | ev.LinksMeasured():
                gathered.kept.append(event)
        return []

    def _judge(self, gathered: reunion.Reunion, now_s: float) -> list[do.Effect]:
        self._reunion = None
        effects = reunion.judge(self.world, gathered, now_s)
        return [*effects, *(effect for event in gathered.kept for effect in self._react(event, now_s))]

    # ------------------------------------------------------------ what agents say

    def _agent_said(self, host: HostState, message: m.FromAgent, now_s: float) -> list[do.Effect]:
        match message:
            case m.TransferEnded():
                return transfer_ended(self.world, host, message, now_s)
            case m.CheckpointStored(checkpoint=stored):
                return stored_by(self.world, host, stored, now_s)
            case m.Hello():
                return self._hello(host, message, now_s)
            case m.Heartbeat():
                return self._heartbeat(host, message, now_s)
            case m.OwnerReclaims():
                return membership.owner_reclaims(self.world, host, message, now_s)
            case m.OwnerReturns():
                return membership.owner_returns(self.world, host, now_s)
            case m.JobStarted():
                return job_started(self.world, host, message, now_s)
            case m.JobEnded():
                return job_ended(self.world, host, message, now_s)
            case m.SnapshotTaken():
                return snapshot_taken(self.world, host, message, now_s)

    def _hello(self, host: HostState, hello: m.Hello, now_s: float) -> list[do.Effect]:
        self._begin_ticking(now_s)
        told = membership.told_to_run(self.world, host)  # what is decided below, it cannot claim yet
        effects = membership.join(self.world, host, hello, now_s)
        for ended in hello.ended:
            effects += job_ended(self.world, host, ended, now_s)
        for stored in hello.stored:
            effects += stored_by(self.world, host, stored, now_s)
        return [*effects, *membership.reconcile(self.world, host, hello, told, now_s)]

    def _begin_ticking(self, now_s: float) -> None:
        if self._tick_s == inf:
            self._tick_s = now_s + self.world.settings.control_period_s

    def _heartbeat(self, host: HostState, beat: m.Heartbeat, now_s: float) -> list[do.Effect]:
        membership.heard(self.world, host, now_s)
        for claim in beat.jobs:
            if job := present(self.world, host, claim.job, claim.attempt):
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
