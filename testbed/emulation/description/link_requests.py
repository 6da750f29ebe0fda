"""Requests for links and addresses; queues are in `shaping`.

Pyroute2's message classes encode them, except those that each host has: of 500 hosts they would take 0.2 s.
"""

from __future__ import annotations

import ipaddress
import struct
from functools import cache
from typing import Any

from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from testbed.emulation.description.plan import Bridge, Cable, CableEnd, Tunnel
from testbed.emulation.netlink import CREATE, EXCL, REQUEST, NetlinkRequest, attribute, request, text, u32

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_GETADDR = 20, 22
RTM_NEWNEIGH = 28
NUD_PERMANENT = 0x80
IFF_UP = 1
LOOPBACK_IFINDEX = 1
CABLE_GROUP = 7  # any but 0, the group of all other interfaces
LINK_MESSAGE = struct.Struct("=BBHiII")  # ifinfomsg: family, padding, type, index, flags, change
ADDRESS_MESSAGE = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, index
NEIGHBOUR_MESSAGE = struct.Struct("=BxxxiHBB")  # ndmsg: family, index, state, flags, type
AF_INET = 2
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MASTER, IFLA_LINKINFO, IFLA_NET_NS_PID, IFLA_GROUP = 1, 3, 10, 18, 19, 27
IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE = 41, 58
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
IFLA_VXLAN_ID, IFLA_VXLAN_GROUP, IFLA_VXLAN_LOCAL, IFLA_VXLAN_PORT = 1, 2, 4, 15
VXLAN_PORT = 4789  # of IANA's registry
IFA_ADDRESS, IFA_LOCAL, IFA_BROADCAST = 1, 2, 4
NDA_DST, NDA_LLADDR = 1, 2


def bridge(made: Bridge) -> NetlinkRequest:
    """Return a bridge that is up: no spanning tree (the campus is a tree), no forwarding delay, no multicast snooping."""
    data = {"attrs": [("IFLA_BR_STP_STATE", 0), ("IFLA_BR_FORWARD_DELAY", 0), ("IFLA_BR_MCAST_SNOOPING", 0)]}
    body = _link(made.ifindex, IFF_UP, [
        ("IFLA_IFNAME", made.name),
        ("IFLA_ADDRESS", made.mac.hex(":")),
        ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "bridge"), ("IFLA_INFO_DATA", data)]}),
    ])  # fmt: skip
    return NetlinkRequest(_encoded(body, RTM_NEWLINK, CREATE | EXCL), f"bridge {made.name}")


def cable(made: Cable, master: Bridge | None, peer_pid: int | None) -> NetlinkRequest:
    """Return a veth pair of end a in this namespace, and end b in the namespace of `peer_pid` (None: here too).

    End a is a port of `master` (None: of no kernel bridge). Both are down: an interface that is up would wait for the
    kernel's readers at each of its queues.
    """
    peer = _end(made.b) + (b"" if peer_pid is None else u32(IFLA_NET_NS_PID, peer_pid))
    body = _end(made.a) + (u32(IFLA_MASTER, master.ifindex) if master else b"") + u32(IFLA_GROUP, CABLE_GROUP)
    kind = text(IFLA_INFO_KIND, "veth") + attribute(IFLA_INFO_DATA, attribute(VETH_INFO_PEER, peer))
    body += attribute(IFLA_LINKINFO, kind)
    return request(RTM_NEWLINK, CREATE | EXCL, body, f"link {made.a.name} to {made.b.name}")


def tunnel(made: Tunnel, pid: int) -> NetlinkRequest:
    """Return an end of a trunk in the namespace of `pid`, whose frames leave this namespace in UDP packets; it is down."""
    data = u32(IFLA_VXLAN_ID, made.number) + attribute(IFLA_VXLAN_GROUP, made.there.packed)
    data += attribute(IFLA_VXLAN_LOCAL, made.here.packed) + attribute(IFLA_VXLAN_PORT, struct.pack(">H", VXLAN_PORT))
    body = _end(made.end) + u32(IFLA_NET_NS_PID, pid) + u32(IFLA_GROUP, CABLE_GROUP)
    body += attribute(IFLA_LINKINFO, text(IFLA_INFO_KIND, "vxlan") + attribute(IFLA_INFO_DATA, data))
    return request(RTM_NEWLINK, CREATE | EXCL, body, f"VXLAN {made.number} of {made.end.name} to {made.there}")


def _end(end: CableEnd) -> bytes:
    head = LINK_MESSAGE.pack(0, 0, 0, end.ifindex, 0, 0)
    sizes = [u32(what, end.shape.super_packet_bytes) for what in (IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE)]
    return head + text(IFLA_IFNAME, end.name) + attribute(IFLA_ADDRESS, end.mac) + b"".join(sizes)


def remove_cables() -> NetlinkRequest:
    """Remove every cable made by `cable` in this namespace, both ends, in one request; done when it is acknowledged."""
    return NetlinkRequest(_encoded(_link(0, 0, [("IFLA_GROUP", CABLE_GROUP)]), RTM_DELLINK, 0), "removal of all cables")


def enslave(end: CableEnd, master: Bridge) -> NetlinkRequest:
    """Make an existing interface a port of a bridge, and bring it up."""
    body = _link(end.ifindex, IFF_UP, [("IFLA_MASTER", master.ifindex)])
    return NetlinkRequest(_encoded(body, RTM_NEWLINK, 0), f"port {end.name} of {master.name}")


def up(ifindex: int, name: str, is_up: bool = True) -> NetlinkRequest:
    """Bring an interface up, or take it down; its addresses stay (IPv4), its route goes while it is down."""
    return NetlinkRequest(_up(ifindex, is_up), f"{name} {'up' if is_up else 'down'}")


def move(end: CableEnd, pid: int) -> NetlinkRequest:
    """Take an interface with its number and its name to the namespace of `pid`; it is down there, its queues are gone."""
    body = _link(end.ifindex, 0, [("IFLA_NET_NS_PID", pid)])
    return NetlinkRequest(_encoded(body, RTM_NEWLINK, 0), f"move of {end.name}")


def address(ifindex: int, value: ipaddress.IPv4Address, prefix: int, name: str) -> NetlinkRequest:
    """Give an interface an address."""
    broadcast = int(value) | (1 << 32 - prefix) - 1
    body = ADDRESS_MESSAGE.pack(AF_INET, prefix, 0, 0, ifindex)
    body += attribute(IFA_LOCAL, value.packed) + attribute(IFA_ADDRESS, value.packed)
    body += attribute(IFA_BROADCAST, broadcast.to_bytes(4))
    return request(RTM_NEWADDR, CREATE | EXCL, body, f"address {value}/{prefix} of {name}")


def neighbour(ifindex: int, value: ipaddress.IPv4Address, mac: bytes, name: str) -> NetlinkRequest:
    """Return the permanent entry of another's IPv4 and hardware address: the host need not ask the whole campus."""
    body = NEIGHBOUR_MESSAGE.pack(AF_INET, ifindex, NUD_PERMANENT, 0, 0)
    body += attribute(NDA_DST, value.packed) + attribute(NDA_LLADDR, mac)
    return request(RTM_NEWNEIGH, CREATE | EXCL, body, f"neighbour {value} of {name}")


@cache
def _up(ifindex: int, is_up: bool) -> bytes:
    body = _link(ifindex, IFF_UP if is_up else 0, [])
    body["change"] = IFF_UP
    return _encoded(body, RTM_NEWLINK, 0)


def _link(ifindex: int, flags: int, attrs: list[tuple[str, Any]]) -> Any:
    body = ifinfmsg()
    body["index"] = ifindex
    body["flags"] = body["change"] = flags
    body["attrs"] = attrs
    return body


def _encoded(body: Any, kind: int, flags: int) -> bytes:
    body["header"]["type"] = kind
    body["header"]["flags"] = REQUEST | flags
    body.encode()
    return bytes(body.data)
