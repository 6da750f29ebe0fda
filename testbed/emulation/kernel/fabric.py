"""The switches of a campus: kernel bridges, all inside one namespace.

`BridgeFabric` makes switches and the switch ends of all cables in the namespace of the thread that calls it, and reads them
back; `openvswitch` adds switches that can be programmed. Nothing is created in the root namespace, so nothing can clash there
or be left there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from testbed.emulation.description import link_requests, shaping
from testbed.emulation.description.plan import Bridge, Cable, CableEnd, CampusPlan
from testbed.emulation.kernel import attachment, readback
from testbed.emulation.netlink import NetlinkRequest, NetlinkSocket
from testbed.emulation.safety.ledger import Ledger

Timed = Callable[[str], contextlib.AbstractContextManager[None]]


class BridgeFabric:
    """Kernel bridges: 7-11 Gbit/s through a tree on one machine, no control plane."""

    def start(self, plan: CampusPlan, fabric_pid: int, ledger: Ledger) -> None:
        """Start what must run before switches are made, in the namespace of `fabric_pid`; the calling thread stays alive."""

    def close(self) -> None:
        """End what `start` started; safe to repeat."""

    def prepare(self) -> None:
        """Disable netfilter for bridged frames (each would pass through iptables) and the bridges' own IPv6."""
        disable_ipv6()
        for table in ("arp", "ip", "ip6"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"/proc/sys/net/bridge/bridge-nf-call-{table}tables").write_text("0")

    def build(
        self, socket: NetlinkSocket, plan: CampusPlan, pids: Mapping[str, int], line_pid: int | None, timed: Timed
    ) -> None:
        """Make bridges, host cables, trunks, and the queues of all ports; then bring these up. `line_pid`: of the delay line."""
        made = [link_requests.bridge(bridge) for bridge in plan.bridges.values()]
        made += [_cable(c, plan.bridges[c.a.node], pids[c.b.node], line_pid) for c in plan.host_cables.values()]
        for trunk in plan.trunks:
            a, b = (None if end.node in plan.openflow else plan.bridges[end.node] for end in (trunk.a, trunk.b))
            made.append(_cable(trunk, a, None, line_pid))
            if b:
                made.append(link_requests.enslave(trunk.b, b))
        made += [link_requests.enslave(each.end, plan.bridges[each.end.node]) for each in plan.tunnels]
        with timed("veth"):
            socket.send(made)
        with timed("htb"):
            ends = plan.fabric_ends.values()
            socket.send([r for end in ends for r in shaping.requests(end.ifindex, end.shape, end.name)])
            ports = [cable.a for cable in plan.host_cables.values()]
            socket.send([attachment.clsact(end.ifindex, end.name) for end in ports])
        with timed("address_and_up"):
            socket.send([link_requests.up(end.ifindex, end.name) for end in ends])

    def build_switches(self, socket: NetlinkSocket, plan: CampusPlan, timed: Timed) -> None:
        """Make the switches that take ports which stand already: none."""

    @contextlib.contextmanager
    def without_ports(self, plan: CampusPlan, ends: Sequence[CableEnd]) -> Iterator[None]:
        """Let go of ends that are replaced while the block runs; nothing for a kernel bridge, which an end joins by itself."""
        yield

    def masters(self, plan: CampusPlan) -> Mapping[int, int]:
        """Return the number of the interface to which each end of a switch belongs. Ends that belong to none are left out."""
        return plan.masters

    def read_back(self, socket: NetlinkSocket, plan: CampusPlan) -> None:
        """Check that bridges exist and are up, and that ports have the right master and shape."""
        readback.check_ends(socket, plan.fabric_ends, self.masters(plan))


def _cable(cable: Cable, master: Bridge | None, peer_pid: int | None, line_pid: int | None) -> NetlinkRequest:
    """Return a cable. Of a cut one, return the half that is here, its inner end in the namespace of the delay line."""
    if not cable.is_cut:
        return link_requests.cable(cable, master, peer_pid)
    assert line_pid is not None
    return link_requests.cable(replace(cable, b=cable.inner_end), master, line_pid)


def disable_ipv6() -> None:
    """Disable IPv6 on present and future interfaces of this namespace: 500 hosts would do duplicate detection at once.

    The kernel copies "all" to "default" by itself; it is written once a host, so without Python's file objects.
    """
    with contextlib.suppress(FileNotFoundError):
        fd = os.open("/proc/sys/net/ipv6/conf/all/disable_ipv6", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"1")
        finally:
            os.close(fd)
