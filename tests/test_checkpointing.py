"""P1: intervals, the cube-root allocation and its bounds, and how those that cannot be kept are flagged."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.checkpointing import intervals as p1
from tests.checkpoint_jobs import HOUR_S, TRUNK, job


def lemma_2_as_printed(jobs: list[p1.CheckpointJob], budget: float) -> dict[str, float]:
    """The paper's water-filling iteration, cap by cap."""
    active = {j.key: j for j in jobs}
    rates: dict[str, float] = {}
    while active:
        total = sum(j.weight for j in active.values())
        share = {key: budget * j.weight / total for key, j in active.items()}
        over = [key for key, j in active.items() if share[key] > j.write_cap_bytes_per_s]
        if not over:
            return rates | share
        for key in over:
            rates[key] = active.pop(key).write_cap_bytes_per_s
            budget -= rates[key]
    return rates


some_jobs = st.lists(
    st.tuples(st.floats(1e6, 1e11), st.floats(1e-3, 50.0), st.floats(1e5, 1e9)), min_size=1, max_size=8
)


def test_youngs_interval_takes_hazard_per_second() -> None:
    assert p1.local_interval_s(0.2 / HOUR_S, 120e6, 100e6) == pytest.approx(207.846, rel=1e-5)


def test_youngs_interval_costs_least() -> None:
    """lambda D/2 + C/(b D), seconds lost a second."""

    def cost(interval_s: float) -> float:
        return 1e-4 * interval_s / 2.0 + 1e9 / 5e7 / interval_s

    best_s = p1.local_interval_s(1e-4, 1e9, 5e7)
    assert cost(best_s) == pytest.approx(math.sqrt(2.0 * 1e-4 * 1e9 / 5e7))
    assert all(cost(best_s * factor) > cost(best_s) for factor in (0.5, 0.9, 1.1, 2.0))


def allocate(jobs: list[p1.CheckpointJob], budget: float) -> dict[str, float]:
    """Rates of jobs that share one budget."""
    return {key: plan.rate_bytes_per_s for key, plan in p1.plan_as_printed(jobs, {TRUNK: budget}).items()}


def test_the_cube_root_of_hazard_times_payload_divides_the_budget() -> None:
    assert allocate([job("small"), job("large", payload=8e9)], 30e6) == pytest.approx(
        {"small": 1e7, "large": 2e7}
    )


@given(some_jobs, st.floats(1e5, 3e9))
def test_one_filling_equals_the_printed_iteration_of_lemma_2(
    shapes: list[tuple[float, float, float]], budget: float
) -> None:
    jobs = [job(str(i), payload, per_h, cap) for i, (payload, per_h, cap) in enumerate(shapes)]
    assert allocate(jobs, budget) == pytest.approx(lemma_2_as_printed(jobs, budget), rel=1e-9)


def test_a_job_without_hazard_gets_nothing_and_checkpoints_never() -> None:
    plans = p1.plan_as_printed([job("calm", per_h=0.0), job("busy", per_h=1.0)], {TRUNK: 1e8})
    assert plans["calm"].rate_bytes_per_s == 0.0 and plans["calm"].interval_s == math.inf


def test_a_loss_budget_that_its_share_cannot_keep_is_flagged_with_the_loss_it_will_see() -> None:
    jobs = [job("a", loss_budget_s=100.0), job("b", loss_budget_s=100.0)]
    for plan in p1.plan_as_printed(jobs, {TRUNK: 10e6}).values():
        assert plan.rate_bytes_per_s == pytest.approx(5e6)
        assert plan.interval.loss_budget_infeasible
        assert plan.interval.bound is p1.RateBound.NETWORK
        assert plan.interval_s == pytest.approx(1e9 / (0.2 * 5e6))
        assert plan.interval.expected_loss_s == pytest.approx(plan.interval_s / 2 + 200.0)


def test_a_write_cap_below_what_the_loss_budget_needs_wins_and_is_flagged() -> None:
    plan = p1.plan_as_printed([job("slow", cap=1e6, loss_budget_s=100.0)], {TRUNK: 1e9})["slow"]
    assert plan.rate_bytes_per_s == 1e6
    assert plan.interval.loss_budget_infeasible


@pytest.mark.parametrize("hazard", [0.0, 1e-4])
@pytest.mark.parametrize("rate", [0.0, 1e6])
@pytest.mark.parametrize("budget_s", [0.0, 100.0, math.inf])
def test_no_corner_gives_nan(hazard: float, rate: float, budget_s: float) -> None:
    interval = p1.constrained_interval(hazard, 1e9, rate, budget_s)
    assert not math.isnan(interval.interval_s) and not math.isnan(interval.expected_loss_s)
    assert interval.interval_s >= p1.network_floor_s(1e9, rate)
    assert interval.loss_budget_infeasible == (budget_s < math.inf and (rate == 0.0 or budget_s < 2500.0))


def test_without_bandwidth_no_job_ever_checkpoints_and_it_is_said() -> None:
    plan = p1.plan_as_printed([job("a", loss_budget_s=60.0)], {TRUNK: 0.0})["a"]
    assert plan.interval_s == math.inf
    assert plan.interval.loss_budget_infeasible


def test_one_interval_for_all_is_youngs_interval_of_the_means() -> None:
    jobs = [job("a", payload=1e9, per_h=1.0), job("b", payload=3e9, per_h=2.0)]
    plans = p1.plan_one_interval(jobs, {TRUNK: 1e9}, 0.2)
    rates = [plan.rate_bytes_per_s for plan in plans.values()]
    theta = sum(1 / rate for rate in rates) / 2
    expected_s = math.sqrt(2 * 2e9 * theta / (1.5 / HOUR_S))
    assert [plan.interval_s for plan in plans.values()] == pytest.approx([expected_s, expected_s])


def test_a_job_without_hazard_does_not_keep_the_others_from_their_one_interval() -> None:
    plans = p1.plan_one_interval([job("a"), job("calm", per_h=0.0)], {TRUNK: 1e7}, 0.2)
    assert plans["a"].interval_s == pytest.approx(math.sqrt(2 * 1e9 / 1e7 / (0.5 / HOUR_S)))
    assert plans["calm"].interval_s == math.inf


def test_a_static_interval_ignores_hazard_and_wire() -> None:
    jobs = [job("a", per_h=50.0), job("b", payload=400e9)]
    plans = p1.StaticPlanner(600.0)(jobs, {TRUNK: 1e9}, 0.2)
    assert [plan.interval_s for plan in plans.values()] == [600.0, 600.0]
    assert [plan.rate_bytes_per_s for plan in plans.values()] == [0.5e9, 0.5e9]


def test_the_latest_final_checkpoint_ends_with_the_restart_at_the_deadline() -> None:
    start_s = p1.latest_final_start_s(100.0, 10.0, 2e9, 1e8)
    assert start_s + 2e9 / 1e8 + 10.0 == 100.0


@pytest.mark.parametrize("jobs", [2, 7, 33, 200])
def test_staggered_timers_stay_apart_whatever_their_number(jobs: int) -> None:
    fires = sorted(p1.stagger(index, 600.0) for index in range(jobs))
    gaps = [b - a for a, b in zip(fires, [*fires[1:], fires[0] + 600.0], strict=True)]
    assert min(gaps) >= 0.38 * 600.0 / jobs
    assert fires[0] >= 0.0 and fires[-1] < 600.0


def test_correlated_hazard_and_slowness_leave_less_to_adapt() -> None:
    hazards = [1.0, 1.0, 4.0, 4.0]
    independent = p1.adaptivity_gap(hazards, [1.0, 4.0, 1.0, 4.0], 1.0)
    correlated = p1.adaptivity_gap(hazards, [4.0, 4.0, 1.0, 1.0], 1.0)
    assert correlated.ratio == pytest.approx(1.0)
    assert independent.ratio > 1.1
