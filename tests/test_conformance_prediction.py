"""Costs fitted to some runs predict others, or are seen not to."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from io import StringIO

import msgspec
import pytest
from rich.console import Console

from experiments.cli.predict import (
    FITTED,
    OWNERS,
    SCENARIO,
    cases,
    table_of,
)
from experiments.compare.costs import measure_costs, measure_costs_of
from experiments.compare.prediction import FEWEST, ObservedRun, predict
from experiments.inputs.scenario import load
from experiments.results.run_context import FidelityRecord
from experiments.worlds.played import Played
from experiments.worlds.virtual import Overheads, simulate

TWO_WORLDS = load("example:two-worlds")
SLOW = Overheads(
    start_s=(0.5, 0.5), finish_s=(0.2, 0.2), snapshot_s=(0.1, 0.1), connect_s=0.003, commit_s=0.04
)
SLOWER = replace(SLOW, start_s=(2.0, 2.0))


@cache
def observed(fitted: Overheads, others: Overheads) -> tuple[list[ObservedRun], list[ObservedRun]]:
    """Virtual runs in the place of live ones, on machines of these costs."""
    found: tuple[list[ObservedRun], list[ObservedRun]] = ([], [])
    for case, scenario, trace in cases(TWO_WORLDS, 3 * FEWEST):
        run = simulate(scenario, trace, costs=fitted if case == FITTED else others, quiet=False)
        found[case != FITTED].append(ObservedRun(case, scenario, trace, Played(run.facts, run.context)))
    return found


def invalid(run: ObservedRun) -> ObservedRun:
    busy = replace(run.live.context, fidelity=FidelityRecord(False, ("processors busy",)))
    return replace(run, live=replace(run.live, context=busy))


def test_cases_take_turns_and_no_two_runs_are_alike() -> None:
    planned = list(cases(TWO_WORLDS, 7))
    assert [case for case, _, _ in planned] == [FITTED, SCENARIO, OWNERS] * 2 + [FITTED]
    assert len({scenario.seed for _, scenario, _ in planned}) == 7
    assert planned[1][1].name != planned[0][1].name
    assert planned[2][2].owner_events != planned[0][2].owner_events


def test_on_one_machine_costs_of_some_runs_predict_the_others() -> None:
    found = predict(*observed(SLOW, SLOW))
    assert (found.fitted_runs, len(found.runs), found.left_out, found.reasons) == (3, 6, 0, ())
    assert found.costs.costs.start_s == pytest.approx(SLOW.start_s, abs=0.005)
    assert found.is_near, found.figures


def test_runs_on_a_slower_machine_are_predicted_by_their_own_journals_only() -> None:
    found = predict(*observed(SLOW, SLOWER))
    downtime = next(figure for figure in found.figures if figure.name.startswith("downtime"))
    assert downtime.fitted_median == pytest.approx(0.0, abs=0.1)
    assert downtime.held_out_median is not None
    assert downtime.held_out_median < -0.3
    assert not found.is_near
    assert downtime.held_out_near < downtime.runs


def test_runs_with_which_the_machine_did_not_keep_up_count_on_neither_side() -> None:
    fitting, others = observed(SLOW, SLOW)
    found = predict([*fitting[:2], invalid(fitting[2])], [invalid(others[0]), *others[1:]])
    assert (found.fitted_runs, len(found.runs), found.left_out) == (2, 5, 2)
    assert found.reasons == ("the machine kept up with 2 runs to fit, of the 3 that are needed",)
    assert not found.is_near
    nothing = predict([*map(invalid, fitting)], [*map(invalid, others)])
    assert (nothing.runs, nothing.figures, nothing.is_near, len(nothing.reasons)) == ((), (), False, 2)


def test_costs_of_several_runs_are_of_all_that_they_show_and_what_none_shows_stays_as_assumed() -> None:
    fitting, _ = observed(SLOW, SLOW)
    pairs = [(run.live.facts, run.scenario.scale.apply(run.trace)) for run in fitting]
    together = measure_costs_of(pairs, Overheads())
    alone = [measure_costs(facts, trace, Overheads()) for facts, trace in pairs]
    assert together.counts["start"] == sum(each.counts["start"] for each in alone)
    other = replace(Overheads(), silence_s=3.0, commit_s=1.0)
    assert together.told_to(other).silence_s == 3.0
    assert together.told_to(other).commit_s == together.costs.commit_s
    assert measure_costs_of([], Overheads()).told_to(other) == other


def test_both_numbers_and_both_distributions_are_printed_and_can_be_stored() -> None:
    found = predict(*observed(SLOW, SLOWER))
    screen = StringIO()
    Console(file=screen, width=300).print(table_of(found))
    for figure in found.figures:
        line = next(line for line in screen.getvalue().splitlines() if figure.name in line)
        assert line.count("/") >= 4
        assert figure.held_out_median is None or f"{figure.held_out_median:+.1%}" in line
    stored = msgspec.json.decode(msgspec.json.encode(found))
    assert len(stored["runs"]) == 6
    assert {"fitted", "held_out", "case", "seed"} <= stored["runs"][0].keys()
