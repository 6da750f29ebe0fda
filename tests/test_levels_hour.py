"""Admission by the hour: rates of a record, the program of a day, tables in order, and the controller that may follow them."""

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from controller.core.queueing.controllers.age import Age
from controller.core.queueing.controllers.age_rules import PLAIN, saving
from controller.core.queueing.controllers.arrivals import Arrivals
from controller.core.queueing.controllers.hour_and_age import HourAndAge
from controller.core.queueing.controllers.hour_rules import HOURS, DayProgram, HourShape, Rates, fit, rates_of
from controller.core.queueing.controllers.replay import bisect_level
from controller.core.queueing.queue import Controller
from controller.core.queueing.replay import Rule
from experiments.worlds.queue.controller_runs import follow
from experiments.worlds.queue.history import Piece

DAY_H = 24.0
BY_DAY = [0.2 if 9 <= hour < 18 else 0.013 for hour in range(HOURS)]


def a_piece(per_h: list[float], jobs: int, seed: int) -> Piece:
    """Poisson jobs, one in 12 h, and Poisson offers at a rate of the hour."""
    rng = np.random.default_rng(seed)
    jobs_h = np.cumsum(rng.exponential(12.0, jobs))
    drawn_h = np.cumsum(rng.exponential(1.0 / max(per_h), int(1.1 * jobs_h[-1] * max(per_h)) + 100))
    kept = rng.random(len(drawn_h)) * max(per_h) < np.array(per_h)[(drawn_h % DAY_H).astype(int)]
    return Piece(jobs_h, drawn_h[kept & (drawn_h <= jobs_h[-1])], rng.random(jobs))


def a_past(per_h: list[float], jobs: int, seed: int = 1) -> Arrivals:
    piece = a_piece(per_h, jobs, seed)
    return Arrivals(0.0, piece.job_times_h, piece.spot_times_h, 0.0)


def last(steps: Generator[int, None, Any]) -> Any:
    """What a search returns in the end."""
    try:
        while True:
            next(steps)
    except StopIteration as found:
        return found.value


def fitted(past: Arrivals, aim_h: float = 3.0, by_hour: bool = True) -> HourShape:
    shape: HourShape = last(fit(past, aim_h, 8.0, DAY_H, 0.0, by_hour))
    return shape


def cost(past: Arrivals, shape: Any, aim_h: float = 3.0) -> float:
    _, outcome = last(bisect_level(past, shape.rule, aim_h, 8.0))
    return float(outcome.mean_cost(10.0))


def test_rates_of_a_record_are_those_it_was_drawn_from() -> None:
    rates = rates_of(a_past(BY_DAY, 20_000), DAY_H, 0.0)
    assert rates.share_of_time.sum() == pytest.approx(1.0)
    assert rates.jobs == pytest.approx(np.full(HOURS, 1 / 12), rel=0.2)
    by_hour = (rates.spots * rates.share_of_time).sum(axis=1) / rates.share_of_time.sum(axis=1)
    assert by_hour == pytest.approx(np.array(BY_DAY), rel=0.3)


def test_time_and_offers_are_counted_in_their_cells() -> None:
    past = Arrivals(0.5, np.array([60.0]), np.array([1.5, 25.25]), 0.0)
    rates = rates_of(past, DAY_H, 1.0)
    spent_h = rates.share_of_time * 59.5
    # from half past one on day 0 to 13 o'clock on day 2
    assert spent_h.sum(axis=1) == pytest.approx([2.0, 2.5] + [3.0] * 11 + [2.0] * 11)
    assert spent_h.sum() == pytest.approx(59.5)
    # the first gap ends at the age of 1 h, the others are older than the youngest age
    assert spent_h[:, 0].sum() == pytest.approx(1.0 + 2.0 * rates.ages_s[1])


def test_by_age_alone_all_hours_are_alike() -> None:
    rates = rates_of(a_past(BY_DAY, 2_000), DAY_H, 0.0, by_hour=False)
    assert (rates.spots == rates.spots[0]).all()
    assert (rates.jobs == rates.jobs[0]).all()


def a_program(per_h: float | NDArray[np.float64]) -> DayProgram:
    spots = np.broadcast_to(np.asarray(per_h), (HOURS,))[:, None].copy()
    rates = Rates(np.full(HOURS, 1 / 12), spots, np.zeros(1), np.full((HOURS, 1), 1 / HOURS))
    return DayProgram(rates, 8, DAY_H)


def test_dearer_waits_have_shorter_queues_and_a_wait_dearer_than_its_offer_none() -> None:
    program = a_program(1 / 12)
    means = [last(program.levels(price)).mean() for price in (0.001, 0.01, 0.03, 0.07, 0.09, 1.0)]
    assert means == sorted(means, reverse=True)
    assert means[-2:] == [0.0, 0.0]  # one job waits 12 h on average: at most 1/12 an hour pays
    assert means[-3] == 1.0


def test_before_offers_stop_for_the_night_fewer_wait() -> None:
    levels = last(a_program(np.array(BY_DAY)).levels(0.05))[:, 0]
    assert levels[10] > levels[17] > levels[20]
    assert levels[8] > levels[3]


def test_tables_rise_with_their_mean_and_go_over_into_each_other() -> None:
    shape = fitted(a_past(BY_DAY, 4_000))
    assert (np.diff(shape.means) > 0.0).all()
    assert shape.table(0.0).levels.max() == 0.0
    assert shape.table(8.0).levels.min() == 8.0
    between = shape.table(float(shape.means[1:3].mean())).levels
    assert between == pytest.approx((shape.tables[1] + shape.tables[2]) / 2.0)


# the bounds: a linear program over (number waiting, hour), converged to the third decimal
@pytest.mark.parametrize(("delta", "bound"), [(3.0, 6.771), (18.0, 3.343)])
def test_on_offers_by_day_the_tables_come_within_three_percent_of_the_bound(
    delta: float, bound: float
) -> None:
    tables = fitted(a_past(BY_DAY, 10_000, seed=3), delta)
    assert cost(a_past(BY_DAY, 40_000, seed=4), tables, delta) < 1.03 * bound


def test_the_hour_saves_jobs_for_sure_where_offers_come_by_day_and_not_where_they_do_not() -> None:
    for per_h, says in ((BY_DAY, True), ([1 / 12] * 24, False)):
        tables = fitted(a_past(per_h, 2_000, seed=5))
        saved, error = last(saving(a_past(per_h, 2_000, seed=6), tables, 3.0, 8.0, PLAIN))
        assert (saved > 2.0 * error) is says


def test_a_day_of_another_length_that_began_earlier_is_the_same_day() -> None:
    past = a_past(BY_DAY, 2_000)
    scaled = Arrivals(0.0, past.jobs_s / 100.0, past.spots_s / 100.0, 0.0)
    one = last(fit(past, 3.0, 8.0, DAY_H, 0.0))
    other = last(fit(scaled, 0.03, 8.0, DAY_H / 100.0, 0.0))
    turned = last(fit(past, 3.0, 8.0, DAY_H, 6.0))
    assert other.means == pytest.approx(one.means, abs=0.02)
    assert np.roll(turned.tables[2], -6, axis=0) == pytest.approx(one.tables[2], abs=1.0)


@pytest.mark.parametrize("gap_h", [12.0, 0.05, 700.0])
def test_the_work_of_a_fit_is_bounded_where_offers_are_regular_frequent_or_rare(gap_h: float) -> None:
    jobs_h = np.cumsum(np.random.default_rng(9).exponential(12.0, 600))
    past = Arrivals(0.0, jobs_h, np.cumsum(np.full(max(20, int(7_200 / gap_h)), gap_h)), 0.0)
    assert sum(fit(past, 3.0, 8.0, DAY_H, 0.0)) < 400 * max(2_000, len(past))


def course(controller: Controller, piece: Piece) -> tuple[float, float]:
    """(mean delay of all jobs, mean cost of the last half), hours."""
    followed = follow(controller, piece, 10.0)
    return float(np.nanmean(followed.delays_h)), float(np.nanmean(followed.costs[len(piece.draws) // 2 :]))


def test_the_controller_saves_by_the_hour_keeps_the_delay_and_falls_back_where_hours_are_alike() -> None:
    by_day = a_piece(BY_DAY, 1_500, 7)
    learner = HourAndAge(3.0, day_s=DAY_H)
    delay_h, paid = course(learner, by_day)
    assert learner.hours is not None
    assert delay_h == pytest.approx(3.0, rel=0.03)
    assert paid < 0.95 * course(Age(3.0), by_day)[1]
    alike = a_piece([1 / 12] * 24, 800, 8)
    learner = HourAndAge(3.0, day_s=DAY_H)
    assert course(learner, alike)[1] <= 1.01 * course(Age(3.0), alike)[1]
    assert learner.hours is None


def test_what_is_held_decides() -> None:
    learner = HourAndAge(3.0, day_s=DAY_H)
    assert learner.rule_at(1.0) == Rule(1.0) and learner.table is None
    learner.hours = fitted(a_past(BY_DAY, 2_000))
    learner.hold(0.6)
    assert learner.level == 0.6
    assert learner.table is not None and learner.rule_at(0.6).table is not None
    assert (learner.table.levels == learner.hours.table(0.6).levels).all()
