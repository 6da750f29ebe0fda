"""Max-min shares of a network: the properties that define them, and hand-made cases."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.network import max_min
from controller.core.network.sharing import (
    Demand,
    Filling,
    fill,
)
from tests.demands import shared
from topologies.spec import DirectedLink

LINKS = [DirectedLink(f"n{i}", f"n{i + 1}") for i in range(5)]
TRUNK, LEAF, SPUR = LINKS[:3]
TOLERANCE = 1e-7


def one_link(capacity: float, *demands: Demand) -> list[float]:
    return list(fill(demands, {TRUNK: capacity}).rates.values())


def on_trunk(key: str, weight: float = 1.0, floor: float = 0.0, cap: float = math.inf) -> Demand:
    return Demand(key, (TRUNK,), weight, floor, cap)


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[Demand], dict[DirectedLink, float]]:
    """Demands over up to five links, with floors that fit."""
    rate = st.floats(0.0, 100.0).map(lambda x: round(x, 9))  # no number so small that it has few digits
    demands, floors = [], dict.fromkeys(LINKS, 0.0)
    for index in range(draw(st.integers(0, 8))):
        links = tuple(draw(st.lists(st.sampled_from(LINKS), unique=True, max_size=4)))
        floor = draw(rate)
        cap = draw(st.one_of(st.just(math.inf), st.floats(floor, floor + 200.0)))
        weight = draw(st.one_of(st.floats(0.01, 50.0), st.sampled_from([0.0, 1.0, 1.0])))
        demands.append(Demand(f"d{index}", links, weight, floor, cap))
        for link in links:
            floors[link] += floor
    capacity = {link: floors[link] + draw(st.sampled_from([0.0, 1e-3, 1.0, 50.0, 400.0])) for link in LINKS}
    return demands, capacity


def used(link: DirectedLink, demands: list[Demand], filling: Filling) -> float:
    return math.fsum(filling.rates[d.key] for d in demands if link in d.links)


def saturated(
    link: DirectedLink, demands: list[Demand], filling: Filling, capacity: dict[DirectedLink, float]
) -> bool:
    return used(link, demands, filling) >= capacity[link] * (1.0 - TOLERANCE) - TOLERANCE


@given(networks())
def test_no_link_carries_more_than_it_has(case: tuple[list[Demand], dict[DirectedLink, float]]) -> None:
    demands, capacity = case
    filling = fill(demands, capacity)
    for link in LINKS:
        assert used(link, demands, filling) <= capacity[link] * (1.0 + TOLERANCE) + 1e-12


@given(networks())
def test_floors_and_caps_are_kept(case: tuple[list[Demand], dict[DirectedLink, float]]) -> None:
    demands, capacity = case
    for filling in (fill(demands, capacity), shared(max_min.equal_increment, demands, capacity)):
        for demand in demands:
            rate = filling.rates[demand.key]
            assert demand.floor_bytes_per_s <= rate <= demand.cap_bytes_per_s * (1.0 + 1e-12)


@given(networks())
def test_whoever_is_below_its_cap_has_a_full_link_on_which_nobody_above_its_floor_has_more(
    case: tuple[list[Demand], dict[DirectedLink, float]],
) -> None:
    """Pareto and weighted max-min at once: to raise x_i, somebody with no more than x_i (by weight) must lose."""
    demands, capacity = case
    filling = fill(demands, capacity)
    for demand in demands:
        rate = filling.rates[demand.key]
        if demand.weight == 0.0 or rate >= demand.cap_bytes_per_s * (1.0 - TOLERANCE):
            continue
        link = filling.bottleneck[demand.key]
        assert link is not None and link in demand.links
        assert saturated(link, demands, filling, capacity)
        for other in demands:
            theirs = filling.rates[other.key]
            if link in other.links and theirs > other.floor_bytes_per_s + TOLERANCE:
                assert theirs / other.weight <= rate / demand.weight * (1.0 + 1e-5) + TOLERANCE


@given(networks(), st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_demands(
    case: tuple[list[Demand], dict[DirectedLink, float]], shuffler: random.Random
) -> None:
    demands, capacity = case
    shuffled = list(demands)
    shuffler.shuffle(shuffled)
    assert fill(shuffled, capacity) == fill(demands, capacity)


@given(networks())
def test_scaling_all_rates_scales_the_answer(case: tuple[list[Demand], dict[DirectedLink, float]]) -> None:
    demands, capacity = case
    doubled = [
        Demand(d.key, d.links, d.weight, 2 * d.floor_bytes_per_s, 2 * d.cap_bytes_per_s) for d in demands
    ]
    twice = fill(doubled, {link: 2 * rate for link, rate in capacity.items()})
    assert twice.rates == {key: 2 * rate for key, rate in fill(demands, capacity).rates.items()}


def test_a_large_floor_gets_nothing_more_until_others_have_caught_up() -> None:
    assert one_link(9.0, on_trunk("a", floor=4.0), on_trunk("b", floor=1.0), on_trunk("c", floor=1.0)) == [
        4,
        2.5,
        2.5,
    ]


def test_equal_increment_gives_everybody_the_same_extra() -> None:
    demands = [on_trunk("a", floor=4.0), on_trunk("b", floor=1.0), on_trunk("c", floor=1.0)]
    assert shared(max_min.equal_increment, demands, {TRUNK: 9.0}).rates == {"a": 5.0, "b": 2.0, "c": 2.0}


def test_what_a_capped_demand_leaves_goes_to_the_others() -> None:
    assert one_link(12.0, on_trunk("a", cap=2.0), on_trunk("b"), on_trunk("c", weight=4.0)) == [2.0, 2.0, 8.0]


def test_a_flow_held_down_elsewhere_leaves_room_on_the_trunk_and_the_binding_links_are_named() -> None:
    demands = [
        Demand("far", (LEAF, TRUNK)),
        Demand("near", (TRUNK,)),
        Demand("side", (SPUR,), cap_bytes_per_s=3.0),
    ]
    filling = fill(demands, {TRUNK: 10.0, LEAF: 2.0, SPUR: 100.0})
    assert filling.rates == {"far": 2.0, "near": 8.0, "side": 3.0}
    assert filling.bottleneck == {"far": LEAF, "near": TRUNK, "side": None}


def test_a_demand_without_links_gets_its_cap() -> None:
    filling = fill([Demand("local", (), cap_bytes_per_s=7.0)], {})
    assert filling == Filling({"local": 7.0}, {"local": None})


def test_weight_zero_stays_at_its_floor_and_no_link_is_to_blame() -> None:
    filling = fill([on_trunk("idle", weight=0.0), on_trunk("busy")], {TRUNK: 10.0})
    assert filling.bottleneck == {"idle": None, "busy": TRUNK}
    assert one_link(10.0, on_trunk("idle", weight=0.0, floor=1.0), on_trunk("busy")) == [1.0, 9.0]


def test_a_link_without_capacity_gives_nothing() -> None:
    assert one_link(0.0, on_trunk("a"), on_trunk("b", weight=3.0)) == [0.0, 0.0]


def test_nobody_asks_and_nobody_gets() -> None:
    assert fill([], {TRUNK: 1.0}) == Filling({}, {})


def test_a_link_whose_floors_leave_nothing_is_settled_even_where_one_floor_drowns_in_the_rounding_of_another() -> (
    None
):
    """Once without end: the level jumped over the point at which the small one begins to rise, for ever."""
    demands = [
        Demand("d0", (LINKS[0], LINKS[2], LINKS[3]), 0.0, 1e-06, 184.98418289912183),
        Demand("d1", (LINKS[3], LINKS[1]), 8.614594731377082, 5.434683145, 202.04619617800878),
        Demand("d2", (LINKS[4], LINKS[1], LINKS[3]), 0.01, 2.43e-07),
        Demand("d3", (LINKS[2], LINKS[0], LINKS[3], LINKS[4]), 0.01, 0.467131765, 0.467131766),
    ]
    capacity = [50.467132765, 5.434683388, 50.467132765, 5.901816153, 0.468132008]
    filling = fill(demands, dict(zip(LINKS, capacity, strict=True)))
    assert filling.rates == pytest.approx({d.key: d.floor_bytes_per_s for d in demands}, abs=1e-7)


def test_floors_that_do_not_fit_name_the_link() -> None:
    with pytest.raises(ValueError, match=r"link n0>n1: floors need 11.0 bytes/s, it has 10.0"):
        fill([on_trunk("a", floor=5.0), on_trunk("b", floor=6.0)], {TRUNK: 10.0})


@pytest.mark.parametrize("capacity", [{}, {TRUNK: math.inf}, {TRUNK: math.nan}, {TRUNK: -1.0}])
def test_a_capacity_that_is_no_rate_is_refused(capacity: dict[DirectedLink, float]) -> None:
    with pytest.raises(ValueError, match="link n0>n1: capacity"):
        fill([on_trunk("a")], capacity)


def test_a_key_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="demand a appears twice"):
        fill([on_trunk("a"), on_trunk("a")], {TRUNK: 1.0})


@pytest.mark.parametrize(
    ("weight", "floor", "cap"), [(-1.0, 0.0, 1.0), (math.nan, 0.0, 1.0), (1.0, 2.0, 1.0), (1.0, -1.0, 1.0)]
)
def test_a_demand_that_contradicts_itself_is_refused(weight: float, floor: float, cap: float) -> None:
    with pytest.raises(ValueError, match="demand a: "):
        on_trunk("a", weight, floor, cap)
