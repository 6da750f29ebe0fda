"""Storms; the same seed is the same storm; what is counted happens."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from experiments.storms import generate, parse, play
from experiments.storms.commands import VERBS
from experiments.storms.generate import DRAWN
from experiments.storms.play import run
from experiments.storms.setup import ground_of
from experiments.storms.world import StormWorld
from topologies.spec import CheckpointClass

SEEDS = [
    *(range(first, first + 10) for first in range(0, 50, 10)),
    # kinds of faults and policies that are not among those
    (50, 56, 58, 60, 62, 65, 67, 70, 75, 77, 97, 127, 130, 147),
    *(pytest.param(range(first, first + 10), marks=pytest.mark.long) for first in range(50, 200, 10)),
]
REACHED: Counter[str] = Counter()


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_every_job_survives_the_storm_and_every_promise_holds(seeds: Sequence[int]) -> None:
    for seed in seeds:
        outcome = play(generate(seed))
        REACHED.update(outcome.counts)
        assert outcome.failure is None, f"reclaimnet storm --seeds {seed}:{seed + 1}: {outcome.failure}"


def test_they_reach_every_kind_of_fault_every_policy_and_every_phase() -> None:
    if not REACHED:
        pytest.skip("the storms themselves were not run")
    faults = {
        f"fault: {verb}"
        for verb in VERBS
        # some are counted under another name; trunks drain on campuses with several paths only (tests/test_ways.py)
        if verb not in ("repeat", "overtake", "fail", "tear", "usurp", "upon", "expect", "drain")
    }
    faults |= {f"fault: {what} fails" for what in ("sending", "snapshot", "workload")}
    faults |= {"fault: message late", "fault: message repeated", "fault: message overtaken"}
    faults |= {"fault: event torn", "fault: coordinator usurped"}
    phases = {
        "job: running -> moving",
        "job: moving -> starting",
        "job: waiting -> fetching",
        "job: fetching -> starting",
    }
    # a class of checkpoints, for which the rows `share` and `scavenger` stand, is drawn for all others
    policies = {f"policy: {name}" for name in DRAWN}
    policies |= {f"checkpoints: {each}" for each in CheckpointClass}
    assert not (faults | phases | policies) - REACHED.keys()


def digest(seed: int) -> str:
    """Of every fact of a storm, with its time to the last bit."""
    script = generate(seed)
    world = StormWorld(ground_of(script))
    run(world, script)
    return hashlib.sha256(repr(world.facts).encode()).hexdigest()


def test_the_same_seed_is_the_same_storm_whatever_the_seed_of_hashes() -> None:
    here = [digest(seed) for seed in (3, 7, 20)]
    asked = "from tests.test_storms import digest; print(*[digest(seed) for seed in (3, 7, 20)])"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    found = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, env=environment
    )
    assert found.stdout.split() == here


@pytest.mark.parametrize("seed", [0, 1, 12, 99])
def test_a_storm_is_the_text_that_is_written_of_it(seed: int) -> None:
    script = generate(seed)
    assert parse(str(script)) == script


def test_a_storm_on_a_campus_of_a_file_plays_there() -> None:
    outcome = play(generate(5, campus_file="example:campus54", policy="no-admission"))
    assert outcome.failure is None
    assert outcome.counts["policy: no-admission"] == 1
