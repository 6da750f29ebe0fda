"""An agent's part of the kernel: slots of the flow table, and what happens when there are none."""

from contextlib import AsyncExitStack
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import trio
import trio.testing

from bpf.layout import MAX_FLOWS, BucketMode, ClassId
from bpf.maps import FlowKey
from testbed.agent.config import AgentConfig
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.io.kernel_maps import MAX_MARKED, KernelMaps
from testbed.agent.io.transfers import Transfers
from testbed.checkpoints import CheckpointStore
from testbed.enforcement import set_aggregate, wire_rate
from testbed.messages import Endpoint, Expect
from tests.patience import until
from tests.stores import ingest
from topologies.spec import TrafficClass

pytestmark = pytest.mark.kernel
LOOPBACK = IPv4Address("127.0.0.1")


class Ends(list[ev.Event]):
    """The events of a Transfers, to be waited for."""

    async def first(self) -> ev.Event:
        return (await until(lambda: self))[0]


def edge_of(host, tmp_path: Path) -> KernelMaps:
    edge = KernelMaps(AgentConfig("h1", LOOPBACK, ("127.0.0.1", 1), tmp_path, congestion="cubic"))
    edge.maps = host
    return edge


def shipping_of(edge: KernelMaps, store: CheckpointStore) -> tuple[Transfers, Ends]:
    ends = Ends()
    announced = {7: Expect(7, "job", 1, 1, "h1", 1 << 20)}
    return Transfers(store, edge, lambda: False, lambda: announced, ends.append), ends


def order_to(listener: trio.SocketListener) -> do.StartSending:
    port = listener.socket.getsockname()[1]
    return do.StartSending("job", 1, Endpoint("h2", "127.0.0.1", port, ticket=7), 1e8, TrafficClass.PRESYNC)


async def test_idle_connections_take_no_slots_from_transfers(host, tmp_path):
    edge = edge_of(host, tmp_path)
    with CheckpointStore(tmp_path / "own") as own, CheckpointStore(tmp_path / "other") as other:
        ingest(own, bytes(100_000))
        sender, ends = shipping_of(edge, own)
        receiver, _ = shipping_of(edge, other)
        listeners = await trio.open_tcp_listeners(0, host=str(LOOPBACK))
        async with AsyncExitStack() as idle, trio.open_nursery() as nursery:
            nursery.start_soon(receiver.serve, listeners)
            port = listeners[0].socket.getsockname()[1]
            for number in range(100):  # from five hosts, so that none of them has too many
                source = f"127.0.0.{2 + number % 5}"
                stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=source)
                idle.push_async_callback(trio.aclose_forcefully, stream)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert list(host.flows.items()) == []
            sender.begin(order_to(listeners[0]), nursery)
            ended = await ends.first()
            nursery.cancel_scope.cancel()
    assert ended.account.ok, ended.account.reason


async def test_transfer_without_a_slot_ends_with_the_reason_and_may_be_tried_again(host, tmp_path):
    for port in range(MAX_FLOWS):
        key = FlowKey(LOOPBACK, 1 + port, LOOPBACK, 1)
        host.flows.insert(key, traffic_class=ClassId.EMERGENCY, mode=BucketMode.ACCOUNT)
    with CheckpointStore(tmp_path / "own") as own:
        ingest(own, bytes(100_000))
        sender, ends = shipping_of(edge_of(host, tmp_path), own)
        listeners = await trio.open_tcp_listeners(0, host=str(LOOPBACK))
        async with trio.open_nursery() as nursery:
            sender.begin(order_to(listeners[0]), nursery)
            ended = await ends.first()
    assert (ended.account.ok, ended.retryable) == (False, True)
    assert f"all {MAX_FLOWS} flows" in ended.account.reason
    assert sender.counts() == []


async def test_marked_connections_leave_half_of_the_table(host, tmp_path):
    edge = edge_of(host, tmp_path)
    listeners = await trio.open_tcp_listeners(0, host=str(LOOPBACK))
    port = listeners[0].socket.getsockname()[1]
    async with AsyncExitStack() as held:
        for _ in range(MAX_MARKED + 3):
            stream = await held.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
            held.enter_context(edge.as_metadata(stream))
        assert len(list(host.flows.items())) == MAX_MARKED
    assert list(host.flows.items()) == []


async def test_an_agent_that_starts_again_leaves_the_share_at_what_its_link_has_become(host, tmp_path, monkeypatch):
    # it is the machine's here
    monkeypatch.setattr("testbed.agent.io.kernel_maps.smooth_pacing", lambda: None)
    edge = edge_of(host, tmp_path)
    edge.config = replace(edge.config, migration_share_bytes_per_s=50e6)
    edge.prepare()
    assert host.aggregate.state().rate_bytes_per_s == int(wire_rate(50e6))
    set_aggregate(host, 20e6)  # since its successor was told the share
    edge.prepare()
    assert host.aggregate.state().rate_bytes_per_s == int(wire_rate(20e6))
