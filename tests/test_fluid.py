"""Whom P3 refuses where rates may vary: brute force on one link, a mixed-integer program on a network, promises over time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.admission.admission import Admit, Reason, Refusal, admit_all, edf_stop, fluid_edf
from controller.core.admission.moore_hodgson import choose
from controller.core.admission.schedule import MigrationRequest, Timetable
from controller.core.network.sharing import Demand
from tests.reclaim_waves import (
    LINK as WAVE_LINK,
)
from tests.reclaim_waves import (
    OnlineLink,
    Share,
    across_a_campus,
    arrivals,
    most_deliverable,
    on_one_link,
)
from topologies.spec import DirectedLink

RULES: dict[str, Admit] = {
    "EDF, stops": edf_stop,
    "fluid EDF": fluid_edf,
}

LINK, SIDE, FAR = DirectedLink("a", "b"), DirectedLink("c", "b"), DirectedLink("x", "y")


def flow(
    key: str, payload: float, due_s: float, links: tuple[DirectedLink, ...] = (LINK,)
) -> MigrationRequest:
    return MigrationRequest(key, payload, due_s + 5.0, 5.0, links)


def most_on_one_link(parcels: Sequence[MigrationRequest], reserved: set[str], share: float) -> int:
    """The judge: every subset, by the prefix rule."""
    best = 0
    by_due = sorted(parcels, key=lambda p: p.due_s)
    for chosen in range(1 << len(by_due)):
        subset = [p for n, p in enumerate(by_due) if chosen >> n & 1]
        work, fits = 0.0, reserved <= {p.key for p in subset}
        for parcel in subset:
            work += parcel.payload_bytes
            fits = fits and work <= share * parcel.due_s * (1 + 1e-9)
        best = max(best, len(subset) if fits else 0)
    return best


one_link = st.lists(st.tuples(st.integers(1, 200), st.integers(1, 80), st.booleans()), min_size=1, max_size=7)


@given(one_link, st.sampled_from([5.0, 10.0]))
def test_on_one_link_as_many_are_admitted_as_any_subset_has_with_promises_kept(
    shapes: list[tuple[int, int, bool]], share: float
) -> None:
    parcels = [
        MigrationRequest(f"p{n}", size / 3.0, due / 7.0, 0.0, (LINK,))
        for n, (size, due, _) in enumerate(shapes)
    ]
    reserved, work = set[str](), 0.0
    for parcel, (_, _, kept) in sorted(zip(parcels, shapes, strict=True), key=lambda pair: pair[0].due_s):
        if kept and work + parcel.payload_bytes <= share * parcel.due_s:
            reserved.add(parcel.key)
            work += parcel.payload_bytes
    asked = [parcel for parcel in parcels if parcel.key not in reserved]
    promised = [parcel for parcel in parcels if parcel.key in reserved]
    choice = choose(asked, promised, 0.0, {LINK: share})
    assert not choice.schedule.late
    assert reserved.isdisjoint(choice.crowded)
    assert len(parcels) - len(choice.crowded) == most_on_one_link(parcels, reserved, share)


@given(one_link, st.floats(1.0, 3.0))
def test_on_one_link_more_share_never_admits_fewer(shapes: list[tuple[int, int, bool]], more: float) -> None:
    parcels = [MigrationRequest(f"p{n}", c, due, 0.0, (LINK,)) for n, (c, due, _) in enumerate(shapes)]
    assert len(choose(parcels, [], 0.0, {LINK: 3.0 * more}).crowded) <= len(
        choose(parcels, [], 0.0, {LINK: 3.0}).crowded
    )


@given(one_link)
def test_on_one_link_without_a_refused_request_nobody_fares_worse(
    shapes: list[tuple[int, int, bool]],
) -> None:
    parcels = [MigrationRequest(f"p{n}", c, due, 0.0, (LINK,)) for n, (c, due, _) in enumerate(shapes)]
    refused = choose(parcels, [], 0.0, {LINK: 3.0}).crowded
    for key in refused:
        fewer = choose([parcel for parcel in parcels if parcel.key != key], [], 0.0, {LINK: 3.0}).crowded
        assert len(fewer) < len(refused)


def test_across_a_campus_nearly_as_many_are_admitted_as_a_solver_finds() -> None:
    rng, got, best = random.Random(2), 0, 0
    for _ in range(40):
        requests, share = across_a_campus(rng.choice([4, 7, 10]), rng)
        answer = fluid_edf(requests, 0.0, share)
        check_sound(requests, answer.admitted, answer.timetable, share)
        most = most_deliverable(requests, share)
        assert len(answer.admitted) <= most
        got, best = got + len(answer.admitted), best + most
    assert got >= 0.98 * best


def check_sound(
    requests: Sequence[MigrationRequest], admitted: dict[str, float], table: Timetable, share: Share
) -> None:
    """Whoever is admitted is in time if the timetable is followed, and no link carries more than its share."""
    assert not table.late
    of = {r.key: r for r in requests if r.key in admitted}
    for key, request in of.items():
        sent = sum(s.rate_bytes_per_s * (s.until_s - s.from_s) for s in table.spans[key])
        assert sent == pytest.approx(request.payload_bytes, rel=1e-6)
        assert table.begins_s(key) >= request.start_s
        assert table.ends_s(key) <= request.due_s * (1 + 1e-9)
    for at_s in {s.from_s for spans in table.spans.values() for s in spans}:
        for link, most in share.items():
            assert sum(table.rate_at(k, at_s) for k, r in of.items() if link in r.links) <= most * (1 + 1e-9)


@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_the_order_of_requests_does_not_matter(seed: int, shuffler: random.Random) -> None:
    requests, share = across_a_campus(8, random.Random(seed))
    first, again = (
        fluid_edf(requests, 0.0, share),
        fluid_edf(shuffler.sample(requests, len(requests)), 0.0, share),
    )
    assert (first.admitted, first.refused, first.timetable) == (
        again.admitted,
        again.refused,
        again.timetable,
    )


# ---------------------------------------------------------------- over time


@pytest.mark.parametrize("seed", range(12))
def test_whoever_was_admitted_is_in_time_whatever_is_admitted_later(seed: int) -> None:
    rng = random.Random(seed)
    requests, share = across_a_campus(16, rng)
    begun: dict[str, MigrationRequest] = {}  # with what is left
    table, now_s = Timetable(), 0.0
    for request in requests:
        later_s = now_s + rng.uniform(0.0, 30.0)
        begun = follow(begun, table, now_s, later_s)
        now_s = later_s
        asked = replace(
            request,
            start_s=now_s,
            deadline_s=now_s + request.due_s - request.start_s,
            rather_start_s=now_s + 20.0,
        )
        answer = fluid_edf([asked], now_s, share, list(begun.values()))
        assert not answer.timetable.late
        assert set(answer.timetable.spans) == {*begun, *answer.admitted}
        if asked.key in answer.admitted:
            begun[asked.key] = asked
        table = answer.timetable
    assert follow(begun, table, now_s, now_s + 1e5) == {}


def follow(
    begun: dict[str, MigrationRequest], table: Timetable, from_s: float, until_s: float
) -> dict[str, MigrationRequest]:
    """What is left later, if rates are those of the timetable; fails on a missed due time."""
    left = {}
    for key, request in begun.items():
        spans = table.spans[key]
        sent = sum(
            s.rate_bytes_per_s * max(0.0, min(until_s, s.until_s) - max(from_s, s.from_s)) for s in spans
        )
        assert table.ends_s(key) <= request.due_s + 1e-6
        if (rest := request.payload_bytes - sent) > 1.0:
            left[key] = replace(request, payload_bytes=rest)
    return left


@pytest.mark.parametrize("name", ["EDF, stops", "fluid EDF"])
def test_over_time_on_one_link_no_admitted_deadline_is_missed(name: str) -> None:
    link = OnlineLink(RULES[name], varies=name == "fluid EDF")
    for request in arrivals(150, random.Random(4)):
        link.arrive(request)
    link.finish()
    assert link.missed == 0
    assert link.admitted > 50


def test_rates_that_vary_admit_more_than_any_constant_ones() -> None:
    rng = random.Random(9)
    sums = dict.fromkeys(RULES, 0)
    for _ in range(150):
        wave = on_one_link(7, rng)
        for name, admit in RULES.items():
            sums[name] += len(admit(wave, 0.0, {WAVE_LINK: 87.5e6}, ()).admitted)
    assert sums["EDF, stops"] < 0.5 * sums["fluid EDF"]


# ---------------------------------------------------------------- cases


def test_two_flows_that_constant_rates_cannot_carry_take_turns() -> None:
    requests = [flow("short", 10.0, 1.0), flow("long", 90.0, 10.0)]
    assert len(edf_stop(requests, 0.0, {LINK: 10.0}).admitted) == 1
    answer = fluid_edf(requests, 0.0, {LINK: 10.0})
    assert answer.admitted == {"short": 10.0, "long": 0.0}
    assert answer.timetable.ends_s("long") == pytest.approx(10.0)


def test_a_notice_that_the_restart_uses_up_frees_nothing_for_others() -> None:
    requests = [MigrationRequest("over", 10.0, 5.0, 5.0, (LINK,)), flow("a", 50.0, 5.0), flow("b", 60.0, 5.0)]
    answer = fluid_edf(requests, 0.0, {LINK: 10.0})
    assert answer.refused["over"] == Refusal(Reason.NO_TIME)
    assert set(answer.admitted) == {"a"}


def test_no_newcomer_evicts_a_promise_and_a_held_floor_takes_its_rate_for_ever() -> None:
    promise = flow("old", 80.0, 10.0)
    assert fluid_edf([flow("new", 30.0, 5.0)], 0.0, {LINK: 10.0}, [promise]).admitted == {}
    urgent = fluid_edf([flow("new", 20.0, 3.0)], 0.0, {LINK: 10.0}, [promise])
    assert urgent.timetable.begins_s("new") == 0.0  # the promise waits, and is in time all the same
    assert urgent.timetable.ends_s("old") == pytest.approx(10.0)
    floor = Demand("held", (LINK,), floor_bytes_per_s=4.0)
    assert fluid_edf([flow("new", 61.0, 10.0)], 0.0, {LINK: 10.0}, [floor]).admitted == {}
    assert fluid_edf([flow("new", 60.0, 10.0)], 0.0, {LINK: 10.0}, [floor]).admitted == {"new": 6.0}


def test_a_promise_that_is_late_closes_its_links_and_no_others() -> None:
    late = flow("late", 100.0, 5.0, (LINK, FAR))
    requests = [flow("on-link", 1.0, 9.0), flow("beside", 1.0, 9.0, (SIDE,))]
    answer = fluid_edf(requests, 0.0, {LINK: 10.0, SIDE: 10.0, FAR: 10.0}, [late])
    assert set(answer.admitted) == {"beside"}
    assert answer.timetable.late == {"late"}
    assert answer.timetable.spans["late"]  # it is sent all the same


def test_a_start_that_would_be_welcome_is_granted_only_when_nobody_is_refused_for_it() -> None:
    patient = replace(flow("patient", 50.0, 10.0), rather_start_s=5.0)
    assert fluid_edf([patient], 0.0, {LINK: 10.0}).timetable.begins_s("patient") == 5.0
    crowd = [patient, flow("a", 40.0, 9.0)]
    table = fluid_edf(crowd, 0.0, {LINK: 10.0}).timetable
    assert not table.late
    assert table.begins_s("patient") == 5.0  # "a" is sent meanwhile
    full = [patient, replace(flow("b", 45.0, 9.5), start_s=5.0)]
    table = fluid_edf(full, 0.0, {LINK: 10.0}).timetable
    assert not table.late
    assert table.begins_s("patient") < 5.0


def test_constant_rates_too_start_late_where_that_fits_and_early_where_not() -> None:
    admit = edf_stop
    patient = replace(flow("patient", 50.0, 10.0), rather_start_s=5.0)
    assert admit([patient], 0.0, {LINK: 10.0}, []).admitted == {"patient": 10.0}
    assert admit([patient], 0.0, {LINK: 9.0}, []).admitted == {"patient": 5.0}
    assert admit_all([patient], 0.0, {LINK: 9.0}, []).admitted == {"patient": 0.0}
    both = [patient, replace(patient, key="other")]
    assert admit(both, 0.0, {LINK: 10.0}, []).admitted == {
        "patient": 5.0,
        "other": 5.0,
    }  # none is refused for it
    assert admit(both, 0.0, {LINK: 15.0}, []).admitted == {"other": 10.0, "patient": 5.0}
