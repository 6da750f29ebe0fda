"""What the past says of owners: notices that are too short, hosts that leave together, and both with the hazard."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.placement.hazard import Experience, HazardWindow
from controller.core.placement.joint_departures import (
    CLASSES,
    OTHER,
    SAME_BUILDING,
    SAME_SWITCH,
    JointWindow,
    Neighbourhood,
    neighbourhoods,
)
from controller.core.placement.notices import NoticeWindow
from controller.core.placement.owner_history import OwnerHistory
from topologies.presets import campus54

DAY_S = 86_400.0
LEND, WITHDRAW, DEPART = "lend", "withdraw", "depart"
Event = tuple[float, str, str, float]  # when, host, what, and of a departure its notice

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


# ---------------------------------------------------------------- joint departures

PLACES = {
    name: Neighbourhood(switch, building)
    for name, switch, building in (
        ("a", "s1", "b1"),
        ("b", "s1", "b1"),
        ("c", "s2", "b1"),
        ("d", "s2", "b1"),
        ("e", "s3", "b2"),
        ("f", "s3", "b3"),  # one switch, two buildings
    )
}
HOSTS = (*PLACES, "stranger")


def kind(h: str, s: str) -> int:
    one, other = PLACES.get(h), PLACES.get(s)
    if one is None or other is None:
        return OTHER
    if one.switch == other.switch:
        return SAME_SWITCH
    return SAME_BUILDING if one.building == other.building else OTHER


def replayed(log: Sequence[Event], window_s: float, together_s: float, now_s: float) -> list[float]:
    """`together` by class, by going through the whole log at each departure, which is when a notice ends."""
    departures, trials, joint = ([0] * CLASSES for _ in range(3))
    lent: set[str] = set()
    left: dict[str, float] = {}
    closes: dict[str, float] = {}

    def close(host: str, at_s: float) -> None:
        lent.remove(host)
        beside = {name for name, when in left.items() if when >= at_s - together_s}
        if at_s >= now_s - window_s:
            for c in range(CLASSES):
                there = {name for name in lent | beside if kind(host, name) == c}
                departures[c] += bool(there)
                trials[c] += len(there)
                joint[c] += 2 * sum(kind(host, name) == c for name in beside)
        left[host] = at_s

    for at_s, host, what, notice_s in (*log, (now_s, "", "", 0.0)):
        for name, when in sorted(closes.items(), key=lambda item: item[1]):
            if when <= at_s:
                close(name, closes.pop(name))
        if what == LEND:
            lent.add(host)
            left.pop(host, None)
            closes.pop(host, None)
        elif what == WITHDRAW and host not in closes:
            lent.discard(host)
        elif what == DEPART and host in lent:
            if notice_s > 0.0:
                closes[host] = at_s + notice_s
            else:
                closes.pop(host, None)
                close(host, at_s)
    shares = [min(1.0, j / t) if t else 0.0 for j, t in zip(joint, trials, strict=True)]
    return [(d * s + 0.5) / (d + 1.0) for d, s in zip(departures, shares, strict=True)]


events = st.lists(
    st.tuples(
        st.integers(0, 300).map(float),
        st.sampled_from(HOSTS),
        st.sampled_from([LEND, LEND, DEPART, DEPART, WITHDRAW]),
        st.sampled_from([0.0, 0.0, 4.0, 90.0]),
    ),
    max_size=60,
).map(lambda some: sorted(some, key=lambda event: event[0]))


@given(events, st.sampled_from([60.0, 150.0, 1e4]), st.sampled_from([5.0, 30.0]), st.integers(0, 100))
def test_joint_departures_are_those_of_the_whole_log(
    log: list[Event], window_s: float, together_s: float, later_s: int
) -> None:
    window = JointWindow(window_s, together_s, PLACES)
    for at_s, host, what, notice_s in log:
        getattr(window, what)(host, at_s, *([notice_s] if what == DEPART else []))
        window.together(at_s)  # a question changes nothing
        window.q_column(host, HOSTS, at_s)
    now_s = (log[-1][0] if log else 0.0) + later_s
    expected = replayed(log, window_s, together_s, now_s)
    assert list(window.together(now_s)) == expected
    for host in HOSTS:
        column = window.q_column(host, HOSTS, now_s).tolist()
        assert column == [1.0 if s == host else expected[kind(host, s)] for s in HOSTS]


def test_a_lab_that_leaves_together_is_told_from_a_building_that_does_not() -> None:
    window = JointWindow(1e9, 300.0, PLACES)
    for day in range(20):
        for host in PLACES:
            window.lend(host, day * DAY_S)
        for delay_s, host in enumerate(("a", "b")):  # one lab, within seconds
            window.depart(host, day * DAY_S + 5e4 + delay_s)
        window.depart("e", day * DAY_S + 7e4)
    lab, house, others = window.together(20 * DAY_S)
    assert lab > 0.6  # e's departures, which its neighbour f never joins, count as well
    assert house < 0.05
    assert others < 0.05
    assert window.q_column("a", ("b", "c", "e"), 20 * DAY_S).tolist() == [lab, house, others]


def test_a_host_that_comes_back_at_once_has_not_left_with_the_next() -> None:
    window = JointWindow(1e9, 300.0, PLACES)
    for host in ("a", "b"):
        window.lend(host, 0.0)
    window.depart("a", 10.0)
    window.lend("a", 20.0)
    window.depart("b", 30.0)
    assert window.together(40.0)[SAME_SWITCH] == pytest.approx(0.5 / 3.0)  # two departures, no pair


def test_hosts_leave_together_that_close_together_whenever_their_owners_said_so() -> None:
    told, untold, withdrawn = (OwnerHistory(1e6, places=PLACES) for _ in range(3))
    for turn in range(20):
        at_s = 30_000.0 * turn
        for history in (told, untold, withdrawn):
            for host in "ab":
                history.lend(host, at_s)
        told.emergency("a", at_s + 5000.0)
        told.withdraw("b", at_s + 5100.0, 3600.0)  # can be read for an hour
        untold.withdraw("a", at_s + 5000.0, 600.0)
        untold.emergency("b", at_s + 5590.0)  # gone when a closes
        untold.withdraw("a", at_s + 5600.0, 0.0)  # its notice is over, which changes nothing
        withdrawn.withdraw("a", at_s + 5000.0, 600.0)
        withdrawn.lend("a", at_s + 5500.0)  # stays after all
        withdrawn.emergency("b", at_s + 5590.0)
    now_s = 6e5
    assert told.joint.q("a", "b", now_s) < 0.05
    assert untold.joint.q("a", "b", now_s) > 0.9
    assert withdrawn.joint.q("a", "b", now_s) < 0.05
    # the rate of departures counts each once, from when it was said
    assert told.departures.campus(now_s) == Experience(40.0, 20 * (5000.0 + 5100.0))
    assert untold.departures.campus(now_s) == Experience(40.0, 20 * (5000.0 + 5590.0))


def test_a_host_that_closes_before_its_notice_ends_departs_then() -> None:
    history = OwnerHistory(1e6, places=PLACES)
    for turn in range(20):
        at_s = 30_000.0 * turn
        for host in "ab":
            history.lend(host, at_s)
        history.withdraw("a", at_s + 5000.0, 3600.0)
        history.withdraw("a", at_s + 5100.0, 0.0)
        history.emergency("b", at_s + 5110.0)
    assert history.joint.q("a", "b", 6e5) > 0.9


def test_an_agent_that_is_lost_while_a_notice_runs_does_not_keep_its_owner() -> None:
    history = OwnerHistory(1e6, places=PLACES)
    for turn in range(20):
        at_s = 30_000.0 * turn
        for host in "ab":
            history.lend(host, at_s)
        history.withdraw("a", at_s + 5000.0, 600.0)
        history.withdraw("a", at_s + 5300.0)
        history.emergency("b", at_s + 5590.0)
    assert history.joint.q("a", "b", 6e5) > 0.9


def test_hosts_of_a_campus_stand_on_their_access_switches() -> None:
    campus = campus54()
    places = neighbourhoods(campus)
    assert places.keys() == {host.name for host in campus.hosts}
    for host in campus.hosts:
        assert places[host.name].building == host.building
        assert places[host.name].switch in {switch.name for switch in campus.switches}


# ---------------------------------------------------------------- both, with the hazard


def test_departures_of_any_kind_are_a_hazard_window_whose_events_are_all_of_them() -> None:
    history, expected = OwnerHistory(1e6, Experience(1.0, DAY_S)), HazardWindow(1e6, Experience(1.0, DAY_S))
    plain = HazardWindow(1e6, Experience(1.0, DAY_S))
    for turn in range(12):
        at_s, host = 5000.0 * turn, f"h{turn % 3}"
        for window in (history, expected, plain):
            window.lend(host, at_s)
        at_s += 1000.0
        if turn % 2:
            history.withdraw(host, at_s, 60.0)
            history.withdraw(host, at_s + 60.0)  # the notice is over
            plain.withdraw(host, at_s)
        else:
            history.emergency(host, at_s)
            plain.emergency(host, at_s)
        expected.emergency(host, at_s)
    hosts, now_s = ("h0", "h1", "h2", "h3"), 70_000.0
    found, wanted = history.departures.upper_by_hour(hosts, now_s), expected.upper_by_hour(hosts, now_s)
    np.testing.assert_array_equal(found[0], wanted[0])
    assert found[1] == wanted[1]
    np.testing.assert_array_equal(
        history.upper_by_hour(hosts, now_s)[0], plain.upper_by_hour(hosts, now_s)[0]
    )


def test_the_share_of_too_short_notices_is_that_of_departures_with_one() -> None:
    history = OwnerHistory(1e6, Experience(1.0, DAY_S))
    for turn in range(20):
        history.lend("a", 1000.0 * turn)
        history.withdraw("a", 1000.0 * turn + 500.0, 30.0 if turn % 4 == 0 else 120.0)
    short = history.notices.too_short_column(np.array([60.0, 10.0]), 2e4)
    np.testing.assert_allclose(short, np.array([5.5 / 21.0, 0.5 / 21.0]))


def test_agents_that_are_lost_together_are_no_owners_who_leave_together() -> None:
    history = OwnerHistory(1e6, Experience(1.0, DAY_S), places=PLACES)
    for host in PLACES:
        history.lend(host, 0.0)
    for host in PLACES:
        history.withdraw(host, 100.0)
    assert history.departures.campus(200.0) == Experience(1.0, DAY_S + 600.0)
    assert history.notices.seen(200.0) == 0
    assert history.joint.together(200.0) == (0.5, 0.5, 0.5)
