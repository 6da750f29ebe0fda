"""Shaping of an interface to its link's rate: HTB at the rate, over two queues, as a switch port that honours DSCP has.

One queue is for research and everything unmarked, one for the testbed's own classes (EF, AF41, CS1). Each is guaranteed
its part, the reserve and the rest, and may use what the other leaves. With a single queue a greedy download holds it
full, and a paced flow's round trip grows from 0.2 to 100 ms. What gets through then depends on its congestion control,
as measured on 160 Mbit/s with a grant of 70. CUBIC got 95 to 65 % of it. BBR, which bounds what is in flight by the
shortest round trip seen, got 2 %. Grants never exceed the second part, so its queue stays empty (and is the kernel's
default, a FIFO of packets).

A packet's code point decides its queue: EF, AF41 and CS1 are the testbed's own, all else is research, whatever its
EtherType. u32 filters compare the first word behind the Ethernet header or the VLAN tag (IP version and code point
together). So tagged packets are separated as untagged ones are; behind two tags everything is research. ARP takes the
testbed's queue: lost at the tail of a full research queue, it would cost each new transfer a second. What a host puts
into that queue, the port's program holds to the migration share (bpf/src/port.bpf.c).

Where checkpoints may borrow of the reserve, a third queue serves them (CS1) after migrations. By itself it is
guaranteed only what keeps its connections alive, a part of what pacing leaves of the migrations' grants. It and the
queue of migrations hang below one class that has what both are guaranteed. So what migrations leave of the share goes
to checkpoints before research has more than its reserve. What research leaves of the link goes to them after that. The
queue is short, since it may drain slowly while others fill the link. A sender that yields for long is to be 3 s behind
at most, not a minute.

HTB rather than TBF because TBF's burst must exceed a GSO super-packet (64 KiB) or the flow stops. HTB lets one packet
run into debt. The burst is one millisecond of the rate. The timer that wakes the class is some 50 us late, so a smaller
bucket loses rate at 10 Gbit/s; a larger one lets short flows pass faster than the link. The queue is 100 ms of the
rate, in bytes: the kernel's default of 1000 packets would be 64 MB of super-packets, five seconds at 100 Mbit/s. It
holds four super-packets, of which one of a slow campus is smaller: four of 64 KiB would be 0.8 s at 2.5 Mbit/s. Rates
are sent in the 64-bit attributes as well, so that nothing is cut at 4 GiB/s. The class's quantum is given, so that the
kernel does not derive (and warn about) one.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.emulation.netlink import CREATE, EXCL, NetlinkRequest, attribute, attributes, request, text, u32, u64
from topologies.spec import TrafficClass

RTM_NEWQDISC, RTM_GETQDISC = 36, 38
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
RTM_NEWTFILTER = 44
TC_MESSAGE = struct.Struct("=BBHiIII")  # tcmsg: family, padding, ifindex, handle, parent, info
TC_ROOT = 0xFFFFFFFF
HTB_HANDLE, ROOT_CLASS, RESEARCH_CLASS, MIGRATION_CLASS = 0x10000, 0x10001, 0x10002, 0x10003
# of checkpoints that have a queue of their own, and above it and migrations, where they may borrow
CHECKPOINT_CLASS, OWN_CLASS = 0x10004, 0x10005
LEAF_HANDLES = {RESEARCH_CLASS: 0x100000, CHECKPOINT_CLASS: 0x120000}
# words for each class, the class above it, and its turn at what all may borrow
CLASSES = {
    ROOT_CLASS: ("HTB", HTB_HANDLE, 0),
    RESEARCH_CLASS: ("research", ROOT_CLASS, 1),
    OWN_CLASS: ("testbed's own", ROOT_CLASS, 0),
    MIGRATION_CLASS: ("migration", OWN_CLASS, 0),
    CHECKPOINT_CLASS: ("checkpoint", OWN_CLASS, 2),
}
TCA_KIND, TCA_OPTIONS, TCA_STATS = 1, 2, 3
TCA_HTB_PARMS, TCA_HTB_INIT, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 2, 6, 7
LINKLAYER_ETHERNET = 1
TCA_U32_CLASSID, TCA_U32_SEL, U32_TERMINAL = 1, 5, 1
# of filters: priority 1, every EtherType
FILTER_INFO = 1 << 16 | socket.htons(0x0003)
OWN = tuple(c for c in TrafficClass if c is not TrafficClass.RESEARCH)
OWN_ARP = (0xFFFFFFFF, 0x00010800)  # (mask, value) of the first 32 bits behind the link header: over Ethernet, for IPv4
TICK_NS = 64  # one tick of the traffic-control clock (/proc/net/psched: 1000 ns = 0x40 shifted ticks)
QUANTUM_BYTES = 65536
BURST_S = 1e-3
MIN_BURST_BYTES = 16384
QUEUE_S = 0.1
MIN_PART = 0.01  # of the rate: either class is always guaranteed this much
# of the rate, to checkpoints with a queue of their own: less than the half per cent by which senders stay below their grants
# (`enforcement.PACING_SHARE`) leaves where migrations may have half of a link
CHECKPOINT_PART = 0.002
CHECKPOINT_QUEUE_S = 0.005
MIN_CHECKPOINT_QUEUE_BYTES = 65536  # a super-packet
MIN_QUEUE_BYTES = 32 << 10  # what a network between machines may deliver as one packet, twice
QUEUED_SUPER_PACKETS = 4  # at least
SUPER_PACKET_S = 0.01  # of the campus's slowest link, at most
MIN_SUPER_PACKET_BYTES, MAX_SUPER_PACKET_BYTES = 6 << 10, 64 << 10  # four segments and their headers; the kernel's own
MAX_QUEUE_BYTES = 16 << 20
U32_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class LinkShape:
    """Limits of one end of a link; rates in wire bytes per second (as HTB counts them)."""

    rate_bytes_per_s: int
    delay_s: float = 0.0
    loss: float = 0.0
    reserve_bytes_per_s: int = 0  # what research is guaranteed
    jitter_s: float = 0.0
    by_line: bool = False  # whether it leads through the delay line, which makes delay, jitter and loss
    # whether all packets take research's queue, which may use the whole link: a switch that does not look at code points
    one_queue: bool = False
    # whether checkpoints may borrow of the reserve, and have a queue of their own
    borrows: bool = False
    # that TCP sends at once: the whole campus's, since every port's queue is to hold some
    super_packet_bytes: int = MAX_SUPER_PACKET_BYTES

    @property
    def research_bytes_per_s(self) -> int:
        """Rate guaranteed to research; neither part is 0."""
        least = max(1, round(MIN_PART * self.rate_bytes_per_s))
        return min(max(self.reserve_bytes_per_s, least), self.rate_bytes_per_s - least)

    @property
    def unreserved_bytes_per_s(self) -> int:
        """Rate that the reserve leaves to migrations: 0 where it is the whole link."""
        return max(0, self.rate_bytes_per_s - self.reserve_bytes_per_s)

    @property
    def migration_bytes_per_s(self) -> int:
        """Rate guaranteed to the testbed's own classes, or to those of them that have no queue apart."""
        return max(1, self.rate_bytes_per_s - self.research_bytes_per_s - self.checkpoint_bytes_per_s)

    @property
    def checkpoint_bytes_per_s(self) -> int:
        """Rate guaranteed to that queue whatever others send."""
        return max(1, int(CHECKPOINT_PART * self.rate_bytes_per_s)) if self.borrows else 0

    @property
    def checkpoint_queue_bytes(self) -> int:
        """Depth of that queue, if there is one."""
        depth = max(MIN_CHECKPOINT_QUEUE_BYTES, round(self.rate_bytes_per_s * CHECKPOINT_QUEUE_S))
        return min(MAX_QUEUE_BYTES, depth)

    @property
    def burst_bytes(self) -> int:
        """Depth of the class's bucket."""
        return max(MIN_BURST_BYTES, round(self.rate_bytes_per_s * BURST_S))

    @property
    def queue_bytes(self) -> int:
        """Depth of the queue behind it."""
        least = max(MIN_QUEUE_BYTES, QUEUED_SUPER_PACKETS * self.super_packet_bytes)
        return min(MAX_QUEUE_BYTES, max(least, round(self.rate_bytes_per_s * QUEUE_S)))

    @property
    def loss_fraction(self) -> int:
        """The loss probability as a share of 2**32 - 1."""
        return round(self.loss * U32_MAX)


@dataclass(frozen=True, slots=True)
class Found:
    """Shaping of an interface as the kernel reports it."""

    classes: dict[int, tuple[int, int]]  # class -> (guaranteed rate, ceiling)
    queues: dict[int, int]  # class -> depth of the bfifo below it, bytes


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """Wire bytes sent by a class of an interface, and packets dropped because its queue was full."""

    sent_bytes: int = 0
    dropped_packets: int = 0

    def since(self, earlier: QueueCounters) -> QueueCounters:
        """Return the difference to earlier counters."""
        return QueueCounters(self.sent_bytes - earlier.sent_bytes, self.dropped_packets - earlier.dropped_packets)


def super_packet_bytes(slowest_bytes_per_s: float) -> int:
    """Return how much TCP is to send at once in a campus with such a link."""
    return round(min(MAX_SUPER_PACKET_BYTES, max(MIN_SUPER_PACKET_BYTES, SUPER_PACKET_S * slowest_bytes_per_s)))


def expected(shape: LinkShape) -> Found:
    """Return the shaping that `requests` make, and that is to be read back: classes are after those above them."""
    rate, research = shape.rate_bytes_per_s, shape.research_bytes_per_s
    classes = {ROOT_CLASS: (rate, rate), RESEARCH_CLASS: (research, rate)}
    queues = {RESEARCH_CLASS: shape.queue_bytes}
    if shape.borrows:
        classes[OWN_CLASS] = (rate - research, rate)
        classes[CHECKPOINT_CLASS] = (shape.checkpoint_bytes_per_s, rate)
        queues[CHECKPOINT_CLASS] = shape.checkpoint_queue_bytes
    classes[MIGRATION_CLASS] = (shape.migration_bytes_per_s, rate)
    return Found(classes, queues)


def requests(ifindex: int, shape: LinkShape, name: str) -> list[NetlinkRequest]:
    """Return requests for root HTB, its classes, and the queues (bfifo) of interface `name`."""
    htb_init = attribute(TCA_HTB_INIT, struct.pack("=5I", 3, 10, RESEARCH_CLASS & 0xFFFF, 0, 0))
    root, made = tc_body(ifindex, HTB_HANDLE, TC_ROOT, "htb", htb_init), CREATE | EXCL
    words = () if shape.one_queue else _own_words(shape)
    return [
        request(RTM_NEWQDISC, made, root, f"HTB of {name}"),
        *_classes(ifindex, shape, made, name),
        *_queues(ifindex, shape, made, name),
        *(request(RTM_NEWTFILTER, CREATE, _own_filter(ifindex, *each), f"filter of {name}") for each in words),
    ]


def changes(ifindex: int, shape: LinkShape, name: str) -> list[NetlinkRequest]:
    """Return requests that change classes and queues of `requests` to another shape, in place, without losing queued packets."""
    return [*_classes(ifindex, shape, 0, name), *_queues(ifindex, shape, 0, name)]


def _own_words(shape: LinkShape) -> list[tuple[int, int, int]]:
    """Return (mask, value, class) of the first 32 bits behind the link header: IP version and code point, or those of ARP."""
    apart = {TrafficClass.PRESYNC: CHECKPOINT_CLASS} if shape.borrows else {}
    classes = [(own.dscp, apart.get(own, MIGRATION_CLASS)) for own in OWN]
    ipv4 = [(0xF0FC0000, 4 << 28 | dscp << 18, number) for dscp, number in classes]
    return [*ipv4, (*OWN_ARP, MIGRATION_CLASS)]


def _classes(ifindex: int, shape: LinkShape, flags: int, name: str) -> Iterator[NetlinkRequest]:
    for number, (least, ceil) in expected(shape).classes.items():
        words, above, prio = CLASSES[number]
        if above == OWN_CLASS and not shape.borrows:
            above = ROOT_CLASS
        buffers = _ticks(shape.burst_bytes, least), _ticks(shape.burst_bytes, ceil)
        rates = _rate_spec(least) + _rate_spec(ceil)
        parameters = rates + struct.pack("=5I", *buffers, QUANTUM_BYTES, 0, prio)
        options = attribute(TCA_HTB_PARMS, parameters)
        options += u64(TCA_HTB_RATE64, least) + u64(TCA_HTB_CEIL64, ceil)
        body = tc_body(ifindex, number, above, "htb", options)
        yield request(RTM_NEWTCLASS, flags, body, f"{words} class at {least} bytes/s of {name}")


def _queues(ifindex: int, shape: LinkShape, flags: int, name: str) -> Iterator[NetlinkRequest]:
    for of, depth in expected(shape).queues.items():
        body = tc_body(ifindex, LEAF_HANDLES[of], of, "bfifo", struct.pack("=I", depth))
        yield request(RTM_NEWQDISC, flags, body, f"bfifo queue of {name}")


def _own_filter(ifindex: int, mask: int, value: int, number: int) -> bytes:
    """Return a filter: packets whose first word is `value` under `mask` go to that class.

    All filters are nodes of one list.
    """
    selector = struct.pack("=BBBxHHhhI", U32_TERMINAL, 0, 1, 0, 0, 0, 0, 0)
    key = struct.pack(">II", mask, value) + struct.pack("=ii", 0, 0)
    options = u32(TCA_U32_CLASSID, number) + attribute(TCA_U32_SEL, selector + key)
    return tc_body(ifindex, 0, HTB_HANDLE, "u32", options, FILTER_INFO)


def tc_body(ifindex: int, handle: int, parent: int, kind: str, options: bytes = b"", info: int = 0) -> bytes:
    """Return the body of a request for a queue, a class or a filter of an interface."""
    body = TC_MESSAGE.pack(0, 0, 0, ifindex, handle, parent, info) + text(TCA_KIND, kind)
    return body + attribute(TCA_OPTIONS, options) if options else body


def _rate_spec(rate: int) -> bytes:
    return struct.pack("=BBHhHI", 0, LINKLAYER_ETHERNET, 0, 0, 0, min(rate, U32_MAX))


def _ticks(size_bytes: int, rate: int) -> int:
    """Return the time that a burst takes at a rate, as the kernel counts it."""
    return min(U32_MAX, round(size_bytes / rate * 1e9 / TICK_NS))


def tc_dump(ifindex: int = 0, parent: int = 0) -> bytes:
    """Return the body of a dump: queues of a whole namespace; classes of one interface; filters of one hook of it."""
    return TC_MESSAGE.pack(0, 0, 0, ifindex, 0, parent, 0)


def class_rates(classes: list[memoryview]) -> dict[int, tuple[int, int]]:
    """Return (guaranteed rate, ceiling) of each class of a dump."""
    rates = {}
    for body in classes:
        options = attributes(attributes(body[TC_MESSAGE.size :]).get(TCA_OPTIONS, b""))
        rate = ceil = 0
        if parameters := options.get(TCA_HTB_PARMS):
            (rate,), (ceil,) = (struct.unpack_from("=I", parameters, 8), struct.unpack_from("=I", parameters, 20))
            if rate64 := options.get(TCA_HTB_RATE64):
                rate = int.from_bytes(rate64, "little")
            if ceil64 := options.get(TCA_HTB_CEIL64):
                ceil = int.from_bytes(ceil64, "little")
        rates[TC_MESSAGE.unpack_from(body)[4]] = rate, ceil
    return rates


def counters(classes: list[memoryview]) -> dict[int, QueueCounters]:
    """Return counters of each class of a dump.

    `struct tc_stats` begins with bytes (64 bits), packets and drops (32 each).
    """
    found = {}
    for body in classes:
        sent_bytes, _, dropped = struct.unpack_from("=QII", attributes(body[TC_MESSAGE.size :])[TCA_STATS])
        found[TC_MESSAGE.unpack_from(body)[4]] = QueueCounters(sent_bytes, dropped)
    return found


def queue_depths(qdiscs: list[memoryview]) -> dict[int, dict[int, int]]:
    """Return ifindex -> class -> depth of the bfifo that hangs below it."""
    found: dict[int, dict[int, int]] = {}
    for body in qdiscs:
        _, _, _, ifindex, _, parent, _ = TC_MESSAGE.unpack_from(body)
        values = attributes(body[TC_MESSAGE.size :])
        if parent in LEAF_HANDLES and values[TCA_KIND] == b"bfifo\0":
            (found.setdefault(ifindex, {})[parent],) = struct.unpack_from("=I", values[TCA_OPTIONS])
    return found
