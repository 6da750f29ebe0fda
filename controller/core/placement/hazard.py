"""Hazard of a host: how soon its owner takes it back (paper A, sections IV and V-E). `OwnerHistory` has what was seen.

While a host is lent, departures are a Poisson process whose rate changes slowly (Definition 1). Over a window with n departures
in T seconds lent, the maximum-likelihood rate is n/T, and its exact one-sided upper bound at level q is

    upper = chi2(q; 2n + 2) / (2T).

Decisions use this bound: a host without departures is not a host without hazard (n = 0 gives 3/T at 95 %).

**Borrowing.** A single host is lent for hours between emergencies, so its own n/T is noise. It borrows from the
campus: to its own record the others' is added, scaled by the part of the campus's record that holds so many
emergencies: the shape of a gamma prior around the campus's rate, of which this is the posterior mean. The hosts'
counts show how many: if they differ by no more than by chance, all are taken for average ones; if they differ by tau
(a coefficient of variation), 1/tau^2 are borrowed (empirical Bayes, by moments; a belief of `HOSTS_DIFFER` counts
until enough was seen). A host with a long record speaks for itself. The campus in turn adds a `prior`, what is
believed before anything was seen, so that the first minutes have an answer too.

**Hours.** Owners come back at lunch and in the evening. The campus's profile is its rate in each 24th of a
day, relative to its mean; an hour borrows from the whole day by the same rule, but chance is judged from what the
same hour had on different days: owners that leave together, when a course begins or a cloud wants its machines back,
make one afternoon look like a habit. Hosts share the profile and differ by a factor (proportional hazards): one level a
host is all that the data allow. A scaled scenario may have a shorter day, so its length is an argument.

Both were measured against fixed numbers of borrowed events, on drawn and recorded histories: with three for everything, hours
foretold recorded preemptions worse than one rate for the whole day did.

**What was seen** is how long hosts were lent, when they departed, and after what notice, in a window that slides. A
host that is taken back after a notice hurts a job only if its last checkpoint or its move takes longer than the
notice. Most notices are shorter, and a copy's holder that leaves with notice is gone as well. So departures of any
kind are counted, each once from when it is announced. The hazard that counts for a job is their rate times P(notice <
what the job needs). A policy that does not mind short notices counts emergencies alone.

**The window** that ends now holds what was seen until now, less what was seen until it began. Both are running sums
(`_Totals`) of the same log: the head takes an event when it happens, the tail when the window has left it behind. A
sum has a closed form between events. Until t a host lent since s has been lent for (its time before) - s + t. So -s
is added when it is lent and +t when it no longer is. A question costs one multiplication, however long the record.
The same holds for all hosts together, and for each hour of the day. For an hour, the clock t is the time that it has
had until t.

**Notices** are kept as counts in bins, eight to an octave, spread evenly within each. (A bin is at most an eighth
wide, and 120 s is the edge of one.) A departure without notice is one of 0 s. With n departures in the window, k of
them with a notice below x,

    P(notice < x) = (k + 1/2) / (n + 1)

the posterior mean of a proportion after Jeffreys' prior: 1/2 where nothing was seen, and never quite 0 or 1.

An agent that is lost without its owner's doing ends the time lent and is no departure: a coordinator that restarts loses all
agents at once, and must not learn that all owners leave together.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from controller.numerics import gamma
from controller.numerics.arrays import Floats
from controller.numerics.jit import compiled, total
from controller.numerics.portable_math import rounded

HOURS = 24
# columns of what was seen: of all hosts, then of each hour of the day, then of each host
ALL, FIRST_HOUR, FIRST_HOST = 0, 1, 1 + HOURS
LEVEL = 0.95  # one-sided confidence
HOSTS_DIFFER = 0.62**2  # squared CV of hosts' hazards believed beforehand: paper A, F4
# squared CV of the hours' believed beforehand: peaks of six times for 4 hours (paper A, F1)
HOURS_DIFFER = 1.0
# by how much an hour's emergencies scatter from day to day more than Poisson's, believed beforehand
BURSTS = 2.0
BELIEF = 20.0  # expected events, squared and added up, after which what was seen counts as much as what is believed
SOME = 5.0  # events after which their scatter counts as much as what is believed of it
STEPS = 8  # from a number of events borrowed to its double
MAX_DIFFER = 1.0  # squared CV that is credited to hosts at most, so that a host borrows one event at least
MAX_QUANTILES = 4096  # remembered
_HALF_CHI2: dict[float, dict[float, float]] = {}  # level -> events n -> chi2(level; 2 n + 2) / 2

Table = Sequence[float]  # hazard per second in each of the 24 hours of a day that begins at midnight


def expected_reclaims(table: Table, start_s: float, duration_s: float, day_s: float) -> float:
    """Integrate the hazard from the time of day `start_s` for `duration_s`; wraps at midnight."""
    if math.isinf(duration_s):
        return math.inf if any(table) else 0.0
    hour_s = day_s / HOURS
    days, rest_s = divmod(duration_s, day_s)
    expected = [rate * (days * hour_s) for rate in table] if days else []
    at_s = start_s % day_s
    end_s, hour = at_s + rest_s, int(at_s // hour_s)
    while at_s < end_s:
        next_s = min((hour + 1) * hour_s, end_s)
        expected.append(table[hour % HOURS] * (next_s - at_s))
        at_s, hour = next_s, hour + 1
    return math.fsum(expected)


def upper_bounds(events: Floats, exposure_s: Floats, level: float = LEVEL) -> Floats:
    """Return the exact upper bound at one-sided `level` of each Poisson rate per second; infinite without exposure."""
    numbers, known = events.tolist(), _HALF_CHI2.setdefault(level, {})
    if len(known) > MAX_QUANTILES:
        known.clear()
    if new := [n for n in {*numbers} if n not in known]:
        # quantiles of a gamma distribution, so that a number of events may be a fraction
        known.update((n, rounded(gamma.quantile(n + 1.0, level))) for n in new)
    halves = np.array([known[n] for n in numbers])
    with np.errstate(divide="ignore"):
        bounds: Floats = halves / exposure_s
    return bounds


@compiled
def pooled(
    events: Floats, lent_s: Floats, squares: float, days: float, prior_events: float, prior_s: float
) -> tuple[Floats, Floats, Floats]:
    """Return departures and lent time of each host with those that it borrows, and the hours' rates over that of the day.

    `events`, `lent_s`: as seen, in columns; `squares`: departures of each hour of each of so many days, squared and summed;
    the prior is added to what all hosts have seen.
    """
    all_events, all_s = events[ALL] + prior_events, lent_s[ALL] + prior_s
    own_events, own_s = events[FIRST_HOST:], lent_s[FIRST_HOST:]
    part = 1.0
    if all_events > 0.0:
        rate = all_events / all_s if all_s > 0.0 else 0.0
        part = min(1.0, _borrowed(own_events, own_s, rate) / all_events)
    # to a host's own, of the rest of the campus's the part that holds the events borrowed: all of it if it holds no more
    with_others = own_events + part * (all_events - own_events)
    with_others_s = own_s + part * np.maximum(0.0, all_s - own_s)
    hour_events = events[FIRST_HOUR:FIRST_HOST]
    scattered = scatter(hour_events, squares, days)
    return with_others, with_others_s, relative(hour_events, lent_s[FIRST_HOUR:FIRST_HOST], scattered)


@compiled
def _borrowed(events: Floats, exposure_s: Floats, rate_per_s: float) -> float:
    """Return the events that a host borrows from the campus: fewer the more hosts differ; infinitely many if they do not.

    In steps of about a tenth, so that quantiles need not be found again while nothing happens.
    """
    differ = differences(events, exposure_s * rate_per_s, 1.0, HOSTS_DIFFER)
    if differ == 0.0:
        return math.inf
    mantissa, exponent = math.frexp(1.0 / min(differ, MAX_DIFFER))
    return math.ldexp(np.rint(mantissa * STEPS) / STEPS, exponent)


@compiled
def differences(events: Floats, expected: Floats, scattered: float, believed: float) -> float:
    """Return the squared coefficient of variation of the true rates of several parts, by moments, 0 or more."""
    beyond = total((events - expected) ** 2 - scattered * expected)
    return max(0.0, (beyond + BELIEF * believed) / (total(expected**2) + BELIEF))


@compiled
def scatter(events: Floats, squares: float, days: float) -> float:
    """Return variance over mean of an hour's count from day to day, 1 at least; of `events` of each hour in so many days."""
    if days <= 1.0:
        return BURSTS
    between_days = squares - total(events**2) / days
    seen = total(events) * (1.0 - 1.0 / days)
    return max(1.0, (between_days + SOME * BURSTS) / (seen + SOME))


@compiled
def relative(events: Floats, exposure_s: Floats, scattered: float) -> Floats:
    """Return the rates of the hours over that of the whole day, from which each borrows; all 1 without events."""
    n, whole_s, even = total(events), total(exposure_s), np.ones(len(events))
    if n == 0.0 or whole_s <= 0.0:
        return even
    expected = exposure_s * (n / whole_s)
    differ = differences(events, expected, scattered, HOURS_DIFFER)
    if differ == 0.0:
        return even
    borrowed = scattered / differ
    factors: Floats = (events + borrowed) / (expected + borrowed)
    return factors


# ---------------------------------------------------------------- what was seen


PARTS = 8  # bins of an octave
# octaves: from 2^-8 s (4 ms: shorter ones are none) to 2^24 s, half a year
LOWEST, HIGHEST = -8, 24
BINS = 1 + PARTS * (HIGHEST - LOWEST)  # bin 0: no notice
# Jeffreys' prior of a proportion is beta(1/2, 1/2): a success and a failure, half of each
HALF = 0.5
# rows of sums: departures; lent time, less the clock of when it was lent; hosts that are lent
TAKEN, BEFORE, LENT = range(3)


class _Event(NamedTuple):
    at_s: float
    column: int  # of its host
    lent: bool  # from now on, or no more
    notice: int | None = None  # bin of the notice; None: it did not depart


class _Totals:
    """Sums of everything until a moment, in the columns of `hazard`."""

    def __init__(self, columns: int) -> None:
        self.rows = np.zeros((3, columns))
        self.squares = 0.0  # of the departures of each hour of each day
        self.notices = np.zeros(BINS)  # departures with such notices
        self._in_hour = Counter[tuple[float, int]]()

    def take(self, event: _Event, clock: Floats, hour: tuple[float, int]) -> None:
        """Add an event that happened in this hour of a day, at these clocks of all columns."""
        if event.notice is not None:
            self.notices[event.notice] += 1.0
            for column in (ALL, FIRST_HOUR + hour[1], event.column):
                self.rows[TAKEN, column] += 1.0
            self._in_hour[hour] += 1
            # where a window begins within an hour, this takes what is left of the hour for a little more
            self.squares += 2.0 * self._in_hour[hour] - 1.0
        if event.lent != (self.rows[LENT, event.column] > 0.0):
            sign = 1.0 if event.lent else -1.0
            for columns in (slice(FIRST_HOST), event.column):
                self.rows[BEFORE, columns] -= sign * clock[columns]
                self.rows[LENT, columns] += sign


class OwnerHistory:
    """Lendings and departures of these hosts in the last `window_s` seconds. Times must not go backwards.

    `prior`: departures and seconds lent that are believed to have been seen beside. Without it the bounds are infinite before
    any exposure, which P1 refuses. A day has `day_s` seconds, and `day_start_s` is the time of day at time 0. Without
    `short_notices` a departure with notice counts as none. Hosts of other names are ignored.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        window_s: float,
        prior: tuple[float, float],
        day_s: float,
        day_start_s: float = 0.0,
        *,
        short_notices: bool = True,
    ) -> None:
        if not window_s > 0.0:
            raise ValueError(f"a window of {window_s} s: a duration above 0")
        self._column = {host: FIRST_HOST + place for place, host in enumerate(hosts)}
        self._window_s, self._prior, self._short_notices = window_s, prior, short_notices
        self._day_s, self._day_start_s = day_s, day_start_s
        self._hours_s = np.arange(HOURS) * (day_s / HOURS)  # when each begins
        self._log: deque[_Event] = deque()  # events that the tail has not taken
        self._head, self._tail = _Totals(FIRST_HOST + len(hosts)), _Totals(FIRST_HOST + len(hosts))
        self._first_s = inf
        self._departures = 0  # so far: what is lent from now on changes nothing of the past
        self._known: tuple[tuple[float, int], Floats, tuple[float, ...]] = ((inf, 0), np.empty(0), ())
        self._bounded = np.empty(0), np.empty(0)  # departures of hosts, and the bounds of such numbers in a second

    def lend(self, host: str, now_s: float) -> None:
        """Note that the host is lent from now on; nothing new if it already was."""
        if column := self._column.get(host):
            self._happened(_Event(now_s, column, True))

    def lose(self, host: str, now_s: float) -> None:
        """Note that the host is lent no more, without its owner's doing."""
        if column := self._column.get(host):
            self._happened(_Event(now_s, column, False))

    def depart(self, host: str, now_s: float, notice_s: float) -> None:
        """Note that the owner takes the host back after this notice (0: at once); nothing new if it was announced before."""
        column = self._column.get(host)
        if column and self._head.rows[LENT, column]:
            counts = self._short_notices or notice_s == 0.0
            self._departures += counts
            number = max(0, min(_bin(notice_s)[0], BINS - 1)) if notice_s > 0.0 else 0
            self._happened(_Event(now_s, column, False, number if counts else None))

    def _happened(self, event: _Event) -> None:
        self._first_s = min(self._first_s, event.at_s)
        self._log.append(event)
        self._head.take(event, *self._clock(event.at_s))

    def _clock(self, at_s: float) -> tuple[Floats, tuple[float, int]]:
        """Return the time that each column has had from the midnight before time 0, and the present day and hour."""
        day, time_s = divmod(at_s + self._day_start_s, self._day_s)
        hour_s = self._day_s / HOURS
        clock = np.full(self._head.rows.shape[1], at_s)
        of_hours_s = np.minimum(np.maximum(time_s - self._hours_s, 0.0), hour_s)
        clock[FIRST_HOUR:FIRST_HOST] = day * hour_s + of_hours_s
        return clock, (day, int(time_s / self._day_s * HOURS) % HOURS)

    def _begin_s(self, now_s: float) -> float:
        """Return when the window that ends now began, after the tail has taken what came before."""
        from_s = now_s - self._window_s
        while self._log and self._log[0].at_s < from_s:
            event = self._log.popleft()
            self._tail.take(event, *self._clock(event.at_s))
        return from_s

    def seen(self, now_s: float) -> tuple[Floats, Floats]:
        """Return departures and lent time (s) in the window that ends now, in the columns of `hazard`."""
        (until, _), (since, _) = self._clock(now_s), self._clock(self._begin_s(now_s))
        head, tail = self._head.rows, self._tail.rows
        lent_s = head[BEFORE] + head[LENT] * until - (tail[BEFORE] + tail[LENT] * since)
        return head[TAKEN] - tail[TAKEN], np.maximum(0.0, lent_s)

    def levels(self, now_s: float) -> tuple[Floats, tuple[float, ...]]:
        """Return the upper bound of each host's rate of departures, per second, and the profile of the day: 24 factors.

        A factor is the rate of all hosts in an hour over their mean rate; all are 1 while nothing was seen.
        """
        moment = (now_s, self._departures)
        if self._known[0] != moment:
            events, lent_s = self.seen(now_s)
            squares = self._head.squares - self._tail.squares
            days = max(0.0, (now_s - max(now_s - self._window_s, self._first_s)) / self._day_s)
            of_hosts, of_hosts_s, profile = pooled(events, lent_s, squares, days, *self._prior)
            if not np.array_equal(
                of_hosts, self._bounded[0]
            ):  # departures are few, and quantiles of all hosts take long
                self._bounded = of_hosts, upper_bounds(of_hosts, np.ones(len(of_hosts)))
            with np.errstate(divide="ignore"):
                self._known = moment, self._bounded[1] / of_hosts_s, tuple(profile.tolist())
        return self._known[1:]

    def too_short(self, needed_s: Floats, now_s: float) -> Floats:
        """Return P(notice < needed_s) of each; 0 if nothing is needed, 1 if no notice is long enough (infinite)."""
        self._begin_s(now_s)
        counts = self._head.notices - self._tail.notices
        return _too_short(needed_s, counts, float(counts.sum()))


@compiled
def _bin(duration_s: float) -> tuple[int, float]:
    """Return the bin of a duration above 0, and the part of the bin that is shorter."""
    mantissa, exponent = math.frexp(duration_s)
    within = (mantissa - 0.5) * (2 * PARTS)
    return 1 + PARTS * (exponent - 1 - LOWEST) + int(within), within - np.floor(within)


@compiled
def _too_short(needed_s: Floats, counts: Floats, n: float) -> Floats:
    """Return `OwnerHistory.too_short` of n departures, so many in each bin."""
    answer, before = np.zeros(len(needed_s)), np.zeros(BINS + 1)  # departures in all bins before each
    for number in range(BINS):
        before[number + 1] = before[number] + counts[number]
    for place in range(len(needed_s)):
        if needed_s[place] == np.inf:
            answer[place] = 1.0
        elif needed_s[place] > 0.0:
            number, part = _bin(needed_s[place])
            if not 1 <= number < BINS:
                number, part = min(max(number, 1), BINS), 0.0
            below = before[number] + part * counts[min(number, BINS - 1)]
            answer[place] = (below + HALF) / (n + 1.0)
    return answer
