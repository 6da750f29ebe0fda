"""The fluid network: closed forms, classes, and the coordinator's own water-filling as an independent judge."""

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.model.network import FluidFlow, FluidNetwork, Sharing
from tests.demands import Demand, fill
from topologies.spec import DirectedLink, ResearchReserve, TrafficClass

PLANNED, PRESYNC, RESEARCH = TrafficClass.PLANNED, TrafficClass.PRESYNC, TrafficClass.RESEARCH
AB, BC, CD = DirectedLink("a", "b"), DirectedLink("b", "c"), DirectedLink("c", "d")


RESERVE = ResearchReserve(beta=0.3).reserve_bytes_per_s


def network(capacity: float = 100.0, sharing: Sharing = Sharing.PRIORITY) -> FluidNetwork:
    return FluidNetwork({AB: capacity, BC: capacity, CD: capacity}, sharing)


def rates(net: FluidNetwork) -> dict[str, float]:
    return {flow.key: flow.rate_bytes_per_s for flow in net.flows()}


# ---------------------------------------------------------------- one link
def test_a_flow_ends_when_the_integral_of_its_rate_is_its_size() -> None:
    """100 bytes/s alone for 2 s, 50 beside another for 4 s: 400 bytes."""
    net = network()
    net.start("x", [AB], PLANNED, 400.0, inf, 0.0)
    assert net.next_end_s() == pytest.approx(4.0)
    net.start("y", [AB], PLANNED, 1000.0, inf, 2.0)
    assert net.next_end_s() == pytest.approx(6.0)
    finished, changed = net.finish(6.0)
    assert [flow.key for flow in finished] == ["x"]
    assert [flow.key for flow in changed] == ["y"]
    assert net.flow("y").moved(6.0) == pytest.approx(200.0)
    assert net.next_end_s() == pytest.approx(14.0)


def test_a_regrant_counts_from_its_moment_on() -> None:
    net = network()
    net.start("x", [AB], PLANNED, 100.0, 10.0, 0.0)
    net.regrant({"x": 40.0}, 5.0)
    assert net.flow("x").moved(6.0) == pytest.approx(50.0 + 40.0)
    assert net.next_end_s() == pytest.approx(5.0 + 50.0 / 40.0)


def test_a_link_that_goes_down_stops_its_flows_and_coming_up_lets_them_go_on() -> None:
    net = network()
    net.start("x", [AB, BC], PLANNED, 1000.0, 50.0, 0.0)
    net.set_capacity(BC, 0.0, 4.0)
    assert rates(net) == {"x": 0.0}
    assert net.next_end_s() == inf
    net.set_capacity(BC, 25.0, 10.0)
    assert net.flow("x").moved(12.0) == pytest.approx(250.0)
    net.set_capacity(BC, 100.0, 12.0)
    assert net.next_end_s() == pytest.approx(12.0 + 750.0 / 50.0)


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda net: net.start("x", [DirectedLink("a", "z")], PLANNED, 1.0, 1.0, 0.0), "no link a>z"),
        (lambda net: net.start("x", [AB], PLANNED, -1.0, 1.0, 0.0), "size -1.0"),
        (lambda net: net.start("x", [AB], PLANNED, 1.0, float("nan"), 0.0), "cap nan"),
        (lambda net: net.start("old", [AB], PLANNED, 1.0, 1.0, 0.0), "flow old exists"),
    ],
)
def test_a_wrong_flow_is_refused_with_its_key(wrong: Callable[[FluidNetwork], object], said: str) -> None:
    net = network()
    net.start("old", [AB], PLANNED, 1.0, 1.0, 0.0)
    with pytest.raises(ValueError, match=said):
        wrong(net)
    assert [flow.key for flow in net.flows()] == ["old"]


# ---------------------------------------------------------------- against the coordinator's water-filling
LINKS = [DirectedLink(f"s{n}", f"t{n}") for n in range(5)]
caps = st.one_of(st.just(inf), st.just(0.0), st.floats(0.5, 200.0))
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("start"),
            st.lists(st.sampled_from(LINKS), min_size=1, max_size=4, unique=True),
            st.sampled_from([PLANNED, PRESYNC, RESEARCH]),
            caps,
        ),
        st.tuples(st.just("stop"), st.integers(0, 30)),
        st.tuples(st.just("regrant"), st.integers(0, 30), caps),
        st.tuples(st.just("capacity"), st.sampled_from(LINKS), st.floats(0.0, 150.0)),
    ),
    max_size=30,
)


@given(steps, st.sampled_from([*((each, False) for each in Sharing), (Sharing.PRIORITY, True)]))
def test_after_any_changes_rates_are_those_of_water_filling_and_flows_that_changed_are_named(
    changes: list[tuple],  # type: ignore[type-arg]
    rule: tuple[Sharing, bool],
) -> None:
    sharing, spares = rule
    capacity = dict.fromkeys(LINKS, 100.0)
    net = FluidNetwork(capacity, sharing, RESERVE) if spares else FluidNetwork(capacity, sharing)
    for now_s, (kind, *what) in enumerate(changes):
        before, changed = rates(net), list[FluidFlow]()
        present = list(before)
        if kind == "start":
            changed = net.start(f"f{now_s}", what[0], what[1], inf, what[2], float(now_s))
        elif kind == "capacity":
            capacity[what[0]] = what[1]
            changed = net.set_capacity(what[0], what[1], float(now_s))
        elif present and kind == "stop":
            _, changed = net.stop(present[what[0] % len(present)], float(now_s))
        elif present:
            changed = net.regrant({present[what[0] % len(present)]: what[1]}, float(now_s))
        others = {key for key, rate in rates(net).items() if rate != before.get(key, 0.0)}
        assert others <= {flow.key for flow in changed}
        assert rates(net) == pytest.approx(expected(net, capacity, sharing, spares), rel=1e-6, abs=1e-6)
    for link in LINKS:
        load = sum(flow.rate_bytes_per_s for flow in net.flows() if link in flow.links)
        assert load <= capacity[link] * (1.0 + 1e-9) + 1e-9


def expected(
    net: FluidNetwork, capacity: dict[DirectedLink, float], sharing: Sharing, spares: bool
) -> dict[str, float]:
    """Everything shared anew, class after class, by `max_min.fill`."""
    left, found = dict(capacity), {}
    asked = dict.fromkeys(capacity, 0.0)
    for flow in net.flows():
        for link in flow.links if flow.traffic_class is RESEARCH else ():
            asked[link] += flow.cap_bytes_per_s
    groups = {Sharing.FAIR: [[PLANNED, PRESYNC, RESEARCH]], Sharing.PRIORITY: [[PLANNED], [PRESYNC], [RESEARCH]]}[
        sharing
    ]
    for group in groups:
        flows = [flow for flow in net.flows() if flow.traffic_class in group]
        demands = [Demand(f.key, f.links, 1.0, 0.0, f.cap_bytes_per_s) for f in flows]
        room = left
        if spares and group == [PRESYNC]:
            room = {link: max(0.0, left[link] - min(asked[link], RESERVE(capacity[link]))) for link in left}
        shared = fill(demands, room).rates
        found.update(shared)
        for flow in flows:
            for link in flow.links:
                left[link] = max(0.0, left[link] - shared[flow.key])
    return found


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(1.0, 500.0), caps), min_size=1, max_size=12))
def test_bytes_are_conserved(arrivals: list[tuple[float, float, float]]) -> None:
    """Flows end exactly when their bytes are there, and a link never moved more than its capacity times the time."""
    net = FluidNetwork({AB: 100.0})
    now_s, total = 0.0, 0.0
    for number, (wait_s, size, cap) in enumerate(arrivals):
        until_s = now_s + wait_s
        while net.next_end_s() <= until_s:
            now_s = net.next_end_s()
            total += sum(flow.moved_bytes for flow in net.finish(now_s)[0])
        now_s = until_s
        net.start(f"f{number}", [AB], PLANNED, size, cap, now_s)
    while net.next_end_s() < inf:
        now_s = net.next_end_s()
        total += sum(flow.moved_bytes for flow in net.finish(now_s)[0])
    left = [flow for flow in net.flows() if flow.cap_bytes_per_s > 0.0]
    assert left == []
    assert total == pytest.approx(sum(size for _, size, cap in arrivals if cap > 0.0))
    assert total <= 100.0 * now_s * (1.0 + 1e-9)
