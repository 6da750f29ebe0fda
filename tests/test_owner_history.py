"""What the past says of owners: notices that are too short, and the rate of departures of any kind."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.placement.hazard import Experience, HazardWindow
from controller.core.placement.owner_history import NoticeWindow, OwnerHistory

DAY_S = 86_400.0

# ---------------------------------------------------------------- notices


def too_short(notices: NoticeWindow, needed_s: float, now_s: float) -> float:
    return float(notices.too_short_column(np.array([needed_s]), now_s)[0])


def test_before_anything_was_seen_a_notice_is_as_likely_too_short_as_not() -> None:
    notices = NoticeWindow(100.0)
    assert too_short(notices, 60.0, 0.0) == 0.5
    assert too_short(notices, 0.0, 0.0) == 0.0  # nothing is needed
    assert too_short(notices, math.inf, 0.0) == 1.0  # no notice is long enough


def test_a_notice_of_two_minutes_is_enough_for_two_minutes_and_for_no_more() -> None:
    notices = NoticeWindow(1e6)
    for at_s in range(99):
        notices.departed(float(at_s), 120.0)
    assert too_short(notices, 120.0, 99.0) == pytest.approx(0.005)
    assert too_short(notices, 128.0, 99.0) == pytest.approx(0.995)
    assert too_short(notices, 1.0, 99.0) == pytest.approx(0.005)


def test_a_departure_without_notice_is_too_short_for_anything() -> None:
    notices = NoticeWindow(1e6)
    for at_s in range(9):
        notices.departed(float(at_s), 0.0)
    assert too_short(notices, 0.01, 9.0) == pytest.approx(0.95)


def test_what_left_the_window_is_forgotten() -> None:
    notices = NoticeWindow(100.0)
    notices.departed(0.0, 0.0)
    notices.departed(60.0, 500.0)
    assert too_short(notices, 10.0, 100.0) == pytest.approx(1.5 / 3.0)
    assert too_short(notices, 10.0, 101.0) == pytest.approx(0.5 / 2.0)
    assert notices.seen(1000.0) == 0


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e6)), max_size=40),
    st.lists(st.floats(1e-3, 1e8), min_size=1, max_size=8),
)
def test_notices_are_counted_to_an_eighth_of_themselves(notices: list[float], needs: list[float]) -> None:
    window = NoticeWindow(1e6)
    for at_s, notice_s in enumerate(notices):
        window.departed(float(at_s), notice_s)
    column = window.too_short_column(np.array(sorted(needs)), 100.0)
    assert (np.diff(column) >= 0.0).all()
    for needed_s, p in zip(sorted(needs), column.tolist(), strict=True):
        assert p == too_short(window, needed_s, 100.0)
        least = sum(notice_s < needed_s / 1.125 for notice_s in notices)
        most = sum(notice_s < 0.005 or notice_s < needed_s * 1.125 for notice_s in notices)
        assert least - 1e-9 <= p * (len(notices) + 1.0) - 0.5 <= most + 1e-9


# ---------------------------------------------------------------- departures


def test_a_departure_counts_once_from_when_its_owner_announced_it() -> None:
    history = OwnerHistory(1e6)
    for turn in range(20):
        at_s = 30_000.0 * turn
        history.lend("a", at_s)
        history.withdraw("a", at_s + 5000.0, 600.0)
        history.withdraw("a", at_s + 5600.0, 0.0)  # its notice is over
    assert history.campus(6e5) == Experience(20.0, 20 * 5000.0)
    assert history.notices.seen(6e5) == 20


def test_a_host_that_stays_after_all_departs_again() -> None:
    history = OwnerHistory(1e6)
    history.lend("a", 0.0)
    history.withdraw("a", 100.0, 600.0)
    history.lend("a", 200.0)
    history.emergency("a", 300.0)
    assert history.campus(400.0) == Experience(2.0, 200.0)


# ---------------------------------------------------------------- both, with the hazard


def test_departures_of_any_kind_are_a_hazard_window_whose_events_are_all_of_them() -> None:
    history, emergencies = (
        OwnerHistory(1e6, Experience(1.0, DAY_S), short_notices=each) for each in (True, False)
    )
    expected, plain = (HazardWindow(1e6, Experience(1.0, DAY_S)) for _ in range(2))
    for turn in range(12):
        at_s, host = 5000.0 * turn, f"h{turn % 3}"
        for window in (history, emergencies, expected, plain):
            window.lend(host, at_s)
        at_s += 1000.0
        if turn % 2:
            for window in (history, emergencies):
                window.withdraw(host, at_s, 60.0)
                window.withdraw(host, at_s + 60.0)  # the notice is over
            plain.withdraw(host, at_s)
        else:
            for window in (history, emergencies, plain):
                window.emergency(host, at_s)
        expected.emergency(host, at_s)
    hosts, now_s = ("h0", "h1", "h2", "h3"), 70_000.0
    found, wanted = history.upper_by_hour(hosts, now_s), expected.upper_by_hour(hosts, now_s)
    np.testing.assert_array_equal(found[0], wanted[0])
    assert found[1] == wanted[1]
    np.testing.assert_array_equal(
        emergencies.upper_by_hour(hosts, now_s)[0], plain.upper_by_hour(hosts, now_s)[0]
    )


def test_the_share_of_too_short_notices_is_that_of_departures_with_one() -> None:
    history = OwnerHistory(1e6, Experience(1.0, DAY_S))
    for turn in range(20):
        history.lend("a", 1000.0 * turn)
        history.withdraw("a", 1000.0 * turn + 500.0, 30.0 if turn % 4 == 0 else 120.0)
    short = history.notices.too_short_column(np.array([60.0, 10.0]), 2e4)
    np.testing.assert_allclose(short, np.array([5.5 / 21.0, 0.5 / 21.0]))


def test_agents_that_are_lost_together_are_no_owners_who_leave_together() -> None:
    history = OwnerHistory(1e6, Experience(1.0, DAY_S))
    for host in "abcdef":
        history.lend(host, 0.0)
    for host in "abcdef":
        history.withdraw(host, 100.0)
    assert history.campus(200.0) == Experience(1.0, DAY_S + 600.0)
    assert history.notices.seen(200.0) == 0
