"""Storms can fail: each rule that is broken on purpose is noticed, and the storm is shrunk to a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.storms import StormFailure, generate, parse, play, shrink
from tests.storm_mutants import MUTANTS

RARE = {
    "ObeysOldOrders": "start_ordered_before_a_short_reclaim_was_heard_is_not_obeyed"
}  # one storm in some hundreds
MOST_STORMS = 40
RULES = {
    "GrantsTwice": "granted",
    "ForgetsAJob": "",  # the core itself falls over what it forgot, or the check says so
    "NeverWaitsForLeases": "more than one copy computes",
    "LeavesFlowsOpen": "",
    "SaysStoredTooSoon": "no disk ever held it",
    "KeepsComputing": "comput",  # on a host which its owner closed, or beside the copy that took its place
    "NeverSlowsDown": "migrations send",
    "ObeysOldOrders": "compute",
    "OutlivesItsLease": "more than one copy computes",
}


def caught(name: str) -> tuple[int, StormFailure]:
    """The first storm that notices."""
    for seed in range(MOST_STORMS):
        if (failure := play(generate(seed), world_of=MUTANTS[name]).failure) is not None:
            return seed, failure
    raise AssertionError(f"{MOST_STORMS} storms did not notice {name}")


@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - RARE.keys()))
def test_a_broken_rule_is_noticed(name: str) -> None:
    _, failure = caught(name)
    assert RULES[name] in failure.rule


@pytest.mark.parametrize("name", RARE)
def test_a_broken_rule_that_few_storms_meet_is_noticed_by_the_scenario_that_one_left(name: str) -> None:
    script = parse((Path(__file__).parent / "scenarios" / f"{RARE[name]}.txt").read_text())
    failure = play(script, world_of=MUTANTS[name]).failure
    assert failure is not None
    assert RULES[name] in failure.rule


@pytest.mark.parametrize("name", ["GrantsTwice", "SaysStoredTooSoon"])
def test_a_storm_that_noticed_is_shrunk_to_a_few_lines_that_still_fail(name: str) -> None:
    seed, failure = caught(name)
    short = shrink(generate(seed), failure, tries=250, world_of=MUTANTS[name])
    assert len(short.lines) <= 6
    again = play(parse(str(short)), world_of=MUTANTS[name], tells_story=True).failure
    assert again is not None
    assert again.kind == failure.kind
    assert again.story
    assert play(short).failure is None, "without the mutant it is no failure"
