"""Storms: each is reproduced by one number, keeps every promise, and together they reach every kind of fault."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from controller.core.policies.overrides import with_overrides
from experiments.cli.compare import storm
from experiments.results import rules
from experiments.storms import generate, parse, play, shrink
from experiments.storms.campaign import run
from experiments.storms.commands import VERBS
from experiments.storms.generate import FAULTS, LOUD, ROWS, options_of, script_of
from experiments.storms.play import run as run_script
from experiments.storms.world import StormWorld
from tests import lives
from tests.test_announcements import listening
from topologies.errors import SpecError

SEEDS = [
    range(5),
    range(10, 15),
    *(pytest.param(range(first, first + 5), marks=pytest.mark.long) for first in (5, 15)),
    *(pytest.param(range(first, first + 10), marks=pytest.mark.long) for first in range(20, 190, 10)),
]
REACHED: Counter[str] = Counter()
# counted under another name, when it happens
ELSEWHERE = ("repeat", "overtake", "fail", "tear", "usurp", "upon")
EFFECTS = (
    *(f"{what} fails" for what in ("sending", "snapshot", "workload")),
    *("message late", "message repeated", "message overtaken", "event torn", "coordinator usurped", "trunk died"),
)


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_every_job_survives_the_storm_and_every_promise_holds(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every order to send is announced before, too."""
    monkeypatch.setitem(rules.RULES, "lives", lives.RULE)
    told = listening(monkeypatch)
    for seed in seeds:
        told.used.clear()
        outcome = play(generate(seed))
        REACHED.update(outcome.counts)
        assert outcome.failure is None, f"reclaimnet storm --seed {seed}: {outcome.failure}"


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=list(FAULTS))
def test_storms_of_one_kind_of_fault_keep_every_promise(number: int) -> None:
    kind, drawn = list(FAULTS)[number], options_of(10_001 + number, policy="reclaimnet")
    campus = {**drawn.campus, "hosts": "4", "enforcement": "pace"}
    if kind.startswith("trunk"):
        campus |= {"spines": "2", "on_demand": "0"}
    if kind in LOUD:
        campus.pop("quiet", None)
    options = replace(
        drawn,
        campus=campus,
        kinds=(*[kind] * 9, "owner with notice", *["owner at once"] * 3),
        faults=60 if any(word in kind for word in ("fails", "message", "checkpoints")) else 10,
        upon=0.3,
        jobs=4,
        steps=(60, 200),
        traffic=("research", "background")[number % 2],
    )
    outcome = play(script_of(options))
    assert outcome.failure is None, outcome.failure
    REACHED.update(outcome.counts)


def test_each_kind_of_fault_takes_effect() -> None:
    if not REACHED:
        pytest.skip("the storms themselves were not run")
    effects = {f"fault: {verb}" for verb in (*VERBS, *EFFECTS) if verb not in ELSEWHERE}
    assert sorted(effects - REACHED.keys()) == []


def test_options_of_storms_reach_every_kind_of_fault_and_every_policy() -> None:
    drawn = [options_of(seed) for seed in range(1000)]
    assert {kind for each in drawn for kind in each.kinds} == FAULTS.keys()
    policies = {each.settings["policy"] for each in drawn}
    assert policies >= set(ROWS)
    assert {with_overrides(name, {"borrows": False}) for name in ROWS} & policies
    assert 0.02 < sum("spines" in each.campus for each in drawn) / len(drawn) < 0.5


def digest(seed: int) -> str:
    """Of every fact of a storm, with its time to the last bit."""
    script = generate(seed)
    world = StormWorld(script)
    run_script(world, script)
    return hashlib.sha256(repr(world.facts).encode()).hexdigest()


def test_the_same_seed_is_the_same_storm_whatever_the_seed_of_hashes() -> None:
    asked = "from tests.test_storms import digest; print(*[digest(seed) for seed in (3, 7, 20)])"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.split() == [digest(seed) for seed in (3, 7, 20)]


def test_a_storm_is_the_text_that_is_written_of_it() -> None:
    for seed in range(300):
        script = generate(seed)
        assert parse(str(script)) == script


def test_a_storm_on_a_campus_of_a_file_plays_there() -> None:
    outcome = play(generate(5, campus_file="example:campus54", policy="no-p1"))
    assert outcome.failure is None
    assert outcome.counts["policy: no-p1"] == 1


@pytest.mark.long
def test_a_campaign_of_processes_counts_what_this_process_counts() -> None:
    campaign = run(range(2), processes=2)
    assert campaign == run(range(2))
    assert "of 0 admitted" not in campaign.admissions


def test_a_broken_rule_is_noticed_shrunk_and_reproduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calm is too short for a job to end in it, which stands for a job that never ends."""
    text = "campus hosts=4 on_demand=0 buildings=1 mix=one\n0 start\n2 kill h4\n1 submit a steps=300\n2 start\n"
    monkeypatch.setattr(import_module("experiments.storms.play"), "CALM_S", 0.0)
    failure = play(parse(text)).failure
    short = shrink(parse(text), failure)
    assert [line.verb for line in short.lines] == ["submit"]
    again = play(parse(str(short)), tells_story=True).failure
    assert again.kind == failure.kind
    assert again.story
    monkeypatch.setattr(import_module("experiments.storms.shrink"), "WITHIN_S", 0.5)
    seed = next(seed for seed in range(1, 100) if play(generate(seed)).failure is not None)
    assert storm(seed=seed, out=tmp_path) == 1
    assert f"storm {seed}, shrunk" in (tmp_path / f"storm_{seed}.txt").read_text()


def test_the_command_ends_with_the_count_and_says_so_with_its_status(tmp_path: Path) -> None:
    assert storm("4:6", workers=1) == 0
    assert storm(seed=4, out=tmp_path) == 0
    for wrong in ("6:4", "0", "a:b"):
        with pytest.raises(SpecError, match="seeds"):
            storm(wrong)


def test_a_script_is_replayed_and_its_failure_is_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "script.txt"
    file.write_text("campus hosts=2\n0 start\n1 submit a\n")
    assert storm(replay=file) == 0
    monkeypatch.setattr(import_module("experiments.storms.play"), "CALM_S", 0.0)
    assert storm(replay=file) == 1
    with pytest.raises(SpecError, match=r"none\.txt.*this does not exist"):
        storm(replay=tmp_path / "none.txt")
