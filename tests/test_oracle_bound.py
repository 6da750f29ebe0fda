"""No choice of checkpoints loses less than the bound: against every choice on small instances, and against every row."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from math import inf

import pytest

from controller.core.model import facts as f
from controller.core.policies.table import SYSTEMS
from experiments.inputs.scenario import InverseLaw, OwnerEvent, Scenario
from experiments.inputs.scenario.parts import LinkEvent
from experiments.inputs.traces import JobArrival, JobDraw, Trace, generate
from experiments.results.losses import work_lost
from experiments.worlds.oracle.bound import least_losses, least_steps
from experiments.worlds.virtual import simulate
from tests.test_oracle_play import HOUR_S, half_a_day

C, RATE, STEP_S = 1000.0, 10.0, 10.0


def best_by_brute_force(steps: int, payload: float, dirty: float, rate: float) -> int:
    """The fewest steps lost of a job that is ended after `steps`, over every set of steps at which a snapshot is taken.

    Snapshots cost no time; each is sent at the full rate as soon as it is taken, and cuts the one before if that is
    still on its way. What a receiver lacks of one is as in `experiments.worlds.virtual.machine.Disk`.
    """

    @cache
    def kept(
        now: int, stored: int | None, sent: int | None, lacks: float, arrived: float, part: tuple[int, float]
    ) -> int:
        """The best step that is stored in the end; `sent` is on its way, `part` is (step, bytes) of one that was cut."""
        if now == steps:
            return stored or 0
        best = 0
        for takes in (False, True):
            one, lacking, got, rest = sent, lacks, arrived, part
            if takes:
                if one is not None:
                    rest = (one, got)
                apart = inf if stored is None else float(now - stored)
                lacking = payload * min(1.0, apart * dirty)
                lacking = max(0.0, lacking - rest[1] * (1.0 - min(1.0, (now - rest[0]) * dirty)))
                one, got = now, 0.0
            if one is None:
                best = max(best, kept(now + 1, stored, None, 0.0, 0.0, rest))
                continue
            got += rate * STEP_S
            if got >= lacking:
                best = max(best, kept(now + 1, one, None, 0.0, 0.0, (0, 0.0)))
            else:
                best = max(best, kept(now + 1, stored, one, lacking, got, rest))
        return best

    return steps - kept(0, None, None, 0.0, 0.0, (0, 0.0))


@pytest.mark.parametrize("seed", range(30))
def test_no_choice_of_snapshots_loses_less_than_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    steps, dirty = rng.randint(1, 10), rng.choice((0.05, 0.1, 0.3, 0.7, 1.0))
    payload = rng.uniform(50.0, 900.0)
    bound = least_steps(payload, dirty, STEP_S, 0.0, steps * STEP_S, RATE)
    assert 0 <= bound <= best_by_brute_force(steps, payload, dirty, RATE) <= steps


def test_a_state_that_is_rewritten_by_every_step_loses_the_time_of_a_whole_checkpoint() -> None:
    assert least_steps(C, 1.0, STEP_S, 0.0, 1000.0, RATE) == 10
    assert (
        best_by_brute_force(12, C / 2.0, 1.0, RATE)
        == 5
        == least_steps(C / 2.0, 1.0, STEP_S, 0.0, 120.0, RATE)
    )


def test_an_attempt_loses_no_more_than_it_did_and_nothing_of_a_state_that_never_changes() -> None:
    assert least_steps(C, 1.0, STEP_S, 0.0, 35.0, RATE) == 3
    assert least_steps(C, 0.0, STEP_S, 0.0, 1000.0, RATE) == 0


def crowded(seed: int) -> tuple[Scenario, Trace]:
    """Large states that each step rewrites: what nobody can help is much of what is lost."""
    scenario, _ = half_a_day(seed)
    law = InverseLaw("lognormal", 9e9, 0.5, 1e9, 30e9)
    jobs = replace(scenario.jobs, payload=law, dirty_fraction=0.9)
    scenario = replace(scenario, duration_s=6 * HOUR_S, jobs=jobs)
    return scenario, generate(scenario)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("row", sorted(SYSTEMS))
def test_no_row_loses_less_than_its_bound(row: str, seed: int) -> None:
    for scenario, trace in (half_a_day(seed), crowded(seed + 2)):
        run = simulate(scenario, trace, system=row)
        least = least_losses(run, scenario, trace, row)
        assert sum(one.work_s for one in least) <= sum(one.work_s for one in work_lost(run.facts))


def test_the_bound_is_more_than_nothing_where_states_are_large() -> None:
    scenario, trace = crowded(3)
    run = simulate(scenario, trace, system="reclaimnet")
    least = least_losses(run, scenario, trace, "reclaimnet")
    assert sum(one.work_s for one in least) > 0.05 * sum(one.work_s for one in work_lost(run.facts)) > 0.0
    assert least_losses(run, scenario, trace, "bamboo") == []


def test_the_bound_holds_where_links_become_faster_than_the_campus_describes() -> None:
    """A job of 2 GB, every byte of which each step rewrites, is ended just after a checkpoint at a hundred times the rate."""
    scenario, _ = half_a_day(1)
    slow = tuple(replace(each, rate_bytes_per_s=12.5e6) for each in scenario.campus.links)
    scenario = replace(scenario, campus=replace(scenario.campus, links=slow))
    faster = tuple(
        LinkEvent(10.0, (each.a, each.b), 100.0 * each.rate_bytes_per_s) for each in scenario.campus.links
    )
    scenario = replace(scenario, duration_s=HOUR_S, research=(), events=faster)
    arrivals = (JobArrival(15.0, JobDraw("j1", 2_000_000_000, 360, STEP_S, 1.0, 2e9, 0.0, 300.0)),)
    calm = simulate(scenario, Trace("calm", arrivals, ()))
    completed_s, first = next((s, fact) for s, fact in calm.facts if isinstance(fact, f.CheckpointCompleted))
    host = next(fact.host for _, fact in calm.facts if isinstance(fact, f.JobDispatched))
    trace = Trace("just after it", arrivals, (OwnerEvent(completed_s + 1.0, host),))
    run = simulate(scenario, trace)
    [one] = least_losses(run, scenario, trace, "reclaimnet")
    [lost] = work_lost(run.facts)
    assert first.step > 0
    assert one.work_s <= lost.work_s < 2e9 / (12.5e6 * 0.7), "less than the described rate allows"
