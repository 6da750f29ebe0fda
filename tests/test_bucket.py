"""The Python bucket by itself, and against the one in the kernel, bit for bit."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bpf import layout
from bpf.layout import BucketMode, ClassId
from tests import kernel_bucket as twin
from tests.bpf_machine import KEY, programs_fixture, tcp4
from tests.bpf_testrun import PASS, SkBuff, run
from tests.kernel_bucket import Bucket, BucketGrant, Discipline, charge, charge_both, refill

host = pytest.fixture(programs_fixture, scope="module")
PACKET = bytes(tcp4())
MODE = {Discipline.DEBT: BucketMode.DEBT, Discipline.DROP: BucketMode.DROP}

rates = st.one_of(st.integers(0, 10), st.integers(0, 1 << 20), st.integers(0, layout.MAX_RATE_BYTES_PER_S))
bursts = st.one_of(st.integers(0, 10), st.integers(0, 1 << 20), st.integers(0, layout.MAX_BURST_BYTES))
wire_lengths = st.integers(len(PACKET), 65_536)
ages_ns = st.one_of(st.integers(0, 10_000), st.integers(0, 10**9), st.integers(0, 1 << 62))
disciplines = st.sampled_from(Discipline)


@st.composite
def grants(draw):
    return BucketGrant(draw(rates), draw(bursts))


def credits_of(grant: BucketGrant) -> st.SearchStrategy[int]:
    """From the deepest debt to a little over full, as it is after a lowered depth; and close to the verdict's edges."""
    cost = len(PACKET) * twin.CREDIT_PER_BYTE
    near = st.sampled_from([-1, 0, 1, cost - 1, cost, cost + 1, grant.full_credit])
    deepest = -twin.DEEPEST_DEBT_BYTES * twin.CREDIT_PER_BYTE
    return st.one_of(near, st.integers(deepest, grant.full_credit + twin.CREDIT_PER_BYTE))


@pytest.mark.kernel
@pytest.mark.stock_kernel
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), grants(), disciplines, st.lists(wire_lengths, min_size=1, max_size=4))
def test_kernel_bucket_and_its_twin_agree_bit_for_bit(host, data, grant, discipline, lengths):
    """The kernel reads its clock itself: its time is read back, and the twin replays with it."""
    now_ns = time.monotonic_ns()
    model = Bucket(grant, data.draw(credits_of(grant)), max(0, now_ns - data.draw(ages_ns)))
    put(host, model, discipline)
    try:
        for wire_length in lengths:
            passes = run(host.egress_fd, PACKET, ctx=SkBuff(wire_len=wire_length)).verdict == PASS
            found = host.flows.lookup(KEY)
            model, expected = charge(model, discipline, wire_length, found.last_ns)
            assert (passes, found.credit, found.last_ns) == (expected, model.credit, model.last_ns)
            assert found.last_ns > now_ns
    finally:
        host.flows.delete(KEY)


@pytest.mark.kernel
@pytest.mark.stock_kernel
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), grants(), grants(), disciplines, wire_lengths)
def test_kernel_and_twin_agree_on_the_aggregate_and_on_what_is_given_back(
    host, data, grant, total, discipline, wire_length
):
    now_ns = time.monotonic_ns()
    flow = Bucket(grant, data.draw(credits_of(grant)), max(0, now_ns - data.draw(ages_ns)))
    aggregate = Bucket(total, data.draw(credits_of(total)), max(0, now_ns - data.draw(ages_ns)))
    put(host, flow, discipline, ClassId.PLANNED)
    put_aggregate(host, aggregate)
    try:
        passes = run(host.egress_fd, PACKET, ctx=SkBuff(wire_len=wire_length)).verdict == PASS
        found, found_total = host.flows.lookup(KEY), host.aggregate.state()
        flow, aggregate, expected = charge_both(flow, aggregate, discipline, wire_length, found.last_ns)
        assert (passes, found.credit, found_total.credit) == (expected, flow.credit, aggregate.credit)
        assert found_total.last_ns == aggregate.last_ns
    finally:
        host.flows.delete(KEY)
        host.aggregate.unset()


@pytest.mark.kernel
@pytest.mark.stock_kernel
def test_kernel_bucket_does_not_go_back_in_time(host):
    grant = BucketGrant(1 << 40, 1000)
    future_ns = time.monotonic_ns() + 10**12
    put(host, Bucket(grant, 5, future_ns), Discipline.DEBT)
    try:
        run(host.egress_fd, PACKET)
        found = host.flows.lookup(KEY)
        assert (found.last_ns, found.credit) == (future_ns, 5 - len(PACKET) * twin.CREDIT_PER_BYTE)
    finally:
        host.flows.delete(KEY)


def put(host, bucket: Bucket, discipline: Discipline, traffic_class: ClassId = ClassId.RESEARCH) -> None:
    host.flows.insert(
        KEY,
        traffic_class=traffic_class,
        mode=MODE[discipline],
        rate_bytes_per_s=bucket.grant.rate_bytes_per_s,
        burst_bytes=bucket.grant.burst_bytes,
        credit=bucket.credit,
        last_ns=bucket.last_ns,
    )


def put_aggregate(host, bucket: Bucket) -> None:
    host.aggregate.set_grant(bucket.grant.rate_bytes_per_s, bucket.grant.burst_bytes)
    host.aggregate.set_credit(0, bucket.credit, bucket.last_ns)


# --- the twin by itself ---


def test_twin_and_kernel_have_the_same_constants():
    assert twin.CREDIT_PER_BYTE == layout.CREDIT_PER_BYTE
    assert twin.DEEPEST_DEBT_BYTES == layout.DEEPEST_DEBT_BYTES


@given(grants(), st.integers(0, 1 << 62))
def test_twin_and_loader_agree_on_when_a_bucket_is_full(grant, elapsed_ns):
    fill_ns = layout.fill_ns(grant.rate_bytes_per_s, grant.burst_bytes)
    assert grant.fills_in(elapsed_ns) == (elapsed_ns >= fill_ns)


@given(grants(), disciplines, st.lists(st.tuples(wire_lengths, st.integers(0, 10**9)), max_size=30))
def test_bytes_let_through_never_exceed_rate_times_time_plus_burst_plus_one_packet(
    grant, discipline, arrivals
):
    bucket, now_ns, passed, longest = Bucket.full(grant, 0), 0, 0, 0
    for wire_length, gap_ns in arrivals:
        now_ns += gap_ns
        bucket, passes = charge(bucket, discipline, wire_length, now_ns)
        passed += wire_length * passes
        longest = max(longest, wire_length if discipline is Discipline.DEBT else 0)
        bound = grant.rate_bytes_per_s * now_ns + (grant.burst_bytes + longest) * twin.CREDIT_PER_BYTE
        assert passed * twin.CREDIT_PER_BYTE <= bound


@given(grants(), st.lists(wire_lengths, max_size=10), st.integers(0, 10**9))
def test_debt_is_at_most_one_packet(grant, lengths, gap_ns):
    bucket = Bucket.full(grant, 0)
    for n, wire_length in enumerate(lengths):
        bucket, _ = charge(bucket, Discipline.DEBT, wire_length, n * gap_ns)
        assert bucket.credit > -max(lengths) * twin.CREDIT_PER_BYTE - (grant.burst_bytes == 0)


@given(grants(), st.integers(0, 10**12), st.integers(0, 10**12))
def test_refilling_in_two_steps_is_refilling_in_one(grant, first_ns, second_ns):
    bucket = Bucket(grant, 0, 0)
    one = refill(bucket, first_ns + second_ns)
    two = refill(refill(bucket, first_ns), first_ns + second_ns)
    assert one.credit == two.credit or grant.fills_in(first_ns + second_ns)
