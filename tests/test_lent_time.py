"""Lent time in a sliding window, against adding up every spell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.placement.exposure import (
    EMERGENCY,
    HOURS,
    LEND,
    WITHDRAW,
    LentTime,
)
from controller.core.placement.hazard import Experience, HazardWindow
from tests.hazard_of_one import estimate, profile

DAY_S, START_S = 240.0, 35.0  # hours of 10 s
Event = tuple[float, str, int]
HOSTS = ("a", "b", "c")

events = st.lists(
    st.tuples(
        st.integers(0, 900).map(float), st.sampled_from(HOSTS), st.sampled_from([LEND, WITHDRAW, EMERGENCY])
    ),
    max_size=25,
).map(lambda some: sorted(some, key=lambda event: event[0]))


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


def expected(log: Sequence[Event], hosts: Sequence[str], from_s: float, now_s: float) -> tuple[float, float]:
    events = sum(who in hosts and what == EMERGENCY and at_s >= from_s for at_s, who, what in log)
    lent_s = sum(max(0.0, end - max(begin, from_s)) for h in hosts for begin, end in spells(log, h, now_s))
    return float(events), lent_s


def hour_lent_s(log: Sequence[Event], hour: int, from_s: float, now_s: float) -> float:
    """Second by second: all times are whole."""
    seconds = [s for h in HOSTS for begin, end in spells(log, h, now_s) for s in range(int(begin), int(end))]
    return float(sum(s >= from_s and int((s + START_S) % DAY_S // (DAY_S / HOURS)) == hour for s in seconds))


@given(events, st.sampled_from([50.0, 300.0, 1e4]), st.integers(0, 300).map(float))
def test_sums_are_those_of_the_spells_in_the_window(
    log: list[Event], window_s: float, later_s: float
) -> None:
    lent = LentTime(window_s, DAY_S, START_S)
    for at_s, host, what in log:
        lent.happened(host, at_s, what)
        lent.of_all(at_s)  # a question moves the window and changes nothing
    now_s = (log[-1][0] if log else 0.0) + later_s
    from_s = now_s - window_s
    assert lent.of_all(now_s) == pytest.approx(expected(log, HOSTS, from_s, now_s))
    seen, rows = lent.seen(now_s), lent.numbers(HOSTS)
    counts, times_s = seen.events[rows], seen.lent_s[rows]
    assert (seen.all_events, seen.all_lent_s) == lent.of_all(now_s)
    for number, host in enumerate(HOSTS):
        assert (counts[number], times_s[number]) == pytest.approx(expected(log, [host], from_s, now_s))
    hours = [hour_lent_s(log, hour, from_s, now_s) for hour in range(HOURS)]
    assert seen.hour_lent_s.tolist() == pytest.approx(hours)
    assert sum(seen.hour_events) == expected(log, HOSTS, from_s, now_s)[0]


@given(events, st.booleans())
def test_upper_bounds_in_a_column_are_those_of_each_host(log: list[Event], believes: bool) -> None:
    window = HazardWindow(400.0, Experience(1.0, 100.0) if believes else None)
    calls = {LEND: window.lend, WITHDRAW: window.withdraw, EMERGENCY: window.emergency}
    for at_s, host, what in log:
        calls[what](host, at_s)
    hosts = [*HOSTS, "unheard"]
    column = window.upper_by_hour(hosts, 1000.0)[0]
    single = [estimate(window, 1000.0, host).upper for host in hosts]
    np.testing.assert_allclose(column, single, rtol=1e-12)
    assert window.upper_by_hour(hosts, 1000.0)[1] == profile(window, 1000.0)


def test_an_emergency_is_counted_in_the_hour_in_which_it_happened() -> None:
    lent = LentTime(1e6, DAY_S, START_S)
    lent.happened("a", 0.0, LEND)
    lent.happened("a", 10.0, EMERGENCY)  # 45 s after midnight: the fifth hour of 10 s
    assert lent.seen(20.0).hour_events.tolist() == [float(hour == 4) for hour in range(HOURS)]
