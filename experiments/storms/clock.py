"""Hosts whose clocks disagree: an agent lives in its own seconds, and everything that it asks of the world is turned back.

No message carries a moment, only durations, so offsets must not matter at all. A clock that runs slow makes a lease last longer
than its coordinator counts: `fence_margin_s` must cover the drift over one lease (2 s at 3 % are 0.06 s).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import msgspec

from controller.core.coordinator import Coordinator
from controller.core.model import effects as cdo
from controller.core.model import events as cev
from controller.core.parameters import Protocol, Queue
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.agent import AgentCore
from topologies.spec import Campus


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
    """An agent that is handed true time and lives by its clock."""

    clock: Clock = field(default_factory=Clock)
    latest_s: float = -inf  # what its clock showed last: a clock of this kind never goes back

    def handle(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        """Handle an event at the time that its clock shows; woken for a deadline, it sees that the deadline is there.

        What a notice leaves is read from a switch whose deadline is a moment of the same clock.
        """
        if isinstance(event, ev.SwitchRead) and event.isolate_in_s:
            event = msgspec.structs.replace(event, isolate_in_s=event.isolate_in_s * self.clock.rate)
        reading_s = max(self.latest_s, self.clock.reads(now_s))
        due_s = super().next_deadline_s()
        if isinstance(event, ev.Woke) and self.clock.true_s(due_s) <= now_s:
            reading_s = max(reading_s, due_s)
        self.latest_s = reading_s
        return [
            msgspec.structs.replace(effect, until_s=self.clock.true_s(effect.until_s))
            if isinstance(effect, do.ExtendLease)
            else effect
            for effect in super().handle(event, reading_s)
        ]

    def next_deadline_s(self) -> float:
        """Return the next deadline in true time."""
        return self.clock.true_s(super().next_deadline_s())


class SkewedCoordinator(Coordinator):
    """A coordinator that is handed true time and lives by a clock that leapt at its process's restarts.

    `leaps`: (events handled before it, seconds) of each; the same list for each process that goes on with the journal.
    """

    def __init__(
        self,
        campus: Campus,
        protocol: Protocol,
        terms: Queue,
        draw: Callable[[], float],
        leaps: list[tuple[int, float]],
    ) -> None:
        super().__init__(campus, protocol, terms, draw)
        self.leaps = leaps
        self.handled = 0
        self.latest_s = 0.0  # what its clock showed last

    @property
    def ahead_s(self) -> float:
        """Return how far its clock is ahead of true time."""
        return sum(by_s for after, by_s in self.leaps if self.handled >= after)

    def handle(self, event: cev.Event, now_s: float) -> list[cdo.Effect]:
        """Handle an event at the time that its clock shows; woken for a deadline, it sees that the deadline is there."""
        ahead_s, due_s = self.ahead_s, super().next_deadline_s()
        self.latest_s = max(self.latest_s, now_s + ahead_s)
        if isinstance(event, cev.Woke) and due_s - ahead_s <= now_s:
            self.latest_s = max(self.latest_s, due_s)
        effects = super().handle(event, self.latest_s)
        self.handled += 1
        return effects

    def next_deadline_s(self) -> float:
        """Return the next deadline in true time."""
        return super().next_deadline_s() - self.ahead_s
