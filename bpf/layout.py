"""The ctypes mirror of `src/reclaim.h` and `src/observe.h`: same names, same order, same units.

A test compares sizes and offsets with the BTF of the compiled objects, so a change of one without the other cannot
pass.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import NamedTuple

CREDIT_PER_BYTE = 1_000_000_000
MAX_FLOWS = 256
FIRST_PORT = 10_000
LIVE_CONNECTIONS = 128
DROP_REASONS = 256
DELAY_BUCKETS = 124
MAX_BURST_BYTES = 1 << 32  # keeps credit + rate * elapsed below 2^63
MAX_RATE_BYTES_PER_S = 1 << 40  # 8.8 Tbit/s: more than any link that one host has
# more than a super-packet of BIG TCP (512 KiB) in segments of one byte with the longest headers behind two tags: 60 MB
DEEPEST_DEBT_BYTES = 1 << 26
NEVER_FULL_NS = (1 << 64) - 1


class ClassId(IntEnum):
    """`enum reclaim_class`: index into the class counters."""

    EMERGENCY = 0
    PLANNED = 1
    PRESYNC = 2
    RESEARCH = 3


class BucketMode(IntEnum):
    """`enum reclaim_mode`: what a bucket does to a packet."""

    ACCOUNT = 0
    DEBT = 1
    DROP = 2


class Mode(IntEnum):
    """`enum switch_mode`: the kill-switch."""

    OFF = 0
    DRAIN = 1
    ISOLATE = 2


class SwitchStatus(NamedTuple):
    """The kill-switch as it was read. Times in CLOCK_MONOTONIC ns; 0 is "not"."""

    mode: Mode
    set_at_ns: int
    isolate_at_ns: int  # when a drain becomes an isolation by itself
    first_drop_ns: int  # since it was set, as the counts
    dropped_packets: int
    dropped_bytes: int


class FlowKeyStruct(ctypes.Structure):
    """`struct flow_key`; everything in network byte order."""

    _fields_ = [
        ("saddr", ctypes.c_uint8 * 4),
        ("daddr", ctypes.c_uint8 * 4),
        ("sport", ctypes.c_uint8 * 2),
        ("dport", ctypes.c_uint8 * 2),
        ("proto", ctypes.c_uint8),
        ("zero", ctypes.c_uint8 * 3),
    ]


class BucketStruct(ctypes.Structure):
    """`struct bucket`."""

    _fields_ = [
        ("credit", ctypes.c_int64),
        ("last_ns", ctypes.c_uint64),
        ("rate_bytes_per_s", ctypes.c_uint64),
        ("burst_bytes", ctypes.c_uint64),
        ("fill_ns", ctypes.c_uint64),
    ]


class TrafficStruct(ctypes.Structure):
    """`struct traffic`."""

    _fields_ = [
        ("bytes", ctypes.c_uint64),
        ("packets", ctypes.c_uint64),
        ("dropped_bytes", ctypes.c_uint64),
        ("dropped_packets", ctypes.c_uint64),
    ]


class MeterStruct(ctypes.Structure):
    """`struct meter`."""

    _fields_ = [
        ("traffic_class", ctypes.c_uint32),
        ("mode", ctypes.c_uint8),
        ("in_use", ctypes.c_uint8),
        ("migrations_only", ctypes.c_uint8),
        ("zero", ctypes.c_uint8),
        ("bucket", BucketStruct),
        ("traffic", TrafficStruct),
    ]


class PortStruct(ctypes.Structure):
    """`struct port`; addresses in network byte order."""

    _fields_ = [
        ("mac", ctypes.c_uint8 * 6),
        ("checkpoints_apart", ctypes.c_uint8),
        ("zero", ctypes.c_uint8),
        ("ipv4", ctypes.c_uint8 * 4),
        ("zero2", ctypes.c_uint32),
        ("own", MeterStruct),
        ("link", MeterStruct),
        ("forged", TrafficStruct),
    ]


class LiveConnectionStruct(ctypes.Structure):
    """`struct live_connection`."""

    _fields_ = [("peer", ctypes.c_uint64), ("local", ctypes.c_uint8 * 4), ("zero", ctypes.c_uint32)]


class KillSwitchStruct(ctypes.Structure):
    """`struct kill_switch`."""

    _fields_ = [
        ("mode", ctypes.c_uint32),
        ("coordinator", ctypes.c_uint8 * 4),
        ("set_at_ns", ctypes.c_uint64),
        ("isolate_at_ns", ctypes.c_uint64),
        ("first_drop_ns", ctypes.c_uint64),
        ("dropped_packets", ctypes.c_uint64),
        ("dropped_bytes", ctypes.c_uint64),
        ("live", LiveConnectionStruct * LIVE_CONNECTIONS),
    ]


class ObservedStruct(ctypes.Structure):
    """`struct observed`: the observer's counts of a namespace."""

    _fields_ = [
        ("retransmitted", ctypes.c_uint64),
        ("dropped", ctypes.c_uint64 * DROP_REASONS),
        ("round_trip_us", ctypes.c_uint64 * DELAY_BUCKETS),
        ("run_delay_us", ctypes.c_uint64 * DELAY_BUCKETS),
    ]


MIRRORED: dict[str, type[ctypes.Structure]] = {
    "flow_key": FlowKeyStruct,
    "bucket": BucketStruct,
    "traffic": TrafficStruct,
    "meter": MeterStruct,
    "port": PortStruct,
    "live_connection": LiveConnectionStruct,
    "kill_switch": KillSwitchStruct,
    "observed": ObservedStruct,
}


def fill_ns(rate_bytes_per_s: int, burst_bytes: int) -> int:
    """Return the time after which a bucket is full whatever it owed: ceil((burst + deepest debt) / rate), in ns.

    The kernel multiplies rate by elapsed time only below it, so that the product stays under 2^63.
    """
    if rate_bytes_per_s == 0:
        return NEVER_FULL_NS
    return -(-(burst_bytes + DEEPEST_DEBT_BYTES) * CREDIT_PER_BYTE // rate_bytes_per_s)
