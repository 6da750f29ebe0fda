"""The egress program, in the kernel, on packets made for it: who is matched, what is written, what is charged."""

import errno
import itertools

import pytest
from scapy.layers.inet import IP, TCP, IPOption_NOP
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

from bpf.errors import BpfError
from bpf.layout import CREDIT_PER_BYTE, MAX_FLOWS, BucketMode, ClassId
from bpf.maps import FlowKey, Traffic
from tests.bpf_machine import DPORT, DROP, ETHER, HERE, KEY, PASS, THERE, Ran, SkBuff, ip6, run, segment, tcp4, udp4

# not `kernel`: programs and maps of each test are its own, and no clock is watched
pytestmark = pytest.mark.stock_kernel

DSCP = {ClassId.EMERGENCY: 46, ClassId.PLANNED: 34, ClassId.PRESYNC: 8, ClassId.RESEARCH: 0}
SUPER_BYTES = 65_536


def put(host, key=KEY, traffic_class=ClassId.PLANNED, mode=BucketMode.ACCOUNT, **grant):
    host.flows.insert(key, traffic_class=traffic_class, mode=mode, **grant)


def send(host, packet: Packet | bytes, wire_len: int = 0, gso_size: int = 0) -> Ran:
    ctx = SkBuff(wire_len=wire_len, gso_size=gso_size, gso_segs=43 if gso_size else 0) if wire_len else None
    return run(host.egress_fd, bytes(packet), ctx=ctx)


def class_of(host, packet: Packet | bytes) -> ClassId:
    """In which class the program counts a packet."""
    before = {c: host.counters.read(c) for c in ClassId}
    assert send(host, packet).verdict == PASS
    after = {c: host.counters.read(c) for c in ClassId}
    changed = [c for c in ClassId if after[c] != before[c]]
    assert len(changed) == 1
    assert after[changed[0]].packets == before[changed[0]].packets + 1
    return changed[0]


def recomputed(raw: bytes) -> Packet:
    """The packet with the IPv4 checksum that scapy computes."""
    packet = Ether(raw)
    del packet[IP].chksum
    return Ether(bytes(packet))


# --- the code point ---


@pytest.mark.parametrize("traffic_class", ClassId)
def test_ipv4_gets_the_code_point_of_its_class_and_keeps_ecn_for_every_tos(host, traffic_class):
    put(host, traffic_class=traffic_class)
    for tos in range(256):
        sent = bytes(tcp4(tos=tos))
        got = send(host, sent).packet
        assert got[15] == DSCP[traffic_class] << 2 | tos & 3
        assert got == bytes(recomputed(got))
        assert got[:15] + got[16:24] + got[26:] == sent[:15] + sent[16:24] + sent[26:]


def test_checksum_is_right_for_headers_of_every_length_and_odd_content(host):
    put(host)
    for options, ident in itertools.product(range(11), (0, 1, 0xFFFF, 0x8000)):
        packet = tcp4(tos=255, id=ident, options=[IPOption_NOP()] * (options * 4))
        got = send(host, packet).packet
        assert got == bytes(recomputed(got))
        assert got[15] >> 2 == 34


def test_unmatched_traffic_is_bleached_to_best_effort_and_what_is_not_ipv4_passes_unchanged(host):
    other_protocol = ETHER / IP(tos=0xB9, proto=1) / Raw(bytes(8))
    for packet in (tcp4(tos=46 << 2), udp4(tos=46 << 2), other_protocol):
        assert Ether(send(host, packet).packet)[IP].tos >> 2 == 0
    for packet in (ip6(traffic_class=0xB8) / segment(), ETHER / ARP(), Ether(type=0x88CC) / Raw(bytes(60))):
        assert send(host, packet).packet == bytes(packet)
    assert host.counters.read(ClassId.RESEARCH).packets == 6


# --- who is matched ---


def test_any_other_address_or_port_is_another_flow(host):
    put(host)
    for change in ({"src": "10.0.0.3"}, {"dst": "10.0.0.3"}, {"sport": 1}, {"dport": 1}):
        packet = tcp4()
        for name, value in change.items():
            setattr(packet[IP] if name in ("src", "dst") else packet[TCP], name, value)
        assert class_of(host, packet) is ClassId.RESEARCH
    assert class_of(host, udp4()) is ClassId.RESEARCH  # from the same ports


@pytest.mark.parametrize("tags", [[Dot1Q(vlan=5)], [Dot1AD(vlan=7), Dot1Q(vlan=5)], [Dot1Q(vlan=7), Dot1Q(vlan=5)]])
def test_up_to_two_vlan_tags_are_stepped_over(host, tags):
    put(host)
    packet = ETHER.copy()
    for layer in (*tags, tcp4(tos=0xFF).payload):
        packet = packet / layer.copy()
    assert class_of(host, packet) is ClassId.PLANNED
    got = Ether(send(host, packet).packet)
    assert got[IP].tos == 34 << 2 | 3
    assert bytes(got) == bytes(recomputed(bytes(got)))


def test_first_fragment_belongs_to_its_flow_and_later_ones_to_research(host):
    put(host)
    first, later = tcp4(), tcp4()
    first[IP].flags, later[IP].frag = "MF", 5
    assert class_of(host, first) is ClassId.PLANNED
    assert class_of(host, later) is ClassId.RESEARCH


@pytest.mark.parametrize(
    # first: the kernel itself refuses test packets that begin untagged with less than an IP header
    ("packet", "first"),
    [
        (tcp4(tos=0xB8), 34),
        (ETHER / Dot1Q() / tcp4(tos=0xB8, options=[IPOption_NOP()] * 8).payload, 14),
        (ETHER / Dot1AD() / Dot1Q() / tcp4(tos=0xB8).payload, 14),
    ],
    ids=["plain", "options", "QinQ"],
)
def test_packet_cut_at_any_byte_is_research_until_its_ports_are_there(host, packet, first):
    put(host)
    raw = bytes(packet)
    ports_end = raw.index(bytes(segment())[:4]) + 4
    for cut in range(first, len(raw)):
        expected = ClassId.PLANNED if cut >= ports_end else ClassId.RESEARCH
        assert class_of(host, raw[:cut]) is expected, cut


def test_other_transports_and_impossible_header_lengths_and_versions_are_research(host):
    put(host)
    other = ETHER / IP(src=str(HERE), dst=str(THERE), proto=132) / Raw(bytes(20))
    assert class_of(host, other) is ClassId.RESEARCH
    for first_byte in (0x44, 0x40, 0x55, 0x65, 0x05):
        raw = bytearray(bytes(tcp4()))
        raw[14] = first_byte  # version and length of the header in words
        assert class_of(host, bytes(raw)) is ClassId.RESEARCH


# --- what is charged ---


def test_flow_and_class_count_wire_bytes_of_every_segment(host):
    put(host)
    send(host, tcp4(payload=1000), wire_len=43 * 1514, gso_size=1448)
    expected = Traffic(43 * 1514, 1, 0, 0)
    assert host.flows.lookup(KEY).traffic == expected
    assert host.counters.read(ClassId.PLANNED) == expected
    assert host.aggregate.state().traffic == expected


def test_guard_lets_one_super_packet_into_debt_and_then_nothing(host):
    put(host, mode=BucketMode.DEBT, rate_bytes_per_s=0, burst_bytes=1)
    assert send(host, tcp4(), SUPER_BYTES, 1448).verdict == PASS
    state = host.flows.lookup(KEY)
    assert state.credit == (1 - SUPER_BYTES) * CREDIT_PER_BYTE
    assert send(host, tcp4(), 154).verdict == DROP
    assert host.flows.lookup(KEY).traffic == Traffic(SUPER_BYTES, 1, 154, 1)
    assert host.counters.read(ClassId.PLANNED) == Traffic(SUPER_BYTES, 1, 154, 1)
    assert host.flows.lookup(KEY).credit == state.credit


@pytest.mark.parametrize("traffic_class", ClassId)
def test_aggregate_is_charged_for_migrations_only(host, traffic_class):
    put(host, traffic_class=traffic_class)
    send(host, tcp4())
    is_migration = traffic_class in (ClassId.PLANNED, ClassId.PRESYNC)
    assert host.aggregate.state().traffic.packets == is_migration


@pytest.mark.parametrize("traffic_class", [ClassId.PLANNED, ClassId.PRESYNC])
def test_checkpoints_below_research_pass_the_aggregate_uncharged(host, traffic_class):
    put(host, traffic_class=traffic_class)
    host.aggregate.set_grant(0, 0)
    host.aggregate.migrations_only = True
    passes = traffic_class is ClassId.PRESYNC
    assert send(host, tcp4()).verdict == (PASS if passes else DROP)
    assert host.aggregate.state().traffic.dropped_packets == (not passes)


@pytest.mark.parametrize("mode", [BucketMode.DEBT, BucketMode.DROP])
def test_refusal_by_the_aggregate_gives_the_flow_its_charge_back(host, mode):
    put(host, mode=mode, burst_bytes=10_000)
    host.aggregate.set_grant(0, 1)
    assert send(host, tcp4()).verdict == PASS
    credit = host.flows.lookup(KEY).credit
    assert send(host, tcp4()).verdict == DROP
    state = host.flows.lookup(KEY)
    assert state.credit == credit
    assert state.traffic == Traffic(154, 1, 154, 1)
    assert host.aggregate.state().traffic == Traffic(154, 1, 154, 1)
    assert host.counters.read(ClassId.PLANNED) == Traffic(154, 1, 154, 1)


# --- the table ---


def test_flow_can_be_inserted_once_and_deleted_once(host):
    put(host)
    for _ in range(MAX_FLOWS):  # a refusal takes no place
        with pytest.raises(BpfError) as caught:
            put(host)
        assert caught.value.errno == errno.EEXIST
    send(host, tcp4())
    assert host.flows.delete(KEY).traffic.packets == 1
    assert host.flows.delete(KEY) is None
    assert host.flows.lookup(KEY) is None
    assert class_of(host, tcp4()) is ClassId.RESEARCH


def test_full_table_says_so_and_a_freed_place_is_used_again(host):
    keys = [FlowKey(HERE, n, THERE, DPORT) for n in range(MAX_FLOWS)]
    for key in keys:
        put(host, key, ClassId.PRESYNC)
    with pytest.raises(BpfError) as caught:
        put(host)
    assert caught.value.errno == errno.E2BIG
    assert {key for key, _ in host.flows.items()} == set(keys)
    host.flows.delete(keys[3])
    put(host, traffic_class=ClassId.EMERGENCY)
    assert class_of(host, tcp4()) is ClassId.EMERGENCY
    assert host.flows.lookup(KEY).traffic.packets == 1


def test_new_rate_keeps_credit_and_counters(host):
    put(host, mode=BucketMode.DEBT, rate_bytes_per_s=0, burst_bytes=1000)
    send(host, tcp4())
    before = host.flows.lookup(KEY)
    host.flows.update_rate(KEY, 5_000_000, 2000)
    after = host.flows.lookup(KEY)
    assert (after.rate_bytes_per_s, after.burst_bytes) == (5_000_000, 2000)
    assert (after.credit, after.traffic) == (before.credit, before.traffic)
    with pytest.raises(BpfError, match="No such file"):
        host.flows.update_rate(FlowKey(THERE, DPORT, HERE, DPORT), 1, 1)
    for burst_bytes in (1000, 2000):
        host.aggregate.set_grant(5_000_000, burst_bytes)
        host.aggregate.set_credit(0, credit := host.aggregate.state().credit - 5)
    assert credit == 1000 * CREDIT_PER_BYTE - 10


@pytest.mark.parametrize(("rate", "burst"), [(-1, 0), (1 << 41, 0), (1, -1), (1, (1 << 32) + 1)])
def test_grant_that_could_overflow_is_refused_and_takes_no_place(host, rate, burst):
    with pytest.raises(ValueError, match="allowed is 0 to"):
        put(host, mode=BucketMode.DEBT, rate_bytes_per_s=rate, burst_bytes=burst)
    assert list(host.flows.items()) == []
