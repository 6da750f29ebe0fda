"""One Coordinator and its AgentCores in memory: a heap of events, messages through the real codec, nothing else real.

The world keeps the truth that no core knows: which processes compute, what each disk holds, how far each transfer is. After
every event it compares what the cores believe and promise with that truth (`check_world`), and it fails at the first
difference, with the last events as its story.

What can go wrong is a method: `kill`, `pause`, `cut`, `reclaim`, `give_back`. Ties on the heap go by (time, order of pushing),
so a seed is a run.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from controller.core import effects as cdo
from controller.core import events as cev
from controller.core import facts
from controller.core.coordinator import Coordinator
from controller.core.settings import Settings
from controller.core.state import JobState, Phase
from experiments.promises import broken
from experiments.run_context import RunContext
from testbed import messages as m
from testbed.agent import effects as ado
from testbed.agent import events as aev
from testbed.agent.core import AgentCore
from testbed.framing import Codec
from topologies import presets
from topologies.scale import Scale
from topologies.spec import Campus, ResearchReserve, Role

TO_AGENT: Codec[Any] = Codec(m.ToAgent)
FROM_AGENT: Codec[Any] = Codec(m.FromAgent)
DELAY_S = 0.004
RECONNECT_S = 0.2
SAME_INSTANT = 3_000  # events at one moment: more is a loop
KEPT_SNAPSHOTS = 2

SETTINGS = Settings(
    target_delay_s=20.0,
    level_step_per_s=0.01,
    level_window=10,
    restart_s=0.6,
    snapshot_s=0.25,
    control_period_s=1.0,
    lease_s=2.0,
    heartbeat_s=0.6,
    fence_margin_s=0.2,
    hazard_window_s=600.0,
    prior_hazard_per_s=1.0 / 40.0,
    day_s=1200.0,
)


class WorldBroken(AssertionError):
    """An invariant does not hold; says which, and what happened before."""


def small_campus(hosts: int = 6, on_demand: int = 2, buildings: int = 2, slots: int = 2) -> Campus:
    """A few hosts of one and two GPUs with links of 10 MB/s (uplinks 20)."""
    return presets.three_tier(
        hosts,
        buildings,
        on_demand,
        access_bytes_per_s=10e6,
        uplink_bytes_per_s=20e6,
        core_bytes_per_s=40e6,
        mix=(presets.GpuShare(presets.RTX3090, 1, 2), presets.GpuShare(presets.A6000, 2, 1)),
        on_demand_slots=slots,
        reserve=ResearchReserve(beta=0.3),
    )


@dataclass
class Link:
    """A connection: bytes in flight are lost once it is cut; each end learns of that in its own time."""

    host: str
    agent_open: bool = True
    coordinator_open: bool = False  # until Hello is there
    cut: bool = False
    to_agent: Any = field(default_factory=TO_AGENT.decoder)
    from_agent: Any = field(default_factory=FROM_AGENT.decoder)
    down_s: float = 0.0
    up_s: float = 0.0


@dataclass
class Process:
    """A workload: computes from its start until it is dead."""

    spec: m.JobSpec
    attempt: int
    base_step: int
    running_from_s: float = inf
    alive: bool = True

    def step(self, now_s: float) -> int:
        if now_s < self.running_from_s:
            return self.base_step
        done = int((now_s - self.running_from_s) / self.spec.step_s + 1e-9)
        return min(self.spec.steps, self.base_step + done)


@dataclass
class Transfer:
    """Bytes on their way at the present grant."""

    order: ado.StartSending
    left_bytes: float
    rate_bytes_per_s: float
    since_s: float
    began_s: float
    version: int = 0


@dataclass
class Machine:
    """What a host really is."""

    name: str
    core: AgentCore | None = None
    incarnation: int = 0
    store: dict[tuple[str, int], m.StoredCheckpoint] = field(default_factory=dict)
    processes: dict[tuple[str, int], Process] = field(default_factory=dict)
    transfers: dict[tuple[str, str], Transfer] = field(default_factory=dict)
    link: Link | None = None
    lease_until_s: float = -inf
    paused: bool = False
    deferred: deque[Callable[[], None]] = field(default_factory=deque)
    closed: bool = False  # the kernel isolates it
    isolate_at_s: float | None = None
    switch_version: int = 0
    wake_s: float = inf


class CoresWorld:
    """See the module. `chance(kind)` in [0, 1) decides on failures; by default nothing fails of itself."""

    def __init__(
        self,
        campus: Campus | None = None,
        settings: Settings = SETTINGS,
        seed: int = 0,
        *,
        send_failures: float = 0.0,
        snapshot_failures: float = 0.0,
        workload_failures: float = 0.0,
        checks: bool = True,
    ) -> None:
        self.campus = campus or small_campus()
        self.rng = random.Random(seed)
        self.settings = settings
        self.coordinator = Coordinator(self.campus, settings, self.rng.random)
        self.send_failures, self.snapshot_failures = send_failures, snapshot_failures
        self.workload_failures = workload_failures
        self.now_s, self.events, self.checks = 0.0, 0, checks
        self.pauses: list[tuple[float, str, float]] = []  # (when, whose agent, for how long)
        self.facts: list[tuple[float, Any]] = []
        self.story: deque[str] = deque(maxlen=60)
        self.machines = {h.name: Machine(h.name) for h in self.campus.hosts if h.role is not Role.COORDINATOR}
        self.allowed_to_fail: set[str] = set()
        self.specs: dict[str, m.JobSpec] = {}
        self.told: list[tuple[float, str, Any]] = []  # messages to agents
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._pushed, self._instant, self._wake_s = 0, (0.0, 0), inf
        self._attempts: dict[str, int] = {}
        self._links: list[Link] = []

    # ------------------------------------------------------------ the heap

    def at(self, when_s: float, act: Callable[[], None]) -> None:
        """Do it at that time, after what was pushed before for it."""
        self._pushed += 1
        heapq.heappush(self._heap, (max(when_s, self.now_s), self._pushed, act))

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        self.at(self.now_s + delay_s, act)

    def run(self, until_s: float) -> None:
        """All events up to that time."""
        while self._heap and self._heap[0][0] <= until_s:
            when_s, _, act = heapq.heappop(self._heap)
            self._count(when_s)
            self.now_s = when_s
            act()
            if self.checks:
                check_world(self)
        self.now_s = max(self.now_s, until_s)

    def run_until(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Until it is so, at most to that time; whether it is."""
        while not done() and self.now_s < limit_s:
            self.run(min(limit_s, self.now_s + 1.0))
        return done()

    def _count(self, when_s: float) -> None:
        self.events += 1
        at_s, count = self._instant
        self._instant = (when_s, count + 1 if when_s == at_s else 0)
        if self._instant[1] > SAME_INSTANT:
            raise self.broken("the world", f"more than {SAME_INSTANT} events at one moment")

    def broken(self, subject: str, rule: str) -> WorldBroken:
        lines = "\n  ".join(self.story)
        return WorldBroken(f"{self.now_s:.3f} s: {subject}: {rule}\n  {lines}")

    def note(self, text: str) -> None:
        if "Heartbeat" not in text:
            self.story.append(f"{self.now_s:8.3f} {text}")

    # ------------------------------------------------------------ the coordinator

    def submit(self, spec: m.JobSpec, draw: float = 0.0) -> None:
        self.specs[spec.name] = spec
        self.decide(cev.JobSubmitted(spec, draw))

    def decide(self, event: cev.Event) -> None:
        if not isinstance(event, cev.Woke):
            self.note(f"coordinator <- {_brief(event)}")
        for effect in self.coordinator.handle(event, self.now_s):
            self._perform(effect)
        deadline_s = self.coordinator.next_deadline_s()
        if deadline_s != self._wake_s and deadline_s < inf:
            self.at(deadline_s, lambda: self._wake_coordinator(deadline_s))
        self._wake_s = deadline_s

    def _wake_coordinator(self, deadline_s: float) -> None:
        if deadline_s == self._wake_s:
            self._wake_s = inf
            self.decide(cev.Woke())

    def _perform(self, effect: cdo.Effect) -> None:
        match effect:
            case cdo.Record(fact):
                self.facts.append((self.now_s, fact))
                if not isinstance(fact, facts.Granted | facts.CheckpointPlanned):
                    self.note(f"    fact {fact}")
            case cdo.Tell(host, message):
                self._tell(host, message)
            case cdo.Disconnect(host):
                link = self.machines[host].link
                if link and link.coordinator_open:
                    self.after(0.0, lambda: self._coordinator_notices(link, "disconnected"))
            case cdo.Answer():
                pass

    def _tell(self, host: str, message: Any) -> None:
        self.told.append((self.now_s, host, message))
        if not isinstance(message, m.HeartbeatAck | m.Grant):
            self.note(f"    to {host}: {_brief(message)}")
        link = self.machines[host].link
        frame = TO_AGENT.encode(message)
        if link is None or not link.coordinator_open:
            return
        link.down_s = max(link.down_s, self.now_s + DELAY_S)
        self.at(link.down_s, lambda: self._deliver_down(link, frame))

    def _deliver_down(self, link: Link, frame: bytes) -> None:
        machine = self.machines[link.host]
        if link.cut:
            return

        def receive() -> None:
            if link.agent_open and machine.link is link:
                for message in link.to_agent.feed(frame):
                    self.agent(machine, aev.Received(message))

        self._to_agent(machine, receive)

    def _deliver_up(self, link: Link, frame: bytes) -> None:
        if link.cut:
            return
        for message in link.from_agent.feed(frame):
            if isinstance(message, m.Hello) and not link.coordinator_open:
                self._replace(link)
            if link.coordinator_open:
                self.decide(cev.AgentSaid(link.host, message))

    def _replace(self, link: Link) -> None:
        for old in self._links_of(link.host):
            if old is not link and old.coordinator_open:
                old.coordinator_open = False
                self.decide(cev.AgentGone(link.host, "replaced by a newer connection"))
        link.coordinator_open = True

    def _links_of(self, host: str) -> list[Link]:
        return [link for link in self._links if link.host == host]

    def _coordinator_notices(self, link: Link, reason: str) -> None:
        if link.coordinator_open:
            link.coordinator_open, link.cut = False, True
            self.decide(cev.AgentGone(link.host, reason))
            self.after(DELAY_S, lambda: self._agent_notices(link))

    # ------------------------------------------------------------ agents

    def start(self, *names: str) -> None:
        """Start these hosts' agents (all hosts if none is named)."""
        for name in names or self.machines:
            self._boot(self.machines[name])

    def _boot(self, machine: Machine) -> None:
        if machine.core is not None:
            return
        machine.incarnation += 1
        machine.lease_until_s, machine.wake_s = -inf, inf
        self.note(f"{machine.name} boots")
        machine.core = AgentCore(machine.name, machine.incarnation, 7200, dict(machine.store))
        if machine.closed or machine.isolate_at_s is not None:
            self._read_switch(machine)
        self._connect(machine)

    def _connect(self, machine: Machine) -> None:
        if machine.core is None or (machine.link and machine.link.agent_open):
            return
        machine.link = Link(machine.name)
        self._links[:] = [x for x in self._links if x.coordinator_open or x.agent_open] + [machine.link]
        self.agent(machine, aev.Connected())

    def _to_agent(self, machine: Machine, act: Callable[[], None]) -> None:
        """A paused process sees it when it goes on; a dead one never."""
        if machine.core is None:
            return
        if machine.paused:
            core = machine.core
            machine.deferred.append(lambda: act() if machine.core is core else None)
        else:
            act()

    def agent(self, machine: Machine, event: aev.Event) -> None:
        """Hand an event to the core of a machine, and do what it says."""
        core = machine.core
        if core is None:
            return
        if not isinstance(event, aev.Woke | aev.WorkloadProgressed):
            self.note(f"{machine.name} <- {_brief(event)}")
        for effect in core.handle(event, self.now_s):
            self._act(machine, effect)
        self._arm(machine)

    def _arm(self, machine: Machine) -> None:
        core = machine.core
        assert core is not None
        deadline_s = core.next_deadline_s()
        if deadline_s != machine.wake_s and deadline_s < inf:

            def wake() -> None:
                if machine.core is core and machine.wake_s == deadline_s:
                    machine.wake_s = inf
                    self._to_agent(machine, lambda: self.agent(machine, aev.Woke()))

            self.at(deadline_s, wake)
        machine.wake_s = deadline_s

    def _act(self, machine: Machine, effect: ado.Effect) -> None:
        match effect:
            case ado.Send(message):
                self._say(machine, message)
            case ado.ExtendLease(until_s):
                machine.lease_until_s = until_s
                self.at(until_s, lambda: self._fence_itself(machine))
            case ado.StartWorkload(spec, attempt, restore):
                self._start_process(machine, spec, attempt, restore)
            case ado.KillWorkload(job, attempt):
                if process := machine.processes.pop((job, attempt), None):
                    process.alive = False
            case ado.TakeSnapshot():
                self._snapshot(machine, effect)
            case ado.StartSending():
                self._begin_transfer(machine, effect)
            case ado.Regrant(job, destination, rate):
                self._retime(machine, (job, destination), rate)
            case ado.AbortSending(job, destination):
                machine.transfers.pop((job, destination), None)
            case ado.DropCheckpoints(job, before):
                for key in [k for k in machine.store if k[0] == job and k[1] < before]:
                    del machine.store[key]

    def _say(self, machine: Machine, message: Any) -> None:
        link = machine.link
        frame = FROM_AGENT.encode(message)
        if link is None or not link.agent_open:
            return
        link.up_s = max(link.up_s, self.now_s + DELAY_S)
        self.at(link.up_s, lambda: self._deliver_up(link, frame))

    def _agent_notices(self, link: Link) -> None:
        machine = self.machines[link.host]
        if not link.agent_open:
            return

        def notice() -> None:
            if link.agent_open and machine.link is link:
                link.agent_open = False
                self.agent(machine, aev.Disconnected())
                self.after(RECONNECT_S, lambda: self._to_agent(machine, lambda: self._connect(machine)))

        link.cut = True
        self._to_agent(machine, notice)

    # ------------------------------------------------------------ workloads

    def _start_process(
        self, machine: Machine, spec: m.JobSpec, attempt: int, restore: m.StoredCheckpoint | None
    ) -> None:
        process = Process(spec, attempt, restore.step if restore else 0)
        key = (spec.name, attempt)
        machine.processes[key] = process
        core = machine.core

        def started() -> None:
            if not process.alive or machine.core is not core:
                return
            if restore and (restore.job, restore.sequence) not in machine.store:
                self._exit(machine, process, finished=False, reason="no such checkpoint here")
            elif self.rng.random() < self.workload_failures:
                if restore is None:
                    self.allowed_to_fail.add(spec.name)
                self._exit(machine, process, finished=False, reason="it crashed")
            else:
                process.running_from_s = self.now_s
                digest = f"{spec.name}@{process.base_step}"
                self._to_agent(
                    machine,
                    lambda: self.agent(machine, aev.WorkloadStarted(*key, process.base_step, digest)),
                )
                self._progress(machine, process)

        self.after(self.rng.uniform(0.1, 0.5), started)

    def _progress(self, machine: Machine, process: Process) -> None:
        if not process.alive:
            return
        step = process.step(self.now_s)
        if step >= process.spec.steps:
            self._exit(machine, process, finished=True, reason="")
            return
        key = (process.spec.name, process.attempt)
        self._to_agent(machine, lambda: self.agent(machine, aev.WorkloadProgressed(*key, step)))
        left_s = (process.spec.steps - step) * process.spec.step_s
        self.after(min(1.0, left_s + 1e-6), lambda: self._progress(machine, process))

    def _exit(self, machine: Machine, process: Process, *, finished: bool, reason: str) -> None:
        process.alive = False
        machine.processes.pop((process.spec.name, process.attempt), None)
        step = process.step(self.now_s)
        ended = aev.WorkloadEnded(
            process.spec.name, process.attempt, finished, step, f"{process.spec.name}@{step}", reason
        )
        self._to_agent(machine, lambda: self.agent(machine, ended))

    def _fence_itself(self, machine: Machine) -> None:
        """Processes stop of themselves when the lease lapses, whatever the agent does."""
        if self.now_s < machine.lease_until_s:
            return
        for process in list(machine.processes.values()):
            self.note(f"{machine.name}: {process.spec.name} fences itself")
            self._exit(machine, process, finished=False, reason="the lease lapsed")

    def _snapshot(self, machine: Machine, order: ado.TakeSnapshot) -> None:
        core, took_s = machine.core, self.rng.uniform(0.02, 0.2)
        failed = self.rng.random() < self.snapshot_failures

        def take() -> None:
            if machine.core is not core:
                return
            process = machine.processes.get((order.job, order.attempt))
            if machine.paused:
                machine.deferred.append(take)
            elif process is None or process.running_from_s == inf or failed:
                why = "it failed" if failed else "the process has gone"
                key = (order.job, order.attempt)
                self.agent(machine, aev.SnapshotFailed(*key, order.sequence, order.final, why))
            else:
                step = process.step(self.now_s)
                if order.final:
                    machine.processes.pop((order.job, order.attempt)).alive = False
                self.after(took_s / 2, lambda: store(process.spec.payload_bytes, step))

        def store(payload_bytes: int, step: int) -> None:
            if machine.core is not core:
                return
            digest = f"{order.job}@{step}"
            taken = m.StoredCheckpoint(order.job, order.sequence, step, payload_bytes, digest)
            machine.store[order.job, order.sequence] = taken
            for key in sorted(k for k in machine.store if k[0] == order.job)[:-KEPT_SNAPSHOTS]:
                del machine.store[key]
            done = aev.SnapshotDone(
                order.job, order.attempt, order.sequence, step, payload_bytes, order.final, digest
            )
            self._to_agent(machine, lambda: self.agent(machine, done))

        self.after(took_s / 2, take)

    # ------------------------------------------------------------ transfers

    def _begin_transfer(self, machine: Machine, order: ado.StartSending) -> None:
        key = (order.job, order.destination.host)
        stored = machine.store.get((order.job, order.sequence))
        if stored is None:
            missing = aev.SendEnded(
                order.job, order.destination.host, order.sequence, False, reason="not stored"
            )
            transfer = Transfer(order, 0.0, 0.0, self.now_s, self.now_s)
            machine.transfers[key] = transfer
            self.after(0.0, lambda: self._end_transfer(machine, transfer, missing))
            return
        there = self.machines[order.destination.host].store
        known = any(k[0] == order.job for k in there)
        wire = stored.payload_bytes * (self.rng.uniform(0.1, 1.0) if known else 1.0)
        machine.transfers[key] = Transfer(order, wire, order.rate_bytes_per_s, self.now_s, self.now_s)
        self._retime(machine, key, order.rate_bytes_per_s)

    def _retime(self, machine: Machine, key: tuple[str, str], rate_bytes_per_s: float) -> None:
        transfer = machine.transfers.get(key)
        if transfer is None:
            return
        transfer.left_bytes -= (self.now_s - transfer.since_s) * transfer.rate_bytes_per_s
        transfer.since_s, transfer.rate_bytes_per_s = self.now_s, rate_bytes_per_s
        transfer.version += 1
        version = transfer.version
        if rate_bytes_per_s > 0.0:
            left_s = max(0.0, transfer.left_bytes) / rate_bytes_per_s
            self.after(left_s, lambda: self._arrive(machine, transfer, version))

    def _arrive(self, machine: Machine, transfer: Transfer, version: int) -> None:
        order = transfer.order
        key, target = (order.job, order.destination.host), self.machines[order.destination.host]
        if machine.transfers.get(key) is not transfer or transfer.version != version:
            return
        if target.paused or machine.paused:
            self.after(0.2, lambda: self._arrive(machine, transfer, version))
            return
        stored = machine.store.get((order.job, order.sequence))
        fails = self.rng.random() < self.send_failures
        ok = stored is not None and target.core is not None and not target.closed and not fails
        retryable = target.core is None or (fails and self.rng.random() < 0.7)
        sent = int(max(0.0, stored.payload_bytes if stored else 0.0))
        if ok and stored is not None:
            for old in [k for k in target.store if k[0] == order.job and k[1] < order.sequence]:
                del target.store[old]
            target.store[order.job, order.sequence] = stored
            self.agent(target, aev.CheckpointReceived(stored))
        ended = aev.SendEnded(
            order.job,
            order.destination.host,
            order.sequence,
            ok,
            sent if ok else 0,
            0,
            self.now_s - transfer.began_s,
            self.rng.uniform(0.9, 1.0) if ok else None,
            reason="" if ok else "the transfer failed",
            retryable=retryable and not ok,
        )
        self.after(DELAY_S, lambda: self._end_transfer(machine, transfer, ended))

    def _end_transfer(self, machine: Machine, transfer: Transfer, ended: aev.SendEnded) -> None:
        def end() -> None:
            if machine.transfers.get((ended.job, ended.destination)) is transfer:
                del machine.transfers[ended.job, ended.destination]
                self.agent(machine, ended)

        self._to_agent(machine, end)

    # ------------------------------------------------------------ faults

    def kill(self, name: str, notice_after_s: float = DELAY_S) -> None:
        """SIGKILL of the agent: its workloads die with it (PR_SET_PDEATHSIG); only its disk remains."""
        machine = self.machines[name]
        if machine.core is None:
            return
        self.note(f"{name} is killed")
        machine.core, machine.paused = None, False
        machine.deferred.clear()
        machine.transfers.clear()
        for process in machine.processes.values():
            process.alive = False
        machine.processes.clear()
        if link := machine.link:
            link.agent_open, link.cut, machine.link = False, True, None
            self.after(notice_after_s, lambda: self._coordinator_notices(link, "connection lost"))

    def pause(self, name: str, for_s: float) -> None:
        """SIGSTOP of the agent; its workloads go on until their lease lapses."""
        machine = self.machines[name]
        if machine.core is None or machine.paused:
            return
        self.note(f"{name} is paused for {for_s:.2f} s")
        self.pauses.append((self.now_s, name, for_s))
        machine.paused, core = True, machine.core

        def resume() -> None:
            if machine.core is core and machine.paused:
                self.note(f"{name} goes on")
                machine.paused = False
                machine.wake_s = inf
                waiting, machine.deferred = machine.deferred, deque()
                while waiting:
                    waiting.popleft()()
                if machine.core is core:
                    self._arm(machine)

        self.after(for_s, resume)

    def cut(self, name: str, agent_after_s: float, coordinator_after_s: float) -> None:
        """The connection breaks; each side learns of it in its own time. What is in flight is lost."""
        link = self.machines[name].link
        if link is None:
            return
        self.note(f"the connection of {name} is cut")
        link.cut = True
        self.after(agent_after_s, lambda: self._agent_notices(link))
        self.after(coordinator_after_s, lambda: self._coordinator_notices(link, "connection lost"))

    def reclaim(self, name: str, notice_s: float = 0.0, *, grace: bool = False) -> None:
        """The owner writes the switch; the agent reads it within a sample."""
        machine = self.machines[name]
        self.note(f"the owner of {name} reclaims it in {notice_s:.2f} s")
        machine.switch_version += 1
        version = machine.switch_version
        machine.closed = notice_s <= 0.0
        machine.isolate_at_s = None if notice_s <= 0.0 else self.now_s + notice_s

        def isolate() -> None:
            if machine.switch_version == version:
                machine.closed = True

        if notice_s > 0.0:
            self.after(notice_s, isolate)
        self._read_soon(machine, grace)

    def give_back(self, name: str) -> None:
        """The owner lends it again."""
        machine = self.machines[name]
        self.note(f"the owner of {name} returns it")
        machine.switch_version += 1
        machine.closed, machine.isolate_at_s = False, None
        self._read_soon(machine, grace=False)

    def _read_soon(self, machine: Machine, grace: bool) -> None:
        version = machine.switch_version

        def look() -> None:
            if machine.switch_version == version:
                self._read_switch(machine, grace)

        self.after(self.rng.uniform(0.0, 0.1), lambda: self._to_agent(machine, look))

    def _read_switch(self, machine: Machine, grace: bool = False) -> None:
        if machine.isolate_at_s is not None:
            left_s = max(0.0, machine.isolate_at_s - self.now_s)
            self.agent(machine, aev.SwitchRead(False, left_s, grace))
        elif machine.closed:
            self.agent(machine, aev.SwitchRead(False, 0.0, grace))
        else:
            self.agent(machine, aev.SwitchRead(True))

    # ------------------------------------------------------------ questions

    @property
    def jobs(self) -> dict[str, JobState]:
        return self.coordinator.world.jobs

    def copies(self, job: str) -> list[str]:
        """Hosts on which the job computes, truly."""
        return [
            f"{machine.name}#{attempt}"
            for machine in self.machines.values()
            for (name, attempt), process in machine.processes.items()
            if name == job and process.alive
        ]

    def over(self) -> bool:
        return all(job.phase in (Phase.FINISHED, Phase.FAILED) for job in self.jobs.values())

    def of(self, kind: type) -> list[Any]:
        """Facts of one kind."""
        return [fact for _, fact in self.facts if isinstance(fact, kind)]

    def to(self, host: str, kind: type) -> list[Any]:
        """Messages of one kind that a host was told."""
        return [message for _, name, message in self.told if name == host and isinstance(message, kind)]

    def promises(self) -> list[Any]:
        """What experiments.promises says of the journal."""
        context = RunContext(
            0,
            Scale(),
            self.campus,
            self.coordinator.world.share,
            self.settings.on_demand_cost,
            self.settings.target_delay_s,
            world="cores",
            ended_at_s=self.now_s,
        )
        return broken(self.facts, context)


def _brief(thing: object) -> str:
    return f"{thing}"[:260]


# ---------------------------------------------------------------- what must always hold


def check_world(world: CoresWorld) -> None:
    """Every invariant, now. Raises WorldBroken with the story."""
    _check_jobs(world)
    _check_hosts(world)
    _check_offers(world)
    _check_flows(world)


def _check_jobs(world: CoresWorld) -> None:
    known = world.coordinator.world
    waiting = known.queue.waiting()
    if len(set(waiting)) != len(waiting) or len(set(known.backlog)) != len(known.backlog):
        raise world.broken("queue", f"somebody waits twice: {waiting} {known.backlog}")
    alive: dict[str, list[str]] = {}
    for machine in world.machines.values():
        for (name, attempt), process in machine.processes.items():
            if process.alive:
                alive.setdefault(name, []).append(f"{machine.name}#{attempt}")
    for name, copies in alive.items():
        if len(copies) > 1:
            raise world.broken(name, f"more than one copy computes: {copies}")
    for job in known.jobs.values():
        _check_job(world, job, waiting)


def _check_job(world: CoresWorld, job: JobState, waiting: list[str]) -> None:
    known, name = world.coordinator.world, job.name
    waits = name in waiting or name in known.backlog
    if waits != (job.phase is Phase.WAITING):
        raise world.broken(name, f"{job.phase}, and it {'waits' if waits else 'does not wait'}")
    on_host = job.phase in (Phase.STARTING, Phase.RUNNING, Phase.MOVING, Phase.FETCHING)
    if on_host != (job.host is not None):
        raise world.broken(name, f"{job.phase} with host {job.host}")
    if job.host is not None and name not in known.hosts[job.host].jobs:
        raise world.broken(name, f"no GPU is held for it on {job.host}")
    if (job.phase is Phase.MOVING) != (job.move is not None):
        raise world.broken(name, f"{job.phase} with move {job.move}")
    if job.attempt < world._attempts.get(name, 0):
        raise world.broken(name, "its attempts do not grow")
    world._attempts[name] = job.attempt
    if job.phase is Phase.FAILED and name not in world.allowed_to_fail:
        raise world.broken(name, "it failed, and its workload never did")


def _check_hosts(world: CoresWorld) -> None:
    known = world.coordinator.world
    for host in known.hosts.values():
        if len(host.jobs) > host.spec.gpus:
            raise world.broken(host.name, f"{len(host.jobs)} jobs on {host.spec.gpus} GPUs")
        for name in host.jobs:
            job = known.jobs[name]
            going = job.move is not None and job.move.destination == host.name
            if job.host != host.name and not going:
                raise world.broken(host.name, f"a GPU is held for {name}, which is {job.phase} on {job.host}")


def _check_offers(world: CoresWorld) -> None:
    known = world.coordinator.world
    standing = {offer.offer_id for offer in known.queue.standing()}
    if standing != set(known.offers):
        raise world.broken("offers", f"queue {sorted(standing)}, book {known.offers}")
    for host in known.hosts.values():
        if host.offered != {number for number, name in known.offers.items() if name == host.name}:
            raise world.broken(host.name, f"offers {host.offered} are not in the book {known.offers}")
        if len(host.offered) > host.free_gpus or (host.offered and not host.usable):
            raise world.broken(host.name, f"{len(host.offered)} offers, {host.free_gpus} GPUs free")


def _check_flows(world: CoresWorld) -> None:
    known = world.coordinator.world
    used: dict[Any, float] = {}
    for key, flow in known.flows.items():
        job = known.jobs[flow.job]
        if job.phase in (Phase.FINISHED, Phase.FAILED, Phase.WAITING, Phase.STARTING):
            raise world.broken(key, f"a flow of a job that is {job.phase}")
        for link in known.routes.route(flow.source, flow.destination):
            used[link] = used.get(link, 0.0) + flow.rate_bytes_per_s
    for link, rate in used.items():
        if rate > known.share[link] * (1.0 + 1e-6):
            raise world.broken(str(link), f"{rate:.1f} bytes/s granted, {known.share[link]:.1f} may be")
