"""The description of a campus: buildings, hosts with GPUs, switches, links, the research reserve. Frozen and validated.

Hosts hang on access switches, access switches on distribution switches, those on the core (paper A, section IV-A). A campus of
kernel bridges is a tree: exactly one path between any two nodes, and no spanning-tree protocol. With `fabric = "openvswitch"`
switches may be joined by more than one path; migrations then travel the paths of `paths.Routes`, research all shortest ones.

Rates are bytes per second on the wire, in each direction (full duplex); `DirectedLink` names one direction.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from topologies import calendars
from topologies.dimension import Dimension
from topologies.errors import SpecError, nearest
from topologies.keys import MAX_FACTOR, check, choice, declared, factors, number, optional, text, texts
from topologies.units import LARGEST_RATE_BYTES_PER_S

# an interface is called NAME-eth1023: 15 characters at most in Linux
NAME = re.compile(r"[a-z][a-z0-9]{0,8}")
NAME_RULE = "a name of 1 to 9 lower-case letters and digits that begins with a letter"
MAX_PORTS = 1023  # ports of one Linux bridge
SUBNET = ipaddress.IPv4Network("10.0.0.0/8")
SHARE = number(Dimension.NUMBER, high=1.0)


class Role(StrEnum):
    """Purpose of a host."""

    VOLUNTEER = "volunteer"  # lent by an owner who may take it back at any second
    ON_DEMAND = "on_demand"  # always there, at cost k a job
    COORDINATOR = "coordinator"


class Tier(StrEnum):
    """The level of a switch."""

    ACCESS = "access"
    DISTRIBUTION = "distribution"
    CORE = "core"


class Fabric(StrEnum):
    """Kind of the switches of a live campus."""

    BRIDGE = "bridge"  # kernel bridges: one path between any two nodes
    OPENVSWITCH = "openvswitch"  # programmed by an OpenFlow controller: several paths


class TrafficClass(StrEnum):
    """Class of service of paper A, section VII-A; `dscp` is the code point that the edge writes."""

    EMERGENCY = "emergency"  # EF: notifications and metadata
    PLANNED = "planned"  # AF41: migrations under a deadline
    PRESYNC = "presync"  # CS1: checkpoints
    RESEARCH = "research"  # BE: everything else

    @property
    def dscp(self) -> int:
        """Differentiated services code point (RFC 2474, 2597, 3246)."""
        return _DSCP[self]


_DSCP = {TrafficClass.EMERGENCY: 46, TrafficClass.PLANNED: 34, TrafficClass.PRESYNC: 8, TrafficClass.RESEARCH: 0}


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A kind of GPU: memory decides which jobs fit, compute capability which code runs, speed how long a step takes."""

    name: str
    memory_bytes: float = declared(number(Dimension.SIZE, above=True))  # of one GPU
    # jobs may ask for at least this
    compute_capability: float = declared(number(Dimension.NUMBER, above=True, about="a number such as 8.6"))
    # steps in the time of one on a reference GPU, on which jobs have their `step`
    speed: float = declared(number(Dimension.NUMBER, high=MAX_FACTOR, above=True), 1.0)
    # the same of jobs of a `workload_class`, such as { language = 1.8 }; others have `speed`
    speeds: tuple[tuple[str, float], ...] = declared(factors("a table such as { language = 1.8 }, each above 0"), ())

    def __post_init__(self) -> None:
        _label("gpu_models", self.name)
        check(self, f"gpu_models.{self.name}")

    def speed_of(self, workload_class: str | None) -> float:
        """Return its speed for jobs of this class."""
        return dict(self.speeds).get(workload_class or "", self.speed)


@dataclass(frozen=True, slots=True)
class Building:
    """A building: hosts in it share its switches."""

    name: str

    def __post_init__(self) -> None:
        _name("buildings", self.name)


@dataclass(frozen=True, slots=True)
class CampusMachine:
    """A computer that carries a part of the campus: the hosts and switches of some buildings."""

    name: str
    # of the interface by which the other machines reach it
    address: str = declared(text("an IPv4 address"))
    # the buildings that stand on it; each building stands on one machine
    buildings: tuple[str, ...] = declared(texts("the names of buildings"))

    def __post_init__(self) -> None:
        _name("machines", self.name)
        check(self, f"machines.{self.name}")
        try:
            ipaddress.IPv4Address(self.address)
        except ValueError as error:
            raise SpecError(f"machines.{self.name}.address", self.address, "an IPv4 address") from error


MAX_GPUS = 1024  # of one host
CORES = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?){0,255}")


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Share of this machine that all processes of a live host have together; the same however a run is scaled."""

    # processors' time, such as 0.5 for half of one; left out: no limit
    cpu: float | None = optional(number(Dimension.NUMBER, 0.01, 1024.0))
    # more ends a process of that host; left out: no limit
    memory_bytes: float | None = field(
        default=None,
        metadata={"kind": replace(number(Dimension.SIZE, 4e6), optional=True), "dimension": Dimension.NUMBER},
    )
    # numbers of the processors that they run on, such as "0" or "0-1,4"; left out: all
    cores: str | None = optional(text("numbers of processors"))

    def __post_init__(self) -> None:
        check(self, "hosts.*")
        if self.cores is not None and not CORES.fullmatch(self.cores):
            raise SpecError("hosts.*.cores", self.cores, 'numbers of processors, such as "0-1,4"')


UNLIMITED = HostLimits()


@dataclass(frozen=True, slots=True)
class Host:
    """A machine. `gpus` is how many jobs it can run at once (an on-demand host: its slots)."""

    name: str
    building: str
    role: Role
    address: ipaddress.IPv4Address
    gpu_model: str | None = None
    gpus: int = 0
    limits: HostLimits = UNLIMITED
    lent: str | None = None  # when its owner lends it (`calendars`); None: always
    own_agent: bool = False  # an agent that was installed there (`reclaimnet agent install`): the campus starts none

    def __post_init__(self) -> None:
        key = f"hosts.{self.name}"
        _name("hosts", self.name)
        if self.address not in SUBNET:
            raise SpecError(f"{key}.address", str(self.address), f"an address inside {SUBNET}")
        if self.role is Role.COORDINATOR:
            if self.gpus or self.gpu_model:
                raise SpecError(f"{key}.gpus", self.gpus, "a coordinator has no GPUs")
        elif not 1 <= self.gpus <= MAX_GPUS:
            raise SpecError(f"{key}.gpus", self.gpus, f"a whole number from 1 to {MAX_GPUS}")
        elif self.gpu_model is None:
            raise SpecError(f"{key}.gpu_model", None, "the name of one of the campus's gpu_models")
        if self.own_agent and (self.role is not Role.VOLUNTEER or self.lent is not None):
            raise SpecError(
                f"{key}.own_agent", True, "false: only a volunteer without a calendar has an agent of its own"
            )
        if self.lent is None:
            return
        if self.role is not Role.VOLUNTEER:
            raise SpecError(f"{key}.lent", self.lent, "none: only a volunteer has an owner")
        try:
            calendars.windows(self.lent)
        except ValueError as error:
            raise SpecError(f"{key}.lent", self.lent, f"{calendars.ALLOWED}; not {str(error)!r}") from None


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch; the core belongs to no building."""

    # a name of 1 to 9 lower-case letters and digits that begins with a letter
    name: str = declared(text("the name of the switch"))
    tier: Tier = declared(choice(Tier))  # its level in the tree
    # left out: it belongs to all, as the core does
    building: str | None = optional(text("the name of a building"))

    def __post_init__(self) -> None:
        _name("switches", self.name)


class DirectedLink(NamedTuple):
    """A direction of a link: traffic that leaves `source` towards `target`. A tuple: it is looked up all the time."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}>{self.target}"


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex cable between two nodes."""

    a: str
    b: str
    # on the wire, in each direction; no message carries a greater one
    rate_bytes_per_s: float = declared(number(Dimension.RATE, high=LARGEST_RATE_BYTES_PER_S, above=True))
    delay_s: float = declared(number(Dimension.DURATION), 0.0)  # one way
    # of losing a packet
    loss: float = declared(number(Dimension.NUMBER, high=1.0, about="a probability"), 0.0)
    # a packet takes the delay, more or less by at most this
    jitter_s: float = declared(number(Dimension.DURATION), 0.0)

    def __post_init__(self) -> None:
        key = f"links.{self.a}-{self.b}"
        check(self, key)
        if self.loss == 1.0:
            raise SpecError(f"{key}.loss", self.loss, "a probability of at least 0 and less than 1")
        if self.jitter_s > self.delay_s:
            raise SpecError(f"{key}.jitter", self.jitter_s, f"a duration of at most the delay, {self.delay_s} s")
        if self.a == self.b:
            raise SpecError(key, self.a, "a link joins two different nodes")

    def directions(self) -> tuple[DirectedLink, DirectedLink]:
        """Return (a to b, b to a)."""
        return DirectedLink(self.a, self.b), DirectedLink(self.b, self.a)


@dataclass(frozen=True, slots=True)
class ResearchReserve:
    """Capacity that migrations leave on every link: max(beta B, minimum) (paper A, section VII-B).

    Where research was measured to ask for more, all of that but `most_lost` is left. (The paper: research loses
    "under 3 %".)
    """

    beta: float = declared(SHARE, 0.3)  # share of each link that migrations leave to research
    # they leave at least this, however small the link
    minimum_bytes_per_s: float = declared(number(Dimension.RATE), 0.0)
    # where research is measured to ask for more, they may take this share of it
    most_lost: float = declared(SHARE, 0.03)

    def __post_init__(self) -> None:
        check(self, "research_reserve")

    def reserve_bytes_per_s(self, capacity_bytes_per_s: float) -> float:
        """Return the bytes/s kept for research on a link; never more than the link has (B_min > B: migration share 0)."""
        return min(capacity_bytes_per_s, max(self.beta * capacity_bytes_per_s, self.minimum_bytes_per_s))

    def kept_bytes_per_s(self, capacity_bytes_per_s: float, asked_bytes_per_s: float) -> float:
        """Return the bytes/s kept for research on a link of which it was measured to ask for so much."""
        asked_bytes_per_s = min(capacity_bytes_per_s, asked_bytes_per_s)
        return max(self.reserve_bytes_per_s(capacity_bytes_per_s), (1.0 - self.most_lost) * asked_bytes_per_s)

    def migration_share_bytes_per_s(self, capacity_bytes_per_s: float) -> float:
        """Return B_mig = B - B_res >= 0."""
        return capacity_bytes_per_s - self.reserve_bytes_per_s(capacity_bytes_per_s)


@dataclass(frozen=True)
class Campus:
    """The whole description. Construction validates it: a `Campus` that exists can be built."""

    name: str
    buildings: tuple[Building, ...]
    hosts: tuple[Host, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    gpu_models: tuple[GpuModel, ...] = ()
    research_reserve: ResearchReserve = field(default_factory=ResearchReserve)
    fabric: Fabric = Fabric.BRIDGE
    machines: tuple[CampusMachine, ...] = ()  # none: all of it stands on one

    def __post_init__(self) -> None:
        _label("name", self.name)
        _unique("buildings", (b.name for b in self.buildings))
        _unique("hosts", (node.name for node in self.nodes))
        _unique("hosts.*.address", (str(h.address) for h in self.hosts))
        _unique("gpu_models", (g.name for g in self.gpu_models))
        self._check_members()
        coordinators = [host.name for host in self.hosts_of(Role.COORDINATOR)]
        if len(coordinators) != 1:
            raise SpecError("hosts.*.role", coordinators, "exactly one host with the role coordinator")
        self._check_links()
        if self.machines:
            self._check_machines()

    @cached_property
    def nodes(self) -> tuple[Host | Switch, ...]:
        """Every node, hosts first, in order of description."""
        return (*self.hosts, *self.switches)

    @cached_property
    def host_by_name(self) -> dict[str, Host]:
        """Hosts by name."""
        return {host.name: host for host in self.hosts}

    @cached_property
    def switch_by_name(self) -> dict[str, Switch]:
        """Switches by name."""
        return {switch.name: switch for switch in self.switches}

    @cached_property
    def gpu_by_name(self) -> dict[str, GpuModel]:
        """GPU models by name."""
        return {gpu.name: gpu for gpu in self.gpu_models}

    @cached_property
    def neighbours(self) -> dict[str, dict[str, Link]]:
        """The links by node and neighbour."""
        table: dict[str, dict[str, Link]] = {node.name: {} for node in self.nodes}
        for link in self.links:
            table[link.a][link.b] = link
            table[link.b][link.a] = link
        return table

    @cached_property
    def capacity_bytes_per_s(self) -> dict[DirectedLink, float]:
        """Wire capacity of each direction of each link."""
        return {d: link.rate_bytes_per_s for link in self.links for d in link.directions()}

    @cached_property
    def machine_of(self) -> dict[str, str]:
        """Names of the machines by node; empty where one carries all. Switches of no building stand with the coordinator."""
        by_building = {building: machine.name for machine in self.machines for building in machine.buildings}
        if not by_building:
            return {}
        home = self.coordinator.building
        return {node.name: by_building[node.building or home] for node in self.nodes}

    @property
    def coordinator(self) -> Host:
        """The one coordinator."""
        return next(self.hosts_of(Role.COORDINATOR))

    def speed(self, host: str, workload_class: str | None) -> float:
        """Return the speed of a host's GPUs for jobs of this class; 1 where there are none."""
        gpu = self.gpu_by_name.get(self.host_by_name[host].gpu_model or "")
        return gpu.speed_of(workload_class) if gpu else 1.0

    @property
    def of_equal_speeds(self) -> Campus:
        """The same campus, whose GPUs all compute like the reference."""
        return replace(self, gpu_models=tuple(replace(gpu, speed=1.0, speeds=()) for gpu in self.gpu_models))

    def with_calendars(self, lent: Mapping[str, str]) -> Campus:
        """Return the same campus with calendars by volunteer or building; a volunteer's own comes first."""
        volunteers = {host.name for host in self.hosts_of(Role.VOLUNTEER)}
        known = volunteers.union(building.name for building in self.buildings)
        for name in lent.keys() - known:
            raise SpecError(f"lent.{name}", lent[name], f"of a building or a volunteer{nearest(name, known)}")
        of = {host.name: lent.get(host.name, lent.get(host.building, host.lent)) for host in self.hosts}
        return replace(
            self, hosts=tuple(replace(h, lent=of[h.name]) if h.name in volunteers else h for h in self.hosts)
        )

    def hosts_of(self, role: Role) -> Iterator[Host]:
        """Return the hosts of a role, in order of description."""
        return (host for host in self.hosts if host.role is role)

    def agents(self, *, head_stores: bool) -> list[Host]:
        """Return the hosts that have an agent: all but the coordinator's, and that one too if it keeps checkpoints."""
        return [host for host in self.hosts if head_stores or host.role is not Role.COORDINATOR]

    @cached_property
    def own_agents(self) -> frozenset[str]:
        """Names of hosts whose agents no live campus starts."""
        return frozenset(host.name for host in self.hosts if host.own_agent)

    def access_link(self, host: str) -> Link:
        """Return the one link that a host hangs on."""
        return next(iter(self.neighbours[host].values()))

    def _check_members(self) -> None:
        names = {b.name for b in self.buildings}
        models = {g.name for g in self.gpu_models}
        for host in self.hosts:
            if host.building not in names:
                raise SpecError(f"hosts.{host.name}.building", host.building, f"one of {sorted(names)}")
            if host.gpu_model is not None and host.gpu_model not in models:
                raise SpecError(f"hosts.{host.name}.gpu_model", host.gpu_model, f"one of {sorted(models)}")
        for switch in self.switches:
            if switch.building is not None and switch.building not in names:
                raise SpecError(f"switches.{switch.name}.building", switch.building, f"one of {sorted(names)}")

    def _check_machines(self) -> None:
        _unique("machines", (machine.name for machine in self.machines))
        _unique("machines.*.address", (machine.address for machine in self.machines))
        placed = [building for machine in self.machines for building in machine.buildings]
        _unique("machines.*.buildings", placed)
        names = [building.name for building in self.buildings]
        if sorted(placed) != sorted(names):
            raise SpecError("machines.*.buildings", placed, f"each of the buildings {sorted(names)}, on one machine")
        if self.fabric is not Fabric.BRIDGE:
            raise SpecError("machines", self.fabric.value, 'a campus on several machines has fabric = "bridge"')
        for link in self.links:
            if self.machine_of[link.a] == self.machine_of[link.b]:
                continue
            key = f"links.{link.a}-{link.b}"
            if {link.a, link.b} & self.host_by_name.keys():
                raise SpecError(key, "machines", "a host stands on the machine of its switch")
            if link.delay_s > 0.0 or link.loss > 0.0:
                raise SpecError(
                    key, link.delay_s or link.loss, "a link between machines has the delay and loss of these"
                )

    def _check_links(self) -> None:
        nodes = {node.name for node in self.nodes}
        degree = dict.fromkeys(nodes, 0)
        parts, joined = Parts(nodes), set[frozenset[str]]()
        for link in self.links:
            for end in (link.a, link.b):
                if end not in nodes:
                    raise SpecError(f"links.{link.a}-{link.b}", end, "the name of a host or a switch")
                degree[end] += 1
            if not parts.join(link.a, link.b) and self.fabric is Fabric.BRIDGE:
                raise SpecError(
                    f"links.{link.a}-{link.b}",
                    "a loop",
                    'links that form a tree (no second path); fabric = "openvswitch" allows more',
                )
            if frozenset((link.a, link.b)) in joined:
                raise SpecError(f"links.{link.a}-{link.b}", "a second one", "one link between two nodes")
            joined.add(frozenset((link.a, link.b)))
        first = min(nodes)
        apart = sorted(n for n in nodes if parts.of(n) != parts.of(first))
        if apart:
            allowed = f"links that join every node; these are cut off from {first}"
            raise SpecError("links", apart[:5], allowed)
        self._check_degrees(degree)

    def _check_degrees(self, degree: dict[str, int]) -> None:
        for host in self.hosts:
            if degree[host.name] != 1:
                raise SpecError(f"links of {host.name}", degree[host.name], "a host hangs on exactly one link")
            peer = next(iter(self.neighbours[host.name]))
            if peer in self.host_by_name:
                raise SpecError(f"links.{host.name}-{peer}", peer, "a host hangs on a switch, not on a host")
        for switch in self.switches:
            if degree[switch.name] > MAX_PORTS:
                raise SpecError(f"links of {switch.name}", degree[switch.name], f"at most {MAX_PORTS} ports")


class Parts:
    """Parts of a graph that grows edge by edge: each node is one at first (union-find)."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._above = {node: node for node in nodes}

    def of(self, node: str) -> str:
        """Return the node that stands for the part of this one."""
        above = self._above
        while above[node] != node:
            above[node] = above[above[node]]
            node = above[node]
        return node

    def join(self, a: str, b: str) -> bool:
        """Make one part of those of two nodes; return False if they are one already."""
        ends = self.of(a), self.of(b)
        self._above[ends[0]] = ends[1]
        return ends[0] != ends[1]


def _name(key: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise SpecError(key, name, NAME_RULE)


def _label(key: str, text: str) -> None:
    if not (text.isprintable() and 1 <= len(text) <= 64):
        raise SpecError(key, text[:80], "1 to 64 printable characters")


def _unique(key: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SpecError(key, name, "each only once")
        seen.add(name)
