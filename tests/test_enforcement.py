"""From a grant to socket options and buckets, the read-back that catches a difference, and what a transfer may hand over."""

import json
import os
import socket
import struct
import subprocess
import time
from contextlib import suppress

import pytest
import trio

from bpf.layout import BucketMode, ClassId
from testbed.agent.core.effects import StartSending
from testbed.agent.io.paced_send import TRICKLE_S, PacedSend
from testbed.bounds import TRICKLE_BYTES_PER_S
from testbed.enforcement import (
    DROP_BURST_BYTES,
    GUARD_SLACK,
    PARKED_BYTES_PER_S,
    SO_MAX_PACING_RATE,
    TSO_RTT_LOG,
    Enforcement,
    FlowGuard,
    choose_congestion,
    congestion_of,
    flow_key,
    marked_dscp,
    paced_rate,
    set_aggregate,
    smooth_pacing,
    wire_rate,
)
from testbed.errors import KernelMismatch, SetupError
from testbed.messages import Endpoint
from testbed.transfer import SENDFILE_BYTES
from tests.bpf_machine import in_own_namespace
from tests.emulation_campuses import needs_root
from topologies.spec import TrafficClass
from topologies.units import MBIT_PER_S

GRANT = 50 * MBIT_PER_S
FIRST_WINDOW_BYTES = 11 * 65_536  # ten segments of loopback's size, and one that is under way


@pytest.fixture
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname()[:2])
        served, _ = server.accept()
    try:
        yield client, served
    finally:
        client.close()
        served.close()


def test_without_bpf_a_grant_is_pacing_and_marking_only(pair):
    guard = FlowGuard(None, pair[0], TrafficClass.PRESYNC, GRANT)
    found = guard.readback()
    assert found.pacing_bytes_per_s == paced_rate(GRANT)
    assert found.bucket_bytes_per_s is None
    assert found.traffic_class is TrafficClass.PRESYNC
    assert found.congestion == congestion_of(pair[0])
    assert marked_dscp(pair[0]) == 8
    assert guard.close() is None


def test_pacing_is_at_most_one_percent_under_the_grant_and_never_over_it():
    for grant in (1, 1.9, 200, 625_000.5, 6e9):
        assert 0.99 * grant - 1 <= paced_rate(grant) <= grant


@pytest.mark.kernel
@pytest.mark.stock_kernel
def test_smooth_pacing_is_a_setting_of_the_namespace_it_is_called_in():
    if os.geteuid() != 0 or not TSO_RTT_LOG.exists():
        pytest.skip("needs root and a kernel with tcp_tso_rtt_log (5.18)")
    outside = TSO_RTT_LOG.read_text()

    def body() -> None:
        assert smooth_pacing()
        assert TSO_RTT_LOG.read_text() == "0\n"

    in_own_namespace(body)
    assert TSO_RTT_LOG.read_text() == outside


@pytest.mark.kernel
@pytest.mark.stock_kernel
@pytest.mark.parametrize(
    ("enforcement", "pacing", "bucket", "mode"),
    [
        (Enforcement.PACE, paced_rate(GRANT), int(wire_rate(GRANT) * GUARD_SLACK), BucketMode.DEBT),
        (Enforcement.DROP, None, int(wire_rate(GRANT)), BucketMode.DROP),
        (Enforcement.NONE, None, None, BucketMode.ACCOUNT),
    ],
)
def test_a_flow_is_paced_below_its_bucket_or_stands_at_the_literal_one_or_is_only_marked_and_counted(
    host, pair, enforcement, pacing, bucket, mode
):
    guard = FlowGuard(host, pair[0], TrafficClass.PLANNED, GRANT, enforcement)
    found, state = guard.readback(), host.flows.lookup(flow_key(pair[0]))
    assert (found.pacing_bytes_per_s, found.bucket_bytes_per_s) == (pacing, bucket)
    assert (state.mode, state.traffic_class) == (mode, ClassId.PLANNED)
    if mode is BucketMode.DEBT:
        assert bucket > wire_rate(pacing) and state.burst_bytes >= 2 * 65_536
    if mode is BucketMode.DROP:
        assert state.burst_bytes == DROP_BURST_BYTES


@pytest.mark.kernel
@pytest.mark.stock_kernel
@pytest.mark.parametrize("rates", [(GRANT, 2 * GRANT), (GRANT, GRANT / 3), (1e3, 1e10)])
def test_regrant_moves_pacing_and_bucket_and_never_the_bucket_below_the_pacing(host, pair, rates, monkeypatch):
    guard, rooms = FlowGuard(host, pair[0], TrafficClass.PRESYNC, rates[0]), []

    def watched(step):
        def take():
            step()
            pacing = struct.unpack("@Q", pair[0].getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8))[0]
            rooms.append(host.flows.lookup(guard.key).rate_bytes_per_s - wire_rate(pacing))

        return take

    for name in ("_pace", "_set_bucket"):
        monkeypatch.setattr(guard, name, watched(getattr(guard, name)))
    guard.regrant(rates[1])
    assert len(rooms) == 2 and min(rooms) >= 0
    found = guard.readback()
    assert found.pacing_bytes_per_s == paced_rate(rates[1])
    assert found.bucket_bytes_per_s == int(wire_rate(rates[1]) * GUARD_SLACK)


@pytest.mark.parametrize("grant", [0, -1.0, 0.5, float("nan")])
def test_grant_that_is_not_positive_is_refused(pair, grant):
    with pytest.raises(ValueError, match="at least 1 is needed"):
        FlowGuard(None, pair[0], TrafficClass.PRESYNC, grant)


def test_pacing_that_somebody_changed_is_a_mismatch(pair):
    guard = FlowGuard(None, pair[0], TrafficClass.PRESYNC, GRANT)
    pair[0].setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 1234)
    with pytest.raises(KernelMismatch, match=r"reports FlowState.pacing_bytes_per_s=1234"):
        guard.readback()


@pytest.mark.kernel
@pytest.mark.stock_kernel
def test_bucket_that_somebody_changed_or_removed_is_a_mismatch(host, pair):
    guard = FlowGuard(host, pair[0], TrafficClass.PRESYNC, GRANT)
    host.flows.update_rate(guard.key, 1, 2000)
    with pytest.raises(KernelMismatch, match=r"reports .*bucket_bytes_per_s=1,"):
        guard.readback()
    host.flows.delete(guard.key)
    with pytest.raises(KernelMismatch, match="flow table"):
        guard.readback()


def test_congestion_control_is_chosen_by_name_or_by_preference(pair):
    assert choose_congestion(pair[0], "cubic") == congestion_of(pair[0]) == "cubic"
    assert choose_congestion(pair[0]) == congestion_of(pair[0])
    with pytest.raises(SetupError, match="no congestion control nonsense"):
        choose_congestion(pair[0], "nonsense")


@pytest.mark.kernel
@pytest.mark.stock_kernel
def test_aggregate_is_set_in_wire_bytes(host):
    set_aggregate(host, GRANT)
    state = host.aggregate.state()
    assert (state.mode, state.rate_bytes_per_s) == (BucketMode.DEBT, int(wire_rate(GRANT)))
    assert not host.aggregate.migrations_only
    set_aggregate(host, GRANT, migrations_only=True)
    set_aggregate(host, GRANT / 2.0)  # as a link that changes has it done
    assert host.aggregate.migrations_only


def test_paced_flow_does_not_outrun_its_grant(pair):
    assert_paced(*pair)


@pytest.mark.kernel
@pytest.mark.stock_kernel
@needs_root
def test_paced_flow_does_not_outrun_its_grant_where_fq_does_the_pacing():
    def body():
        made = subprocess.run("ip link set lo up && tc qdisc add dev lo root fq", shell=True, check=False)
        if made.returncode:
            pytest.skip("this kernel has no fq")
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = socket.create_connection(server.getsockname())
            served, _ = server.accept()
        with client, served:
            assert_paced(client, served)
        shown = subprocess.run(["tc", "-s", "-j", "qdisc", "show", "dev", "lo"], capture_output=True, check=True)
        assert json.loads(shown.stdout)[0]["throttled"] > 0  # packets that fq, and not TCP's own timer, held back

    in_own_namespace(body)


def assert_paced(client, served):
    """3 MB at 5 MB/s over loopback: what the receiver has may exceed the grant by the first window only."""
    FlowGuard(None, client, TrafficClass.PRESYNC, 5e6, congestion="cubic")
    client.setblocking(False)
    served.settimeout(5)
    began_s, received = time.monotonic(), 0
    while received < 3e6:
        with suppress(BlockingIOError):
            client.send(bytes(1 << 16))
        received += len(served.recv(1 << 16))
        assert received <= 5e6 * (time.monotonic() - began_s) + FIRST_WINDOW_BYTES


GRANTED = 2e6


def paced_send(maps, rate_bytes_per_s):
    order = StartSending("job", 1, Endpoint("h2", "127.0.0.1", 7200), rate_bytes_per_s, TrafficClass.PLANNED)
    return PacedSend(order, lambda sock, rate: FlowGuard(maps, sock, order.traffic_class, rate))


async def test_a_flow_that_is_granted_nothing_trickles_once_a_second_and_a_rise_ends_its_waiting(autojump_clock):
    send = paced_send(None, 0.0)
    began_s = trio.current_time()
    assert [await send.allowance() for _ in range(3)] == [TRICKLE_BYTES_PER_S * TRICKLE_S] * 3
    assert trio.current_time() - began_s == pytest.approx(3.0 * TRICKLE_S)
    async with trio.open_nursery() as nursery:

        async def rise():
            await trio.sleep(TRICKLE_S / 4)
            send.regrant(GRANTED)

        nursery.start_soon(rise)
        assert await send.allowance() == SENDFILE_BYTES
    assert trio.current_time() - began_s == pytest.approx(3.25 * TRICKLE_S)
    send.regrant(0.0)
    assert await send.allowance() < SENDFILE_BYTES
    send.regrant(GRANTED)
    assert await send.allowance() == SENDFILE_BYTES
    assert trio.current_time() - began_s == pytest.approx(4.25 * TRICKLE_S)


async def test_a_rate_that_comes_while_a_sender_connects_again_is_that_of_its_next_connection(pair):
    send = paced_send(None, GRANTED)
    first, second = pair
    send.connected(first)
    first.close()
    send.regrant(2.0 * GRANTED)
    send.connected(second)
    assert send.guard.readback().pacing_bytes_per_s == paced_rate(2.0 * GRANTED)


async def test_goodput_is_what_arrived_over_what_was_allowed_since_the_first_byte(pair, autojump_clock, monkeypatch):
    monkeypatch.setattr("testbed.agent.io.paced_send.unacknowledged_bytes", lambda _: 1)
    send, found = paced_send(None, GRANTED), []
    for sock in pair:  # it connects again
        send.connected(sock)
        await trio.sleep(1.0)
    assert send.allowed_bytes() == pytest.approx(2.0 * GRANTED)
    send.progressed(1, 0)
    for wait_s, acknowledged in ((0.4, 1_500_000), (0.6, 1_000_000), (0.0, 1_500_000)):
        await trio.sleep(wait_s)
        send.progressed(acknowledged + 1, 0)
        send.sample()
        found.append(send.goodput_over_grant())
    assert found == [None, None, pytest.approx(0.75)], "too short, too little"


@pytest.mark.kernel
@pytest.mark.stock_kernel
async def test_a_parked_flow_keeps_its_pacing_and_its_bucket_falls_when_its_socket_is_empty(host, pair):
    client, served = pair
    send = paced_send(host, GRANTED)
    send.connected(client)
    # more than the receiver takes: something stays unacknowledged
    client.setblocking(False)
    while True:
        try:
            client.send(bytes(1 << 20))
        except BlockingIOError:
            break
    send.regrant(0.0)
    send.sample()
    readback = send.guard.readback()
    assert readback.bucket_bytes_per_s == int(wire_rate(GRANTED) * GUARD_SLACK)  # what is under way still leaves
    served.setblocking(False)
    with trio.fail_after(30.0):
        while send.guard.readback() == readback:
            with suppress(BlockingIOError):
                served.recv(1 << 22)
            send.sample()
            await trio.sleep(0.005)
    parked = send.guard.readback()
    assert parked.bucket_bytes_per_s == int(wire_rate(PARKED_BYTES_PER_S) * GUARD_SLACK)
    assert parked.pacing_bytes_per_s == paced_rate(GRANTED)
    send.regrant(2 * GRANTED)
    opened = send.guard.readback()
    assert opened.pacing_bytes_per_s == paced_rate(2 * GRANTED)
    assert opened.bucket_bytes_per_s == int(wire_rate(2 * GRANTED) * GUARD_SLACK)
    send.close()
