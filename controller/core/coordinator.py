"""The coordinator's decisions as one function: (event, now) -> effects, and the time at which it wants to be woken.

What follows from an event is decided here and in the modules named after it: `membership` (hosts), `dispatch` (offers, attempts,
interruption), `migration` (P2, P3), `protection` (P1), `grants` (rates). They all work on one `World`, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from controller.core import effects as do
from controller.core import events as ev
from controller.core import facts, membership
from controller.core.admission import migration_share
from controller.core.bandwidth import PAYLOAD_SHARE, LinkBandwidth
from controller.core.dispatch import (
    choose_offer,
    expire_offers,
    interrupt,
    over,
    serve_waiting,
    start,
    submit,
)
from controller.core.grants import close_flows, settle
from controller.core.hazard import Experience, HazardWindow
from controller.core.migration import land, landed, plan_moves, replan, retry_degraded
from controller.core.policies import policy
from controller.core.protection import forget_standby, improve_standby, protect
from controller.core.queue import Controller, Fixed, Offer, SpotJob, SpotQueue
from controller.core.settings import DAY_S, Settings
from controller.core.state import OVER, Checkpoint, HostState, JobState, Phase
from controller.core.status import status
from controller.core.world import World, record
from testbed import messages as m
from topologies.paths import Routes
from topologies.spec import Campus, DirectedLink, Role

TOLD = frozenset({Phase.STARTING, Phase.RUNNING, Phase.MOVING})  # an agent was told to run it: it can end
UNFIT_PERIODS = 10  # control periods for which a host is avoided that would not take a job's checkpoint
MAX_MISSES = 2  # checkpoints in a row that may fail before another standby is sought
UNLIMITED = 1e9  # a level r that no queue reaches: everybody waits


class Coordinator:
    """Pure: no clock, no socket, no chance of its own. `draw` is a named stream of uniform numbers in [0, 1)."""

    def __init__(self, campus: Campus, settings: Settings, draw: Callable[[], float]) -> None:
        row = policy(
            settings.policy,
            settings.day_s / DAY_S,
            alpha=settings.stability_penalty,
            theta=settings.max_load,
            k_min=settings.k_min,
        )
        learner: Controller = row.learner(
            settings.target_delay_s,
            settings.level_step_per_s,
            settings.level_window,
            settings.level_start,
            settings.level_max,
        )
        if not any(host.role is Role.ON_DEMAND for host in campus.hosts):
            learner = Fixed(UNLIMITED)  # there is nowhere to redirect a job to
        prior = Experience(1.0, 1.0 / settings.prior_hazard_per_s)
        self.world = World(
            campus,
            settings,
            row,
            Routes(campus),
            migration_share(campus.capacity_bytes_per_s, campus.research_reserve, PAYLOAD_SHARE),
            SpotQueue(learner, settings.offer_ttl_s, self._choose),
            HazardWindow(settings.hazard_window_s, prior),
            LinkBandwidth(campus.capacity_bytes_per_s, campus.research_reserve, feeds={}),
            {host.name: HostState(host) for host in campus.hosts if host.role is not Role.COORDINATOR},
            draw,
        )
        self._tick_s = inf  # the first agent starts the clock

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
        hosts = self.world.hosts.values()
        silence = (h.lease_until_s + self.world.settings.fence_margin_s for h in hosts if h.connected)
        fences = (h.fence_at_s for h in hosts)
        return min(self._tick_s, self.world.queue.next_deadline_s(), *silence, *fences, inf)

    def status(self, now_s: float) -> m.Status:
        """What an operator sees."""
        return status(self.world, now_s)

    # ------------------------------------------------------------ events

    def _react(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        match event:
            case ev.AgentSaid(host, message):
                return self._agent_said(self.world.hosts[host], message, now_s)
            case ev.AgentGone(host, reason):
                return membership.leave(self.world, self.world.hosts[host], reason, now_s)
            case ev.JobSubmitted():
                return self._submitted(event, now_s)
            case ev.Woke():
                return []

    def _due(self, now_s: float) -> list[do.Effect]:
        world = self.world
        effects = expire_offers(world, now_s)
        for host in world.hosts.values():
            if host.connected and now_s >= host.lease_until_s + world.settings.fence_margin_s:
                effects += membership.silent(world, host, now_s)
            if now_s >= host.fence_at_s:
                effects += membership.fence(world, host, now_s)
        if now_s >= self._tick_s:
            self._tick_s = now_s + world.settings.control_period_s
            effects += [*retry_degraded(world, now_s), *serve_waiting(world, now_s)]
            effects += [*improve_standby(world, now_s), *protect(world, now_s)]
        return effects

    def _submitted(self, event: ev.JobSubmitted, now_s: float) -> list[do.Effect]:
        spec, world = event.job, self.world
        if refusal := self._unacceptable(spec):
            return [do.Answer(event.operator, m.Rejected(spec.name, refusal))]
        job = world.jobs[spec.name] = JobState(spec, now_s)
        submitted = facts.JobSubmitted(spec.name, spec.steps, spec.step_s, spec.payload_bytes)
        accepted = do.Answer(event.operator, m.Accepted(spec.name))
        return [record(submitted), accepted, *submit(world, job, event.draw, now_s)]

    def _unacceptable(self, spec: m.JobSpec) -> str:
        if spec.name in self.world.jobs:
            return "a job of this name was submitted before"
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

    # ------------------------------------------------------------ what agents say

    def _agent_said(self, host: HostState, message: m.FromAgent, now_s: float) -> list[do.Effect]:
        match message:
            case m.Hello():
                return self._hello(host, message, now_s)
            case m.Heartbeat():
                return self._heartbeat(host, message, now_s)
            case m.OwnerReclaims():
                return membership.owner_reclaims(self.world, host, message, now_s)
            case m.OwnerReturns():
                return membership.owner_returns(self.world, host, now_s)
            case m.JobStarted():
                return self._job_started(host, message, now_s)
            case m.JobEnded():
                return self._job_ended(host, message, now_s)
            case m.SnapshotTaken():
                return self._snapshot_taken(host, message, now_s)
            case m.TransferEnded():
                return self._transfer_ended(host, message, now_s)
            case m.CheckpointStored(checkpoint=stored):
                return self._stored(host, stored, now_s)

    def _hello(self, host: HostState, hello: m.Hello, now_s: float) -> list[do.Effect]:
        if self._tick_s == inf:
            self._tick_s = now_s + self.world.settings.control_period_s
        effects = membership.join(self.world, host, hello, now_s)
        for ended in hello.ended:
            effects += self._job_ended(host, ended, now_s)
        for stored in hello.stored:
            effects += self._stored(host, stored, now_s)
        return [*effects, *membership.reconcile(self.world, host, hello.jobs, now_s)]

    def _heartbeat(self, host: HostState, beat: m.Heartbeat, now_s: float) -> list[do.Effect]:
        membership.heard(self.world, host, now_s)
        for claim in beat.jobs:
            if job := self._attempt(host, claim.job, claim.attempt):
                job.step = max(job.step, claim.step)
        host.flows = {flow.transfer: flow for flow in beat.flows}
        acknowledged: do.Effect = do.Tell(host.name, m.HeartbeatAck(beat.number))
        return [acknowledged, *_measured(host, beat)]

    def _job_started(self, host: HostState, message: m.JobStarted, now_s: float) -> list[do.Effect]:
        job = self._attempt(host, message.job, message.attempt)
        if job is None or job.phase is not Phase.STARTING:
            return []
        job.to("started")
        job.protected_since_s, job.unfit = now_s, {}
        job.step = max(job.step, message.step)
        downtime_s = None if job.stopped_at_s is None else now_s - job.stopped_at_s
        running = facts.JobRunning(
            job.name,
            job.attempt,
            host.name,
            message.step,
            message.digest,
            message.restored_sequence,
            downtime_s,
        )
        effects = [record(running), *landed(job, now_s)]
        job.stopped_at_s, job.stopped_cause = None, ""
        if host.reclaim_at_s is not None:
            effects += plan_moves(self.world, [job], now_s)
        return [*effects, *protect(self.world, now_s)]

    def _job_ended(self, host: HostState, message: m.JobEnded, now_s: float) -> list[do.Effect]:
        job = self._attempt(host, message.job, message.attempt)
        if job is None or job.phase not in TOLD:
            return [do.Tell(host.name, m.Forget(message.job, 0))]
        job.step = max(job.step, message.step)
        if message.outcome == "failed" and job.phase is Phase.STARTING and job.restore is not None:
            job.restore.holders.discard(
                host.name
            )  # what it has is of no use: try another holder, or an older one
            return [*interrupt(self.world, job, "failed_start", now_s), *protect(self.world, now_s)]
        if message.outcome == "finished":
            done: facts.Fact = facts.JobFinished(
                job.name, job.attempt, host.name, message.step, message.digest
            )
        elif message.outcome == "failed":
            done = facts.JobFailed(job.name, job.attempt, host.name, message.reason)
        else:
            return [*interrupt(self.world, job, "stopped", now_s), *protect(self.world, now_s)]
        ended = over(self.world, job, message.outcome, now_s)
        return [record(done), *ended, *protect(self.world, now_s)]

    def _snapshot_taken(self, host: HostState, message: m.SnapshotTaken, now_s: float) -> list[do.Effect]:
        job = self._attempt(host, message.job, message.attempt)
        if job is None:
            return []
        job.last_checkpoint_s = now_s
        taken = facts.CheckpointTaken(
            job.name, job.attempt, message.sequence, message.step, message.payload_bytes, message.final
        )
        if not message.final:
            return [record(taken)]
        job.final_sequence, job.stopped_at_s = message.sequence, now_s
        job.stopped_cause, job.step = "final_checkpoint", message.step
        if (
            job.phase is not Phase.MOVING
        ):  # nobody waits for it any more: it goes on from this very checkpoint
            return [record(taken), do.Tell(host.name, m.StopJob(job.name, job.attempt))]
        return [record(taken), *self._land_if_there(job, now_s)]

    def _transfer_ended(self, host: HostState, message: m.TransferEnded, now_s: float) -> list[do.Effect]:
        world, job = self.world, self.world.jobs.get(message.job)
        finished = facts.TransferFinished(
            message.job,
            message.sequence,
            host.name,
            message.destination,
            message.ok,
            message.bytes_sent,
            message.bytes_deduplicated,
            message.duration_s,
            message.goodput_over_grant,
            message.drops,
            message.reason,
        )
        effects: list[do.Effect] = [record(finished)]
        if job is None or job.phase in OVER:
            return effects
        self._note_delivery(host, message, now_s)
        if message.ok:
            if message.destination == job.standby and job.host == host.name:
                job.sent_bytes, job.misses = message.bytes_sent, 0
            return effects
        return [*effects, *self._transfer_failed(job, host, message, now_s), *settle(world)]

    def _transfer_failed(
        self, job: JobState, host: HostState, message: m.TransferEnded, now_s: float
    ) -> list[do.Effect]:
        """For good: the agent has tried what could be tried again. The destination is to blame, the second time the sender."""
        to, again_s = message.destination, now_s + UNFIT_PERIODS * self.world.settings.control_period_s
        if job.phase is Phase.FETCHING and job.host == to:
            if now_s < max(job.unfit.values(), default=now_s):
                for checkpoint in job.checkpoints.values():
                    checkpoint.holders.discard(host.name)
            job.unfit[to] = again_s
            return interrupt(self.world, job, "checkpoint_lost", now_s)
        if job.host != host.name:
            return []
        if job.move is not None and job.move.destination == to:
            job.unfit[to] = again_s
            return replan(self.world, job, now_s)
        if job.standby == to:
            job.misses += 1
            if job.misses >= MAX_MISSES:
                job.unfit[to] = again_s
                return [*forget_standby(self.world, job), *protect(self.world, now_s)]
        return []

    def _note_delivery(self, host: HostState, message: m.TransferEnded, now_s: float) -> None:
        flow = self.world.flows.get(f"{message.job}:{host.name}>{message.destination}")
        if flow is None or message.goodput_over_grant is None or not flow.bottleneck:
            return
        source, _, target = flow.bottleneck.partition(">")
        self.world.bandwidth.delivered(DirectedLink(source, target), message.goodput_over_grant, now_s)

    def _stored(self, host: HostState, stored: m.StoredCheckpoint, now_s: float) -> list[do.Effect]:
        """A host says that it holds a checkpoint, verified and fsynced. The first to say so completes it."""
        job = self.world.jobs.get(stored.job)
        if job is None or job.phase in OVER:
            return [do.Tell(host.name, m.Forget(stored.job, 2**62))]
        effects = self._complete(job, host, stored)
        restore = job.restore
        if job.phase is Phase.FETCHING and job.host == host.name and restore is not None:
            if restore.stored.sequence == stored.sequence:
                job.to("stored")
                effects += [*close_flows(self.world, job=job.name), start(job, host), *settle(self.world)]
            return effects
        return [*effects, *self._land_if_there(job, now_s)]

    def _complete(self, job: JobState, host: HostState, stored: m.StoredCheckpoint) -> list[do.Effect]:
        for sequence, older in job.checkpoints.items():
            if sequence < stored.sequence:
                older.holders.discard(host.name)  # a store keeps a job's latest only
        known = job.checkpoints.get(stored.sequence)
        if known is not None:
            if host.name in known.holders:
                return []
            known.holders.add(host.name)
            return [record(facts.CheckpointHeld(job.name, stored.sequence, host.name))]
        job.checkpoints[stored.sequence] = Checkpoint(stored, {host.name})
        completed = facts.CheckpointCompleted(
            job.name, stored.sequence, stored.step, host.name, stored.payload_bytes
        )
        return [record(completed), *self._forget_older(job, stored)]

    def _forget_older(self, job: JobState, stored: m.StoredCheckpoint) -> list[do.Effect]:
        """Hosts that have become of no use to the job give their disk back."""
        keep = {job.host, job.standby, job.move.destination if job.move else None}
        old = {h for c in job.checkpoints.values() if c.stored.step <= stored.step for h in c.holders}
        useless = sorted(old - keep - job.checkpoints[stored.sequence].holders)
        for checkpoint in job.checkpoints.values():
            checkpoint.holders -= set(useless)
        return [do.Tell(name, m.Forget(job.name, stored.sequence)) for name in useless]

    def _land_if_there(self, job: JobState, now_s: float) -> list[do.Effect]:
        """Both halves of a hand-over are known: the source has stopped the job, the destination has its last state."""
        if job.phase is not Phase.MOVING or job.move is None or job.final_sequence is None:
            return []
        final = job.checkpoints.get(job.final_sequence)
        if final is None or job.move.destination not in final.holders:
            return []
        return land(self.world, job, final, now_s)

    def _attempt(self, host: HostState, name: str, attempt: int) -> JobState | None:
        """The job, if this is its present attempt and it is on that host."""
        job = self.world.jobs.get(name)
        return job if job is not None and job.attempt == attempt and job.host == host.name else None


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
