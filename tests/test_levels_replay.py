"""The controllers that learn from the recorded past: its record, the books of the delay, and r by replay."""

import math

import numpy as np
import pytest

from controller.core.queueing.controllers.arrivals import Arrivals, RecordedArrivals
from controller.core.queueing.controllers.delay_budget import Balance
from controller.core.queueing.controllers.replay import (
    MIN_JOBS,
    Replay,
    bisect_level,
)
from controller.core.queueing.queue import Controller
from controller.core.queueing.replay import Rule
from experiments.theory.paper_b.targets import BY_NAME, Target
from experiments.worlds.queue.controller_runs import follow
from experiments.worlds.queue.history import DrawnHistory as Drawn


def a_past(jobs: int, seed: int = 1, spots: float = 24.0) -> Arrivals:
    rng = np.random.default_rng(seed)
    jobs_s, spots_s = np.cumsum(rng.exponential(12.0, jobs)), np.cumsum(rng.exponential(spots, jobs))
    return Arrivals(0.0, jobs_s, spots_s[spots_s < jobs_s[-1]], 0.0)


# ---------------------------------------------------------------- history


def test_the_past_is_bounded_and_begins_at_an_offer() -> None:
    history = RecordedArrivals(window=5, offer_ttl_s=0.0)
    for now_s in range(20):
        history.spot(now_s + 0.5)
        history.job(now_s + 0.75)
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


# ---------------------------------------------------------------- replay


def test_bisection_finds_the_level_whose_delay_on_the_past_is_the_aim() -> None:
    past = a_past(3000)
    search = bisect_level(past, Rule, 8.0, 8.0)
    try:
        while True:
            assert next(search) == len(past)
    except StopIteration as found:
        level, outcome = found.value
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
        Replay(3.0, **wrong)  # type: ignore[arg-type]


def course(controller: Controller, case: Target, jobs: int, seed: int) -> tuple[float, float]:
    """(mean delay, mean cost) of all jobs, hours."""
    followed = follow(controller, Drawn(case.jobs, case.spots, seed).piece(jobs), case.k)
    return float(np.nanmean(followed.delays_h)), float(np.nanmean(followed.costs))


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
def test_a_past_that_says_nothing_of_the_level_leaves_it_to_the_books(
    delay_s: float, levels: list[float]
) -> None:
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
