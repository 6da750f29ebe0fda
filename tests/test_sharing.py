"""Max-min shares of a network: held to filling link by link, to the properties that define them, and to hand-made cases."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.network import max_min
from controller.core.network.links import NO_LINK, Network, Paths
from controller.core.network.sharing import Demand, Filling, fill
from tests.demands import shared
from tests.filling_judge import fill_link_by_link
from topologies.paths import Routes
from topologies.presets import three_tier
from topologies.spec import DirectedLink

LINKS = [DirectedLink(f"n{i}", f"n{i + 1}") for i in range(5)]
TRUNK, LEAF, SPUR = LINKS[:3]
TOLERANCE = 1e-7
Case = tuple[list[Demand], dict[DirectedLink, float]]


def one_link(capacity: float, *demands: Demand) -> list[float]:
    return list(fill(demands, {TRUNK: capacity}).rates.values())


def on_trunk(key: str, weight: float = 1.0, floor: float = 0.0, cap: float = math.inf) -> Demand:
    return Demand(key, (TRUNK,), weight, floor, cap)


@st.composite
def networks(draw: st.DrawFn) -> Case:
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


def campus_case(seed: int, hosts: int) -> Case:
    """Flows between hosts of a three-tier campus: migrations with floors, checkpoints with caps."""
    rng = random.Random(seed)
    campus = three_tier(hosts, 3, hosts_per_access=8)
    routes, names = Routes(campus), [host.name for host in campus.hosts]
    demands = []
    for number in range(hosts // 2):
        path = routes.route(*rng.sample(names, 2))
        floor = rng.choice([0.0, 0.0, 2e6])
        cap = rng.choice([math.inf, rng.uniform(1e7, 1e8)])
        demands.append(Demand(f"f{number}", path, rng.choice([1.0, rng.uniform(0.1, 3.0)]), floor, cap))
    return demands, {link: 0.7 * rate for link, rate in campus.capacity_bytes_per_s.items()}


# ---------------------------------------------------------------- properties


@given(networks(), st.randoms(use_true_random=False))
def test_rates_are_those_of_filling_link_by_link_in_any_order_and_in_columns(
    case: Case, shuffler: random.Random
) -> None:
    demands, capacity = case
    filling = fill(demands, capacity)
    assert filling.rates == pytest.approx(fill_link_by_link(demands, capacity).rates, rel=1e-11, abs=1e-11)
    shuffled, mixed = list(demands), list(capacity.items())
    shuffler.shuffle(shuffled)
    shuffler.shuffle(mixed)
    assert fill(shuffled, dict(mixed)) == filling
    assert shared(max_min.fill, demands, capacity) == filling


@given(networks())
def test_a_flow_below_its_cap_has_a_full_link_on_which_no_flow_above_its_floor_has_more(case: Case) -> None:
    """Pareto and weighted max-min at once: to raise x_i, another flow with no more than x_i (by weight) must lose."""
    demands, capacity = case
    filling = fill(demands, capacity)
    used = {link: math.fsum(filling.rates[d.key] for d in demands if link in d.links) for link in LINKS}
    assert all(used[link] <= capacity[link] * (1.0 + TOLERANCE) + 1e-12 for link in LINKS)
    for demand in demands:
        rate = filling.rates[demand.key]
        assert demand.floor_bytes_per_s <= rate <= demand.cap_bytes_per_s * (1.0 + 1e-12)
        if demand.weight == 0.0 or rate >= demand.cap_bytes_per_s * (1.0 - TOLERANCE):
            continue
        link = filling.bottleneck[demand.key]
        assert link is not None and link in demand.links
        assert used[link] >= capacity[link] * (1.0 - TOLERANCE) - TOLERANCE
        for other in demands:
            theirs = filling.rates[other.key]
            if link in other.links and theirs > other.floor_bytes_per_s + TOLERANCE:
                assert theirs / other.weight <= rate / demand.weight * (1.0 + 1e-5) + TOLERANCE


@given(networks())
def test_the_least_level_of_all_never_falls_when_capacity_grows(case: Case) -> None:
    """On a network some flow may lose; but not the one with least."""
    demands, capacity = case
    free = [replace(d, floor_bytes_per_s=0.0, weight=d.weight or 1.0) for d in demands if d.links]
    levels = [
        [rate / demand.weight for demand, rate in zip(free, fill(free, at).rates.values(), strict=True)]
        for at in (capacity, {link: 1.5 * rate for link, rate in capacity.items()})
    ]
    assert min(levels[1], default=0.0) >= min(levels[0], default=0.0) * (1.0 - 1e-12)


@pytest.mark.parametrize("hosts", [9, 40, 160])
def test_rates_on_a_campus_are_those_of_filling_link_by_link(hosts: int) -> None:
    for seed in range(5):
        demands, capacity = campus_case(seed, hosts)
        judge = fill_link_by_link(demands, capacity)
        assert fill(demands, capacity).rates == pytest.approx(judge.rates, rel=1e-11)


def test_the_link_that_binds_is_the_judge_s_where_levels_differ() -> None:
    for seed in range(50):
        demands, capacity = campus_case(seed, 24)
        noisy = {
            link: rate * (1.0 + 1e-3 * math.sin(number))
            for number, (link, rate) in enumerate(capacity.items())
        }
        assert fill(demands, noisy).bottleneck == fill_link_by_link(demands, noisy).bottleneck


# ---------------------------------------------------------------- cases


def test_a_large_floor_gets_nothing_more_until_others_have_caught_up() -> None:
    assert one_link(9.0, on_trunk("a", floor=4.0), on_trunk("b", floor=1.0), on_trunk("c", floor=1.0)) == [
        4,
        2.5,
        2.5,
    ]


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


def test_of_links_full_at_one_level_the_first_by_name_is_named_whatever_the_path() -> None:
    there = Demand("a", (SPUR, TRUNK, LEAF))
    assert fill([there], {TRUNK: 5.0, LEAF: 5.0, SPUR: 5.0}).bottleneck == {"a": TRUNK}
    assert fill([replace(there, links=(LEAF, SPUR))], {LEAF: 5.0, SPUR: 5.0}).bottleneck == {"a": LEAF}


def test_a_staircase_of_floors_and_caps_is_filled_to_the_brim() -> None:
    """Newton's method goes astray where floors and caps alternate; the bracket brings it back."""
    for seed in range(50):
        rng = random.Random(seed)
        demands = []
        for n in range(40):
            floor = 10 ** rng.uniform(-3, 6)
            demands.append(
                Demand(
                    f"d{n}",
                    (TRUNK,),
                    10 ** rng.uniform(-4, 4),
                    floor,
                    floor * (1.0 + rng.choice([1e-9, 1e-3, 10.0])),
                )
            )
        floors = math.fsum(d.floor_bytes_per_s for d in demands)
        caps = math.fsum(d.cap_bytes_per_s for d in demands)
        for part in (1e-12, 1e-6, 0.3, 0.999999):
            capacity = {TRUNK: floors + part * (caps - floors)}
            filling = fill(demands, capacity)
            assert math.fsum(filling.rates.values()) == pytest.approx(capacity[TRUNK], rel=1e-12)
            digit = 1e-14 * capacity[TRUNK]  # a sum is no more exact than that
            judge = fill_link_by_link(demands, capacity)
            assert filling.rates == pytest.approx(judge.rates, rel=1e-11, abs=digit)


def test_a_chain_of_links_each_waiting_for_the_one_before_is_settled_to_its_end() -> None:
    links = [DirectedLink(f"c{n:03}", "x") for n in range(120)]
    demands = [Demand(f"d{n:03}", (links[n], links[n + 1])) for n in range(119)]
    capacity = {link: 1.0 + 0.01 * number for number, link in enumerate(links)}
    judge = fill_link_by_link(demands, capacity)
    assert fill(demands, capacity).rates == pytest.approx(judge.rates, rel=1e-11)


def test_floors_that_overfill_by_rounding_are_kept() -> None:
    demands = [Demand(f"d{n}", (TRUNK,), 1.0, 0.1, 1.0) for n in range(10)]
    assert set(fill(demands, {TRUNK: 1.0 - 1e-12}).rates.values()) == {0.1}


def test_weights_too_small_to_divide_by_are_weights_still() -> None:
    demands = [Demand("a", (TRUNK,), 1e-305), Demand("b", (TRUNK,), 3e-305)]
    assert fill(demands, {TRUNK: 4.0}).rates == pytest.approx({"a": 1.0, "b": 3.0})


def test_a_flow_without_a_path_has_its_cap_and_an_empty_set_of_flows_an_empty_answer() -> None:
    network, one = Network([TRUNK]), np.ones(1)
    rates, held_by = max_min.fill(max_min.Wants(network, Paths.of([()]), one, 0.0 * one, 7.0 * one), one)
    assert (rates.tolist(), held_by.tolist()) == ([7.0], [NO_LINK])
    none = np.zeros(0)
    assert max_min.fill(max_min.Wants(network, Paths.of([]), none, none, none), one)[0].size == 0


def test_columns_name_the_first_link_on_which_floors_do_not_fit() -> None:
    network = Network([TRUNK, LEAF, SPUR])
    paths = Paths.of([network.path((LEAF, TRUNK)), network.path((SPUR,))])
    two = np.ones(2)
    with pytest.raises(ValueError, match=r"link n0>n1: floors need 5.0 bytes/s, it has 4.0"):
        max_min.fill(max_min.Wants(network, paths, two, 5.0 * two, 9.0 * two), np.full(3, 4.0))
    with pytest.raises(ValueError, match=r"link n1>n2: capacity nan: a finite rate of 0 or more"):
        wants = max_min.Wants(network, paths, two, 0.0 * two, two)
        max_min.fill(wants, np.array([4.0, math.nan, 4.0]))


def test_loads_and_least_values_of_paths() -> None:
    paths = Paths.of([(0, 2), (), (1, 2)])
    assert paths.load(np.array([1.0, 5.0, 2.0]), 4).tolist() == [1.0, 2.0, 3.0, 0.0]
    assert paths.least(np.array([3.0, 1.0, 2.0, 0.0])).tolist() == [2.0, math.inf, 1.0]
    assert len(paths) == 3


def test_links_are_numbered_in_the_order_of_their_names() -> None:
    network = Network([SPUR, DirectedLink("n10", "n2"), TRUNK, LEAF, TRUNK])
    assert [str(link) for link in network.links] == sorted(str(link) for link in network.links)
    values = {link: float(number) for number, link in enumerate(network.links)}
    assert network.mapping(network.column(values)) == values
