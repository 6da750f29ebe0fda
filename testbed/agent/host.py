"""The agent's trio side, in the network of its host. It decides nothing.

Every event goes through `handle` (`testbed.driver`), which lets the core decide and performs what follows; what takes time is
started as a task and ends as another event. Killing workloads is not one of those: it is done before `handle` returns.

The parts: `link` (the coordinator), `kernel` (kernel: switch, counters, marks), `jobs` (processes), `transfers` (checkpoints),
and the owner's socket.

A process runs one agent, or those of many hosts, for campuses of hundreds (`run_agents`). Every agent keeps its own core, store,
lease and connections; its sockets are opened in its host's namespace. Agents of one process share the loop, one look at all
kernel maps every 100 ms, and the fork server whose children their jobs are. An idle agent among others costs some hundred
kilobytes and a heartbeat; alone in a process it costs 12 MB and 0.35 % of a core. A fault of one ends all agents and jobs of the
process.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import time
from collections.abc import Sequence
from contextvars import ContextVar
from math import inf

import trio

from testbed import messages as m
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
from testbed.logs import log_level, logger
from testbed.namespaces import NetworkNamespace
from testbed.trust.channel import Identity
from testbed.trust.door import Refusals
from testbed.trust.joining import Renewal
from testbed.workloads.launch import ForkServer, Launched
from testbed.workloads.lease import LeaseFile
from testbed.workloads.output import LOOK_S
from testbed.workloads.sandbox import Sandbox

SAMPLE_S = 0.1  # paper A, section V-E: egress counters at 100 ms
COUNTING_SHARE = 0.04  # of a processor, for a process's agents together
IDLE_SAMPLE_S = 2.0  # of a host that sends nothing
LATE_S = 0.5  # a look that comes so late is reported, of an idle host too
# Each system call of the loop gives the interpreter's lock away, and a thread that moves a checkpoint keeps it for so long: with
# Python's own 5 ms the answers to heartbeats took .5 s in the median at 500 hosts, with this .15 (a busy machine).
SWITCH_INTERVAL_S = 0.0005
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(host)s: %(message)s"
LOG = logger("agent")
_host: ContextVar[str] = ContextVar("host", default="agents")


class AgentHost(Driver[ev.Event, do.Effect]):
    """An AgentCore that runs over real sockets, processes, files and maps."""

    core: AgentCore
    renewal: Renewal | None = None  # of its certificate; None: conversations are without

    def __init__(self, config: AgentConfig, network: NetworkNamespace, forks: ForkServer) -> None:
        self.config, self._network, self._forks = config, network, forks
        self.equip()

    def equip(self) -> None:
        """Make the parts, and a core that knows what is stored here. A host with other parts makes them here instead."""
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
            self._launch,
            snapshots_stop=config.snapshots_stop,
            group=config.group,
        )
        identity = None if config.credentials is None else Identity(config.credentials)
        self.renewal = None if identity is None else Renewal(identity, lambda asked: self.link.say(asked), config.keep)
        self.link = CoordinatorLink(
            config.coordinator,
            self.kernel,
            self.handle,
            network=self._network,
            renewal=self.renewal,
            standby=config.standby,
        )
        self.transfers = Transfers(
            self.store,
            self.kernel,
            lambda: self.core.closed,
            lambda: self.core.announced,
            self.handle,
            self._network,
            identity,
            Refusals(lambda *refused: self.link.say(m.RefusedPeers(*refused))),
        )
        stored = self.transfers.stored()
        self.core = AgentCore(
            config.host, secrets.randbits(62), config.data_port, StoredCheckpoints(stored), gpus=config.gpus
        )

    async def _launch(self, sock: int, lease: int, output: int, sandbox: Sandbox | None, apart: bool) -> Launched:
        """Start a job's process in the host's network. OSError: not on this host."""
        if not self.config.takes_open_jobs and (sandbox is None or sandbox.parts == "none"):
            raise OSError("this host takes no job without a sandbox")
        return await self._forks.launch(sock, lease, output, sandbox, apart, self._network)

    def handle(self, event: ev.Event) -> None:
        """Decide and perform; what is logged of it, and by the tasks that follow, names the host."""
        _host.set(self.config.host)
        super().handle(event)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; workloads die with it. Its process watches the kernel's maps (`watch`)."""
        with self._network.entered():
            switch = self.kernel.prepare()
        if switch is not None:
            self.handle(switch)
        listeners = await self.transfers.listen()
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self.transfers.serve, listeners)
            self._nursery.start_soon(self.wake, ev.Woke())
            if (path := self.config.owner_socket) is not None:
                await self._nursery.start(listen_to_owner, path, self.config.owners_gid, self.kernel, self.handle)
            self._nursery.start_soon(self.link.stay_connected)
            if self.renewal is not None:
                self._nursery.start_soon(self.renewal.run)
            task_status.started()

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
            case do.StartWorkload(spec, attempt, restore, slots, speed):
                self.jobs.expect((spec.name, attempt))
                self._nursery.start_soon(self.jobs.run, spec, attempt, restore, slots, speed)
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

    Counters of hosts that send are read as often, but where many transfers run in one process: reading takes
    COUNTING_SHARE of a processor at most. Those of others are reported every IDLE_SAMPLE_S.
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
        # late once is not early the next time: no period is shorter than SAMPLE_S
        due_s = max(due_s, now_s)


def run_agents(members: Sequence[tuple[AgentConfig, int]]) -> None:
    """Run a process of agents to its end, each with a process that is in its host's network. OSError: that network is gone."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    handler.addFilter(_named)
    logging.basicConfig(level=log_level(), handlers=[handler])
    os.environ.pop("PYTHONSTARTUP", None)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    run_process(_serve, members)


async def _serve(members: Sequence[tuple[AgentConfig, int]]) -> None:
    watched: list[AgentHost] = []
    with ForkServer() as forks:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, watched)
            for config, pid in members:
                _host.set(config.host)
                host = AgentHost(config, NetworkNamespace.of_process(pid), forks)
                watched.append(host)
                await nursery.start(host.run)


def _named(record: logging.LogRecord) -> bool:
    record.host = _host.get()
    return True
