"""Admission by the age of the gap: shapes, the search for one, its trial on newer jobs, and the controller."""

import math
from collections.abc import Generator
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from controller.core.coordinator import Coordinator
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.queueing.controllers.age import (
    FIRST_SEARCH,
    PLAIN,
    Age,
    ShapeSearch,
    _standard_error,
    ages_grid,
    price,
    saving,
    shape_of,
)
from controller.core.queueing.controllers.controller import Algorithm1, Controller
from controller.core.queueing.controllers.replay import (
    LONGEST,
    MEMORY,
    MIN_JOBS,
    Arrivals,
    Balance,
    RecordedArrivals,
    Replay,
    bisect_level,
)
from controller.core.queueing.replay import Rule
from experiments.inputs.scenario import loads
from experiments.theory.laws import Exponential, Gamma, Law
from experiments.theory.paper_b.targets import BATH_TUB, BY_NAME, Target
from experiments.worlds.queue.controller_runs import follow
from experiments.worlds.queue.history import DrawnHistory as Drawn
from experiments.worlds.queue.history import Piece
from testbed import messages as m
from tests.world import PROTOCOL, QUEUE, World, calm_and_finish, small_campus


def a_past(spots: Law, jobs: int, seed: int = 1) -> Arrivals:
    piece = Drawn(Exponential(12.0), spots, seed).piece(jobs)
    return Arrivals(0.0, piece.job_times_h, piece.spot_times_h, 0.0)


def searched(past: Arrivals, aim_s: float = 3.0) -> ShapeSearch:
    search = ShapeSearch(past, aim_s, 8.0)
    for _ in search.run():
        pass
    return search


def trial(past: Arrivals, shape: Rule) -> tuple[float, float]:
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
    assert 1.0 < best.admit_until_age_s < 5.0  # the first wall has a mean of 1 h
    assert 8.0 < best.admit_from_age_s < 16.0  # the second one stands at 24 h
    assert best.leave_at_age_s < best.admit_from_age_s


def test_spots_that_come_in_bursts_are_waited_for_early_only() -> None:
    best = searched(a_past(Gamma(0.25, 48.0), 4000)).best
    assert 4.0 < best.leave_at_age_s < 60.0
    assert best.admit_until_age_s < 60.0


def test_a_price_is_that_of_the_level_that_keeps_the_aim() -> None:
    past = a_past(BATH_TUB, 4000)
    for shape, aim_s in ((PLAIN, 3.0), (PLAIN, 18.0), (shape_of(2.0, 10.0, fewer=1.0), 18.0)):
        _, outcome = last(bisect_level(past, shape, aim_s, 8.0))
        assert last(price(past, shape, aim_s, 8.0)) == pytest.approx(outcome.on_demand / outcome.left, rel=0.005)


def test_chance_is_judged_by_batches_because_neighbours_fates_make_up_for_each_other() -> None:
    rng, shape = np.random.default_rng(1), shape_of(2.0, 10.0, fewer=1.0)
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
    saved, error = trial(a_past(BATH_TUB, 2000, seed=8), shape_of(2.5, 11.63, 2.5))
    assert saved > 5.0 * error > 0.0
    assert saved == pytest.approx((7.7863 - 6.488) / 9.0, abs=0.03)  # notes: the two costs, k = 10


def test_the_controller_decides_by_the_age_once_it_has_a_shape() -> None:
    learner = Age(3.0)
    learner.rule = replace(shape_of(2.0, 9.0, 3.0), level=1.5)
    assert learner.shape == shape_of(2.0, 9.0, 3.0)
    learner.hold(2.5)
    assert learner.rule == Rule(2.5, 2.0, 9.0, 3.0)


@pytest.mark.parametrize(("spots", "stays"), [(BATH_TUB, True), (Exponential(12.0), False)])
def test_the_shape_in_use_stays_while_it_saves_anything_though_none_proves_itself(spots: Law, stays: bool) -> None:
    past, learner, beginner = a_past(spots, 60), Age(3.0), Age(3.0)
    learner.rule = replace(shape_of(2.5, 11.63, 2.5), level=1.5)
    assert last(beginner._choose(past)) == PLAIN
    assert last(learner._choose(past)) == (learner.shape if stays else PLAIN)


def test_before_the_first_search_it_is_replay() -> None:
    past = a_past(BATH_TUB, FIRST_SEARCH - 1)
    learners: tuple[Replay, Age] = (Replay(3.0), Age(3.0))
    for learner in learners:
        for now_s in sorted([*past.jobs_s, *past.spots_s]):
            (learner.spot if now_s in past.spots_s else learner.arrived)(float(now_s))
            learner.work()
    assert learners[0].level == learners[1].level
    assert learners[1].shape == PLAIN


def course(controller: Controller, case: Target, jobs: int, seed: int, skip: int = 0) -> tuple[float, float]:
    """(mean delay of all jobs, mean cost of those after `skip`), hours."""
    followed = follow(controller, Drawn(case.jobs, case.spots, seed).piece(jobs), case.k)
    return float(np.nanmean(followed.delays_h)), float(np.nanmean(followed.costs[skip:]))


@pytest.mark.parametrize(
    ("name", "r0"),
    [("gamma-4", 6.0), *(pytest.param(name, 0.05, marks=pytest.mark.long) for name in ("uniform", "gamma-quarter"))],
)
def test_at_least_half_of_what_age_can_save_is_saved_and_the_delay_kept(name: str, r0: float) -> None:
    case = BY_NAME[name]
    delay_h, cost = course(Age(case.delta_h, r0=r0), case, 4000, seed=4, skip=2000)
    assert delay_h == pytest.approx(case.delta_h, rel=0.03)
    assert cost < (case.cost_star + case.age_aware_cost) / 2.0


def test_on_poisson_spots_it_costs_no_more_than_replay() -> None:
    case = BY_NAME["fig5"]
    costs = [course(make(case.delta_h), case, 3000, seed=6, skip=1500)[1] for make in (Age, Replay)]
    assert costs[0] <= 1.01 * costs[1]


@pytest.mark.parametrize("law", ["regular", pytest.param("by half days", marks=pytest.mark.long)])
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


# ---------------------------------------------------------------- history
def test_the_past_is_bounded_and_begins_at_an_offer() -> None:
    history = RecordedArrivals(window=5, offer_ttl_s=0.0)
    for now_s in range(20):
        history.spots_s.append(now_s + 0.5)
        history.jobs_s.append(now_s + 0.75)
    past = history.arrivals()
    assert past.jobs_s.tolist() == [15.75, 16.75, 17.75, 18.75, 19.75]
    assert past.began_s == 15.5
    assert past.spots_s.tolist() == [16.5, 17.5, 18.5, 19.5]


# ---------------------------------------------------------------- balance
def test_the_aim_is_the_target_less_the_debt_over_the_horizon() -> None:
    books = Balance(10.0)
    for _ in range(20):
        books.left(10.5)
    assert books.debt_s == pytest.approx(10.0)
    assert books.aim_s() == pytest.approx(10.0 * np.exp(-10.0 / (50 * 10.0)))
    for delay_s, owed in ((1e9, 1.0), (-1e9, -1.0)):  # of an endless debt only so much is to be paid back
        books.left(delay_s)
        assert books.debt_s == owed * MEMORY * LONGEST * 10.0


# ---------------------------------------------------------------- replay
def test_bisection_finds_the_level_whose_delay_on_the_past_is_the_aim() -> None:
    past = a_past(Exponential(24.0), 3000)
    level, outcome = last(bisect_level(past, PLAIN, 8.0, 8.0))
    assert outcome.mean_delay_s == pytest.approx(8.0, rel=0.01)
    assert past.run(Rule(level)).mean_delay_s == outcome.mean_delay_s


def test_nothing_moves_in_a_decision_only_between_them() -> None:
    learner = Replay(3.0, every=5, r0=6.0)
    for number in range(40):
        learner.spot(24.0 * number)
        learner.arrived(24.0 * number + 5.0)
        learner.left(19.0)
    assert learner.level == 6.0
    while learner.work():
        pass
    assert learner.level < 1.0
    assert not learner.work()


def test_too_little_of_a_past_leaves_the_start_alone() -> None:
    learner = Replay(3.0, r0=2.0)
    for number in range(MIN_JOBS - 1):
        learner.spot(float(number))
        learner.arrived(number + 0.5)
    assert not learner.work()
    assert learner.level == 2.0


@pytest.mark.parametrize("wrong", [{"every": 0}, {"r0": 9.0}, {"r_max": float("inf")}, {"window": 0}])
def test_parameters_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"every|r0|window"):
        Replay(3.0, **wrong)


@pytest.mark.parametrize("r0", [0.05, 6.0])
@pytest.mark.parametrize("name", ["fig2-poisson", "fig5"])
def test_replay_keeps_delay_and_cost_from_either_start(name: str, r0: float) -> None:
    case = BY_NAME[name]
    delay_h, cost = course(Replay(case.delta_h, r0=r0), case, 5000, seed=3)
    assert delay_h == pytest.approx(case.delta_h, rel=0.03)
    assert cost == pytest.approx(case.cost_star, rel=0.03)


def test_a_replay_that_is_wrong_for_ever_is_corrected_by_the_measured_delay() -> None:
    """Every second offer is of no use to anybody, and the past does not say so."""

    class Blind(Replay):
        def run_offers(self, now_s: float) -> None:
            super().spot(now_s)
            super().spot(now_s + 1e-3)

        def spot(self, now_s: float = 0.0) -> None:
            self.run_offers(now_s)

    case = BY_NAME["fig5"]
    delay_h, _ = course(Blind(case.delta_h), case, 6000, seed=5)
    assert delay_h == pytest.approx(case.delta_h, rel=0.05)


def test_the_level_follows_when_offers_become_rare() -> None:
    """M/M, one job each 12 s, target 6 s: r* = 1.667 with an offer each 6 s, .5 with one each 24 s (Theorem 4)."""
    rng = np.random.default_rng(2)
    learner, levels, now_s = Replay(6.0, window=1000), [], 0.0
    for spot_rate_per_s in (1 / 6, 1 / 24):
        for _ in range(4000):
            rate_per_s = 1 / 12 + spot_rate_per_s
            now_s += rng.exponential(1 / rate_per_s)
            if rng.random() < spot_rate_per_s / rate_per_s:
                learner.spot(now_s)
            else:
                learner.arrived(now_s)
                learner.left(6.0)
            while learner.work():
                pass
        levels.append(learner.level)
    assert levels == [pytest.approx(1.667, rel=0.2), pytest.approx(0.5, rel=0.2)]


@pytest.mark.parametrize(("delay_s", "levels"), [(0.0, [2.5, 3.0, 3.5]), (9.0, [1.5, 1.0, 0.5])])
def test_a_past_that_says_nothing_of_the_level_leaves_it_to_the_books(delay_s: float, levels: list[float]) -> None:
    learner, seen = Replay(3.0, every=10, r0=2.0, offer_ttl_s=math.inf), []
    for number in range(30):
        for part in range(2):
            learner.spot(number + 0.1 * part)
        learner.arrived(number + 0.5)
        learner.left(delay_s)
        if number % 10 == 9:
            while learner.work():
                pass
            seen.append(learner.level)
    assert seen == levels


# ---------------------------------------------------------------- controllers in the coordinator
TEXT = """
name = "x"
duration = "10 min"
campus = "example:lab"
[queue]
learner = "{}"
"""


class Busy(Controller):
    """Has so many slices to do, and counts in which event they were done."""

    def __init__(self, slices: int) -> None:
        super().__init__(Rule(3.0))
        self.slices, self.done = slices, 0

    def work(self) -> bool:
        """One less."""
        if self.slices == 0:
            return False
        self.slices, self.done = self.slices - 1, self.done + 1
        self.hold(self.level + 1.0)
        return True


def a_core(busy: Busy) -> Coordinator:
    core = Coordinator(small_campus(2, 1), PROTOCOL, QUEUE, lambda: 0.0)
    core.cluster.queue.controller = busy
    return core


def test_slices_are_done_one_an_event_of_their_own_until_nothing_is_left() -> None:
    busy = Busy(3)
    core = a_core(busy)
    assert core.next_deadline_s() == inf
    core.handle(ev.SubmitAsked(m.JobSpec("a", 10, 0.1, 1), 0.0, 7), 1.0)
    assert (busy.done, core.next_deadline_s()) == (0, 1.0)  # submitting decided, and only that
    seen = []
    while core.next_deadline_s() <= 1.0:
        core.handle(ev.Woke(), 1.0)
        seen.append(busy.done)
    assert seen == [1, 2, 3, 3]
    assert core.next_deadline_s() == inf


def test_a_job_that_must_leave_is_sent_off_before_anything_is_learned() -> None:
    busy = Busy(5)
    busy.rule = Rule(3.0, longest_wait_s=2.0)
    core = a_core(busy)
    core.handle(ev.SubmitAsked(m.JobSpec("a", 10, 0.1, 1), 0.0, 7), 1.0)
    effects = core.handle(ev.Woke(), 3.0)
    assert busy.done == 0
    assert effects[0].fact == f.JobRedirected("a", 0, 3.0, 2.0)


@pytest.mark.parametrize(
    ("name", "kind"), [("fixed", Controller), ("algorithm1", Algorithm1), ("replay", Replay), ("age", Age)]
)
def test_a_scenario_names_who_learns(name: str, kind: type[Controller]) -> None:
    scenario = loads(TEXT.format(name))
    core = Coordinator(scenario.campus, scenario.played().protocol, scenario.played().queue, lambda: 0.0)
    assert type(core.cluster.queue.controller) is kind


def test_without_on_demand_hosts_everybody_waits_whoever_learns() -> None:
    core = Coordinator(small_campus(2, 0), PROTOCOL, replace(QUEUE, learner="age"), lambda: 0.0)
    assert type(core.cluster.queue.controller) is Controller


@pytest.mark.parametrize("name", ["replay", "age"])
@pytest.mark.parametrize("ttl_s", [0.0, 5.0, inf])
def test_a_campus_keeps_its_promises_while_a_controller_learns(name: str, ttl_s: float) -> None:
    queue = replace(QUEUE, learner=name, offer_ttl_s=ttl_s, level_start=1.0, level_window=5)
    world = World(small_campus(3, 1), PROTOCOL, queue)
    world.start()
    world.run(0.5)
    for number in range(60):
        world.submit(m.JobSpec(f"j{number}", 20, 0.1, 2_000_000), draw=(0.37 * number) % 1.0)
        world.run(1.0 + number)
    assert world.coordinator.cluster.queue.statistics.arrivals == 60
    calm_and_finish(world)
    assert any(isinstance(fact, f.LevelLearned) for _, fact in world.facts)
