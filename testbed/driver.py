"""The loop that drives a core in real time.

The coordinator's host and every agent's host are this, and differ in what they perform. A core decides and has no
clock: `handle(event, now_s)` returns effects, `next_deadline_s()` is when it wants to be woken. Its driver hands it one
event at a time, with a time that never goes back. It carries the effects out before the next event, and wakes the core
at its deadline, never before.
"""

from __future__ import annotations

import logging
import resource
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from typing import Any, Generic, Protocol, TypeVar

import trio

from testbed.clock import MonotonicClock
from testbed.garbage import survivors_set_aside
from testbed.logs import log_level

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
Event = TypeVar("Event")
Effect = TypeVar("Effect")
_Event = TypeVar("_Event", contravariant=True)
_Effect = TypeVar("_Effect", covariant=True)


class Core(Protocol[_Event, _Effect]):
    """Decisions without a clock, a socket or a task, run by a driver."""

    def handle(self, event: _Event, now_s: float) -> Iterable[_Effect]:
        """Return the effects of the event, in order."""

    def next_deadline_s(self) -> float:
        """Return the time of the next wake-up; infinity: only by events."""


class Driver(ABC, Generic[Event, Effect]):
    """Driver of `core`, whose time 0 is `started_s` of trio's clock; `last_s` is the time of its last event."""

    core: Core[Event, Effect]
    started_s: float = 0.0
    last_s: float = 0.0
    # set by an event that brings the deadline forward to before `_armed_s`, for which the timer is armed
    _changed: trio.Event | None = None
    _armed_s: float = inf

    @property
    def now_s(self) -> float:
        """The core's time; it never goes back."""
        return max(self.last_s, trio.current_time() - self.started_s)

    def handle(self, event: Event) -> None:
        """Decide, and perform what follows, all without an await."""
        at_s = self.last_s = self.now_s
        for effect in self.decide(event, at_s):
            self.perform(effect)
        if self._changed is not None and self.core.next_deadline_s() < self._armed_s:
            self._changed.set()

    def decide(self, event: Event, at_s: float) -> Iterable[Effect]:
        """Return the effects of an event at this time."""
        return self.core.handle(event, at_s)

    @abstractmethod
    def perform(self, effect: Effect) -> None:
        """Carry one effect out; what takes time is started as a task, and ends as another event."""

    async def wake(self, woke: Event) -> None:
        """Hand the core `woke` at each of its deadlines, for ever."""
        while True:
            self._changed, self._armed_s = trio.Event(), self.core.next_deadline_s()
            with trio.move_on_at(self.started_s + self._armed_s) as waited:
                await self._changed.wait()
            due_s = self.core.next_deadline_s()
            if waited.cancelled_caught and due_s <= self._armed_s:  # else it was put off meanwhile
                self.last_s = max(self.last_s, due_s)  # the sum above may have been rounded down
                self.handle(woke)


def run_process(main: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Run a live process from beginning to end.

    Trio's time is CLOCK_MONOTONIC, the log goes to stderr, and it may have all descriptors that this machine gives to
    one.
    """
    logging.basicConfig(level=log_level(), format=LOG_FORMAT)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with survivors_set_aside():
        trio.run(main, *arguments, clock=MonotonicClock())
