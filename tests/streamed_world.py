"""The live hosts' trio code on the virtual world's machines: one time line, the mock clock's.

Real here: `CoordinatorHost` with its journal, `AgentHost` with its loops, `CoordinatorLink`, `Channel`, codecs. Every word
between them goes as bytes over streams in memory, cut at random places, each host's with a delay of its own. Modelled are
processes, disks, the network and owners' switches: the very parts of the virtual world, on a heap that follows trio's clock
instead of leading.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio
from trio.testing import MockClock

from controller.core.coordinator import Coordinator
from controller.core.model.events import Event, Restarted
from controller.host import CoordinatorHost
from controller.persistence.journal import Journal, read_facts
from controller.persistence.recovery import JournalReplay
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace
from experiments.worlds.virtual import Overheads, VirtualWorld, make_world
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.run import BEGIN_S
from experiments.worlds.virtual.scheduler import Priority, Scheduler
from experiments.worlds.virtual.workloads import tells_steps
from testbed import messages as m
from testbed.agent.config import AgentConfig
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.host import AgentHost, watch
from testbed.agent.io.coordinator_link import CoordinatorLink
from testbed.namespaces import OWN_NETWORK
from testbed.wire import Channel, Codec
from testbed.workloads.launch import ForkServer

OUT: Codec[m.FromOperator] = Codec(m.FromOperator)
IN: Codec[m.ToOperator] = Codec(m.ToOperator)
Said = tuple[float, Any]  # when, and an effect of the coordinator's core


class ClockedScheduler(Scheduler):
    """A heap that does what is due when trio's clock gets there."""

    def __init__(self) -> None:
        self._news = trio.Event()
        super().__init__()

    @property
    def now_s(self) -> float:
        return trio.current_time()

    @now_s.setter
    def now_s(self, _: float) -> None:
        """Trio's clock tells the time."""

    def at(self, when_s: float, act: Callable[[], None], priority: Priority = Priority.TIMER) -> None:
        super().at(when_s, act, priority)
        self._news.set()

    async def follow(self) -> None:
        """For ever."""
        while True:
            self._news = trio.Event()
            with trio.move_on_at(self.next_s()):
                await self._news.wait()
            self.run(trio.current_time())


class End(trio.abc.Stream):
    """One end of a stream in memory; what is written at one end is read at the other `delay_s` later, in pieces."""

    def __init__(self, delay_s: float, address: str, cuts: random.Random) -> None:
        self.other: End
        self.delay_s, self._cuts = delay_s, cuts
        self.socket = SimpleNamespace(getpeername=lambda: (address, 40_000))  # who is at the other end
        self._arriving: deque[tuple[float, bytes]] = deque()
        self._news = trio.Event()
        self._broken_at_s, self._lost, self._hears_end, self.closed = inf, False, False, False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self.closed:
            raise trio.ClosedResourceError("closed")
        if self._broken_at_s <= trio.current_time():
            raise trio.BrokenResourceError("the connection broke")
        self.other.arrive(bytes(data))

    def arrive(self, data: bytes) -> None:
        """Bytes set off for this end; empty ones say that there are no more."""
        if not self._lost or (self._hears_end and not data):
            cut = self._cuts.randint(0, len(data))
            pieces = [piece for piece in (data[:cut], data[cut:]) if piece] or [data]
            self._arriving.extend((trio.current_time() + self.delay_s, piece) for piece in pieces)
            self._news.set()

    def break_off(self, after_s: float, *, hears_end: bool = False) -> None:
        """What is on its way to this end is lost, and it learns of it then; sooner, if it hears the other end give up."""
        self._lost, self._hears_end = True, hears_end
        self._arriving.clear()
        self._broken_at_s = min(self._broken_at_s, trio.current_time() + after_s)
        self._news.set()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            if self.closed:
                raise trio.ClosedResourceError("closed")
            if self._broken_at_s <= trio.current_time():
                raise trio.BrokenResourceError("the connection broke")
            if self._arriving and self._arriving[0][0] <= trio.current_time():
                return self._arriving.popleft()[1]
            self._news = trio.Event()
            due_s = self._arriving[0][0] if self._arriving else inf
            with trio.move_on_at(min(due_s, self._broken_at_s)):
                await self._news.wait()

    async def aclose(self) -> None:
        if not self.closed:
            self.closed = True
            self._news.set()
            self.other.arrive(b"")
        await trio.lowlevel.checkpoint()


def stream_pair(delay_s: float, address: str, cuts: random.Random) -> tuple[End, End]:
    """Two ends; the second sees the first at `address`."""
    ours, theirs = End(delay_s, "", cuts), End(delay_s, address, cuts)
    ours.other, theirs.other = theirs, ours
    return ours, theirs


class Door(trio.abc.Listener[End]):
    """Where streams in memory arrive."""

    def __init__(self) -> None:
        self._in, self._waiting = trio.open_memory_channel[End](inf)

    def let_in(self, end: End) -> None:
        self._in.send_nowait(end)

    async def accept(self) -> End:
        return await self._waiting.receive()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Body:
    """Jobs, transfers, kernel and lease of one agent, performed by the virtual world's models."""

    def __init__(self, world: "StreamedWorld", machine: Machine, handle: Callable[[ev.Event], None]) -> None:
        self._world, self._machine, self._handle = world, machine, handle
        self.ordered: deque[do.Effect] = deque()
        self.sends: dict[Any, Any] = {}
        self.outputs: dict[Any, Any] = {}
        self._begun: list[do.Effect] = []

    # ---- lease

    def extend(self, until_s: float) -> None:
        self._machine.lease_until_s = until_s
        self._world.env.scheduler.at(until_s, lambda: self._world.workloads.fence(self._machine))

    # ---- jobs: they begin in the order in which they were told to, whatever order trio runs tasks in

    def expect(self, key: tuple[str, int]) -> None:
        pass

    async def run(
        self, spec: m.JobSpec, attempt: int, restore: m.StoredCheckpoint | None, slots: tuple[int, ...], speed: float
    ) -> None:
        self._begin(do.StartWorkload(spec, attempt, restore, slots, speed))

    async def end(self, key: tuple[str, int], grace_s: float) -> None:
        self._world.workloads.end(self._machine, do.EndWorkload(*key, grace_s))

    async def take_snapshot(self, order: do.TakeSnapshot) -> None:
        self._begin(order)

    def _begin(self, effect: do.Effect) -> None:
        self._begun.append(effect)
        while self.ordered and self.ordered[0] in self._begun:
            first = self.ordered.popleft()
            self._begun.remove(first)
            if isinstance(first, do.StartWorkload):
                self._world.workloads.start(self._machine, first)
            else:
                self._world.workloads.snapshot(self._machine, first)

    def kill(self, key: tuple[str, int]) -> None:
        for each in [e for e in self.ordered if isinstance(e, do.StartWorkload)]:
            if (each.spec.name, each.attempt) == key:
                self.ordered.remove(each)  # it was to be started at this very moment
        self._world.workloads.kill(self._machine, *key)

    # ---- transfers

    def begin(self, order: do.StartSending, nursery: trio.Nursery) -> None:
        self._world.transfers.begin(self._machine, order)

    def regrant(self, job: str, destination: str, rate_bytes_per_s: float) -> None:
        self._world.transfers.regrant(self._machine, job, destination, rate_bytes_per_s)

    def abort(self, job: str, destination: str) -> None:
        self._world.transfers.abort(self._machine, job, destination)

    async def drop(self, job: str, before: int) -> None:
        self._machine.disk.drop(job, before)

    def counts(self) -> list[m.FlowCount]:
        """None: an agent whose flows are others than before beats at once, which the virtual world leaves out.

        Beats that come sooner tell sooner how far jobs are: scores and survivals differ in their third digit.
        """
        return []

    async def listen(self) -> list[trio.SocketListener]:
        return []

    async def serve(self, listeners: list[trio.SocketListener]) -> None:
        await trio.sleep_forever()

    # ---- kernel

    def prepare(self) -> None:
        if self._machine.closed or self._machine.isolate_at_s is not None:
            self._world.read_switch(self._machine)

    def memory(self) -> tuple[memoryview, memoryview]:
        return memoryview(b""), memoryview(b"")

    def look_at_switch(self, *, grace: bool = False) -> None:
        pass  # the world's owners say when it is read

    def sample(self, flows: list[m.FlowCount], lag_s: float, idle_at_s: float) -> list[ev.Sampled]:
        return [ev.Sampled({}, flows, None, lag_s)]

    @contextmanager
    def as_metadata(self, stream: trio.abc.Stream) -> Iterator[None]:
        yield


class ModelledHost(AgentHost):
    """An AgentHost whose body is modelled."""

    def __init__(self, world: "StreamedWorld", machine: Machine) -> None:
        self.world, self.machine = world, machine
        self.end: End | None = None
        self.scope = trio.CancelScope()
        super().__init__(
            AgentConfig(machine.name, IPv4Address("127.0.0.1"), ("", 0), Path()), OWN_NETWORK, ForkServer()
        )

    def equip(self) -> None:
        body: Any = Body(self.world, self.machine, self.handle)
        self.body: Body = body
        self.lease = self.kernel = self.jobs = self.transfers = body
        self.link = CoordinatorLink(("", 0), body, self.handle, self._open)
        self.core = self.machine.core = self.world.new_agent(self.machine)

    def handle(self, event: ev.Event) -> None:
        if self.machine.processes and tells_steps(self.core, event, trio.current_time()):
            self.world.workloads.report(self.machine)
        super().handle(event)

    def perform(self, effect: do.Effect) -> None:
        if isinstance(effect, do.StartWorkload | do.TakeSnapshot):
            self.body.ordered.append(effect)
        super().perform(effect)

    async def _open(self) -> End:
        if self.world.connections.refused:
            raise ConnectionRefusedError("nobody listens")
        self.end, theirs = self.world.streams_to_coordinator(self.machine.name)
        self.world.agents_door.let_in(theirs)
        return self.end

    async def live(self) -> None:
        """Until killed."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch, [self])
                await self.run()


class Recording(Coordinator):
    """Remembers all that it ever said."""

    said: list[Said]

    def handle(self, event: Event, now_s: float) -> list[Any]:
        effects = super().handle(event, now_s)
        self.said.extend((now_s, effect) for effect in effects)
        return effects


def record(core: Coordinator, said: list[Said]) -> Coordinator:
    """From now on all that it says is kept."""
    core.__class__ = Recording
    core.said = said
    return core


class RecordedWorld(VirtualWorld):
    """The virtual world as it is, and what its coordinator said."""

    def new_coordinator(self) -> Coordinator:
        self.said: list[Said] = []
        return record(super().new_coordinator(), self.said)


class StreamedWorld(RecordedWorld):
    """The virtual world whose cores are run by the live hosts' code."""

    nursery: trio.Nursery

    def __init__(self, *args: Any, **options: Any) -> None:
        self.scheduler = ClockedScheduler()
        super().__init__(*args, **options, scheduler=self.scheduler)
        self.hosts: dict[str, ModelledHost] = {}
        self._cuts = random.Random(self._seed)
        self._orders, self._ordered = trio.open_memory_channel[m.FromOperator](inf)

    def streams_to_coordinator(self, name: str) -> tuple[End, End]:
        """As far apart as the virtual world has them."""
        delay_s = self.connections._delay_s[name]
        return stream_pair(delay_s, str(self.env.campus.host_by_name[name].address), self._cuts)

    # ---- what the world does otherwise with its cores

    def agent(self, machine: Machine, event: ev.Event) -> None:
        if machine.core is not None:
            self.hosts[machine.name].handle(event)

    def decide(self, event: Event) -> None:
        raise AssertionError(f"{event}: only the coordinator's host says that")

    def submit(self, spec: m.JobSpec, draw: float = 0.0) -> None:
        self.env.specs[spec.name] = spec
        if self.connections.refused:
            self.after(self.env.costs.reconnect_s, lambda: self.submit(spec, draw))
        else:
            self._orders.send_nowait(m.Submit(spec))

    def start(self, *names: str) -> None:
        for name in names or self.machines:
            machine = self.machines[name]
            if machine.core is None:
                machine.incarnation += 1
                machine.lease_until_s = -inf
                host = self.hosts[name] = ModelledHost(self, machine)
                self.nursery.start_soon(host.live)

    def kill(self, name: str, notice_after_s: float | None = None, *, again_after_s: float = inf) -> None:
        host, machine = self.hosts[name], self.machines[name]
        if machine.core is None:
            return
        super().kill(name, again_after_s=again_after_s)
        host.scope.cancel()
        if host.end is not None:
            after_s = self.env.costs.message_s if notice_after_s is None else notice_after_s
            host.end.other.break_off(after_s)

    def cut(self, name: str, agent_after_s: float = 0.0, coordinator_after_s: float = 0.0) -> None:
        end = self.hosts[name].end
        end.break_off(agent_after_s, hears_end=True)  # as the virtual world has it
        end.other.break_off(coordinator_after_s)

    def restart_coordinator(self, at_s: float | None = None, down_s: float = 0.0) -> None:
        self.at(self.now_s if at_s is None else at_s, lambda: self.nursery.start_soon(self._restart, down_s))

    async def _restart(self, down_s: float) -> None:
        """What is on its way is lost; a successor begins with the journal."""
        self.connections.refused = True
        for host in self.hosts.values():
            if host.end is not None:
                host.end.break_off(host.end.delay_s)
        self._stop_coordinator()
        await trio.sleep(down_s)
        recalled, journal = JournalReplay(self._journal, self.new_coordinator()), self._journal
        recalled.advance()
        successor = CoordinatorHost(
            recalled.core, journal, self._draws, last_s=journal.last_s, submitted=recalled.submitted
        )
        self.connections.refused = False
        self._start_coordinator(successor)
        successor.handle(Restarted(self.now_s - journal.last_s))

    # ---- the run

    def _start_coordinator(self, host: CoordinatorHost) -> None:
        host.spent_s, host.started_s = -inf, 0.0  # no snapshots: pickles of a core that is recorded
        self.heartbeats.coordinator, self._host, self._scope = host.core, host, trio.CancelScope()
        self.agents_door, self.operators_door = Door(), Door()
        self.nursery.start_soon(self._serve, self._scope, host, [self.agents_door], [self.operators_door])

    async def _serve(self, scope: trio.CancelScope, host: CoordinatorHost, *doors: Any) -> None:
        with scope:
            await host.serve(*doors)

    def _stop_coordinator(self) -> None:
        self._host.ending = True
        self._scope.cancel()

    async def operate(self) -> None:
        """Submit what arrives, over streams of an operator's."""
        async for order in self._ordered:
            ours, theirs = stream_pair(0.0, "", self._cuts)
            self.operators_door.let_in(theirs)
            await Channel(ours, OUT).send(order)
            await Channel(ours, IN).receive()
            await ours.aclose()

    async def play(self, journal: Journal, until_s: float) -> None:
        """All events up to that time."""
        self._journal, self._draws = journal, random.Random(f"{self._seed} admission")
        async with trio.open_nursery() as self.nursery:
            self._start_coordinator(CoordinatorHost(self.coordinator, journal, self._draws))
            self.nursery.start_soon(self.scheduler.follow)
            self.nursery.start_soon(self.operate)
            await trio.sleep_until(until_s)
            self._host.ending = True
            self.nursery.cancel_scope.cancel()


Disturb = Callable[[VirtualWorld], None]


def on_heap(scenario: Scenario, trace: Trace, costs: Overheads, disturb: Disturb, **options: Any) -> RecordedWorld:
    """Played by the heap."""
    world = make_world(scenario, trace, costs=costs, quiet=False, kind=RecordedWorld, **options)
    disturb(world)
    world.run(BEGIN_S + scenario.played().duration_s)
    return world


def over_streams(
    scenario: Scenario, trace: Trace, costs: Overheads, disturb: Disturb, journal: Path, **options: Any
) -> StreamedWorld:
    """Played by the live hosts' code."""

    async def main() -> StreamedWorld:
        world = make_world(scenario, trace, costs=costs, quiet=False, kind=StreamedWorld, **options)
        disturb(world)
        opened = Journal(journal)
        try:
            await world.play(opened, BEGIN_S + scenario.played().duration_s)
        finally:
            opened.close()
        world.facts = list(read_facts(journal))
        return world

    return trio.run(main, clock=MockClock(autojump_threshold=0.0))
