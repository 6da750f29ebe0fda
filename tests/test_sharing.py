"""Max-min shares of a network: held to the properties that define them, and to hand-made cases."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.network import max_min
from controller.core.network.links import NO_LINK, Network, Paths
from tests.demands import Demand, fill, shared
from topologies.paths import Routes
from topologies.presets import three_tier
from topologies.spec import DirectedLink

LINKS = [DirectedLink(f"n{i}", f"n{i + 1}") for i in range(5)]
TRUNK, LEAF, SPUR = LINKS[:3]
TOLERANCE = 1e-7
Case = tuple[list[Demand], dict[DirectedLink, float]]


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
def test_rates_are_the_same_in_any_order_and_in_columns(case: Case, shuffler: random.Random) -> None:
    demands, capacity = case
    filling = fill(demands, capacity)
    shuffled, mixed = list(demands), list(capacity.items())
    shuffler.shuffle(shuffled)
    shuffler.shuffle(mixed)
    assert fill(shuffled, dict(mixed)) == filling
    assert shared(max_min.fill, demands, capacity) == filling


def check_max_min(demands: list[Demand], capacity: dict[DirectedLink, float]) -> None:
    """Pareto and weighted max-min at once: to raise x_i, another flow with no more than x_i (by weight) must lose."""
    filling = fill(demands, capacity)
    used = {link: math.fsum(filling.rates[d.key] for d in demands if link in d.links) for link in capacity}
    assert all(used[link] <= room * (1.0 + TOLERANCE) + 1e-12 for link, room in capacity.items())
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
def test_a_flow_below_its_cap_has_a_full_link_on_which_no_flow_above_its_floor_has_more(case: Case) -> None:
    check_max_min(*case)


@pytest.mark.parametrize("hosts", [9, 40, 160])
def test_so_it_is_on_a_campus(hosts: int) -> None:
    for seed in range(5):
        check_max_min(*campus_case(seed, hosts))


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


# ---------------------------------------------------------------- cases
def test_a_link_whose_floors_leave_nothing_is_settled_even_where_one_floor_drowns_in_the_rounding_of_another() -> None:
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


def test_floors_that_do_not_fit_are_kept_and_no_flow_on_their_link_gets_more() -> None:
    demands = [on_trunk("a", floor=5.0), on_trunk("b", floor=6.0), on_trunk("c")]
    assert fill(demands, {TRUNK: 10.0}).rates == {"a": 5.0, "b": 6.0, "c": 0.0}


def test_a_flow_without_a_path_has_its_cap_and_an_empty_set_of_flows_an_empty_answer() -> None:
    network, one = Network([TRUNK]), np.ones(1)
    rates, held_by = max_min.fill(max_min.Wants(network, Paths.of([()]), one, 0.0 * one, 7.0 * one), one)
    assert (rates.tolist(), held_by.tolist()) == ([7.0], [NO_LINK])
    none = np.zeros(0)
    assert max_min.fill(max_min.Wants(network, Paths.of([]), none, none, none), one)[0].size == 0
