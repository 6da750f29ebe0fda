"""The coordinator's decisions as one function: (event, now) -> effects, and the time at which it wants to be woken.

The modules of `lifecycle` decide on events. They work on one `Cluster` and nothing else, and put effects into its
outbox in order. So an event passes through `handle`, its own function and `finish_event`.

Same events, same effects: a coordinator that is handed the events of a journal is the one that wrote it (see `recovery`).

**The end of an event.** Handlers only note what is left to be done (`Cluster.freed`, `plan_stale`, `rates_stale`, `orders`).
Most is noted by the functions that change the picture: a job begins to run or no longer runs, a flow opens or closes,
a host is gained or lost. So no handler can forget it, and nothing is planned for a picture that the same event
changes further:

1. GPUs that have become idle are offered, after all jobs that the event interrupted have found a host or the head of the queue;
2. P1 plans for the jobs that run now; a replica that it gives up leaves a GPU, which is offered as well;
3. links are shared among the flows that are open now, and senders are sent the rates that changed;
4. the network is sent the routes that changed, and the loads of trunks if they changed much;
5. senders are ordered to send, and jobs are sent their new intervals. Orders over a route that the network does not have yet
   wait for it.

A host takes only transfers that it expects: it is sent that a flow opens (`grants`) before its sender is ordered to send.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from controller.core.lifecycle import membership
from controller.core.lifecycle.attempts import TIMEOUT_FACTOR, start_s
from controller.core.lifecycle.checkpoints import stored_by, transfer_ended
from controller.core.lifecycle.grants import recovery_bytes, settle
from controller.core.lifecycle.job_events import cancel, job_ended, job_started, snapshot_taken, take_up
from controller.core.lifecycle.link_changes import (
    drain_trunks,
    leave_hot_trunks,
    links_changed,
    network_silent,
    ways_set,
)
from controller.core.lifecycle.migration import retry_degraded
from controller.core.lifecycle.offers import (
    choose_offer,
    expire_offers,
    gpus_behind,
    offer_freed,
    resume_requeued,
    send_off_waiting,
    serve_waiting,
    submit,
)
from controller.core.lifecycle.protection import improve_standby, plan_checkpoints, tell_intervals
from controller.core.lifecycle.reconcile import Resync, begin_resync, heartbeat, register, retry_overdue
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import CheckpointFlow, HostState, Phase
from controller.core.network.links import LinkCapacity
from controller.core.parameters import Protocol, Queue
from controller.core.placement.hazard import OwnerHistory
from controller.core.policies.table import LEARNERS, policy_of
from controller.core.queueing.controllers.controller import Controller
from controller.core.queueing.queue import Offer, SpotJob, SpotQueue
from controller.core.queueing.replay import Rule
from controller.core.status import status
from controller.core.ticks import Ticks
from testbed import messages as m
from testbed.bounds import TRICKLE_BYTES_PER_S
from testbed.messages import Migrate, SendStored
from topologies.paths import Routes
from topologies.spec import Campus, DirectedLink, Role
from topologies.units import NO_LIMIT, PAYLOAD_SHARE

# reclaims within so much of each other are planned for together: less than a message may be late
TOGETHER_S = 0.05
LOAD_STEP = 1 / 8  # of a trunk's rate: less is not sent, for connections of research move with every change
ANSWER_S = (
    1.0  # programming takes some milliseconds; a controller that dies is started again in that time, or not at all
)


def finish_event(cluster: Cluster, *, in_a_hurry: bool) -> None:
    """Do once what handlers of the event have left to be done.

    `in_a_hurry`: each of several owners that leave together is answered at once, and checkpoints are planned a moment later.
    """
    if cluster.freed:
        offer_freed(cluster)
    plan = None
    if cluster.plan_stale and in_a_hurry and cluster.now_s < cluster.planned_s + TOGETHER_S:
        cluster.plan_stale, cluster.plan_at_s = False, cluster.planned_s + TOGETHER_S
    elif cluster.plan_stale:
        plan = plan_checkpoints(cluster)
        offer_freed(cluster)
    if cluster.rates_stale:
        settle(cluster)
        if cluster.routes.has_choice:
            _tell_loads(cluster)
    if cluster.installation.dirty:
        _ask_network(cluster)
    send_orders(cluster)
    if plan is not None:
        tell_intervals(cluster, *plan)


def _ask_network(cluster: Cluster) -> None:
    """Send the network's controller the ways to have: they have changed."""
    cluster.installation.dirty = False
    cluster.installation.requested += 1
    pins = [
        do.PinnedWay(cluster.installation.numbers[ends], [ends[0], *(link.target for link in way)])
        for ends, way in cluster.routes.pins.items()
    ]
    draining = [(a, b) for a, b in sorted(sorted(trunk) for trunk in cluster.capacity.draining)]
    cluster.outbox.append(do.SetWays(cluster.installation.requested, pins, draining))
    if cluster.installation.answers and cluster.installation.held:
        cluster.installation.due_s = min(cluster.installation.due_s, cluster.now_s + ANSWER_S)


def _tell_loads(cluster: Cluster) -> None:
    """Send the network's controller what grants take of each trunk, if that has changed much."""
    loads: dict[DirectedLink, float] = {}
    for flow in cluster.flows.values():
        for link in cluster.routes.way(flow.source, flow.destination)[1:-1]:
            loads[link] = loads.get(link, 0.0) + flow.rate_bytes_per_s / PAYLOAD_SHARE
    told, capacity = cluster.installation.loads_sent, cluster.capacity.wire
    if told is None or any(
        abs(loads.get(link, 0.0) - told.get(link, 0.0)) > LOAD_STEP * capacity[link]
        for link in loads.keys() | told.keys()
    ):
        cluster.installation.loads_sent = loads
        cluster.outbox.append(do.SetLoads([(*link, load) for link, load in sorted(loads.items())]))


def send_orders(cluster: Cluster) -> None:
    """Order senders what to send, and how fast, for flows that are still open."""
    flows = [flow for key in cluster.orders if (flow := cluster.flows.get(key)) is not None]
    cluster.orders.clear()
    for flow in flows:
        if (flow.source, flow.destination) in cluster.installation.held:
            cluster.orders[flow.key] = None
            continue
        job, to, rate = cluster.jobs[flow.job], cluster.endpoint(flow), flow.rate_bytes_per_s
        if flow.sequence is None:  # a move
            assert job.move is not None
            stops = job.move if flow.reservation is None else flow.reservation
            within_s = max(0.0, stops.final_at_s - cluster.now_s)
            cluster.tell(flow.source, Migrate(job.name, job.attempt, to, rate, within_s))
            if flow.reservation is not None:
                flow.reservation.told = True
            continue
        if flow.is_recovery and job.phase is Phase.FETCHING and job.name not in cluster.timeouts:
            cluster.arm_timeout(job, TIMEOUT_FACTOR * (start_s(cluster, job) + _fetch_s(cluster, flow)))
        cluster.tell(flow.source, SendStored(job.name, flow.sequence, to, rate, urgent=flow.is_recovery))


def _fetch_s(cluster: Cluster, flow: CheckpointFlow) -> float:
    """Return the seconds that a fetch should take at its rate, or behind the others on its way where it has no rate yet."""
    payload_bytes = float(cluster.jobs[flow.job].spec.payload_bytes)
    if flow.rate_bytes_per_s > TRICKLE_BYTES_PER_S:
        return payload_bytes / flow.rate_bytes_per_s
    way = [*cluster.paths.of(flow.source, flow.destination)]
    carried, free = recovery_bytes(cluster)[way].clip(payload_bytes), cluster.capacity.given_column[way]
    return float((carried / free.clip(TRICKLE_BYTES_PER_S)).max(initial=0.0))


# ---------------------------------------------------------------- the coordinator


class Coordinator:
    """The core: pure, without clock, socket or chance of its own. `draw` is a named stream of uniform numbers in [0, 1)."""

    def __init__(
        self, campus: Campus, protocol: Protocol, terms: Queue, draw: Callable[[], float], secret: bytes = b""
    ) -> None:
        row = policy_of(protocol)
        learner = LEARNERS.get(terms.learner, row.learner)(terms)
        if not any(host.role is Role.ON_DEMAND for host in campus.hosts):
            learner = Controller(Rule(NO_LIMIT))  # there is nowhere else to send a job
        agents = campus.agents(head_stores=protocol.head_stores)
        self.cluster = Cluster(
            campus,
            protocol,
            terms,
            row,
            Routes(campus),
            LinkCapacity(campus.capacity_bytes_per_s, row.reserve(campus.research_reserve), borrows=row.borrows),
            SpotQueue(learner, terms.offer_ttl_s, self._choose, self._gpus_behind),
            OwnerHistory(
                sorted(host.name for host in agents if host.role is Role.VOLUNTEER),
                protocol.hazard_window_s,
                (1.0, 1.0 / protocol.prior_hazard_per_s),
                protocol.day_s,
                protocol.day_start_s,
                short_notices=row.short_notices,
            ),
            {host.name: HostState(host) for host in agents},
            draw,
            secret=secret,
        )
        self._ticks = Ticks()
        self._learn_s = inf  # when there may be something to learn from
        # after a restart, until it is known which agents are there
        self._resync: Resync | None = None

    # ------------------------------------------------------------ the two calls

    def handle(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        """Return everything that follows from `event` at `now_s` (seconds; never less than before), in order."""
        cluster = self.cluster
        cluster.now_s = now_s
        before = cluster.queue.controller.rule
        if self._ticks.next_s == inf and isinstance(event, ev.AgentSaid) and isinstance(event.message, m.Hello):
            self._ticks.begin(now_s, cluster.protocol.control_period_s)
        # names depend on no agent, and what is kept for later is lost with the next restart
        if self._resync is None or isinstance(event, ev.Restarted | ev.TokenMade | ev.TokenSpent | ev.NameRevoked):
            self._react(event)
        else:
            self._resync.collect(cluster, event)
        if self._resync is not None and self._resync.over(now_s):
            gathered, self._resync = self._resync, None
            for kept in gathered.finish(cluster):
                self._react(kept)
            for name in sorted(gathered.hellos):  # last, when it is known which hosts are still in reach
                take_up(cluster, cluster.hosts[name])
        ticks = self._resync is None and now_s >= self._ticks.next_s
        if self._resync is None:
            self._do_what_is_due()
            reclaims = isinstance(event, ev.AgentSaid) and isinstance(event.message, m.OwnerReclaims)
            finish_event(cluster, in_a_hurry=reclaims and not ticks)
        if (rule := cluster.queue.controller.rule).level != before.level:
            cluster.record(facts.LevelLearned(rule.level))
        effects, cluster.outbox = cluster.outbox, []
        self._ticks.follow(cluster, event, effects, ticked=ticks)
        return effects

    def next_deadline_s(self) -> float:
        """Return the time at which `handle(Woke(), …)` is wanted; inf if only events matter."""
        if self._resync is not None:
            return self._resync.until_s
        cluster, queue_s = self.cluster, self.cluster.queue.next_deadline_s()
        next_s = min(self._ticks.next_s, self._learn_s, cluster.regrant_at_s, cluster.plan_at_s, queue_s)
        next_s = min(next_s, cluster.next_timeout_s(), cluster.leases.next_s(), cluster.installation.due_s)
        if cluster.requeued:
            next_s = min(next_s, *cluster.requeued.values())
        if cluster.resting:
            next_s = min(next_s, *cluster.resting.values())
        return next_s

    @property
    def is_resyncing(self) -> bool:
        """True while agents are awaited after a restart: decisions stand on what was believed before."""
        return self._resync is not None

    def status(self, now_s: float) -> m.Status:
        """Return the status of all jobs, hosts and the queue, as an operator sees it."""
        return status(self.cluster, now_s)

    # ------------------------------------------------------------ events

    def _react(self, event: ev.Event) -> None:
        """Apply the event itself to the cluster."""
        cluster, now_s = self.cluster, self.cluster.now_s
        match event:
            case ev.AgentSaid(name, message):
                host = cluster.hosts[name]
                match message:
                    case m.TransferEnded():
                        transfer_ended(cluster, host, message)
                    case m.CheckpointStored(checkpoint=stored):
                        stored_by(cluster, host, stored)
                    case m.Hello():
                        register(cluster, host, message)
                    case m.Heartbeat():
                        heartbeat(cluster, host, message)
                    case m.OwnerReclaims():
                        membership.owner_reclaims(cluster, host, message)
                    case m.OwnerReturns():
                        membership.owner_returns(cluster, host)
                    case m.JobStarted():
                        job_started(cluster, host, message)
                    case m.JobEnded():
                        job_ended(cluster, host, message)
                    case m.SnapshotTaken():
                        snapshot_taken(cluster, host, message)
                    case m.RefusedPeers(source, reason, times):
                        cluster.record(facts.PeersRefused(name, source, reason, times))
            case ev.AgentGone(name, reason):
                membership.on_disconnect(cluster, cluster.hosts[name], reason)
            case ev.SubmitAsked():
                if submit(cluster, event):
                    self._learn_s = now_s
            case ev.CancelAsked():
                cancel(cluster, event)
            case ev.Woke():  # a slice of what the queue's controller can do between decisions; the next is another event
                decides = now_s >= min(self._ticks.next_s, cluster.queue.next_deadline_s())
                if now_s >= self._learn_s and not decides:
                    self._learn_s = now_s if cluster.queue.controller.work() else inf
            case ev.LinksMeasured(research):
                cluster.capacity.measured({DirectedLink(source, to): rate for source, to, rate in research})
                cluster.plan_stale = True
                leave_hot_trunks(cluster)
            case ev.LinksChanged(rates):
                links_changed(cluster, {DirectedLink(source, to): rate for source, to, rate in rates})
            case ev.WaysSet(number):
                ways_set(cluster, number)
            case ev.DrainAsked(trunks):
                drain_trunks(cluster, {frozenset(trunk) for trunk in trunks})
            case ev.StrangersRefused(source, reason, times):
                cluster.record(facts.PeersRefused(cluster.campus.coordinator.name, source, reason, times))
            case ev.TokenMade(number, name):
                cluster.names.tokens[number] = name
                cluster.record(facts.NameChanged(name, "a token was made"))
            case ev.TokenSpent(number):
                cluster.record(facts.NameChanged(cluster.names.tokens.pop(number), "joined with a token"))
            case ev.NameRevoked(name, at_unix_s):
                cluster.names.revoke(name, at_unix_s)
                cluster.record(facts.NameChanged(name, "revoked"))
            case ev.Restarted(silent_s):
                # what was sent to its controller last is not known
                cluster.installation.dirty, cluster.installation.due_s = cluster.routes.has_choice, inf
                cluster.installation.loads_sent = None
                self._resync = begin_resync(cluster, self._resync)
                cluster.record(facts.CoordinatorRestarted(silent_s, sorted(self._resync.awaited)))

    def _do_what_is_due(self) -> None:
        """Do all that is due at this time, whatever the event."""
        cluster, now_s = self.cluster, self.cluster.now_s
        if now_s >= cluster.queue.next_deadline_s():
            expire_offers(cluster)
            send_off_waiting(cluster)
        if now_s >= cluster.leases.next_s():
            membership.end_leases(cluster)
        if now_s >= cluster.installation.due_s:
            network_silent(cluster)
        if cluster.requeued:
            resume_requeued(cluster)
        if cluster.resting:
            membership.end_rests(cluster)
        if now_s >= cluster.next_timeout_s():
            retry_overdue(cluster)
        cluster.rates_stale |= now_s >= cluster.regrant_at_s
        cluster.plan_stale |= now_s >= min(cluster.plan_at_s, self._ticks.next_s)
        if now_s >= self._ticks.next_s:
            retry_degraded(cluster)
            serve_waiting(cluster)
            improve_standby(cluster)

    def _gpus_behind(self, offer: Offer) -> int:
        """Return how many GPUs a job that takes an offer can have, for the queue."""
        return gpus_behind(self.cluster, offer)

    def _choose(self, job: SpotJob, offers: Sequence[Offer]) -> int | None:
        """Return which of several offers a job should take, for the queue."""
        return choose_offer(self.cluster, job, offers)
