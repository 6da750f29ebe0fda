"""The kill-switch, in the kernel, on packets made for it: what a draining and an isolated host still hear."""

import itertools
import socket
import time
from contextlib import contextmanager
from ipaddress import IPv4Address

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

from bpf.layout import KillSwitchStruct, Mode
from tests.bpf_machine import DROP, ETHER, PASS, SkBuff, ip6, run, segment, tcp4, udp4

# not `kernel`: programs and maps of each test are its own, and one test alone watches a clock
pytestmark = pytest.mark.stock_kernel

COORDINATOR, NOBODY = IPv4Address("10.9.9.9"), IPv4Address(0)
FLAGS = ["".join(c) for n in range(7) for c in itertools.combinations("FSRPAU", n)]
TAGS = {"plain": [], "VLAN": [Dot1Q(vlan=5)], "QinQ": [Dot1AD(vlan=7), Dot1Q(vlan=5)]}


def verdict(host, packet: Packet | bytes) -> int:
    return run(host.ingress_fd, bytes(packet)).verdict


def tagged(packet: Packet, tags: list[Packet]) -> Packet:
    frame = ETHER.copy()
    for layer in (*tags, packet.payload):
        frame = frame / layer.copy()
    return frame


def from_coordinator(packet: Packet) -> Packet:
    changed = packet.copy()
    changed[IP].src = str(COORDINATOR)
    return changed


@pytest.fixture
def isolated(host):
    host.switch.allow_coordinator(COORDINATOR)
    host.switch.set(Mode.ISOLATE)
    return host


@pytest.fixture
def draining(isolated):
    isolated.switch.set(Mode.DRAIN)
    return isolated


# --- drain ---


@pytest.mark.parametrize("tags", TAGS.values(), ids=TAGS)
def test_drain_drops_syn_without_ack_and_nothing_else_of_tcp(draining, tags):
    for flags in FLAGS:
        expected = DROP if "S" in flags and "A" not in flags else PASS
        for packet in (tcp4(flags), tcp4(flags, options=[IPOption_NOP()] * 8)):
            assert verdict(draining, tagged(packet, tags)) == expected, flags


def fragment(offset_units: int, more: bool, payload: bytes) -> Packet:
    flags = "MF" if more else 0
    return ETHER / IP(src="10.0.0.1", dst="10.0.0.2", proto=6, frag=offset_units, flags=flags) / Raw(payload)


def test_drain_judges_fragments_so_that_no_syn_is_hidden(draining):
    syn, ack = bytes(segment("S")), bytes(segment("A"))
    assert verdict(draining, fragment(0, True, syn)) == DROP
    assert verdict(draining, fragment(0, True, ack)) == PASS
    assert verdict(draining, fragment(0, True, ack[:13])) == DROP  # its flags would come in a later one
    assert verdict(draining, fragment(1, False, ack)) == DROP  # would overwrite the flags: RFC 1858
    assert verdict(draining, fragment(2, True, syn)) == PASS
    assert verdict(draining, fragment(100, False, bytes(8))) == PASS


@pytest.mark.parametrize(
    ("packet", "first", "complete"),
    [
        (tcp4("A"), 34, 54),
        (tagged(tcp4("A", options=[IPOption_NOP()] * 8), TAGS["QinQ"]), 14, 70),
        (tagged(ETHER / IP() / ICMP(), TAGS["VLAN"]), 14, 38),
    ],
    ids=["plain", "QinQ and options", "ICMP"],
)
def test_truncated_header_is_dropped_in_drain_mode(draining, packet, first, complete):
    """First: the kernel refuses test packets that begin untagged with less than an IP header."""
    raw = bytes(packet)
    for cut in range(first, len(raw)):
        assert verdict(draining, raw[:cut]) == (PASS if cut >= complete else DROP), cut


def test_drain_drops_what_it_does_not_know_and_ip_of_a_version_or_header_length_that_cannot_be(draining):
    for first_byte in (0x44, 0x40, 0x4F, 0x55, 0x65):
        raw = bytearray(bytes(tcp4("A", payload=0)))
        raw[14] = first_byte
        assert verdict(draining, bytes(raw)) == DROP
    unknown = [
        ETHER / IP(proto=132) / Raw(bytes(40)),  # SCTP
        ip6() / segment("A"),
        Ether(type=0x88CC) / Raw(bytes(60)),
        ETHER / Dot1Q() / Dot1Q() / Dot1Q() / ARP(),
    ]
    assert [verdict(draining, packet) for packet in unknown] == [DROP] * len(unknown)


def test_drain_hears_udp_for_connected_sockets_only(draining):
    address = "127.0.0.1"
    ours, peer = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    try:
        ours.bind((address, 0))
        peer.bind((address, 0))
        network = IP(src=address, dst=address)
        ports = UDP(sport=peer.getsockname()[1], dport=ours.getsockname()[1])
        packet = bytes(ETHER / network / ports / Raw(bytes(10)))
        ctx = SkBuff(ifindex=1, ingress_ifindex=0)
        assert run(draining.ingress_fd, packet, ctx=ctx).verdict == DROP
        ours.connect(peer.getsockname())
        assert run(draining.ingress_fd, packet, ctx=ctx).verdict == PASS
        other = bytes(ETHER / network / UDP(sport=1, dport=ours.getsockname()[1]))
        assert run(draining.ingress_fd, other, ctx=ctx).verdict == DROP
        assert run(draining.ingress_fd, packet[:-12], ctx=ctx).verdict == DROP  # UDP header cut
    finally:
        ours.close()
        peer.close()


# --- drain: connections it remembers ---


@contextmanager
def connection():
    """A TCP connection over loopback, as segments from its client to its server; and one to the listener from nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            (here, source), (there, port) = client.getsockname(), client.getpeername()
            packet = ETHER / IP(src=here, dst=there) / TCP(sport=source, dport=port, flags="A")
            stranger = ETHER / IP(src=here, dst=there) / TCP(sport=1, dport=port, flags="A")
            yield packet, stranger


def remembered(host) -> list[tuple[int, bytes]]:
    live = KillSwitchStruct.from_buffer_copy(host.switch.u8).live
    return [(slot.peer, bytes(slot.local)) for slot in live if slot.peer]


def live_slots(host):
    return KillSwitchStruct.from_buffer(host.switch._memory).live


def test_draining_host_remembers_what_it_found_established_until_the_switch_is_set(draining):
    with connection() as (packet, stranger):
        assert [verdict(draining, p) for p in (packet, packet, stranger)] == [PASS, PASS, DROP]
        tcp = packet[TCP]
        peer = int.from_bytes(IPv4Address("127.0.0.1").packed, "little") << 32
        peer |= socket.htons(tcp.sport) << 16 | socket.htons(tcp.dport)
        assert remembered(draining) == [(peer, IPv4Address("127.0.0.1").packed)]
        draining.switch.set(Mode.DRAIN)
        assert remembered(draining) == []
        assert [verdict(draining, p) for p in (packet, stranger)] == [PASS, DROP]


def test_handshake_that_began_before_the_switch_is_not_finished(draining):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        # the kernel finishes it with the first data: until then the client is connected and the server is not
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 60)
        client.connect(server.getsockname())
        (here, source), (there, port) = client.getsockname(), client.getpeername()
        packet = ETHER / IP(src=here, dst=there) / TCP(sport=source, dport=port, flags="A")
        assert verdict(draining, packet) == DROP
        assert remembered(draining) == []


def test_remembered_connection_still_may_not_be_opened_again(draining):
    with connection() as (packet, _):
        assert verdict(draining, packet) == PASS
    packet[TCP].flags = "S"
    assert verdict(draining, packet) == DROP


def test_connection_to_another_address_of_the_host_is_not_the_remembered_one(draining):
    with connection() as (packet, stranger):
        assert verdict(draining, packet) == PASS
        for slot in (slots := live_slots(draining)):
            slot.peer = slot.peer & ~0xFFFF0000 | socket.htons(1) << 16 if slot.peer else 0
        (peer,) = {slot.peer for slot in slots if slot.peer}
        for slot in slots:  # in every slot, but for another address
            slot.peer, slot.local[:] = peer, IPv4Address("127.0.0.2").packed
        assert verdict(draining, stranger) == DROP
        for slot in slots:
            slot.local[:] = IPv4Address("127.0.0.1").packed
        assert verdict(draining, stranger) == PASS  # so it was the address that decided
        del slot, slots


def test_full_memory_changes_no_verdict(draining):
    with connection() as (packet, stranger):
        for slot in (slots := live_slots(draining)):
            slot.peer, slot.local[:] = 1, bytes([9, 9, 9, 9])
        assert [verdict(draining, p) for p in (packet, packet, stranger)] == [PASS, PASS, DROP]
        assert {slot.peer for slot in slots} == {1}
        del slot, slots


# --- isolation ---


COORDINATORS = [
    tcp4("S"),
    tcp4("A", options=[IPOption_NOP()] * 8),
    udp4(),
    ETHER / IP() / ICMP(),
    fragment(1, False, bytes(40)),
]


@pytest.mark.parametrize("tags", TAGS.values(), ids=TAGS)
def test_coordinator_is_always_heard(isolated, tags):
    for mode in (Mode.DRAIN, Mode.ISOLATE):
        isolated.switch.set(mode)
        for packet in COORDINATORS:
            assert verdict(isolated, tagged(from_coordinator(packet), tags)) == PASS, packet.summary()


@pytest.mark.parametrize("tags", TAGS.values(), ids=TAGS)
def test_isolated_host_hears_arp_that_the_coordinator_sends(isolated, tags):
    for op in (1, 2):
        by, about = (
            ARP(op=op, psrc=str(COORDINATOR), pdst="10.0.0.2"),
            ARP(op=op, psrc="10.0.0.3", pdst=str(COORDINATOR)),
        )
        assert [verdict(isolated, tagged(ETHER / arp, tags)) for arp in (by, about)] == [PASS, DROP]
    cut = bytes(tagged(ETHER / ARP(psrc=str(COORDINATOR)), tags))[: -(4 + 6 + 1)]
    assert verdict(isolated, cut) == DROP


@pytest.mark.parametrize("mode", [Mode.DRAIN, Mode.ISOLATE])
def test_unset_coordinator_is_not_the_address_zero(host, mode):
    host.switch.set(mode)
    syn = tcp4("S")
    syn[IP].src = "0.0.0.0"
    assert verdict(host, syn) == DROP
    host.switch.set(Mode.ISOLATE)
    assert verdict(host, ETHER / ARP(psrc="0.0.0.0")) == DROP
    assert verdict(host, ip6() / segment("S")) == DROP


def test_coordinator_can_be_changed_and_forgotten(isolated):
    isolated.switch.allow_coordinator(IPv4Address("10.0.0.1"))
    assert verdict(isolated, tcp4("S")) == PASS
    assert verdict(isolated, from_coordinator(tcp4("S"))) == DROP
    isolated.switch.allow_coordinator(NOBODY)
    assert verdict(isolated, tcp4("S")) == DROP


# --- times and counts ---


def test_drain_becomes_isolation_at_its_time_by_itself(host):
    host.switch.set(Mode.DRAIN, isolate_at_ns=time.monotonic_ns() + 3_600 * 10**9)
    assert verdict(host, tcp4("A")) == PASS
    at_ns = time.monotonic_ns() + 200_000_000
    host.switch.set(Mode.DRAIN, isolate_at_ns=at_ns)
    seen = []
    while not seen or seen[-1][0] < at_ns:
        before_ns = time.monotonic_ns()
        seen.append((before_ns, verdict(host, tcp4("A")), time.monotonic_ns()))
    assert {v for _, v, end_ns in seen if end_ns < at_ns} <= {PASS}
    assert {v for start_ns, v, _ in seen if start_ns >= at_ns} == {DROP}
    assert host.switch.mode is Mode.DRAIN
    assert host.switch.status().isolate_at_ns == at_ns
    assert at_ns <= host.switch.status().first_drop_ns


def test_first_drop_is_kept_and_every_drop_is_counted_until_the_switch_is_set_anew(host):
    before_ns = time.monotonic_ns()
    host.switch.set(Mode.DRAIN)
    verdict(host, tcp4("A"))
    assert host.switch.status().first_drop_ns == 0
    verdict(host, tcp4("S"))
    first = host.switch.status()
    verdict(host, tcp4("S", payload=0))
    last = host.switch.status()
    assert before_ns <= first.set_at_ns <= first.first_drop_ns <= time.monotonic_ns()
    assert last.first_drop_ns == first.first_drop_ns
    assert (last.dropped_packets, last.dropped_bytes) == (2, len(tcp4("S")) + len(tcp4("S", payload=0)))
    host.switch.set(Mode.OFF)
    new = host.switch.status()
    assert (new.mode, new.first_drop_ns, new.dropped_packets, new.dropped_bytes) == (Mode.OFF, 0, 0, 0)
    assert new.set_at_ns > last.set_at_ns
    assert verdict(host, tcp4("S")) == PASS


@pytest.mark.parametrize(("mode", "at_ns"), [(Mode.OFF, 5), (Mode.ISOLATE, 5), (Mode.DRAIN, -1)])
def test_time_that_makes_no_sense_is_refused_and_nothing_changes(host, mode, at_ns):
    with pytest.raises(ValueError, match="isolate_at_ns"):
        host.switch.set(mode, isolate_at_ns=at_ns)
    assert host.switch.status().set_at_ns == 0


def test_unknown_mode_word_is_closed_not_open(host):
    host.switch.u32[0] = 77
    assert verdict(host, tcp4("A")) == DROP
