"""Faults that last a while, such as late messages and operations that fail; and actions that wait for an occurrence.

An *occurrence* is (name, host): a message, a fact, or an event of an agent, by the name of its class. A trigger that
waits for one acts once, at that very moment but after the decision that is being made. Messages just sent are on their
way, and a kill, a cut or a reclaim comes before they arrive. So a fault can strike between any two steps of the
protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import Any

from experiments.worlds.virtual.faults import Failure, Faults
from topologies.spec import DirectedLink

ANY_HOST = "*"
OPERATIONS = ("sending", "snapshot", "workload")


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
    act: Callable[[str], None]  # told the host


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

    def acts_on(
        self, job: str, ends: Set[str], way: Set[DirectedLink], from_s: float, until_s: float
    ) -> bool:
        """Return whether it may make a migration of `job` between those hosts late that is to happen within these times."""
        if self.from_s >= until_s or self.until_s <= from_s or self.job not in ("", job):
            return False
        everywhere = not self.hosts and not self.links
        return everywhere or not self.hosts.isdisjoint(ends) or not self.links.isdisjoint(way)


class Weather:
    """The fault windows and triggers. `now_s` returns the time; `noticed` is called with each fault that takes effect."""

    def __init__(self, now_s: Callable[[], float], noticed: Callable[[str, str], None]) -> None:
        self._now_s, self._noticed = now_s, noticed
        self._windows: list[FaultWindow] = []
        self._triggers: list[Trigger] = []

    def add(self, window: FaultWindow) -> None:
        """Put a window in force from now on."""
        self._windows = [each for each in self._windows if each.until_s > self._now_s()] + [window]

    def await_(self, trigger: Trigger) -> None:
        """Wait for what triggers it from now on, once."""
        self._triggers.append(trigger)

    def clear(self) -> None:
        """End all windows and triggers."""
        self._windows, self._triggers = [], []

    def occurs(self, name: str, host: str) -> None:
        """Fire the triggers that wait for this."""
        for trigger in [t for t in self._triggers if t.name == name and t.host in (host, ANY_HOST)]:
            self._triggers.remove(trigger)
            trigger.act(host)

    # ------------------------------------------------------------ what the world asks

    def faults(self, *, messages: bool) -> Faults:
        """Return the faults as functions for a world; with `messages` each message is asked about, and so really sent."""
        faults = Faults(
            sending=lambda host, order: self._failure("sending", host),
            snapshot=lambda host, order: self._failure("snapshot", host),
            workload=lambda host, job, attempt: self._failure("workload", host),
        )
        return replace(faults, message=self._message) if messages else faults

    def _message(self, host: str, message: Any) -> float:
        self.occurs(type(message).__name__, host)
        late = self._in_force("message", host)
        if late:
            self._noticed("message late", host)
        return max((window.by_s for window in late), default=0.0)

    def _failure(self, what: str, host: str) -> Failure | None:
        windows = self._in_force(what, host)
        if not windows:
            return None
        self._noticed(f"{what} fails", host)
        return Failure(f"the {what} failed", retryable=windows[-1].retryable)

    def _in_force(self, what: str, host: str) -> list[FaultWindow]:
        now_s = self._now_s()
        return [
            s for s in self._windows if s.what == what and s.host in (host, ANY_HOST) and s.until_s > now_s
        ]
