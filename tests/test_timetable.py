"""Timetables and whom P3 admits to them: held to a mixed-integer program, to brute force, followed to the last byte."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from controller.core.admission.admission import Held, Reason, Refusal, admit_all, edf_stop, fluid_edf
from controller.core.admission.schedule import MigrationRequest, RateSpan, Timetable, timetable
from controller.core.network.links import migration_share
from topologies.paths import Routes
from topologies.presets import three_tier
from topologies.spec import DirectedLink, ResearchReserve, Role

Share = dict[DirectedLink, float]
LINK, SIDE, FAR = DirectedLink("a", "b"), DirectedLink("c", "b"), DirectedLink("x", "y")
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


def check_followed(parcels: Sequence[MigrationRequest], share: Share, table: Timetable) -> None:
    """Never more than a share or a cap, nothing before its start, everything by its due time."""
    for parcel in parcels:
        spans = table.spans[parcel.key]
        sent = math.fsum(s.rate_bytes_per_s * (s.until_s - s.from_s) for s in spans)
        assert sent == pytest.approx(parcel.payload_bytes, rel=1e-6)
        assert all(s.rate_bytes_per_s <= parcel.cap_bytes_per_s * (1 + 1e-9) for s in spans)
        assert table.spans[parcel.key][0].from_s >= parcel.start_s
        assert table.spans[parcel.key][-1].until_s <= parcel.due_s * (1 + 1e-9)
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
        assert most_deliverable(parcels, share) == len(parcels)


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
        if most_deliverable(parcels, share) == len(parcels):
            can += 1
            missed += bool(timetable(parcels, 0.0, share).late)
    assert can > 100
    assert missed / can < 0.03


@given(
    st.lists(st.tuples(st.floats(0.1, 50.0), st.floats(0.0, 10.0), st.floats(0.1, 10.0)), max_size=7),
    st.floats(1.0, 20.0),
)
def test_on_one_link_it_is_exactly_the_demand_criterion(shapes: list[tuple[float, float, float]], share: float) -> None:
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
    assert table.spans["fine"][-1].until_s <= 10.0


@pytest.mark.parametrize("seed", range(20))
def test_the_last_bytes_of_a_payload_travel_however_late_on_the_clock_it_is(seed: int) -> None:
    """Once without end: a byte takes less time than two moments of the 61st day can be apart."""
    rng = random.Random(seed)
    for _ in range(50):
        now_s = rng.uniform(1e6, 1e8)
        parcels = [
            parcel_of(f"p{n}", 10.0 ** rng.uniform(-8, 4), now_s, now_s + 10.0 ** rng.uniform(-2, 3), route(0, 2), cap)
            for n, cap in enumerate(rng.choices([math.inf, 4e7, 8e7], k=rng.randint(1, 4)))
        ]
        found = timetable(parcels, now_s, dict.fromkeys((*UPS, *DOWNS, *TRUNKS), 8.75e7))
        assert not found.late
        assert set(found.spans) == {parcel.key for parcel in parcels}


# ---------------------------------------------------------------- admission where rates may vary
def across_a_campus(count: int, rng: random.Random) -> tuple[list[MigrationRequest], Share]:
    """Draw notices at time 0 on hosts of two buildings: some may start late, some have slow disks (caps)."""
    campus = three_tier(6, 2, 0, uplink_bytes_per_s=rng.choice([125e6, 250e6]), reserve=ResearchReserve(beta=0.3))
    share, routes = migration_share(campus.capacity_bytes_per_s, campus.research_reserve), Routes(campus)
    hosts = [host.name for host in campus.hosts if host.role is Role.VOLUNTEER]
    requests = []
    for number in range(count):
        source, destination = rng.sample(hosts, 2)
        window_s = max(10.0, rng.expovariate(1.0 / 180.0))
        start_s = rng.choice([0.0, 0.0, rng.uniform(0.0, 60.0)])
        cap = rng.choice([math.inf, math.inf, rng.uniform(20e6, 80e6)])
        links = routes.route(source, destination)
        size = min(max(3.2e9 * math.exp(1.4 * rng.gauss(0.0, 1.0)), 0.12e9), 48e9)  # paper A's law
        due_s = start_s + window_s
        requests.append(MigrationRequest(f"m{number:02}", size, due_s, 0.0, links, start_s, cap_bytes_per_s=cap))
    return requests, share


def most_deliverable(requests: Sequence[MigrationRequest], share: Share, now_s: float = 0.0) -> int:
    """Return how many of them the best schedule delivers in time. RuntimeError if HiGHS does not finish."""
    if not requests:
        return 0
    moments = {now_s, *(max(now_s, r.start_s) for r in requests), *(r.due_s for r in requests)}
    spans = list(pairwise(sorted(at_s for at_s in moments if at_s >= now_s)))
    flows = [
        (k, i)
        for k, r in enumerate(requests)
        for i, s in enumerate(spans)
        if max(now_s, r.start_s) <= s[0] and s[1] <= r.due_s
    ]
    # columns: bytes of each (flow, span), then whether each flow is chosen; bytes in units of the largest payload
    unit = max((r.payload_bytes for r in requests), default=1.0)
    lengths_s = [until_s - from_s for from_s, until_s in spans]
    caps = [requests[k].cap_bytes_per_s * lengths_s[i] / unit for k, i in flows]
    kind = np.repeat([0, 1], [len(flows), len(requests)])
    # rows: a chosen flow is delivered whole; in each span each link carries no more than its share
    links = sorted({link for r in requests for link in r.links}, key=str)
    rows = lil_matrix((len(requests) + len(links) * len(lengths_s), len(flows) + len(requests)))
    limits = [0.0] * len(requests) + [share[link] * length_s / unit for link in links for length_s in lengths_s]
    for k, request in enumerate(requests):
        rows[k, len(flows) + k] = request.payload_bytes / unit
    for column, (k, i) in enumerate(flows):
        rows[k, column] = -1.0
        for link in requests[k].links:
            rows[len(requests) + links.index(link) * len(lengths_s) + i, column] = 1.0
    solved = milp(
        -kind,
        constraints=LinearConstraint(rows.tocsr(), -np.inf, np.array(limits)),
        bounds=Bounds(0.0, np.concatenate([np.array(caps), np.ones(len(requests))])),
        integrality=kind,
    )
    if not solved.success:
        raise RuntimeError(f"HiGHS: {solved.message}")
    return round(float(-solved.fun))


def flow(key: str, payload: float, due_s: float, links: tuple[DirectedLink, ...] = (LINK,)) -> MigrationRequest:
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
        MigrationRequest(f"p{n}", size / 3.0, due / 7.0, 0.0, (LINK,)) for n, (size, due, _) in enumerate(shapes)
    ]
    reserved, work = set[str](), 0.0
    for parcel, (_, _, kept) in sorted(zip(parcels, shapes, strict=True), key=lambda pair: pair[0].due_s):
        if kept and work + parcel.payload_bytes <= share * parcel.due_s:
            reserved.add(parcel.key)
            work += parcel.payload_bytes
    asked = [parcel for parcel in parcels if parcel.key not in reserved]
    promised = [parcel for parcel in parcels if parcel.key in reserved]
    answer = fluid_edf(asked, 0.0, {LINK: share}, promised)
    assert not answer.timetable.late
    assert reserved.isdisjoint(answer.refused)
    assert len(parcels) - len(answer.refused) == most_on_one_link(parcels, reserved, share)


def test_across_a_campus_nearly_as_many_are_admitted_as_a_solver_finds() -> None:
    rng, got, best = random.Random(2), 0, 0
    for _ in range(40):
        requests, share = across_a_campus(rng.choice([4, 7, 10]), rng)
        answer = fluid_edf(requests, 0.0, share)
        assert not answer.timetable.late
        check_followed([r for r in requests if r.key in answer.admitted], share, answer.timetable)
        most = most_deliverable(requests, share)
        assert len(answer.admitted) <= most
        got, best = got + len(answer.admitted), best + most
    assert got >= 0.98 * best


@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_the_order_of_requests_does_not_matter(seed: int, shuffler: random.Random) -> None:
    requests, share = across_a_campus(8, random.Random(seed))
    first, again = (fluid_edf(requests, 0.0, share), fluid_edf(shuffler.sample(requests, len(requests)), 0.0, share))
    assert (first.admitted, first.refused, first.timetable) == (again.admitted, again.refused, again.timetable)


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
            request, start_s=now_s, deadline_s=now_s + request.due_s - request.start_s, rather_start_s=now_s + 20.0
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
        sent = sum(s.rate_bytes_per_s * max(0.0, min(until_s, s.until_s) - max(from_s, s.from_s)) for s in spans)
        assert table.spans[key][-1].until_s <= request.due_s + 1e-6
        if (rest := request.payload_bytes - sent) > 1.0:
            left[key] = replace(request, payload_bytes=rest)
    return left


# ---------------------------------------------------------------- cases
def test_two_flows_that_constant_rates_cannot_carry_take_turns() -> None:
    requests = [flow("short", 10.0, 1.0), flow("long", 90.0, 10.0)]
    assert len(edf_stop(requests, 0.0, {LINK: 10.0}).admitted) == 1
    answer = fluid_edf(requests, 0.0, {LINK: 10.0})
    assert answer.admitted == {"short": 10.0, "long": 0.0}
    assert answer.timetable.spans["long"][-1].until_s == pytest.approx(10.0)


def test_a_notice_that_the_restart_uses_up_frees_nothing_for_others() -> None:
    requests = [MigrationRequest("over", 10.0, 5.0, 5.0, (LINK,)), flow("a", 50.0, 5.0), flow("b", 60.0, 5.0)]
    answer = fluid_edf(requests, 0.0, {LINK: 10.0})
    assert answer.refused["over"] == Refusal(Reason.NO_TIME)
    assert set(answer.admitted) == {"a"}


def test_no_newcomer_evicts_a_promise_and_a_held_floor_takes_its_rate_for_ever() -> None:
    promise = flow("old", 80.0, 10.0)
    assert fluid_edf([flow("new", 30.0, 5.0)], 0.0, {LINK: 10.0}, [promise]).admitted == {}
    urgent = fluid_edf([flow("new", 20.0, 3.0)], 0.0, {LINK: 10.0}, [promise])
    assert urgent.timetable.spans["new"][0].from_s == 0.0  # the promise waits, and is in time all the same
    assert urgent.timetable.spans["old"][-1].until_s == pytest.approx(10.0)
    floor = Held("held", (LINK,), 4.0)
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
    assert fluid_edf([patient], 0.0, {LINK: 10.0}).timetable.spans["patient"][0].from_s == 5.0
    crowd = [patient, flow("a", 40.0, 9.0)]
    table = fluid_edf(crowd, 0.0, {LINK: 10.0}).timetable
    assert not table.late
    assert table.spans["patient"][0].from_s == 5.0  # "a" is sent meanwhile
    full = [patient, replace(flow("b", 45.0, 9.5), start_s=5.0)]
    table = fluid_edf(full, 0.0, {LINK: 10.0}).timetable
    assert not table.late
    assert table.spans["patient"][0].from_s < 5.0


def test_constant_rates_too_start_late_where_that_fits_and_early_where_not() -> None:
    admit = edf_stop
    patient = replace(flow("patient", 50.0, 10.0), rather_start_s=5.0)
    assert admit([patient], 0.0, {LINK: 10.0}, []).admitted == {"patient": 10.0}
    assert admit([patient], 0.0, {LINK: 9.0}, []).admitted == {"patient": 5.0}
    assert admit_all([patient], 0.0, {LINK: 9.0}, []).admitted == {"patient": 0.0}
    both = [patient, replace(patient, key="other")]
    assert admit(both, 0.0, {LINK: 10.0}, []).admitted == {"patient": 5.0, "other": 5.0}  # none is refused for it
    assert admit(both, 0.0, {LINK: 15.0}, []).admitted == {"other": 10.0, "patient": 5.0}
