"""Storms can fail: rules that are broken on purpose are noticed, and the storm is shrunk to a few lines.

A few of `experiments.storms.mutants` only; `make mutants` plays all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.core.admission import admission
from controller.core.policies.table import POLICIES
from experiments.storms import generate, mutation, parse, play, shrink
from experiments.storms.mutants import ALL, BY_NAME, Mutant, planted
from topologies.errors import SpecError

FEW_STORMS = range(12)
NOTICED = {
    "no research reserve": "may be",
    "no wait for leases": "more than one copy computes",
    "agent says a step too much": "",
    "agent keeps computing": "kills its processes after",
    "tell before kill": "kills its processes after",
    "holders forgotten": "the coordinator knows of",
    "downtime told half": "its downtime is told as",
    "delays told half": "are told as",
    "costs told half": "are told as",
    "admissions not told": "no fact says that this was admitted",
    "degraded not told": "nothing was said of it",
    "notices told longer": "and none was",
    "emergencies told as deadlines": "had no notice",
    "hosts under notice are planned with": "known to be closed or gone",
    "steps of heartbeats not heard": "was heard of it",
    "stops for any older checkpoint": "no checkpoint in reach has more",
    "interval told once": "planned is one every",
    "receivers go on expecting": "still expects",
}
GROUND = "campus hosts=4 on_demand=0 buildings=1 mix=one spare=0\n0 start\n"
MOVE = "1 submit a steps=300 payload=30000000\n6 reclaim @a 12\n30 return *\n"
SMALL = "1 submit a steps=100 payload=2000000\n"
# What a few lines are enough for: the lines, and what is then broken.
NOTICED_IN = {
    "agent does not try again": (
        "6 upon MigrationAdmitted * fail * sending 5 retry=1\n" + MOVE,
        "events at",
    ),
    "destination lost, nothing done": (
        MOVE + "6 upon Migrate * after=0.5 reclaim >a\n",
        "known to be closed or gone",
    ),
    "closed host not let go": (
        MOVE + "6 upon Migrate * after=0.5 reclaim >a\n",
        "known to be closed or gone",
    ),
    "agent starts without a lease": ("1 late * 1.9 8\n" + SMALL, "which has no lease"),
    "agent calls every end finished": (SMALL + "6 oom @a a\n", "says that it has finished"),
    "ended not heard after a restart": (SMALL + "11 restart 3\n", "had said that it has finished"),
    "stored not heard after a restart": (
        "settings policy=no-vault\n" + SMALL + "4 upon CheckpointReceived * restart 0.5\n",
        "the coordinator knows of",
    ),
    "no fence margin": (SMALL + "6 pause @a 5\n6 cut @a 0 0\n", "more than one copy computes"),
}


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_every_mutant_finds_what_it_replaces_and_puts_it_back(mutant: Mutant) -> None:
    before = (admission.share_totals, admission.migration_share, POLICIES["reclaimnet"].share)
    with planted(mutant):
        pass
    assert (admission.share_totals, admission.migration_share, POLICIES["reclaimnet"].share) == before


def test_there_are_thirty_mutants_of_different_names() -> None:
    assert len(BY_NAME) == len(ALL) >= 30


def test_a_mutant_is_planted_in_rows_of_the_policies_too() -> None:
    with planted(BY_NAME["grants doubled"]):
        assert POLICIES["reclaimnet"].share is admission.share_totals
        assert admission.share_totals.__qualname__ != "share_totals"


@pytest.mark.parametrize("name", NOTICED)
def test_a_broken_rule_is_noticed(name: str) -> None:
    failure = mutation.attempt(name, FEW_STORMS).failure
    assert failure is not None
    assert NOTICED[name] in failure.rule


@pytest.mark.parametrize(("broken", "seed"), [("dead trunk, routes as before", 0)])
def test_the_program_is_judged_by_the_storms_that_the_mutants_play(broken: str, seed: int) -> None:
    """A program that fails in storms of trunks alone is no sound one for mutants of these."""
    with planted(BY_NAME[broken]):
        assert mutation.unmutated(["grants doubled"], range(seed, seed + 1)) is None
        assert mutation.unmutated(["grants doubled", broken], range(seed, seed + 1)) is not None


@pytest.mark.parametrize("name", NOTICED_IN)
def test_a_broken_rule_is_noticed_in_a_few_lines(name: str) -> None:
    lines, rule = NOTICED_IN[name]
    script = parse(GROUND + lines)
    assert play(script).failure is None
    with planted(BY_NAME[name]):
        failure = play(script).failure
    assert failure is not None
    assert rule in failure.rule


@pytest.mark.parametrize(
    ("name", "kept", "rule"),
    [
        (
            "agent starts what is stale",
            "start_ordered_before_a_short_reclaim_was_heard_is_not_obeyed.txt",
            "compute",
        ),
        ("turns told once", "turns_that_newcomers_move_are_told.txt", "an admitted migration is in time"),
    ],
)
def test_a_broken_rule_that_few_storms_meet_is_noticed_by_the_scenario_that_one_left(
    name: str, kept: str, rule: str
) -> None:
    script = parse((Path(__file__).parent / "scenarios" / kept).read_text())
    with planted(BY_NAME[name]):
        failure = play(script).failure
    assert failure is not None
    assert rule in failure.rule


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("deadlines press late", "a deadline that was accepted is kept"),
        ("no GPU kept", "for its deadline it has"),
    ],
)
def test_a_deadline_that_is_not_kept_is_noticed(name: str, rule: str) -> None:
    away = "".join(f"17 reclaim h{n}\n40 return h{n}\n" for n in range(1, 5))
    script = parse(
        "campus hosts=4 on_demand=1 buildings=1 mix=one spare=0\nsettings policy=no-vault level_start=3\n"
        f"0 start\n1 submit a steps=300 payload=2000000 deadline=45\n{away}"
    )
    assert play(script).failure is None
    with planted(BY_NAME[name]):
        failure = play(script).failure
    assert failure is not None
    assert rule in failure.rule


def test_a_late_migration_that_is_told_as_one_in_time_is_noticed() -> None:
    failure = mutation.attempt("every migration told as in time", range(920001, 920002)).failure
    assert failure is not None
    assert "after the notice was over" in failure.rule


def test_a_downtime_that_begins_anew_with_each_word_of_its_stop_is_noticed() -> None:
    kept = "final_snapshot_that_is_said_again_does_not_shorten_a_downtime.txt"
    script = parse((Path(__file__).parent / "scenarios" / kept).read_text())
    with planted(BY_NAME["final snapshot said again is another stop"]):
        failure = play(script).failure
    assert failure is not None
    assert "its downtime is told as" in failure.rule


def test_a_storm_that_noticed_is_shrunk_to_a_few_lines_that_still_fail() -> None:
    with planted(BY_NAME["grants doubled"]):
        tried = mutation.attempt("grants doubled", FEW_STORMS)
        assert tried.failure is not None
        assert tried.seed is not None
        short = shrink(generate(tried.seed), tried.failure, tries=150)
        assert len(short.lines) <= 6
        again = play(parse(str(short)), tells_story=True).failure
    assert again is not None
    assert again.kind == tried.failure.kind
    assert again.story
    assert play(short).failure is None, "without the mutant it is no failure"


@pytest.mark.parametrize("names", ["no such thing", "no research reserve,nor this"])
def test_a_mutant_that_does_not_exist_is_refused_with_those_that_do(names: str) -> None:
    with pytest.raises(SpecError, match="vault never"):
        mutation.named(names)
