"""What all parts of the virtual world share: the heap, the machines, the wire, the streams, and the two ways into the cores."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from controller.core.model import events as cev
from experiments.inputs.traces.streams import stream
from experiments.worlds.virtual.faults import Faults
from experiments.worlds.virtual.fluid import Wire
from experiments.worlds.virtual.hosts import Connection, Machine
from experiments.worlds.virtual.overheads import Overheads, Span
from experiments.worlds.virtual.scheduler import Heap, Priority
from testbed.agent.core import events as aev
from testbed.messages import JobSpec
from topologies.paths import Routes
from topologies.spec import Campus

STORY_LINES = 60


class Streams:
    """Named streams of chance: one a purpose and host, so that one more draw for one never moves another."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: dict[tuple[str, ...], random.Random] = {}

    def of(self, *purpose: str) -> random.Random:
        """The stream of that name."""
        found = self._known.get(purpose)
        if found is None:
            found = self._known[purpose] = stream(self._seed, "virtual", *purpose)
        return found

    def span(self, span: Span, *purpose: str) -> float:
        """A draw of a cost."""
        return self.of(*purpose).uniform(*span)


@dataclass(eq=False)
class Stage:
    """See the module. `agent` hands an event to the core of a machine, `decide` one to the coordinator."""

    campus: Campus
    routes: Routes
    costs: Overheads
    faults: Faults
    streams: Streams
    heap: Heap
    wire: Wire
    machines: dict[str, Machine]
    specs: dict[str, JobSpec] = field(default_factory=dict)
    told: Callable[[str, Any], None] | None = None  # sees each message to an agent
    tells_story: bool = False
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_LINES))
    agent: Callable[[Machine, aev.Event], None] = field(init=False)
    decide: Callable[[cev.Event], None] = field(init=False)
    broken_off: Callable[[Connection], None] = field(init=False)

    @property
    def now_s(self) -> float:
        """The time of the event that happens."""
        return self.heap.now_s

    def to_agent(self, machine: Machine, act: Callable[[], None]) -> None:
        """A paused process sees it when it goes on; a dead one never."""
        if machine.core is None:
            return
        if machine.paused:
            core = machine.core
            machine.deferred.append(lambda: act() if machine.core is core else None)
        else:
            act()

    def tell_agent(self, machine: Machine, event: aev.Event) -> None:
        """The same for an event."""
        if machine.paused:
            self.to_agent(machine, lambda: self.agent(machine, event))
        elif machine.core is not None:
            self.agent(machine, event)

    def after(self, delay_s: float, act: Callable[[], None], priority: Priority = Priority.TIMER) -> None:
        """Do it later."""
        self.heap.at(self.heap.now_s + delay_s, act, priority)

    def note(self, text: str) -> None:
        """A line of the story that a broken invariant tells."""
        if self.tells_story:
            self.story.append(f"{self.now_s:8.3f} {text}")
