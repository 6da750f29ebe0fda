"""What will be built, as data: names, interface numbers, addresses and shapes of every object, from the description alone.

Interface numbers are chosen here, not by the kernel: each namespace is fresh, so every later request (address, queue,
filter) can be encoded before the interface exists, and nothing needs to be looked up.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from bpf.layout import FIRST_PORT
from testbed.emulation.description.shaping import Shape
from topologies.spec import SUBNET, Campus, Host, Link

HOST_IFINDEX = 100  # above the tunnel devices that some kernels put into every new namespace
FIRST_BRIDGE_IFINDEX = 1000
FIRST_PORT_IFINDEX = FIRST_PORT  # hosts' ports come first, in the order of the hosts: port.bpf.c counts on it
# a unique local prefix (RFC 4193); the host part is the IPv4 address
IPV6_PREFIX = ipaddress.IPv6Network("fd72:636c:6d00::/64")


@dataclass(frozen=True, slots=True)
class CableEnd:
    """One end of a cable: an interface of a node."""

    node: str
    name: str
    port: int
    ifindex: int
    mac: bytes
    shape: Shape

    @property
    def mac_text(self) -> str:
        """02:00:0a:00:00:01, as Mininet writes it."""
        return self.mac.hex(":")


@dataclass(frozen=True, slots=True)
class Cable:
    """A link with its two ends; `a` is always on a switch, `b` on a host or a switch."""

    link: Link
    a: CableEnd
    b: CableEnd


@dataclass(frozen=True, slots=True)
class Bridge:
    """A switch of the campus as a kernel bridge."""

    name: str
    ifindex: int
    mac: bytes


@dataclass(frozen=True)
class CampusPlan:
    """Every object of a campus. `host_cables` are in the order of the description's hosts."""

    spec: Campus
    bridges: dict[str, Bridge]
    host_cables: dict[str, Cable]
    trunks: tuple[Cable, ...]

    @property
    def cables(self) -> tuple[Cable, ...]:
        """Host cables, then trunks."""
        return (*self.host_cables.values(), *self.trunks)

    @cached_property
    def fabric_ends(self) -> dict[int, CableEnd]:
        """Every end that is a bridge's port, by interface number."""
        ends = [c.a for c in self.cables] + [t.b for t in self.trunks]
        return {end.ifindex: end for end in ends}

    @property
    def needs_netem(self) -> list[Link]:
        """Links that have delay or loss."""
        return [cable.link for cable in self.cables if cable.a.shape.needs_netem]


def host_mac(address: ipaddress.IPv4Address) -> bytes:
    """A locally administered MAC made of the address: the same host has the same MAC in every run."""
    return b"\x02\x00" + address.packed


def ipv6_address(address: ipaddress.IPv4Address) -> ipaddress.IPv6Address:
    """The host's address inside `IPV6_PREFIX`, used when a campus is built with ipv6=True."""
    return IPV6_PREFIX[int(address)]


def prefix_length() -> int:
    """Length of the one subnet that all hosts share."""
    return SUBNET.prefixlen


def plan(spec: Campus, *, ipv6: bool = False) -> CampusPlan:
    """The objects of a campus; pure, so that equal descriptions give equal plans. `ipv6`: links carry it too."""
    bridges = {
        switch.name: Bridge(switch.name, FIRST_BRIDGE_IFINDEX + i, b"\x02\x02" + i.to_bytes(4))
        for i, switch in enumerate(spec.switches)
    }
    wiring = _Wiring(spec, ipv6)
    host_links = {host.name: spec.access_link(host.name) for host in spec.hosts}
    host_cables = {
        name: wiring.host_cable(link, spec.host_by_name[name]) for name, link in host_links.items()
    }
    trunks = tuple(wiring.trunk(link) for link in spec.links if {link.a, link.b} <= bridges.keys())
    return CampusPlan(spec, bridges, host_cables, trunks)


class _Wiring:
    """Hands out port numbers (each switch from 1) and interface numbers (the fabric's from 10000)."""

    def __init__(self, spec: Campus, ipv6: bool) -> None:
        self._spec, self._ipv6 = spec, ipv6
        self._used_ports: Counter[str] = Counter()
        self._next_ifindex = FIRST_PORT_IFINDEX

    def host_cable(self, link: Link, host: Host) -> Cable:
        switch = link.a if link.b == host.name else link.b
        end = CableEnd(
            host.name, f"{host.name}-eth0", 0, HOST_IFINDEX, host_mac(host.address), self._shape(link)
        )
        return Cable(link, self._port(switch, link), end)

    def trunk(self, link: Link) -> Cable:
        return Cable(link, self._port(link.a, link), self._port(link.b, link))

    def _port(self, switch: str, link: Link) -> CableEnd:
        self._used_ports[switch] += 1
        port = self._used_ports[switch]
        ifindex = self._next_ifindex
        self._next_ifindex += 1
        return CableEnd(
            switch, f"{switch}-eth{port}", port, ifindex, b"\x02\x01" + ifindex.to_bytes(4), self._shape(link)
        )

    def _shape(self, link: Link) -> Shape:
        rate = link.rate_bytes_per_s
        reserve = round(self._spec.research_reserve.reserve_bytes_per_s(rate))
        return Shape(round(rate), link.delay_s, link.loss, reserve, self._ipv6)
