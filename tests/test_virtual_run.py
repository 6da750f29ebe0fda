"""Virtual runs as a whole: same seed, same bytes; promises kept; what is left out changes no decision."""

import random
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import structs

from controller.core.model import facts as f
from controller.core.policies.table import POLICIES
from experiments.inputs.scenario import InverseLaw, Owners, Scenario, demo_scenario
from experiments.inputs.scenario.files import load
from experiments.inputs.traces import JobArrival, JobDraw, Trace, generate
from experiments.worlds.virtual import VirtualRun, simulate
from experiments.worlds.virtual.invariants import Invariants
from topologies import presets
from topologies.errors import SpecError
from topologies.scale import Scale
from topologies.spec import ResearchReserve, TrafficClass
from topologies.units import GBIT_PER_S


def demo(seed: int = 1, **options: object) -> VirtualRun:
    scenario = demo_scenario(seed=seed)
    return simulate(scenario, generate(scenario), **options)


def one_day(seed: int = 1) -> Scenario:
    """The demo's campus at real scale, for a day: the demo's stream of jobs, made slower and longer."""
    small = demo_scenario(hosts=9, seed=seed)
    jobs = replace(
        small.jobs,
        initial=0,
        interarrival=InverseLaw("exponential", 3000.0),
        run_time=InverseLaw("lognormal", 3 * 3600.0, 0.5, 600.0, 8 * 3600.0),
        loss_budget_s=900.0,
    )
    owners = replace(
        small.owners, script=(), hazard_per_s=0.3 / 3600.0, notice=InverseLaw("exponential", 300.0, minimum=60.0)
    )
    return replace(small, duration_s=86_400.0, jobs=jobs, owners=owners, scale=Scale(), research=small.research[:1])


# ---------------------------------------------------------------- promises


@pytest.mark.parametrize(("hours", "jobs"), [(6, 3), pytest.param(24, 15, marks=pytest.mark.long)])
def test_a_day_at_real_scale_keeps_every_promise_and_finishes_its_jobs(hours: int, jobs: int) -> None:
    scenario = replace(one_day(2), duration_s=hours * 3600.0)
    run = simulate(scenario, generate(scenario), until_over=True, after_each=Invariants())
    summary = run.summary()
    assert summary.invariants_broken == []
    assert summary.jobs.finished == summary.jobs.submitted > jobs
    assert summary.emergencies.count >= 1
    assert summary.emergencies.restored_verified + summary.emergencies.restarted == summary.emergencies.count
    assert summary.migrations.in_time >= 1


def test_research_gets_what_migrations_leave_and_never_less_than_its_reserve() -> None:
    summary = demo().summary()
    assert summary.research.samples > 50
    assert summary.research.reserve_share - 1e-9 <= summary.research.lowest_share <= 1.0 + 1e-9


@pytest.mark.parametrize(("policy", "least"), [("share", 0.96), ("reclaimnet", 0.66)])
def test_a_paced_flow_gets_what_pacing_leaves_of_its_grant(policy: str, least: float) -> None:
    """But for a checkpoint that borrowed what research then asks for of its reserve, on a cable where nothing is counted."""
    scenario = demo_scenario(seed=3)
    played = replace(scenario, protocol=replace(scenario.protocol, policy=policy))
    run = simulate(played, generate(played))
    rates, granted, of_migrations = run.summary().rates, dict[tuple[str, str, str], str](), list[float]()
    for _, fact in run.facts:
        if isinstance(fact, f.Granted):
            granted[fact.job, fact.source, fact.destination] = fact.traffic_class
        elif (
            isinstance(fact, f.TransferFinished)
            and fact.goodput_over_grant is not None
            and granted[fact.job, fact.source, fact.destination] == TrafficClass.PLANNED
        ):
            of_migrations.append(fact.goodput_over_grant)
    assert rates.flows > 20 and min(of_migrations) > 0.98
    assert rates.median_goodput_over_grant == pytest.approx(0.995, abs=1e-6)
    # a grant that changes under way takes a message's time to reach its flow: some hundredths of half a second
    assert rates.worst_goodput_over_grant is not None and least < rates.worst_goodput_over_grant < 0.996


def test_the_literal_bucket_starves_flows_as_the_kernel_s_does() -> None:
    """256 KiB each 0.2 s are 1.3 MB/s, however much is granted: late moves are broken promises, and the run says so."""
    scenario = demo_scenario()
    dropping = replace(scenario, protocol=replace(scenario.protocol, enforcement="drop"))
    rates = simulate(dropping, generate(dropping)).summary().rates
    assert rates.median_goodput_over_grant < 0.5


# ---------------------------------------------------------------- what is left out
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def random_scenario(number: int) -> Scenario:
    """Draw a campus, its owners and its jobs. Most of their reclaims come without notice, or with a short one."""
    rng = random.Random(f"scenario {number}")
    drawn = demo_scenario(rng.randint(3, 16), rng.randint(1, 4), rng.randint(0, 2), rng.choice([40.0, 75.0]), number)
    payload = InverseLaw("lognormal", rng.choice([1e9, 3.2e9, 8e9]), 1.2, 5e8, 16e9)
    owners = replace(drawn.owners, hazard_per_s=rng.uniform(1, 8) / 3600.0, emergency_share=rng.random())
    protocol = replace(drawn.protocol, policy=rng.choice(list(POLICIES)))
    return replace(drawn, jobs=replace(drawn.jobs, payload=payload), owners=owners, protocol=protocol)


def example(name: str, **changes: object) -> Scenario:
    return replace(load(EXAMPLES / f"{name}.toml"), **changes)


SCENARIOS = {
    "afternoon": partial(example, "afternoon", duration_s=5400.0),
    **{name: partial(example, name) for name in ("evening", "evacuation", "redundant")},
    **{f"demo {seed}": partial(demo_scenario, seed=seed) for seed in (1, 2)},
    **{f"random {number}": partial(random_scenario, number) for number in range(12)},
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_whose_heartbeats_are_left_out_has_the_journal_of_one_with_all_of_them(name: str) -> None:
    """Every fact and its time are equal to the last bit; those of one moment come in any order.

    Counters of egress come with heartbeats. P2 scores the work that is left, of which a heartbeat knows up to a second ago.
    """
    scenario = SCENARIOS[name]()
    trace = generate(scenario)
    quiet, loud = simulate(scenario, trace), simulate(scenario, trace, quiet=False)
    beats = sum(isinstance(fact, f.EgressMeasured) for _, fact in loud.facts)
    assert loud.events - quiet.events > 3.5 * beats  # of four events that a heartbeat is
    assert journal(quiet) == journal(loud)


def journal(run: VirtualRun) -> list[tuple[float, f.Fact]]:
    facts = [(at_s, fact) for at_s, fact in run.facts if not isinstance(fact, f.EgressMeasured)]
    unscored = [
        (at_s, structs.replace(fact, score_s=None, survival=0.0) if isinstance(fact, f.MigrationAdmitted) else fact)
        for at_s, fact in facts
    ]
    return sorted(unscored, key=lambda line: (line[0], repr(line[1])))


# ---------------------------------------------------------------- scenarios, systems, files
def with_one_large_job(share: float | None) -> VirtualRun:
    """20 GB on a host of 1 Gbit/s for 4 hours, which no owner disturbs: 168 s of all of it."""
    small = demo_scenario(hosts=4, seed=1)
    scenario = replace(
        small,
        duration_s=4.0 * 3600.0,
        campus=presets.three_tier(
            4,
            2,
            uplink_bytes_per_s=GBIT_PER_S,
            mix=(presets.GpuShare(presets.A100, 1, 1),),
            reserve=ResearchReserve(beta=0.3),
        ),
        protocol=replace(small.protocol, checkpoint_share=share, head_stores=True),
        jobs=replace(small.jobs, min_capabilities=(0.0,)),
        owners=Owners(hazard_per_s=0.0),
        research=(),
        scale=Scale(),
    )
    job = JobDraw("large", 20_000_000_000, 2000, 10.0, 1.0, 40e9, 0.0, 300.0)
    return simulate(scenario, Trace("by hand", (JobArrival(0.0, job),), ()))


@pytest.mark.parametrize(("share", "least_s", "most_s"), [(None, 240.0, 600.0), (0.2, 800.0, 900.0)])
def test_a_large_payload_keeps_its_loss_budget_where_sending_may_take_most_of_an_interval(
    share: float | None, least_s: float, most_s: float
) -> None:
    """A loss budget of 300 s allows 600 s from one checkpoint to the next."""
    run = with_one_large_job(share)
    *_, interval_s = (fact.interval_s for _, fact in run.facts if isinstance(fact, f.CheckpointPlanned))
    assert least_s <= interval_s <= most_s
    there_s = [at_s for at_s, fact in run.facts if isinstance(fact, f.CheckpointCompleted)]
    gaps_s = [b - a for a, b in pairwise(there_s)]
    assert len(gaps_s) >= 5
    assert max(gaps_s) <= 1.05 * most_s  # none was left out


@pytest.mark.parametrize(
    ("needs", "said"), [({"memory_bytes": 900e9}, "9e\\+11 bytes"), ({"min_capability": 900.0}, "900")]
)
def test_a_job_that_the_campus_cannot_run_ends_the_run_with_its_name_and_the_reason(
    needs: dict[str, float], said: str
) -> None:
    scenario = demo_scenario(hosts=4, buildings=2, seconds=20.0)
    scenario = replace(scenario, scale=Scale())
    first, *others = generate(scenario).arrivals
    large = replace(first, job=replace(first.job, **needs))
    with pytest.raises(SpecError, match=f"job = 'j1': one that this campus can run: no volunteer host .*{said}"):
        simulate(scenario, Trace("by hand", (large, *others), ()))
