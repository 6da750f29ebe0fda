"""What an agent keeps of checkpoints that arrive, over real sockets, without the kernel's part."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import trio

from testbed.agent import events as ev
from testbed.agent.config import AgentConfig
from testbed.agent.edge import Edge
from testbed.agent.shipping import Shipping
from testbed.checkpoints import CheckpointStore
from testbed.transfer import send_checkpoint

pytestmark = pytest.mark.trio


@asynccontextmanager
async def receiving(
    tmp_path: Path,
) -> AsyncIterator[tuple[CheckpointStore, Shipping, tuple[str, int], list[ev.Event]]]:
    """A host that takes checkpoints: its store, its shipping, where it listens, what it told."""
    events: list[ev.Event] = []
    config = AgentConfig("h2", IPv4Address("127.0.0.1"), ("127.0.0.1", 1), tmp_path, data_port=0)
    with CheckpointStore(tmp_path / "store") as store:
        shipping = Shipping(store, Edge(config), lambda: False, events.append)
        listeners = await shipping.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shipping.serve, listeners)
            yield store, shipping, listeners[0].socket.getsockname(), events
            nursery.cancel_scope.cancel()


def ingest(store: CheckpointStore, sequence: int) -> None:
    store.scratch("s").write_bytes(sequence.to_bytes(8, "big") * 1000)
    store.ingest("job", sequence, sequence, store.scratch("s"))


async def test_attempts_that_a_newer_checkpoint_or_the_jobs_end_made_useless_are_collected(
    tmp_path: Path,
) -> None:
    with CheckpointStore(tmp_path / "own") as own:
        ingest(own, 5)
        async with receiving(tmp_path) as (store, shipping, address, events):
            directory = tmp_path / "store/job"
            directory.mkdir()
            for name in ("7.partial", "3.partial"):
                (directory / name).write_bytes(bytes(9))
            await send_checkpoint(own, own.get("job", 5), address, transfer="t", on_connected=lambda _: None)
            assert [type(event) for event in events] == [ev.CheckpointReceived]
            assert sorted(path.name for path in directory.iterdir()) == [
                "5.manifest",
                "5.payload",
                "7.partial",
            ]
            await shipping.drop("job", 2**62)
            assert list(directory.iterdir()) == []
            assert store.manifests() == []
