"""What a transfer may hand over while it is granted something, nothing, and something again."""

import socket
from contextlib import suppress

import pytest
import trio

from testbed.agent.core.effects import StartSending
from testbed.agent.io.paced_send import TRICKLE_S, PacedSend
from testbed.bounds import TRICKLE_BYTES_PER_S
from testbed.enforcement import GUARD_SLACK, PARKED_BYTES_PER_S, FlowGuard, paced_rate, wire_rate
from testbed.messages import Endpoint
from testbed.transfer import SENDFILE_BYTES
from topologies.spec import TrafficClass

GRANT = 2e6


@pytest.fixture
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname()[:2])
        served, _ = server.accept()
    with client, served:
        yield client, served


def paced_send(maps, rate_bytes_per_s):
    order = StartSending("job", 1, Endpoint("h2", "127.0.0.1", 7200), rate_bytes_per_s, TrafficClass.PLANNED)
    return PacedSend(order, lambda sock, rate: FlowGuard(maps, sock, order.traffic_class, rate))


@pytest.mark.trio
async def test_a_flow_that_is_granted_nothing_trickles_once_a_second_and_a_rise_ends_its_waiting(
    autojump_clock,
):
    send = paced_send(None, 0.0)
    began_s = trio.current_time()
    assert [await send.allowance() for _ in range(3)] == [TRICKLE_BYTES_PER_S * TRICKLE_S] * 3
    assert trio.current_time() - began_s == pytest.approx(3.0 * TRICKLE_S)
    async with trio.open_nursery() as nursery:

        async def rise():
            await trio.sleep(TRICKLE_S / 4)
            send.regrant(GRANT)

        nursery.start_soon(rise)
        assert await send.allowance() == SENDFILE_BYTES
    assert trio.current_time() - began_s == pytest.approx(3.25 * TRICKLE_S)
    send.regrant(0.0)
    assert await send.allowance() < SENDFILE_BYTES
    send.regrant(GRANT)
    assert await send.allowance() == SENDFILE_BYTES
    assert trio.current_time() - began_s == pytest.approx(4.25 * TRICKLE_S)


@pytest.mark.trio
async def test_a_rate_that_comes_while_a_sender_connects_again_is_that_of_its_next_connection(pair):
    send = paced_send(None, GRANT)
    first, second = pair
    send.connected(first)
    first.close()
    send.regrant(2.0 * GRANT)
    send.connected(second)
    assert send.guard.readback().pacing_bytes_per_s == paced_rate(2.0 * GRANT)


@pytest.mark.kernel
@pytest.mark.stock_kernel
@pytest.mark.trio
async def test_a_parked_flow_keeps_its_pacing_and_its_bucket_falls_when_its_socket_is_empty(host, pair):
    client, served = pair
    send = paced_send(host, GRANT)
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
    assert readback.bucket_bytes_per_s == int(
        wire_rate(GRANT) * GUARD_SLACK
    )  # what is under way still leaves
    served.setblocking(False)
    with trio.fail_after(30.0):
        while send.guard.readback() == readback:
            with suppress(BlockingIOError):
                served.recv(1 << 22)
            send.sample()
            await trio.sleep(0.005)
    parked = send.guard.readback()
    assert parked.bucket_bytes_per_s == int(wire_rate(PARKED_BYTES_PER_S) * GUARD_SLACK)
    assert parked.pacing_bytes_per_s == paced_rate(GRANT)
    send.regrant(2 * GRANT)
    opened = send.guard.readback()
    assert opened.pacing_bytes_per_s == paced_rate(2 * GRANT)
    assert opened.bucket_bytes_per_s == int(wire_rate(2 * GRANT) * GUARD_SLACK)
    send.close()
