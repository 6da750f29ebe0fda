"""The hazard window with running sums: the estimates of `controller.core.hazard`, at a cost that does not grow with the record.

The parent adds up two weeks of spells at each question, which is nothing beside a live run and everything in two months of
virtual time: P1 asks at each plan. Here the number of hosts that are lent is a step function of time; its integral over each
hour of the day is added to at the head of the window and taken from at its tail, so that each step is looked at twice in all.
Sums differ from the parent's by rounding only (a test compares them).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from controller.core.hazard import HOURS, Experience, HazardWindow


@dataclass(slots=True)
class _Host:
    """One host: closed spells of the window, their sum, and the present one."""

    spells: deque[tuple[float, float]] = field(default_factory=deque)
    closed_s: float = 0.0
    emergencies: deque[float] = field(default_factory=deque)
    since_s: float | None = None

    def experience(self, from_s: float, now_s: float) -> Experience:
        """What was seen from `from_s` on."""
        while self.spells and self.spells[0][1] <= from_s:
            begin_s, end_s = self.spells.popleft()
            self.closed_s -= end_s - begin_s
        while self.emergencies and self.emergencies[0] < from_s:
            self.emergencies.popleft()
        lent_s = self.closed_s if self.spells else 0.0
        if self.spells:
            lent_s -= max(0.0, from_s - self.spells[0][0])
        if self.since_s is not None:
            lent_s += now_s - max(self.since_s, from_s)
        return Experience(float(len(self.emergencies)), max(0.0, lent_s))


@dataclass(slots=True)
class _Edge:
    """One end of the window: how far it is, and how many hosts are lent there."""

    at_s: float = 0.0
    lent: int = 0


class RunningHazards(HazardWindow):
    """See the module. `day_s` and `day_start_s` are those with which `profile` will be asked."""

    def __init__(self, window_s: float, prior: Experience, day_s: float, day_start_s: float) -> None:
        super().__init__(window_s, prior)
        self._day_s, self._day_start_s = day_s, day_start_s
        self._hosts: dict[str, _Host] = {}
        self._hours_s = [0.0] * HOURS  # lent time in each hour of the day, all hosts, in the window
        self._hour_events = [0.0] * HOURS
        self._events: deque[tuple[float, int]] = deque()
        self._steps: deque[tuple[float, int]] = deque()  # (when, how many more are lent), between the edges
        self._head, self._tail = _Edge(), _Edge()

    def lend(self, host: str, now_s: float) -> None:
        """As the parent's."""
        found = self._hosts.setdefault(host, _Host())
        if found.since_s is None:
            found.since_s = now_s
            self._step(now_s, 1)

    def withdraw(self, host: str, now_s: float) -> None:
        """As the parent's."""
        found = self._hosts.setdefault(host, _Host())
        if found.since_s is not None:
            found.spells.append((found.since_s, now_s))
            found.closed_s += now_s - found.since_s
            found.since_s = None
            self._step(now_s, -1)

    def emergency(self, host: str, now_s: float) -> None:
        """As the parent's."""
        self._hosts.setdefault(host, _Host()).emergencies.append(now_s)
        hour = self._hour_of(now_s)
        self._events.append((now_s, hour))
        self._hour_events[hour] += 1.0
        self.withdraw(host, now_s)

    def experience(self, host: str, now_s: float) -> Experience:
        """As the parent's."""
        found = self._hosts.get(host)
        return found.experience(now_s - self.window_s, now_s) if found else Experience()

    def campus(self, now_s: float) -> Experience:
        """As the parent's."""
        self._advance(now_s)
        events = self.prior.events + len(self._events)
        return Experience(events, self.prior.exposure_s + sum(self._hours_s))

    def profile(self, now_s: float, day_s: float = 0.0, day_start_s: float = 0.0) -> tuple[float, ...]:
        """As the parent's, for the day that this window was made with."""
        self._advance(now_s)
        hours = [Experience(n, max(0.0, s)) for n, s in zip(self._hour_events, self._hours_s, strict=True)]
        day = Experience(sum(self._hour_events), sum(hour.exposure_s for hour in hours))
        if day.rate_per_s == 0.0:
            return (1.0,) * HOURS
        return tuple(hour.pooled(day).rate_per_s / day.rate_per_s for hour in hours)

    def _step(self, now_s: float, more: int) -> None:
        self._advance(now_s)
        self._head.lent += more
        self._steps.append((now_s, more))

    def _advance(self, now_s: float) -> None:
        """Both ends of the window go on: lent time enters at the head and leaves at the tail."""
        self._add(self._head, now_s, 1.0)
        from_s = now_s - self.window_s
        while self._steps and self._steps[0][0] <= from_s:
            at_s, more = self._steps.popleft()
            self._add(self._tail, at_s, -1.0)
            self._tail.lent += more
        if from_s > self._tail.at_s:
            self._add(self._tail, from_s, -1.0)
        while self._events and self._events[0][0] < from_s:
            _, hour = self._events.popleft()
            self._hour_events[hour] -= 1.0

    def _add(self, edge: _Edge, until_s: float, sign: float) -> None:
        """The lent time from an edge to a moment, into the hours of the day that it fell in."""
        if edge.lent:
            hour_s = self._day_s / HOURS
            at_s = edge.at_s + self._day_start_s
            end_s, cell = until_s + self._day_start_s, int(at_s // hour_s)
            while at_s < end_s:
                next_s = min((cell + 1) * hour_s, end_s)
                self._hours_s[cell % HOURS] += sign * edge.lent * (next_s - at_s)
                at_s, cell = next_s, cell + 1
        edge.at_s = until_s

    def _hour_of(self, at_s: float) -> int:
        return int((at_s + self._day_start_s) % self._day_s / self._day_s * HOURS) % HOURS
