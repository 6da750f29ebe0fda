"""Emergency hazard of a host: how soon its owner takes it back, from the log of departures (paper A, sections IV and
V-E).

While a host is lent, emergencies are a Poisson process whose rate changes slowly (Definition 1). Over a
window with n emergencies in T seconds lent, all hosts' lent time added up, the maximum-likelihood rate is
n/T, and exact one-sided bounds at level q are

    upper = chi2(q; 2n + 2) / (2T),   lower = chi2(1 - q; 2n) / (2T)   (0 for n = 0).

Decisions use the upper one, in P1 and in survival: a host without emergencies is not a host without hazard (n
= 0 gives 3/T at 95 %). A departure that was announced ends the lent time and is no emergency: the time is
censored, not lost.

**Borrowing.** A single host is lent for hours between emergencies, so its own n/T is noise. It borrows from
the campus: to its own record the others' is added, scaled by the part of the campus's record that holds so many
emergencies: the shape of a gamma prior around the campus's rate, of which this is the posterior mean. How many is
what the hosts themselves say: if their counts differ by no more than chance makes them, all are taken for average ones;
if they differ by tau (a coefficient of variation), 1/tau^2 are borrowed (empirical Bayes, by moments; a belief of
`HOSTS_DIFFER` counts until enough was seen). A host with a long record speaks for itself. The campus in turn adds a
`prior`, what is believed before anything was seen, so that the first minutes have an answer too.

**Hours.** Owners come back at lunch and in the evening. The campus's profile is its rate in each 24th of a
day, relative to its mean; an hour borrows from the whole day by the same rule, but chance is judged from what the
same hour had on different days: owners that leave together, when a course begins or a cloud wants its machines back,
make one afternoon look like a habit. Hosts share the profile and differ by a factor (proportional hazards): one level a
host is all that the data allow. A scaled scenario may have a shorter day, so its length is an argument.

Both were measured against fixed numbers of borrowed events, on drawn and recorded histories (`reclaimnet measure hazard`):
with three for everything, hours foretold recorded preemptions worse than one rate for the whole day did.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaincinv

from controller.core.placement.exposure import (
    EMERGENCY,
    HOURS,
    LEND,
    WITHDRAW,
    LentTime,
    Until,
    between,
)
from controller.numerics.arrays import Floats, Numbers
from controller.numerics.jit import all_rounded, compiled
from controller.numerics.portable_math import exp, rounded

DAY_S = 86_400.0
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

Table = Sequence[float]  # hazard per second in each of the 24 hours of a day that begins at midnight


@dataclass(frozen=True, slots=True)
class Experience:
    """`events` emergencies in `exposure_s` seconds lent; fractions where experience is borrowed."""

    events: float = 0.0
    exposure_s: float = 0.0

    @property
    def rate_per_s(self) -> float:
        """n/T; 0 before anything was seen."""
        return self.events / self.exposure_s if self.exposure_s > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Hazard:
    """A rate per second: maximum likelihood and one-sided bounds; `upper` is infinite if nothing was seen."""

    mle: float
    lower: float
    upper: float


def bounds(experience: Experience, level: float = LEVEL) -> Hazard:
    """n/T with exact Poisson bounds, each at one-sided `level`."""
    n, exposure_s = experience.events, experience.exposure_s
    if exposure_s <= 0.0:
        return Hazard(0.0, 0.0, math.inf)
    lower = _half_chi2(1.0 - level, n) / exposure_s if n > 0.0 else 0.0
    return Hazard(n / exposure_s, lower, _half_chi2(level, n + 1.0) / exposure_s)


def expected_reclaims(table: Table, start_s: float, duration_s: float, day_s: float = DAY_S) -> float:
    """Integral of the hazard from the time of day `start_s` for `duration_s`; wraps at midnight.

    An infinite duration expects infinitely many, or none if every rate is 0. ValueError: not 24 rates.
    """
    if len(table) != HOURS:
        raise ValueError(f"an hourly table has {HOURS} rates, not {len(table)}")
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


def survival(table: Table, start_s: float, duration_s: float, day_s: float = DAY_S) -> float:
    """S = exp(-integral of h): the probability of no emergency in that time (paper A, section VI-B)."""
    return exp(-expected_reclaims(table, start_s, duration_s, day_s))


class HazardWindow:
    """The log of the last `window_s` seconds, and estimates from it; no question costs more for a longer record.

    `prior` is added to what the campus has seen, for ever: `Experience(1, 86400)` believes in one emergency a
    day as firmly as one emergency deserves. Without it, an estimate before any exposure has an infinite upper
    bound, which P1 refuses. A day has `day_s` seconds, and `day_start_s` is the time of day at time 0. Times must
    not go backwards.
    """

    def __init__(
        self,
        window_s: float,
        prior: Experience | None = None,
        day_s: float = DAY_S,
        day_start_s: float = 0.0,
    ) -> None:
        if not window_s > 0.0:
            raise ValueError(f"a window of {window_s} s: a duration above 0")
        self.window_s = window_s
        self.prior = prior or Experience()
        self.changes = 0  # emergencies so far: what is lent from now on changes nothing of the past
        self._seen = LentTime(window_s, day_s, day_start_s)
        # (of so many events, what they were found to be)
        self._known_quantiles: tuple[Floats, Floats] = np.empty(0), np.empty(0)

    def lend(self, host: str, now_s: float) -> None:
        """The host is lent from now on; nothing new if it already was."""
        self._happened(host, now_s, LEND)

    def withdraw(self, host: str, now_s: float) -> None:
        """The host is lent no more, without an emergency (announced, switched off, lost)."""
        self._happened(host, now_s, WITHDRAW)

    def emergency(self, host: str, now_s: float) -> None:
        """The owner took the host back without notice: one event, and the end of the time lent."""
        self._happened(host, now_s, EMERGENCY)

    def _happened(self, host: str, now_s: float, what: int) -> None:
        self.changes += what == EMERGENCY
        self._seen.happened(host, now_s, what)

    def campus(self, now_s: float) -> Experience:
        """Return the record of all hosts in the window, with the prior."""
        events, exposure_s = self._seen.of_all(now_s)
        return Experience(events + self.prior.events, exposure_s + self.prior.exposure_s)

    def upper_by_hour(self, hosts: Sequence[str], now_s: float) -> tuple[Floats, tuple[float, ...]]:
        """(upper bound at LEVEL of each host's hazard, with what it borrows from the others; 24 factors, the campus's rate in
        each hour over its mean rate, all 1 while nothing was seen)."""
        seen = self._seen
        until, since = seen.ends(now_s)
        shape, days, numbers = seen.shape, seen.days(now_s), seen.numbers(hosts)
        events, exposure_s, profile = _estimated(
            *until, *since, *shape, days, numbers, self.prior.events, self.prior.exposure_s
        )
        known_events, quantiles = self._known_quantiles
        is_known, upper = _over(events, exposure_s, known_events, quantiles)
        if not is_known:  # some count has changed
            few, which = _different(events)
            quantiles = all_rounded(gammaincinv(few + 1.0, LEVEL))[which]
            self._known_quantiles = events, quantiles
            _, upper = _over(events, exposure_s, events, quantiles)
        return upper, tuple(profile.tolist())


@compiled
def _over(events: Floats, exposure_s: Floats, known_events: Floats, quantiles: Floats) -> tuple[bool, Floats]:
    """Return whether these are the quantiles of so many events, and each over its exposure, infinite where there is none."""
    upper = np.full(len(events), np.inf)
    if len(events) != len(known_events):
        return False, upper
    for place in range(len(events)):
        if events[place] != known_events[place]:
            return False, upper
        if exposure_s[place] > 0.0:
            upper[place] = quantiles[place] / exposure_s[place]
    return True, upper


@compiled
def _different(events: Floats) -> tuple[Floats, Numbers]:
    """Return each number of events once, and the place of each host's among these: hosts are many, their counts few."""
    few, which, found = np.empty(len(events)), np.empty(len(events), np.intp), 0
    for place in range(len(events)):
        number = 0
        while number < found and few[number] != events[place]:
            number += 1
        if number == found:
            few[number], found = events[place], found + 1
        which[place] = number
    return few[:found], which


# the fields of both moments one by one: a compiled function takes arrays and numbers quicker than named tuples
@compiled
def _estimated(
    hosts_until: Floats,
    hours_until: Floats,
    all_until: Floats,
    until_s: float,
    whole_until_s: float,
    rest_until_s: float,
    hosts_since: Floats,
    hours_since: Floats,
    all_since: Floats,
    since_s: float,
    whole_since_s: float,
    rest_since_s: float,
    size: int,
    hour_s: float,
    days: float,
    hosts: Numbers,
    prior_events: float,
    prior_exposure_s: float,
) -> tuple[Floats, Floats, Floats]:
    """Return events and exposure of these hosts, borrowed ones included, and the campus's profile."""
    seen = between(
        Until(hosts_until, hours_until, all_until, until_s, whole_until_s, rest_until_s),
        Until(hosts_since, hours_since, all_since, since_s, whole_since_s, rest_since_s),
        size,
        hour_s,
    )
    events, exposure_s = seen.all_events + prior_events, seen.all_lent_s + prior_exposure_s
    part = 1.0
    if events > 0.0:
        rate = events / exposure_s if exposure_s > 0.0 else 0.0
        part = min(1.0, _borrowed(seen.events, seen.lent_s, rate) / events)
    # to a host's own, of the rest of the campus's the part that holds the events borrowed: all of it if it holds no more
    own_events, own_exposure_s = seen.events[hosts], seen.lent_s[hosts]
    pooled_s = own_exposure_s + part * np.maximum(0.0, exposure_s - own_exposure_s)
    pooled_events = own_events + part * (events - own_events)
    scattered = scatter(seen.hour_events, seen.squares, days)
    return pooled_events, pooled_s, relative(seen.hour_events, seen.hour_lent_s, scattered)


@compiled
def _borrowed(events: Floats, exposure_s: Floats, rate_per_s: float) -> float:
    """Events that a host borrows from the campus: fewer the more hosts differ; infinitely many if they do not.

    In steps of about a tenth, so that quantiles need not be found anew while nothing happens.
    """
    differ = differences(events, exposure_s * rate_per_s, 1.0, HOSTS_DIFFER)
    if differ == 0.0:
        return math.inf
    mantissa, exponent = math.frexp(1.0 / min(differ, MAX_DIFFER))
    return math.ldexp(np.rint(mantissa * STEPS) / STEPS, exponent)


@compiled
def differences(events: Floats, expected: Floats, scattered: float, believed: float) -> float:
    """Squared coefficient of variation of the true rates of several parts, by moments, 0 or more.

    `events` of each part, `expected` if all were alike; `scattered`: variance over mean of a count that chance alone has;
    `believed` counts as BELIEF.
    """
    beyond = float(((events - expected) ** 2 - scattered * expected).sum())
    return max(0.0, (beyond + BELIEF * believed) / (float((expected**2).sum()) + BELIEF))


@compiled
def scatter(events: Floats, squares: float, days: float) -> float:
    """Variance over mean of an hour's count from day to day, 1 at least; of `events` of each hour in so many days."""
    if days <= 1.0:
        return BURSTS
    between_days = squares - float((events**2).sum()) / days
    seen = float(events.sum()) * (1.0 - 1.0 / days)
    return max(1.0, (between_days + SOME * BURSTS) / (seen + SOME))


@compiled
def relative(events: Floats, exposure_s: Floats, scattered: float) -> Floats:
    """Rates of the hours over that of the whole day, from which each borrows; all 1 without events."""
    n, whole_s, even = events.sum(), exposure_s.sum(), np.ones(len(events))
    if n == 0.0 or whole_s <= 0.0:
        return even
    expected = exposure_s * (n / whole_s)
    differ = differences(events, expected, scattered, HOURS_DIFFER)
    if differ == 0.0:
        return even
    borrowed = scattered / differ
    factors: Floats = (events + borrowed) / (expected + borrowed)
    return factors


@lru_cache(maxsize=4096)
def _half_chi2(probability: float, shape: float) -> float:
    """chi2(probability; 2 shape) / 2: a quantile of the gamma distribution, so `shape` may be a fraction."""
    return rounded(float(gammaincinv(shape, probability)))
