"""Paper A's closed forms against convex solvers, brute force and integrals of their definitions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from experiments.theory.domain import DomainError
from experiments.theory.paper_a import destinations, intervals, isolation

HAZARD = st.floats(1e-6, 1e-2)
PAYLOAD = st.floats(1e6, 1e11)
RATE = st.floats(1e5, 1e9)
SMALL = st.integers(1, 20).map(float)


@settings(max_examples=50, deadline=None)
@given(hazard=HAZARD, payload=PAYLOAD, rate=RATE, factor=st.floats(0.1, 10.0))
def test_lemma_1_is_the_least_cost(hazard: float, payload: float, rate: float, factor: float) -> None:
    best_s = intervals.local_interval_s(hazard, payload, rate)
    least = intervals.least_cost_rate(hazard, payload, rate)
    assert intervals.cost_rate(best_s, hazard, payload, rate) == pytest.approx(least, rel=1e-12)
    assert intervals.cost_rate(best_s * factor, hazard, payload, rate) >= least * (1.0 - 1e-12)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), count=st.integers(1, 5))
def test_allocation_is_the_convex_solvers(data: st.DataObject, count: int) -> None:
    def drawn(low: float, high: float) -> list[float]:
        return data.draw(st.lists(st.floats(low, high), min_size=count, max_size=count))

    hazards, payloads, caps = drawn(0.1, 2.0), drawn(0.5, 20.0), drawn(0.05, 3.0)
    budget = data.draw(st.floats(0.2, 10.0))
    ours = intervals.allocation(hazards, payloads, budget, caps)
    weights = np.sqrt(2.0 * np.array(hazards) * np.array(payloads))
    found = optimize.minimize(
        lambda b: float((weights / np.sqrt(b)).sum()),
        np.minimum(caps, budget / count) * 0.9,
        bounds=[(1e-6, cap) for cap in caps],
        constraints={"type": "ineq", "fun": lambda b: budget - b.sum()},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert math.fsum(ours.rates) <= budget * (1.0 + 1e-9)
    assert all(rate <= cap * (1.0 + 1e-9) for rate, cap in zip(ours.rates, caps, strict=True))
    assert ours.total_cost <= found.fun * (1.0 + 1e-5)


@settings(max_examples=30, deadline=None)
@given(jobs=st.lists(st.tuples(HAZARD, PAYLOAD), min_size=1, max_size=8), budget=RATE)
def test_theorem_1_cost_is_its_closed_form(jobs: list[tuple[float, float]], budget: float) -> None:
    hazards, payloads = [h for h, _ in jobs], [c for _, c in jobs]
    found = intervals.allocation(hazards, payloads, budget)
    roots = math.fsum(math.cbrt(h * c) for h, c in jobs)
    assert found.total_cost == pytest.approx(math.sqrt(2.0 / budget) * roots**1.5, rel=1e-9)


def test_jobs_without_hazard_or_budget_have_numbers_and_no_nan() -> None:
    none_at_risk = intervals.allocation([0.0, 0.0], [1e9, 1e9], 1e8)
    assert none_at_risk.rates == (0.0, 0.0) and none_at_risk.total_cost == 0.0
    no_budget = intervals.allocation([1e-4, 0.0], [1e9, 1e9], 0.0)
    assert no_budget.rates == (0.0, 0.0) and no_budget.total_cost == math.inf
    all_capped = intervals.allocation([1e-4, 2e-4], [1e9, 1e9], 1e8, [1e6, 2e6])
    assert all_capped.rates == (1e6, 2e6)
    assert intervals.allocation([], [], 1e8).total_cost == 0.0
    with pytest.raises(DomainError, match="one length"):
        intervals.allocation([1e-4], [1e9, 1e9], 1e8)


@settings(max_examples=40, deadline=None)
@given(epochs=st.lists(st.tuples(st.floats(0.01, 10.0), st.floats(0.01, 10.0)), min_size=1, max_size=20))
def test_adaptivity_gap_is_the_difference_of_two_minima(epochs: list[tuple[float, float]]) -> None:
    hazards, rates = [h for h, _ in epochs], [b for _, b in epochs]

    def fixed(interval_s: float) -> float:
        return float(
            np.mean([intervals.cost_rate(interval_s, h, 3.0, b) for h, b in zip(hazards, rates, strict=True)])
        )

    adapted = float(
        np.mean([intervals.least_cost_rate(h, 3.0, b) for h, b in zip(hazards, rates, strict=True)])
    )
    best = fixed(intervals.fixed_interval_s(hazards, rates, 3.0))
    assert best <= min(fixed(s) for s in np.geomspace(0.01, 1000.0, 200)) * (1.0 + 1e-12)
    gap = intervals.adaptivity_gap(hazards, rates, 3.0)
    assert gap.gap == pytest.approx(best - adapted, abs=1e-9)
    assert gap.ratio == pytest.approx(best / adapted, rel=1e-9) and gap.ratio >= 1.0 - 1e-12


def test_correlation_of_hazard_and_slowness_shrinks_the_gap() -> None:
    rng = np.random.default_rng(5)
    for correlation in (-0.5, 0.0, 0.39, 1.0):
        normal = rng.multivariate_normal([0.0, 0.0], [[1.0, correlation], [correlation, 1.0]], 300_000)
        s, t = math.sqrt(math.log1p(0.62**2)), math.sqrt(math.log1p(0.39**2))
        hazards, slowness = np.exp(s * normal[:, 0]), np.exp(t * normal[:, 1])
        seen = intervals.adaptivity_gap(hazards.tolist(), (1.0 / slowness).tolist()).ratio
        assert intervals.lognormal_gap_ratio(0.62, 0.39, correlation) == pytest.approx(seen, abs=2e-3)
    assert intervals.lognormal_gap_ratio(0.5, 0.5, 1.0) == pytest.approx(1.0)
    with pytest.raises(DomainError, match="0/0"):
        intervals.adaptivity_gap([0.0, 0.0], [1.0, 2.0])


@settings(max_examples=50, deadline=None)
@given(hazard=HAZARD, payload=PAYLOAD, rate=RATE, budget_s=st.floats(1.0, 1e5), beta=st.floats(0.05, 1.0))
def test_constrained_interval_is_the_clip_or_the_floor(
    hazard: float, payload: float, rate: float, budget_s: float, beta: float
) -> None:
    found = intervals.constrained_interval(hazard, payload, rate, budget_s, beta)
    floor_s, cap_s = payload / (beta * rate), 2.0 * budget_s
    young_s = math.sqrt(2.0 * payload / (hazard * rate))
    expected_s = max(floor_s, min(young_s, cap_s))
    assert found.interval_s == pytest.approx(expected_s, rel=1e-12)
    if abs(floor_s - cap_s) > 1e-6 * cap_s:
        assert found.loss_budget_infeasible == (floor_s > cap_s)
    assert found.expected_loss_s == pytest.approx(expected_s / 2.0 + payload / rate)


@pytest.mark.parametrize(("events", "level"), [(0, 0.95), (1, 0.9), (7, 0.99), (358, 0.95)])
def test_hazard_bounds_invert_the_poisson_tails(events: int, level: float) -> None:
    found = intervals.hazard_bounds(events, 12.5, level)
    assert stats.poisson.cdf(events, found.upper * 12.5) == pytest.approx(1.0 - level, rel=1e-6)
    if events:
        assert stats.poisson.sf(events - 1, found.lower * 12.5) == pytest.approx(1.0 - level, rel=1e-6)
    assert intervals.hazard_bounds(events, 0.0).upper == math.inf


@settings(max_examples=40, deadline=None)
@given(
    table=st.lists(st.floats(0.0, 2e-4), min_size=24, max_size=24),
    start_h=st.floats(-30.0, 60.0),
    duration_h=st.floats(0.0, 80.0),
)
def test_survival_is_the_integral_of_the_hourly_table(
    table: list[float], start_h: float, duration_h: float
) -> None:
    borders = [
        start_h,
        *range(math.floor(start_h) + 1, math.ceil(start_h + duration_h)),
        start_h + duration_h,
    ]
    integral = sum(
        (b - a) * 3600.0 * table[math.floor((a + b) / 2.0) % 24] for a, b in itertools.pairwise(borders)
    )
    found = destinations.survival(table, start_h * 3600.0, duration_h * 3600.0)
    assert found == pytest.approx(math.exp(-integral), rel=1e-6)


def test_survival_for_ever_is_zero_or_one() -> None:
    assert destinations.survival([1e-5] * 24, 0.0, math.inf) == 0.0
    assert destinations.survival([0.0] * 24, 0.0, math.inf) == 1.0
    with pytest.raises(DomainError, match="24 rates"):
        destinations.survival([1e-5] * 23, 0.0, 1.0)
    with pytest.raises(DomainError, match="S = "):
        destinations.score_s(10.0, 1.2, 5.0)


@settings(max_examples=60, deadline=None)
@given(
    flows=st.lists(st.tuples(SMALL, st.integers(-2, 12).map(float)), min_size=0, max_size=7),
    share=st.integers(1, 12).map(float),
)
def test_admission_counts_are_brute_forces(flows: list[tuple[float, float]], share: float) -> None:
    payloads, slacks = [c for c, _ in flows], [s for _, s in flows]
    found = isolation.admissions(payloads, slacks, share)
    able = [i for i, slack in enumerate(slacks) if slack > 0.0]
    constant = most = 0
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(able, n) for n in range(len(able) + 1)
    ):
        if sum(payloads[i] / slacks[i] for i in chosen) <= share * (1.0 + 1e-9):
            constant = max(constant, len(chosen))
        ordered = sorted(chosen, key=lambda i: slacks[i])
        sums = itertools.accumulate(payloads[i] for i in ordered)
        if all(c <= share * slacks[i] * (1.0 + 1e-9) for c, i in zip(sums, ordered, strict=True)):
            most = max(most, len(chosen))
    assert len(found.smallest_demand_first) == constant
    assert len(found.fluid) == most
    taken, skipping, stopping, stopped = 0.0, [], [], False
    for i in sorted(able, key=lambda i: slacks[i]):
        fits = taken + payloads[i] / slacks[i] <= share * (1.0 + 1e-9)
        stopped |= not fits
        if fits:
            taken += payloads[i] / slacks[i]
            skipping.append(i)
        if not stopped:
            stopping.append(i)
    assert sorted(found.edf_skip) == sorted(skipping) and sorted(found.edf_stop) == sorted(stopping)


def test_ties_of_many_flows_go_to_the_lower_index() -> None:
    assert isolation.admissions([1.0] * 12, [1.0] * 12, 3.0).edf_skip == (0, 1, 2)


@settings(max_examples=60, deadline=None)
@given(
    flows=st.lists(st.tuples(SMALL, st.floats(0.0, 10.0)), min_size=1, max_size=6), spare=st.floats(0.0, 30.0)
)
def test_max_min_raises_the_lowest_first(flows: list[tuple[float, float]], spare: float) -> None:
    floors, caps = [f for f, _ in flows], [f + extra for f, extra in flows]
    share = sum(floors) + spare
    totals = isolation.max_min_totals(floors, caps, share)
    level = min(share, max(caps))
    low, high = 0.0, level
    for _ in range(200):  # the water level by bisection
        middle = (low + high) / 2.0
        taken = sum(min(max(middle, f), c) for f, c in zip(floors, caps, strict=True))
        low, high = (middle, high) if taken <= share else (low, middle)
    assert totals == pytest.approx(
        [min(max(high, f), c) for f, c in zip(floors, caps, strict=True)], abs=1e-6
    )
    extras = [t - f for t, f in zip(isolation.equal_increments(floors, caps, share), floors, strict=True)]
    most = max(extras)
    assert sum(extras) == pytest.approx(min(spare, sum(caps) - sum(floors)), abs=1e-6)
    assert all(
        e == pytest.approx(min(most, c - f), abs=1e-6) for e, f, c in zip(extras, floors, caps, strict=True)
    )


def test_reserve_and_residual() -> None:
    assert isolation.reserve(1e7, 0.3, 2e7) == 2e7 and isolation.migration_share(1e7, 0.3, 2e7) == 0.0
    assert isolation.migration_share(125e6, 0.3, 1e7) == pytest.approx(87.5e6)
    assert isolation.residual_for_research(1e7, 0.8, 2e7) == pytest.approx(6e6)
    assert isolation.residual_for_research(1e7) == 1e7
    assert isolation.residual_for_research(1e6, 0.5, 1e9) == 0.0
    with pytest.raises(DomainError, match="phi"):
        isolation.residual_for_research(1e7, 0.0, 1.0)


def test_minimum_rate_meets_the_deadline_exactly_and_no_time_is_infinite() -> None:
    rate = isolation.minimum_rate(3.2e9, 60.0, 10.0)
    assert 3.2e9 / rate + 10.0 == pytest.approx(60.0)
    assert isolation.minimum_rate(3.2e9, 10.0, 10.0) == math.inf
    with pytest.raises(DomainError, match="floors"):
        isolation.max_min_totals([8.0, 8.0], [9.0, 9.0], 12.0)
