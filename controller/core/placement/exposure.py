"""Time that hosts were lent, and times they were taken back, in a window that slides: for all hosts at once, at any moment.

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
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np

from controller.numerics.arrays import Floats, Numbers
from controller.numerics.jit import compiled

HOURS = 24
LEND, WITHDRAW, EMERGENCY = range(3)
# of a host, an hour of the day, or all: emergencies; lent time, less the clock of when it was lent; how many are lent; and of
# all, the emergencies of each hour of each day, squared and added up
TAKEN, BEFORE, LENT, SQUARES = range(4)


class Until(NamedTuple):
    """Totals of everything until `at_s`."""

    hosts: Floats  # rows TAKEN to LENT, a column a host
    hours: Floats  # rows TAKEN and BEFORE, a column an hour
    all: Floats  # TAKEN to SQUARES
    at_s: float
    whole_s: float  # of each hour, in whole days until then
    rest_s: float  # how long the last day has lasted


class Seen(NamedTuple):
    """Emergencies and lent time in a window."""

    events: Floats  # by host
    lent_s: Floats
    hour_events: Floats  # by hour of the day
    hour_lent_s: Floats
    all_events: float
    all_lent_s: float
    squares: float  # of the events of one hour in one day, summed


class LentTime:
    """Lent time (s) and emergencies in the last `window_s` seconds, by host and by hour of the day. Times do not go
    backwards. An hour is a 24th of `day_s`; `day_start_s` is the time of day at time 0."""

    def __init__(self, window_s: float, day_s: float, day_start_s: float) -> None:
        self._window_s, self._day_s = window_s, day_s
        self._log: deque[tuple[float, int, int]] = deque()  # (when, host, what) that the tail has not taken
        self.number: dict[str, int] = {}  # hosts, in order of appearance
        self._first_s = inf
        self._asked: tuple[Sequence[str], int, Numbers] = ((), 0, np.zeros(0, dtype=np.intp))
        self._place: dict[str, int] = {}  # of each host among those that were asked for last
        self._head, self._tail = _Edge(day_s, day_start_s), _Edge(day_s, day_start_s)

    def happened(self, host: str, now_s: float, what: int) -> None:
        """LEND, WITHDRAW or EMERGENCY, at `now_s`. Lending what is lent, or taking what is not, changes nothing."""
        number = self.number.setdefault(host, len(self.number))
        self._first_s = min(self._first_s, now_s)
        self._log.append((now_s, number, what))
        self._head.take(now_s, number, what)

    def ends(self, now_s: float) -> tuple[Until, Until]:
        """The window that ends now, as `between` takes it: everything until its end, and until it began."""
        from_s, size = self._slide(now_s), len(self.number)
        return self._head.until(now_s, size), self._tail.until(from_s, size)

    @property
    def shape(self) -> tuple[int, float]:
        """Return the other arguments of `between`: known hosts and one more, and seconds in an hour."""
        return len(self.number) + 1, self._day_s / HOURS

    def seen(self, now_s: float) -> Seen:
        """Return the record of the window that ends now; hosts by `numbers`, with an unknown one at the end."""
        return between(*self.ends(now_s), *self.shape)

    def numbers(self, hosts: Sequence[str]) -> Numbers:
        """Numbers of these hosts, one too many for hosts unheard of; the same array for the same tuple."""
        size = len(self.number)
        asked, known, numbers = self._asked
        if asked is not hosts:
            numbers = np.fromiter((self.number.get(host, size) for host in hosts), np.intp, len(hosts))
            if not isinstance(hosts, tuple):
                return numbers
            self._place = {host: place for place, host in enumerate(hosts)}
        elif known != size:  # hosts were heard of since
            numbers = np.where(numbers == known, size, numbers)
            for host, number in islice(self.number.items(), known, None):
                if host in self._place:
                    numbers[self._place[host]] = number
        self._asked = (hosts, size, numbers)
        return numbers

    def of_all(self, now_s: float) -> tuple[float, float]:
        """Return emergencies and lent time of all hosts together."""
        from_s = self._slide(now_s)
        (n, lent_s), (n_before, before_s) = self._head.of_all(now_s), self._tail.of_all(from_s)
        return n - n_before, max(0.0, lent_s - before_s)

    def days(self, now_s: float) -> float:
        """Return the number of days in the window."""
        return max(0.0, (now_s - max(now_s - self._window_s, self._first_s)) / self._day_s)

    def _slide(self, now_s: float) -> float:
        """Let the tail take what the window has left behind; when the window begins."""
        from_s = now_s - self._window_s
        while self._log and self._log[0][0] < from_s:
            self._tail.take(*self._log.popleft())
        return from_s


class _Edge:
    """Everything until a moment."""

    def __init__(self, day_s: float, start_s: float) -> None:
        self._hour_s, self._day_s, self._start_s = day_s / HOURS, day_s, start_s
        self._hosts, self._hours, self._all = np.zeros((3, 0)), np.zeros((2, HOURS)), np.zeros(4)
        self._today, self._today_is = [0] * HOURS, [-inf] * HOURS

    def take(self, at_s: float, host: int, what: int) -> None:
        """An event."""
        hour, squares = -1, 0.0
        if what == EMERGENCY:
            # in its hour; on the day on which a window begins the squares take what is left of an hour for a little more
            day, time_s = divmod(at_s + self._start_s, self._day_s)
            hour = int(time_s / self._day_s * HOURS) % HOURS
            today = self._today[hour] + 1 if self._today_is[hour] == day else 1
            self._today_is[hour], self._today[hour] = day, today
            squares = 2.0 * today - 1.0
        _take(
            self._columns(host),
            self._hours,
            self._all,
            host,
            what == LEND,
            at_s,
            hour,
            squares,
            *self._clock(at_s),
            self._hour_s,
        )

    def until(self, at_s: float, size: int) -> Until:
        """Totals up to `at_s` for hosts 0 to `size` (zeros for a host that is unheard of), as input to `between`."""
        return Until(self._columns(size), self._hours, self._all, at_s, *self._clock(at_s))

    def of_all(self, at_s: float) -> tuple[float, float]:
        taken, before, lent, _ = self._all.tolist()
        return taken, before + lent * at_s

    def _columns(self, last: int) -> Floats:
        known = self._hosts.shape[1]
        if last >= known:
            self._hosts = np.concatenate(
                [self._hosts, np.zeros((3, max(last + 1, 2 * known) - known))], axis=1
            )
        return self._hosts

    def _clock(self, at_s: float) -> tuple[float, float]:
        """Return the seconds of each hour in whole days until then, and the length of the last day so far."""
        days, rest_s = divmod(at_s + self._start_s, self._day_s)
        return days * self._hour_s, rest_s


@compiled
def _clocks(hours: int, whole_s: float, rest_s: float, hour_s: float) -> Floats:
    """The time that each hour of the day has had from the midnight before time 0."""
    clocks = np.empty(hours)
    for hour in range(hours):
        clocks[hour] = whole_s + min(max(rest_s - hour * hour_s, 0.0), hour_s)
    return clocks


@compiled
def _take(
    hosts: Floats,
    hours: Floats,
    everybody: Floats,
    host: int,
    lent: bool,
    at_s: float,
    hour: int,
    squares: float,
    whole_s: float,
    rest_s: float,
    hour_s: float,
) -> None:
    """Count an emergency (`hour`: which of the day it was in; -1: it was none), and that the host is lent, or no more."""
    if hour >= 0:
        hosts[TAKEN, host] += 1.0
        hours[TAKEN, hour] += 1.0
        everybody[TAKEN] += 1.0
        everybody[SQUARES] += squares
    if lent != (hosts[LENT, host] > 0.0):
        sign = -1.0 if lent else 1.0
        hosts[LENT, host] = 1.0 if lent else 0.0
        hosts[BEFORE, host] += sign * at_s
        everybody[BEFORE] += sign * at_s
        everybody[LENT] -= sign
        hours[BEFORE] += sign * _clocks(HOURS, whole_s, rest_s, hour_s)


@compiled
def between(until: Until, since: Until, size: int, hour_s: float) -> Seen:
    """Return the record between two moments: of hosts 0 to size - 1, of hours that are so long, of all."""
    events, lent_s = np.empty(size), np.empty(size)
    for host in range(size):
        events[host] = until.hosts[TAKEN, host] - since.hosts[TAKEN, host]
        lent_until_s = until.hosts[BEFORE, host] + until.hosts[LENT, host] * until.at_s
        lent_since_s = since.hosts[BEFORE, host] + since.hosts[LENT, host] * since.at_s
        lent_s[host] = max(0.0, lent_until_s - lent_since_s)
    hour_lent_s = _hours_lent_s(until, hour_s) - _hours_lent_s(since, hour_s)
    every_until_s = until.all[BEFORE] + until.all[LENT] * until.at_s
    every_since_s = since.all[BEFORE] + since.all[LENT] * since.at_s
    return Seen(
        events,
        lent_s,
        until.hours[TAKEN] - since.hours[TAKEN],
        np.maximum(0.0, hour_lent_s),
        until.all[TAKEN] - since.all[TAKEN],
        max(0.0, every_until_s - every_since_s),
        until.all[SQUARES] - since.all[SQUARES],
    )


@compiled
def _hours_lent_s(until: Until, hour_s: float) -> Floats:
    lent_s: Floats = until.hours[BEFORE] + until.all[LENT] * _clocks(
        len(until.hours[BEFORE]), until.whole_s, until.rest_s, hour_s
    )
    return lent_s
