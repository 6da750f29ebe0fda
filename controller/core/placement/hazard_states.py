"""How a host's hazard depends on its state: how long it has been lent, how lately a neighbour left, how many are away.

A host's own level times the hour's profile (`hazard`) is the same on a quiet afternoon and ten minutes after half of the
building has left. Recorded owners are not like that. So each state multiplies the hazard by a factor of its own:

    AGE       since when the host is lent, in octaves of a day: machines of a cloud die young, or after just a day
    NEAR      since when a host of the same building was last taken back, in octaves of a day: departures come in bursts
    AWAY      the share of the building's hosts that are away: a zone that is nearly used up stays so
    WEEKDAY   the day modulo 7 (which of them is a Sunday need not be known)

A factor is what was seen in a state over what was expected there, N / E, where E is the integral of the forecast without that
factor (level, hour, and the factors of the states before it in the list) over the time that hosts were in the state.
So a state that only goes with the hour, as bursts go with lunch, explains nothing that the hour has explained; where owners
do not care about the state, N = E and the factor is 1. Factors borrow from 1 by the rule that hours borrow from the
day: by how much the states differ beyond chance, and chance is judged from how many hosts leave in one step, so that
a burst counts as little more than one event.

Time goes in steps of a 288th of a day (300 s: departures within it are one event, see `joint_departures`). At the
beginning of each step every lent host's state is looked up, and what the host then does is counted there: a forecast of a step
knows nothing of the step. Levels and factors are taken anew at each hour. The window slides by whole days. A step is one
pass over the hosts in machine code; a question is another.

`reclaimnet measure hazard` compares the states on drawn and recorded owners; USED are those that the first halves of the
records chose.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import floor, inf
from typing import NamedTuple

import numpy as np

from controller.core.placement.exposure import HOURS
from controller.core.placement.hazard import (
    BURSTS,
    DAY_S,
    HOURS_DIFFER,
    SOME,
    Experience,
    HazardWindow,
    differences,
)
from controller.core.placement.joint_departures import Neighbourhood
from controller.numerics.arrays import Floats, Numbers
from controller.numerics.jit import compiled

STATES = ("age", "near", "away", "weekday")  # in the order in which they explain
AGE, NEAR, AWAY, WEEKDAY = range(len(STATES))
STEPS = 288  # of a day; 12 an hour
WEEK = 7
# octaves of a day: from the first one above a step (5.6 min) to a whole day
OCTAVES = tuple(2.0**-power for power in range(8, -1, -1))
SHARES = (0.05, 0.25, 0.5, 0.75)  # of a building that is away: hardly any, and quarters
BINS = 1 + len(OCTAVES)  # of the state that has most
# squared CV of the states' factors believed beforehand: as that of the hours
DIFFER = HOURS_DIFFER
USED = (AGE, NEAR, AWAY)


class _Day(NamedTuple):
    """What was seen on one day: a row a state, a column a bin; and the departures of single steps, added up and squared."""

    number: int
    taken: Floats
    expected: Floats
    steps: Floats  # (sum, sum of squares)


class StateFactors:
    """Factors of the hazard of every host, by its state now, from the departures of the last `window_s` seconds.

    `places` says which hosts are neighbours (of one building); a host that it does not name has none. Times must not go
    backwards.
    """

    def __init__(
        self,
        window_s: float,
        prior: Experience | None = None,
        day_s: float = DAY_S,
        day_start_s: float = 0.0,
        places: Mapping[str, Neighbourhood] | None = None,
        states: Sequence[int] = USED,
    ) -> None:
        self._window_days = max(1, round(window_s / day_s))
        self._day_s, self._day_start_s, self._step_s = day_s, day_start_s, day_s / STEPS
        self._places = places or {}
        self._used = np.array([state in states for state in range(len(STATES))])
        self._base = HazardWindow(window_s, prior, day_s, day_start_s)  # asked at hours only
        self._hosts = tuple(self._places)
        self._number = {host: number for number, host in enumerate(self._hosts)}
        self._buildings: dict[str, int] = {}
        houses = [self._house(host) for host in self._hosts]
        # of hosts: the building, since when it is lent (inf: it is not), its level, its bins in this step
        self._building, self._since_s = np.array(houses, dtype=np.intp), np.full(len(houses), inf)
        self._levels = np.zeros(len(houses))
        self._bins = np.zeros((len(STATES), len(houses)), dtype=np.intp)
        # of buildings: hosts that are lent, that ever were, and when one was last taken back
        count = len(self._buildings)
        self._lent, self._ever, self._left_s = np.zeros(count), np.zeros(count), np.full(count, -inf)
        self._was_lent: set[int] = set()
        self._factors, self._profile = np.ones((len(STATES), BINS)), (1.0,) * HOURS
        self._days: deque[_Day] = deque()
        self._in_step, self._began_s = 0.0, inf  # departures of this step, and when it began
        self._next: int | None = None  # number of the step that begins next; None: nothing has happened yet
        self._asked: tuple[Sequence[str], int, Numbers] | None = None

    def lend(self, host: str, now_s: float) -> None:
        """The host is lent from now on; nothing new if it already was."""
        number = self._told(host, now_s)
        self._base.lend(host, now_s)
        if self._since_s[number] == inf:
            self._since_s[number] = now_s
            self._lent[self._building[number]] += 1.0
            if number not in self._was_lent:
                self._was_lent.add(number)
                self._ever[self._building[number]] += 1.0

    def withdraw(self, host: str, now_s: float) -> None:
        """Take in that the host is lent no more, by no act of its owner's."""
        number = self._told(host, now_s)
        self._base.withdraw(host, now_s)
        self._end(number)

    def depart(self, host: str, now_s: float) -> None:
        """The owner takes the host back; nothing if it is not lent."""
        number = self._told(host, now_s)
        since_s = float(self._since_s[number])
        if since_s == inf:
            return
        self._base.emergency(host, now_s)
        self._end(number)
        self._left_s[self._building[number]] = now_s
        if since_s < self._began_s:  # else nothing was expected of it
            for state, place in enumerate(self._bins[:, number].tolist()):
                self._days[-1].taken[state, place] += 1.0
            self._in_step += 1.0

    def column(self, hosts: Sequence[str], now_s: float, ahead_s: float = 0.0) -> Floats:
        """The factor of each host's hazard now, or its mean over the next `ahead_s` seconds if the host stays lent so long.

        A host that is not lent is taken for one that is lent from now on. Ahead, the neighbours' factors hold until
        their next departure is to be expected; after it anything may be, and they are 1.
        """
        self._advance(now_s)
        rows = self._rows(hosts)
        return _factors_ahead(
            rows,
            now_s,
            ahead_s,
            self._day_s,
            floor((now_s + self._day_start_s) / self._day_s) % WEEK,
            self._since_s,
            self._levels,
            self._building,
            self._left_s,
            self._lent,
            self._ever,
            self._factors,
        )

    def _rows(self, hosts: Sequence[str]) -> Numbers:
        """Numbers of the hosts; -1 for one that is unheard of."""
        asked, size = self._asked, len(self._hosts)
        if asked is None or asked[0] is not hosts or asked[1] != size:
            rows = np.fromiter((self._number.get(host, -1) for host in hosts), np.intp, len(hosts))
            if not isinstance(hosts, tuple):
                return rows
            asked = self._asked = (hosts, size, rows)
        return asked[2]

    def _told(self, host: str, now_s: float) -> int:
        """The host's number, when all steps that began before now have been looked at."""
        self._advance(now_s)
        number = self._number.get(host)
        if number is None:
            number = self._number[host] = len(self._hosts)
            self._hosts = (*self._hosts, host)
            building = self._house(host)
            if building == len(self._lent):
                self._lent, self._ever = np.append(self._lent, 0.0), np.append(self._ever, 0.0)
                self._left_s = np.append(self._left_s, -inf)
            self._building = np.append(self._building, building)
            self._since_s, self._levels = np.append(self._since_s, inf), np.append(self._levels, 0.0)
            self._bins = np.append(self._bins, np.zeros((len(STATES), 1), dtype=np.intp), axis=1)
        return number

    def _house(self, host: str) -> int:
        """Number of the host's building; of one of its own if it stands nowhere."""
        place = self._places.get(host)
        return self._buildings.setdefault(
            place.building if place else f"of {host} alone", len(self._buildings)
        )

    def _end(self, number: int) -> None:
        if self._since_s[number] < inf:
            self._since_s[number] = inf
            self._lent[self._building[number]] -= 1.0

    def _advance(self, now_s: float) -> None:
        """Begin every step until now."""
        if self._next is None:
            self._next = floor((now_s + self._day_start_s) / self._step_s)
            self._look_anew(self._next)
        while (at_s := self._next * self._step_s - self._day_start_s) <= now_s:
            day, of_day = divmod(self._next, STEPS)
            self._days[-1].steps[:] += self._in_step, self._in_step**2
            self._in_step, self._began_s = 0.0, at_s
            if self._next % (STEPS // HOURS) == 0:
                self._look_anew(self._next)
            _expect(
                at_s,
                self._step_s * self._profile[of_day // (STEPS // HOURS)],
                self._day_s,
                day % WEEK,
                self._since_s,
                self._levels,
                self._building,
                self._left_s,
                self._lent,
                self._ever,
                self._factors,
                self._days[-1].expected,
                self._bins,
            )
            self._next += 1

    def _look_anew(self, step: int) -> None:
        """Levels, profile and factors for the hour that begins."""
        day = step // STEPS
        if not self._days or self._days[-1].number != day:
            shape = (len(STATES), BINS)
            self._days.append(_Day(day, np.zeros(shape), np.zeros(shape), np.zeros(2)))
        while self._days[0].number < day - self._window_days:
            self._days.popleft()
        if self._hosts:
            self._levels, self._profile = self._base.likely_by_hour(
                self._hosts, step * self._step_s - self._day_start_s
            )
        taken, expected, steps = np.zeros((len(STATES), BINS)), np.zeros((len(STATES), BINS)), np.zeros(2)
        for seen in self._days:
            taken += seen.taken
            expected += seen.expected
            steps += seen.steps
        self._factors = _factors(taken, expected, steps, self._used)


@compiled
def _bin(value: float, edges: tuple[float, ...]) -> int:
    place = 0
    while place < len(edges) and value >= edges[place]:
        place += 1
    return place


@compiled
def _expect(
    at_s: float,
    weighted_s: float,
    day_s: float,
    weekday: int,
    since_s: Floats,
    levels: Floats,
    building: Numbers,
    left_s: Floats,
    lent: Floats,
    ever: Floats,
    factors: Floats,
    expected: Floats,
    bins: Numbers,
) -> None:
    """Look up every host's state at a step's beginning (`bins`), and add to `expected` what the forecast says of lent ones.

    `weighted_s`: length of the step times the profile's factor.
    """
    near, away = np.empty(len(left_s), dtype=np.intp), np.empty(len(left_s), dtype=np.intp)
    for place in range(len(left_s)):
        near[place] = _bin((at_s - left_s[place]) / day_s, OCTAVES)
        away[place] = _bin(1.0 - lent[place] / max(1.0, ever[place]), SHARES)
    for host in range(len(since_s)):
        home = building[host]
        bins[AGE, host] = _bin((at_s - since_s[host]) / day_s, OCTAVES)  # a host that is not lent: the first
        bins[NEAR, host], bins[AWAY, host] = near[home], away[home]
        bins[WEEKDAY, host] = weekday
        if since_s[host] < np.inf:
            amount = levels[host] * weighted_s
            for state in range(len(factors)):
                place = bins[state, host]
                expected[state, place] += amount
                amount *= factors[state, place]


@compiled
def _factors(
    taken: Floats, expected: Floats, steps: Floats, used: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Floats:
    """(N + b) / (E + b) of each state in use, E scaled to N in all; b as `hazard.relative` has it."""
    answer = np.ones(taken.shape)
    scattered = max(1.0, (steps[1] + SOME * BURSTS) / (steps[0] + SOME))
    for state in range(len(taken)):
        n, whole = 0.0, 0.0
        for place in range(taken.shape[1]):
            n += taken[state, place]
            whole += expected[state, place]
        if not used[state] or n == 0.0 or whole <= 0.0:
            continue
        even = expected[state] * (n / whole)
        differ = differences(taken[state], even, scattered, DIFFER)
        if differ > 0.0:
            borrowed = scattered / differ
            answer[state] = (taken[state] + borrowed) / (even + borrowed)
    return answer


@compiled
def _factors_ahead(
    rows: Numbers,
    now_s: float,
    ahead_s: float,
    day_s: float,
    weekday: int,
    since_s: Floats,
    levels: Floats,
    building: Numbers,
    left_s: Floats,
    lent: Floats,
    ever: Floats,
    factors: Floats,
) -> Floats:
    """`StateFactors.column`: a sum over the pieces of time in which no state changes."""
    answer = np.ones(len(rows))
    rates = np.zeros(len(left_s))
    for host in range(len(since_s)):
        if since_s[host] < np.inf:
            rates[building[host]] += levels[host]
    for place in range(len(rows)):
        host = rows[place]
        if host < 0:
            continue
        home = building[host]
        age = max(0.0, (now_s - since_s[host]) / day_s) if since_s[host] < np.inf else 0.0
        near = (now_s - left_s[home]) / day_s
        away = factors[AWAY, _bin(1.0 - lent[home] / max(1.0, ever[home]), SHARES)]
        own, others = _bin(age, OCTAVES), _bin(near, OCTAVES)
        today = factors[WEEKDAY, weekday]
        if ahead_s <= 0.0:
            answer[place] = factors[AGE, own] * factors[NEAR, others] * away * today
            continue
        # days from now on
        until, at, total = ahead_s / day_s, 0.0, 0.0
        calm = 1.0 / (rates[home] * day_s) if rates[home] > 0.0 else np.inf
        while at < until:
            end = until
            if own < len(OCTAVES):
                end = min(end, OCTAVES[own] - age)
            known = at < calm
            if known:
                end = min(end, calm)
                if others < len(OCTAVES):
                    end = min(end, OCTAVES[others] - near)
            factor = factors[AGE, own] * (factors[NEAR, others] * away if known else 1.0)
            total += max(0.0, end - at) * factor
            if own < len(OCTAVES) and end >= OCTAVES[own] - age:
                own += 1
            if others < len(OCTAVES) and end >= OCTAVES[others] - near:
                others += 1
            at = max(at, end)
        answer[place] = total / until * today
    return answer
