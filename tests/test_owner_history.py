"""What the past says of owners: notices that are too short, and the rate of departures of any kind."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hazard_of_one import DAY_S, Experience, History

BELIEF = (1.0, DAY_S)

# ---------------------------------------------------------------- notices


def departed(*departures: tuple[float, float], window_s: float = 1e6) -> History:
    """A host that its owner takes back at these times, after these notices."""
    history = History("a", window_s)
    for at_s, notice_s in departures:
        history.lend("a", at_s)
        history.depart("a", at_s, notice_s)
    return history


def too_short(history: History, needed_s: float, now_s: float) -> float:
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


def test_a_departure_without_notice_is_too_short_for_anything() -> None:
    history = departed(*((float(at_s), 0.0) for at_s in range(9)))
    assert too_short(history, 0.01, 9.0) == pytest.approx(0.95)


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


def test_the_share_of_too_short_notices_is_that_of_departures_with_one() -> None:
    history = departed(*((1000.0 * turn, 30.0 if turn % 4 == 0 else 120.0) for turn in range(20)))
    short = history.too_short(np.array([60.0, 10.0]), 2e4)
    np.testing.assert_allclose(short, np.array([5.5 / 21.0, 0.5 / 21.0]))


def test_agents_that_are_lost_together_are_no_owners_who_leave_together() -> None:
    history = History("abcdef", 1e6, BELIEF)
    for host in "abcdef":
        history.lend(host, 0.0)
    for host in "abcdef":
        history.lose(host, 100.0)
    assert history.of(None, 200.0) == Experience(1.0, DAY_S + 600.0)
    assert too_short(history, 60.0, 200.0) == 0.5
