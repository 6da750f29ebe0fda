"""How an interface is held to its link's rate: HTB with one class, over a queue of bounded bytes (or netem).

HTB rather than TBF because TBF's burst must exceed a GSO super-packet (64 KiB) or the flow stops, while HTB lets one packet
run into debt. The burst is one millisecond of the rate: the timer that wakes the class is some 50 us late, so a smaller
bucket loses rate at 10 Gbit/s; a larger one lets short flows pass faster than the link. The queue is 100 ms of the rate, in
bytes: the kernel's default of 1000 packets would be 64 MB of super-packets, five seconds at 100 Mbit/s. Rates are sent in the
64-bit attributes as well, so that nothing is cut at 4 GiB/s, and the class's quantum is given, so that the kernel
does not derive (and warn about) one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from testbed.emulation.netlink import CREATE, EXCL, NESTED, Request, attribute, attributes, message, text, u64

RTM_NEWQDISC, RTM_GETQDISC = 36, 38
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
TC_MESSAGE = struct.Struct("=BBHiIII")  # tcmsg: family, padding, ifindex, handle, parent, info
TC_ROOT = 0xFFFFFFFF
HTB_HANDLE, HTB_CLASS, LEAF_HANDLE = 0x10000, 0x10001, 0x100000
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_HTB_PARMS, TCA_HTB_INIT, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 2, 6, 7
LINKLAYER_ETHERNET = 1
TICK_NS = 64  # one tick of the traffic-control clock (/proc/net/psched: 1000 ns = 0x40 shifted ticks)
QUANTUM_BYTES = 65536
BURST_S = 1e-3
MIN_BURST_BYTES = 16384
QUEUE_S = 0.1
MIN_QUEUE_BYTES = 256 << 10  # four super-packets
MAX_QUEUE_BYTES = 16 << 20
NETEM_QUEUE_PACKETS = 20000
U32_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Shape:
    """What one end of a link is held to; rates in wire bytes per second (as HTB counts them)."""

    rate_bytes_per_s: int
    delay_s: float = 0.0
    loss: float = 0.0

    @property
    def needs_netem(self) -> bool:
        """Delay and loss are netem's work."""
        return self.delay_s > 0.0 or self.loss > 0.0

    @property
    def burst_bytes(self) -> int:
        """Depth of the class's bucket."""
        return max(MIN_BURST_BYTES, round(self.rate_bytes_per_s * BURST_S))

    @property
    def queue_bytes(self) -> int:
        """Depth of the queue behind it."""
        return min(MAX_QUEUE_BYTES, max(MIN_QUEUE_BYTES, round(self.rate_bytes_per_s * QUEUE_S)))

    @property
    def delay_ticks(self) -> int:
        """The delay as netem counts it."""
        return round(self.delay_s * 1e9 / TICK_NS)

    @property
    def loss_fraction(self) -> int:
        """The loss probability as netem counts it: a share of 2**32 - 1."""
        return round(self.loss * U32_MAX)


@dataclass(frozen=True, slots=True)
class Found:
    """What the kernel says about an interface's shaping."""

    rate_bytes_per_s: int = 0
    ceil_bytes_per_s: int = 0
    queue_bytes: int = 0
    delay_ticks: int = 0
    loss_fraction: int = 0


def expected(shape: Shape) -> Found:
    """What `read` must find after `requests` were performed."""
    rate = shape.rate_bytes_per_s
    if shape.needs_netem:
        return Found(rate, rate, 0, shape.delay_ticks, shape.loss_fraction)
    return Found(rate, rate, shape.queue_bytes)


def requests(ifindex: int, shape: Shape, name: str) -> list[Request]:
    """Root HTB, its one class, and the leaf (bfifo or netem) of interface `name`."""
    leaf_kind, leaf = (
        ("netem", _netem(shape)) if shape.needs_netem else ("bfifo", struct.pack("=I", shape.queue_bytes))
    )
    return [
        Request(_qdisc(ifindex, HTB_HANDLE, TC_ROOT, "htb", _htb_init()), f"HTB of {name}"),
        Request(_class(ifindex, shape), f"HTB class of {name} at {shape.rate_bytes_per_s} bytes/s"),
        Request(_qdisc(ifindex, LEAF_HANDLE, HTB_CLASS, leaf_kind, leaf), f"{leaf_kind} queue of {name}"),
    ]


def _qdisc(ifindex: int, handle: int, parent: int, kind: str, options: bytes) -> bytes:
    body = (
        TC_MESSAGE.pack(0, 0, 0, ifindex, handle, parent, 0)
        + text(TCA_KIND, kind)
        + attribute(TCA_OPTIONS, options)
    )
    return message(RTM_NEWQDISC, CREATE | EXCL, body)


def _htb_init() -> bytes:
    return attribute(TCA_HTB_INIT, struct.pack("=5I", 3, 10, HTB_CLASS & 0xFFFF, 0, 0))


def _class(ifindex: int, shape: Shape) -> bytes:
    rate = shape.rate_bytes_per_s
    spec = struct.pack("=BBHhHI", 0, LINKLAYER_ETHERNET, 0, 0, 0, min(rate, U32_MAX))
    burst_ticks = min(U32_MAX, round(shape.burst_bytes / rate * 1e9 / TICK_NS))
    parameters = spec + spec + struct.pack("=5I", burst_ticks, burst_ticks, QUANTUM_BYTES, 0, 0)
    options = attribute(TCA_HTB_PARMS, parameters) + u64(TCA_HTB_RATE64, rate) + u64(TCA_HTB_CEIL64, rate)
    header = TC_MESSAGE.pack(0, 0, 0, ifindex, HTB_CLASS, HTB_HANDLE, 0)
    return message(
        RTM_NEWTCLASS,
        CREATE | EXCL,
        header + text(TCA_KIND, "htb") + attribute(TCA_OPTIONS | NESTED, options),
    )


def _netem(shape: Shape) -> bytes:
    return struct.pack("=6I", shape.delay_ticks, NETEM_QUEUE_PACKETS, shape.loss_fraction, 0, 0, 0)


def class_dump(ifindex: int) -> bytes:
    """Body of a RTM_GETTCLASS dump of one interface (the kernel gives classes of one interface at a time)."""
    return TC_MESSAGE.pack(0, 0, 0, ifindex, 0, 0, 0)


def qdisc_dump() -> bytes:
    """Body of a RTM_GETQDISC dump of a whole namespace."""
    return TC_MESSAGE.pack(0, 0, 0, 0, 0, 0, 0)


def read(classes: list[memoryview], leaf: tuple[str, bytes] | None) -> Found:
    """The shaping that dumps report: classes of the interface, and kind and options of its leaf queue."""
    rate = ceil = 0
    for body in classes:
        rate, ceil = _class_rates(attributes(body[TC_MESSAGE.size :]))
    if leaf is None:
        return Found(rate, ceil)
    kind, options = leaf
    if kind == "netem":
        delay, _, loss = struct.unpack_from("=3I", options)
        return Found(rate, ceil, 0, delay, loss)
    return Found(rate, ceil, struct.unpack_from("=I", options)[0] if kind == "bfifo" else 0)


def leaves(qdiscs: list[memoryview]) -> dict[int, tuple[str, bytes]]:
    """ifindex -> (kind, options) of the queues that hang below an HTB class."""
    found = {}
    for body in qdiscs:
        _, _, _, ifindex, _, parent, _ = TC_MESSAGE.unpack_from(body)
        if parent == HTB_CLASS:
            values = attributes(body[TC_MESSAGE.size :])
            found[ifindex] = (values[TCA_KIND].rstrip(b"\0").decode(), values.get(TCA_OPTIONS, b""))
    return found


def _class_rates(values: dict[int, bytes]) -> tuple[int, int]:
    options = attributes(values.get(TCA_OPTIONS, b""))
    parameters = options.get(TCA_HTB_PARMS)
    if parameters is None:
        return 0, 0
    (rate,), (ceil,) = struct.unpack_from("=I", parameters, 8), struct.unpack_from("=I", parameters, 20)
    rate64, ceil64 = options.get(TCA_HTB_RATE64), options.get(TCA_HTB_CEIL64)
    return int.from_bytes(rate64, "little") if rate64 else rate, int.from_bytes(
        ceil64, "little"
    ) if ceil64 else ceil
