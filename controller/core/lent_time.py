"""How long hosts were lent, and how often taken back, in a window that slides: for all hosts at once, at any moment.

What was seen in the window that ends now is what was seen until now, less what was seen until the window began. Both are
running sums of the same log of events, read by two *edges*: the head, which takes an event when it happens, and the tail,
which takes it when the window has left it behind. A sum has a closed form between events: if a host has been lent
since s, its lent time until t is (what it was before) - s + t; so an edge adds -s when a host is lent and +t when it no
longer is, and a question costs one multiplication, however long the record. The same holds for each hour of the day,
with the clock t replaced by the time that each hour has had until t.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf

import numpy as np

from controller.core.compiled import compiled
from controller.core.network import Floats, Numbers

HOURS = 24
LEND, WITHDRAW, EMERGENCY = range(3)
# of each host: emergencies; its lent time, less the clock of when it was lent; 1 while it is lent
TAKEN, BEFORE, LENT = range(3)


class LentTime:
    """Lent time (s) and emergencies in the last `window_s` seconds, by host and by hour of the day. Times do not go
    backwards. An hour is a 24th of `day_s`; `day_start_s` is the time of day at time 0."""

    def __init__(self, window_s: float, day_s: float, day_start_s: float) -> None:
        self._window_s = window_s
        self._day = (day_s, day_start_s)
        self._log: deque[tuple[float, int, int]] = deque()  # (when, host, what) that the tail has not taken
        self.number: dict[str, int] = {}  # hosts, in order of appearance
        self._first_s = inf
        self._asked: tuple[Sequence[str], int, Numbers] = ((), 0, np.zeros(0, dtype=np.intp))
        self._head, self._tail = _Edge(self._day), _Edge(self._day)

    def happened(self, host: str, now_s: float, what: int) -> None:
        """LEND, WITHDRAW or EMERGENCY, at `now_s`. Lending what is lent, or taking what is not, changes nothing."""
        number = self.number.setdefault(host, len(self.number))
        self._first_s = min(self._first_s, now_s)
        self._log.append((now_s, number, what))
        self._head.take(now_s, number, what)

    def of_host(self, host: str, now_s: float) -> tuple[float, float]:
        """(emergencies, lent seconds) of one host; nothing of one that was never heard of."""
        number = self.number.get(host)
        if number is None:
            return 0.0, 0.0
        from_s = self._slide(now_s)
        (n, lent_s), (n_before, before_s) = (
            self._head.of_host(number, now_s),
            self._tail.of_host(number, from_s),
        )
        return n - n_before, max(0.0, lent_s - before_s)

    def of_everybody(self, now_s: float) -> tuple[Floats, Floats]:
        """`of_host` of every host that was ever heard of, in columns, by `numbers`; and of one that was not, at the end."""
        from_s, size = self._slide(now_s), len(self.number)
        return _between(size + 1, self._head.columns(size), now_s, self._tail.columns(size), from_s)

    def numbers(self, hosts: Sequence[str]) -> Numbers:
        """Of these hosts; one too many for those unheard of. Who asks for the same tuple again gets the same answer."""
        size = len(self.number)
        if self._asked[0] is not hosts or self._asked[1] != size:
            numbers = np.fromiter((self.number.get(host, size) for host in hosts), np.intp, len(hosts))
            if not isinstance(hosts, tuple):
                return numbers
            self._asked = (hosts, size, numbers)
        return self._asked[2]

    def of_all(self, now_s: float) -> tuple[float, float]:
        """All hosts together."""
        from_s = self._slide(now_s)
        lent_s = self._head.lent_s(now_s) - self._tail.lent_s(from_s)
        return self._head.events - self._tail.events, max(0.0, lent_s)

    def of_hours(self, now_s: float) -> tuple[Floats, Floats]:
        """All hosts together, by hour of the day."""
        from_s = self._slide(now_s)
        lent_s = _since(self._head.hours_lent_s(now_s), self._tail.hours_lent_s(from_s))
        return self._head.hour_events - self._tail.hour_events, lent_s

    def squares_of_days(self, now_s: float) -> tuple[float, float]:
        """(squares of the emergencies of each hour of each day, added up; days that the window has seen).

        On the day on which the window begins it takes what is left for a little more than it is.
        """
        from_s = self._slide(now_s)
        days = (now_s - max(from_s, self._first_s)) / self._day[0]
        return self._head.squares - self._tail.squares, max(0.0, days)

    def _slide(self, now_s: float) -> float:
        """Let the tail take what the window has left behind; when the window begins."""
        from_s = now_s - self._window_s
        while self._log and self._log[0][0] < from_s:
            self._tail.take(*self._log.popleft())
        return from_s


class _Edge:
    """Everything until a moment."""

    def __init__(self, day: tuple[float, float]) -> None:
        self._hour_s, self._day_s, self._start_s = day[0] / HOURS, day[0], day[1]
        self._starts: Floats = np.arange(HOURS, dtype=np.float64) * self._hour_s
        self._hosts = np.zeros((3, 0))  # TAKEN, BEFORE and LENT of each
        self._all_before_s, self._all_lent, self.events = 0.0, 0, 0.0
        self._today, self._today_is, self.squares = [0] * HOURS, [-inf] * HOURS, 0
        self._hours_before_s, self.hour_events = np.zeros(HOURS), np.zeros(HOURS)

    def take(self, at_s: float, host: int, what: int) -> None:
        """An event."""
        hosts = self.columns(host)
        if what == EMERGENCY:
            hosts[TAKEN, host] += 1.0
            self.events += 1.0
            self._count(at_s + self._start_s)
        lent = what == LEND
        if lent != bool(hosts[LENT, host]):
            sign = -1.0 if lent else 1.0
            hosts[LENT, host] = float(lent)
            hosts[BEFORE, host] += sign * at_s
            self._all_before_s += sign * at_s
            self._all_lent += 1 if lent else -1
            self._hours_before_s = _with_clock(self._hours_before_s, sign, *self._clock(at_s))

    def _count(self, clock_s: float) -> None:
        day, time_s = divmod(clock_s, self._day_s)
        hour = int(time_s / self._day_s * HOURS) % HOURS
        today = self._today[hour] + 1 if self._today_is[hour] == day else 1
        self._today_is[hour], self._today[hour] = day, today
        self.squares += 2 * today - 1
        self.hour_events[hour] += 1.0

    def of_host(self, host: int, at_s: float) -> tuple[float, float]:
        taken, before, lent = self.columns(host)[:, host].tolist()
        return taken, before + lent * at_s

    def columns(self, last: int) -> Floats:
        """TAKEN, BEFORE and LENT of hosts 0 to `last` at least; zeros for a host unheard of."""
        known = self._hosts.shape[1]
        if last >= known:
            self._hosts = np.concatenate(
                [self._hosts, np.zeros((3, max(last + 1, 2 * known) - known))], axis=1
            )
        return self._hosts

    def lent_s(self, at_s: float) -> float:
        return self._all_before_s + self._all_lent * at_s

    def hours_lent_s(self, at_s: float) -> Floats:
        return _with_clock(self._hours_before_s, float(self._all_lent), *self._clock(at_s))

    def _clock(self, at_s: float) -> tuple[float, float, Floats, float]:
        """What tells how much time each hour of the day has had until then: that of whole days, that of the last day, when
        each begins, how long each is."""
        days, rest_s = divmod(at_s + self._start_s, self._day_s)
        return days * self._hour_s, rest_s, self._starts, self._hour_s


@compiled
def _with_clock(
    before: Floats, times: float, whole_s: float, rest_s: float, starts: Floats, hour_s: float
) -> Floats:
    """Each hour's number, and so many times the time that it has had from the midnight before time 0."""
    answer = before.copy()
    for hour in range(len(answer)):
        answer[hour] += times * (whole_s + min(max(rest_s - starts[hour], 0.0), hour_s))
    return answer


@compiled
def _since(until_s: Floats, before_s: Floats) -> Floats:
    return np.maximum(0.0, until_s - before_s)


@compiled
def _between(size: int, until: Floats, now_s: float, since: Floats, from_s: float) -> tuple[Floats, Floats]:
    """(emergencies, lent time) of hosts 0 to size - 1 in the window, from the columns of two edges."""
    events, lent_s = np.empty(size), np.empty(size)
    for host in range(size):
        events[host] = until[TAKEN, host] - since[TAKEN, host]
        lent_until_s = until[BEFORE, host] + until[LENT, host] * now_s
        lent_since_s = since[BEFORE, host] + since[LENT, host] * from_s
        lent_s[host] = max(0.0, lent_until_s - lent_since_s)
    return events, lent_s
