"""Campuses that need no file: trees and meshes of any size.

A tree follows paper A, section IV-A, whose own campus is `example:campus54`: hosts hang on access switches, those on
the distribution switch of their building, distribution switches on one core. The coordinator and the on-demand hosts
are no volunteers: they stand with the core. The experiment is not about their links, and a path from any host to them
then crosses exactly one building. Their server room is a building of its own called `room`, so that "same building"
never holds between a volunteer and rented capacity.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from topologies.addresses import building_addresses
from topologies.errors import SpecError
from topologies.keys import whole
from topologies.spec import (
    MAX_PORTS,
    Building,
    Campus,
    Fabric,
    GpuModel,
    Host,
    Link,
    ResearchReserve,
    Role,
    Switch,
    Tier,
)
from topologies.units import GBIT_PER_S

MAX_HOSTS = 100_000
MAX_BUILDINGS = 200  # of a mesh: 10.BUILDING.0.0/16
MAX_TREE_BUILDINGS = MAX_PORTS - 1  # a port of the core each, and one for the room
ROOM = "room"

RTX3090 = GpuModel("rtx3090", 24e9, 8.6)
RTX4090 = GpuModel("rtx4090", 24e9, 8.9)
A100 = GpuModel("a100", 80e9, 8.0)  # the paper does not state 40 or 80 GB: 80 holds its 48 GB state-dicts
A6000 = GpuModel("a6000", 48e9, 8.6)


@dataclass(frozen=True, slots=True)
class GpuShare:
    """A share of the volunteers (`weight` over the sum of weights) that have `gpus` GPUs of this model each."""

    model: GpuModel
    gpus: int
    weight: float


PAPER_MIX = (GpuShare(RTX3090, 1, 20), GpuShare(RTX4090, 1, 15), GpuShare(A100, 4, 8), GpuShare(A6000, 2, 10))


def three_tier(
    hosts: int,
    buildings: int = 4,
    on_demand: int = 0,
    *,
    hosts_per_access: int = 24,
    access_bytes_per_s: float = GBIT_PER_S,
    uplink_bytes_per_s: float | Sequence[float] = 10.0 * GBIT_PER_S,
    core_bytes_per_s: float = 10.0 * GBIT_PER_S,
    mix: Sequence[GpuShare] = PAPER_MIX,
    on_demand_slots: int = 8,
    on_demand_model: GpuModel = A100,
    reserve: ResearchReserve | None = None,
    name: str = "campus",
) -> Campus:
    """Return a campus of `hosts` volunteers (h1, h2, ...) spread evenly over b1 ... bB, one coordinator, `on_demand` hosts.

    Every building has one distribution switch (d1 ...) and as many access switches (a1 ...) as `hosts_per_access`
    asks for. Rates in bytes/s on the wire: host to access switch, access to distribution (one number, or one for each
    building), distribution to core. GPUs are dealt in the proportions of `mix`, evenly over the buildings. The
    coordinator (coord) and the on-demand hosts (od1 ..., `on_demand_slots` jobs at once each) stand in `room`, a
    switch on the core. Their links have the core's rate. Addresses: 10.BUILDING.x.y, the room is building 0.
    SpecError names the argument that is wrong and states what is allowed.
    """
    _whole("hosts", hosts, 1, MAX_HOSTS)
    _whole("buildings", buildings, 1, min(MAX_TREE_BUILDINGS, hosts))
    _whole("on_demand", on_demand, 0, MAX_PORTS - 2)
    _whole("hosts_per_access", hosts_per_access, 1, MAX_PORTS - 1)
    uplinks = uplink_bytes_per_s
    if isinstance(uplinks, int | float):
        uplinks = [uplinks] * buildings
    if len(uplinks) != buildings:
        allowed = f"one rate, or one for each of the {buildings} buildings"
        raise SpecError("uplink_bytes_per_s", list(uplinks), allowed)
    dealt = _deal(mix, hosts)
    plan = Plan(name)
    plan.switch("core", Tier.CORE)
    numbers = itertools.count(1)
    for i in range(buildings):
        share = dealt[hosts * i // buildings : hosts * (i + 1) // buildings]
        plan.building(f"b{i + 1}")
        above = plan.switch(f"d{i + 1}", Tier.DISTRIBUTION, ["core"], core_bytes_per_s)
        for first in range(0, len(share), hosts_per_access):
            access = plan.switch(f"a{next(numbers)}", Tier.ACCESS, [above], uplinks[i])
            plan.hang(access, share[first : first + hosts_per_access], access_bytes_per_s)
    plan.building(ROOM, 0)
    plan.switch(ROOM, Tier.DISTRIBUTION, ["core"], core_bytes_per_s)
    plan.coordinator(ROOM, core_bytes_per_s)
    rented = [(on_demand_model, on_demand_slots)] * on_demand
    plan.hang(ROOM, rented, core_bytes_per_s, Role.ON_DEMAND)
    models = dict.fromkeys(chain((s.model for s in mix), [on_demand_model] if on_demand else []))
    return plan.campus(tuple(models), reserve=reserve)


def leaf_spine(
    leaves: int = 4,
    spines: int = 2,
    hosts_per_leaf: int = 4,
    *,
    access_bytes_per_s: float = GBIT_PER_S,
    uplink_bytes_per_s: float = 2.5 * GBIT_PER_S,
    mix: Sequence[GpuShare] = PAPER_MIX,
) -> Campus:
    """Return a leaf-spine campus: every leaf (l1 ..., one a building) has an uplink to every spine (s1 ...).

    There are as many shortest paths as spines. Volunteers h1, h2, ... hang on the leaves, the coordinator on the
    first spine. Needs the Open vSwitch fabric. SpecError names the argument that is wrong and states what is allowed.
    """
    _whole("leaves", leaves, 2, MAX_BUILDINGS)
    _whole("spines", spines, 2, 64)
    _whole("hosts_per_leaf", hosts_per_leaf, 1, MAX_PORTS - spines)
    plan, dealt = Plan("leafspine"), iter(_deal(mix, leaves * hosts_per_leaf))
    names = [plan.switch(f"s{n}", Tier.CORE) for n in range(1, spines + 1)]
    for leaf in range(1, leaves + 1):
        plan.building(f"b{leaf}")
        plan.switch(f"l{leaf}", Tier.ACCESS, names, uplink_bytes_per_s)
        plan.hang(f"l{leaf}", islice(dealt, hosts_per_leaf), access_bytes_per_s)
    return plan.mesh(mix, "s1", uplink_bytes_per_s)


def fat_tree(k: int = 4, *, rate_bytes_per_s: float = GBIT_PER_S, mix: Sequence[GpuShare] = PAPER_MIX) -> Campus:
    """Return a fat tree of k-port switches (Al-Fares et al., SIGCOMM 2008): k pods, k^3/4 volunteers, all cables alike.

    Core switches c1 ... c(k/2)^2; pod p (a building) has aggregation switches p1a1 ... and edge switches p1e1 ..., k/2 of
    each. The coordinator hangs on the first core switch. Needs the Open vSwitch fabric. SpecError: k is odd or not from 4 to 16.
    """
    if isinstance(k, bool) or not isinstance(k, int) or not 4 <= k <= 16 or k % 2:
        raise SpecError("k", k, "an even number from 4 to 16")
    half = k // 2
    plan, dealt = Plan(f"fattree{k}"), iter(_deal(mix, half * half * k))
    cores = [plan.switch(f"c{n}", Tier.CORE) for n in range(1, half * half + 1)]
    for pod in range(1, k + 1):
        plan.building(f"p{pod}")
        above = []
        for a in range(half):
            its = cores[a * half : (a + 1) * half]
            above.append(plan.switch(f"p{pod}a{a + 1}", Tier.DISTRIBUTION, its, rate_bytes_per_s))
        for e in range(1, half + 1):
            edge = plan.switch(f"p{pod}e{e}", Tier.ACCESS, above, rate_bytes_per_s)
            plan.hang(edge, islice(dealt, half), rate_bytes_per_s)
    return plan.mesh(mix, "c1", rate_bytes_per_s)


class Plan:
    """A campus under construction. Switches and hosts stand in the building that was added last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.buildings: list[Building] = []
        self.hosts: list[Host] = []
        self.switches: list[Switch] = []
        self.links: list[Link] = []
        self._addresses: Iterator[ipaddress.IPv4Address] = iter(())
        self._numbers = {role: itertools.count(1) for role in Role}

    def building(self, name: str, number: int | None = None) -> None:
        """Add a building; `number`: of its addresses."""
        self.buildings.append(Building(name))
        self._addresses = building_addresses(len(self.buildings) if number is None else number)

    def switch(self, name: str, tier: Tier, above: Iterable[str] = (), rate: float = 0.0) -> str:
        """Add a switch with a cable to each of those above it; return its name."""
        building = self.buildings[-1].name if self.buildings else None
        self.switches.append(Switch(name, tier, building))
        self.links += [Link(name, each, rate) for each in above]
        return name

    def hang(self, switch: str, gpus: Iterable[tuple[GpuModel, int]], rate: float, role: Role = Role.VOLUNTEER) -> None:
        """Add a host for each (model, GPUs) to a switch."""
        prefix, building = ("h" if role is Role.VOLUNTEER else "od"), self.buildings[-1].name
        for model, count in gpus:
            name = f"{prefix}{next(self._numbers[role])}"
            self._host(Host(name, building, role, next(self._addresses), model.name, count), switch, rate)

    def coordinator(self, switch: str, rate: float) -> None:
        """Add the coordinator, which has the first address of all."""
        next(self._addresses)
        address = ipaddress.IPv4Address("10.0.0.1")
        self._host(Host("coord", ROOM, Role.COORDINATOR, address), switch, rate)

    def campus(
        self, models: tuple[GpuModel, ...], fabric: Fabric = Fabric.BRIDGE, reserve: ResearchReserve | None = None
    ) -> Campus:
        """Return the campus, validated."""
        parts = (tuple(self.buildings), tuple(self.hosts), tuple(self.switches), tuple(self.links))
        return Campus(self.name, *parts, models, reserve or ResearchReserve(), fabric)

    def mesh(self, mix: Sequence[GpuShare], coordinator_on: str, rate: float) -> Campus:
        """Return a campus of several paths, its coordinator in a room of its own on that switch."""
        self.building(ROOM)
        self.coordinator(coordinator_on, rate)
        return self.campus(tuple(dict.fromkeys(share.model for share in mix)), Fabric.OPENVSWITCH)

    def _host(self, host: Host, switch: str, rate: float) -> None:
        self.hosts.append(host)
        self.links.append(Link(host.name, switch, rate))


def _deal(mix: Sequence[GpuShare], hosts: int) -> list[tuple[GpuModel, int]]:
    """Return (model, GPUs) for each host: always the share that is furthest behind its due, so any stretch is mixed."""
    if not mix or not all(0.0 < share.weight < float("inf") for share in mix):
        raise SpecError("mix", [s.weight for s in mix], "at least one GpuShare, every weight finite and above 0")
    total = sum(share.weight for share in mix)
    dealt = [0] * len(mix)
    result = []
    for n in range(1, hosts + 1):
        behind = [share.weight * n / total - had for share, had in zip(mix, dealt, strict=True)]
        chosen = behind.index(max(behind))
        dealt[chosen] += 1
        result.append((mix[chosen].model, mix[chosen].gpus))
    return result


def _whole(key: str, value: object, low: int, high: int) -> None:
    if allowed := whole(low, high).wrong(value):
        raise SpecError(key, value, allowed)
