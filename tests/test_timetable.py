"""Timetables: held to a linear program, to the demand criterion on one link, and followed to the last byte."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from controller.core.admission.admission import minimum_rate
from controller.core.admission.schedule import MigrationRequest, RateSpan, Timetable, all_in_time, timetable
from topologies.spec import DirectedLink

Share = dict[DirectedLink, float]
LINK = DirectedLink("a", "b")
UPS = [DirectedLink(f"h{i}", f"s{i % 2}") for i in range(4)]
DOWNS = [DirectedLink(f"s{i % 2}", f"h{i}") for i in range(4)]
TRUNKS = [DirectedLink("s0", "s1"), DirectedLink("s1", "s0")]


def parcel_of(
    key: str,
    payload_bytes: float,
    start_s: float,
    due_s: float,
    links: tuple[DirectedLink, ...],
    cap_bytes_per_s: float = math.inf,
) -> MigrationRequest:
    return MigrationRequest(key, payload_bytes, due_s, 0.0, links, start_s, cap_bytes_per_s=cap_bytes_per_s)


def route(a: int, b: int) -> tuple[DirectedLink, ...]:
    return (UPS[a], DOWNS[b]) if a % 2 == b % 2 else (UPS[a], TRUNKS[a % 2], DOWNS[b])


@st.composite
def networks(draw: st.DrawFn, most: int = 6) -> tuple[list[MigrationRequest], Share]:
    """Parcels between four hosts of two buildings, some capped, some that may only start later."""
    share = {link: draw(st.sampled_from([5.0, 10.0, 20.0])) for link in (*UPS, *DOWNS, *TRUNKS)}
    parcels = []
    for number in range(draw(st.integers(0, most))):
        a, b = draw(st.permutations(range(4)))[:2]
        start_s, window_s = draw(st.sampled_from([0.0, 0.0, 3.0])), draw(st.floats(1.0, 20.0))
        peak = min(share[link] for link in route(a, b))
        cap = draw(st.sampled_from([math.inf, math.inf, peak / 2]))
        size = min(peak, cap) * window_s * draw(st.floats(0.05, 1.1))
        parcels.append(parcel_of(f"p{number}", size, start_s, start_s + window_s, route(a, b), cap))
    return parcels, share


def deliverable(parcels: Sequence[MigrationRequest], share: Share) -> bool:
    """The judge: HiGHS finds bytes of each parcel for each span between two first or due times, or proves that there are none."""
    if not parcels:
        return True
    spans = list(pairwise(sorted({0.0, *(p.start_s for p in parcels), *(p.due_s for p in parcels)})))
    columns = [
        (k, i)
        for k, p in enumerate(parcels)
        for i, s in enumerate(spans)
        if p.start_s <= s[0] and s[1] <= p.due_s
    ]
    length = [spans[i][1] - spans[i][0] for _, i in columns]
    total = np.array([[float(k == of) for k, _ in columns] for of in range(len(parcels))])
    rows, limits = [], []
    for link in share:
        for i, (from_s, until_s) in enumerate(spans):
            rows.append([float(j == i and link in parcels[k].links) for k, j in columns])
            limits.append(share[link] * (until_s - from_s) * (1.0 + 1e-9))
    bounds = [(0.0, parcels[k].cap_bytes_per_s * s) for (k, _), s in zip(columns, length, strict=True)]
    sizes = [p.payload_bytes for p in parcels]
    solved = linprog(np.zeros(len(columns)), np.array(rows), limits, total, sizes, bounds)
    return bool(solved.success)


def check_followed(parcels: Sequence[MigrationRequest], share: Share, table: Timetable) -> None:
    """Never more than a share or a cap, nothing before its start, everything by its due time."""
    for parcel in parcels:
        spans = table.spans[parcel.key]
        sent = math.fsum(s.rate_bytes_per_s * (s.until_s - s.from_s) for s in spans)
        assert sent == pytest.approx(parcel.payload_bytes, rel=1e-6)
        assert all(s.rate_bytes_per_s <= parcel.cap_bytes_per_s * (1 + 1e-9) for s in spans)
        assert table.begins_s(parcel.key) >= parcel.start_s
        assert table.ends_s(parcel.key) <= parcel.due_s * (1 + 1e-9)
        assert all(a.until_s <= b.from_s for a, b in pairwise(spans))
    check_shares(parcels, share, table)


def check_shares(parcels: Sequence[MigrationRequest], share: Share, table: Timetable) -> None:
    edges = sorted({edge for spans in table.spans.values() for s in spans for edge in (s.from_s, s.until_s)})
    for a_s, b_s in pairwise(edges):
        for link in share:
            carried = sum(table.rate_at(p.key, (a_s + b_s) / 2) for p in parcels if link in p.links)
            assert carried <= share[link] * (1 + 1e-9)


@given(networks())
def test_a_timetable_without_late_parcels_delivers_all_and_a_solver_agrees_that_it_can_be(
    case: tuple[list[MigrationRequest], Share],
) -> None:
    parcels, share = case
    table = timetable(parcels, 0.0, share)
    check_shares(parcels, share, table)
    if not table.late:
        check_followed(parcels, share, table)
        assert deliverable(parcels, share)


def test_of_random_sets_that_a_solver_can_deliver_almost_none_is_missed() -> None:
    rng, missed, can = random.Random(11), 0, 0
    share: Share = {link: rng.choice([5.0, 10.0, 20.0]) for link in (*UPS, *DOWNS, *TRUNKS)}
    for _ in range(250):
        parcels = []
        for number in range(rng.choice([2, 3, 4, 6])):
            a, b = rng.sample(range(4), 2)
            peak = min(share[link] for link in route(a, b)) * rng.choice([1.0, rng.uniform(0.3, 1.0)])
            start_s, window_s = rng.choice([0.0, rng.uniform(0.0, 8.0)]), rng.uniform(1.0, 20.0)
            size = peak * window_s * rng.uniform(0.1, 1.0)
            parcels.append(parcel_of(f"p{number}", size, start_s, start_s + window_s, route(a, b), peak))
        if deliverable(parcels, share):
            can += 1
            missed += bool(timetable(parcels, 0.0, share).late)
    assert can > 100
    assert missed / can < 0.03


@given(
    st.lists(st.tuples(st.floats(0.1, 50.0), st.floats(0.0, 10.0), st.floats(0.1, 10.0)), max_size=7),
    st.floats(1.0, 20.0),
)
def test_on_one_link_it_is_exactly_the_demand_criterion(
    shapes: list[tuple[float, float, float]], share: float
) -> None:
    parcels = [parcel_of(f"p{i}", c, s, s + w, (LINK,)) for i, (c, s, w) in enumerate(shapes)]
    worst = max(
        (
            math.fsum(p.payload_bytes for p in parcels if p.start_s >= a.start_s and p.due_s <= b.due_s)
            / (share * (b.due_s - a.start_s))
            for a in parcels
            for b in parcels
            if b.due_s > a.start_s
        ),
        default=0.0,
    )
    if abs(worst - 1.0) > 1e-6:
        assert bool(timetable(parcels, 0.0, {LINK: share}).late) == (worst > 1.0)


@given(networks(), st.floats(0.05, 0.95))
def test_what_is_left_after_a_while_can_still_be_delivered(
    case: tuple[list[MigrationRequest], Share], part: float
) -> None:
    parcels, share = case
    table = timetable(parcels, 0.0, share)
    if table.late or not parcels:
        return
    now_s = part * max(table.ends_s(p.key) for p in parcels)
    left = []
    for parcel in parcels:
        spans = table.spans[parcel.key]
        sent = sum(s.rate_bytes_per_s * max(0.0, min(now_s, s.until_s) - s.from_s) for s in spans)
        if parcel.payload_bytes - sent > 1e-6 * parcel.payload_bytes:
            left.append(replace(parcel, payload_bytes=parcel.payload_bytes - sent))
    assert not timetable(left, now_s, share).late


def test_the_earliest_due_time_has_the_link_and_equal_ones_go_by_key() -> None:
    parcels = [
        parcel_of("b", 20.0, 0.0, 9.0, (LINK,)),
        parcel_of("a", 20.0, 0.0, 9.0, (LINK,)),
        parcel_of("c", 10.0, 0.0, 2.0, (LINK,)),
    ]
    assert timetable(parcels, 0.0, {LINK: 10.0}).spans == {
        "c": (RateSpan(0.0, 1.0, 10.0),),
        "a": (RateSpan(1.0, 3.0, 10.0),),
        "b": (RateSpan(3.0, 5.0, 10.0),),
    }


def test_a_parcel_on_a_slow_link_goes_first_when_it_can_wait_no_longer() -> None:
    slow = parcel_of("slow", 50.0, 0.0, 10.0, (LINK,), cap_bytes_per_s=5.0)
    urgent = parcel_of("urgent", 30.0, 0.0, 6.0, (LINK,))
    table = timetable([slow, urgent], 0.0, {LINK: 10.0})
    assert not table.late
    assert table.spans["slow"] == (RateSpan(0.0, 10.0, 5.0),)


def test_a_hopeless_parcel_takes_nothing_from_those_who_can_be_in_time() -> None:
    parcels = [parcel_of("hopeless", 100.0, 0.0, 1.0, (LINK,)), parcel_of("fine", 90.0, 0.0, 10.0, (LINK,))]
    table = timetable(parcels, 0.0, {LINK: 10.0})
    assert table.late == {"hopeless"}
    assert table.ends_s("fine") <= 10.0


@pytest.mark.parametrize("seed", range(20))
def test_the_last_bytes_of_a_payload_travel_however_late_on_the_clock_it_is(seed: int) -> None:
    """Once without end: a byte takes less time than two moments of the 61st day can be apart."""
    rng = random.Random(seed)
    for _ in range(50):
        now_s = rng.uniform(1e6, 1e8)
        parcels = [
            parcel_of(
                f"p{n}",
                10.0 ** rng.uniform(-8, 4),
                now_s,
                now_s + 10.0 ** rng.uniform(-2, 3),
                route(0, 2),
                cap,
            )
            for n, cap in enumerate(rng.choices([math.inf, 4e7, 8e7], k=rng.randint(1, 4)))
        ]
        found = timetable(parcels, now_s, dict.fromkeys((*UPS, *DOWNS, *TRUNKS), 8.75e7))
        assert not found.late
        assert set(found.spans) == {parcel.key for parcel in parcels}


@given(networks())
def test_it_can_be_asked_whether_a_timetable_has_nobody_late_without_making_it(
    case: tuple[list[MigrationRequest], Share],
) -> None:
    parcels, share = case
    if all_in_time(parcels, 0.0, share):
        assert not timetable(parcels, 0.0, share).late
    elif parcels:
        more = [replace(p, payload_bytes=p.payload_bytes * (1.0 + 1e-6)) for p in parcels]
        assert timetable(more, 0.0, share).late


def test_an_overrun_is_seen_at_the_due_time_where_it_happens() -> None:
    parcels = [parcel_of("a", 40.0, 0.0, 5.0, (LINK,)), parcel_of("b", 20.0, 2.0, 5.5, (LINK,))]
    assert not all_in_time(parcels, 0.0, {LINK: 10.0})
    assert not all_in_time(parcels[1:], 4.0, {LINK: 10.0})  # it is later than its start
    assert all_in_time(parcels, 0.0, {LINK: 11.0})
    with pytest.raises(ValueError, match="no migration share"):
        all_in_time(parcels, 0.0, {})


# ---------------------------------------------------------------- staggering, which is left out


@pytest.mark.parametrize("index", range(4))
def test_a_flow_staggered_at_its_old_rate_is_late_and_at_the_rate_from_its_start_is_not(index: int) -> None:
    notice_s, flows, size = 60.0, 4, 1200.0
    offset_s = index * notice_s / flows  # paper A, section VII-B: "offsets the start by tau / K' each"
    printed, shifted = minimum_rate(size, notice_s, 0.0), minimum_rate(size, notice_s - offset_s, 0.0)
    assert offset_s + size / printed == pytest.approx(
        notice_s + offset_s
    )  # Theorem 3 fails for all but the first
    assert offset_s + size / shifted == pytest.approx(notice_s)
    assert shifted == pytest.approx(printed * flows / (flows - index))


def test_rates_from_shifted_starts_need_more_than_the_link_that_all_at_once_just_fit_on() -> None:
    starts_s = [index * 15.0 for index in range(4)]
    rates = [1200.0 / (60.0 - start_s) for start_s in starts_s]
    share = 4 * 1200.0 / 60.0
    assert sum(rates) > 2.0 * share  # constant rates, all held at the end of the window
    parcels = [parcel_of(f"p{i}", 1200.0, s, 60.0, (LINK,)) for i, s in enumerate(starts_s)]
    assert not timetable(parcels, 0.0, {LINK: share}).late  # taking turns they still fit
