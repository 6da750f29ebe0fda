"""The state that the coordinator's decisions look at, and the questions that several of them ask."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter

import numpy as np

from controller.core.model import effects as do
from controller.core.model.entities import (
    OVER,
    TRANSITIONS,
    Checkpoint,
    CheckpointFlow,
    HostState,
    JobState,
    JobTable,
    LeaseTimers,
    OpenFlows,
    Phase,
    Timeout,
)
from controller.core.model.facts import Fact, TrunksDraining, WayTaken
from controller.core.model.names import Names
from controller.core.network.links import Ends, LinkCapacity, Network, PathCache, RouteInstallation
from controller.core.parameters import Protocol, Queue
from controller.core.placement.hazard import HOURS, OwnerHistory
from controller.core.placement.select import Places
from controller.core.policies.table import Policy
from controller.core.queueing.queue import SpotQueue
from controller.numerics.arrays import Floats, Numbers
from testbed.bounds import LARGEST_COUNT
from testbed.errors import InvariantBroken
from testbed.messages import Endpoint, ToAgent
from topologies.paths import DeadTrunks, Routes, Way, dead_trunks
from topologies.spec import Campus, DirectedLink

# messages on their way when a connection ends are known to be lost after one lease, and are sent again on the next connection
LEAST_LEASES = 3.0

_HOST, _PAYLOAD = attrgetter("host"), attrgetter("spec.payload_bytes")


@dataclass
class Cluster:
    """The coordinator's picture of the campus."""

    campus: Campus
    protocol: Protocol
    terms: Queue  # of the queue: costs, delays, spare GPUs
    policy: Policy
    routes: Routes
    capacity: LinkCapacity  # rates of links: the share, and what may be reserved, granted and lent
    queue: SpotQueue
    hazards: OwnerHistory
    hosts: dict[str, HostState]
    draw: Callable[[], float]  # uniform in [0, 1), for policies that choose at random
    now_s: float = 0.0
    outbox: list[do.Effect] = field(default_factory=list)  # what follows from the present event, in order
    # what the present event leaves to be done once, at its end (`finish_event`)
    freed: list[str] = field(default_factory=list)  # hosts, each once for every GPU that may have become idle
    plan_stale: bool = False  # P1 counts with other jobs, hosts or links than when it last planned
    rates_stale: bool = False  # links are to be shared again
    orders: dict[str, None] = field(default_factory=dict)  # flows whose senders are to get orders
    jobs: JobTable = field(default_factory=JobTable)
    offers_made: int = 0
    backlog: list[str] = field(default_factory=list)  # on-demand jobs that found no on-demand slot
    requeued: dict[str, float] = field(default_factory=dict)  # interrupted job -> when it may start again
    resting: dict[str, float] = field(
        default_factory=dict
    )  # host, lent and taken in a moment before -> when it gets jobs
    homes: dict[str, str] = field(default_factory=dict)  # interrupted job -> the host that it waits for
    timers: int = 0  # checkpoint timers given so far
    timeouts: dict[str, Timeout] = field(default_factory=dict)  # job -> until when its phase may last (`reconcile`)
    secret: bytes = b""  # that no host, journal or snapshot holds: key of the numbers of transfers
    opened: int = 0  # flows so far
    names: Names = field(default_factory=Names)  # of agents and operators
    # made of the fields above:
    network: Network = field(init=False, repr=False)  # the links of the campus, by number
    places: Places = field(init=False, repr=False)  # volunteers by number, and where they are in the tree of routes
    volunteers: list[HostState] = field(init=False, repr=False)  # in the order of their numbers
    ownerless: list[HostState] = field(init=False, repr=False)  # the others, by name
    # of volunteers, if any has one and the policy looks at them
    calendars: tuple[str | None, ...] = field(init=False, repr=False)
    leases: LeaseTimers = field(init=False, repr=False)  # the times at which hosts count as silent
    paths: PathCache = field(init=False, repr=False)  # routes as numbers of links
    installation: RouteInstallation = field(init=False, repr=False)  # of pinned routes in the network
    flows: OpenFlows = field(init=False, repr=False)
    planned_s: float = -inf  # when all checkpoints were last planned
    plan_at_s: float = inf  # when they are to be planned again before the next tick
    regrant_at_s: float = inf  # when the timetable of reservations next changes a rate

    def __post_init__(self) -> None:
        self.network = self.capacity.network
        by_name = [host for _, host in sorted(self.hosts.items())]
        self.volunteers = [host for host in by_name if host.is_volunteer]
        self.ownerless = [host for host in by_name if not host.is_volunteer]
        calendars = tuple(host.spec.lent for host in self.volunteers)
        self.calendars = calendars if self.policy.weighs_calendars and any(calendars) else ()
        self._find_places()
        self.leases = LeaseTimers(self.hosts, self.protocol.fence_margin_s)
        self.paths = PathCache(self.network, self.routes, self.protocol.paths)
        self.installation = RouteInstallation(dirty=self.routes.has_choice)
        self.flows = OpenFlows(self.jobs, self.network, self.paths, self.installation)

    def _find_places(self) -> None:
        names = [host.name for host in self.volunteers]
        self.places = Places(self.campus, names, self.network, self.routes)

    # ------------------------------------------------------------ effects

    def tell(self, host: str, message: ToAgent) -> None:
        """Send this to the agent of that host."""
        self.outbox.append(do.Tell(host, message))

    def record(self, fact: Fact) -> None:
        """Put this in the journal."""
        self.outbox.append(do.Record(fact))

    # ------------------------------------------------------------ changes with consequences

    def advance(self, job: JobState, trigger: str) -> None:
        """Take the transition that the table has for `trigger`; anything else is a bug that carries its story.

        Nothing is awaited of its former phase. P1 plans again when a job begins to run, or runs no more.
        """
        before = job.phase
        if (before, trigger) not in TRANSITIONS:
            raise InvariantBroken(job.name, f"no transition {trigger!r} from {before}")
        job.phase = TRANSITIONS[before, trigger]
        self.timeouts.pop(job.name, None)
        self.plan_stale |= before is Phase.RUNNING or job.phase is Phase.RUNNING
        if job.phase in OVER:
            self.jobs.over(job)

    def free_gpu(self, job: JobState, host: HostState) -> None:
        """Take the job's GPUs on that host back, and offer them when the event has been decided."""
        host.jobs.pop(job.name, None)
        self.freed += [host.name] * job.spec.gpus

    # ------------------------------------------------------------ links

    @property
    def checkpoint_share(self) -> float:
        """The beta of eq. (9): the part of an interval that sending may take."""
        given = self.protocol.checkpoint_share
        return self.policy.checkpoint_share if given is None else given

    def links_changed(self, wire_bytes_per_s: Mapping[DirectedLink, float]) -> bool:
        """Change rates of cables: shares, and all that is planned and granted, follow.

        Return whether routes changed: some trunk of a campus with several paths died, or is back.
        """
        self.capacity.changed(wire_bytes_per_s)
        dead = dead_trunks(self.capacity.wire)
        if not dead.isdisjoint(self.capacity.draining):
            self.installation.dirty = True
            self.capacity.drain(self.capacity.draining - dead)
        self.installation.died(dead)
        self.plan_stale = self.rates_stale = True
        return self._follow(dead)

    def drain(self, trunks: DeadTrunks) -> bool:
        """Note all trunks that are announced to go down; return whether routes changed.

        Packets on their way may still take the old routes.
        """
        dead = dead_trunks(self.capacity.wire)
        draining = frozenset(trunks) - dead
        if draining == self.capacity.draining:
            return False
        self.capacity.drain(draining)
        self.installation.dirty = self.plan_stale = self.rates_stale = True
        self.record(TrunksDraining([sorted(trunk) for trunk in sorted(draining, key=sorted)]))
        open_between = dict.fromkeys((flow.source, flow.destination) for flow in self.flows.values())
        ways, pins = {ends: self.routes.way(*ends) for ends in open_between}, self.routes.pins
        rerouted = self._follow(dead)
        for ends, way in ways.items():
            if self.routes.way(*ends) != way:
                self.installation.hold(ends, way, pins.get(ends))
        return rerouted

    def _follow(self, dead: frozenset[frozenset[str]]) -> bool:
        """Route around these trunks and those that are draining; return whether routes changed."""
        before = self.routes.pins
        if not self.routes.follow(dead | self.capacity.draining):
            return False
        for ends in before.keys() - self.routes.pins.keys():
            self._unpin(ends)
        self.paths.forget_all()
        self.flows.rerouted()
        self._find_places()
        return True

    # ------------------------------------------------------------ routes beside the tree's

    @property
    def chooses_ways(self) -> bool:
        """True if there may be more than one route from one host to another."""
        return self.routes.has_choice and self.protocol.paths > 1 and self.installation.answers

    def choices(self, source: str, destination: str) -> list[Way]:
        """Return the routes that a migration may take, the tree's first."""
        if not self.chooses_ways:
            return [self.routes.way(source, destination)]
        return self.routes.choices(source, destination, self.protocol.paths)

    def set_way(self, source: str, destination: str, way: Way | None) -> None:
        """Route what the pair sends over this way from now on; None: the tree's."""
        ends, before = (source, destination), self.routes.way(source, destination)
        confirmed = self.routes.pins.get(ends)
        pinned = None if way == self.routes.route(source, destination) else way
        if (pinned or self.routes.route(source, destination)) == before:
            return
        self.routes.pin(source, destination, pinned)
        if pinned is None:
            self._unpin(ends)
        else:
            self.installation.pin(ends)
            self.record(WayTaken(source, destination, [source, *(link.target for link in pinned)]))
        self.plan_stale = self.rates_stale = True
        self.installation.hold(ends, before, confirmed)
        self.forget_paths(ends)

    def _unpin(self, ends: Ends) -> None:
        self.installation.unpin(ends)
        self.record(WayTaken(*ends, []))

    def forget_paths(self, ends: Ends) -> None:
        """Drop what is known of the links that a pair's packets cross: they are others."""
        self.paths.forget(ends)
        self.flows.rerouted()

    # ------------------------------------------------------------ hosts

    def fence(self, host: HostState, at_s: float) -> None:
        """Count its jobs as stopped from then on."""
        host.fence_at_s = at_s
        self.leases.watch(host)

    def lease(self, host: HostState, until_s: float) -> None:
        """Record the lease: no copy that was started there runs beyond this, as far as this side may believe."""
        host.lease_until_s = until_s
        self.leases.watch(host)

    def arm_timeout(self, job: JobState, within_s: float, asked: int = 0) -> None:
        """Expect the end of the job's present phase within that time; else its reason is asked for."""
        within_s = max(LEAST_LEASES * self.protocol.lease_s, within_s)
        self.timeouts[job.name] = Timeout(self.now_s + within_s, within_s, asked)

    def next_timeout_s(self) -> float:
        """Return the time at which the first awaited message is overdue; inf if none is awaited."""
        return min([wait.until_s for wait in self.timeouts.values()]) if self.timeouts else inf

    def endpoint(self, flow: CheckpointFlow) -> Endpoint:
        """Return the address, port and ticket to which a flow is sent."""
        host = self.hosts[flow.destination]
        return Endpoint(host.name, host.address, host.data_port, self.ticket(flow))

    def ticket(self, flow: CheckpointFlow) -> int:
        """Return the one-time number under which a flow's receiver expects it."""
        return keyed(self.secret, flow.number)

    def fits(self, job: JobState, host: HostState) -> bool:
        """Return True if GPUs of the host can run the job at all."""
        gpu = self.campus.gpu_by_name[host.spec.gpu_model] if host.spec.gpu_model else None
        return (
            gpu is not None
            and host.spec.gpus >= job.spec.gpus
            and gpu.memory_bytes >= job.spec.memory_bytes
            and gpu.compute_capability >= job.spec.min_capability
        )

    def speed(self, job: JobState) -> float:
        """Return the speed that decisions count with, of the GPU that the job has."""
        return job.speed if self.policy.weighs_speed else 1.0

    def step_s(self, job: JobState) -> float:
        """Return the seconds that decisions count with for a step on that GPU."""
        return job.spec.step_s / self.speed(job)

    def fit_hosts(self, job: JobState) -> Set[str]:
        """Return the hosts other than those that rest, or lately failed to take a checkpoint of the job."""
        if not job.obstacles.unfit:
            return self.hosts.keys() - self.resting.keys() if self.resting else self.hosts.keys()
        unfit = job.obstacles.unfit
        return {name for name in self.hosts if unfit.get(name, -inf) <= self.now_s and name not in self.resting}

    def jobs_on(self, host: HostState) -> list[JobState]:
        """Return the jobs whose attempt is there, by name; jobs that only have GPUs reserved there are none of them."""
        jobs = [self.jobs[name] for name in sorted(host.jobs)]
        return [job for job in jobs if job.host == host.name]

    # ------------------------------------------------------------ checkpoints

    def holders(self, checkpoint: Checkpoint) -> list[str]:
        """Return the hosts that hold it and can send it, by name."""
        return sorted(name for name in checkpoint.holders if self.hosts[name].can_send)

    def freshest(self, job: JobState) -> Checkpoint | None:
        """Return the completed checkpoint with the most work in it that some host can still send."""
        reachable = [c for c in job.checkpoints.values() if self.holders(c)]
        return max(reachable, key=lambda c: (c.stored.step, c.stored.sequence), default=None)

    # ------------------------------------------------------------ hazards

    def windows_left_s(self) -> Floats:
        """Return how long each volunteer stays by its calendar: the part of its hazard that is known."""
        week = self.protocol.week
        left_s = {each: week.end_s(each, self.now_s) - self.now_s for each in {*self.calendars}}
        return np.array([left_s[each] for each in self.calendars])

    def hazards_now_per_s(self, jobs: Sequence[JobState]) -> Floats:
        """Return the hazards of jobs on volunteers now: the upper rate of departures that hurt, with too little notice."""
        if not jobs:  # levels are estimated for all hosts, and each that registers has P1 plan
            return np.empty(0)
        levels, profile = self.hazards.levels(self.now_s)
        there = np.array(list(map(self.places.number.__getitem__, map(_HOST, jobs))), dtype=np.intp)
        payloads = np.array(list(map(_PAYLOAD, jobs)), dtype=float)
        short = self.too_short(payloads, self.places.uplink[there])
        time_s = (self.now_s + self.protocol.day_start_s) % self.protocol.day_s
        hour = int(time_s / self.protocol.day_s * HOURS) % HOURS
        hazards: Floats = levels[there] * profile[hour] * short
        return hazards

    def too_short(self, payload_bytes: Floats | float, uplinks: Numbers) -> Floats:
        """Return P(a departure's notice is too short to send so much over such an uplink); 1 where only emergencies count."""
        if not self.policy.short_notices:
            return np.ones(len(uplinks))
        # the number behind the last link is that of a campus that is one host, which needs none
        rates_bytes_per_s = np.append(self.capacity.spendable_column, np.inf)[uplinks]
        writes_s = self.protocol.snapshot_s + payload_bytes / self.protocol.snapshot_bytes_per_s
        with np.errstate(divide="ignore"):
            sent_s = payload_bytes / rates_bytes_per_s
        # one snapshot may have to wait for another
        return self.hazards.too_short(sent_s + 2.0 * writes_s, self.now_s)


def present(cluster: Cluster, host: HostState, name: str, attempt: int) -> JobState | None:
    """Return the job, if this is its present attempt and it is on that host."""
    job = cluster.jobs.get(name)
    return job if job is not None and job.attempt == attempt and job.host == host.name else None


def keyed(secret: bytes, number: int) -> int:
    """Return a number of 62 bits that only the holder of the key can make of this one, above 0.

    A coordinator that decides its journal's events again comes to the same one, and a host without the key cannot guess it.
    """
    digest = hashlib.blake2b(number.to_bytes(8, "big"), key=secret, digest_size=8).digest()
    return int.from_bytes(digest, "big") % LARGEST_COUNT or 1
