"""Campuses that need no file: paper A's deployment, and three-tier trees of any size.

Both follow paper A, section IV-A: hosts hang on access switches, access switches on the distribution switch of their
building, distribution switches on one core. The coordinator and the on-demand hosts are no volunteers: they stand with
the core, because their links must not be the ones that the experiment is about, and because a path from any host to
them then crosses exactly one building. In `campus54` the coordinator hangs on the core switch itself (the paper knows
four buildings and no more); in `three_tier` it shares a server room, a building of its own called `room`, with the
on-demand hosts, so that "same building" never holds between a volunteer and rented capacity.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
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
A100 = GpuModel("a100", 80e9, 8.0)  # the paper does not say 40 or 80 GB: 80 holds its 48 GB state-dicts
A6000 = GpuModel("a6000", 48e9, 8.6)


@dataclass(frozen=True, slots=True)
class GpuShare:
    """A share of the volunteers (`weight` over the sum of weights) that have `gpus` GPUs of this model each."""

    model: GpuModel
    gpus: int
    weight: float


PAPER_MIX = (
    GpuShare(RTX3090, 1, 20),
    GpuShare(RTX4090, 1, 15),
    GpuShare(A100, 4, 8),
    GpuShare(A6000, 2, 10),
)

# How the 53 GPU nodes stand in the four buildings is not in the paper. Here: shared machines in the computing centre,
# consumer cards in the departments, and uplinks from 10 Gbit/s (new) to 1 Gbit/s (old), the paper's "1-10 Gbps".
_CAMPUS54 = (
    ("centre", 10.0, ((A100, 4, 8), (A6000, 2, 4))),
    ("cs", 10.0, ((RTX3090, 1, 8), (RTX4090, 1, 6))),
    ("ee", 2.5, ((RTX3090, 1, 7), (RTX4090, 1, 5), (A6000, 2, 2))),
    ("physics", 1.0, ((RTX3090, 1, 5), (RTX4090, 1, 4), (A6000, 2, 4))),
)
# two access switches a building: some same-building paths cross the distribution switch
_CAMPUS54_PER_SWITCH = 7


def campus54() -> Campus:
    """The deployment of paper A, section IV-A: 53 GPU nodes (87 GPUs) in four buildings, and one coordinator.

    20 RTX 3090, 15 RTX 4090, 8 A100 nodes of 4 GPUs, 10 A6000 nodes of 2; 1 Gbit/s access, 1 to 10 Gbit/s
    distribution, 10 Gbit/s core; at least 30 % of every link for research (beta_p3 = 0.3).
    """
    tree = _Tree("campus54", core_rate=10.0 * GBIT_PER_S)
    for name, uplink_gbit_per_s, groups in _CAMPUS54:
        gpus = [(model, gpus) for model, gpus, count in groups for _ in range(count)]
        tree.add_building(name, gpus, _CAMPUS54_PER_SWITCH, GBIT_PER_S, uplink_gbit_per_s * GBIT_PER_S)
    address = ipaddress.IPv4Address("10.0.0.1")
    tree.hosts.append(Host("coord", "centre", Role.COORDINATOR, address))
    tree.links.append(Link("coord", "core", 10.0 * GBIT_PER_S))
    return tree.campus((RTX3090, RTX4090, A100, A6000), ResearchReserve(beta=0.3))


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
    """A campus of `hosts` volunteers (h1, h2, ...) spread evenly over b1 ... bB, one coordinator, `on_demand` hosts.

    Every building has one distribution switch (d1 ...) and as many access switches (a1 ...) as `hosts_per_access`
    asks for. Rates in bytes/s on the wire: host to access switch, access to distribution (one number, or one for each
    building), distribution to core. GPUs are dealt in the proportions of `mix`, evenly over the buildings.
    The coordinator (coord) and the on-demand hosts (od1 ..., `on_demand_slots` jobs at once each) stand in `room`, a
    switch on the core, with links at the core's rate. Addresses: 10.BUILDING.x.y, the room is building 0.
    SpecError says which argument is wrong and what is allowed.
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
    tree = _Tree(name, core_bytes_per_s)
    for i in range(buildings):
        share = [dealt[n] for n in range(hosts * i // buildings, hosts * (i + 1) // buildings)]
        tree.add_building(f"b{i + 1}", share, hosts_per_access, access_bytes_per_s, uplinks[i])
    tree.add_room(on_demand, on_demand_slots, on_demand_model)
    models = dict.fromkeys(chain((s.model for s in mix), [on_demand_model] if on_demand else []))
    return tree.campus(tuple(models), reserve or ResearchReserve())


def leaf_spine(
    leaves: int = 4,
    spines: int = 2,
    hosts_per_leaf: int = 4,
    *,
    access_bytes_per_s: float = GBIT_PER_S,
    uplink_bytes_per_s: float = 2.5 * GBIT_PER_S,
    mix: Sequence[GpuShare] = PAPER_MIX,
) -> Campus:
    """Every leaf (l1 ..., one a building) has an uplink to every spine (s1 ...): as many shortest paths as spines.

    Volunteers h1, h2, ... hang on the leaves, the coordinator on the first spine. Needs the Open vSwitch fabric. SpecError says
    which argument is wrong and what is allowed.
    """
    _whole("leaves", leaves, 2, MAX_BUILDINGS)
    _whole("spines", spines, 2, 64)
    _whole("hosts_per_leaf", hosts_per_leaf, 1, MAX_PORTS - spines)
    mesh = _Mesh("leafspine", mix, leaves * hosts_per_leaf)
    mesh.switches += [Switch(f"s{n}", Tier.CORE) for n in range(1, spines + 1)]
    for leaf in range(1, leaves + 1):
        building = mesh.add_building(f"b{leaf}")
        mesh.switches.append(Switch(f"l{leaf}", Tier.ACCESS, building))
        mesh.links += [Link(f"l{leaf}", f"s{n}", uplink_bytes_per_s) for n in range(1, spines + 1)]
        mesh.hang(f"l{leaf}", building, hosts_per_leaf, access_bytes_per_s)
    return mesh.campus("s1", uplink_bytes_per_s)


def fat_tree(
    k: int = 4, *, rate_bytes_per_s: float = GBIT_PER_S, mix: Sequence[GpuShare] = PAPER_MIX
) -> Campus:
    """A fat tree of k-port switches (Al-Fares et al., SIGCOMM 2008): k pods, k^3/4 volunteers, all cables alike.

    Core switches c1 ... c(k/2)^2; pod p (a building) has aggregation switches p1a1 ... and edge switches p1e1 ..., k/2 of
    each. The coordinator hangs on the first core switch. Needs the Open vSwitch fabric. SpecError: k is odd or not from 4 to 16.
    """
    if isinstance(k, bool) or not isinstance(k, int) or not 4 <= k <= 16 or k % 2:
        raise SpecError("k", k, "an even number from 4 to 16")
    half = k // 2
    mesh = _Mesh(f"fattree{k}", mix, half * half * k)
    mesh.switches += [Switch(f"c{n}", Tier.CORE) for n in range(1, half * half + 1)]
    for pod in range(1, k + 1):
        building = mesh.add_building(f"p{pod}")
        for a in range(1, half + 1):
            mesh.switches.append(Switch(f"p{pod}a{a}", Tier.DISTRIBUTION, building))
            cores = range((a - 1) * half + 1, a * half + 1)
            mesh.links += [Link(f"p{pod}a{a}", f"c{n}", rate_bytes_per_s) for n in cores]
        for e in range(1, half + 1):
            edge = f"p{pod}e{e}"
            mesh.switches.append(Switch(edge, Tier.ACCESS, building))
            mesh.links += [Link(edge, f"p{pod}a{a}", rate_bytes_per_s) for a in range(1, half + 1)]
            mesh.hang(edge, building, half, rate_bytes_per_s)
    return mesh.campus("c1", rate_bytes_per_s)


class _Mesh:
    """A campus with several paths, under construction."""

    def __init__(self, name: str, mix: Sequence[GpuShare], hosts: int) -> None:
        self.name = name
        self.buildings: list[Building] = []
        self.switches: list[Switch] = []
        self.hosts: list[Host] = []
        self.links: list[Link] = []
        self._models = tuple(dict.fromkeys(share.model for share in mix))
        self._dealt = iter(_deal(mix, hosts))

    def add_building(self, name: str) -> str:
        """Add a building; its name."""
        self.buildings.append(Building(name))
        self._addresses = building_addresses(len(self.buildings))
        return name

    def hang(self, switch: str, building: str, count: int, rate: float) -> None:
        """The next `count` volunteers, on a switch of the building that was added last."""
        for model, gpus in islice(self._dealt, count):
            name = f"h{len(self.hosts) + 1}"
            self.hosts.append(Host(name, building, Role.VOLUNTEER, next(self._addresses), model.name, gpus))
            self.links.append(Link(name, switch, rate))

    def campus(self, coordinator_on: str, rate: float) -> Campus:
        """What was built, with its coordinator, validated."""
        self.add_building(ROOM)
        self.hosts.append(Host("coord", ROOM, Role.COORDINATOR, ipaddress.IPv4Address("10.0.0.1")))
        self.links.append(Link("coord", coordinator_on, rate))
        parts = (tuple(self.buildings), tuple(self.hosts), tuple(self.switches), tuple(self.links))
        return Campus(self.name, *parts, self._models, fabric=Fabric.OPENVSWITCH)


class _Tree:
    """A campus under construction: buildings are added to one core switch."""

    def __init__(self, name: str, core_rate: float) -> None:
        self.name, self.core_rate = name, core_rate
        self.buildings: list[Building] = []
        self.hosts: list[Host] = []
        self.switches = [Switch("core", Tier.CORE)]
        self.links: list[Link] = []
        self._access = 0

    def add_building(
        self,
        name: str,
        gpus: Sequence[tuple[GpuModel, int]],
        per_access: int,
        access_rate: float,
        uplink_rate: float,
    ) -> None:
        """A distribution switch, its access switches, and one volunteer for each (model, GPUs)."""
        self.buildings.append(Building(name))
        addresses = building_addresses(len(self.buildings))
        distribution = self._switch(
            f"d{len(self.buildings)}", Tier.DISTRIBUTION, name, "core", self.core_rate
        )
        for first in range(0, len(gpus), per_access):
            self._access += 1
            access = self._switch(f"a{self._access}", Tier.ACCESS, name, distribution, uplink_rate)
            for model, count in gpus[first : first + per_access]:
                host = Host(
                    f"h{len(self.hosts) + 1}", name, Role.VOLUNTEER, next(addresses), model.name, count
                )
                self._hang(host, access, access_rate)

    def add_room(self, on_demand: int, slots: int, model: GpuModel) -> None:
        """The server room: coordinator and on-demand hosts, on a switch of their own at the core's rate."""
        self.buildings.append(Building(ROOM))
        switch = self._switch(ROOM, Tier.DISTRIBUTION, ROOM, "core", self.core_rate)
        addresses = building_addresses(0)
        self._hang(Host("coord", ROOM, Role.COORDINATOR, next(addresses)), switch, self.core_rate)
        for n in range(1, on_demand + 1):
            host = Host(f"od{n}", ROOM, Role.ON_DEMAND, next(addresses), model.name, slots)
            self._hang(host, switch, self.core_rate)

    def campus(self, models: tuple[GpuModel, ...], reserve: ResearchReserve) -> Campus:
        """What was built, validated."""
        parts = (tuple(self.buildings), tuple(self.hosts), tuple(self.switches), tuple(self.links))
        return Campus(self.name, *parts, models, reserve)

    def _switch(self, name: str, tier: Tier, building: str, above: str, rate: float) -> str:
        self.switches.append(Switch(name, tier, building))
        self.links.append(Link(name, above, rate))
        return name

    def _hang(self, host: Host, switch: str, rate: float) -> None:
        self.hosts.append(host)
        self.links.append(Link(host.name, switch, rate))


def _deal(mix: Sequence[GpuShare], hosts: int) -> list[tuple[GpuModel, int]]:
    """One (model, GPUs) for each host: always the share that is furthest behind its due, so any stretch is mixed."""
    if not mix or not all(0.0 < share.weight < float("inf") for share in mix):
        raise SpecError(
            "mix", [s.weight for s in mix], "at least one GpuShare, every weight finite and above 0"
        )
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
