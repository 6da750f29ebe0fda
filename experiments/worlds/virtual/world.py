"""A coordinator core and all agent cores on a heap of events: decisions as live, over a fluid network, and time that jumps.

Begin here. The world performs the effects of the cores (`_perform` for the coordinator, `_act` for an agent) through
its parts. Each part reports its results as events for a core:

    connections         messages, in order, lost only with their connection.
    workloads           processes as progress models, snapshots.
    transfers           checkpoints as flows of the fluid network.
    heartbeat_elision   heartbeats that can change nothing are left out (`quiet`).
    research            traffic of research users.
    links               cables that are slow or down, and the routes around dead trunks.

No clock is read, and all random numbers come from named streams of the seed: the same arguments give the same facts,
byte for byte. Faults are methods here, or functions handed in (`faults`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from controller.core.coordinator import Coordinator
from controller.core.lifecycle.reconcile import not_yet
from controller.core.model import effects as cdo
from controller.core.model import events as cev
from controller.core.model import facts
from controller.core.model.entities import OVER, JobState
from controller.core.parameters import Protocol, Queue
from controller.core.policies.table import policy_of
from experiments.inputs.scenario import ResearchFlow
from experiments.worlds.virtual.background import VirtualBackground
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import make_environment
from experiments.worlds.virtual.faults import Faults
from experiments.worlds.virtual.heartbeat_elision import HeartbeatElision, asks_for_steps
from experiments.worlds.virtual.hosts import Connection, Machine
from experiments.worlds.virtual.journal import MemoryJournal
from experiments.worlds.virtual.links import VirtualLinks
from experiments.worlds.virtual.network import together
from experiments.worlds.virtual.overheads import Overheads, costs_of
from experiments.worlds.virtual.replicas import Replicas
from experiments.worlds.virtual.research import ResearchTraffic
from experiments.worlds.virtual.scheduler import Priority, Scheduler
from experiments.worlds.virtual.transfers import Transfers
from experiments.worlds.virtual.workloads import Workloads, tells_steps
from testbed import messages as m
from testbed.agent.core import effects as ado
from testbed.agent.core import events as aev
from testbed.agent.core.agent import AgentCore
from testbed.agent.core.stored import StoredCheckpoints
from testbed.enforcement import Enforcement
from topologies.spec import Campus

DATA_PORT = 7200
TRACE_SKIP_FACTS = (facts.Granted, facts.CheckpointPlanned)  # facts too frequent for a story
TRACE_SKIP_EVENTS = (aev.Woke, aev.WorkloadsProgressed, aev.Sampled)


class VirtualWorld:
    """The campus with everything on it: its parts are attributes, what is done to it are methods."""

    def __init__(
        self,
        campus: Campus,
        protocol: Protocol,
        terms: Queue,
        seed: int = 0,
        *,
        duration_s: float = 3600.0,
        costs: Overheads | None = None,
        faults: Faults | None = None,
        research: Iterable[ResearchFlow] = (),
        quiet: bool = True,  # heartbeats that can change nothing are left out
        codec: bool = False,  # messages are sent as bytes
        tells_story: bool = False,
        after_each: Callable[[VirtualWorld], None] | None = None,
        scheduler: Scheduler | None = None,  # its time is the world's; its own by default
    ) -> None:
        faults = faults or Faults()
        self._seed, self.policy = seed, policy_of(protocol)
        row = self.policy
        self.protocol, self.terms, self.quiet = protocol, terms, quiet and not faults.touches_messages
        enforcement = Enforcement(protocol.enforcement) if row.enforced else Enforcement.NONE
        self.env = make_environment(
            campus,
            costs or costs_of(protocol),
            faults,
            seed,
            enforcement,
            head_stores=protocol.head_stores,
            scheduler=scheduler or Scheduler(),
            borrows=row.borrows,
        )
        self.env.tells_story = tells_story
        self.env.agent, self.env.decide = self.agent, self.decide
        self.env.broken_off = self._broken_off
        self.facts: list[tuple[float, Any]] = []
        self._unheard: set[str] = set()  # jobs not yet sent to any coordinator
        self.on_rejected: Callable[[m.Rejected], None] = lambda answer: None
        self._after_each, self._wake_s = after_each, inf
        self.connections = Connections(self.env, codec=codec)
        self.replicas = Replicas(self.env, row.interruption.replication, lambda: self.coordinator.cluster)
        self.links = VirtualLinks(self.env, self.connections, self._broken_off, self._rerouted, self._shared_anew)
        self.workloads = Workloads(self.env, self.replicas)
        self.transfers = Transfers(self.env, enforcement, borrows=row.borrows)
        self.background: VirtualBackground | None = None
        self.research = ResearchTraffic(self.env, tuple(research), duration_s, seed)
        self.heartbeats = HeartbeatElision(self.env, self.new_coordinator(), self.connections, self.workloads)
        if self.quiet:
            self.connections.heard = self.heartbeats.heard
        else:
            self.heartbeats.journal = MemoryJournal()
        self.connections.not_yet = self._not_yet

    # ------------------------------------------------------------ the cores

    def new_coordinator(self) -> Coordinator:
        """Return a coordinator's core as it is when a run begins."""
        return Coordinator(self.env.campus, self.protocol, self.terms, random.Random(f"{self._seed} placement").random)

    def new_agent(self, machine: Machine) -> AgentCore:
        """Return an agent's core as it is when it boots: it knows what is on its disk."""
        gpus = self.env.campus.host_by_name[machine.name].gpus
        return AgentCore(machine.name, machine.incarnation, DATA_PORT, StoredCheckpoints(machine.store), gpus=gpus)

    # ------------------------------------------------------------ time

    @property
    def now_s(self) -> float:
        """Virtual time, seconds."""
        return self.env.scheduler.now_s

    @property
    def machines(self) -> dict[str, Machine]:
        """Hosts as they truly are."""
        return self.env.machines

    @property
    def events(self) -> int:
        """Events so far."""
        return self.env.scheduler.count

    def at(self, when_s: float, act: Callable[[], None], priority: Priority = Priority.FAULT) -> None:
        """Do it at that time, after what was put there before with this priority."""
        self.env.scheduler.at(when_s, act, priority)

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do it that much later."""
        self.at(self.now_s + delay_s, act)

    def run(self, until_s: float) -> None:
        """Run all events up to that time."""
        check = self._after_each
        self.env.scheduler.run(until_s, None if check is None else lambda: check(self))

    def over(self) -> bool:
        """Return whether every job is over, and none is still to be submitted."""
        return not self._unheard and all(job.phase in OVER for job in self.jobs.values())

    def finish(self) -> None:
        """End the run: hand over the last counters."""
        if not self.quiet:
            return
        if self.connections.refused:
            return
        for machine in self.machines.values():
            if samples := self.env.network.egress.sample(machine.name, self.now_s):
                self.decide(cev.AgentSaid(machine.name, m.Heartbeat(0, [], samples=samples)))

    # ------------------------------------------------------------ the coordinator

    @property
    def coordinator(self) -> Coordinator:
        """The core; another one after each restart."""
        return self.heartbeats.coordinator

    @property
    def jobs(self) -> dict[str, JobState]:
        """Jobs in the state of the coordinator."""
        return self.coordinator.cluster.jobs

    def submit(self, spec: m.JobSpec, draw: float = 0.0) -> None:
        """Submit a job; `draw` decides whether it joins a full queue. While the coordinator is dead, try again later."""
        self.env.specs[spec.name] = spec
        self._unheard.discard(spec.name)
        if self.connections.refused:
            self._unheard.add(spec.name)
            self.after(self.env.costs.reconnect_s, lambda: self.submit(spec, draw))
        else:
            self.decide(cev.SubmitAsked(spec, draw))

    def cancel(self, job: str) -> None:
        """Cancel a job for its user; again and again while the coordinator is dead."""
        if self.connections.refused:
            self.after(self.env.costs.reconnect_s, lambda: self.cancel(job))
        else:
            self.decide(cev.CancelAsked(job))

    def _not_yet(self, hello: m.Hello) -> str:
        cluster = self.coordinator.cluster
        return not_yet(cluster, cluster.hosts[hello.host], hello, self.env.scheduler.now_s)

    def decide(self, event: cev.Event) -> None:
        """Hand an event to the coordinator, and perform its effects."""
        if self.env.tells_story and not isinstance(event, cev.Woke):
            self._note(f"coordinator <- {_brief(event)}")
        if self.quiet and asks_for_steps(event):
            self.heartbeats.freshen()
        if self.heartbeats.journal is not None:
            self.heartbeats.journal.keep(self.env.scheduler.now_s, event)
        for effect in self.heartbeats.coordinator.handle(event, self.env.scheduler.now_s):
            self._perform(effect)
        self._arm_coordinator()

    def _arm_coordinator(self) -> None:
        deadline_s = self.heartbeats.coordinator.next_deadline_s()

        def wake() -> None:
            if deadline_s == self._wake_s and not self.connections.refused:
                self._wake_s = inf
                self.decide(cev.Woke())

        if deadline_s != self._wake_s and deadline_s < inf:
            self.env.scheduler.at(deadline_s, wake)
        self._wake_s = deadline_s

    def _perform(self, effect: cdo.Effect) -> None:
        match effect:
            case cdo.Record(fact):
                self.facts.append((self.env.scheduler.now_s, fact))
                if self.env.tells_story and not isinstance(fact, TRACE_SKIP_FACTS):
                    self.env.note(f"    fact {fact}")
            case cdo.Tell(host, message):
                if self.env.tells_story and not isinstance(message, m.HeartbeatAck | m.Grant):
                    self.env.note(f"    to {host}: {_brief(message)}")
                self.connections.tell(host, message)
            case cdo.Disconnect(host):
                link = self.machines[host].link
                if link and link.coordinator_open:
                    self.after(0.0, lambda: self.connections.coordinator_notices(link, "disconnected"))
            case cdo.SetWays():
                self.links.program(effect)
            case cdo.SetLoads():
                self.links.weigh(effect)
            case cdo.Answer(_, m.Rejected() as answer):
                self.on_rejected(answer)
            case cdo.Answer():
                pass

    # ------------------------------------------------------------ agents

    def start(self, *names: str) -> None:
        """Start these hosts' agents (all hosts if none is named)."""
        for name in names or self.machines:
            machine = self.machines[name]
            if machine.core is not None:
                continue
            machine.incarnation += 1
            machine.lease_until_s, machine.wake_s, machine.beats_from_s = -inf, inf, None
            self.env.note(f"{name} boots")
            machine.core = self.new_agent(machine)
            if machine.closed or machine.isolate_at_s is not None:
                self.read_switch(machine)
            self.connections.connect(machine)
            if not self.quiet:
                self._sample(machine, machine.core)

    def agent(self, machine: Machine, event: aev.Event) -> None:
        """Hand an event to the core of a machine, and perform its effects."""
        core = machine.core
        if core is None:
            return
        if self.env.tells_story and not isinstance(event, TRACE_SKIP_EVENTS):
            self._note(f"{machine.name} <- {_brief(event)}")
        now_s = self.env.scheduler.now_s
        if machine.processes and tells_steps(core, event, now_s):
            self.workloads.report(machine)
        for effect in core.handle(event, now_s):
            self._act(machine, effect)
        self.arm(machine)

    def arm(self, machine: Machine) -> None:
        """Wake the agent when it wants to be woken."""
        core = machine.core
        assert core is not None
        deadline_s = core.next_deadline_s()
        if deadline_s != machine.wake_s and deadline_s < inf:

            def wake() -> None:
                if machine.core is core and machine.wake_s == deadline_s:
                    machine.wake_s = inf
                    self.env.tell_agent(machine, aev.Woke())

            self.env.scheduler.at(deadline_s, wake)
        machine.wake_s = deadline_s

    def _act(self, machine: Machine, effect: ado.Effect) -> None:
        match effect:
            case ado.Send(message):
                self.connections.say(machine, message)
            case ado.ExtendLease(until_s):
                machine.lease_until_s = until_s
                self.env.scheduler.at(until_s, lambda: self.workloads.fence(machine))
            case ado.StartWorkload():
                self.workloads.start(machine, effect)
            case ado.KillWorkload(job, attempt):
                self.workloads.kill(machine, job, attempt)
            case ado.EndWorkload():
                self.workloads.end(machine, effect)
            case ado.TakeSnapshot():
                self.workloads.snapshot(machine, effect)
            case ado.StartSending():
                self.transfers.begin(machine, effect)
            case ado.Regrant(job, destination, rate):
                self.transfers.regrant(machine, job, destination, rate)
            case ado.AbortSending(job, destination):
                self.transfers.abort(machine, job, destination)
            case ado.DropCheckpoints(job, before):
                machine.disk.drop(job, before)

    def _sample(self, machine: Machine, core: AgentCore) -> None:
        """Hand over the kernel's counters, once a heartbeat (live: ten times a second)."""

        def sample() -> None:
            if machine.core is not core:
                return
            samples = self.env.network.egress.sample(machine.name, self.now_s)
            if samples:
                self.env.tell_agent(machine, aev.Sampled({}, [], together(samples), 0.0))
            self.env.after(self.protocol.heartbeat_s, sample)

        self.env.after(self.protocol.heartbeat_s, sample)

    # ------------------------------------------------------------ owners

    def reclaim(self, name: str, notice_s: float = 0.0, *, grace: bool = False) -> None:
        """Take a host back for its owner, at once or in `notice_s`. During a notice the kernel lets no new connection in."""
        machine = self.machines[name]
        self.env.note(f"the owner of {name} reclaims it in {notice_s:.2f} s")
        machine.switch_version += 1
        version = machine.switch_version
        machine.isolate_at_s = None if notice_s <= 0.0 else self.now_s + notice_s
        self._set_switch(machine, closed=notice_s <= 0.0)

        def isolate() -> None:
            if machine.switch_version == version:
                self._set_switch(machine, closed=True)

        if notice_s > 0.0:
            self.env.after(notice_s, isolate, Priority.OWNER)
        self._read_soon(machine, grace)

    def give_back(self, name: str) -> None:
        """Lend a host again for its owner."""
        machine = self.machines[name]
        self.env.note(f"the owner of {name} returns it")
        machine.switch_version += 1
        machine.isolate_at_s = None
        self._set_switch(machine, closed=False)
        self._read_soon(machine, grace=False)

    def read_switch(self, machine: Machine, grace: bool = False) -> None:
        """Hand the state of the kernel's switch to the agent."""
        left_s = 0.0
        if machine.isolate_at_s is not None:
            left_s = max(0.0, machine.isolate_at_s - self.now_s)
        is_lent = machine.isolate_at_s is None and not machine.closed
        self.agent(machine, aev.SwitchRead(True) if is_lent else aev.SwitchRead(False, left_s, grace))

    def _set_switch(self, machine: Machine, *, closed: bool) -> None:
        """Shut a host off, or let it on again, as the kernel does at once."""
        if machine.closed is closed:
            return
        machine.closed = closed
        if closed:
            self.replicas.take_over(machine)
            self.transfers.cut_receiver(machine.name, self.env.costs.silence_s, "no sign of life")
        self.research.switched(machine.name, closed=closed)

    def _read_soon(self, machine: Machine, grace: bool) -> None:
        """Let the agent read its switch a moment later, unless it is written again."""
        version = machine.switch_version

        def look() -> None:
            if machine.switch_version == version:
                self.read_switch(machine, grace)

        delay_s = self.env.streams.span(self.env.costs.switch_s, "switch", machine.name)
        self.env.after(delay_s, lambda: self.env.to_agent(machine, look), Priority.PROCESS)

    # ------------------------------------------------------------ faults

    def restart_coordinator(self, at_s: float | None = None, down_s: float = 0.0) -> None:
        """Kill the coordinator's process (SIGKILL), by default now; it begins again from its journal `down_s` later.

        ValueError: in a quiet world the first restart
        must be planned before the first event, so that its journal is kept.
        """
        if self.heartbeats.journal is None:
            if self.events:
                raise ValueError("a quiet world keeps a journal if a restart is planned before its first event")
            self.heartbeats.journal = MemoryJournal()
        if at_s is None:
            self._kill_coordinator(down_s)
        else:
            self.at(at_s, lambda: self._kill_coordinator(down_s))

    def _kill_coordinator(self, down_s: float) -> None:
        if self.connections.refused:
            return
        self.env.note("the coordinator is killed")
        self.connections.hang_up()
        self.connections.refused = True
        self.after(down_s, self.begin_again)

    def begin_again(self) -> None:
        """Start a coordinator where the journal ends."""
        journal = self.heartbeats.journal
        assert journal is not None
        self.heartbeats.coordinator = journal.recall(self.new_coordinator(), self.facts)
        self.connections.refused = False
        self.decide(cev.Restarted(self.now_s - journal.last_s))

    def _broken_off(self, link: Connection) -> None:
        """Count a connection's heartbeats from here on: something happens to it."""
        machine = self.machines[link.host]
        if machine.held and machine.link is link:
            self.heartbeats.rouse(machine)
            if machine.core is not None and not machine.paused:
                self.arm(machine)
            self._arm_coordinator()

    def kill(self, name: str, notice_after_s: float | None = None, *, again_after_s: float = inf) -> None:
        """Kill the agent (SIGKILL): its workloads die with it; only its disk remains.

        The coordinator notices in its time (by default that of a message). It may be started again after a while.
        """
        machine = self.machines[name]
        link = machine.link
        if machine.core is None:
            return
        self.env.note(f"{name} is killed")
        if link is not None:
            self._broken_off(link)
        self.replicas.take_over(machine)
        self.transfers.abort_all(machine)
        self.workloads.kill_all(machine)
        self.transfers.cut_receiver(name, 0.0, "the connection broke")
        machine.core, machine.paused, machine.beats_from_s = None, False, None
        machine.deferred.clear()
        if link is not None:
            link.agent_open, link.cut, machine.link = False, True, None
            delay_s = self.env.costs.message_s if notice_after_s is None else notice_after_s
            self.after(delay_s, lambda: self.connections.coordinator_notices(link, "connection lost"))
        self.at(self.now_s + again_after_s, lambda: self.start(name))

    def pause(self, name: str, for_s: float) -> None:
        """Stop the agent (SIGSTOP), and continue it after a while; its workloads go on until their lease lapses."""
        machine = self.machines[name]
        if machine.core is None or machine.paused:
            return
        self.env.note(f"{name} is paused for {for_s:.2f} s")
        if machine.link is not None:
            self._broken_off(machine.link)
        machine.paused, core = True, machine.core

        def resume() -> None:
            if machine.core is not core or not machine.paused:
                return
            self.env.note(f"{name} goes on")
            machine.paused, machine.wake_s = False, inf
            waiting, machine.deferred = machine.deferred, deque()
            while waiting:
                waiting.popleft()()
            if machine.core is core:
                self.arm(machine)

        self.after(for_s, resume)

    def cut(self, name: str, agent_after_s: float = 0.0, coordinator_after_s: float = 0.0) -> None:
        """Break a host's connection; each side notices in its own time. Messages in flight are lost."""
        link = self.machines[name].link
        if link is not None:
            self.env.note(f"the connection of {name} is cut")
            self.connections.cut(link, agent_after_s, coordinator_after_s)

    def _rerouted(self) -> None:
        """Move traffic to other routes: a trunk died or is back."""
        self.transfers.follow_routes()
        self._shared_anew()

    def _shared_anew(self) -> None:
        """Share research on other ways, or in other parts, as the switches now do."""
        self.research.follow_routes()
        if self.background is not None:
            self.background.follow_routes()

    def _note(self, text: str) -> None:
        if "Heartbeat" not in text:
            self.env.note(text)


def _brief(thing: object) -> str:
    return f"{thing}"[:260]
