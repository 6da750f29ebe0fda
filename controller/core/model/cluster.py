"""All that the coordinator's decisions look at, and the questions that several of them ask."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import islice
from math import inf
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from controller.core.model import effects as do
from controller.core.model.entities import (
    OVER,
    Checkpoint,
    CheckpointFlow,
    HostState,
    JobState,
    Phase,
    Wait,
)
from controller.core.model.facts import Fact, TrunksDraining, WayTaken
from controller.core.model.occupants import Occupants
from controller.core.model.witness import Witness
from controller.core.network.bandwidth import LinkBandwidth
from controller.core.network.links import Network, Paths
from controller.core.placement.exposure import HOURS
from controller.core.placement.notices import needed_s
from controller.core.placement.owner_history import OwnerHistory
from controller.core.placement.tree_rates import Known, Places, Rows
from controller.core.policies.table import Policy
from controller.core.queueing.queue import SpotQueue
from controller.core.settings import Settings
from controller.numerics.arrays import Floats, Mask, Numbers
from testbed.bounds import ATTEMPTS_PER_CUT
from testbed.messages import Endpoint, Expect, ToAgent
from topologies.paths import MAX_KNOWN, DeadTrunks, Routes, Way, dead_trunks
from topologies.spec import Campus, DirectedLink, TrafficClass

# what is on its way when a connection ends is known to be lost after one, and said again on the next
LEAST_LEASES = 3.0
LEAST_FALL = 0.01  # a rate that falls by less than 1 % is not worth a message: only so much less than a share is given out


Ends = tuple[str, str]  # source, destination
FULL = 0.98  # of what checkpoints may use of a link: what is given out of it is a little less than it has
UNASKED: tuple[int, ...] = (-1,)  # in place of the links of a flow


@dataclass(frozen=True, slots=True)
class HeldWay:
    """A pair of hosts whose way is being changed: what it sends may go over any of these links."""

    asked: int  # the number of the `SetWays` that changes it
    confirmed: Way | None  # the pin that the network has for sure; None: it has none
    links: tuple[DirectedLink, ...]  # of all ways since


_NAME_HOST_STANDBY, _HOST = attrgetter("spec.name", "host", "standby"), attrgetter("host")
_PAYLOAD = attrgetter("spec.payload_bytes")


class OpenStreams(NamedTuple):
    """The streams of checkpoints from where their jobs run, in the order of their keys: no moves, recoveries or copies."""

    flows: list[CheckpointFlow]
    paths: Paths


@dataclass
class Shared:
    """How few flows were shared while links had this capacity: by ways, floors, caps, classes and rates, which rates moved."""

    capacity: Floats
    moved: dict[tuple[object, ...], list[tuple[int, float, int]]] = field(default_factory=dict)


@dataclass
class Cluster:
    """The coordinator's picture of the campus."""

    campus: Campus
    settings: Settings
    policy: Policy
    routes: Routes
    share: dict[DirectedLink, float]  # what migrations may use of each link, payload bytes/s: the one account
    queue: SpotQueue
    hazards: OwnerHistory
    bandwidth: LinkBandwidth  # what may be reserved
    hosts: dict[str, HostState]
    draw: Callable[[], float]  # uniform in [0, 1), for policies that choose at random
    now_s: float = 0.0
    outbox: list[do.Effect] = field(default_factory=list)  # what follows from the present event, in order
    # what the present event leaves to be done once, at its end (`conclusion`)
    freed: list[str] = field(default_factory=list)  # hosts, each once for every GPU that may have become idle
    plan_stale: bool = False  # P1 counts with other jobs, hosts or links than when it last planned
    rates_stale: bool = False  # links are to be shared anew
    orders: dict[str, None] = field(default_factory=dict)  # flows whose senders are to be told what to send
    jobs: dict[str, JobState] = field(default_factory=dict)
    flows: dict[str, CheckpointFlow] = field(default_factory=dict)
    offers: dict[int, str] = field(default_factory=dict)  # spot offers that stand -> their host
    offers_made: int = 0
    backlog: list[str] = field(default_factory=list)  # on-demand jobs that found no on-demand slot
    requeued: dict[str, float] = field(default_factory=dict)  # interrupted job -> when it may start again
    homes: dict[str, str] = field(default_factory=dict)  # interrupted job -> the host that it waits for
    timers: int = 0  # checkpoint timers given so far
    waits: dict[str, Wait] = field(default_factory=dict)  # job -> what it waits for (`waiting`)
    secret: bytes = b""  # that no host knows: key of the numbers of transfers
    opened: int = 0  # flows so far
    cuts: int = 0  # how often the end of the journal was cut off (`resync`)
    witness: Witness | None = field(default=None, repr=False)  # of a replay
    barred_until_s: float = -inf  # no agent registers before: leases may run that were cut off the journal
    # flow -> (receiver, what it was told)
    announced: dict[str, tuple[str, Expect]] = field(default_factory=dict)
    changed_flows: dict[str, None] = field(default_factory=dict)  # since receivers were last told
    _paths: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict, repr=False)
    # keys of all flows, in order, and the flow and the links of each (UNASKED: not asked for yet)
    _flow_keys: list[str] = field(default_factory=list, repr=False)
    _flows: list[CheckpointFlow] = field(default_factory=list, repr=False)
    _flow_ways: list[tuple[int, ...]] = field(default_factory=list, repr=False)
    _some_unasked: bool = field(default=False, repr=False)
    _flow_paths: Paths | None = field(default=None, repr=False)
    _flow_between: dict[tuple[str, str, str], CheckpointFlow] = field(default_factory=dict, repr=False)
    _flows_from: dict[str, dict[str, CheckpointFlow]] = field(default_factory=dict, repr=False)
    _flows_to: dict[str, dict[str, CheckpointFlow]] = field(default_factory=dict, repr=False)
    _streams: OpenStreams | None = field(default=None, repr=False)
    _crossing: Floats | None = field(default=None, repr=False)
    _firm: list[CheckpointFlow] | None = field(default=None, repr=False)
    # links that they fill, when checkpoints may use so much of each
    _full: tuple[OpenStreams, Floats, frozenset[int]] | None = field(default=None, repr=False)
    shared: Shared = field(default_factory=lambda: Shared(np.empty(0)), repr=False)
    known: Known = field(default_factory=Known, repr=False)
    # when a lease or a fence ends, and the number of its host: a heap, of which only those count that still hold
    _silences: list[tuple[float, int]] = field(default_factory=list, repr=False)
    usable_hosts: set[str] = field(default_factory=set, repr=False)  # by name: `HostState.usable`
    apart: set[str] = field(default_factory=set, repr=False)  # hosts that are not connected
    _in_order: list[HostState] = field(init=False, repr=False)  # all hosts, by that number
    _number: dict[str, int] = field(init=False, repr=False)
    # of the first so many, those not over
    _going_on: list[JobState] = field(default_factory=list, repr=False)
    _submitted: int = field(default=0, repr=False)
    _some_over: bool = field(default=False, repr=False)  # since then
    _spendable: dict[DirectedLink, float] | None = field(default=None, repr=False)
    _spendable_column: Floats | None = field(default=None, repr=False)
    _checkpoint_given: Floats | None = field(default=None, repr=False)
    _checkpoint_column: Floats | None = field(default=None, repr=False)
    _lent_column: Floats | None = field(default=None, repr=False)
    _uplinks: Floats | None = field(default=None, repr=False)
    _reservable_column: Floats = field(init=False, repr=False)
    _given_column: Floats = field(init=False, repr=False)  # the same, with what is draining
    # what checkpoints may use: `bandwidth`, or with what is lent of the reserve, or, below research, all that research leaves
    checkpoint_bandwidth: LinkBandwidth = field(init=False, repr=False)
    # what may be reserved of each link: its share, less the room for falls that are too small to tell
    reservable: dict[DirectedLink, float] = field(init=False, repr=False)
    # the same room, by number of the link, of what checkpoints may use
    withheld_column: Floats = field(init=False, repr=False)
    # ways beside the tree's, and what the network's controller is told of them (`lifecycle.ways`)
    way_numbers: dict[Ends, int] = field(default_factory=dict)  # of each pinned pair: another with each way
    ways_pinned: int = 0  # so far
    draining: frozenset[frozenset[str]] = frozenset()  # trunks that still carry, and are announced to go down
    held: dict[Ends, HeldWay] = field(default_factory=dict)
    ways_stale: bool = False  # it is to be told
    # what grants take of trunks, as it was last told; None: not known
    loads_told: dict[DirectedLink, float] | None = None
    ways_asked: int = 0  # how often it was told,
    ways_done: int = 0  # and up to which time it has done so
    network_due_s: float = inf  # when its answer is overdue
    network_answers: bool = True
    _others: dict[str, tuple[Numbers, Paths]] = field(default_factory=dict, repr=False)
    places: Places = field(init=False, repr=False)  # the volunteers, by number, and how they hang on the tree
    # by number in `places`, and in the same order:
    volunteers: list[HostState] = field(init=False, repr=False)
    ownerless: list[HostState] = field(init=False, repr=False)  # the others, by name
    # whether it is connected and lent, with no notice running
    usable_column: Mask = field(init=False, repr=False)
    taken_column: Floats = field(init=False, repr=False)  # GPUs that are used or reserved
    occupants: Occupants = field(default_factory=Occupants, repr=False)  # the jobs that have them
    planned_s: float = -inf  # when all checkpoints were last planned
    plan_at_s: float = inf  # when they are to be planned again before the next tick
    regrant_at_s: float = inf  # when the timetable of reservations next changes a rate

    def __post_init__(self) -> None:
        self.checkpoint_bandwidth = self.bandwidth
        if self.policy.borrows:
            self.checkpoint_bandwidth = LinkBandwidth(
                self.bandwidth.capacity, self.bandwidth.reserve, lends=True
            )
        self._share_out()
        self._place()
        self.volunteers = [self.hosts[name] for name in self.places.hosts]
        by_name = sorted(self.hosts.items())
        self.ownerless = [host for _, host in by_name if not host.is_volunteer]
        self.usable_column = np.array([host.usable for host in self.volunteers], dtype=bool)
        self.taken_column = np.array([host.taken_gpus for host in self.volunteers], dtype=float)
        self._in_order = list(self.hosts.values())
        self._number = {host.name: number for number, host in enumerate(self._in_order)}
        self.usable_hosts = {host.name for host in self._in_order if host.usable}
        self.apart = {host.name for host in self._in_order if not host.connected}

    def _place(self) -> None:
        """What follows from the routes for P2: how the volunteers hang on their tree."""
        volunteers = [name for name, host in self.hosts.items() if host.is_volunteer]
        self.places = Places(self.campus, volunteers, self.network, self.routes)
        self._uplinks = None

    def _share_out(self) -> None:
        """What follows from `share`, and from what is draining: nothing is reserved there."""
        given = {link: rate * (1.0 - LEAST_FALL) for link, rate in self.share.items()}
        self._given_column = self._reservable_column = self.network.column(given)
        self.reservable = given
        if self.draining:
            left = {link: 0.0 for link in given if frozenset(link) in self.draining}
            self.reservable = {**given, **left}
            self._reservable_column = self.network.column(self.reservable)
        usable = self.share
        if self.policy.borrows:
            usable = {link: self.checkpoint_bandwidth.share(link) for link in self.share}
        self.withheld_column = LEAST_FALL * self.network.column(usable)
        self._forget_columns()

    def _forget_columns(self) -> None:
        """What follows from what is told of links, or from `share`, is found anew when it is asked for."""
        self._spendable, self._spendable_column, self._uplinks = None, None, None
        self._checkpoint_given, self._checkpoint_column, self._lent_column = None, None, None

    # ------------------------------------------------------------ effects

    def tell(self, host: str, message: ToAgent) -> None:
        """Say this to the agent of that host."""
        self.outbox.append(do.Tell(host, message))

    def record(self, fact: Fact) -> None:
        """Put this in the journal."""
        self.outbox.append(do.Record(fact))

    def take_outbox(self) -> list[do.Effect]:
        """All effects so far, in order; the outbox is empty again."""
        effects, self.outbox = self.outbox, []
        return effects

    # ------------------------------------------------------------ changes with consequences

    def advance(self, job: JobState, trigger: str) -> None:
        """Take the job's transition for `trigger`. P1 plans anew when a job begins to run, or runs no more."""
        before = job.phase
        job.to(trigger)
        self.plan_stale |= before is Phase.RUNNING or job.phase is Phase.RUNNING
        self._some_over |= job.phase in OVER

    def hold_gpu(self, job: JobState, host: HostState) -> None:
        """Give the job the GPUs of the host that it asks for."""
        host.jobs[job.name] = job.spec.gpus
        self._note(host)
        if (number := self.places.number.get(host.name)) is not None:
            self.occupants.add(number, job)

    def let_gpu_go(self, job: JobState, host: HostState) -> None:
        """Take the job's GPUs on that host back, as if it had never had any."""
        host.jobs.pop(job.name, None)
        self._note(host)
        if (number := self.places.number.get(host.name)) is not None:
            self.occupants.remove(number, job)

    def free_gpu(self, job: JobState, host: HostState) -> None:
        """Take the job's GPU on that host back, and offer it when the event has been decided."""
        self.let_gpu_go(job, host)
        self.freed += [host.name] * job.spec.gpus

    def lend(self, host: HostState, lent: bool, reclaim_at_s: float | None) -> None:
        """Note that its owner lends it, or not, and has given notice for that time, or none."""
        host.lent, host.reclaim_at_s = lent, reclaim_at_s
        self._note(host)

    def _note(self, host: HostState) -> None:
        """Columns of volunteers follow the host, and so do sets of hosts."""
        name, usable = host.name, host.usable
        (self.usable_hosts.add if usable else self.usable_hosts.discard)(name)
        (self.apart.discard if host.connected else self.apart.add)(name)
        number = self.places.number.get(name)
        if number is not None:
            self.usable_column[number], self.taken_column[number] = usable, host.taken_gpus

    # ------------------------------------------------------------ links

    @property
    def checkpoint_share(self) -> float:
        """beta of eq. (9): the part of an interval that sending may take."""
        given = self.settings.checkpoint_share
        return self.policy.checkpoint_share if given is None else given

    @property
    def network(self) -> Network:
        """The links of the campus, by number."""
        return self.bandwidth.network

    def path(self, source: str, destination: str) -> tuple[int, ...]:
        """The numbers of the links from one host to another."""
        known = self._paths.get((source, destination))
        if known is None:
            if len(self._paths) >= MAX_KNOWN:
                self._paths.clear()
            way = self.routes.way(source, destination)
            known = self._paths[source, destination] = self.network.path(way)
        return known

    @property
    def spendable(self) -> dict[DirectedLink, float]:
        """What is given out anew: `reservable`, or what others were measured to leave where that is less."""
        if self._spendable is None:
            self._spendable = self.network.mapping(self.spendable_column)
        return self._spendable

    @property
    def spendable_column(self) -> Floats:
        """`spendable`, by number of the link."""
        if self._spendable_column is None:
            left: Floats = self.bandwidth.left_column * (1.0 - LEAST_FALL)
            told = bool(self.bandwidth.told)
            self._spendable_column = (
                np.minimum(self._reservable_column, left) if told else self._reservable_column
            )
        return self._spendable_column

    @property
    def given_column(self) -> Floats:
        """What flows are granted, by number of the link: `spendable_column`, and the whole of links that are draining."""
        if not self.draining:
            return self.spendable_column
        left: Floats = self.bandwidth.left_column * (1.0 - LEAST_FALL)
        return np.minimum(self._given_column, left) if self.bandwidth.told else self._given_column

    @property
    def checkpoint_column(self) -> Floats:
        """What streams of checkpoints may be planned with, by number of the link: `spendable_column`, or what research leaves."""
        if not self.policy.borrows:
            return self.spendable_column
        if self._checkpoint_column is None:
            self._checkpoint_column = self.checkpoint_given_column
            if self.draining:
                self._checkpoint_column = self._checkpoint_column.copy()
                links = enumerate(self.network.links)
                self._checkpoint_column[[n for n, link in links if frozenset(link) in self.draining]] = 0.0
        return self._checkpoint_column

    @property
    def checkpoint_given_column(self) -> Floats:
        """What research leaves of each link to streams of checkpoints that may borrow, by its number."""
        if self._checkpoint_given is None:
            self._checkpoint_given = self.checkpoint_bandwidth.left_column * (1.0 - LEAST_FALL)
        return self._checkpoint_given

    @property
    def lent_column(self) -> Floats:
        """What all flows may be granted of each link together where checkpoints borrow, by its number."""
        if self._lent_column is None:
            self._lent_column = np.maximum(self.given_column, self.checkpoint_given_column)
        return self._lent_column

    def delivered(self, flow: CheckpointFlow, goodput_over_grant: float) -> None:
        """Record the share of its grant that a transfer of a flow got, which a link holds down."""
        source, _, target = flow.bottleneck.partition(">")
        link = DirectedLink(source, target)
        if self.policy.borrows:
            self.checkpoint_bandwidth.delivered(link, goodput_over_grant, self.now_s)
        self.bandwidth.delivered(link, goodput_over_grant, self.now_s)

    def links_measured(self, research_bytes_per_s: Mapping[DirectedLink, float]) -> None:
        """Take note of what others ask of some links, wire bytes/s, as switches count it; the rest is as it was.

        P1, P2 and P3 then give out what that leaves (`LinkBandwidth`), and no longer the whole share.
        Two things stand on the whole share still: reservations that were made before the others came (a migration is not broken
        off because of another's download), and the account that every grant is held against.
        """
        self.bandwidth.tell(research_bytes_per_s)
        if self.policy.borrows:
            self.checkpoint_bandwidth.tell(research_bytes_per_s)
        self._forget_columns()
        self.plan_stale = True

    def links_changed(self, wire_bytes_per_s: Mapping[DirectedLink, float]) -> bool:
        """Cables work at other rates: shares, and all that is planned and granted, follow.

        Whether routes are others now: some trunk of a campus with several paths died, or is back.
        """
        self.bandwidth.change(wire_bytes_per_s)
        if self.policy.borrows:
            self.checkpoint_bandwidth.change(wire_bytes_per_s)
        self.share.update({link: self.bandwidth.share(link) for link in wire_bytes_per_s})
        dead = dead_trunks(self.bandwidth.capacity)
        self.ways_stale |= not dead.isdisjoint(self.draining)
        self.draining -= dead
        for ends, held in self.held.items():  # nothing goes over a trunk that is dead
            links = tuple(link for link in held.links if frozenset(link) not in dead)
            self.held[ends] = replace(held, links=links)
        self._share_out()
        self.plan_stale = self.rates_stale = True
        return self._follow(dead)

    def drain(self, trunks: DeadTrunks) -> bool:
        """Note all trunks that are announced to go down. Whether routes are others now; what is on its way may still go
        over the old ones."""
        dead = dead_trunks(self.bandwidth.capacity)
        draining = frozenset(trunks) - dead
        if draining == self.draining:
            return False
        self.draining = draining
        self.ways_stale = self.plan_stale = self.rates_stale = True
        self._share_out()
        self.record(TrunksDraining([sorted(trunk) for trunk in sorted(draining, key=sorted)]))
        open_between = dict.fromkeys((flow.source, flow.destination) for flow in self.flows.values())
        ways, pins = {ends: self.routes.way(*ends) for ends in open_between}, self.routes.pins
        rerouted = self._follow(dead)
        for ends, way in ways.items():
            if self.routes.way(*ends) != way:
                self._hold(ends, way, pins.get(ends))
        return rerouted

    def _follow(self, dead: frozenset[frozenset[str]]) -> bool:
        """Routes go round these trunks and those that are draining."""
        before = self.routes.pins
        if not self.routes.follow(dead | self.draining):
            return False
        for ends in before.keys() - self.routes.pins.keys():
            self._unpinned(ends)
        self._paths.clear()
        self._others.clear()
        self._flow_ways, self._some_unasked = [UNASKED] * len(self._flows), True
        self._flow_paths, self._streams, self._crossing = None, None, None
        self._place()
        self.known.forget()
        self.known.routes = Rows()
        return True

    # ------------------------------------------------------------ ways beside the tree's

    @property
    def chooses_ways(self) -> bool:
        """Whether there may be more than one way from one host to another."""
        return self.routes.has_choice and self.settings.paths > 1 and self.network_answers

    def choices(self, source: str, destination: str) -> list[Way]:
        """The ways that a migration may take, the tree's first."""
        if not self.chooses_ways:
            return [self.routes.way(source, destination)]
        return self.routes.choices(source, destination, self.settings.paths)

    def widest_beside(self, source: str, free_bytes_per_s: Floats) -> Floats:
        """The rate of the widest way to each volunteer that is not the tree's; 0 where there is none."""
        known = self._others.get(source)
        if known is None:
            most = self.settings.paths
            ways = [
                (place, self.network.path(way))
                for place, host in enumerate(self.places.hosts)
                if host != source
                for way in self.routes.choices(source, host, most)[1:]
            ]
            places = np.array([place for place, _ in ways], dtype=np.intp)
            known = self._others[source] = (places, Paths.of([path for _, path in ways]))
        widest = np.zeros(len(self.places.hosts))
        np.maximum.at(widest, known[0], known[1].least(free_bytes_per_s))
        return widest

    def set_way(self, source: str, destination: str, way: Way | None) -> None:
        """What the pair sends takes this way from now on; None: the tree's."""
        ends, before = (source, destination), self.routes.way(source, destination)
        confirmed = self.routes.pins.get(ends)
        pinned = None if way == self.routes.route(source, destination) else way
        if (pinned or self.routes.route(source, destination)) == before:
            return
        self.routes.pin(source, destination, pinned)
        if pinned is None:
            self._unpinned(ends)
        else:
            self.ways_pinned += 1
            self.way_numbers[ends] = self.ways_pinned
            self.record(WayTaken(source, destination, [source, *(link.target for link in pinned)]))
        self.ways_stale = self.plan_stale = self.rates_stale = True
        self._hold(ends, before, confirmed)
        self.forget_paths(ends)

    def _unpinned(self, ends: Ends) -> None:
        del self.way_numbers[ends]
        self.ways_stale = True
        self.record(WayTaken(*ends, []))

    def _hold(self, ends: Ends, way: Way, pinned: Way | None) -> None:
        """The pair had this way (`pinned`, if it was a pin), and may still have it until the network has answered."""
        if self.network_answers:
            held = self.held.get(ends)
            links = (*held.links, *way) if held else way
            confirmed = held.confirmed if held else pinned
            self.held[ends] = HeldWay(self.ways_asked + 1, confirmed, tuple(dict.fromkeys(links)))

    def forget_paths(self, ends: Ends) -> None:
        """What a pair crosses is another set of links."""
        self._paths.pop(ends, None)
        for row, flow in enumerate(self._flows):
            if (flow.source, flow.destination) == ends:
                self._flow_ways[row], self._some_unasked = UNASKED, True
        self._flow_paths, self._streams, self._crossing = None, None, None
        self.known.routes = Rows()

    def _crossed(self, flow: CheckpointFlow) -> tuple[int, ...]:
        """The links that a flow is shared on: its way, and those that it may still take while that is being changed."""
        held = self.held.get((flow.source, flow.destination))
        path = self.path(flow.source, flow.destination)
        return path if held is None else tuple(dict.fromkeys((*path, *self.network.path(held.links))))

    def put_flow(self, flow: CheckpointFlow) -> None:
        """The flow is open, in place of one of its key."""
        key = flow.key
        row, before = bisect_left(self._flow_keys, key), self.flows.get(key)
        if before is not None:
            self._changes(row, before, -1)
            self._flows[row] = flow
        else:
            self._flow_keys.insert(row, key)
            self._flows.insert(row, flow)
            self._flow_ways.insert(row, self._crossed(flow))
            if self._flow_paths is not None:
                self._flow_paths = self._flow_paths.inserted(row, self._flow_ways[row])
        self.flows[key] = self._flow_between[flow.job, flow.source, flow.destination] = flow
        self._flows_from.setdefault(flow.source, {})[key] = flow
        self._flows_to.setdefault(flow.destination, {})[key] = flow
        self._changes(row, flow, 1)

    def take_flow(self, key: str) -> bool:
        """The flow is open no more. Whether it was."""
        flow = self.flows.pop(key, None)
        if flow is None:
            return False
        del self._flow_between[flow.job, flow.source, flow.destination]
        del self._flows_from[flow.source][key], self._flows_to[flow.destination][key]
        row = bisect_left(self._flow_keys, key)
        self._changes(row, flow, -1)
        del self._flow_keys[row], self._flows[row], self._flow_ways[row]
        if self._flow_paths is not None:
            self._flow_paths = self._flow_paths.without(row)
        return True

    def _changes(self, row: int, flow: CheckpointFlow, sign: int) -> None:
        """A flow comes or goes. Copies to vaults, which do so with every checkpoint, are neither streams nor firm."""
        if flow.reservation is not None or flow.floor_bytes_per_s > 0.0:
            self._firm = None
        if self._is_stream(flow):
            self._streams = None
            if self._crossing is not None:
                for link in self._flow_ways[row]:
                    self._crossing[link] += sign

    def _is_stream(self, flow: CheckpointFlow) -> bool:
        """Whether it comes from where its job runs."""
        return flow.traffic_class is TrafficClass.PRESYNC and self.jobs[flow.job].host == flow.source

    def firm_flows(self) -> list[CheckpointFlow]:
        """Flows for which something is reserved, or was, in the order of their opening."""
        if self._firm is None:
            flows = self.flows.values()
            self._firm = [f for f in flows if f.reservation is not None or f.floor_bytes_per_s > 0.0]
        return self._firm

    def flows_from(self, source: str) -> list[CheckpointFlow]:
        """All that a host sends, in the order of their opening."""
        return list(self._flows_from.get(source, {}).values())

    def flows_to(self, destination: str) -> list[CheckpointFlow]:
        """All that is sent to a host, in the order of their opening."""
        return list(self._flows_to.get(destination, {}).values())

    def flows_to_standbys(self, jobs: Sequence[JobState]) -> list[CheckpointFlow | None]:
        """The open flow of each job from its host to its standby."""
        return list(map(self._flow_between.get, map(_NAME_HOST_STANDBY, jobs)))

    def flows_in_order(self) -> list[CheckpointFlow]:
        """All flows, in the order of their keys."""
        return self._flows

    def flow_paths(self) -> tuple[list[str], Paths]:
        """The keys of all flows, in order, and their paths."""
        if self._flow_paths is None:
            self._flow_paths = Paths.of(self.flow_ways())
        return self._flow_keys, self._flow_paths

    def flow_ways(self) -> list[tuple[int, ...]]:
        """The numbers of the links that each flow is shared on, in the order of their keys."""
        if self._some_unasked:
            self._some_unasked = False
            for row in [row for row, way in enumerate(self._flow_ways) if way == UNASKED]:
                self._flow_ways[row] = self._crossed(self._flows[row])
        return self._flow_ways

    def put_job(self, job: JobState, host: str | None) -> None:
        """Place the job's attempt on that host from now on; None: on none."""
        job.host, self._streams, self._crossing = host, None, None

    def _stream_rows(self) -> list[int]:
        return [row for row, flow in enumerate(self._flows) if self._is_stream(flow)]

    def streams(self) -> OpenStreams:
        """The flows that are streams of checkpoints, without copies to vaults."""
        if self._streams is None:
            rows, ways = self._stream_rows(), self.flow_ways()
            paths = Paths.of([ways[row] for row in rows])
            self._streams = OpenStreams([self._flows[row] for row in rows], paths)
        return self._streams

    def streams_of(self, job: str) -> list[CheckpointFlow]:
        """Those of one job."""
        begins, found = f"{job}:", list[CheckpointFlow]()
        for row in range(bisect_left(self._flow_keys, begins), len(self._flow_keys)):
            if not self._flow_keys[row].startswith(begins):
                break
            if self._flows[row].job == job and self._is_stream(self._flows[row]):
                found.append(self._flows[row])
        return found

    def crossing(self) -> Floats:
        """How many streams of checkpoints cross each link, by its number."""
        if self._crossing is None:
            stand = np.zeros(len(self._flows))
            stand[self._stream_rows()] = 1.0
            self._crossing = self.flow_paths()[1].load(stand, len(self.network))
        return self._crossing

    def streams_planned(self) -> None:
        """P1 has given streams other caps."""
        self._full = None

    def full_links(self) -> frozenset[int]:
        """The links that streams of checkpoints fill, as P1 has planned."""
        streams, usable = self.streams(), self.checkpoint_column
        if self._full is None or self._full[0] is not streams or self._full[1] is not usable:
            planned = np.array([flow.cap_bytes_per_s for flow in streams.flows], dtype=float)
            full = streams.paths.load(planned, len(self.network)) >= usable * FULL
            self._full = (streams, usable, frozenset(np.flatnonzero(full).tolist()))
        return self._full[2]

    # ------------------------------------------------------------ hosts

    def next_silence_s(self) -> float:
        """When the first lease of a connected host, or the first fence, ends; inf: none does."""
        silences = self._silences
        while silences and silences[0][0] != self._silent_at_s(self._in_order[silences[0][1]]):
            heappop(silences)
        return silences[0][0] if silences else inf

    def silent_hosts(self) -> list[tuple[HostState, float]]:
        """Hosts whose lease or fence has ended by now, in order, and when it did."""
        found: dict[int, float] = {}
        while (since_s := self.next_silence_s()) <= self.now_s:
            found[heappop(self._silences)[1]] = since_s
        hosts = [(self._in_order[number], found[number]) for number in sorted(found)]
        for host, _ in hosts:
            self._watch(host)
        return hosts

    def _silent_at_s(self, host: HostState) -> float:
        """When something follows from the host's silence; inf: nothing does."""
        lapses_s = host.lease_until_s + self.settings.fence_margin_s if host.connected else inf
        return min(lapses_s, host.fence_at_s)

    def _watch(self, host: HostState) -> None:
        """Note that its lease or its fence is another."""
        at_s = self._silent_at_s(host)
        if at_s < inf:
            heappush(self._silences, (at_s, self._number[host.name]))

    def connect(self, host: HostState) -> None:
        """Note that its agent is there: no fence ends, and rates and checkpoints count with it."""
        host.connected, host.fence_at_s = True, inf
        self._watch(host)
        self._note(host)
        self.plan_stale = self.rates_stale = True

    def disconnect(self, host: HostState) -> None:
        """Note that its agent cannot be told anything: what runs there is fenced when its lease has lapsed."""
        host.connected = False
        self._note(host)
        self.plan_stale = self.rates_stale = True
        self.fence(host, max(self.now_s, host.lease_until_s + self.settings.fence_margin_s))

    def fence(self, host: HostState, at_s: float) -> None:
        """Count its jobs as stopped from then on."""
        host.fence_at_s = at_s
        self._watch(host)

    def lease(self, host: HostState, until_s: float) -> None:
        """No copy that was started there runs beyond this, as far as this side may believe."""
        host.lease_until_s = until_s
        self._watch(host)

    @property
    def attempts_above(self) -> int:
        """Attempts to come are numbered above this: none that was cut off the journal is as high."""
        return self.cuts * ATTEMPTS_PER_CUT

    def expect_word(self, job: JobState, within_s: float, asked: int = 0) -> None:
        """The phase that the job is in now is to end within that time, or it is asked why."""
        within_s = max(LEAST_LEASES * self.settings.lease_s, within_s)
        self.waits[job.name] = Wait(job.phase, job.attempt, self.now_s + within_s, within_s, asked)

    def next_word_s(self) -> float:
        """When the first word is overdue; inf if none is waited for."""
        while self.waits:
            first_s, name = min([(wait.until_s, name) for name, wait in self.waits.items()])
            if self.waits[name].holds(self.jobs[name]):
                return first_s
            del self.waits[name]
        return inf

    def endpoint(self, flow: CheckpointFlow) -> Endpoint:
        """Where a flow goes, and under which number."""
        host = self.hosts[flow.destination]
        return Endpoint(host.name, host.address, host.data_port, flow.ticket)

    def fits(self, job: JobState, host: HostState) -> bool:
        """Whether GPUs of the host can run the job at all."""
        gpu = self.campus.gpu_by_name[host.spec.gpu_model] if host.spec.gpu_model else None
        return (
            gpu is not None
            and host.spec.gpus >= job.spec.gpus
            and gpu.memory_bytes >= job.spec.memory_bytes
            and gpu.compute_capability >= job.spec.min_capability
        )

    def can_send(self, host: str) -> bool:
        """Whether a host can still send what it holds: connected, and not closed by its owner (a notice is no bar)."""
        state = self.hosts[host]
        return state.connected and (state.lent or state.reclaim_at_s is not None)

    def fit_hosts(self, job: JobState) -> Set[str]:
        """All hosts but those that lately failed to take a checkpoint of the job."""
        if not job.unfit:
            return self.hosts.keys()
        return {name for name in self.hosts if job.unfit.get(name, -inf) <= self.now_s}

    def jobs_on(self, host: HostState) -> list[JobState]:
        """Jobs that run there or have a GPU reserved, by name."""
        return [self.jobs[name] for name in sorted(host.jobs)]

    def unfinished(self) -> Sequence[JobState]:
        """Jobs that are not over, by name."""
        if self._some_over or self._submitted < len(self.jobs):
            jobs = [job for job in self._going_on if job.phase not in OVER]
            for job in islice(reversed(self.jobs.values()), len(self.jobs) - self._submitted):
                if job.phase not in OVER:
                    insort(jobs, job, key=attrgetter("name"))
            self._going_on, self._submitted, self._some_over = jobs, len(self.jobs), False
        return self._going_on

    # ------------------------------------------------------------ checkpoints

    def holders(self, checkpoint: Checkpoint) -> list[str]:
        """Hosts that hold it and can send it, by name."""
        return sorted(host for host in checkpoint.holders if self.can_send(host))

    def freshest(self, job: JobState) -> Checkpoint | None:
        """The completed checkpoint with the most work in it that some host can still send."""
        reachable = [c for c in job.checkpoints.values() if self.holders(c)]
        return max(reachable, key=lambda c: (c.stored.step, c.stored.sequence), default=None)

    # ------------------------------------------------------------ hazards

    def time_of_day_s(self, now_s: float) -> float:
        """Seconds since midnight, in the run's time scale."""
        return (now_s + self.settings.day_start_s) % self.settings.day_s

    def hazard_levels(self, now_s: float) -> tuple[Floats, tuple[float, ...]]:
        """(upper rate of departures of every volunteer, by its number in `places`; the campus's profile).

        Of departures of any kind, or of emergencies alone where the policy counts no others.
        """
        history = self.hazards.departures if self.policy.short_notices else self.hazards
        known, changes = self.known.hazards, history.changes
        if known is None or known[:2] != (now_s, changes):
            estimates = history.upper_by_hour(self.places.hosts, now_s)
            known = self.known.hazards = (now_s, changes, *estimates)
        return known[2], known[3]

    def hazards_now_per_s(self, jobs: Sequence[JobState], now_s: float) -> Floats:
        """Hazards of jobs on volunteers now: the upper rate of departures that hurt, with too little notice to move."""
        if not jobs:  # levels are estimated for all hosts, and each that registers has P1 plan
            return np.empty(0)
        levels, profile = self.hazard_levels(now_s)
        there = np.array(list(map(self.places.number.__getitem__, map(_HOST, jobs))), dtype=np.intp)
        payloads = np.array(list(map(_PAYLOAD, jobs)), dtype=float)
        short = self.too_short(payloads, self.uplinks_bytes_per_s[there], now_s)
        hazards: Floats = levels[there] * profile[self.hour(now_s)] * short
        return hazards

    @property
    def uplinks_bytes_per_s(self) -> Floats:
        """What is given out of each volunteer's own uplink; infinite on a campus that is one host."""
        if self._uplinks is None:
            self._uplinks = np.append(self.spendable_column, np.inf)[self.places.uplink]
        return self._uplinks

    @property
    def checkpoint_uplinks_bytes_per_s(self) -> Floats:
        """What checkpoints may be planned with of each volunteer's own uplink; infinite on a campus that is one host."""
        if not self.policy.borrows:
            return self.uplinks_bytes_per_s
        return np.append(self.checkpoint_column, np.inf)[self.places.uplink]

    def too_short(self, payload_bytes: Floats | float, rates_bytes_per_s: Floats, now_s: float) -> Floats:
        """P(a departure's notice is too short to send so much at such a rate); 1 where only emergencies count as departures."""
        if not self.policy.short_notices:
            return np.ones(len(rates_bytes_per_s))
        settings = self.settings
        needed = needed_s(
            payload_bytes, rates_bytes_per_s, settings.snapshot_s, settings.snapshot_bytes_per_s
        )
        return self.hazards.notices.too_short_column(needed, now_s)

    def hour(self, now_s: float) -> int:
        """Which 24th of the day it is."""
        return int(self.time_of_day_s(now_s) / self.settings.day_s * HOURS) % HOURS


def present(cluster: Cluster, host: HostState, name: str, attempt: int) -> JobState | None:
    """The job, if this is its present attempt and it is on that host."""
    job = cluster.jobs.get(name)
    return job if job is not None and job.attempt == attempt and job.host == host.name else None
