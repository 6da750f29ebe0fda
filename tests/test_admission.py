"""P3: whom to promise, on which links, and how the rest is divided."""

import math

from hypothesis import given
from hypothesis import strategies as st

from controller.core.admission import admission as p3
from controller.core.admission.admission import Held, Reason, Refusal
from controller.core.admission.schedule import MigrationRequest
from controller.core.network import max_min
from controller.core.network.links import migration_share
from tests.demands import Demand, shared
from topologies.spec import DirectedLink, ResearchReserve
from topologies.units import PAYLOAD_SHARE

UP, TRUNK, SIDE = DirectedLink("h1", "sw"), DirectedLink("sw", "core"), DirectedLink("h2", "sw")


def flow(
    key: str, payload: float, deadline_s: float, links: tuple[DirectedLink, ...] = (TRUNK,), **options: float
) -> MigrationRequest:
    return MigrationRequest(key, payload, deadline_s, options.pop("restart_s", 0.0), links, **options)


def test_every_link_keeps_the_larger_reserve_and_a_small_link_has_nothing_to_give() -> None:
    reserve = ResearchReserve(beta=0.3, minimum_bytes_per_s=20.0)
    share = migration_share({UP: 100.0, TRUNK: 40.0, SIDE: 10.0}, reserve)
    assert share == {UP: 70.0 * PAYLOAD_SHARE, TRUNK: 20.0 * PAYLOAD_SHARE, SIDE: 0.0}


def test_as_printed_admission_stops_at_the_first_misfit() -> None:
    requests = [flow("big", 90.0, 10.0), flow("early", 40.0, 5.0), flow("late", 20.0, 20.0)]
    answer = p3.edf_stop(requests, 0.0, {TRUNK: 10.0})
    assert answer.admitted == {"early": 8.0}
    assert answer.refused == {"big": Refusal(Reason.NO_ROOM, TRUNK), "late": Refusal(Reason.BEHIND)}


def test_ways_that_stay_half_empty_are_taken_as_they_come_and_others_by_their_fullest_link() -> None:
    share = {DirectedLink("h1", name): 10.0 for name in "abcd"}
    held = [Held(link.target, (link,), rate) for link, rate in zip(share, (7.0, 6.0, 3.0, 1.0), strict=True)]
    ways = p3.emptiest_first([(link,) for link in share], flow("x", 10.0, 10.0), 0.0, share, held)
    assert [way[0].target for way in ways] == ["c", "d", "b", "a"]


def test_a_flow_must_fit_on_every_link_that_it_crosses() -> None:
    requests = [flow("a", 50.0, 20.0, (UP, TRUNK)), flow("b", 30.0, 10.0, (SIDE, TRUNK))]
    answer = p3.edf_stop(requests, 0.0, {UP: 2.0, SIDE: 4.0, TRUNK: 100.0})
    assert answer.admitted == {"b": 3.0}
    assert answer.refused == {"a": Refusal(Reason.NO_ROOM, UP)}


def test_flows_admitted_earlier_keep_their_floors() -> None:
    committed = [Held("held", (TRUNK,), 7.0)]
    urgent = flow("urgent", 40.0, 10.0)
    assert p3.edf_stop([urgent], 0.0, {TRUNK: 10.0}, committed).admitted == {}
    assert p3.edf_stop([urgent], 0.0, {TRUNK: 11.0}, committed).admitted == {"urgent": 4.0}


def test_without_admission_everybody_tries_and_nobody_is_promised_anything() -> None:
    answer = p3.admit_all([flow("a", 1e9, 1.0), flow("b", 1e9, 0.0)], 5.0, {TRUNK: 1.0})
    assert answer == p3.Admission({"a": 0.0, "b": 0.0}, {})


requests_strategy = st.lists(
    st.tuples(
        st.floats(1.0, 1e3),
        st.floats(0.1, 100.0),
        st.floats(0.0, 20.0),
        st.lists(st.sampled_from([UP, TRUNK, SIDE]), unique=True, max_size=3),
    ),
    max_size=10,
)


@given(requests_strategy, st.floats(0.0, 100.0), st.floats(0.0, 50.0))
def test_admitted_flows_fit_finish_in_time_and_can_all_be_granted(
    shapes: list[tuple[float, float, float, list[DirectedLink]]], trunk: float, side: float
) -> None:
    requests = [
        MigrationRequest(f"m{i}", c, deadline, restart, tuple(links))
        for i, (c, deadline, restart, links) in enumerate(shapes)
    ]
    share = {UP: 30.0, TRUNK: trunk, SIDE: side}
    answer = p3.edf_stop(requests, 0.0, share, [])
    assert answer.admitted.keys() | answer.refused.keys() == {r.key for r in requests}
    assert not answer.admitted.keys() & answer.refused.keys()
    flows = [Demand(r.key, r.links, 1.0, answer.admitted[r.key]) for r in requests if r.key in answer.admitted]
    rates = shared(max_min.fill, flows, share).rates
    for request in requests:
        if request.key in rates and rates[request.key] < math.inf:
            done_s = request.payload_bytes / rates[request.key] + request.restart_s
            assert done_s <= request.deadline_s * (1 + 1e-9)
    for link, most in share.items():
        carried = math.fsum(rates[f.key] for f in flows if link in f.links)
        assert carried <= most * (1 + 1e-8) + 1e-9
