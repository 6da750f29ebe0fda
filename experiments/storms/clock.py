"""Hosts whose clocks disagree: an agent lives in its own seconds, and everything that it asks of the world is turned back.

No message carries a moment, only durations, so offsets must not matter at all. A clock that runs slow makes a lease last longer
than its coordinator counts: `fence_margin_s` must cover the drift over one lease (2 s at 3 % are 0.06 s).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import msgspec

from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.agent import AgentCore


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
    latest_s: float = -inf  # its clock's last reading: a clock of this kind never goes back

    def handle(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        """Handle an event at the time that its clock shows; woken for a deadline, it sees that the deadline is there.

        The rest of a notice is read from a switch whose deadline is a moment of the same clock.
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
