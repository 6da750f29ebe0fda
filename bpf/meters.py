"""Meters: a bucket and its counters, in memory shared with the egress program.

The program changes credit, time and counters with atomic additions, this side stores only class, mode and grant; so
neither can undo what the other did, and a new grant needs no system call and loses no byte. A grant is three words.
They are stored in an order in which every mixture that the program can see is harmless: the rate goes to 0 first (the
bucket stands still), then come the filling time and the depth, then the new rate.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import time
from dataclasses import dataclass

from bpf.errors import BpfError
from bpf.layout import (
    CREDIT_PER_BYTE,
    MAX_BURST_BYTES,
    MAX_FLOWS,
    MAX_RATE_BYTES_PER_S,
    BucketMode,
    BucketStruct,
    ClassId,
    MeterStruct,
    TrafficStruct,
    fill_ns,
)
from bpf.memory import WritableMap


@dataclass(frozen=True, slots=True)
class Traffic:
    """Wire bytes and packets that passed, and that were dropped."""

    bytes: int
    packets: int
    dropped_bytes: int
    dropped_packets: int


@dataclass(frozen=True, slots=True)
class MeterState:
    """A meter as read: class, bucket (credit in 1e-9 byte), counters. Each word is exact; they are not one instant."""

    traffic_class: ClassId
    mode: BucketMode
    credit: int
    last_ns: int
    rate_bytes_per_s: int
    burst_bytes: int
    traffic: Traffic


class Meters(WritableMap):
    """An array of meters."""

    size_bytes = -(-ctypes.sizeof(MeterStruct) * MAX_FLOWS // mmap.PAGESIZE) * mmap.PAGESIZE

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.lay_over(MeterStruct, self.size_bytes // ctypes.sizeof(MeterStruct))

    def read(self, slot: int) -> MeterState:
        """Return the meter in `slot`."""
        meter, bucket = self.records[slot], self.records[slot].bucket
        return MeterState(
            ClassId(meter.traffic_class),
            BucketMode(meter.mode),
            bucket.credit,
            bucket.last_ns,
            bucket.rate_bytes_per_s,
            bucket.burst_bytes,
            traffic_of(meter.traffic),
        )

    def release(self, slot: int) -> None:
        """Give a slot back; its counters stay to be read until it is taken again."""
        self.records[slot].in_use = 0

    def reset(self, slot: int, traffic_class: ClassId, mode: BucketMode) -> None:
        """Take a slot: counters 0, no rate. No packet may find the slot yet."""
        self.records[slot] = MeterStruct(traffic_class=traffic_class, mode=mode, in_use=1)

    def set_rate(self, slot: int, rate_bytes_per_s: int, burst_bytes: int) -> None:
        """Change the grant; credit and counters stay. ValueError outside of the range that cannot overflow."""
        check_grant(rate_bytes_per_s, burst_bytes)
        store_grant(self.records[slot].bucket, rate_bytes_per_s, burst_bytes)

    def set_credit(self, slot: int, credit: int | None = None, last_ns: int | None = None) -> None:
        """Set the credit (default: full) as true at `last_ns` (default: now). Only while no packet uses the slot."""
        bucket = self.records[slot].bucket
        bucket.credit = bucket.burst_bytes * CREDIT_PER_BYTE if credit is None else credit
        bucket.last_ns = time.monotonic_ns() if last_ns is None else last_ns

    def find_free(self, after: int) -> int:
        """Return the first free slot behind `after`, round and round, so that a slot rests before it is used again.

        BpfError E2BIG: all are taken.
        """
        for step in range(1, MAX_FLOWS + 1):
            slot = (after + step) % MAX_FLOWS
            if not self.records[slot].in_use:
                return slot
        raise BpfError(f"all {MAX_FLOWS} flows that a host can have are in use", errno.E2BIG)


def traffic_of(counted: TrafficStruct) -> Traffic:
    """Return counters as they are now."""
    return Traffic(counted.bytes, counted.packets, counted.dropped_bytes, counted.dropped_packets)


def store_grant(bucket: BucketStruct, rate_bytes_per_s: int, burst_bytes: int) -> None:
    """Write the three words of a grant into a bucket in shared memory, in the order of this module."""
    bucket.rate_bytes_per_s = 0
    bucket.fill_ns = fill_ns(rate_bytes_per_s, burst_bytes)
    bucket.burst_bytes = burst_bytes
    bucket.rate_bytes_per_s = rate_bytes_per_s


def check_grant(rate_bytes_per_s: int, burst_bytes: int) -> None:
    """Raise ValueError unless credit arithmetic with this rate and depth stays below 2^63."""
    if not 0 <= rate_bytes_per_s <= MAX_RATE_BYTES_PER_S:
        raise ValueError(f"a rate of {rate_bytes_per_s} bytes/s: allowed is 0 to {MAX_RATE_BYTES_PER_S}")
    if not 0 <= burst_bytes <= MAX_BURST_BYTES:
        raise ValueError(f"a burst of {burst_bytes} bytes: allowed is 0 to {MAX_BURST_BYTES}")
