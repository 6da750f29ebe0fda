"""Admission by the age of the gap: shapes, the search for one, its trial on newer jobs, and the controller."""

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from controller.core.queueing.controllers.age import FIRST_SEARCH, Age
from controller.core.queueing.controllers.age_rules import (
    PLAIN,
    RuleShape,
    ShapeSearch,
    _standard_error,
    ages_grid,
    price,
    saving,
)
from controller.core.queueing.controllers.arrivals import Arrivals
from controller.core.queueing.controllers.replay import Replay, bisect_level
from controller.core.queueing.queue import Controller
from experiments.theory.laws import Exponential, Gamma, Law
from experiments.theory.paper_b.targets import BATH_TUB, BY_NAME, Target
from experiments.worlds.queue.controller_runs import follow
from experiments.worlds.queue.history import DrawnHistory as Drawn
from experiments.worlds.queue.history import Piece


def a_past(spots: Law, jobs: int, seed: int = 1) -> Arrivals:
    piece = Drawn(Exponential(12.0), spots, seed).piece(jobs)
    return Arrivals(0.0, piece.job_times_h, piece.spot_times_h, 0.0)


def searched(past: Arrivals, aim_s: float = 3.0) -> ShapeSearch:
    search = ShapeSearch(past, aim_s, 8.0)
    for _ in search.run():
        pass
    return search


def trial(past: Arrivals, shape: RuleShape) -> tuple[float, float]:
    answer: tuple[float, float] = last(saving(past, shape, 3.0, 8.0))
    return answer


def last(steps: Generator[int, None, Any]) -> Any:
    """What a search returns in the end."""
    try:
        while True:
            next(steps)
    except StopIteration as found:
        return found.value


def test_the_grid_of_ages_rises_from_above_zero_to_nearly_the_longest_gap() -> None:
    grid_s = ages_grid(a_past(BATH_TUB, 2000).gaps_s())
    assert grid_s == sorted(set(grid_s))
    assert grid_s[0] > 0.0
    assert 20.0 < grid_s[-1] < 24.0
    assert ages_grid(np.array([])) == []


def test_on_bath_tub_spots_the_search_finds_both_walls() -> None:
    best = searched(a_past(BATH_TUB, 4000)).best
    assert 1.0 < best.until_s < 5.0  # the first wall has a mean of 1 h
    assert 8.0 < best.from_s < 16.0  # the second one stands at 24 h
    assert best.leave_s < best.from_s


def test_spots_that_come_in_bursts_are_waited_for_early_only() -> None:
    best = searched(a_past(Gamma(0.25, 48.0), 4000)).best
    assert 4.0 < best.leave_s < 60.0
    assert best.until_s < 60.0


def test_a_price_is_that_of_the_level_that_keeps_the_aim() -> None:
    past = a_past(BATH_TUB, 4000)
    for shape, aim_s in ((PLAIN, 3.0), (PLAIN, 18.0), (RuleShape(2.0, 10.0, fewer=1.0), 18.0)):
        _, outcome = last(bisect_level(past, shape.rule, aim_s, 8.0))
        assert last(price(past, shape, aim_s, 8.0)) == pytest.approx(
            outcome.on_demand / outcome.left, rel=0.005
        )


def test_chance_is_judged_by_batches_because_neighbours_fates_make_up_for_each_other() -> None:
    rng, shape = np.random.default_rng(1), RuleShape(2.0, 10.0, fewer=1.0)
    found = [last(saving(a_past(BATH_TUB, 1000, seed), shape, 18.0, 8.0)) for seed in range(12)]
    saved, errors = np.array(found).T
    assert 0.5 * saved.std(ddof=1) < errors.mean() < 2.0 * saved.std(ddof=1)
    noise = rng.normal(size=(200, 400))
    assert np.mean([_standard_error(row) for row in noise]) == pytest.approx(0.05, rel=0.1)


def test_where_the_plain_rule_is_quick_enough_at_any_level_nothing_is_searched() -> None:
    search = searched(a_past(Exponential(0.5), 500))
    assert list(search.prices) == [PLAIN]
    assert search.best == PLAIN


def test_a_good_shape_proves_itself_on_newer_jobs() -> None:
    saved, error = trial(a_past(BATH_TUB, 2000, seed=8), RuleShape(2.5, 11.63, 2.5))
    assert saved > 5.0 * error > 0.0
    assert saved == pytest.approx((7.7863 - 6.488) / 9.0, abs=0.03)  # notes: the two costs, k = 10


def test_the_controller_decides_by_the_age_once_it_has_a_shape() -> None:
    learner = Age(3.0)
    learner.follow(RuleShape(2.0, 9.0, 3.0), 1.5)
    assert [learner.admit_probability(0, age_s) for age_s in (1.9, 2.0, 8.9, 9.0)] == [1.0, 0.0, 0.0, 1.0]
    assert [learner.admit_probability(n, 0.0) for n in (0, 1, 2)] == [1.0, 0.5, 0.0]
    assert learner.leave_at_age_s == 3.0


def test_before_the_first_search_it_is_replay() -> None:
    past = a_past(BATH_TUB, FIRST_SEARCH - 1)
    learners: tuple[Replay, Age] = (Replay(3.0), Age(3.0))
    for learner in learners:
        for now_s in sorted([*past.jobs_s, *past.spots_s]):
            (learner.spot if now_s in past.spots_s else learner.arrived)(float(now_s))
            learner.work()
    assert learners[0].level == learners[1].level
    assert learners[1].shape == PLAIN


def course(controller: Controller, case: Target, jobs: int, seed: int) -> tuple[float, float]:
    """(mean delay of all jobs, mean cost of the last half), hours."""
    followed = follow(controller, Drawn(case.jobs, case.spots, seed).piece(jobs), case.k)
    return float(np.nanmean(followed.delays_h)), float(np.nanmean(followed.costs[jobs // 2 :]))


@pytest.mark.parametrize(
    ("name", "r0"),
    [("uniform", 0.05), ("gamma-4", 6.0), pytest.param("gamma-quarter", 0.05, marks=pytest.mark.long)],
)
def test_at_least_half_of_what_age_can_save_is_saved_and_the_delay_kept(name: str, r0: float) -> None:
    case = BY_NAME[name]
    assert case.age_aware_cost is not None
    delay_h, cost = course(Age(case.delta_h, r0=r0), case, 4000, seed=4)
    assert delay_h == pytest.approx(case.delta_h, rel=0.03)
    assert cost < (case.cost_star + case.age_aware_cost) / 2.0


def test_on_poisson_spots_it_costs_no_more_than_replay() -> None:
    case = BY_NAME["fig5"]
    costs = [course(make(case.delta_h), case, 3000, seed=6)[1] for make in (Age, Replay)]
    assert costs[0] <= 1.01 * costs[1]


@pytest.mark.parametrize("law", ["regular", "by half days"])
def test_offers_that_no_law_assumed_keep_the_delay_and_cost_no_more_than_replay(law: str) -> None:
    rng = np.random.default_rng(1)
    jobs_h = np.cumsum(rng.exponential(12.0, 2000))
    if law == "regular":
        offers_h = 12.0 * np.arange(1, 2500)
    else:  # ten times as many before noon as after
        drawn_h = np.cumsum(rng.exponential(6.0, 6000))
        offers_h = drawn_h[(drawn_h % 24.0 < 12.0) | (rng.random(6000) < 0.1)]
    piece = Piece(jobs_h, offers_h[offers_h <= jobs_h[-1]], rng.random(2000))
    found = [follow(make(3.0, r0=6.0), piece, 10.0) for make in (Age, Replay)]
    delay_h, cost, of_replay = np.nanmean(found[0].delays_h), *(np.nanmean(each.costs) for each in found)
    assert delay_h == pytest.approx(3.0, rel=0.05)
    assert cost < 1.02 * of_replay
