"""The agent's trio side: one process a host, inside its namespace. It decides nothing.

Every event goes through `handle` (`testbed.driver`), which lets the core decide and performs what follows; what takes time is
started as a task and ends as another event. Killing workloads is not one of those: it is done before `handle` returns.

The parts: `uplink` (the coordinator), `edge` (kernel: switch, counters, marks), `jobs` (processes), `shipping` (checkpoints).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path

import trio

from testbed import messages as m
from testbed.agent.config import AgentConfig
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.agent import AgentCore
from testbed.agent.core.stored import Shelf
from testbed.agent.io.coordinator_link import Uplink
from testbed.agent.io.kernel_maps import Edge
from testbed.agent.io.processes import JobProcesses
from testbed.agent.io.transfers import Shipping
from testbed.checkpoints import CheckpointStore
from testbed.driver import Driver, run_process
from testbed.errors import ProtocolError
from testbed.wire import Codec
from testbed.workloads.lease import LeaseFile

SAMPLE_S = 0.1  # paper A, section V-E: egress counters at 100 ms
LOG = logging.getLogger("agent")
OWNER: Codec[m.FromOwner] = Codec(m.FromOwner)


class AgentHost(Driver[ev.Event, do.Effect]):
    """Runs an AgentCore over real sockets, processes, files and maps."""

    core: AgentCore

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.equip()

    def equip(self) -> None:
        """The parts, and a core that knows what is stored here. A host with other parts makes them here instead."""
        config = self.config
        config.directory.mkdir(parents=True, exist_ok=True)
        self.store = CheckpointStore(config.directory / "store")
        for line in self.store.damaged:
            LOG.error("set aside: %s", line)
        self.lease = LeaseFile.create(config.directory / "lease", time.monotonic())
        self.edge = Edge(config)
        self.jobs = JobProcesses(self.store, self.lease, config.directory / "workloads.log", self.handle)
        self.shipping = Shipping(
            self.store, self.edge, lambda: self.core.closed, lambda: self.core.announced, self.handle
        )
        self.uplink = Uplink(config.coordinator, self.edge, self.handle)
        stored = self.shipping.stored()
        self.core = AgentCore(config.host, time.monotonic_ns(), config.data_port, Shelf(stored))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; workloads die with it."""
        self._handle_if(self.edge.prepare())
        listeners = await self.shipping.listen()
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self.shipping.serve, listeners)
                self._nursery.start_soon(self.wake, ev.Woke())
                self._nursery.start_soon(self._sample_forever)
                if self.config.owner_socket is not None:
                    await self._nursery.start(self._listen_to_owner, self.config.owner_socket)
                self._nursery.start_soon(self.uplink.stay_connected)
                task_status.started()
        finally:
            self.jobs.kill_all()

    def _handle_if(self, event: ev.Event | None) -> None:
        if event is not None:
            self.handle(event)

    def perform(self, effect: do.Effect) -> None:
        """Over the parts."""
        match effect:
            case do.Send(message):
                self.uplink.say(message)
            case do.ExtendLease(until_s):
                self.lease.extend(until_s)
            case do.StartWorkload(spec, attempt, restore):
                self.jobs.expect((spec.name, attempt))
                self._nursery.start_soon(self.jobs.run, spec, attempt, restore)
            case do.KillWorkload(job, attempt):
                self.jobs.kill((job, attempt))
            case do.TakeSnapshot():
                self._nursery.start_soon(self.jobs.take_snapshot, effect)
            case do.StartSending():
                self.shipping.begin(effect, self._nursery)
            case do.Regrant(job, destination, rate):
                self.shipping.regrant(job, destination, rate)
            case do.AbortSending(job, destination):
                self.shipping.abort(job, destination)
            case do.DropCheckpoints(job, before):
                self._nursery.start_soon(self.shipping.drop, job, before)

    async def _sample_forever(self) -> None:
        due_s = trio.current_time()
        while True:
            due_s += SAMPLE_S
            await trio.sleep_until(due_s)
            now_s = trio.current_time()
            self._handle_if(self.edge.look_at_switch())
            self.handle(self.edge.sample(self.shipping.counts(), now_s - due_s))
            # late once is not early the next time: no period is shorter than it says
            due_s = max(due_s, now_s)

    async def _listen_to_owner(
        self, path: Path, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """A datagram here only says "look now"; the map is what counts, and it is looked at ten times a second anyway."""
        path.unlink(missing_ok=True)
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            await sock.bind(str(path))
            if self.config.owners_gid is not None:
                os.chown(path, -1, self.config.owners_gid)
            path.chmod(0o600 if self.config.owners_gid is None else 0o660)
            task_status.started()
            while True:
                data, sender = await sock.recvfrom(4096)
                try:
                    [word] = OWNER.decoder().feed(data)
                except (ProtocolError, ValueError) as error:
                    LOG.warning("owner's socket: %s", error)
                    continue
                self._handle_if(self.edge.look_at_switch(grace=word.grace))
                if sender:  # the owner waits until it is done
                    try:
                        await sock.sendto(b"done", sender)
                    except OSError as error:
                        LOG.info("the owner did not wait: %s", error)


def run_agent(config: AgentConfig) -> None:
    """The whole life of an agent's process."""
    os.environ.pop("PYTHONSTARTUP", None)
    run_process(lambda: AgentHost(config).run())
