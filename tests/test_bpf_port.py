"""BPF programs on real interfaces: attached, pinned, read back; and which frames a switch's port takes from its host."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, UDP, IPOption_NOP, fragment
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

from bpf.errors import BpfError
from bpf.layout import FIRST_PORT, BucketMode, BucketStruct, ClassId, MeterStruct, Mode, PortStruct
from bpf.maps import FlowKey, HostMaps
from bpf.objects import HostPrograms, ensure_bpffs, load_host_programs
from bpf.ports import Limit, PortProgram, PortRule, load_port_program
from testbed.emulation.kernel import attachment
from testbed.emulation.kernel.attachment import EGRESS, INGRESS
from testbed.emulation.netlink import NetlinkRefused, NetlinkSocket
from tests.bpf_machine import (
    DROP,
    ETHER,
    HERE,
    KEY,
    PASS,
    THERE,
    SkBuff,
    in_own_namespace,
    ip6,
    loaded_or_skip,
    run,
    tcp4,
    udp4,
)

pytestmark = [pytest.mark.kernel, pytest.mark.stock_kernel]


def ip(*lines: str) -> None:
    for line in lines:
        subprocess.run(["ip", *line.split()], check=True, capture_output=True)


def attach(ifindex: int, programs: HostPrograms) -> None:
    with NetlinkSocket() as netlink:
        fds = programs.egress_fd, programs.ingress_fd
        netlink.send(attachment.host_requests(ifindex, *fds, f"interface {ifindex}"))


def attached(interface: str) -> list[int]:
    with NetlinkSocket() as netlink:
        found = [
            attachment.attached(netlink, socket.if_nametoindex(interface), hook, interface)
            for hook in (EGRESS, INGRESS)
        ]
    return [number for programs in found for number, _ in programs]


def test_attached_programs_are_read_back_by_their_numbers(host):
    def body() -> None:
        ip("link add va type veth peer name vb")
        assert attached("va") == []
        attach(socket.if_nametoindex("va"), host)
        assert attached("va") == [attachment.program_id(fd) for fd in (host.egress_fd, host.ingress_fd)]
        assert attached("vb") == []
        with pytest.raises(NetlinkRefused, match="File exists"):
            attach(socket.if_nametoindex("va"), host)

    in_own_namespace(body)


def test_kill_switch_closes_a_real_connection_path_and_opens_it_again(host):
    def body() -> None:
        ip("link set lo up")
        attach(socket.if_nametoindex("lo"), host)
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            live = socket.create_connection(address, timeout=5)
            served, _ = server.accept()
            host.switch.set(Mode.DRAIN)
            with pytest.raises(TimeoutError):
                socket.create_connection(address, timeout=0.3)
            live.sendall(b"alive")
            assert served.recv(5) == b"alive"
            host.switch.set(Mode.ISOLATE)
            host.switch.allow_coordinator(IPv4Address("127.0.0.1"))
            socket.create_connection(address, timeout=5).close()
            host.switch.set(Mode.OFF)
            socket.create_connection(address, timeout=5).close()

    in_own_namespace(body)


def test_tag_that_is_kept_beside_the_packet_hides_neither_flow_nor_syn(host):
    """On veth a VLAN device leaves its tag in the skb's metadata: the bytes are untagged."""

    def body() -> None:
        ip("link add va type veth peer name vb", "link set va up", "link set vb up")
        try:
            ip("link add link va name va.5 type vlan id 5")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this kernel makes no 802.1Q devices: {error.stderr.decode().strip()}")
        ip("addr add 10.5.0.1/24 dev va.5", "link set va.5 up")
        ip("neigh add 10.5.0.2 lladdr 02:00:00:00:00:09 dev va.5 nud permanent")
        attach(socket.if_nametoindex("va"), host)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("10.5.0.1", 4000))
            key = FlowKey(IPv4Address("10.5.0.1"), 4000, IPv4Address("10.5.0.2"), 4001, 17)
            host.flows.insert(key, traffic_class=ClassId.EMERGENCY, mode=BucketMode.ACCOUNT)
            sender.sendto(b"x" * 50, ("10.5.0.2", 4001))
            assert host.flows.lookup(key).traffic.packets == 1

    in_own_namespace(body)


def test_super_packets_of_a_real_flow_are_charged_what_goes_over_the_wire(host):
    """The receiver's interface counts the segments that the sender's super-packets became."""

    def body() -> None:
        ip("link set lo up")
        subprocess.run(["ip", "link", "set", "lo", "mtu", "1500"], check=True)
        attach(socket.if_nametoindex("lo"), host)
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = socket.create_connection(server.getsockname())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # takes all at once: it is not read yet
            client.settimeout(20)
            served, _ = server.accept()
            served.settimeout(20)
            source, destination = client.getsockname(), server.getsockname()
            key = FlowKey(IPv4Address(source[0]), source[1], IPv4Address(destination[0]), destination[1])
            host.flows.insert(key, traffic_class=ClassId.PLANNED, mode=BucketMode.ACCOUNT)
            client.sendall(bytes(100_000))
            received = 0
            while received < 100_000:
                received += len(served.recv(1 << 16))
            traffic = host.flows.lookup(key).traffic
            segments = -(-100_000 // 1448)
            assert traffic.bytes >= 100_000 + segments * 66
            assert traffic.bytes <= 100_000 + (segments + traffic.packets) * 66 + 1514
            assert traffic.packets < segments

    in_own_namespace(body)


@pytest.fixture
def pin_dir(tmp_path):
    loaded_or_skip().close()
    path = ensure_bpffs() / f"reclaim-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def test_switch_is_set_through_its_pin_after_the_loader_is_gone(pin_dir: Path, host):
    """A child loads, attaches and dies; the owner's process sets the switch and finds the flows."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            programs = load_host_programs(pin_dir)
            programs.flows.insert(KEY, traffic_class=ClassId.PLANNED, mode=BucketMode.ACCOUNT)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    maps = HostMaps.open_pinned(pin_dir)
    try:
        maps.switch.set(Mode.DRAIN)
        again = HostMaps.open_pinned(pin_dir)
        assert again.switch.mode is Mode.DRAIN
        assert [key for key, _ in again.flows.items()] == [KEY]
        assert again.flows.delete(KEY).traffic_class is ClassId.PLANNED
        again.close()
    finally:
        maps.close()


def test_pins_of_an_earlier_run_are_refused_until_they_are_taken_away(pin_dir: Path):
    load_host_programs(pin_dir).close()
    with pytest.raises(BpfError, match="File exists"):
        load_host_programs(pin_dir)
    shutil.rmtree(pin_dir)
    load_host_programs(pin_dir).close()


OTHER_MAC, OTHER = "02:00:00:00:00:09", "10.0.0.9"
OWN_MAC = ETHER.src
AMPLE = Limit(1 << 40, 1 << 30)
CS1, AF41, EF = 8 << 2, 34 << 2, 46 << 2


@pytest.fixture(scope="module")
def port() -> Iterator[PortProgram]:
    loaded_or_skip().close()
    program = load_port_program(2)
    yield program
    program.close()


def rule(own: Limit | None = AMPLE, link: Limit = AMPLE) -> PortRule:
    return PortRule(bytes.fromhex(OWN_MAC.replace(":", "")), HERE, link, own)


def at_port(body: Callable[[], None]) -> None:
    """Runs `body` where the interface with the first port's number exists."""

    def with_interface() -> None:
        ip(f"link add port0 index {FIRST_PORT} type veth peer name host0")
        body()

    in_own_namespace(with_interface)


def verdict(port: PortProgram, frame: Packet | bytes) -> int:
    return run(port.fd, bytes(frame), ctx=SkBuff(ifindex=FIRST_PORT)).verdict


def arp(**fields: object) -> Packet:
    said = {"hwsrc": OWN_MAC, "psrc": str(HERE), "pdst": str(THERE)} | fields
    return ETHER / ARP(**said)


GENUINE = {
    "tcp": tcp4(),
    "udp": udp4(),
    "ping": ETHER / IP(src=str(HERE), dst=str(THERE)) / ICMP(),
    "first fragment": fragment(udp4(payload=2000), fragsize=1000)[0],
    "later fragment": fragment(udp4(payload=2000), fragsize=1000)[1],
    "tagged": Ether(src=OWN_MAC, dst=ETHER.dst) / Dot1Q(vlan=5) / tcp4()[IP],
    "twice tagged": Ether(src=OWN_MAC, dst=ETHER.dst) / Dot1AD(vlan=5) / Dot1Q(vlan=6) / tcp4()[IP],
    "arp request": arp(op="who-has"),
    "arp reply": arp(op="is-at"),
    "gratuitous arp": arp(op="is-at", pdst=str(HERE)),
    "another EtherType": Ether(src=OWN_MAC, dst=ETHER.dst, type=0x88B5) / Raw(bytes(50)),
}
FORGED = {
    "another MAC": Ether(src=OTHER_MAC, dst=ETHER.dst) / tcp4()[IP],
    "another MAC and EtherType": Ether(src=OTHER_MAC, dst=ETHER.dst, type=0x88B5) / Raw(bytes(50)),
    "another source": ETHER / IP(src=OTHER, dst=str(THERE)) / UDP() / Raw(b"x"),
    "another source, ping": ETHER / IP(src=OTHER, dst=str(THERE)) / ICMP(),
    "no source": ETHER / IP(src="0.0.0.0", dst=str(THERE)) / UDP(),
    "another source, later fragment": ETHER / IP(src=OTHER, dst=str(THERE), frag=100) / Raw(bytes(40)),
    "another source behind a tag": Ether(src=OWN_MAC, dst=ETHER.dst) / Dot1Q(vlan=5) / IP(src=OTHER) / UDP(),
    "another source behind two tags": Ether(src=OWN_MAC, dst=ETHER.dst)
    / Dot1AD(vlan=5)
    / Dot1Q(vlan=6)
    / IP(src=OTHER)
    / UDP(),
    "three tags": Ether(src=OWN_MAC, dst=ETHER.dst) / Dot1Q(vlan=5) / Dot1Q(vlan=6) / Dot1Q(vlan=7) / tcp4()[IP],
    "IPv4 cut short": bytes(ETHER / Dot1Q(vlan=5) / tcp4()[IP])[:30],  # untagged, the harness refuses it
    "IPv4 of version 5": ETHER / IP(version=5, src=str(HERE), dst=str(THERE)) / UDP(),
    "ARP of another address": arp(op="who-has", psrc=OTHER),
    "ARP reply for another address": arp(op="is-at", psrc=OTHER),
    "gratuitous ARP for another address": arp(op="is-at", psrc=OTHER, pdst=OTHER),
    "ARP of another MAC": arp(op="is-at", hwsrc=OTHER_MAC),
    "ARP probe": arp(op="who-has", psrc="0.0.0.0"),
    "ARP behind a tag": Ether(src=OWN_MAC, dst=ETHER.dst) / Dot1Q(vlan=5) / arp(psrc=OTHER)[ARP],
    "ARP cut short": bytes(arp())[:30],
    "ARP with long hardware addresses": bytes(arp()).replace(b"\x08\x00\x06\x04", b"\x08\x00\x07\x04"),
    "IPv6": ip6() / UDP(),
    "IPv6 behind a tag": ETHER / Dot1Q(vlan=5) / (ip6() / UDP()).payload,
}


def test_own_addresses_pass_and_all_others_are_dropped(port: PortProgram) -> None:
    def body() -> None:
        for own in (None, AMPLE):
            port.table.set(0, rule(own))
            assert port.table.limits(0) == (AMPLE, own)
        wrong = [n for n, frame in GENUINE.items() if verdict(port, frame) != PASS]
        wrong += [n for n, frame in FORGED.items() if verdict(port, frame) != DROP]
        assert wrong == []
        assert port.table.counters(0).forged.dropped_packets == len(FORGED)
        assert port.table.counters(0).link.packets == len(GENUINE)

    at_port(body)


OWN = {
    "CS1": tcp4(tos=CS1),
    "AF41, ECN": tcp4(tos=AF41 | 1),
    "EF": tcp4(tos=EF),
    "CS1 behind a tag": ETHER / Dot1Q(vlan=5) / tcp4(tos=CS1)[IP],
    "CS1 behind two tags": ETHER / Dot1AD(vlan=5) / Dot1Q(vlan=6) / tcp4(tos=CS1)[IP],
    "ARP": arp(),
    "what looks like CS1": Ether(src=OWN_MAC, type=0x88B5) / Raw(b"\x45\x20" + bytes(40)),
}
RESEARCH = {
    "unmarked": tcp4(),
    "CS2": tcp4(tos=16 << 2),
    "AF42": tcp4(tos=36 << 2),
    "behind a tag": ETHER / Dot1Q(vlan=5) / tcp4()[IP],
    "another EtherType": Ether(src=OWN_MAC, type=0x88B5) / Raw(bytes(50)),
}


def test_own_classes_are_told_apart_as_the_queues_do(port: PortProgram) -> None:
    def body() -> None:
        for is_own, frames in ((1, OWN), (0, RESEARCH)):
            for name, frame in frames.items():
                port.table.set(0, rule())
                assert verdict(port, frame) == PASS
                counted = port.table.counters(0)
                assert (counted.own.packets, counted.link.packets) == (is_own, 1), name

    at_port(body)


def sent(port: PortProgram, frame: Packet, count: int) -> tuple[int, int, int]:
    """How many of the own classes passed and were dropped, and how many frames the link took in all."""
    for _ in range(count):
        verdict(port, frame)
    counted = port.table.counters(0)
    return counted.own.packets, counted.own.dropped_packets, counted.link.packets


def test_what_is_beyond_its_bucket_is_dropped_and_what_has_room_goes_on(port: PortProgram) -> None:
    """Ten of these frames of 1500 bytes fill a bucket: the own classes', theirs without checkpoints, and the link's."""
    research, checkpoint, move = (tcp4(payload=1446, tos=tos) for tos in (0, CS1, AF41))

    def body() -> None:
        port.table.set(0, rule(Limit(1, 14_000)))
        assert sent(port, checkpoint, 30) == (10, 20, 10)
        assert sent(port, tcp4(), 30) == (10, 20, 40)
        port.table.set(0, replace(rule(Limit(1, 14_000)), checkpoints_apart=True))
        assert sent(port, checkpoint, 30)[2] == 30
        assert sent(port, move, 30) == (10, 20, 40)
        port.table.set(0, rule(AMPLE, Limit(1, 14_000)))
        assert sent(port, research, 30)[2] == 10
        assert sent(port, checkpoint, 5)[:2] == (0, 5)
        port.table.set(0, rule(Limit(1, 14_000), Limit(1, 29_000)))
        assert sent(port, checkpoint, 30) == (10, 20, 10)  # what was refused costs the link nothing
        assert sent(port, research, 30)[2] == 20
        for frame, headers_bytes in ((tcp4(payload=1_000), 66), (udp4(payload=1_000), 42)):
            port.table.set(0, rule())
            run(port.fd, bytes(frame), ctx=SkBuff(ifindex=FIRST_PORT, gso_size=100))
            assert port.table.counters(0).link.bytes == len(frame) + 10 * headers_bytes, "of a super-packet's segments"

    at_port(body)


@pytest.mark.parametrize("held", ["link", "own"])
def test_debt_of_a_super_packet_in_segments_of_one_byte_is_paid_in_full(port: PortProgram, held: str) -> None:
    # headers are what is charged
    frame = IP(src=str(HERE), dst=str(THERE), tos=CS1, options=[IPOption_NOP()] * 40) / UDP() / Raw(bytes(1400))
    last_ns = getattr(PortStruct, held).offset + MeterStruct.bucket.offset + BucketStruct.last_ns.offset

    def body() -> None:
        limit = Limit(3_000, 1)
        port.table.set(0, rule(*((limit, AMPLE) if held == "own" else (AMPLE, limit))))
        run(port.fd, bytes(ETHER / frame), ctx=SkBuff(ifindex=FIRST_PORT, gso_size=1))
        owed_s = getattr(port.table.counters(0), held).bytes / limit.rate_bytes_per_s
        assert owed_s > 30.0
        port.table.u64[last_ns // 8] -= int((owed_s - 10.0) * 1e9)
        assert verdict(port, ETHER / frame) == DROP
        port.table.u64[last_ns // 8] -= int(10.0 * 1e9)
        assert verdict(port, ETHER / frame) == PASS

    at_port(body)
