"""The bucket of the kernel (`bpf/src/egress.bpf.c`) against a twin in Python, bit for bit.

A token bucket is usually written with a division (tokens = rate * elapsed / 1e9) and loses a fraction of a byte at every
packet. Here credit is an integer in units of 1e-9 byte, so that bytes/s times ns is credit exactly and the state after n
packets depends on no rounding. Where the kernel must avoid overflow (`fill_ns`: after it, the bucket is full without
multiplying), the twin does the same: a bucket that is deeper in debt than any packet can make it would otherwise differ.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bpf.layout import (
    CREDIT_PER_BYTE,
    DEEPEST_DEBT_BYTES,
    MAX_BURST_BYTES,
    MAX_RATE_BYTES_PER_S,
    BucketMode,
    ClassId,
    fill_ns,
)
from tests.bpf_machine import KEY, PASS, SkBuff, run, tcp4

PACKET = bytes(tcp4())
COST = len(PACKET) * CREDIT_PER_BYTE
pytestmark = (
    pytest.mark.stock_kernel
)  # not `kernel`: programs and maps of each test are its own, and no clock is watched
on_one_host = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True, slots=True)
class Bucket:
    """Credit (1e-9 byte; negative is debt) as it was at `last_ns`, of a rate and a depth in wire bytes."""

    rate_bytes_per_s: int
    burst_bytes: int
    credit: int
    last_ns: int

    def at(self, now_ns: int) -> "Bucket":
        """Refilled; time that runs backwards changes nothing. A lowered depth takes effect here."""
        elapsed_ns = now_ns - self.last_ns
        if elapsed_ns <= 0:
            return self
        gain = self.burst_bytes * CREDIT_PER_BYTE - self.credit
        if gain > 0 and elapsed_ns < fill_ns(self.rate_bytes_per_s, self.burst_bytes):
            gain = min(gain, self.rate_bytes_per_s * elapsed_ns)
        return replace(self, credit=self.credit + gain, last_ns=now_ns)

    def charged(self, mode: BucketMode, packet_bytes: int, now_ns: int) -> tuple["Bucket", bool]:
        """(the bucket after a packet of `packet_bytes` on the wire, whether the packet passes).

        DEBT: while there is credit; DROP: if and only if the tokens exceed the packet's length (paper A, section VII-C).
        """
        filled = self.at(now_ns)
        cost = packet_bytes * CREDIT_PER_BYTE
        passes = filled.credit > (cost if mode is BucketMode.DROP else 0)
        return (replace(filled, credit=filled.credit - cost) if passes else filled), passes


rates = st.one_of(st.integers(0, 10), st.integers(0, 1 << 20), st.integers(0, MAX_RATE_BYTES_PER_S))
bursts = st.one_of(st.integers(0, 10), st.integers(0, 1 << 20), st.integers(0, MAX_BURST_BYTES))
wire_lengths = st.integers(len(PACKET), 65_536)
ages_ns = st.one_of(st.integers(0, 10_000), st.integers(0, 10**9), st.integers(0, 1 << 62))
modes = st.sampled_from([BucketMode.DEBT, BucketMode.DROP])


@st.composite
def buckets(draw: st.DrawFn) -> Bucket:
    """From the deepest debt to a little over full, as it is after a lowered depth; and close to the verdict's edges."""
    rate, burst = draw(rates), draw(bursts)
    near = st.sampled_from([-1, 0, 1, COST - 1, COST, COST + 1, burst * CREDIT_PER_BYTE])
    any_credit = st.integers(-DEEPEST_DEBT_BYTES * CREDIT_PER_BYTE, (burst + 1) * CREDIT_PER_BYTE)
    credit, age_ns = draw(st.one_of(near, any_credit)), draw(ages_ns)
    return Bucket(rate, burst, credit, max(0, time.monotonic_ns() - age_ns))


def put(host: Any, bucket: Bucket, mode: BucketMode, traffic_class: ClassId = ClassId.RESEARCH) -> None:
    slot = host.flows.insert(
        KEY,
        traffic_class=traffic_class,
        mode=mode,
        rate_bytes_per_s=bucket.rate_bytes_per_s,
        burst_bytes=bucket.burst_bytes,
    )
    host.flows.meters.set_credit(slot, bucket.credit, bucket.last_ns)


def passes(host: Any, wire_length: int) -> bool:
    return run(host.egress_fd, PACKET, ctx=SkBuff(wire_len=wire_length)).verdict == PASS


def edge(mode: BucketMode, credit: int) -> Any:
    """A packet that comes with so much credit: debt needs any, the literal bucket more than the packet's length."""
    return example(Bucket(0, 1000, credit, 1), mode, [len(PACKET)])


@on_one_host
@given(buckets(), modes, st.lists(wire_lengths, min_size=1, max_size=4))
@edge(BucketMode.DEBT, 0)
@edge(BucketMode.DEBT, 1)
@edge(BucketMode.DROP, COST)
@edge(BucketMode.DROP, COST + 1)
@example(Bucket(1 << 40, 1000, 5, 1 << 62), BucketMode.DEBT, [len(PACKET)])  # it does not go back in time
def test_kernel_bucket_and_its_twin_agree_bit_for_bit(host, model, mode, lengths):
    """The kernel reads its clock itself: its time is read back, and the twin replays with it."""
    now_ns = time.monotonic_ns()
    put(host, model, mode)
    try:
        for wire_length in lengths:
            passed = passes(host, wire_length)
            found = host.flows.lookup(KEY)
            model, expected = model.charged(mode, wire_length, found.last_ns)
            assert (passed, found.credit, found.last_ns) == (expected, model.credit, model.last_ns)
            assert found.last_ns > now_ns
    finally:
        host.flows.delete(KEY)


@on_one_host
@given(buckets(), buckets(), modes, wire_lengths)
def test_they_agree_on_the_aggregate_and_on_what_is_given_back(host, flow, aggregate, mode, wire_length):
    """A migration packet is charged to its flow, then (always as debt) to the host's aggregate; it needs both."""
    put(host, flow, mode, ClassId.PLANNED)
    host.aggregate.set_grant(aggregate.rate_bytes_per_s, aggregate.burst_bytes)
    host.aggregate.set_credit(0, aggregate.credit, aggregate.last_ns)
    try:
        passed = passes(host, wire_length)
        found, found_total = host.flows.lookup(KEY), host.aggregate.state()
        charged, expected = flow.charged(mode, wire_length, found.last_ns)
        if expected:
            aggregate, expected = aggregate.charged(BucketMode.DEBT, wire_length, found.last_ns)
        if not expected:
            charged = flow.at(found.last_ns)
        assert (passed, found.credit, found_total.credit) == (expected, charged.credit, aggregate.credit)
        assert found_total.last_ns == aggregate.last_ns
    finally:
        host.flows.delete(KEY)
        host.aggregate.unset()
