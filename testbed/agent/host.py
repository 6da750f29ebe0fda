"""The agent's trio side: one process a host, inside its namespace. It decides nothing.

Every event goes through `handle`, which lets the core decide and performs what follows without an await; what takes time is
started as a task and ends as another event. Killing workloads is not one of those: it is done before `handle` returns.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from math import inf
from pathlib import Path

import trio

from bpf.errors import BpfError
from bpf.layout import BucketMode, ClassId, Mode
from bpf.maps import HostMaps
from testbed import messages as m
from testbed.agent import effects as do
from testbed.agent import events as ev
from testbed.agent.core import AgentCore
from testbed.agent.outgoing import Outgoing
from testbed.checkpoints import CheckpointError, CheckpointStore, Manifest, NotStored
from testbed.clock import MonotonicClock
from testbed.enforcement import Enforcement, FlowGuard, flow_key, set_aggregate, smooth_pacing
from testbed.errors import ProtocolError, SpecError
from testbed.transfer import (
    Hello,
    ReceiveCompleted,
    ReceiveEvent,
    ReceiveFailed,
    TransferFailed,
    send_checkpoint,
    serve_checkpoints,
)
from testbed.wire import Channel, Codec
from testbed.workloads.lease import LeaseFile
from testbed.workloads.messages import Failed, Finished, Progress, Started, WorkloadSpec
from testbed.workloads.process import (
    Exited,
    SnapshotImpossible,
    WorkloadEnded,
    WorkloadProcess,
)
from topologies.spec import TrafficClass

DATA_PORT = 7200
SAMPLE_S = 0.1  # paper A, section V-E: egress counters at 100 ms
RECONNECT_S = 0.2
KEPT_SNAPSHOTS = 2  # of a job on its own host: the newest, and the one that may still be on its way
LOG = logging.getLogger("agent")

OUT: Codec[m.FromAgent] = Codec(m.FromAgent)
IN: Codec[m.ToAgent] = Codec(m.ToAgent)
OWNER: Codec[m.FromOwner] = Codec(m.FromOwner)
CLASS_IDS = {
    TrafficClass.EMERGENCY: ClassId.EMERGENCY,
    TrafficClass.PLANNED: ClassId.PLANNED,
    TrafficClass.PRESYNC: ClassId.PRESYNC,
    TrafficClass.RESEARCH: ClassId.RESEARCH,
}


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What one agent needs to know. Without `pin_dir` there is no kill-switch and nothing is counted or guarded."""

    host: str
    address: IPv4Address
    coordinator: tuple[str, int]
    directory: Path
    data_port: int = DATA_PORT
    pin_dir: Path | None = None
    owner_socket: Path | None = None
    migration_share_bytes_per_s: float = inf  # of the access link, payload; the aggregate bucket
    enforcement: Enforcement = Enforcement.PACE
    congestion: str = "bbr"


class AgentHost:
    """Runs an AgentCore over real sockets, processes, files and maps."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        config.directory.mkdir(parents=True, exist_ok=True)
        self.store = CheckpointStore(config.directory / "store")
        self.maps = HostMaps.open_pinned(config.pin_dir) if config.pin_dir else None
        self.lease = LeaseFile.create(config.directory / "lease", time.monotonic())
        self.core = AgentCore(config.host, time.monotonic_ns(), config.data_port, self._stored())
        self.workloads: dict[tuple[str, int], WorkloadProcess] = {}
        self.expected: set[tuple[str, int]] = set()  # workloads that the core has started and not killed
        self.outgoing: dict[tuple[str, str], Outgoing] = {}
        self._outbox: trio.MemorySendChannel[m.FromAgent] | None = None
        self._changed = trio.Event()
        self._switch_seen: tuple[Mode, int] | None = None
        self._egress_before: tuple[float, int, int] | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; workloads die with it."""
        self._prepare_kernel()
        listeners = await trio.open_tcp_listeners(self.config.data_port, host=str(self.config.address))
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._serve_checkpoints, listeners)
                self._nursery.start_soon(self._watch_clock)
                self._nursery.start_soon(self._sample_forever)
                if self.config.owner_socket is not None:
                    await self._nursery.start(self._listen_to_owner, self.config.owner_socket)
                self._nursery.start_soon(self._stay_connected)
                task_status.started()
        finally:
            for process in self.workloads.values():
                process.kill()

    # ------------------------------------------------------------ the one way of every event

    def handle(self, event: ev.Event) -> None:
        """Decide, and perform what follows."""
        for effect in self.core.handle(event, trio.current_time()):
            self._perform(effect)
        self._changed.set()

    def _perform(self, effect: do.Effect) -> None:
        match effect:
            case do.Send(message):
                self._say(message)
            case do.ExtendLease(until_s):
                self.lease.extend(until_s)
            case do.StartWorkload(spec, attempt, restore):
                self.expected.add((spec.name, attempt))
                self._nursery.start_soon(self._run_workload, spec, attempt, restore)
            case do.KillWorkload(job, attempt):
                self._kill(job, attempt)
            case do.TakeSnapshot():
                self._nursery.start_soon(self._take_snapshot, effect)
            case do.StartSending():
                self._start_sending(effect)
            case do.Regrant(job, destination, rate):
                if outgoing := self.outgoing.get((job, destination)):
                    outgoing.regrant(rate)
            case do.AbortSending(job, destination):
                if outgoing := self.outgoing.pop((job, destination), None):
                    outgoing.scope.cancel()
            case do.DropCheckpoints(job, before):
                self._nursery.start_soon(trio.to_thread.run_sync, self._drop, job, before)

    async def _watch_clock(self) -> None:
        while True:
            self._changed = trio.Event()
            with trio.move_on_at(self.core.next_deadline_s()) as waited:
                await self._changed.wait()
            if waited.cancelled_caught:
                self.handle(ev.Woke())

    # ------------------------------------------------------------ the coordinator

    async def _stay_connected(self) -> None:
        while True:
            try:
                stream = await trio.open_tcp_stream(*self.config.coordinator)
            except OSError as error:
                LOG.info("no coordinator at %s: %s", self.config.coordinator, error)
            else:
                await self._talk(stream)
            await trio.sleep(RECONNECT_S)

    async def _talk(self, stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outbox, unsent = trio.open_memory_channel[m.FromAgent](inf)
        self.handle(ev.Connected())
        try:
            with self._as_metadata(stream):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_send_all, unsent, Channel(stream, OUT))
                    await self._listen(Channel(stream, IN))
                    nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as group:
            LOG.info("connection to the coordinator lost: %s", group.exceptions[0])
        except* ProtocolError as group:
            LOG.warning("the coordinator broke the protocol: %s", group.exceptions[0])
        finally:
            self._outbox = None
            await trio.aclose_forcefully(stream)
        self.handle(ev.Disconnected())

    @contextmanager
    def _as_metadata(self, stream: trio.SocketStream) -> Iterator[None]:
        """What this host says on a connection is class EF while it is open (paper A, section VII-A: metadata, notifications).

        That holds for control messages and for the acknowledgements of checkpoints that arrive: behind a greedy download of
        its owner's, a receiver's acknowledgements would be late, and the sender slow.
        """
        if self.maps is None:
            yield
            return
        try:
            key = flow_key(stream.socket)
            self.maps.flows.delete(key)  # of a connection that had the same ports
            self.maps.flows.insert(key, traffic_class=ClassId.EMERGENCY, mode=BucketMode.ACCOUNT)
        except (BpfError, OSError) as error:
            LOG.warning("not marked: %s", error)  # the table is full, or the peer gone already
            yield
            return
        try:
            yield
        finally:
            self.maps.flows.delete(key)

    async def _listen(self, channel: Channel[m.ToAgent]) -> None:
        while (message := await channel.receive()) is not None:
            if isinstance(message, m.Refused):
                LOG.error("the coordinator refuses this agent: %s", message.reason)
            self.handle(ev.Received(message))

    def _say(self, message: m.FromAgent) -> None:
        if self._outbox is not None:
            self._outbox.send_nowait(message)

    # ------------------------------------------------------------ the owner

    async def _listen_to_owner(
        self, path: Path, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """A datagram here only says "look now"; the map is what counts, and it is looked at ten times a second anyway."""
        path.unlink(missing_ok=True)
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            await sock.bind(str(path))
            path.chmod(0o600)
            task_status.started()
            while True:
                data, sender = await sock.recvfrom(4096)
                try:
                    [word] = OWNER.decoder().feed(data)
                except (ProtocolError, ValueError) as error:
                    LOG.warning("owner's socket: %s", error)
                    continue
                self._look_at_switch(grace=word.grace)
                if sender:  # the owner waits until it is done
                    await _answer_quietly(sock, sender)

    def _look_at_switch(self, *, grace: bool = False) -> None:
        if self.maps is None:
            return
        status = self.maps.switch.status()
        seen = (status.mode, status.set_at_ns)
        if seen == self._switch_seen:
            return
        self._switch_seen = seen
        match status.mode:
            case Mode.OFF:
                self.handle(ev.SwitchRead(lent=True))
            case Mode.ISOLATE:
                self.handle(ev.SwitchRead(lent=False, isolate_in_s=0.0, grace=grace))
            case Mode.DRAIN:
                left_s = (status.isolate_at_ns - time.monotonic_ns()) / 1e9 if status.isolate_at_ns else 1e6
                self.handle(ev.SwitchRead(lent=False, isolate_in_s=max(0.0, left_s), grace=grace))

    # ------------------------------------------------------------ the kernel's counters

    def _prepare_kernel(self) -> None:
        smooth_pacing()
        if self.maps is None:
            return
        for key, _ in list(self.maps.flows.items()):
            self.maps.flows.delete(key)  # left by a killed predecessor
        if self.config.enforcement is not Enforcement.NONE and self.config.migration_share_bytes_per_s < inf:
            set_aggregate(self.maps, self.config.migration_share_bytes_per_s)
        status = self.maps.switch.status()
        if status.mode is not Mode.OFF:
            self._look_at_switch()
        self._switch_seen = (status.mode, status.set_at_ns)

    async def _sample_forever(self) -> None:
        due_s = trio.current_time()
        while True:
            due_s += SAMPLE_S
            await trio.sleep_until(due_s)
            now_s = trio.current_time()
            self._look_at_switch()
            self.handle(self._sample(now_s - due_s))
            due_s = max(
                due_s, now_s
            )  # late once is not early the next time: no period is shorter than it says

    def _sample(self, lag_s: float) -> ev.Sampled:
        flows = [outgoing.count() for outgoing in self.outgoing.values()]
        if self.maps is None:
            return ev.Sampled({}, flows, None, lag_s)
        traffic = self.maps.counters.read_all()
        read_s = trio.current_time()
        classes = {
            name.value: m.ClassCount(traffic[i].bytes, traffic[i].packets, traffic[i].dropped_packets)
            for name, i in CLASS_IDS.items()
        }
        migration = traffic[ClassId.PLANNED].bytes + traffic[ClassId.PRESYNC].bytes
        research = traffic[ClassId.RESEARCH].bytes
        before, self._egress_before = self._egress_before, (read_s, migration, research)
        sample = None
        if before is not None:
            sample = m.EgressSample(0.0, read_s - before[0], migration - before[1], research - before[2])
        return ev.Sampled(classes, flows, sample, max(0.0, lag_s))

    # ------------------------------------------------------------ workloads

    async def _run_workload(self, spec: m.JobSpec, attempt: int, restore: m.StoredCheckpoint | None) -> None:
        key = (spec.name, attempt)
        try:
            path = self.store.payload(self._manifest(restore)) if restore else None
            process = await WorkloadProcess.start(
                WorkloadSpec(spec.workload, _params(spec)),
                restore=path,
                lease=self.lease,
                log=self.config.directory / "workloads.log",
            )
        except (OSError, SpecError, CheckpointError) as error:
            self._workload_over(key, ev.WorkloadEnded(*key, False, 0, reason=str(error)))
            return
        if key not in self.expected:
            process.kill()
        self.workloads[key] = process
        try:
            await self._follow(key, process)
        finally:
            del self.workloads[key]

    async def _follow(self, key: tuple[str, int], process: WorkloadProcess) -> None:
        step, digest, finished, reason = 0, "", False, ""
        async for event in process.events:
            match event:
                case Started(step=step, digest=proof):
                    self.handle(ev.WorkloadStarted(*key, step, proof.hex()))
                case Progress(step=step):
                    self.handle(ev.WorkloadProgressed(*key, step))
                case Finished(step=step, digest=proof):
                    finished, digest = True, proof.hex()
                case Failed(reason=reason):
                    pass
                case Exited():
                    why = reason or event.reason
                    self._workload_over(key, ev.WorkloadEnded(*key, finished, step, digest, why))

    def _workload_over(self, key: tuple[str, int], event: ev.WorkloadEnded) -> None:
        if key in self.expected:
            self.expected.discard(key)
            self.handle(event)

    def _kill(self, job: str, attempt: int) -> None:
        self.expected.discard((job, attempt))
        if process := self.workloads.get((job, attempt)):
            process.kill()

    # ------------------------------------------------------------ snapshots and transfers

    async def _take_snapshot(self, order: do.TakeSnapshot) -> None:
        key = (order.job, order.attempt)
        path = self.store.scratch(f"{order.job}-{order.sequence}")
        process = self.workloads.get(key)
        try:
            if process is None:
                raise WorkloadEnded("the job's process has gone")
            taken = await process.snapshot(path)
            if order.final:
                self._kill(*key)
            manifest = await trio.to_thread.run_sync(self._ingest, order, taken.step, path)
        except (WorkloadEnded, SnapshotImpossible, CheckpointError, OSError) as error:
            LOG.warning("no snapshot %d of %s: %s", order.sequence, order.job, error)
            self.handle(ev.SnapshotFailed(*key, order.sequence, order.final, str(error)))
            return
        size, digest = manifest.payload_bytes, manifest.digest.hex()
        self.handle(ev.SnapshotDone(*key, order.sequence, manifest.step, size, order.final, digest))

    def _ingest(self, order: do.TakeSnapshot, step: int, path: Path) -> Manifest:
        manifest = self.store.ingest(order.job, order.sequence, step, path)
        self.store.keep_latest(order.job, KEPT_SNAPSHOTS)
        return manifest

    def _start_sending(self, order: do.StartSending) -> None:
        transfer = f"{order.job}:{order.sequence}>{order.destination.host}"
        outgoing = Outgoing(transfer, order.rate_bytes_per_s, self._guard_maker(order.traffic_class))
        self.outgoing[order.job, order.destination.host] = outgoing
        self._nursery.start_soon(self._send_checkpoint, order, outgoing)

    async def _send_checkpoint(self, order: do.StartSending, outgoing: Outgoing) -> None:
        ended = None
        with outgoing.scope:
            try:
                ended = await self._send_one(order, outgoing)
            except NotStored as error:
                ended = ev.SendEnded(
                    order.job, order.destination.host, order.sequence, False, reason=str(error)
                )
            except TransferFailed as error:
                ended = self._send_failed(order, outgoing, error)
            finally:
                outgoing.close()
        key = (order.job, order.destination.host)
        if self.outgoing.get(key) is outgoing:
            del self.outgoing[key]
            if ended is not None:
                self.handle(ended)

    async def _send_one(self, order: do.StartSending, outgoing: Outgoing) -> ev.SendEnded:
        to = order.destination
        result = await send_checkpoint(
            self.store,
            self.store.get(order.job, order.sequence),
            (to.address, to.port),
            transfer=outgoing.transfer,
            on_connected=outgoing.connected,
            on_progress=outgoing.progressed,
        )
        ratio = outgoing.goodput_over_grant()
        outgoing.close()
        return ev.SendEnded(
            order.job,
            to.host,
            order.sequence,
            True,
            result.bytes_sent,
            result.bytes_deduplicated,
            result.duration_s,
            ratio,
            outgoing.drops,
        )

    def _send_failed(self, order: do.StartSending, outgoing: Outgoing, error: TransferFailed) -> ev.SendEnded:
        LOG.warning("%s: %s", outgoing.transfer, error)
        outgoing.close()
        return ev.SendEnded(
            order.job,
            order.destination.host,
            order.sequence,
            False,
            error.bytes_sent,
            drops=outgoing.drops,
            reason=error.reason,
            retryable=error.retryable,
        )

    def _guard_maker(self, traffic_class: TrafficClass) -> Callable[[socket.socket, float], FlowGuard]:
        def make(sock: socket.socket, rate_bytes_per_s: float) -> FlowGuard:
            return FlowGuard(
                self.maps,
                sock,
                traffic_class,
                rate_bytes_per_s,
                enforcement=self.config.enforcement,
                congestion=self.config.congestion,
            )

        return make

    async def _serve_checkpoints(self, listeners: list[trio.SocketListener]) -> None:
        await serve_checkpoints(
            self.store, listeners, accept=self._accept, on_event=self._received, around=self._as_metadata
        )

    def _accept(self, hello: Hello) -> str | None:
        """Whether this host takes a checkpoint: not when its owner has it back."""
        return None if self.core.lent or self.core.reclaim_at_s is not None else "the owner has this host"

    async def _received(self, event: ReceiveEvent) -> None:
        match event:
            case ReceiveCompleted(manifest=manifest):
                await trio.to_thread.run_sync(self._drop, manifest.job, manifest.sequence)
                self.handle(ev.CheckpointReceived(_stored(manifest)))
            case ReceiveFailed(reason=reason, transfer=transfer):
                LOG.warning("reception of %s failed: %s", transfer, reason)

    def _drop(self, job: str, before: int) -> None:
        for manifest in self.store.manifests():
            if manifest.job == job and manifest.sequence < before:
                try:
                    self.store.drop(job, manifest.sequence)
                except NotStored:
                    continue  # another order dropped it first

    def _stored(self) -> dict[tuple[str, int], m.StoredCheckpoint]:
        return {manifest.key: _stored(manifest) for manifest in self.store.manifests()}

    def _manifest(self, checkpoint: m.StoredCheckpoint) -> Manifest:
        return self.store.get(checkpoint.job, checkpoint.sequence)


def run_agent(config: AgentConfig) -> None:
    """The whole life of an agent's process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.environ.pop("PYTHONSTARTUP", None)
    trio.run(AgentHost(config).run, clock=MonotonicClock())


def _stored(manifest: Manifest) -> m.StoredCheckpoint:
    return m.StoredCheckpoint(
        manifest.job, manifest.sequence, manifest.step, manifest.payload_bytes, manifest.digest.hex()
    )


def _params(spec: m.JobSpec) -> dict[str, object]:
    """A built-in workload is told the job's own figures; a third party's knows its own parameters."""
    own = {"steps": spec.steps, "step_s": spec.step_s, "payload_bytes": spec.payload_bytes}
    return {**own, **spec.params} if ":" not in spec.workload else dict(spec.params)


async def _send_all(unsent: trio.MemoryReceiveChannel[m.FromAgent], channel: Channel[m.FromAgent]) -> None:
    async for message in unsent:
        await channel.send(message)


async def _answer_quietly(sock: trio.socket.SocketType, sender: object) -> None:
    try:
        await sock.sendto(b"done", sender)  # type: ignore[call-overload]
    except OSError as error:
        LOG.info("the owner did not wait: %s", error)
