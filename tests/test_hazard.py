"""Hazard from the log: exact bounds, exposure, borrowing, hours of the day."""

import math
from random import Random

import numpy as np
import pytest
from scipy.stats import chi2

from controller.core.placement import hazard
from controller.core.placement.hazard import expected_reclaims
from tests.hazard_of_one import Experience, History, pooled

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
PEAKS = (
    [0.2 / HOUR_S] * 11 + [1.2 / HOUR_S] * 2 + [0.2 / HOUR_S] * 4 + [1.2 / HOUR_S] * 3 + [0.2 / HOUR_S] * 4
)


@pytest.mark.parametrize("events", [0, 1, 3, 40])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_bounds_are_the_exact_poisson_ones(events: int, level: float) -> None:
    [found] = hazard.upper_bounds(np.array([float(events)]), np.array([1000.0]), level)
    assert found == pytest.approx(chi2.ppf(level, 2 * events + 2) / 2000.0)


def test_before_any_exposure_nothing_is_known() -> None:
    levels, profile = History("a", 100.0).levels(0.0)
    assert levels.tolist() == [math.inf]
    assert set(profile) == {1.0}


def test_only_time_lent_is_exposure_and_only_emergencies_are_events() -> None:
    log = History("ab", 1000.0)
    log.lend("a", 0.0)
    log.depart("a", 100.0, 0.0)  # 100 s lent, one event
    log.lend("a", 300.0)
    log.lose("a", 350.0)  # 50 s, not by its owner: censored
    log.lend("b", 340.0)  # 60 s so far
    log.lend("b", 380.0)  # it was lent already
    assert log.of(None, 400.0) == Experience(1.0, 210.0)


def test_what_left_the_window_is_forgotten_and_the_rest_is_cut() -> None:
    log = History("a", 100.0)
    log.lend("a", 0.0)
    log.depart("a", 50.0, 0.0)
    log.lend("a", 60.0)
    assert log.of(None, 140.0) == Experience(1.0, 10.0 + 80.0)
    assert log.of(None, 155.0) == Experience(0.0, 95.0)
    assert log.of(None, 1000.0) == Experience(0.0, 100.0)


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


def test_borrowing_holds_no_more_than_the_agreed_number_of_events() -> None:
    assert pooled(Experience(), Experience(300.0, 600.0), events=3.0) == Experience(3.0, 6.0)
    assert pooled(Experience(1.0, 2.0), Experience(3.0, 52.0), events=3.0) == Experience(3.0, 52.0)


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


def test_the_time_of_day_at_the_start_shifts_the_profile() -> None:
    log = History("a", 100 * DAY_S, day_start_s=9 * HOUR_S)
    for day in range(50):
        log.lend("a", day * DAY_S)
        log.depart("a", day * DAY_S + 0.5 * HOUR_S, 0.0)
        log.lend("a", day * DAY_S + 0.6 * HOUR_S)
    found = log.profile(50 * DAY_S)
    assert found.index(max(found)) == 9
