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
    fill_ns,
)
from bpf.memory import WritableMap

_BYTES = ctypes.sizeof(MeterStruct)
_MODE, _IN_USE = MeterStruct.mode.offset, MeterStruct.in_use.offset
_MIGRATIONS_ONLY = MeterStruct.migrations_only.offset
_BUCKET, _TRAFFIC = MeterStruct.bucket.offset // 8, MeterStruct.traffic.offset // 8
_CREDIT = _BUCKET + BucketStruct.credit.offset // 8
_LAST = _BUCKET + BucketStruct.last_ns.offset // 8
_RATE = _BUCKET + BucketStruct.rate_bytes_per_s.offset // 8
_BURST = _BUCKET + BucketStruct.burst_bytes.offset // 8
_FILL = _BUCKET + BucketStruct.fill_ns.offset // 8


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

    size_bytes = -(-_BYTES * MAX_FLOWS // mmap.PAGESIZE) * mmap.PAGESIZE

    def read(self, slot: int) -> MeterState:
        """Return the meter in `slot`."""
        at = slot * _BYTES // 8
        return MeterState(
            ClassId(self.u32[at * 2]),
            BucketMode(self.u8[slot * _BYTES + _MODE]),
            self.s64[at + _CREDIT],
            self.u64[at + _LAST],
            self.u64[at + _RATE],
            self.u64[at + _BURST],
            Traffic(*self.u64[at + _TRAFFIC : at + _TRAFFIC + 4]),
        )

    def dropped_packets(self, slot: int) -> int:
        """Return the packets of the meter in `slot` that were dropped."""
        return self.u64[slot * _BYTES // 8 + _TRAFFIC + 3]

    def is_in_use(self, slot: int) -> bool:
        """Return True while a flow owns the slot."""
        return self.u8[slot * _BYTES + _IN_USE] != 0

    def release(self, slot: int) -> None:
        """Give a slot back; its counters stay to be read until it is taken again."""
        self.u8[slot * _BYTES + _IN_USE] = 0

    def reset(self, slot: int, traffic_class: ClassId, mode: BucketMode) -> None:
        """Take a slot: counters 0, no rate. No packet may find the slot yet."""
        first = slot * _BYTES
        self.u8[first : first + _BYTES] = bytes(_BYTES)
        self.u32[first // 4] = traffic_class
        self.u8[first + _MODE] = mode
        self.u8[first + _IN_USE] = 1

    def set_mode(self, slot: int, mode: BucketMode) -> None:
        """Change the treatment of packets."""
        self.u8[slot * _BYTES + _MODE] = mode

    def charge_migrations_only(self, slot: int, yes: bool) -> None:
        """Set the bucket in that slot, a host's aggregate, to charge checkpoints or to let them pass uncharged."""
        self.u8[slot * _BYTES + _MIGRATIONS_ONLY] = yes

    def charges_migrations_only(self, slot: int) -> bool:
        """Return the setting of `charge_migrations_only`."""
        return self.u8[slot * _BYTES + _MIGRATIONS_ONLY] != 0

    def set_rate(self, slot: int, rate_bytes_per_s: int, burst_bytes: int) -> None:
        """Change the grant; credit and counters stay. ValueError outside of the range that cannot overflow."""
        check_grant(rate_bytes_per_s, burst_bytes)
        store_grant(self.u64, slot * _BYTES // 8, rate_bytes_per_s, burst_bytes)

    def set_credit(self, slot: int, credit: int | None = None, last_ns: int | None = None) -> None:
        """Set the credit (default: full) as true at `last_ns` (default: now). Only while no packet uses the slot."""
        at = slot * _BYTES // 8
        self.s64[at + _CREDIT] = self.u64[at + _BURST] * CREDIT_PER_BYTE if credit is None else credit
        self.u64[at + _LAST] = time.monotonic_ns() if last_ns is None else last_ns

    def find_free(self, after: int) -> int:
        """Return the first free slot behind `after`, round and round, so that a slot rests before it is used again.

        BpfError E2BIG: all are taken.
        """
        for step in range(1, MAX_FLOWS + 1):
            slot = (after + step) % MAX_FLOWS
            if not self.is_in_use(slot):
                return slot
        raise BpfError(f"all {MAX_FLOWS} flows that a host can have are in use", errno.E2BIG)


def store_grant(words: memoryview[int], meter: int, rate_bytes_per_s: int, burst_bytes: int) -> None:
    """Write the three words of a grant into the meter at word `meter` of a map's memory, in the order of this module."""
    words[meter + _RATE] = 0
    words[meter + _FILL] = fill_ns(rate_bytes_per_s, burst_bytes)
    words[meter + _BURST] = burst_bytes
    words[meter + _RATE] = rate_bytes_per_s


def check_grant(rate_bytes_per_s: int, burst_bytes: int) -> None:
    """Raise ValueError unless credit arithmetic with this rate and depth stays below 2^63."""
    if not 0 <= rate_bytes_per_s <= MAX_RATE_BYTES_PER_S:
        raise ValueError(f"a rate of {rate_bytes_per_s} bytes/s: allowed is 0 to {MAX_RATE_BYTES_PER_S}")
    if not 0 <= burst_bytes <= MAX_BURST_BYTES:
        raise ValueError(f"a burst of {burst_bytes} bytes: allowed is 0 to {MAX_BURST_BYTES}")
