"""Paper B's Figs. 2 to 5: what a run keeps, and a judge that wrong values do not get past."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from controller.core.queueing.controllers.controller import R_MAX, Controller
from controller.core.queueing.replay import LEFT, SPOT, WAITING, Rule, replay
from experiments.claims.framework.claim import Claim, ClaimKind, Level
from experiments.claims.framework.values import Value, Values, ValuesError
from experiments.claims.framework.verdicts import judge
from experiments.claims.paper_b import learning, learning_runs
from experiments.claims.paper_b.learning import LearningCase
from experiments.claims.paper_b.learning_runs import AGE, ALGORITHM1, FIXED, LARGE, REPLAY, SMALL, label, labels
from experiments.claims.registry import CLAIMS
from experiments.theory.paper_b.targets import BY_NAME
from experiments.worlds.queue.controller_runs import STEP_PER_H, follow
from experiments.worlds.queue.history import DrawnHistory, Piece
from tests.algorithm1_printed import PrintedAlgorithm1
from tests.claim_values import changed

SETTINGS = {"tolerance": "0.02", "jobs": "1000", "runs": "2 seeds"}


def perfect(case: LearningCase) -> Iterator[Value]:
    """Values of a world where everything is as theory says."""
    exact = case.exact
    for name, (system, start) in labels().items():
        low = start == SMALL
        numbers = {
            "delay": exact.delta_h,
            "cost": exact.cost_star,
            "r away": 0.01,
            "early delay": 0.2 * exact.delta_h if low else 3.0 * exact.delta_h,
            "early cost": 9.5 if low else 1.2,
        }
        for quantity, measured in numbers.items():
            yield Value(case.group, name, quantity, "", measured, 0.999 * measured, 1.001 * measured, 60)
        if system in (REPLAY, AGE):
            settled = f"{name} - {label(ALGORITHM1, start)}"
            yield Value(case.group, settled, "settled", "jobs", -900.0, -1000.0, -800.0, 60)
            yield Value(case.group, f"{name} - {FIXED}", "cost", "", -0.01, -0.02, -0.001, 60)


def of(cases: tuple[LearningCase, ...]) -> Values:
    return Values(tuple(row for case in cases for row in perfect(case)), (), SETTINGS)


B2, B3, B4, B5 = OF_PAPER_B = [CLAIMS[name] for name in learning.FIGURES]
CASES = list(learning.FIGURES.values())
BOTH = list(zip(OF_PAPER_B, CASES, strict=True))


@pytest.mark.parametrize(("claim", "cases"), BOTH)
def test_a_perfect_world_reproduces_every_figure(claim: Claim, cases: tuple[LearningCase, ...]) -> None:
    verdict = judge(claim, of(cases))
    assert verdict.level is Level.REPRODUCED, verdict.because


@pytest.mark.parametrize(("claim", "cases"), BOTH)
@pytest.mark.parametrize("start", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("quantity", "off", "level"),
    [
        ("delay", 1.03, Level.ORDERING),
        ("delay", 0.97, Level.ORDERING),
        ("cost", 1.03, Level.ORDERING),
        ("cost", 0.97, Level.ORDERING),
        ("early delay", 1.0, Level.NOT_REPRODUCED),
        ("early cost", 1.0, Level.NOT_REPRODUCED),
        ("r away", 1000.0, Level.NOT_REPRODUCED),
    ],
)
def test_one_wrong_number_of_algorithm_1_is_seen(
    claim: Claim, cases: tuple[LearningCase, ...], start: float, quantity: str, off: float, level: Level
) -> None:
    exact = cases[0].exact
    wrong = off * {"delay": exact.delta_h, "early delay": exact.delta_h, "r away": 0.01}.get(quantity, exact.cost_star)
    verdict = judge(claim, changed(of(cases), label(ALGORITHM1, start), quantity, wrong))
    assert verdict.level is level
    assert label(ALGORITHM1, start) in verdict.because


def test_a_run_too_small_to_say_is_not_called_reproduced() -> None:
    values = of(CASES[2])
    vague = tuple(
        replace(row, low=0.9 * row.measured, high=1.1 * row.measured) if row.quantity == "delay" else row
        for row in values.rows
    )
    verdict = judge(B4, replace(values, rows=vague))
    assert verdict.level is Level.ORDERINGS_ONLY
    assert "undecided" in verdict.because


@pytest.mark.parametrize(("claim", "counts"), [*zip(OF_PAPER_B, ((4, 8), (8, 12), (2, 4), (4, 6)), strict=True)])
def test_the_cost_of_one_slot_repeats_the_delay_and_counts_once(claim: Claim, counts: tuple[int, int]) -> None:
    """Figs. 2 and 4 have one slot: a check of delay and cost together from each start, 3 and 5 several."""
    verdict = judge(claim, of(learning.FIGURES[claim.name]))
    assert tuple(verdict.held(kind)[1] for kind in (ClaimKind.VALUE, ClaimKind.ORDERING)) == counts


@pytest.mark.parametrize("claim", OF_PAPER_B)
def test_the_verdict_names_the_corrected_algorithm(claim: Claim) -> None:
    verdict = judge(claim, of(learning.FIGURES[claim.name]))
    assert f"{verdict}" == "reproduced, algorithm corrected"
    assert "Algorithm 1 corrected: it runs for ever" in verdict.because
    assert [name for name, each in CLAIMS.items() if each.corrected] == list(learning.FIGURES)


def test_our_own_controllers_failing_is_shown_and_moves_no_verdict() -> None:
    for system, quantity, measured in (
        (label(AGE, SMALL), "delay", 3.5),
        (f"{label(AGE, LARGE)} - {FIXED}", "cost", 0.1),
        (f"{label(REPLAY, SMALL)} - {label(ALGORITHM1, SMALL)}", "settled", 5.0),
    ):
        verdict = judge(B2, changed(of(CASES[0]), system, quantity, measured))
        assert verdict.level is Level.REPRODUCED
        assert {check.kind for check in verdict.checks if check.outcome != "holds"} == {ClaimKind.BEYOND}


def test_a_missing_value_is_an_error_and_no_verdict() -> None:
    values = of(CASES[2])
    with pytest.raises(ValuesError, match="no value"):
        judge(B4, replace(values, rows=values.rows[1:-1]))


def test_costs_that_the_paper_prints_are_what_theory_says() -> None:
    printed = [case for cases in CASES for case in cases if case.published_cost is not None]
    assert printed
    for case in printed:
        assert case.published_cost == pytest.approx(case.exact.cost_star, rel=0.01)


def test_a_course_through_the_live_queue_is_what_replaying_says_job_by_job() -> None:
    target = BY_NAME["fig2-poisson"]
    drawn = DrawnHistory(target.jobs, target.spots, 5).piece(3000)
    first_h = float(drawn.job_times_h[0])  # the live queue counts the gap from its first event
    spots_h = drawn.spot_times_h[drawn.spot_times_h > first_h] - first_h
    history = Piece(drawn.job_times_h - first_h, spots_h, np.append(0.999999, drawn.draws[1:]))
    ages = {"admit_until_age_s": 2.5, "admit_from_age_s": 11.6, "leave_at_age_s": 2.5}
    course = follow(Controller(Rule(1.6, **ages)), history, 10.0)
    outcome = replay(Rule(1.6, **ages), *history, record=True)
    assert (outcome.decisions == LEFT).sum() > 100  # or nothing was tried
    left = outcome.decisions != WAITING
    assert course.costs[left].tolist() == np.where(outcome.decisions == SPOT, 1.0, 10.0)[left].tolist()
    assert course.delays_h[left] == pytest.approx(outcome.delays_s[left], abs=1e-9)
    assert np.isnan(course.costs[~left]).all()


@pytest.mark.parametrize("start", [SMALL, LARGE])
def test_algorithm_1_as_printed_misses_the_target_and_the_corrected_one_meets_it(start: float) -> None:
    target = BY_NAME["fig4"]
    controller = PrintedAlgorithm1(target.delta_h, STEP_PER_H, r0=start)
    as_printed = follow(controller, DrawnHistory(target.jobs, target.spots, 3).piece(4000), target.k)
    corrected = learning_runs.one_run(target, ALGORITHM1, start, 3, 12_000, 12_000)
    assert abs(np.nanmean(as_printed.delays_h[2000:]) / target.delta_h - 1.0) > 0.4
    assert corrected["delay"] == pytest.approx(target.delta_h, rel=0.1)
    assert corrected["cost"] == pytest.approx(target.cost_star, rel=0.03)


@pytest.mark.parametrize(("name", "start"), [("fig4", LARGE), ("fig5", SMALL), ("fig2-poisson", LARGE)])
def test_the_printed_step_drives_r_to_r_max_if_no_window_stops_it(name: str, start: float) -> None:
    target = BY_NAME[name]
    controller = PrintedAlgorithm1(target.delta_h, 0.01, r0=start, tolerance=0.0)
    course = follow(controller, DrawnHistory(target.jobs, target.spots, 3).piece(3000), target.k)
    assert (course.levels[1500:] == R_MAX).all()


def test_the_printed_algorithm_stops_where_the_delay_is_right() -> None:
    controller = PrintedAlgorithm1(3.0, 0.01, window=2, r0=1.0)
    for delay_h in (3.0, 3.01, 50.0, 50.0):
        controller.left(delay_h)
        controller.arrived(0.0)
    assert controller.has_stopped
    assert controller.level == 1.0


def test_settled_is_the_job_from_which_the_average_stays_near() -> None:
    settled = learning_runs.settled
    running_h = np.array([9.0, 3.0, 9.0, 3.0, 3.1, 3.0])
    assert settled(running_h, 3.0, 100) == 3.0
    assert settled(np.full(6, 3.0), 3.0, 100) == 0.0
    assert settled(running_h[:3], 3.0, 100) == 100.0  # never: a short run is not praised for being short
