"""The twin of the kernel's bucket (`bpf/src/egress.bpf.c`), bit for bit: what the program is held to.

A token bucket is usually written with a division (tokens = rate * elapsed / 1e9) and loses a fraction of a byte at every
packet. Here credit is an integer in units of 1e-9 byte, so that bytes/s times ns is credit exactly and the state after n
packets depends on no rounding: that is what allows "bit for bit" between C and Python. Where the kernel must avoid
overflow (`fill_ns`: after it, the bucket is full without multiplying), the twin does the same, although Python needs not,
because a bucket that is deeper in debt than any packet can make it would otherwise differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

CREDIT_PER_BYTE = 1_000_000_000
DEEPEST_DEBT_BYTES = 1 << 26


class Discipline(StrEnum):
    """Which packets pass."""

    DEBT = "debt"  # while there is credit; charged afterwards, so at most one super-packet of debt
    DROP = "drop"  # if and only if the tokens exceed the packet's length (paper A, section VII-C)


@dataclass(frozen=True, slots=True)
class BucketGrant:
    """A rate and a depth, in wire bytes."""

    rate_bytes_per_s: int
    burst_bytes: int

    @property
    def full_credit(self) -> int:
        """Credit of a full bucket, 1e-9 byte."""
        return self.burst_bytes * CREDIT_PER_BYTE

    def fills_in(self, elapsed_ns: int) -> bool:
        """Whether a bucket is full after this time, however deep its debt was."""
        if self.rate_bytes_per_s == 0:
            return False
        owed = (self.burst_bytes + DEEPEST_DEBT_BYTES) * CREDIT_PER_BYTE
        return elapsed_ns >= -(-owed // self.rate_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Credit (1e-9 byte; negative is debt) as it was at `last_ns`."""

    grant: BucketGrant
    credit: int
    last_ns: int

    @classmethod
    def full(cls, grant: BucketGrant, now_ns: int) -> Bucket:
        """A bucket as a new flow gets it."""
        return cls(grant, grant.full_credit, now_ns)


def refill(bucket: Bucket, now_ns: int) -> Bucket:
    """The bucket at `now_ns`; time that runs backwards changes nothing. A lowered depth takes effect here."""
    elapsed_ns = now_ns - bucket.last_ns
    if elapsed_ns <= 0:
        return bucket
    gain = bucket.grant.full_credit - bucket.credit
    if gain > 0 and not bucket.grant.fills_in(elapsed_ns):
        gain = min(gain, bucket.grant.rate_bytes_per_s * elapsed_ns)
    return replace(bucket, credit=bucket.credit + gain, last_ns=now_ns)


def charge(bucket: Bucket, discipline: Discipline, packet_bytes: int, now_ns: int) -> tuple[Bucket, bool]:
    """(the bucket after a packet of `packet_bytes` on the wire, whether the packet passes)."""
    filled = refill(bucket, now_ns)
    cost = packet_bytes * CREDIT_PER_BYTE
    passes = filled.credit > (cost if discipline is Discipline.DROP else 0)
    return (replace(filled, credit=filled.credit - cost) if passes else filled), passes


def give_back(bucket: Bucket, packet_bytes: int) -> Bucket:
    """The charge undone: another bucket refused the packet."""
    return replace(bucket, credit=bucket.credit + packet_bytes * CREDIT_PER_BYTE)


def charge_both(
    flow: Bucket, aggregate: Bucket, discipline: Discipline, packet_bytes: int, now_ns: int
) -> tuple[Bucket, Bucket, bool]:
    """A migration packet: charged to its flow, then (always as debt) to the host's aggregate; it needs both."""
    flow, passes = charge(flow, discipline, packet_bytes, now_ns)
    if not passes:
        return flow, aggregate, False
    aggregate, passes = charge(aggregate, Discipline.DEBT, packet_bytes, now_ns)
    return (flow if passes else give_back(flow, packet_bytes)), aggregate, passes
