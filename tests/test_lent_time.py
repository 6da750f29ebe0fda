"""Lent time in a sliding window, against adding up every spell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.placement.hazard import ALL, FIRST_HOST, FIRST_HOUR, HOURS
from tests.hazard_of_one import NOTHING, History

DAY_S, START_S = 240.0, 35.0  # hours of 10 s
Event = tuple[float, str, int]
HOSTS = ("a", "b", "c")
LEND, LOSE, DEPART = range(3)

events = st.lists(
    st.tuples(st.integers(0, 900).map(float), st.sampled_from(HOSTS), st.sampled_from([LEND, LOSE, DEPART])),
    max_size=25,
).map(lambda some: sorted(some, key=lambda event: event[0]))


def play(log: Sequence[Event], history: History) -> History:
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


def expected(log: Sequence[Event], hosts: Sequence[str], from_s: float, now_s: float) -> tuple[float, float]:
    lent, events = set[str](), 0
    for at_s, who, what in log:
        events += what == DEPART and who in lent and who in hosts and at_s >= from_s
        (lent.add if what == LEND else lent.discard)(who)
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
    history = play(log, History(HOSTS, window_s, day_s=DAY_S, day_start_s=START_S))
    now_s = (log[-1][0] if log else 0.0) + later_s
    from_s = now_s - window_s
    counts, times_s = history.seen(now_s)
    assert (counts[ALL], times_s[ALL]) == pytest.approx(expected(log, HOSTS, from_s, now_s))
    for column, host in enumerate(HOSTS, FIRST_HOST):
        assert (counts[column], times_s[column]) == pytest.approx(expected(log, [host], from_s, now_s))
    hours = [hour_lent_s(log, hour, from_s, now_s) for hour in range(HOURS)]
    assert times_s[FIRST_HOUR:FIRST_HOST].tolist() == pytest.approx(hours)
    assert sum(counts[FIRST_HOUR:FIRST_HOST]) == counts[ALL]


@given(events, st.booleans())
def test_upper_bounds_in_a_column_are_those_of_each_host(log: list[Event], believes: bool) -> None:
    hosts = [*HOSTS, "unheard"]
    history = play(log, History(hosts, 400.0, (1.0, 100.0) if believes else NOTHING))
    single = [history.estimate(host, 1000.0).upper for host in hosts]
    np.testing.assert_allclose(history.levels(1000.0)[0], single, rtol=1e-9)


def test_an_emergency_is_counted_in_the_hour_in_which_it_happened() -> None:
    # 45 s after midnight: the fifth hour of 10 s
    history = play(
        [(0.0, "a", LEND), (10.0, "a", DEPART)], History("a", 1e6, day_s=DAY_S, day_start_s=START_S)
    )
    assert history.seen(20.0)[0][FIRST_HOUR:FIRST_HOST].tolist() == [
        float(hour == 4) for hour in range(HOURS)
    ]


def test_hosts_of_other_names_are_ignored() -> None:
    log = [(0.0, "a", LEND), (5.0, "head", LEND), (10.0, "head", DEPART)]
    counts, times_s = play(log, History("a", 1e6)).seen(20.0)
    assert (counts[ALL], times_s[ALL]) == (0.0, 20.0)
