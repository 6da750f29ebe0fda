"""Hazard from the log: exact bounds, exposure, borrowing, hours of the day."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from controller.core.placement import hazard
from controller.core.placement.hazard import ALL, FIRST_HOST, FIRST_HOUR, HOURS, OwnerHistory, expected_reclaims

HOUR_S, DAY_S = 3600.0, 86_400.0
NOTHING, BELIEF = (0.0, 0.0), (1.0, DAY_S)
PEAKS = [0.2 / HOUR_S] * 11 + [1.2 / HOUR_S] * 2 + [0.2 / HOUR_S] * 4 + [1.2 / HOUR_S] * 3 + [0.2 / HOUR_S] * 4


def test_before_any_exposure_nothing_is_known() -> None:
    levels, profile = History("a", 100.0).levels(0.0)
    assert levels.tolist() == [math.inf]
    assert set(profile) == {1.0}


def test_a_host_unheard_of_is_taken_for_an_average_one() -> None:
    log = History([*(f"h{index}" for index in range(10)), "new"], 1e6)
    for index in range(10):
        for cycle in range(10):  # every other one is taken back ten times as fast
            log.lend(f"h{index}", 200.0 * cycle)
            log.depart(f"h{index}", 200.0 * cycle + (150.0 if index % 2 else 15.0), 0.0)
    new, mean = log.estimate("new", 2000.0), log.of(None, 2000.0)
    assert new.rate_per_s == pytest.approx(mean.rate_per_s)
    assert log.levels(2000.0)[0][-1] == pytest.approx(new.upper)
    assert new.upper > mean.upper  # but with less certainty


def test_hosts_that_differ_by_no_more_than_chance_are_taken_for_one() -> None:
    hosts, rng = [f"h{index}" for index in range(40)], Random(1)
    log = History(hosts, 1e9)
    for host in hosts:
        at_s = 0.0
        while (at_s := at_s + rng.expovariate(1e-3)) < 2e4:
            log.lend(host, at_s)
            log.depart(host, at_s, 0.0)
        log.lend(host, at_s)
    mean = log.of(None, 3e4).rate_per_s
    levels = [log.estimate(host, 3e4).rate_per_s for host in hosts]
    own = [log.of(host, 3e4).rate_per_s for host in hosts]
    assert max(abs(level / mean - 1.0) for level in levels) < 0.25 * max(abs(o / mean - 1.0) for o in own)


def test_bursts_on_single_days_are_no_profile_and_the_same_hour_every_day_is_one() -> None:
    habit, bursts = (History([f"h{index}" for index in range(10)], 1e9) for _ in range(2))
    for day in range(10):
        for index in range(10):
            for log, hour in ((habit, 12), (bursts, (7 * day) % 24)):
                log.lend(f"h{index}", day * DAY_S)
                log.depart(f"h{index}", (day * 24 + hour + 0.5) * HOUR_S, 0.0)
                log.lend(f"h{index}", (day * 24 + hour + 0.6) * HOUR_S)
    assert max(habit.profile(10 * DAY_S)) > 15.0
    assert max(bursts.profile(10 * DAY_S)) < 1.5


def test_a_host_with_a_long_record_speaks_for_itself() -> None:
    log = History(["restless", "calm"], 1e9)
    for cycle in range(200):
        log.lend("restless", cycle * 100.0)
        log.depart("restless", cycle * 100.0 + 10.0, 0.0)
        log.lend("calm", cycle * 100.0)
    now_s = 200 * 100.0
    assert log.estimate("restless", now_s).rate_per_s == pytest.approx(0.1, rel=0.15)
    assert log.estimate("calm", now_s).rate_per_s < 0.001


def test_the_hazard_is_integrated_step_by_step_and_wraps_at_midnight() -> None:
    assert expected_reclaims(PEAKS, 11.25 * HOUR_S, 0.5 * HOUR_S, DAY_S) == pytest.approx(0.6)
    assert expected_reclaims(PEAKS, 16.5 * HOUR_S, 3.0 * HOUR_S, DAY_S) == pytest.approx(3.1)
    assert expected_reclaims(PEAKS, 23.5 * HOUR_S, 1.0 * HOUR_S, DAY_S) == pytest.approx(0.2)
    assert expected_reclaims(PEAKS, 3 * DAY_S + 11.25 * HOUR_S, 0.5 * HOUR_S, DAY_S) == pytest.approx(0.6)


def test_the_profile_finds_the_hour_of_owners_and_shrinks_hours_that_were_rarely_seen() -> None:
    log = History("a", 1000 * DAY_S)
    for day in range(200):
        log.lend("a", day * DAY_S)
        log.depart("a", day * DAY_S + 12.5 * HOUR_S, 0.0)
        log.lend("a", day * DAY_S + 12.5 * HOUR_S)
    found = log.profile(200 * DAY_S)
    assert found.index(max(found)) == 12
    assert found[12] > 15.0
    assert 0.0 < found[3] < 0.5

    fresh = History("a", DAY_S)
    fresh.lend("a", 11.5 * HOUR_S)
    fresh.depart("a", 12.5 * HOUR_S, 0.0)
    assert max(fresh.profile(13 * HOUR_S)) < 3.0
    assert fresh.profile(13 * HOUR_S)[20] == pytest.approx(1.0)


# ---------------------------------------------------------------- lent time in a sliding window
SHORT_DAY_S, START_S = 240.0, 35.0  # hours of 10 s
Event = tuple[float, str, int]
HOSTS = ("a", "b", "c")
LEND, LOSE, DEPART = range(3)

events = st.lists(
    st.tuples(
        st.integers(0, 900).map(float), st.sampled_from((*HOSTS, "no such")), st.sampled_from([LEND, LOSE, DEPART])
    ),
    max_size=25,
).map(lambda some: sorted(some, key=lambda event: event[0]))


def play(log: Sequence[Event], history: "History") -> "History":
    for at_s, host, what in log:
        if what == DEPART:
            history.depart(host, at_s, 0.0)
        else:
            (history.lend if what == LEND else history.lose)(host, at_s)
        history.seen(at_s)  # a question moves the window and changes nothing
    return history


def spells(log: Sequence[Event], host: str, now_s: float) -> list[tuple[float, float]]:
    """When the host was lent, one spell after the other."""
    found, since_s = [], None
    for at_s, who, what in log:
        if who != host:
            continue
        if what == LEND:
            since_s = at_s if since_s is None else since_s
        elif since_s is not None:
            found.append((since_s, at_s))
            since_s = None
    return found if since_s is None else [*found, (since_s, now_s)]


def departures(log: Sequence[Event], hosts: Sequence[str], from_s: float) -> list[float]:
    lent, found = set[str](), []
    for at_s, who, what in log:
        if what == DEPART and who in lent and who in hosts and at_s >= from_s:
            found.append(at_s)
        (lent.add if what == LEND else lent.discard)(who)
    return found


def expected(log: Sequence[Event], hosts: Sequence[str], from_s: float, now_s: float) -> tuple[float, float]:
    lent_s = sum(max(0.0, end - max(begin, from_s)) for h in hosts for begin, end in spells(log, h, now_s))
    return len(departures(log, hosts, from_s)), lent_s


def hour_of(at_s: float) -> int:
    return int((at_s + START_S) % SHORT_DAY_S // (SHORT_DAY_S / HOURS))


def hour_lent_s(log: Sequence[Event], hour: int, from_s: float, now_s: float) -> float:
    """Second by second: all times are whole."""
    seconds = [s for h in HOSTS for begin, end in spells(log, h, now_s) for s in range(int(begin), int(end))]
    return float(sum(s >= from_s and hour_of(s) == hour for s in seconds))


@given(events, st.sampled_from([50.0, 300.0, 1e4]), st.integers(0, 300).map(float))
def test_sums_are_those_of_the_spells_in_the_window(log: list[Event], window_s: float, later_s: float) -> None:
    history = play(log, History(HOSTS, window_s, day_s=SHORT_DAY_S, day_start_s=START_S))
    now_s = (log[-1][0] if log else 0.0) + later_s
    from_s = now_s - window_s
    counts, times_s = history.seen(now_s)
    assert (counts[ALL], times_s[ALL]) == pytest.approx(expected(log, HOSTS, from_s, now_s))
    for column, host in enumerate(HOSTS, FIRST_HOST):
        assert (counts[column], times_s[column]) == pytest.approx(expected(log, [host], from_s, now_s))
    hours = [hour_lent_s(log, hour, from_s, now_s) for hour in range(HOURS)]
    assert times_s[FIRST_HOUR:FIRST_HOST].tolist() == pytest.approx(hours)
    found = Counter(hour_of(at_s) for at_s in departures(log, HOSTS, from_s))
    assert counts[FIRST_HOUR:FIRST_HOST].tolist() == [found[hour] for hour in range(HOURS)]


@given(events, st.booleans())
def test_upper_bounds_in_a_column_are_those_of_each_host(log: list[Event], believes: bool) -> None:
    hosts = [*HOSTS, "unheard"]
    history = play(log, History(hosts, 400.0, (1.0, 100.0) if believes else NOTHING))
    single = [history.estimate(host, 1000.0).upper for host in hosts]
    np.testing.assert_allclose(history.levels(1000.0)[0], single, rtol=1e-9)


# ---------------------------------------------------------------- notices
def departed(*departures: tuple[float, float], window_s: float = 1e6) -> "History":
    """A host that its owner takes back at these times, after these notices."""
    history = History("a", window_s)
    for at_s, notice_s in departures:
        history.lend("a", at_s)
        history.depart("a", at_s, notice_s)
    return history


def too_short(history: "History", needed_s: float, now_s: float) -> float:
    return float(history.too_short(np.array([needed_s]), now_s)[0])


def test_before_anything_was_seen_a_notice_is_as_likely_too_short_as_not() -> None:
    history = departed()
    assert too_short(history, 60.0, 0.0) == 0.5
    assert too_short(history, 0.0, 0.0) == 0.0  # nothing is needed
    assert too_short(history, math.inf, 0.0) == 1.0  # no notice is long enough


def test_a_notice_of_two_minutes_is_enough_for_two_minutes_and_for_no_more() -> None:
    history = departed(*((float(at_s), 120.0) for at_s in range(99)))
    assert too_short(history, 120.0, 99.0) == pytest.approx(0.005)
    assert too_short(history, 128.0, 99.0) == pytest.approx(0.995)
    assert too_short(history, 1.0, 99.0) == pytest.approx(0.005)


def test_what_left_the_window_is_forgotten() -> None:
    history = departed((0.0, 0.0), (60.0, 500.0), window_s=100.0)
    assert too_short(history, 10.0, 100.0) == pytest.approx(1.5 / 3.0)
    assert too_short(history, 10.0, 101.0) == pytest.approx(0.5 / 2.0)
    assert history.of(None, 1000.0).events == 0


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e6)), max_size=40),
    st.lists(st.floats(1e-3, 1e8), min_size=1, max_size=8),
)
def test_notices_are_counted_to_an_eighth_of_themselves(notices: list[float], needs: list[float]) -> None:
    history = departed(*((float(at_s), notice_s) for at_s, notice_s in enumerate(notices)))
    column = history.too_short(np.array(sorted(needs)), 100.0)
    assert (np.diff(column) >= 0.0).all()
    for needed_s, p in zip(sorted(needs), column.tolist(), strict=True):
        assert p == too_short(history, needed_s, 100.0)
        least = sum(notice_s < needed_s / 1.125 for notice_s in notices)
        most = sum(notice_s < 0.005 or notice_s < needed_s * 1.125 for notice_s in notices)
        assert least - 1e-9 <= p * (len(notices) + 1.0) - 0.5 <= most + 1e-9


# ---------------------------------------------------------------- departures
def test_a_departure_counts_once_from_when_its_owner_announced_it() -> None:
    history = History("a", 1e6)
    for turn in range(20):
        at_s = 30_000.0 * turn
        history.lend("a", at_s)
        history.depart("a", at_s + 5000.0, 600.0)
        history.depart("a", at_s + 5600.0, 0.0)  # its notice is over
    assert history.of(None, 6e5) == Experience(20.0, 20 * 5000.0)
    assert too_short(history, 500.0, 6e5) == pytest.approx(0.5 / 21.0)


def test_a_host_that_stays_after_all_departs_again() -> None:
    history = History("a", 1e6)
    history.lend("a", 0.0)
    history.depart("a", 100.0, 600.0)
    history.lend("a", 200.0)
    history.depart("a", 300.0, 0.0)
    assert history.of(None, 400.0) == Experience(2.0, 200.0)


# ---------------------------------------------------------------- both, with the hazard
def test_departures_of_any_kind_count_like_emergencies_or_emergencies_alone_do() -> None:
    hosts, now_s = ("h0", "h1", "h2", "h3"), 70_000.0
    any_kind, emergencies, all_at_once, lost = (
        History(hosts, 1e6, BELIEF, short_notices=short) for short in (True, False, True, True)
    )
    for turn in range(12):
        at_s, host = 5000.0 * turn, f"h{turn % 3}"
        for history in (any_kind, emergencies, all_at_once, lost):
            history.lend(host, at_s)
        at_s, notice_s = at_s + 1000.0, 60.0 * (turn % 2)
        for history in (any_kind, emergencies):
            history.depart(host, at_s, notice_s)
            history.lose(host, at_s + 60.0)
        all_at_once.depart(host, at_s, 0.0)
        if turn % 2:
            lost.lose(host, at_s)
        else:
            lost.depart(host, at_s, 0.0)
    for found, wanted in ((any_kind, all_at_once), (emergencies, lost)):
        np.testing.assert_array_equal(found.levels(now_s)[0], wanted.levels(now_s)[0])
        assert found.profile(now_s) == wanted.profile(now_s)


def test_agents_that_are_lost_together_are_no_owners_who_leave_together() -> None:
    history = History("abcdef", 1e6, BELIEF)
    for host in "abcdef":
        history.lend(host, 0.0)
    for host in "abcdef":
        history.lose(host, 100.0)
    assert history.of(None, 200.0) == Experience(1.0, DAY_S + 600.0)
    assert too_short(history, 60.0, 200.0) == 0.5


# ---------------------------------------------------------------- one host at a time, in plain numbers
@dataclass(frozen=True)
class Experience:
    """`events` departures in `exposure_s` seconds lent; fractions where experience is borrowed."""

    events: float = 0.0
    exposure_s: float = 0.0

    @property
    def rate_per_s(self) -> float:
        return self.events / self.exposure_s if self.exposure_s > 0.0 else 0.0

    @property
    def upper(self) -> float:
        return float(chi2.ppf(0.95, 2.0 * self.events + 2.0) / 2.0 / self.exposure_s) if self.exposure_s else math.inf


class History(OwnerHistory):
    """A history that is asked for one host at a time."""

    def __init__(
        self,
        hosts: Sequence[str],
        window_s: float,
        prior: tuple[float, float] = NOTHING,
        day_s: float = DAY_S,
        **options: Any,
    ) -> None:
        super().__init__(hosts, window_s, prior, day_s, **options)

    def of(self, host: str | None, now_s: float) -> Experience:
        """What was seen on one host in the window that ends now; of all, with the prior."""
        events, lent_s = self.seen(now_s)
        if host is None:
            return Experience(float(events[0]) + self._prior[0], float(lent_s[0]) + self._prior[1])
        column = self._column[host]
        return Experience(float(events[column]), float(lent_s[column]))

    def estimate(self, host: str, now_s: float) -> Experience:
        """A host's experience with what it borrows from the others."""
        events, lent_s = (column[hazard.FIRST_HOST :] for column in self.seen(now_s))
        campus = self.of(None, now_s)
        borrowed = float(hazard._borrowed(events, lent_s, campus.rate_per_s))
        return pooled(self.of(host, now_s), campus, borrowed)

    def profile(self, now_s: float) -> tuple[float, ...]:
        """24 factors, the campus's rate in each hour over its mean rate; all 1 while nothing was seen."""
        return self.levels(now_s)[1]


def pooled(own: Experience, whole: Experience, events: float) -> Experience:
    """One's own experience, and of the rest of `whole` the part in which `events` departures of the whole fall: all of it if
    it holds no more. The own part is never counted twice."""
    part = min(1.0, events / whole.events) if whole.events > 0.0 else 1.0
    return Experience(
        own.events + part * (whole.events - own.events),
        own.exposure_s + part * max(0.0, whole.exposure_s - own.exposure_s),
    )
