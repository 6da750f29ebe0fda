"""The agent's trio side, in the network of its host: alone in a process, or in a pool of several (`pool`). It decides nothing.

Every event goes through `handle` (`testbed.driver`), which lets the core decide and performs what follows; what takes time is
started as a task and ends as another event. Killing workloads is not one of those: it is done before `handle` returns.

The parts: `link` (the coordinator), `kernel` (kernel: switch, counters, marks), `jobs` (processes), `transfers` (checkpoints),
and the owner's socket.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from math import inf

import trio

from testbed.agent.config import AgentConfig
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.agent import AgentCore
from testbed.agent.core.stored import StoredCheckpoints
from testbed.agent.io.coordinator_link import CoordinatorLink
from testbed.agent.io.kernel_maps import KernelMaps
from testbed.agent.io.owner_socket import listen_to_owner
from testbed.agent.io.processes import JobProcesses
from testbed.agent.io.transfers import Transfers
from testbed.checkpoints import CheckpointStore
from testbed.driver import Driver, run_process
from testbed.logs import logger
from testbed.namespaces import OWN_NETWORK, NetworkNamespace
from testbed.workloads.launch import Launch, start_interpreter
from testbed.workloads.lease import LeaseFile
from testbed.workloads.output import LOOK_S

SAMPLE_S = 0.1  # paper A, section V-E: egress counters at 100 ms
COUNTING_SHARE = 0.04  # of a processor, for a process's agents together
IDLE_SAMPLE_S = 2.0  # of a host that sends nothing
LATE_S = 0.5  # a look that comes so late is told, of an idle host too
LOG = logger("agent")


class AgentHost(Driver[ev.Event, do.Effect]):
    """Runs an AgentCore over real sockets, processes, files and maps."""

    core: AgentCore

    def __init__(
        self,
        config: AgentConfig,
        network: NetworkNamespace = OWN_NETWORK,
        launch: Launch = start_interpreter,
    ) -> None:
        self.config, self._network, self._launch = config, network, launch
        self.equip()

    def equip(self) -> None:
        """The parts, and a core that knows what is stored here. A host with other parts makes them here instead."""
        config = self.config
        config.directory.mkdir(parents=True, exist_ok=True)
        self.store = CheckpointStore(config.directory / "store")
        for line in self.store.damaged:
            LOG.error("set aside: %s", line)
        self.lease = LeaseFile.create(config.directory / "lease", time.monotonic())
        self.kernel = KernelMaps(config)
        self.jobs = JobProcesses(
            self.store,
            self.lease,
            config.job_logs or config.directory / "job-logs",
            self.handle,
            launch=self._launch,
            snapshots_stop=config.snapshots_stop,
        )
        self.transfers = Transfers(
            self.store,
            self.kernel,
            lambda: self.core.closed,
            lambda: self.core.announced,
            self.handle,
            self._network,
        )
        self.link = CoordinatorLink(config.coordinator, self.kernel, self.handle, network=self._network)
        stored = self.transfers.stored()
        self.core = AgentCore(
            config.host, time.monotonic_ns(), config.data_port, StoredCheckpoints(stored), gpus=config.gpus
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; workloads die with it."""
        with self._network.entered():
            switch = self.kernel.prepare()
        if switch is not None:
            self.handle(switch)
        listeners = await self.transfers.listen()
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self.transfers.serve, listeners)
            self._nursery.start_soon(self.wake, ev.Woke())
            self._nursery.start_soon(self.watch_kernel)
            if (path := self.config.owner_socket) is not None:
                await self._nursery.start(
                    listen_to_owner, path, self.config.owners_gid, self.kernel, self.handle
                )
            self._nursery.start_soon(self.link.stay_connected)
            task_status.started()

    async def watch_kernel(self) -> None:
        """See the owner and counts every 100 ms, until cancelled."""
        await watch([self])

    def see_owner(self) -> None:
        """Send the owner's changes since the last look to the core, as an event."""
        if (switch := self.kernel.look_at_switch()) is not None:
            self.handle(switch)

    def count(self, lag_s: float, idle_at_s: float) -> None:
        """Send the kernel's counters to the core, `lag_s` late; at `idle_at_s` all that left had been counted."""
        for sampled in self.kernel.sample(self.transfers.counts(), lag_s, idle_at_s):
            self.handle(sampled)

    def perform(self, effect: do.Effect) -> None:
        """Perform each effect by the part that implements it."""
        match effect:
            case do.Send(message):
                self.link.say(message)
            case do.ExtendLease(until_s):
                self.lease.extend(until_s)
            case do.StartWorkload(spec, attempt, restore, slots):
                self.jobs.expect((spec.name, attempt))
                self._nursery.start_soon(self.jobs.run, spec, attempt, restore, slots)
            case do.KillWorkload(job, attempt):
                self.jobs.kill((job, attempt))
            case do.EndWorkload(job, attempt, grace_s):
                self._nursery.start_soon(self.jobs.end, (job, attempt), grace_s)
            case do.TakeSnapshot():
                self._nursery.start_soon(self.jobs.take_snapshot, effect)
            case do.StartSending():
                self.transfers.begin(effect, self._nursery)
            case do.Regrant(job, destination, rate):
                self.transfers.regrant(job, destination, rate)
            case do.AbortSending(job, destination):
                self.transfers.abort(job, destination)
            case do.DropCheckpoints(job, before):
                self._nursery.start_soon(self.transfers.drop, job, before)


class _Look:
    """Memory read on every look at an idle host, now and at the last look."""

    __slots__ = ("data", "data_was", "host", "outputs", "sample_by_s", "sending", "switch", "switch_was")

    def __init__(self, host: AgentHost) -> None:
        self.host, self.sending, self.outputs = host, host.transfers.sends, host.jobs.outputs
        self.switch, self.data = host.kernel.memory()
        self.switch_was = self.data_was = b""
        self.sample_by_s = -inf  # though nothing has left


async def watch(hosts: Sequence[AgentHost]) -> None:
    """Look at the switch of each host (there may be more of them later) every SAMPLE_S, until cancelled.

    Counters of hosts that send are read as often, but where many transfers run in one process: reading takes COUNTING_SHARE of a
    processor at most. Those of others are told every IDLE_SAMPLE_S.
    """
    looks: list[_Look] = []
    due_s = counts_at_s = outputs_at_s = trio.current_time()
    counted_s = -inf
    while True:
        due_s += SAMPLE_S
        await trio.sleep_until(due_s)
        now_s, lag_s = trio.current_time(), trio.current_time() - due_s
        looks += map(_Look, hosts[len(looks) :])
        for look in looks:
            if (switch := look.switch.tobytes()) != look.switch_was:
                look.switch_was = switch
                look.host.see_owner()
        if now_s >= counts_at_s:
            began_s = time.thread_time()
            for look in looks:
                data = look.data.tobytes()
                if look.sending or data != look.data_was or now_s >= look.sample_by_s or lag_s >= LATE_S:
                    look.data_was, look.sample_by_s = data, now_s + IDLE_SAMPLE_S
                    look.host.count(lag_s, counted_s)
            counts_at_s = now_s + (time.thread_time() - began_s) / COUNTING_SHARE - SAMPLE_S / 2.0
            counted_s = now_s
        if now_s >= outputs_at_s:
            outputs_at_s = now_s + LOOK_S
            for look in looks:
                if look.outputs:
                    look.host.jobs.bound_outputs()
        # late once is not early the next time: no period is shorter than it says
        due_s = max(due_s, now_s)


def run_agent(config: AgentConfig) -> None:
    """The whole life of an agent's process."""
    os.environ.pop("PYTHONSTARTUP", None)
    run_process(lambda: AgentHost(config).run())
