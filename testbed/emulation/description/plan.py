"""Plan of what will be built: names, interface numbers, addresses and shapes of every object, from the description alone.

Interface numbers are chosen here, not by the kernel: each namespace is fresh, so every later request (address, queue,
filter) can be encoded before the interface exists, and nothing needs to be looked up.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from bpf.layout import FIRST_PORT
from testbed.emulation.description.shaping import LinkShape, super_packet_bytes
from topologies.errors import SpecError
from topologies.spec import MAX_PORTS, Campus, Fabric, Host, Link

HOST_IFINDEX = 100  # above the tunnel devices that some kernels put into every new namespace
FIRST_BRIDGE_IFINDEX = 1000
# above the ends that keep their number in the delay line's namespace
INNER_IFINDEX = 1 << 20
FIRST_PORT_IFINDEX = FIRST_PORT  # hosts' ports come first, in the order of the hosts: port.bpf.c counts on it
# OpenFlow number of the port to a switch's own hosts, above those of cables; 100 Gbit/s: more than the machine moves
EDGE_PORT, EDGE_BYTES_PER_S = MAX_PORTS + 1, 12_500_000_000


@dataclass(frozen=True, slots=True)
class CableEnd:
    """An end of a cable: an interface of a node."""

    node: str
    name: str  # NODE-ethPORT
    port: int  # of the node: 0 of a host, from 1 of a switch
    ifindex: int  # in the node's namespace
    mac: bytes
    shape: LinkShape  # of what leaves through it
    is_up: bool = True

    @property
    def mac_text(self) -> str:
        """The address as Mininet writes it: 02:00:0a:00:00:01."""
        return self.mac.hex(":")


@dataclass(frozen=True, slots=True)
class Cable:
    """A link with its two ends; `a` is always on a switch, `b` on a host or a switch."""

    link: Link
    a: CableEnd
    b: CableEnd

    @property
    def name(self) -> str:
        """Name of the cable, such as s1-eth2-h3-eth0."""
        return f"{self.a.name}-{self.b.name}"

    @property
    def is_cut(self) -> bool:
        """True if the delay line lies between its ends."""
        return self.a.shape.by_line

    def through_line(self) -> Cable:
        """Return the same cable, cut: delay, jitter and loss are the delay line's."""
        a, b = (replace(end, shape=replace(end.shape, by_line=True)) for end in (self.a, self.b))
        return replace(self, a=a, b=b)

    @property
    def inner_end(self) -> CableEnd:
        """The end of a cut cable in the delay line's namespace that faces `a`.

        Facing `b` is the end that `a` was.
        """
        ifindex = self.a.ifindex + INNER_IFINDEX
        return CableEnd(self.b.node, self.b.name, self.b.port, ifindex, b"\x02\x03" + ifindex.to_bytes(4), self.a.shape)


@dataclass(frozen=True, slots=True)
class Bridge:
    """A kernel bridge: a whole switch, or the part of an OpenFlow switch on which its hosts hang."""

    name: str
    ifindex: int
    mac: bytes


@dataclass(frozen=True, slots=True)
class Tunnel:
    """An end of a trunk whose other end is on another machine: frames reach it in UDP packets between the two (VXLAN)."""

    end: CableEnd
    number: int  # of the trunk, at both ends
    here: ipaddress.IPv4Address
    there: ipaddress.IPv4Address


@dataclass(frozen=True)
class CampusPlan:
    """Every object of a campus, or of the part of it that one machine carries."""

    spec: Campus
    bridges: dict[str, Bridge]  # by switch
    host_cables: dict[str, Cable]  # in the order of the description's hosts
    trunks: tuple[Cable, ...]
    # OpenFlow switches by name, each with the cable to the bridge of its hosts (end a there), if it has hosts
    openflow: dict[str, Cable | None] = field(default_factory=dict)
    tunnels: tuple[Tunnel, ...] = ()

    @cached_property
    def guarded(self) -> frozenset[str]:
        """The hosts on which a live campus puts its programs: those without an agent of their own."""
        return frozenset(self.host_cables) - self.spec.own_agents

    @property
    def cables(self) -> tuple[Cable, ...]:
        """Host cables, then trunks."""
        return (*self.host_cables.values(), *self.trunks)

    @cached_property
    def fabric_ends(self) -> dict[int, CableEnd]:
        """Every end that is a switch's port, by interface number."""
        ends = [c.a for c in self.cables] + [t.b for t in self.trunks] + [t.end for t in self.tunnels]
        return {end.ifindex: end for end in ends}

    @cached_property
    def host_ports(self) -> set[int]:
        """Interface numbers of the ports that hosts hang on."""
        return {cable.a.ifindex for cable in self.host_cables.values()}

    @cached_property
    def masters(self) -> dict[int, int]:
        """Interface number of the kernel bridge of each end that is a port of one."""
        return {
            i: self.bridges[end.node].ifindex
            for i, end in self.fabric_ends.items()
            if end.node not in self.openflow or i in self.host_ports
        }

    def cable_between(self, a: str, b: str) -> Cable:
        """Return the cable that joins two nodes, whichever is named first; SpecError if there is none."""
        for cable in self.cables:
            if {cable.a.node, cable.b.node} == {a, b}:
                return cable
        nodes = {node.name for node in self.spec.nodes}
        unknown = [node for node in (a, b) if node not in nodes]
        if unknown:
            raise SpecError("link", unknown[0], "the name of a host or a switch")
        if b in self.spec.neighbours[a]:
            raise SpecError("link", f"{a}-{b}", "a link both of whose ends are on this machine")
        raise SpecError("link", f"{a}-{b}", f"a link of {a}: to {', '.join(sorted(self.spec.neighbours[a]))}")

    def shape_at(self, end: CableEnd, rate_bytes_per_s: float) -> LinkShape:
        """Return the shape of an end whose link has another rate: the reserve follows by the campus's rule."""
        return replace(
            end.shape,
            rate_bytes_per_s=round(rate_bytes_per_s),
            reserve_bytes_per_s=round(self.spec.research_reserve.reserve_bytes_per_s(rate_bytes_per_s)),
        )

    def part(self, machine: str) -> CampusPlan:
        """Return the part that one machine carries, of a plan of the whole. SpecError: there is no such machine."""
        addresses = {each.name: ipaddress.IPv4Address(each.address) for each in self.spec.machines}
        if machine not in addresses:
            allowed = f"one of {sorted(addresses)}" if addresses else "nothing: the campus names no [machines]"
            raise SpecError("machine", machine, allowed)
        place = self.spec.machine_of
        trunks, tunnels = [], []
        for trunk in self.trunks:
            match [end for end in (trunk.a, trunk.b) if place[end.node] == machine]:
                case [_, _]:
                    trunks.append(trunk)
                case [end]:
                    far = trunk.b if end is trunk.a else trunk.a
                    tunnel = Tunnel(end, trunk.a.ifindex, addresses[machine], addresses[place[far.node]])
                    tunnels.append(tunnel)
        return replace(
            self,
            bridges={switch: made for switch, made in self.bridges.items() if place[switch] == machine},
            host_cables={host: cable for host, cable in self.host_cables.items() if place[host] == machine},
            trunks=tuple(trunks),
            tunnels=tuple(tunnels),
        )

    def with_cable(self, changed: Cable) -> CampusPlan:
        """Return the same campus, but for this cable."""
        host_cables = {
            name: changed if cable.a.ifindex == changed.a.ifindex else cable for name, cable in self.host_cables.items()
        }
        trunks = tuple(changed if t.a.ifindex == changed.a.ifindex else t for t in self.trunks)
        return replace(self, host_cables=host_cables, trunks=trunks)


def host_mac(address: ipaddress.IPv4Address) -> bytes:
    """Return a locally administered MAC made of the address: the same host has the same MAC in every run."""
    return b"\x02\x00" + address.packed


def plan(spec: Campus, *, one_queue: bool = False, borrows: bool = True) -> CampusPlan:
    """Return the objects of a campus; pure, so that equal descriptions give equal plans.

    `one_queue` (of every interface) and `borrows` as of `LinkShape`.

    With an Open vSwitch fabric a switch with two trunks or more is an OpenFlow switch. Its hosts, if it has any, hang on a
    kernel bridge beside it: the program of a host's port runs in tc, and the userspace datapath would take frames before tc.
    """
    trunk_links = [link for link in spec.links if {link.a, link.b} <= spec.switch_by_name.keys()]
    trunk_count = Counter(end for link in trunk_links for end in (link.a, link.b))
    programmed = [s.name for s in spec.switches if spec.fabric is Fabric.OPENVSWITCH and trunk_count[s.name] > 1]
    host_links = {host.name: spec.access_link(host.name) for host in spec.hosts}
    with_hosts = {end for link in host_links.values() for end in (link.a, link.b)}
    bridges = {
        switch.name: Bridge(
            f"{switch.name}-edge" if switch.name in programmed else switch.name,
            FIRST_BRIDGE_IFINDEX + i,
            b"\x02\x02" + i.to_bytes(4),
        )
        for i, switch in enumerate(spec.switches)
        if switch.name not in programmed or switch.name in with_hosts
    }
    wiring = _Wiring(spec, one_queue, borrows)
    host_cables = {name: wiring.host_cable(link, spec.host_by_name[name]) for name, link in host_links.items()}
    trunks = tuple(wiring.trunk(link) for link in trunk_links)
    openflow = {name: wiring.edge(name) if name in with_hosts else None for name in programmed}
    return CampusPlan(spec, bridges, host_cables, trunks, openflow)


class _Wiring:
    """Counter of port numbers (each switch from 1) and interface numbers (the fabric's from 10000)."""

    def __init__(self, spec: Campus, one_queue: bool, borrows: bool) -> None:
        self._spec, self._one_queue, self._borrows = spec, one_queue, borrows
        self._used_ports: Counter[str] = Counter()
        self._next_ifindex = FIRST_PORT_IFINDEX
        self._super_packet_bytes = super_packet_bytes(min((link.rate_bytes_per_s for link in spec.links), default=inf))

    def host_cable(self, link: Link, host: Host) -> Cable:
        switch = link.a if link.b == host.name else link.b
        end = CableEnd(host.name, f"{host.name}-eth0", 0, HOST_IFINDEX, host_mac(host.address), self._shape(link))
        return Cable(link, self._port(switch, link), end)

    def trunk(self, link: Link) -> Cable:
        return Cable(link, self._port(link.a, link), self._port(link.b, link))

    def edge(self, switch: str) -> Cable:
        """Return the cable inside an OpenFlow switch: from the bridge of its hosts (end a) to its programmed part. Not shaped."""
        shape = LinkShape(EDGE_BYTES_PER_S)
        ends = [self._end(switch, f"{switch}-{side}", EDGE_PORT, shape) for side in ("hosts", "flow")]
        return Cable(Link(f"{switch}-edge", switch, EDGE_BYTES_PER_S), *ends)

    def _port(self, switch: str, link: Link) -> CableEnd:
        self._used_ports[switch] += 1
        port = self._used_ports[switch]
        return self._end(switch, f"{switch}-eth{port}", port, self._shape(link))

    def _end(self, switch: str, name: str, port: int, shape: LinkShape) -> CableEnd:
        ifindex = self._next_ifindex
        self._next_ifindex += 1
        return CableEnd(switch, name, port, ifindex, b"\x02\x01" + ifindex.to_bytes(4), shape)

    def _shape(self, link: Link) -> LinkShape:
        rate = link.rate_bytes_per_s
        reserve = round(self._spec.research_reserve.reserve_bytes_per_s(rate))
        return LinkShape(
            round(rate),
            link.delay_s,
            link.loss,
            reserve,
            link.jitter_s,
            by_line=link.delay_s > 0.0 or link.loss > 0.0,
            one_queue=self._one_queue,
            borrows=self._borrows,
            super_packet_bytes=self._super_packet_bytes,
        )
