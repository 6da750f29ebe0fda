"""Requests for links and addresses, encoded by pyroute2's message classes; queues are in `shaping`."""

from __future__ import annotations

import ipaddress
from functools import cache
from typing import Any

from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg

from testbed.emulation.description.plan import Bridge, Cable, CableEnd
from testbed.emulation.netlink import ACK, CREATE, EXCL, REQUEST, NetlinkRequest

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_GETADDR = 20, 22
RTM_NEWNEIGH = 28
NUD_PERMANENT = 0x80
IFF_UP = 1
LOOPBACK_IFINDEX = 1
CABLE_GROUP = 7  # any but 0, the group of all other interfaces


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
    """Return a veth pair of end a in this namespace, up, and end b in the namespace of `peer_pid` (None: here too).

    End a is a port of `master` (None: of no kernel bridge).
    """
    peer_attributes: list[tuple[str, Any]] = [("IFLA_IFNAME", made.b.name), ("IFLA_ADDRESS", made.b.mac_text)]
    if peer_pid is not None:
        peer_attributes.append(("IFLA_NET_NS_PID", peer_pid))
    peer = {"index": made.b.ifindex, "attrs": peer_attributes}
    data = {"attrs": [("VETH_INFO_PEER", peer)]}
    body = _link(made.a.ifindex, IFF_UP, [
        ("IFLA_IFNAME", made.a.name),
        ("IFLA_ADDRESS", made.a.mac_text),
        *([("IFLA_MASTER", master.ifindex)] if master else []),
        ("IFLA_GROUP", CABLE_GROUP),
        ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", data)]}),
    ])  # fmt: skip
    return NetlinkRequest(_encoded(body, RTM_NEWLINK, CREATE | EXCL), f"link {made.a.name} to {made.b.name}")


def remove_cables() -> NetlinkRequest:
    """Remove every cable made by `cable` in this namespace, both ends, in one request; done when it is acknowledged."""
    return NetlinkRequest(
        _encoded(_link(0, 0, [("IFLA_GROUP", CABLE_GROUP)]), RTM_DELLINK, 0), "removal of all cables"
    )


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
    network = ipaddress.IPv4Network((int(value), prefix), strict=False)
    body = ifaddrmsg()
    body["family"] = 2
    body["prefixlen"] = prefix
    body["index"] = ifindex
    body["attrs"] = [
        ("IFA_LOCAL", str(value)),
        ("IFA_ADDRESS", str(value)),
        ("IFA_BROADCAST", str(network.broadcast_address)),
    ]
    return NetlinkRequest(_encoded(body, RTM_NEWADDR, CREATE | EXCL), f"address {value}/{prefix} of {name}")


def neighbour(ifindex: int, value: ipaddress.IPv4Address, mac: bytes, name: str) -> NetlinkRequest:
    """Return the permanent entry of another's IPv4 and hardware address: the host need not ask the whole campus."""
    body = ndmsg()
    body["family"] = 2
    body["ifindex"] = ifindex
    body["state"] = NUD_PERMANENT
    body["attrs"] = [("NDA_DST", str(value)), ("NDA_LLADDR", mac.hex(":"))]
    return NetlinkRequest(_encoded(body, RTM_NEWNEIGH, CREATE | EXCL), f"neighbour {value} of {name}")


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
    body["header"]["flags"] = REQUEST | ACK | flags
    body.encode()
    return bytes(body.data)
