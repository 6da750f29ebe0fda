"""Hosts that leave together: the probability that host s is gone too when host h is taken back, by how near they are.

A copy of h's job on s is worth nothing if both owners come back at once: when a course begins in a lab, when a building's power
is to be saved, when a cloud wants the machines of a zone. Pairs of hosts are far too many to learn one by one; their class is
not: the same access switch (a lab), the same building, or neither. A host departs when it closes: after a notice, at the end of
it, since what it stores can be read until then. At each departure of a host h count, by class,

    trials     the other hosts that were lent just before (lent now, or departed within the last `together_s` seconds),
    joint      of those, the hosts that depart within `together_s` before or after.

With D departures that had any trials, q = (D joint/trials + 1/2) / (D + 1): a beta posterior (Jeffreys' prior, 1/2
before anything was seen) in which a departure counts as one trial, however many hosts could have left with it: they
leave together or not, so they are no independent evidence. All classes begin alike and only what is seen tells them apart.

`together_s` is 300 s of a day. In the seven records at hand, the share of the other hosts that leave within w of a
departure exceeds what independent owners of the same hazard would give by

    w                            30 s   60 s   300 s   600 s   1 200 s
    us-east-2b (sampled: 300 s)   .21    .37    .70     .64     .53
    us-west-2a (sampled: 300 s)   .28    .47    .85     .78     .64
    Google's (to the second)      .29    .31    .33     .33     .36

so beyond 300 s there is nothing but chance, and less would cut the grain of the sampled ones. A host that leaves later leaves
on its own account: the hazard of departures says how likely that is (`OwnerHistory.departures`).

All is kept as whole numbers and tallies of hosts by switch and building: an event costs O(1), with a notice O(log n), a question
one pass over a column.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from controller.numerics.arrays import Floats, Numbers
from topologies.spec import Campus

SAME_SWITCH, SAME_BUILDING, OTHER = range(3)
CLASSES = 3
TOGETHER = 300.0 / 86_400.0  # of a day: see above
HALF = 0.5  # Jeffreys' prior of a proportion: half a success, half a failure

ByClass = tuple[float, float, float]
Counts = tuple[int, int, int]


class Neighbourhood(NamedTuple):
    """Switch and building of a host."""

    switch: str  # its access switch
    building: str


def neighbourhoods(campus: Campus) -> dict[str, Neighbourhood]:
    """Every host's access switch and building."""
    return {h.name: Neighbourhood(next(iter(campus.neighbours[h.name])), h.building) for h in campus.hosts}


class _Departure(NamedTuple):
    """Terms of one departure in the sums, by class."""

    at_s: float
    trials: Counts
    joint: Counts


class JointWindow:
    """Joint departures of the last `window_s` seconds. Times must not go backwards.

    `places`: where hosts stand; a host that it does not name stands alone, in a building of its own.
    """

    def __init__(self, window_s: float, together_s: float, places: Mapping[str, Neighbourhood]) -> None:
        if not 0.0 < together_s <= window_s:
            raise ValueError(f"hosts leave together within {together_s} s: above 0, at most {window_s} s")
        self.window_s, self.together_s = window_s, together_s
        self._places = places
        self._number: dict[str, int] = {}  # of hosts heard of, in order of appearance
        self._switches: dict[str, int] = {}
        self._buildings: dict[str, int] = {}
        self._stands: list[tuple[int, int]] = []  # of each host: numbers of its switch and its building
        self._lent_tally, self._left_tally = _Tally(), _Tally()
        self._lent: set[int] = set()
        self._closes: dict[int, float] = {}  # host that is lent -> when its notice ends
        # the same as a heap, of which only those count that still hold
        self._closings: list[tuple[float, int]] = []
        self._left: dict[int, float] = {}  # host -> when it departed: within together_s, and not back since
        self._log: deque[_Departure] = deque()
        self._departures, self._trials, self._joint = ([0] * CLASSES for _ in range(3))
        self._asked: tuple[Sequence[str], int, Numbers, Numbers, Numbers] | None = None

    def is_lent(self, host: str) -> bool:
        """Return whether the host is lent, and its owner has announced no end."""
        number = self._number.get(host)
        return number in self._lent and number not in self._closes

    def lend(self, host: str, now_s: float) -> None:
        """The host is lent from now on; a notice that is running is withdrawn."""
        self._slide(now_s)
        number = self._numbered(host)
        self._closes.pop(number, None)
        if number in self._lent:
            return
        if self._left.pop(number, None) is not None:
            self._left_tally.add(self._stands[number], -1)
        self._lent.add(number)
        self._lent_tally.add(self._stands[number], 1)

    def withdraw(self, host: str, now_s: float) -> None:
        """The host is lent no more, without its owner's doing (its agent is lost): it departs with no other host. While a notice
        runs the owner takes it all the same, at the end of that."""
        self._slide(now_s)
        number = self._numbered(host)
        if number in self._lent and number not in self._closes:
            self._lent.remove(number)
            self._lent_tally.add(self._stands[number], -1)

    def depart(self, host: str, now_s: float, notice_s: float = 0.0) -> None:
        """The owner takes the host back after a notice, of which the last one counts, or at once; nothing if it is not lent."""
        self._slide(now_s)
        number = self._numbered(host)
        if number not in self._lent:
            return
        if notice_s > 0.0:
            self._closes[number] = now_s + notice_s
            heappush(self._closings, (now_s + notice_s, number))
            return
        self._closes.pop(number, None)
        self._close(number, now_s)

    def _close(self, number: int, at_s: float) -> None:
        stands = self._stands[number]
        self._lent.remove(number)
        self._lent_tally.add(stands, -1)
        stay, left = self._lent_tally.by_class(stands), self._left_tally.by_class(stands)
        trials = (stay[0] + left[0], stay[1] + left[1], stay[2] + left[2])
        joint = (2 * left[0], 2 * left[1], 2 * left[2])  # each of the pair finds the other gone
        self._count(_Departure(at_s, trials, joint), 1)
        self._log.append(_Departure(at_s, trials, joint))
        self._left[number] = at_s
        self._left_tally.add(stands, 1)

    def together(self, now_s: float) -> ByClass:
        """Probability that a host that is lent departs within `together_s` of another one's departure, by class of the pair."""
        self._slide(now_s)
        q = []
        for d, joint, trials in zip(self._departures, self._joint, self._trials, strict=True):
            share = min(1.0, joint / trials) if trials else 0.0
            q.append((d * share + HALF) / (d + 2.0 * HALF))
        return q[SAME_SWITCH], q[SAME_BUILDING], q[OTHER]

    def counts(self, now_s: float) -> tuple[Counts, Counts]:
        """Return trials and joint departures of the window that ends now, by class."""
        self._slide(now_s)
        (a, b, c), (d, e, f) = self._trials, self._joint
        return (a, b, c), (d, e, f)

    def q(self, host: str, other: str, now_s: float) -> float:
        """`together` of this pair; 1 for the host itself."""
        by_class, own, another = self.together(now_s), self._numbered(host), self._numbered(other)
        if own == another:
            return 1.0
        (switch, building), (its_switch, its_building) = self._stands[own], self._stands[another]
        if switch == its_switch:
            return by_class[SAME_SWITCH]
        return by_class[SAME_BUILDING if building == its_building else OTHER]

    def q_column(self, host: str, hosts: Sequence[str], now_s: float) -> Floats:
        """`together` of (host, each of `hosts`); 1 for the host itself. Cheap to ask again with the same tuple of hosts."""
        return self.spread(host, hosts, self.together(now_s))

    def spread(self, host: str, hosts: Sequence[str], by_class: ByClass) -> Floats:
        """The number of each pair's class; 1 for the host itself."""
        own = self._numbered(host)
        numbers, switches, buildings = self._columns(hosts)
        switch, building = self._stands[own]
        near = np.where(buildings == building, by_class[SAME_BUILDING], by_class[OTHER])
        column = np.where(switches == switch, by_class[SAME_SWITCH], near)
        column[numbers == own] = 1.0
        return column

    def _slide(self, now_s: float) -> None:
        """Close hosts whose notices have ended, each at its time, and forget what is too long ago by now."""
        while self._closings and self._closings[0][0] <= now_s:
            at_s, number = heappop(self._closings)
            if self._closes.get(number) == at_s:
                del self._closes[number]
                self._forget(at_s)
                self._close(number, at_s)
        self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        """Forget departures that the window has left behind, and hosts that departed too long ago to depart with others."""
        while self._log and self._log[0].at_s < now_s - self.window_s:
            self._count(self._log.popleft(), -1)
        while self._left:
            number, at_s = next(iter(self._left.items()))  # in order of time
            if at_s >= now_s - self.together_s:
                break
            del self._left[number]
            self._left_tally.add(self._stands[number], -1)

    def _count(self, departure: _Departure, sign: int) -> None:
        for c in range(CLASSES):
            self._departures[c] += sign * (departure.trials[c] > 0)
            self._trials[c] += sign * departure.trials[c]
            self._joint[c] += sign * departure.joint[c]

    def _numbered(self, host: str) -> int:
        number = self._number.get(host)
        if number is None:
            number = self._number[host] = len(self._number)
            switch, building = self._places.get(host) or (f"of {host} alone", f"of {host} alone")
            stands = (
                self._switches.setdefault(switch, len(self._switches)),
                self._buildings.setdefault(building, len(self._buildings)),
            )
            self._stands.append(stands)
        return number

    def _columns(self, hosts: Sequence[str]) -> tuple[Numbers, Numbers, Numbers]:
        """Return number, switch and building of each."""
        asked = self._asked
        if asked is None or asked[0] is not hosts or asked[1] != len(hosts):
            numbers = [self._numbered(host) for host in hosts]
            stands = np.array([self._stands[n] for n in numbers], dtype=np.intp).reshape(len(numbers), 2)
            asked = (hosts, len(hosts), np.array(numbers, dtype=np.intp), stands[:, 0], stands[:, 1])
            if isinstance(hosts, tuple):
                self._asked = asked
        return asked[2], asked[3], asked[4]


class _Tally:
    """Numbers of hosts of some kind: in all, by switch, by building, and by both."""

    def __init__(self) -> None:
        self._all = 0
        self._at: dict[int, int] = {}
        self._in: dict[int, int] = {}
        self._both: dict[tuple[int, int], int] = {}

    def add(self, stands: tuple[int, int], count: int) -> None:
        switch, building = stands
        self._all += count
        self._at[switch] = self._at.get(switch, 0) + count
        self._in[building] = self._in.get(building, 0) + count
        self._both[stands] = self._both.get(stands, 0) + count

    def by_class(self, stands: tuple[int, int]) -> Counts:
        """Seen from there: of the same switch, of the same building but another switch, others."""
        switch, building = stands
        near, both = self._at.get(switch, 0), self._both.get(stands, 0)
        house = self._in.get(building, 0) - both
        return near, house, self._all - near - house
