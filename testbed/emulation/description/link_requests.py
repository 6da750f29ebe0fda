"""Requests for links, addresses and neighbours; queues are in `shaping`."""

from __future__ import annotations

import ipaddress
import struct

from testbed.emulation.description.plan import Bridge, Cable, CableEnd
from testbed.emulation.netlink import CREATE, EXCL, NetlinkRequest, attribute, request, text, u32

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_GETADDR = 20, 22
RTM_NEWNEIGH = 28
LINK_MESSAGE = struct.Struct("=BBHiII")  # ifinfomsg: family, padding, type, index, flags, change
ADDRESS_MESSAGE = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, index
NEIGHBOUR_MESSAGE = struct.Struct("=BxHiHBB")  # ndmsg: family, padding, index, state, flags, type
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MASTER, IFLA_LINKINFO, IFLA_NET_NS_PID, IFLA_GROUP = 1, 3, 10, 18, 19, 27
INFO_KIND, INFO_DATA = 1, 2
VETH_PEER, BRIDGE_FORWARD_DELAY, BRIDGE_SPANNING_TREE, BRIDGE_SNOOPING = 1, 1, 5, 23
IFA_ADDRESS, IFA_LOCAL, IFA_BROADCAST = 1, 2, 4
NEIGHBOUR_ADDRESS, NEIGHBOUR_MAC = 1, 2
AF_INET = 2
NUD_PERMANENT = 0x80
IFF_UP = 1
LOOPBACK_IFINDEX = 1
CABLE_GROUP = 7  # any but 0, the group of all other interfaces


def bridge(made: Bridge) -> NetlinkRequest:
    """Return a bridge that is up: no spanning tree (the campus is a tree), no forwarding delay, no multicast snooping."""
    data = u32(BRIDGE_SPANNING_TREE, 0) + u32(BRIDGE_FORWARD_DELAY, 0) + attribute(BRIDGE_SNOOPING, b"\0")
    attributes = _named(made.name, made.mac) + _info("bridge", data)
    return request(
        RTM_NEWLINK, CREATE | EXCL, _link(made.ifindex, attributes, up=True), f"bridge {made.name}"
    )


def cable(made: Cable, master: Bridge | None, peer_pid: int | None) -> NetlinkRequest:
    """Return a veth pair of end a in this namespace, up, and end b in the namespace of `peer_pid` (None: here too).

    End a is a port of `master` (None: of no kernel bridge).
    """
    there = b"" if peer_pid is None else u32(IFLA_NET_NS_PID, peer_pid)
    peer = _link(made.b.ifindex, _named(made.b.name, made.b.mac) + there)
    attributes = _named(made.a.name, made.a.mac) + (u32(IFLA_MASTER, master.ifindex) if master else b"")
    attributes += u32(IFLA_GROUP, CABLE_GROUP) + _info("veth", attribute(VETH_PEER, peer))
    body = _link(made.a.ifindex, attributes, up=True)
    return request(RTM_NEWLINK, CREATE | EXCL, body, f"link {made.a.name} to {made.b.name}")


def remove_cables() -> NetlinkRequest:
    """Remove every cable made by `cable` in this namespace, both ends, in one request; done when it is acknowledged."""
    return request(RTM_DELLINK, 0, _link(0, u32(IFLA_GROUP, CABLE_GROUP)), "removal of all cables")


def enslave(end: CableEnd, master: Bridge) -> NetlinkRequest:
    """Make an existing interface a port of a bridge, and bring it up."""
    body = _link(end.ifindex, u32(IFLA_MASTER, master.ifindex), up=True)
    return request(RTM_NEWLINK, 0, body, f"port {end.name} of {master.name}")


def set_up(ifindex: int, name: str, is_up: bool = True) -> NetlinkRequest:
    """Bring an interface up, or take it down; its addresses stay (IPv4), its route goes while it is down."""
    return request(RTM_NEWLINK, 0, _link(ifindex, up=is_up), f"{name} {'up' if is_up else 'down'}")


def move(end: CableEnd, pid: int) -> NetlinkRequest:
    """Take an interface with its number and its name to the namespace of `pid`; it is down there, its queues are gone."""
    return request(RTM_NEWLINK, 0, _link(end.ifindex, u32(IFLA_NET_NS_PID, pid)), f"move of {end.name}")


def address(ifindex: int, value: ipaddress.IPv4Address, prefix: int, name: str) -> NetlinkRequest:
    """Give an interface an address."""
    network = ipaddress.IPv4Network((int(value), prefix), strict=False)
    body = ADDRESS_MESSAGE.pack(AF_INET, prefix, 0, 0, ifindex)
    body += attribute(IFA_LOCAL, value.packed) + attribute(IFA_ADDRESS, value.packed)
    body += attribute(IFA_BROADCAST, network.broadcast_address.packed)
    return request(RTM_NEWADDR, CREATE | EXCL, body, f"address {value}/{prefix} of {name}")


def neighbour(ifindex: int, value: ipaddress.IPv4Address, mac: bytes, name: str) -> NetlinkRequest:
    """Return the permanent entry of another's IPv4 and hardware address: the host need not ask the whole campus."""
    body = NEIGHBOUR_MESSAGE.pack(AF_INET, 0, ifindex, NUD_PERMANENT, 0, 0)
    body += attribute(NEIGHBOUR_ADDRESS, value.packed) + attribute(NEIGHBOUR_MAC, mac)
    return request(RTM_NEWNEIGH, CREATE | EXCL, body, f"neighbour {value} of {name}")


def _link(ifindex: int, attributes: bytes = b"", *, up: bool | None = None) -> bytes:
    """Return the body of a request for a link; `up` None leaves it as it is."""
    change = 0 if up is None else IFF_UP
    return LINK_MESSAGE.pack(0, 0, 0, ifindex, IFF_UP if up else 0, change) + attributes


def _named(name: str, mac: bytes) -> bytes:
    return text(IFLA_IFNAME, name) + attribute(IFLA_ADDRESS, mac)


def _info(kind: str, data: bytes) -> bytes:
    return attribute(IFLA_LINKINFO, text(INFO_KIND, kind) + attribute(INFO_DATA, data))
