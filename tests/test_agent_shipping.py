"""What an agent keeps of checkpoints that arrive, over real sockets, without the kernel's part."""

import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from testbed.agent.config import AgentConfig
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.announced import Announced
from testbed.agent.io.kernel_maps import KernelMaps
from testbed.agent.io.transfers import Transfers
from testbed.bounds import LARGEST_SEQUENCE
from testbed.checkpoints import CheckpointStore
from testbed.messages import Endpoint, Expect, JobSpec
from testbed.transfer import SendResult, TransferFailed, send_checkpoint
from testbed.wire import MAX_BYTES
from testbed.workloads.launch import ForkServer
from testbed.workloads.messages import Finished
from testbed.workloads.process import Exited, WorkloadProcess
from tests.job_desk import agent_jobs
from topologies.spec import TrafficClass

pytestmark = pytest.mark.alone


@asynccontextmanager
async def receiving(
    tmp_path: Path, announced: Announced | None = None, *, closed: bool = False
) -> AsyncIterator[tuple[CheckpointStore, Transfers, tuple[str, int], list[ev.Event]]]:
    """A host that takes checkpoints: its store, its shipping, where it listens, what it told."""
    if announced is None:
        announced = {TRUE.ticket: TRUE}
    events: list[ev.Event] = []
    config = AgentConfig("h2", IPv4Address("127.0.0.1"), ("127.0.0.1", 1), tmp_path, data_port=0)
    with CheckpointStore(tmp_path / "store") as store:
        shipping = Transfers(store, KernelMaps(config), lambda: closed, lambda: announced, events.append)
        listeners = await shipping.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shipping.serve, listeners)
            yield store, shipping, listeners[0].socket.getsockname(), events
            nursery.cancel_scope.cancel()


def ingest(store: CheckpointStore, sequence: int, step: int = 1) -> None:
    store.scratch("s").write_bytes(sequence.to_bytes(8, "big") * 1000)
    store.ingest("job", sequence, step, store.scratch("s"))


async def send(store: CheckpointStore, sequence: int, address: tuple[str, int], ticket: int) -> SendResult:
    return await send_checkpoint(store, "job", sequence, address, ticket=ticket, on_connected=lambda _: None)


JOB = JobSpec("job", 1000, 0.1, 1000)
TRUE = Expect(7, "job", 1, 999, "h1", 10_000)


async def test_attempts_that_a_newer_checkpoint_or_the_jobs_end_made_useless_are_collected(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path / "own") as own:
        ingest(own, 5)
        async with receiving(tmp_path) as (store, shipping, address, events):
            directory = tmp_path / "store/job"
            directory.mkdir()
            for name in ("7.partial", "3.partial"):
                (directory / name).write_bytes(bytes(9))
            await send(own, 5, address, TRUE.ticket)
            assert [type(event) for event in events] == [ev.CheckpointReceived]
            assert sorted(path.name for path in directory.iterdir()) == ["5.manifest", "5.payload", "7.partial"]
            await shipping.drop("job", 2**62)
            assert list(directory.iterdir()) == []
            assert store.manifests() == []


async def test_checkpoint_that_is_being_sent_on_stays_until_its_transfer_has_ended_though_newer_ones_come(
    tmp_path: Path,
) -> None:
    with CheckpointStore(tmp_path / "own") as own, socket.create_server(("127.0.0.1", 0)) as silent:
        vault = Endpoint("h3", "127.0.0.1", silent.getsockname()[1], 1)
        async with receiving(tmp_path) as (store, shipping, address, _), trio.open_nursery() as nursery:

            async def arrives(sequence: int) -> list[int]:
                ingest(own, sequence)
                await send(own, sequence, address, TRUE.ticket)
                return [manifest.sequence for manifest in store.manifests()]

            assert await arrives(5) == [5]
            for _ in range(2):  # given up, it ends while the next one begins
                shipping.abort("job", "h3")
                shipping.begin(do.StartSending("job", 5, vault, 1e6, TrafficClass.PRESYNC), nursery)
                await trio.testing.wait_all_tasks_blocked()
            assert list(shipping.sends) == [("job", "h3")]
            assert await arrives(6) == [5, 6]
            assert await arrives(7) == [5, 7]
            shipping.abort("job", "h3")
            assert await arrives(8) == [8]


async def test_forged_checkpoint_of_a_later_sequence_is_refused_and_the_true_one_stays(tmp_path: Path) -> None:
    """`job, sequence 2**62 - 1, step 99999`, pushed by a host that was not told to, made its receiver delete the true ones."""
    with CheckpointStore(tmp_path / "own") as own, CheckpointStore(tmp_path / "forger") as forger:
        ingest(own, 5)
        ingest(forger, LARGEST_SEQUENCE, step=99_999)
        async with receiving(tmp_path) as (store, _, address, events):
            await send(own, 5, address, TRUE.ticket)
            with pytest.raises(TransferFailed, match="announced, not 4611686018427387903") as refused:
                await send(forger, LARGEST_SEQUENCE, address, TRUE.ticket)
            assert not refused.value.retryable
            assert [manifest.sequence for manifest in store.manifests()] == [5]
            assert [type(event) for event in events] == [ev.CheckpointReceived]


@pytest.mark.parametrize(("closed", "ticket", "says"), [(True, 7, "the owner has"), (False, 99, "no such transfer")])
async def test_what_is_not_announced_may_be_tried_again_and_what_an_owner_refuses_may_not(
    tmp_path: Path, closed: bool, ticket: int, says: str
) -> None:
    with CheckpointStore(tmp_path / "own") as own:
        ingest(own, 5)
        async with receiving(tmp_path, closed=closed) as (_, _, address, _):
            with pytest.raises(TransferFailed, match=says) as refused:
                await send(own, 5, address, ticket)
    assert refused.value.retryable is not closed


async def test_hello_that_overtakes_its_announcement_waits_for_it(tmp_path: Path) -> None:
    announced: dict[int, Expect] = {}
    with CheckpointStore(tmp_path / "own") as own:
        ingest(own, 5)
        async with receiving(tmp_path, announced) as (store, _, address, _), trio.open_nursery() as nursery:
            nursery.start_soon(send, own, 5, address, TRUE.ticket)
            await trio.sleep(0.1)
            assert store.manifests() == []
            announced[TRUE.ticket] = TRUE
    assert TRUE.ticket in announced
    with CheckpointStore(tmp_path / "store") as store:
        assert [manifest.sequence for manifest in store.manifests()] == [5]


async def test_job_that_finished_before_it_was_killed_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process says last and how it ends, in one event."""

    class Ended:
        async def __aiter__(self) -> AsyncIterator[object]:
            yield Finished(1000, b"\1")
            yield Exited(-signal.SIGKILL, "killed by SIGKILL", from_outside=True)

        async def stop(self, grace_s: float) -> None:
            """It has ended."""

    async def start(*_: object, **__: object) -> Ended:
        return Ended()

    monkeypatch.setattr(WorkloadProcess, "start", start)
    with agent_jobs(tmp_path) as jobs:
        jobs.expect(("job", 1))
        await jobs.run(JOB, 1, None)
        [ended] = jobs.events
    assert (ended.ended.outcome, ended.ended.digest) == ("finished", "01")


@pytest.mark.parametrize("how", ["kill", "end"])
async def test_job_that_is_ended_before_its_process_exists_does_not_run(tmp_path: Path, how: str) -> None:
    with agent_jobs(tmp_path) as jobs, trio.fail_after(60.0):  # it would compute for longer
        async with trio.open_nursery() as nursery:
            jobs.begin(nursery, JOB)
            if how == "kill":
                jobs.kill(("job", 1))
            else:
                await jobs.end(("job", 1), 60.0)
    assert len([event for event in jobs.events if isinstance(event, ev.WorkloadEnded)]) == (how == "end")


def children_of(forks: ForkServer) -> list[str]:
    return Path(f"/proc/{forks.pid}/task/{forks.pid}/children").read_text().split()


async def test_jobs_have_ended_when_their_agent_has(tmp_path: Path) -> None:
    with agent_jobs(tmp_path) as jobs:
        async with trio.open_nursery() as nursery:
            jobs.begin(nursery, JOB)
            await jobs.until(ev.WorkloadStarted)
            assert children_of(jobs.forks) != []
            nursery.cancel_scope.cancel()
        assert children_of(jobs.forks) == []
        assert list((tmp_path / "logs").iterdir()) == [], "it wrote nothing"


async def test_job_that_its_process_cannot_be_told_of_has_failed_and_has_no_process(tmp_path: Path) -> None:
    with agent_jobs(tmp_path) as jobs:
        jobs.expect(("job", 1))
        await jobs.run(replace(JOB, workload="my:Work", params={"text": "x" * MAX_BYTES}), 1, None)
        [ended] = jobs.events
        assert jobs.forks.pid is None, "no server was needed"
    assert ended.ended.outcome == "failed"
    assert f"at most {MAX_BYTES}" in ended.ended.reason
