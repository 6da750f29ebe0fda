"""Shared parts of the virtual world: scheduler, machines, network, streams, and the two ways into the cores."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from controller.core.model import events as cev
from experiments.inputs.traces.streams import stream
from experiments.worlds.virtual.faults import Faults
from experiments.worlds.virtual.hosts import Connection, Machine
from experiments.worlds.virtual.network import MIGRATION, Egress, ScheduledNetwork, guard_of
from experiments.worlds.virtual.overheads import Overheads, Span
from experiments.worlds.virtual.scheduler import Priority, Scheduler
from experiments.worlds.virtual.switches import ProgrammedSwitches, Ways
from testbed.agent.core import events as aev
from testbed.enforcement import Enforcement
from testbed.messages import JobSpec
from testbed.model.network import FluidNetwork, Sharing
from topologies.paths import Routes, Way
from topologies.spec import Campus, DirectedLink, TrafficClass
from topologies.units import PAYLOAD_SHARE

STORY_LINES = 60
SHARING = {Enforcement.PACE: Sharing.PRIORITY, Enforcement.DROP: Sharing.FAIR, Enforcement.NONE: Sharing.FAIR}


class RandomStreams:
    """Named streams of chance: one a purpose and host, so that one more draw for one never moves another."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: dict[tuple[str, ...], random.Random] = {}

    def of(self, *purpose: str) -> random.Random:
        """Return the stream of that name."""
        found = self._known.get(purpose)
        if found is None:
            found = self._known[purpose] = stream(self._seed, "virtual", *purpose)
        return found

    def span(self, span: Span, *purpose: str) -> float:
        """Draw a cost."""
        return self.of(*purpose).uniform(*span)


@dataclass(eq=False)
class Environment:
    """The environment of one world. `agent` hands an event to the core of a machine, `decide` one to the coordinator."""

    campus: Campus
    routes: Routes
    costs: Overheads
    faults: Faults
    streams: RandomStreams
    scheduler: Scheduler
    network: ScheduledNetwork
    machines: dict[str, Machine]
    # wire bytes/s of each link as it is to be (a fault may make it less); the coordinator learns of changes
    capacity: dict[DirectedLink, float]
    switches: ProgrammedSwitches | None = None  # of a campus with several paths
    specs: dict[str, JobSpec] = field(default_factory=dict)
    told: Callable[[str, Any], None] | None = None  # sees each message to an agent
    tells_story: bool = False
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_LINES))
    agent: Callable[[Machine, aev.Event], None] = field(init=False)
    decide: Callable[[cev.Event], None] = field(init=False)
    broken_off: Callable[[Connection], None] = field(init=False)

    @property
    def now_s(self) -> float:
        """The time of the event that happens."""
        return self.scheduler.now_s

    def shared_ways(self, source: str, target: str) -> Ways:
        """Return the ways that research of many connections takes from one node to another, and which part of it takes each."""
        if self.switches is None:
            return ((1.0, self.routes.route(source, target)),)
        return self.switches.shared(source, target)

    def hashed_way(self, source: str, target: str, hash_at: Callable[[str], float]) -> Way:
        """Return the links of one connection of research; `hash_at`: its hash at a switch, from 0 to less than 1."""
        if self.switches is None:
            return self.routes.route(source, target)
        return self.switches.hashed(source, target, hash_at)

    def to_agent(self, machine: Machine, act: Callable[[], None]) -> None:
        """Act on an agent's process. A paused process acts when it goes on; a dead one never."""
        if machine.core is None:
            return
        if machine.paused:
            core = machine.core
            machine.deferred.append(lambda: act() if machine.core is core else None)
        else:
            act()

    def tell_agent(self, machine: Machine, event: aev.Event) -> None:
        """Hand an event to an agent's process. A paused process gets it when it goes on; a dead one never."""
        if machine.paused:
            self.to_agent(machine, lambda: self.agent(machine, event))
        elif machine.core is not None:
            self.agent(machine, event)

    def after(self, delay_s: float, act: Callable[[], None], priority: Priority = Priority.TIMER) -> None:
        """Do it later."""
        self.scheduler.at(self.scheduler.now_s + delay_s, act, priority)

    def note(self, text: str) -> None:
        """Record a line of the story, which is printed when an invariant is broken."""
        if self.tells_story:
            self.story.append(f"{self.now_s:8.3f} {text}")


def make_environment(
    campus: Campus,
    costs: Overheads,
    faults: Faults,
    seed: int,
    enforcement: Enforcement,
    *,
    head_stores: bool,
    scheduler: Scheduler,
    borrows: bool,
) -> Environment:
    """Make the machines, and a network that carries payload.

    Each host's aggregate bucket is a link that only migrations cross.

    `head_stores`: the coordinator's machine is one of them. `borrows`: ports have a third queue for checkpoints, live,
    whatever bucket holds a flow; not where nothing is enforced.
    """
    carried = {link: rate * PAYLOAD_SHARE for link, rate in campus.capacity_bytes_per_s.items()}
    if enforcement is not Enforcement.NONE:
        for host in campus.hosts:
            access_bytes_per_s = campus.access_link(host.name).rate_bytes_per_s
            share = campus.research_reserve.migration_share_bytes_per_s(access_bytes_per_s)
            carried[guard_of(host.name)] = share * PAYLOAD_SHARE
    borrows = borrows and enforcement is not Enforcement.NONE
    sharing = SHARING[enforcement]
    if borrows:
        kept = campus.research_reserve.reserve_bytes_per_s
        fluid = FluidNetwork(carried, sharing, lambda rate: PAYLOAD_SHARE * kept(rate / PAYLOAD_SHARE))
    else:
        fluid = FluidNetwork(carried, sharing)
    held = (TrafficClass.PLANNED,) if borrows else MIGRATION
    network = ScheduledNetwork(scheduler, fluid, Egress(fluid, (host.name for host in campus.hosts), held))
    machines = {host.name: Machine(host.name) for host in campus.agents(head_stores=head_stores)}
    routes, capacity = Routes(campus), dict(campus.capacity_bytes_per_s)
    switches = ProgrammedSwitches(campus, routes) if routes.has_choice else None
    return Environment(
        campus, routes, costs, faults, RandomStreams(seed), scheduler, network, machines, capacity, switches
    )
