"""Storms' virtual world: made from a script, with faults that last a while, clocks that disagree, and counts of faults.

An *occurrence* is (name, host): a message, a fact, or an event of an agent, by the name of its class. A trigger that
waits for one acts once, at that very moment but after the decision that is being made. Messages just sent are on their
way, and a kill, a cut or a reclaim comes before they arrive. So a fault can strike between any two steps of the
protocol.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

import msgspec

from controller.core.coordinator import Coordinator
from controller.core.model import effects as cdo
from controller.core.model import events as cev
from controller.core.queueing.controllers.controller import Controller
from controller.core.queueing.replay import Rule
from experiments.storms.judges import StormJudges
from experiments.storms.script import Script
from experiments.storms.setup import COSTS, campus_line, settings_of
from experiments.worlds.virtual.background import OthersTraffic
from experiments.worlds.virtual.faults import Failure, Faults
from experiments.worlds.virtual.hosts import Connection, Machine
from experiments.worlds.virtual.journal import MemoryJournal
from experiments.worlds.virtual.world import DATA_PORT, VirtualWorld
from testbed import messages as m
from testbed.agent.core import effects as ado
from testbed.agent.core import events as aev
from testbed.agent.core.agent import AgentCore
from testbed.agent.core.stored import StoredCheckpoints
from topologies.paths import RouteHistory
from topologies.spec import DirectedLink, Role

STORY_LINES = 4000
STORM_S = 60.0  # about as long as a storm with its calm: research is measured in the shortest windows
ALL = "*"
EXIT_S = 0.02  # a process that has found another's epoch in its journal ends
FULL_DISK = "a disk was full"


@dataclass(frozen=True, slots=True)
class FaultWindow:
    """A fault until a time, on one host or all: `what` is an operation that fails, or "message", which is `by_s` late."""

    what: str
    host: str
    until_s: float
    by_s: float = 0.0
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Trigger:
    """An action that waits for something of this name to happen to this host, or to any."""

    name: str
    host: str
    act: Callable[[str], None]  # is given the host


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault that no fact records and that may make a migration late: its name, its time, and the migrations that it acts on.

    It acts on those with an end in `hosts` or a link of their way in `links`, on all of them if both are empty; with `job`
    only on that job's.
    """

    cause: str
    from_s: float
    until_s: float
    hosts: Set[str] = frozenset()
    links: Set[DirectedLink] = frozenset()
    job: str = ""

    def acts_on(self, job: str, ends: Set[str], way: Set[DirectedLink], from_s: float, until_s: float) -> bool:
        """Return whether it may make a migration of `job` between those hosts late that is to happen within these times."""
        if self.from_s >= until_s or self.until_s <= from_s or self.job not in ("", job):
            return False
        everywhere = not self.hosts and not self.links
        return everywhere or not self.hosts.isdisjoint(ends) or not self.links.isdisjoint(way)


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock that reads `offset_s` + `rate` times the true seconds, like CLOCK_MONOTONIC of a host that booted at some time."""

    offset_s: float = 0.0
    rate: float = 1.0

    def reads(self, true_s: float) -> float:
        """Return its reading at a true moment."""
        return self.offset_s + self.rate * true_s

    def true_s(self, reading_s: float) -> float:
        """Return the true moment of a reading; an infinite one stays."""
        return reading_s if abs(reading_s) == inf else (reading_s - self.offset_s) / self.rate


@dataclass
class SkewedAgent(AgentCore):
    """An agent that is handed true time and lives by its clock; all that it asks of the world is turned back.

    No message carries a moment, only durations, so offsets must not matter at all. A clock that runs slow makes a lease
    last longer than its coordinator counts: `fence_margin_s` must cover the drift over one lease (2 s at 3 % are 0.06 s).
    """

    clock: Clock = field(default_factory=Clock)
    latest_s: float = -inf  # its clock's last reading: a clock of this kind never goes back

    def handle(self, event: aev.Event, now_s: float) -> list[ado.Effect]:
        """Handle an event at the time that its clock shows; woken for a deadline, it sees that the deadline is there.

        The rest of a notice is read from a switch whose deadline is a moment of the same clock.
        """
        if isinstance(event, aev.SwitchRead) and event.isolate_in_s:
            event = msgspec.structs.replace(event, isolate_in_s=event.isolate_in_s * self.clock.rate)
        reading_s = max(self.latest_s, self.clock.reads(now_s))
        due_s = super().next_deadline_s()
        if isinstance(event, aev.Woke) and self.clock.true_s(due_s) <= now_s:
            reading_s = max(reading_s, due_s)
        self.latest_s = reading_s
        return [
            msgspec.structs.replace(effect, until_s=self.clock.true_s(effect.until_s))
            if isinstance(effect, ado.ExtendLease)
            else effect
            for effect in super().handle(event, reading_s)
        ]

    def next_deadline_s(self) -> float:
        """Return the next deadline in true time."""
        return self.clock.true_s(super().next_deadline_s())


class StormWorld(VirtualWorld):
    """The virtual world of a script, that faults are done to. SpecError: its first lines cannot be read.

    `counts`: how often each fault took effect and each kind of fact was recorded.
    """

    def __init__(self, script: Script, *, tells_story: bool = False) -> None:
        line = campus_line(script)
        protocol, queue = settings_of(script, line.enforcement)
        campus = line.campus()
        leaves = any(host.role is Role.ON_DEMAND for host in campus.hosts)
        self._leave_s = line.leave if leaves else None
        self.counts: Counter[str] = Counter()
        self.clocks: dict[str, Clock] = {}
        self.disturbances: list[Disturbance] = []
        self.windows: list[FaultWindow] = []
        self.triggers: list[Trigger] = []
        self.ways = RouteHistory(campus)  # that packets took
        # (kind, host) of the next message that is sent twice
        self.repeats: set[tuple[str, str]] = set()
        # (kind, host) of the next message that others overtake -> by how long
        self.overtaken: dict[tuple[str, str], float] = {}
        self.evasive: dict[str, float] = {}  # hosts whose agents do not answer -> until when
        self.judges = StormJudges(self)
        self.is_calm = False  # the last fault is over
        # the coordinator dies while it writes its next event, for so long
        self.torn_for_s: float | None = None
        # another coordinator takes its journal then, and it wakes after so long
        self.usurped_for_s: float | None = None
        # messages of a coordinator that stands still between an event's record and its messages
        self._unsent: list[cdo.Tell] | None = None
        faults = Faults(
            sending=lambda host, order: self._failure("sending", host),
            snapshot=lambda host, order: self._failure("snapshot", host),
            workload=lambda host, job, attempt: self._failure("workload", host),
        )
        super().__init__(
            campus,
            protocol,
            queue,
            line.seed,
            duration_s=STORM_S,
            costs=replace(COSTS, switch_s=(0.0, line.switch_s)),
            # with a fault of messages each is really sent
            faults=faults if line.quiet else replace(faults, message=self._late_s),
            quiet=line.quiet,
            codec=not line.quiet,
            tells_story=tells_story,
            after_each=self.judges,
        )
        self.env.story = deque(maxlen=STORY_LINES)
        self.heartbeats.journal = MemoryJournal()
        self.others = OthersTraffic(self.env, self.connections)

    # ------------------------------------------------------------ what is noticed

    def noticed(self, what: str) -> None:
        """Count a fault that took effect."""
        self.counts[f"fault: {what}"] += 1

    def disturb(
        self, cause: str, for_s: float, *, host: str = ALL, links: Iterable[DirectedLink] = (), job: str = ""
    ) -> None:
        """Note a fault that no fact records and that may make migrations late for a while: see `Disturbance`."""
        hosts = frozenset[str]() if host == ALL else frozenset([host])
        until_s = self.now_s + for_s
        self.disturbances.append(Disturbance(cause, self.now_s, until_s, hosts, frozenset(links), job))

    def occurs(self, name: str, host: str) -> None:
        """Fire the triggers that wait for this."""
        for trigger in [t for t in self.triggers if t.name == name and t.host in (host, ALL)]:
            self.triggers.remove(trigger)
            trigger.act(host)

    def _late_s(self, host: str, message: Any) -> float:
        self.occurs(type(message).__name__, host)
        late = self._in_force("message", host)
        if late:
            self.noticed("message late")
        return max((window.by_s for window in late), default=0.0)

    def _failure(self, what: str, host: str) -> Failure | None:
        windows = self._in_force(what, host)
        if not windows:
            return None
        self.noticed(f"{what} fails")
        return Failure(f"the {what} failed", retryable=windows[-1].retryable)

    def _in_force(self, what: str, host: str) -> list[FaultWindow]:
        return [
            each
            for each in self.windows
            if each.what == what and each.host in (host, ALL) and each.until_s > self.now_s
        ]

    # ------------------------------------------------------------ the cores

    def new_coordinator(self) -> Coordinator:
        """Return a coordinator; with `leave`, its controller is a fixed one."""
        core = super().new_coordinator()
        if self._leave_s is not None:
            core.cluster.queue.controller = Controller(Rule(self.terms.level_start, leave_at_age_s=self._leave_s))
        return core

    def new_agent(self, machine: Machine) -> AgentCore:
        """Return an agent with the clock of its host."""
        if self.quiet:
            return super().new_agent(machine)
        clock = self.clocks.get(machine.name, Clock())
        return SkewedAgent(machine.name, machine.incarnation, DATA_PORT, StoredCheckpoints(machine.store), clock=clock)

    def agent(self, machine: Machine, event: aev.Event) -> None:
        """Judge an event, hand it to the agent, and fire the triggers that wait for it."""
        self.judges.agent_receives(machine, event)
        super().agent(machine, event)
        self.occurs(type(event).__name__, machine.name)

    def decide(self, event: cev.Event) -> None:
        """Judge an event and hand it to the coordinator, later if that stands still."""
        if self.connections.refused:
            return  # its process died of what it read before
        if (unread := self.connections.unread) is not None:
            again = partial(self.decide, event)
            if isinstance(event, cev.SubmitAsked):
                again = partial(self.submit, event.job, event.draw)
            unread.append(again)
        elif self.torn_for_s is not None:
            down_s, self.torn_for_s = self.torn_for_s, None
            self.noticed("event torn")
            self.restart(down_s)
            match event:  # its sender had no answer
                case cev.SubmitAsked():
                    self.submit(event.job, event.draw)
                case cev.CancelAsked():
                    self.cancel(event.job)
                case cev.LinksChanged():
                    self.links.tell([DirectedLink(source, to) for source, to, _ in event.rates])
        elif self.usurped_for_s is not None and not self.quiet:
            for_s, self.usurped_for_s = self.usurped_for_s, None
            self._usurp(event, for_s)
        else:
            self.judges.coordinator_receives(event)
            super().decide(event)

    def _perform(self, effect: cdo.Effect) -> None:
        match effect:
            case cdo.Tell(host, message):
                self.judges.coordinator_sends(host, message)
                if self._unsent is not None:
                    self._unsent.append(effect)
                    return
                link = self.machines[host].link
                open_ = link is not None and link.coordinator_open
                if self._goes_late(host, message, lambda: self.connections.tell(host, message), is_open=open_):
                    return
            case cdo.SetWays() if self._unsent is not None:
                return  # its successor programs the network again
        super()._perform(effect)
        if isinstance(effect, cdo.Record):
            fact = effect.fact
            self.judges.recorded(fact)
            self.counts[f"fact: {type(fact).__name__}"] += 1
            self.occurs(type(fact).__name__, getattr(fact, "host", None) or getattr(fact, "source", None) or ALL)

    def _act(self, machine: Machine, effect: ado.Effect) -> None:
        self.judges.agent_does(machine, effect)
        if isinstance(effect, ado.Send):
            message, link = effect.message, machine.link
            if self.now_s < self.evasive.get(machine.name, 0.0):
                match message:
                    case m.JobStarted() | m.JobEnded(outcome="stopped"):
                        self.noticed("answer not given")
                        return
            open_ = link is not None and link.agent_open
            again = partial(self.connections.say, machine, message)
            if self._goes_late(machine.name, message, again, is_open=open_):
                return
        super()._act(machine, effect)

    def _goes_late(self, host: str, message: object, send: Callable[[], None], *, is_open: bool) -> bool:
        """Return whether others overtake the message, which is sent later then; send it once more if it is to be repeated."""
        sent, link = (type(message).__name__, host), self.machines[host].link
        if link is not None and is_open and (by_s := self.overtaken.pop(sent, None)) is not None:
            self.noticed("message overtaken")
            link.overtaken = True
            self.after(by_s, lambda: send() if self.machines[host].link is link else None)
            return True
        if sent in self.repeats:
            self.repeats.discard(sent)
            self.noticed("message repeated")
            send()
        return False

    # ------------------------------------------------------------ faults of the coordinator

    def restart(self, down_s: float) -> bool:
        """Kill the coordinator's process; it begins again from its journal after a while."""
        if self.connections.refused:
            return False
        self.connections.unread = None
        self.disturb("the coordinator was dead", down_s)
        self.restart_coordinator(down_s=down_s)
        return True

    def freeze(self, for_s: float) -> bool:
        """Stop the coordinator's process: it reads its messages, in order, when it goes on.

        Until it has read the Hello of an agent that connected again, its messages to that host go to the connection before.
        """
        connections = self.connections
        if self.quiet or connections.unread is not None or connections.refused:
            return False
        unread: list[Callable[[], None]] = []
        connections.unread = unread
        self.disturb("the coordinator stood still", for_s)

        def go_on() -> None:
            if connections.unread is unread:  # not killed meanwhile
                connections.unread, connections.catches_up = None, True
                for act in unread:
                    act()
                connections.catches_up = False

        self.after(for_s, go_on)
        return True

    def _usurp(self, event: cev.Event, for_s: float) -> None:
        """Stop the coordinator between writing an event and sending what follows; another goes on with its journal.

        Its connections stay without an answer. When it wakes it sends the messages of the event that it had written.
        Its next write finds the other's epoch in the journal, and it ends (`controller.persistence.journal`).
        """
        self.noticed("coordinator usurped")
        self.disturb("the coordinator was replaced", for_s + self.protocol.lease_s)
        unsent: list[cdo.Tell] = []
        self._unsent = unsent
        self.decide(event)
        self._unsent = None
        held = [link for machine in self.machines.values() if (link := machine.link) and link.coordinator_open]
        for link in held:
            link.coordinator_open = False
        self.begin_again()
        self.after(for_s, lambda: self._wake_usurped(held, unsent))

    def _wake_usurped(self, held: list[Connection], unsent: list[cdo.Tell]) -> None:
        for link in held:
            if self.machines[link.host].link is not link or link.cut or not link.agent_open:
                continue
            link.coordinator_open = True
            for effect in unsent:
                if effect.host == link.host:
                    self.connections.tell(link.host, effect.message)
            link.coordinator_open = False
            self.at(link.down_s + EXIT_S, partial(self.connections.agent_notices, link))

    # ------------------------------------------------------------ hosts

    def crash(self, name: str) -> bool:
        """Let a host die without a message; its clock begins at zero when it is there again."""
        if self.machines[name].core is None:
            return False
        self.kill(name, inf)
        # where heartbeats are left out, their times are written into the agent's table: true times
        if not self.quiet:
            rate = self.clocks.get(name, Clock()).rate
            self.clocks[name] = Clock(-rate * self.now_s, rate)
        return True

    def fill(self, name: str, *, full: bool) -> bool:
        """Fill a disk, or give it room again."""
        disk = self.machines[name].disk
        if disk.full is full:
            return False
        disk.full = full
        if full:
            self.disturb(FULL_DISK, inf, host=name)
        else:
            self.disturbances = [
                replace(each, until_s=min(each.until_s, self.now_s))
                if each.cause == FULL_DISK and name in each.hosts
                else each
                for each in self.disturbances
            ]
        return True

    @property
    def owned(self) -> list[str]:
        """Return the hosts that an owner may take back."""
        return [host.name for host in self.env.campus.hosts if host.role is Role.VOLUNTEER]

    def is_away(self, name: str) -> bool:
        """Return whether its owner has it, or has announced it."""
        machine = self.machines[name]
        return machine.closed or machine.isolate_at_s is not None

    def cut_off(self) -> list[str]:
        """Return the hosts that have no way to the coordinator."""
        root = self.env.campus.coordinator.name
        return [name for name in self.machines if not self.env.routes.is_live(name, root)]

    def _rerouted(self) -> None:
        self.ways.follow(self.now_s, self.env.routes.dead)
        super()._rerouted()

    def _shared_anew(self) -> None:
        super()._shared_anew()
        self.others.follow_routes()
