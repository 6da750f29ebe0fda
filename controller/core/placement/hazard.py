"""Hazard of a host: how soon its owner takes it back (paper A, sections IV and V-E). `owner_history` has what was seen.

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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import gammaincinv

from controller.numerics.arrays import Floats
from controller.numerics.jit import compiled
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
    halves = np.array([_half_chi2(level, n + 1.0) for n in events.tolist()])
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
    beyond = float(((events - expected) ** 2 - scattered * expected).sum())
    return max(0.0, (beyond + BELIEF * believed) / (float((expected**2).sum()) + BELIEF))


@compiled
def scatter(events: Floats, squares: float, days: float) -> float:
    """Return variance over mean of an hour's count from day to day, 1 at least; of `events` of each hour in so many days."""
    if days <= 1.0:
        return BURSTS
    between_days = squares - float((events**2).sum()) / days
    seen = float(events.sum()) * (1.0 - 1.0 / days)
    return max(1.0, (between_days + SOME * BURSTS) / (seen + SOME))


@compiled
def relative(events: Floats, exposure_s: Floats, scattered: float) -> Floats:
    """Return the rates of the hours over that of the whole day, from which each borrows; all 1 without events."""
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
    """Return chi2(probability; 2 shape) / 2: a quantile of the gamma distribution, so `shape` may be a fraction."""
    return rounded(float(gammaincinv(shape, probability)))
