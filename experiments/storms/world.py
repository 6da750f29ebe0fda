"""Storms' virtual world: made from a script, with clocks that disagree, a coordinator that can die, and counts of faults."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from math import inf

from controller.core.coordinator import Coordinator
from controller.core.lifecycle.reconcile import not_yet
from controller.core.model import effects as cdo
from controller.core.model import events as cev
from controller.core.queueing.controllers.fixed import Fixed
from experiments.storms.clock import Clock, SkewedAgent, SkewedCoordinator
from experiments.storms.fault_windows import Disturbance, Weather
from experiments.storms.judges import StormJudges
from experiments.storms.setup import StormSetup
from experiments.worlds.virtual.aggregates import Aggregate
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
from topologies.units import PAYLOAD_SHARE

STORY_LINES = 4000
STORM_S = 60.0  # about as long as a storm with its calm: research is measured in the shortest windows
ALL = "*"
EXIT_S = 0.02  # a process that has found another's epoch in its journal ends
FULL_DISK = "a disk was full"


class StormWorld(VirtualWorld):
    """A virtual world that faults are done to. `counts`: how often each fault took effect and each kind of fact was recorded."""

    def __init__(self, ground: StormSetup, *, tells_story: bool = False, checks: bool = True) -> None:
        self.ground = ground
        self.counts: Counter[str] = Counter()
        self.clocks: dict[str, Clock] = {}
        self.disturbances: list[Disturbance] = []
        self.ways = RouteHistory(ground.campus)  # that packets took
        self._others: dict[tuple[str, str], Aggregate] = {}  # who send,
        self._background: dict[tuple[str, str], float] = {}  # and what, wire bytes/s
        self.repeats: set[tuple[str, str]] = set()
        self.evasive: dict[str, float] = {}  # hosts whose agents do not answer -> until when
        # (kind, host) of the next message that others overtake -> by how long
        self.overtaken: dict[tuple[str, str], float] = {}
        self.judges = StormJudges(self) if checks else None
        self.is_calm = False  # the last fault is over
        # the coordinator dies while it writes its next event, for so long
        self.torn_for_s: float | None = None
        # another coordinator takes its journal then, and it wakes after so long
        self.usurped_for_s: float | None = None
        # what a coordinator that stands still has written and not told
        self._untold: list[cdo.Tell] | None = None
        self._leaps: list[tuple[int, float]] = []  # of the coordinator's clock
        self.leapt_at_s: list[float] = []
        self.weather = Weather(lambda: self.now_s, self.noticed)
        super().__init__(
            ground.campus,
            ground.protocol,
            ground.queue,
            ground.seed,
            duration_s=STORM_S,
            costs=ground.costs,
            faults=self.weather.faults(messages=not ground.quiet),
            quiet=ground.quiet,
            codec=not ground.quiet,
            tells_story=tells_story,
            after_each=self.judges,
        )
        self.env.story = deque(maxlen=STORY_LINES)
        self.restarts.journal = self.heartbeats.journal = MemoryJournal()

    # ------------------------------------------------------------ what is noticed

    def noticed(self, what: str, host: str) -> None:
        """Count a fault that took effect."""
        self.counts[f"fault: {what}"] += 1

    def disturb(
        self, cause: str, for_s: float, *, host: str = ALL, links: Iterable[DirectedLink] = (), job: str = ""
    ) -> None:
        """Note a fault that no fact records and that may make migrations late for a while: see `Disturbance`."""
        hosts = frozenset[str]() if host == ALL else frozenset([host])
        until_s = self.now_s + for_s
        self.disturbances.append(Disturbance(cause, self.now_s, until_s, hosts, frozenset(links), job))

    # ------------------------------------------------------------ the cores

    def new_coordinator(self) -> Coordinator:
        """Return a coordinator with a clock that may leap; with `leave`, its controller is a fixed one."""
        core = super().new_coordinator()
        if not self.quiet:
            draw = random.Random(f"{self.ground.seed} placement").random
            core = SkewedCoordinator(self.env.campus, self.protocol, self.terms, draw, self._leaps)
        if self.ground.leave_s is not None:
            core.cluster.queue.controller = Fixed(self.terms.level_start, leave_at_age_s=self.ground.leave_s)
        return core

    def new_agent(self, machine: Machine) -> AgentCore:
        """Return an agent with the clock of its host."""
        if self.quiet:
            return super().new_agent(machine)
        clock = self.clocks.get(machine.name, Clock())
        return SkewedAgent(
            machine.name, machine.incarnation, DATA_PORT, StoredCheckpoints(machine.store), clock=clock
        )

    def agent(self, machine: Machine, event: aev.Event) -> None:
        """Judge an event, hand it to the agent, and fire the triggers that wait for it."""
        if self.judges is not None:
            self.judges.agent_hears(machine, event)
        super().agent(machine, event)
        self.weather.occurs(type(event).__name__, machine.name)

    def decide(self, event: cev.Event) -> None:
        """Judge an event and hand it to the coordinator, later if that stands still."""
        if self.connections.refused:
            return  # its process died of what it read before
        if (unread := self.connections.unread) is not None:
            unread.append(
                partial(self.submit, event.job, event.draw)
                if isinstance(event, cev.JobSubmitted)
                else partial(self.decide, event)
            )
            return
        if self.torn_for_s is not None:
            down_s, self.torn_for_s = self.torn_for_s, None
            self.noticed("event torn", ALL)
            self.restart(down_s)
            if isinstance(event, cev.JobSubmitted):  # its user had no answer
                self.submit(event.job, event.draw)
            elif isinstance(event, cev.CancelAsked):
                self.cancel(event.job)
            elif isinstance(event, cev.LinksChanged):  # nor had who told of a trunk
                self.links.tell([DirectedLink(source, to) for source, to, _ in event.rates])
            return
        if self.usurped_for_s is not None and not self.quiet:
            for_s, self.usurped_for_s = self.usurped_for_s, None
            self._usurp(event, for_s)
            return
        if self.judges is not None:
            self.judges.coordinator_hears(self, event)
        super().decide(event)

    def _perform(self, effect: cdo.Effect) -> None:
        if isinstance(effect, cdo.Tell):
            if self.judges is not None:
                self.judges.coordinator_tells(self, effect.host, effect.message)
            if self._untold is not None:
                self._untold.append(effect)
                return
            host, message = effect.host, effect.message
            link = self.machines[host].link
            open_ = link is not None and link.coordinator_open
            if self._goes_late(host, message, lambda: self.connections.tell(host, message), is_open=open_):
                return
        if isinstance(effect, cdo.SetWays) and self._untold is not None:
            return  # its successor tells the network everything anew
        super()._perform(effect)
        if isinstance(effect, cdo.Record):
            if self.judges is not None:
                self.judges.recorded(self, effect.fact)
            self.counts[f"fact: {type(effect.fact).__name__}"] += 1
            host = getattr(effect.fact, "host", None) or getattr(effect.fact, "source", None) or ALL
            self.weather.occurs(type(effect.fact).__name__, host)

    # ------------------------------------------------------------ more faults

    def restart(self, down_s: float, clock_s: float = 0.0) -> bool:
        """Kill the coordinator's process; it begins again from its journal after a while.

        With `clock_s` its machine was booted meanwhile, and its clock leaps by so much, or stands: it never goes back.
        """
        if self.connections.refused:
            return False
        self.connections.unread = None
        self.disturb("the coordinator was dead", down_s)
        core, journal = self.coordinator, self.restarts.journal
        if clock_s and isinstance(core, SkewedCoordinator) and journal is not None:
            self.leapt_at_s.append(self.now_s)
            self._leaps.append((core.handled, max(clock_s, journal.last_s - self.now_s - down_s)))
        self.restart_coordinator(down_s=down_s)
        return True

    def _usurp(self, event: cev.Event, for_s: float) -> None:
        """Stop the coordinator between writing an event and sending what follows; another goes on with its journal.

        Its connections stay without an answer. When it wakes it sends the messages of the event that it had written.
        Its next write finds the other's epoch in the journal, and it ends (`controller.persistence.journal`).
        """
        self.noticed("coordinator usurped", ALL)
        self.disturb("the coordinator was replaced", for_s + self.protocol.lease_s)
        untold: list[cdo.Tell] = []
        self._untold = untold
        self.decide(event)
        self._untold = None
        held = [
            link for machine in self.machines.values() if (link := machine.link) and link.coordinator_open
        ]
        for link in held:
            link.coordinator_open = False
        self.restarts.begin_again()
        self.after(for_s, lambda: self._wake_usurped(held, untold))

    def _wake_usurped(self, held: list[Connection], untold: list[cdo.Tell]) -> None:
        for link in held:
            if self.machines[link.host].link is not link or link.cut or not link.agent_open:
                continue
            link.coordinator_open = True
            for effect in untold:
                if effect.host == link.host:
                    self.connections.tell(link.host, effect.message)
            link.coordinator_open = False
            self.at(link.down_s + EXIT_S, partial(self.connections.agent_notices, link))

    def crash(self, name: str) -> bool:
        """Let a host die without a message; its clock begins at zero when it is there again."""
        machine = self.machines[name]
        if machine.core is None:
            return False
        self.kill(name, inf)
        if (
            not self.quiet
        ):  # where heartbeats are left out, their times are written into the agent's table: true times
            rate = self.clocks.get(name, Clock()).rate
            self.clocks[name] = Clock(-rate * self.now_s, rate)
        return True

    def _not_yet(self, hello: m.Hello) -> str:
        core, cluster = self.coordinator, self.coordinator.cluster
        ahead_s = core.ahead_s if isinstance(core, SkewedCoordinator) else 0.0
        return not_yet(cluster, cluster.hosts[hello.host], hello, self.now_s + ahead_s)

    @property
    def owned(self) -> list[str]:
        """Return the hosts that an owner may take back."""
        return [host.name for host in self.env.campus.hosts if host.role is Role.VOLUNTEER]

    def is_away(self, name: str) -> bool:
        """Return whether its owner has it, or has announced it."""
        machine = self.machines[name]
        return machine.closed or machine.isolate_at_s is not None

    def fill(self, name: str, *, full: bool) -> bool:
        """Fill a disk, or give it room again."""
        disk = self.machines[name].disk
        if disk.full is full:
            return False
        disk.full = full
        if full:
            self.disturb(FULL_DISK, inf, host=name)
            return True
        self.disturbances = [
            replace(each, until_s=min(each.until_s, self.now_s))
            if each.cause == FULL_DISK and name in each.hosts
            else each
            for each in self.disturbances
        ]
        return True

    def cut_off(self) -> list[str]:
        """Return the hosts that have no way to the coordinator."""
        root = self.env.campus.coordinator.name
        return [name for name in self.machines if not self.env.routes.is_live(name, root)]

    def set_background(self, source: str, target: str, wire_bytes_per_s: float) -> None:
        """Set what others send from one node to another. A coordinator that is dead does not learn of it, now or later."""
        others = self._others.get((source, target))
        if others is None:
            others = Aggregate(self.env, f"background {source}>{target}", source, target)
            self._others[source, target] = others
            others.begin()
        self._background[source, target] = wire_bytes_per_s
        self.env.network.regrant_all(others.caps(wire_bytes_per_s * PAYLOAD_SHARE))
        self._tell_background(link for link, _ in others.parts())

    def _rerouted(self) -> None:
        self.ways.follow(self.now_s, self.env.routes.dead)
        super()._rerouted()

    def _shared_anew(self) -> None:
        super()._shared_anew()
        before = [link for others in self._others.values() for link, _ in others.parts()]
        caps: dict[str, float] = {}
        for ends, others in self._others.items():
            if others.follow():
                caps |= others.caps(self._background[ends] * PAYLOAD_SHARE)
        if caps:
            self.env.network.regrant_all(caps)
            now = [link for others in self._others.values() for link, _ in others.parts()]
            self._tell_background([*before, *now])

    def _tell_background(self, links: Iterable[DirectedLink]) -> None:
        """Report what others take of these links now, as switches count it."""
        taken: dict[DirectedLink, float] = dict.fromkeys(links, 0.0)
        for ends, rate in self._background.items():
            for link, part in self._others[ends].parts():
                if link in taken:
                    taken[link] += rate * part
        if not self.connections.refused:
            self.decide(cev.LinksMeasured([(link.source, link.target, rate) for link, rate in taken.items()]))

    def end_background(self) -> None:
        """End others' traffic; transfers that it left no rate go on."""
        for source, target in self._background:
            self.set_background(source, target, 0.0)

    def _act(self, machine: Machine, effect: ado.Effect) -> None:
        if self.judges is not None:
            self.judges.agent_does(self, machine, effect)
        if isinstance(effect, ado.Send) and self.now_s < self.evasive.get(machine.name, 0.0):
            match effect.message:
                case m.JobStarted() | m.JobEnded(outcome="stopped"):
                    self.noticed("answer not given", machine.name)
                    return
        if isinstance(effect, ado.Send) and (self.overtaken or self.repeats):
            message, link = effect.message, machine.link
            open_ = link is not None and link.agent_open
            if self._goes_late(
                machine.name, message, lambda: self.connections.say(machine, message), is_open=open_
            ):
                return
        super()._act(machine, effect)

    def _goes_late(self, host: str, message: object, send: Callable[[], None], *, is_open: bool) -> bool:
        """Return whether others overtake the message, which is sent later then; send it once more if it is to be repeated."""
        said, link = (type(message).__name__, host), self.machines[host].link
        if link is not None and is_open and (by_s := self.overtaken.pop(said, None)) is not None:
            self.noticed("message overtaken", host)
            link.overtaken = True
            self.after(by_s, lambda: send() if self.machines[host].link is link else None)
            return True
        if said in self.repeats:
            self.repeats.discard(said)
            self.noticed("message repeated", host)
            send()
        return False
