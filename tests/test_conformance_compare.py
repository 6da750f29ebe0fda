"""What is compared between two worlds, and what the journal says of costs."""

from dataclasses import replace

import pytest

from controller.core.model import facts as f
from experiments.compare.comparison import ComparedQuantity, Comparison, compare, journeys
from experiments.compare.costs import measure_costs
from experiments.inputs.scenario import load
from experiments.inputs.traces import generate
from experiments.worlds.played import Played
from experiments.worlds.virtual import Overheads, simulate

SCENARIO = load("example:two-worlds")
TRACE = generate(SCENARIO)
SLOW = Overheads(
    switch_s=(0.01, 0.01),
    start_s=(0.5, 0.5),
    finish_s=(0.2, 0.2),
    snapshot_s=(0.1, 0.1),
    connect_s=0.003,
    commit_s=0.04,
)


def played(costs: Overheads | None = None, seed: int | None = None) -> Played:
    run = simulate(SCENARIO, TRACE, seed, costs=costs, quiet=False)
    return Played(run.facts, run.context)


def quantity(comparison: Comparison, name: str) -> ComparedQuantity:
    return next(each for each in comparison.quantities if each.name.startswith(name))


def test_a_run_agrees_with_itself_and_starts_that_take_a_second_longer_are_too_much_for_downtimes() -> None:
    slow = played(SLOW)
    same = compare(slow, slow)
    assert same.is_near and same.same_ways == len(same.jobs) == 5
    comparison = compare(slow, played(replace(SLOW, start_s=(1.5, 1.5))))
    for soon, late in comparison.jobs:
        assert soon.finished_s is None or late.finished_s is None or late.finished_s >= soon.finished_s + 0.99
    downtime = quantity(comparison, "downtime")
    assert downtime.difference is not None and downtime.difference > 0.1
    assert not downtime.is_near
    assert quantity(comparison, "goodput over grant").is_near
    assert not comparison.is_near


@pytest.mark.parametrize(
    ("live", "virtual", "difference", "is_near"),
    [
        (10.0, 10.9, 0.09, True),
        (10.0, 8.9, -0.11, False),
        (0.0, 0.0, 0.0, True),
        (0.0, 1.0, None, False),
        (None, 1.0, None, False),
        (None, None, None, True),
    ],
)
def test_quantities_are_near_within_their_tolerance_of_the_live_one(
    live: float | None, virtual: float | None, difference: float | None, is_near: bool
) -> None:
    found = ComparedQuantity("time", "s", live, virtual, 0.1)
    assert found.difference == (None if difference is None else pytest.approx(difference))
    assert found.is_near is is_near


def test_costs_are_found_again_in_the_journal_of_a_run_that_had_them() -> None:
    measured = measure_costs(played(SLOW).facts, SCENARIO.scale.apply(TRACE), Overheads())
    assert measured.costs.start_s == pytest.approx(SLOW.start_s, abs=0.005)
    assert measured.costs.switch_s == pytest.approx(SLOW.switch_s, abs=0.002)
    assert measured.costs.snapshot_s == pytest.approx(SLOW.snapshot_s, abs=0.02)
    assert measured.costs.finish_s == pytest.approx(SLOW.finish_s, abs=0.02)
    assert measured.costs.commit_s == pytest.approx(SLOW.commit_s, abs=0.01)
    assert measured.counts["start"] >= 7


def test_journeys_count_from_the_first_submission() -> None:
    facts = [
        (5.0, f.JobSubmitted("a", 4, 0.25, 1000)),
        (5.0, f.JobDispatched("a", 1, "h1")),
        (6.0, f.JobRunning("a", 1, "h1", 0, "", None, None)),
        (7.0, f.JobDispatched("a", 2, "h2")),
        (8.0, f.JobRunning("a", 2, "h2", 0, "", 1, 1.5)),
        (9.0, f.JobFinished("a", 2, "h2", 4, "")),
    ]
    journey = journeys(facts)["a"]
    assert (journey.submitted_s, journey.completion_s, journey.downtime_s) == (0.0, 4.0, 1.5)
    assert journey.hosts == ["h1", "h2"]
