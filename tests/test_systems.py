"""The nine systems: each differs from ReclaimNet in what it says it does, and in nothing else; all play by the same rules."""

from dataclasses import fields, replace
from typing import Any

import pytest

from controller.core.model import facts as f
from controller.core.placement.select import select_random
from controller.core.policies import table
from controller.core.policies.table import ABLATION, POLICIES, SYSTEMS, Policy
from experiments.inputs.scenario import demo_scenario
from experiments.inputs.traces import generate
from experiments.results.rules import IN_SHARE, IN_TIME, RESERVED, RULES, not_promised
from experiments.worlds.live.world import enforcement_of, live_row
from experiments.worlds.virtual import VirtualRun, simulate
from experiments.worlds.virtual.invariants import Invariants
from testbed import messages as m
from testbed.enforcement import Enforcement
from tests.world import a_world
from topologies.errors import SpecError

UNENFORCED = {"admit", "borrows", "takes_up", "recoveries_first"}
OTHERWISE = {
    "slurm-pr": {"plan", "select", "standby", "interruption", "vault", *UNENFORCED},
    "no-migration": {"plan", "select", "standby", "interruption", "vault", *UNENFORCED},
    "static": {"plan", "select", "standby", *UNENFORCED},
    "bamboo": {"plan", "select", "standby", "interruption", *UNENFORCED},
    "random-dst": {"select", "standby"},
    "no-tc-bpf": {"admit", "borrows"},
    "tv-fixed-interval": {"plan"},
    "reclaimnet-as-printed": {
        "weighs_speed",
        "weighs_calendars",
        "plan",
        "select",
        "standby",
        "admit",
        "learner",
        "takes_up",
        "takes_allowance",
        "recoveries_first",
        "vault",
        "short_notices",
        "borrows",
    },
    "reclaimnet": set(),
}


# ---------------------------------------------------------------- rows
def test_the_nine_systems_are_table_three_s_in_its_order() -> None:
    assert list(SYSTEMS) == list(OTHERWISE)
    assert list(SYSTEMS.values())[:7] == [
        "Slurm-PR (B1')",
        "No-Mig. (B2)",
        "Static (B3)",
        "Bamboo (B1)",
        "Rand-Dst (B4)",
        "No-BPF (B5)",
        "TV-FI (B7)",
    ]


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_differs_from_ours_in_what_it_says_and_in_nothing_else(name: str) -> None:
    ours, row = Policy(""), POLICIES[name]
    differing = {each.name for each in fields(Policy) if getattr(row, each.name) != getattr(ours, each.name)}
    assert differing - {"about"} == OTHERWISE[name]


def test_the_ablation_switches_each_protocol_by_itself() -> None:
    full = POLICIES[ABLATION[True, True, True]]
    assert full is POLICIES["reclaimnet"]
    assert len({ABLATION[key] for key in ABLATION}) == len(ABLATION) == 8
    for p1, p2, p3 in ABLATION:
        row = POLICIES[ABLATION[p1, p2, p3]]
        assert (row.plan == full.plan) == p1
        assert (row.select == full.select) == p2
        assert (row.admit == full.admit) == (row.enforced == full.enforced) == p3
    naive = POLICIES[ABLATION[False, False, False]]
    assert naive.plan == table.NAIVE
    assert table.NAIVE.interval_s == 1800.0
    assert naive.select is select_random


# ---------------------------------------------------------------- ours
def test_a_checkpoint_goes_to_the_new_standby_at_once_when_the_only_holder_is_about_to_leave() -> None:
    world = a_world(6, 0, policy="reclaimnet+vault=false", seed=1)
    world.running(until_s=40.0)
    holder = world.of(f.CheckpointCompleted)[-1].holder
    assert world.jobs["a"].standby == holder
    world.reclaim(holder, 60.0)
    world.run(40.5)
    assert world.jobs["a"].standby not in (holder, None)
    assert world.messages(m.Protect)[-1].first_s == 0.0
    world.run(60.0)
    assert world.of(f.CheckpointCompleted)[-1].holder == world.jobs["a"].standby


# ---------------------------------------------------------------- nothing enforced
def test_who_promises_no_rate_copies_first_and_stops_when_the_rate_that_it_hopes_for_says_so() -> None:
    world = a_world(4, 0, policy="no-tc-bpf", seed=1)
    first = world.running(payload_bytes=20_000_000)
    world.reclaim(first, 20.0)
    world.run(12.3)
    [order] = world.messages(m.Migrate)
    assert 10.0 < order.final_within_s < 20.0 - 20_000_000 / 10e6
    world.run(40.0)
    [finished] = world.of(f.MigrationFinished)
    assert finished.in_time


# ---------------------------------------------------------------- the rest
@pytest.mark.parametrize("name", SYSTEMS)
def test_what_a_system_does_not_promise_is_said_and_not_judged(name: str) -> None:
    row, waived = POLICIES[name], not_promised(POLICIES[name])
    assert waived.keys() <= RULES.keys()
    assert (RESERVED in waived) == (IN_SHARE in waived) == (not row.enforced)
    assert (IN_TIME in waived) == (name in ("slurm-pr", "no-migration", "static", "bamboo", "no-tc-bpf"))


def play(system: str, seed: int = 2, **options: Any) -> VirtualRun:
    scenario = demo_scenario(seed=seed)
    return simulate(scenario, generate(scenario), system=system, **options)


@pytest.mark.parametrize("name", [*SYSTEMS, "all-off", "only-p1", "only-p2", "only-p3", "no-p1"])
def test_every_system_keeps_what_it_promises_and_loses_no_job(name: str) -> None:
    summary = play(name, after_each=Invariants()).summary()
    assert summary.invariants_broken == []
    assert summary.not_promised == not_promised(POLICIES[name])
    assert summary.jobs.lost == 0
    assert summary.jobs.finished > 15


def test_a_live_run_takes_its_enforcement_from_the_system_and_refuses_replicas() -> None:
    def played(system: str, enforcement: str = "drop") -> Any:
        scenario = demo_scenario()
        protocol = replace(scenario.protocol, policy=system, enforcement=enforcement)
        return replace(scenario, protocol=protocol).played()

    assert enforcement_of(played("reclaimnet")) is Enforcement.DROP
    assert enforcement_of(played("no-tc-bpf")) is Enforcement.NONE
    assert live_row(played("slurm-pr")).interruption.wait_s > 0.0
    with pytest.raises(SpecError, match=r"protocol\.policy = 'bamboo'.*virtual time only"):
        live_row(played("bamboo"))
