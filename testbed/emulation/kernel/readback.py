"""Asking the kernel what it made: links, masters, addresses and shaping, compared with the plan.

What was asked is not what is believed: stock Mininet logs a refused shaper and goes on unshaped. Any difference here is a
`KernelMismatch`, and the campus does not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.emulation.description import link_requests, shaping
from testbed.emulation.description.plan import CableEnd
from testbed.emulation.netlink import NetlinkSocket, attributes
from testbed.errors import KernelMismatch


@dataclass(frozen=True, slots=True)
class LinkState:
    """An interface as the kernel reports it."""

    name: str
    mac: bytes
    is_up: bool
    master: int
    super_packet_bytes: int


def link_states(socket: NetlinkSocket) -> dict[int, LinkState]:
    """Return every interface of the socket's namespace, by number."""
    found = {}
    for body in socket.dump(
        link_requests.RTM_GETLINK, link_requests.LINK_MESSAGE.pack(0, 0, 0, 0, 0, 0), "list of interfaces"
    ):
        _, _, _, ifindex, flags, _ = link_requests.LINK_MESSAGE.unpack_from(body)
        values = attributes(body[link_requests.LINK_MESSAGE.size :])
        name = values[link_requests.IFLA_IFNAME].rstrip(b"\0").decode()
        master, most = (
            int.from_bytes(values.get(of, b""), "little")
            for of in (link_requests.IFLA_MASTER, link_requests.IFLA_GSO_MAX_SIZE)
        )
        found[ifindex] = LinkState(
            name, values.get(link_requests.IFLA_ADDRESS, b""), bool(flags & link_requests.IFF_UP), master, most
        )
    return found


def check_ends(socket: NetlinkSocket, ends: Mapping[int, CableEnd], masters: Mapping[int, int]) -> None:
    """Compare names, MACs, up, masters and shaping of the ends with what the kernel reports.

    `masters` is the bridge's interface number of each end that has one. KernelMismatch names the first difference.
    """
    states = link_states(socket)
    depths = shaping.queue_depths(socket.dump(shaping.RTM_GETQDISC, shaping.tc_dump(), "list of queues"))
    for ifindex, end in ends.items():
        wanted = LinkState(end.name, end.mac, end.is_up, masters.get(ifindex, 0), end.shape.super_packet_bytes)
        if states.get(ifindex) != wanted:
            raise KernelMismatch(f"interface {end.name}", wanted, states.get(ifindex))
        classes = socket.dump(shaping.RTM_GETTCLASS, shaping.tc_dump(ifindex), f"classes of {end.name}")
        expected = shaping.expected(end.shape)
        found = shaping.Found(shaping.class_rates(classes), depths.get(ifindex, {}))
        if found != expected:
            raise KernelMismatch(f"shaping of {end.name}", expected, found)


def check_address(socket: NetlinkSocket, end: CableEnd, address: bytes, prefix: int) -> None:
    """Compare the interface's IPv4 addresses with the one it was given."""
    found = set()
    body = link_requests.ADDRESS_MESSAGE.pack(link_requests.AF_INET, 0, 0, 0, 0)
    for answer in socket.dump(link_requests.RTM_GETADDR, body, "list of addresses"):
        _, length, _, _, ifindex = link_requests.ADDRESS_MESSAGE.unpack_from(answer)
        if ifindex == end.ifindex:
            found.add(
                (attributes(answer[link_requests.ADDRESS_MESSAGE.size :]).get(link_requests.IFA_LOCAL, b""), length)
            )
    if found != {(address, prefix)}:
        raise KernelMismatch(f"address of {end.name}", (address.hex(), prefix), sorted(found))
