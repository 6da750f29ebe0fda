"""Filling on columns, held to the same filling link by link, to linear programs, and to what must not matter."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from controller.core.network import max_min
from controller.core.network.links import NO_LINK, Network, Paths
from controller.core.network.sharing import (
    Demand,
    Filling,
    fill,
)
from tests.demands import shared
from tests.filling_judge import fill_link_by_link
from topologies.paths import Routes
from topologies.presets import three_tier
from topologies.spec import DirectedLink

Case = tuple[list[Demand], dict[DirectedLink, float]]
TRUNK, LEAF, SPUR = (DirectedLink(f"n{i}", f"n{i + 1}") for i in range(3))


def random_case(seed: int, links: int = 6, demands: int = 12) -> Case:
    """Any links, floors that fit, some caps, weights over four decades."""
    rng = random.Random(seed)
    names = [DirectedLink(f"n{i}", f"n{i + 1}") for i in range(links)]
    some, floors = [], dict.fromkeys(names, 0.0)
    for number in range(rng.randint(1, demands)):
        path = tuple(rng.sample(names, rng.randint(1, min(4, links))))
        floor = rng.choice([0.0, 0.0, rng.uniform(0.0, 30.0)])
        cap = rng.choice([math.inf, floor + rng.uniform(0.0, 60.0), floor])
        some.append(Demand(f"d{number}", path, rng.choice([0.0, 1.0, 10 ** rng.uniform(-2, 2)]), floor, cap))
        for link in path:
            floors[link] += floor
    return some, {link: floors[link] + rng.choice([0.0, 1.0, rng.uniform(0.0, 200.0)]) for link in names}


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


def assert_same(ours: Filling, judge: Filling) -> None:
    assert ours.rates == pytest.approx(judge.rates, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("block", range(6))
def test_rates_are_those_of_filling_link_by_link(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        demands, capacity = random_case(seed)
        assert_same(fill(demands, capacity), fill_link_by_link(demands, capacity))


@pytest.mark.parametrize("hosts", [9, 40, 160])
def test_rates_on_a_campus_are_those_of_filling_link_by_link(hosts: int) -> None:
    for seed in range(5):
        demands, capacity = campus_case(seed, hosts)
        assert_same(fill(demands, capacity), fill_link_by_link(demands, capacity))


def test_the_link_that_binds_is_the_judge_s_where_levels_differ() -> None:
    for seed in range(200):
        demands, capacity = campus_case(seed, 24)
        noisy = {
            link: rate * (1.0 + 1e-3 * math.sin(number))
            for number, (link, rate) in enumerate(capacity.items())
        }
        assert fill(demands, noisy).bottleneck == fill_link_by_link(demands, noisy).bottleneck


# ---------------------------------------------------------------- linear programs


def lexicographic(demands: list[Demand], capacity: dict[DirectedLink, float]) -> dict[str, float]:
    """Max-min of rate/weight by a sequence of linear programs: raise the least, fix who cannot go on, and again.

    Without floors; weights above 0.
    """
    links, fixed = list(capacity), dict[str, float]()
    load = np.array([[float(link in d.links) for d in demands] for link in links])
    room = np.array([capacity[link] for link in links])
    while len(fixed) < len(demands):
        free = [n for n, d in enumerate(demands) if d.key not in fixed]
        bounds = [(fixed.get(d.key, 0.0), fixed.get(d.key, min(d.cap_bytes_per_s, 1e6))) for d in demands]
        level = _best(np.eye(len(demands) + 1)[-1], demands, free, load, room, bounds)[-1]
        for n in free:
            most = _best(np.eye(len(demands) + 1)[n], demands, free, load, room, bounds, level)[n]
            if most <= demands[n].weight * level * (1.0 + 1e-7) + 1e-9:
                fixed[demands[n].key] = float(most)
    return fixed


def _best(
    objective: np.ndarray,
    demands: list[Demand],
    free: list[int],
    load: np.ndarray,
    room: np.ndarray,
    bounds: list[tuple[float, float]],
    level: float = 0.0,
) -> np.ndarray:
    """Maximise over (rates, t) with rate >= weight * t for the free, t >= level."""
    count = len(demands)
    rows = np.zeros((len(free), count + 1))
    for row, n in enumerate(free):
        capped = bounds[n][1] <= demands[n].weight * level
        rows[row, n], rows[row, -1] = -1.0, 0.0 if capped else demands[n].weight
    matrix = np.vstack([np.hstack([load, np.zeros((len(room), 1))]), rows])
    right = np.concatenate([room, np.zeros(len(free))])
    answer = linprog(-objective, matrix, right, bounds=[*bounds, (level * (1 - 1e-12), 1e9)], method="highs")
    assert answer.success, answer.message
    return np.asarray(answer.x)


def test_rates_are_the_lexicographic_optimum_of_linear_programs() -> None:
    for seed in range(25):
        demands, capacity = random_case(seed, links=4, demands=6)
        demands = [replace(d, floor_bytes_per_s=0.0, weight=d.weight or 1.0) for d in demands]
        expected = lexicographic(demands, capacity)
        assert fill(demands, capacity).rates == pytest.approx(expected, rel=1e-5, abs=1e-5)


# ---------------------------------------------------------------- properties

cases = st.integers(0, 10**6).map(random_case)


@given(cases)
def test_more_capacity_on_all_links_takes_from_nobody_on_one_link(case: Case) -> None:
    demands, _ = case
    single = [replace(demand, links=(TRUNK,)) for demand in demands]
    floors = math.fsum(demand.floor_bytes_per_s for demand in demands)
    less = fill(single, {TRUNK: floors + 1.0}).rates
    more = fill(single, {TRUNK: floors + 2.0}).rates
    assert all(more[key] >= less[key] * (1.0 - 1e-12) for key in less)


@given(cases)
def test_the_least_level_of_all_never_falls_when_capacity_grows(case: Case) -> None:
    """On a network somebody may lose; but not the worst off."""
    demands, capacity = case
    free = [replace(d, floor_bytes_per_s=0.0, weight=d.weight or 1.0) for d in demands]
    wider = {link: 1.5 * rate for link, rate in capacity.items()}

    def least(at: dict[DirectedLink, float]) -> float:
        rates = fill(free, at).rates
        return min(rates[d.key] / d.weight for d in free)

    assert least(wider) >= least(capacity) * (1.0 - 1e-12)


@given(cases, st.randoms(use_true_random=False))
def test_the_answer_is_the_same_to_the_last_bit_in_any_order(case: Case, shuffler: random.Random) -> None:
    demands, capacity = case
    shuffled, mixed = list(demands), list(capacity.items())
    shuffler.shuffle(shuffled)
    shuffler.shuffle(mixed)
    assert fill(shuffled, dict(mixed)) == fill(demands, capacity)
    rule = max_min.equal_increment
    assert shared(rule, shuffled, dict(mixed)) == shared(rule, demands, capacity)


@given(cases)
def test_columns_and_demands_have_one_answer(case: Case) -> None:
    demands, capacity = case
    assert shared(max_min.fill, demands, capacity) == fill(demands, capacity)


# ---------------------------------------------------------------- ties, bounds, hard cases


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
    filling = fill(demands, capacity)
    assert_same(filling, fill_link_by_link(demands, capacity))


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


# ---------------------------------------------------------------- paths


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
