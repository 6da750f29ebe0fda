"""The order of everything: a heap by (time, priority, sequence). Time jumps from event to event."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from math import inf

SAME_INSTANT = 20_000  # events at one moment: more is a loop


class Priority(IntEnum):
    """Order of events at one moment: the owner comes first, and a timer sees all that has arrived."""

    OWNER = 0
    FAULT = 1
    NETWORK = 2
    PROCESS = 3
    MESSAGE = 4
    TIMER = 5


class WorldStuck(Exception):
    """Error of a world whose time does not go on."""


class Scheduler:
    """Events to come. `now_s` is the time of the one that happens."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.count = 0
        self._events: list[tuple[float, int, int, Callable[[], None]]] = []
        self._pushed = 0
        self._instant_s, self._instant_began = -inf, 0

    def at(self, when_s: float, act: Callable[[], None], priority: Priority = Priority.TIMER) -> None:
        """Do it then; now, if that is past. `inf` is never."""
        if when_s == inf:
            return
        self._pushed += 1
        heappush(self._events, (when_s if when_s > self.now_s else self.now_s, priority, self._pushed, act))

    def after(self, delay_s: float, act: Callable[[], None], priority: Priority = Priority.TIMER) -> None:
        """Do it `delay_s` from now."""
        self.at(self.now_s + delay_s, act, priority)

    def next_s(self) -> float:
        """Return the time of the next event; inf if there is none."""
        return self._events[0][0] if self._events else inf

    def step(self) -> None:
        """Run the next event. IndexError: there is none; WorldStuck: too many at one moment."""
        when_s, _, _, act = heappop(self._events)
        self.count += 1
        if when_s != self._instant_s:
            self._instant_s, self._instant_began = when_s, self.count
        elif self.count - self._instant_began > SAME_INSTANT:
            raise WorldStuck(f"more than {SAME_INSTANT} events at {when_s} s")
        self.now_s = when_s
        act()

    def run(self, until_s: float, after_each: Callable[[], None] | None = None) -> None:
        """Run all events up to that time; the time is `until_s` then."""
        events, step = self._events, self.step
        while events and events[0][0] <= until_s:
            step()
            if after_each is not None:
                after_each()
        self.now_s = max(self.now_s, until_s)
