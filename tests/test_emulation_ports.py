"""The queues of a live campus: what each frame is taken for."""

from __future__ import annotations

import re
import time

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from testbed.emulation.campus import LiveCampus
from tests.emulation_campuses import kernel, raw_socket, small_campus

pytestmark = [*kernel, pytest.mark.stock_kernel]

CS1 = 8 << 2
SENDER, TARGET = "10.0.1.1", "10.0.1.2"
ETHER = Ether(src="02:00:0a:00:01:01", dst="02:00:0a:00:01:02")
DEADLINE_S = 20.0  # for a counter that moves within microseconds on a quiet machine


def class_packets(net: LiveCampus, node: str, interface: str) -> dict[str, int]:
    """Packets that took the research (1:2), the testbed's own (1:3) and the checkpoints' (1:4) queue of an interface."""
    shown = net[node].cmd(f"tc -s class show dev {interface}")
    found = re.findall(r"class htb 1:([234]) .*?Sent \d+ bytes (\d+) pkt", shown, re.DOTALL)
    return {{"2": "research", "3": "own", "4": "checkpoints"}[number]: int(count) for number, count in found}


def ip(tos: int = 0) -> Packet:
    return IP(src=SENDER, dst=TARGET, tos=tos) / UDP(dport=6000)


QUEUES = {
    "research": [
        ETHER / ip(),
        ETHER / ip(tos=16 << 2),
        ETHER / Dot1Q(vlan=5) / ip(),
        ETHER / IPv6(src="fe80::1", dst="fe80::2") / UDP(),
        ETHER / Dot1Q(vlan=5) / IPv6(src="fe80::1", dst="fe80::2") / UDP(),
        Ether(src=ETHER.src, dst=ETHER.dst, type=0x88B5) / Raw(bytes(50)),
    ],
    "own": [
        ETHER / ip(tos=34 << 2 | 1),
        ETHER / ip(tos=46 << 2),
        ETHER / ARP(op="is-at", hwsrc=ETHER.src, psrc=SENDER, pdst=TARGET),
    ],
    "checkpoints": [ETHER / ip(tos=CS1), ETHER / Dot1Q(vlan=5) / ip(tos=CS1)],
}


@pytest.mark.parametrize("borrows", [False, True])
def test_only_the_testbeds_own_code_points_leave_the_research_queue(borrows: bool) -> None:
    """At the host's end and at the switch's: what was not IPv4 with code point 0 was served as migration."""
    with (
        LiveCampus(small_campus(2), enforcement=False, borrows=borrows) as net,
        raw_socket(net, "h1", bypass=False) as sender,
    ):
        port = net.plan.host_cables["h2"].a
        for kind, frames in QUEUES.items():
            queue = "own" if kind == "checkpoints" and not borrows else kind
            for frame in frames:
                for node, interface in (("h1", "h1-eth0"), (port.node, port.name)):
                    before = class_packets(net, node, interface)
                    sender.send(bytes(frame))
                    deadline_s = time.monotonic() + DEADLINE_S
                    while class_packets(net, node, interface)[queue] == before[queue]:
                        assert time.monotonic() < deadline_s, f"{frame!r} was not {queue} at {interface}"
