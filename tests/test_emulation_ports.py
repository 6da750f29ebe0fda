"""The switch's side of a live campus against a root user of a host, who sends what frames they like past their own limits."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

import pytest
from mininet.log import setLogLevel
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from testbed.emulation.campus import LiveCampus
from testbed.emulation.kernel import linux
from testbed.emulation.kernel.build import in_thread
from testbed.emulation.kernel.programs import OWN_SLACK, PORT_BURST_BYTES
from testbed.errors import SetupError
from tests.emulation_campuses import kernel, small_campus
from topologies.units import MBIT_PER_S

pytestmark = kernel

SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
CS1, AF41 = 8 << 2, 34 << 2
ATTACKER, VICTIM, COORDINATOR = "10.0.1.1", "10.0.1.2", "10.0.0.1"
ETHER = Ether(src="02:00:0a:00:01:01", dst="02:00:0a:00:01:02")
RATE_BYTES_PER_S = 100 * MBIT_PER_S
DEADLINE_S = 20.0  # for a counter that moves within microseconds on a quiet machine


def socket_in(net: LiveCampus, host: str, *kind: int) -> socket.socket:
    """A socket of a host's namespace, which it stays in whatever thread uses it."""

    def made() -> socket.socket:
        linux.enter_network_of(net.kernel.holder_pids[host])
        return socket.socket(*kind)

    return in_thread(made)


def raw_socket(net: LiveCampus, host: str, *, bypass: bool) -> socket.socket:
    """Sends whole frames from a host; `bypass` goes around its shaper and its egress program."""
    raw = socket_in(net, host, socket.AF_PACKET, socket.SOCK_RAW, 0)
    if bypass:
        raw.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    raw.bind((f"{host}-eth0", 0))
    return raw


@pytest.fixture(scope="module")
def campus() -> Iterator[LiveCampus]:
    setLogLevel("error")
    with LiveCampus(small_campus(2, rate_bytes_per_s=RATE_BYTES_PER_S)) as net:
        yield net


def test_raw_sender_past_its_own_limits_keeps_to_the_migration_share(campus: LiveCampus) -> None:
    """A flood in class AF41 around shaper and program; research within its reserve loses no packet beside it."""
    shape = campus.plan.host_cables["h1"].a.shape
    migration = bytes(ETHER / IP(src=ATTACKER, dst=VICTIM, tos=AF41) / UDP(dport=6000) / Raw(bytes(1458)))
    research = bytes(ETHER / IP(src=ATTACKER, dst=VICTIM) / UDP(dport=6001) / Raw(bytes(1458)))
    before = campus.port_counters("h1")
    research_packets = 0
    with raw_socket(campus, "h1", bypass=True) as attacker:
        began_s = time.monotonic()
        for _ in range(2000):
            for _ in range(10):
                attacker.send(migration)
            if (research_packets + 1) * len(research) < shape.research_bytes_per_s * (
                time.monotonic() - began_s
            ):
                attacker.send(research)
                research_packets += 1
        lasted_s = time.monotonic() - began_s
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        now = campus.port_counters("h1")
        arrived = (
            now.link.packets + now.link.dropped_packets - before.link.packets - before.link.dropped_packets
        )
        if arrived >= 20_000 + research_packets or time.monotonic() > deadline_s:
            break
        time.sleep(0.002)
    took_s = time.monotonic() - began_s
    passed = now.own.bytes - before.own.bytes
    assert passed <= PORT_BURST_BYTES + OWN_SLACK * shape.migration_bytes_per_s * took_s + len(migration)
    assert now.own.dropped_packets > before.own.dropped_packets, (
        f"20000 packets in {lasted_s} s were no flood"
    )
    assert research_packets > 0
    dropped_research = (now.link.dropped_packets - before.link.dropped_packets) - (
        now.own.dropped_packets - before.own.dropped_packets
    )
    assert dropped_research == 0


@pytest.mark.stock_kernel
def test_port_of_no_host_is_refused(campus: LiveCampus) -> None:
    with pytest.raises(SetupError, match="h99"):
        campus.port_counters("h99")


@pytest.mark.stock_kernel
def test_ipv6_of_a_campus_that_has_it_passes_the_ports_also_after_a_cut() -> None:
    with LiveCampus(small_campus(2), ipv6=True) as net:
        for up in (True, False, True):
            net.set_link("h1", net.plan.host_cables["h1"].a.node, up=up)
            answered = "1 received" in net["h1"].cmd("ping -6 -c1 -W2 fd72:636c:6d00::a00:102")
            assert answered == up
        assert net.port_counters("h1").forged.dropped_packets == 0


def class_packets(net: LiveCampus, node: str, interface: str) -> dict[str, int]:
    """Packets that took the research (1:2), the testbed's own (1:3) and the checkpoints' (1:4) queue of an interface."""
    shown = net[node].cmd(f"tc -s class show dev {interface}")
    found = re.findall(r"class htb 1:([234]) .*?Sent \d+ bytes (\d+) pkt", shown, re.DOTALL)
    return {{"2": "research", "3": "own", "4": "checkpoints"}[number]: int(count) for number, count in found}


def ip(tos: int = 0) -> Packet:
    return IP(src=ATTACKER, dst=VICTIM, tos=tos) / UDP(dport=6000)


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
        ETHER / ARP(op="is-at", hwsrc=ETHER.src, psrc=ATTACKER, pdst=VICTIM),
    ],
    "checkpoints": [
        ETHER / ip(tos=CS1),
        ETHER / Dot1Q(vlan=5) / ip(tos=CS1),
        ETHER / IPv6(src="fe80::1", dst="fe80::2", tc=CS1) / UDP(),
        ETHER / Dot1Q(vlan=5) / IPv6(src="fe80::1", dst="fe80::2", tc=CS1) / UDP(),
    ],
}


@pytest.mark.stock_kernel
@pytest.mark.parametrize("borrows", [False, True])
def test_only_the_testbeds_own_code_points_leave_the_research_queue(borrows: bool) -> None:
    """At the host's end and at the switch's: what was not IPv4 with code point 0 was served as migration."""
    with (
        LiveCampus(small_campus(2), enforcement=False, ipv6=True, borrows=borrows) as net,
        raw_socket(net, "h1", bypass=False) as sender,
    ):
        victim_port = net.plan.host_cables["h2"].a
        for kind, frames in QUEUES.items():
            queue = "own" if kind == "checkpoints" and not borrows else kind
            for frame in frames:
                for node, interface in (("h1", "h1-eth0"), (victim_port.node, victim_port.name)):
                    before = class_packets(net, node, interface)
                    sender.send(bytes(frame))
                    deadline_s = time.monotonic() + DEADLINE_S
                    while class_packets(net, node, interface)[queue] == before[queue]:
                        assert time.monotonic() < deadline_s, f"{frame!r} was not {queue} at {interface}"
