"""Work that emergencies take in the mean over their moments: by hand, by an integral in small steps, beside what they took."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import facts as f
from experiments.inputs.scenario import InverseLaw, Jobs, Owners, Peak, Scenario
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces import generate
from experiments.inputs.traces.paper_campus import paper_scenario
from experiments.inputs.traces.reclaim_law import ReclaimLaw, law_of
from experiments.results.expected_loss import expected_emergencies_s
from experiments.results.history import Timed
from experiments.worlds.virtual import simulate
from testbed.messages import SEQUENCES_PER_ATTEMPT
from topologies.presets import three_tier
from topologies.scale import Scale

HOSTS = ("h1", "h2", "h3")
DAY_S, END_S, STEP_S = 400.0, 1_000.0, 2.0
EVEN = Owners(hazard_per_s=0.01, peaks=(), day_s=DAY_S, day_start_s=0.0, emergency_share=0.5, grace_share=0.2)


def law(owners: Owners = EVEN, **factors: float) -> ReclaimLaw:
    """Of these hosts, by default all alike."""
    return ReclaimLaw(owners, END_S, factors or dict.fromkeys(HOSTS, 1.0))


def joined(*hosts: str, lent: bool = True) -> list[Timed]:
    """They register at the beginning."""
    return [(0.0, f.HostJoined(host, 1, lent)) for host in hosts or HOSTS]


BEGUN: list[Timed] = [
    *joined(),
    (0.0, f.JobSubmitted("j", 500, STEP_S, 1_000)),
    (100.0, f.JobRunning("j", 1, "h1", 0, "", None, None)),
]


def test_hosts_without_an_owner_and_hosts_that_are_not_lent_have_no_hazard() -> None:
    other = law(h2=1.0, h3=1.0)
    assert expected_emergencies_s(BEGUN, other, END_S) == 0.0
    away = [*joined(lent=False), *BEGUN[3:]]
    assert expected_emergencies_s(away, law(), END_S) == 0.0


PEAKS = replace(EVEN, peaks=(Peak(100.0, 180.0, 6.0), Peak(300.0, 310.0, 2.0)), host_sigma=0.0)
KINDS = st.sampled_from(("taken", "completed", "held", "reclaim", "return", "join", "move", "back"))


@given(
    counted=st.booleans(), draws=st.lists(st.tuples(st.integers(101, 950), KINDS, st.sampled_from(HOSTS)), max_size=25)
)
def test_it_is_the_integral_of_the_hazard_times_the_work_at_risk(
    counted: bool, draws: list[tuple[int, str, str]]
) -> None:
    owners = replace(PEAKS, count=20 if counted else None)
    factors = {"h1": 0.5, "h2": 1.25, "h3": 1.25}
    facts = [*BEGUN, *_story(draws)]
    found = expected_emergencies_s(facts, ReclaimLaw(owners, END_S, factors), END_S)
    assert found == pytest.approx(_in_small_steps(facts, owners, factors), rel=1e-6, abs=1e-9)


def _story(draws: list[tuple[int, str, str]]) -> list[Timed]:
    """A journal of one job, everything at whole seconds; it goes on from its last snapshot, or begins again ("back")."""
    facts: list[Timed] = []
    attempt, begun, taken, host = 1, (100, 0), 0, "h1"
    steps: dict[int, int] = {}
    complete: set[int] = set()
    for at, kind, other in sorted(draws, key=lambda draw: draw[0]):
        number = attempt * SEQUENCES_PER_ATTEMPT + taken
        match kind:
            case "taken":
                taken, number = taken + 1, number + 1
                steps[number] = begun[1] + (at - begun[0]) // int(STEP_S)
                begun = at, steps[number]
                facts.append((at, f.CheckpointTaken("j", attempt, number, steps[number], 10, False)))
            case "completed" if number in steps and number not in complete:
                complete.add(number)
                facts.append((at, f.CheckpointCompleted("j", number, steps[number], other, 10)))
            case "held" if complete:
                facts.append((at, f.CheckpointHeld("j", max(complete), other)))
            case "reclaim":
                facts.append((at, f.HostReclaimed(other, 30.0, grace=False, jobs=[])))
            case "return":
                facts.append((at, f.HostReturned(other)))
            case "join":
                facts.append((at, f.HostJoined(other, 2, lent=True)))
            case "move" | "back":
                step = steps[max(complete)] if complete and kind == "move" else 0
                facts.append((at, f.JobStopped("j", attempt, host, "x", begun[1])))
                attempt, host, begun, taken = attempt + 1, other, (at, step), 0
                facts.append((at, f.JobRunning("j", attempt, other, step, "", None, 0.0)))
    return facts


def _in_small_steps(facts: Sequence[Timed], owners: Owners, factors: dict[str, float]) -> float:
    """The definition, second by second: everything changes at whole seconds, and within one the risk grows evenly."""
    total = 0.0
    whole = owners.exposure(0.0, END_S - 30.0)
    for second in range(int(END_S)):
        past = [fact for at, fact in facts if at <= second]
        lent: set[str] = set()
        for fact in past:
            if isinstance(fact, f.HostReturned) or (isinstance(fact, f.HostJoined) and fact.lent):
                lent.add(fact.host)
            elif isinstance(fact, f.HostReclaimed):
                lent.discard(fact.host)
        begins = [
            (at, fact) for at, fact in facts if at <= second and isinstance(fact, f.JobRunning | f.CheckpointTaken)
        ]
        runs = [fact for fact in past if isinstance(fact, f.JobRunning)]
        if not runs or runs[-1].host not in lent:
            continue
        host, (since, begin) = runs[-1].host, begins[-1]
        steps = {fact.sequence: fact.step for fact in past if isinstance(fact, f.CheckpointCompleted)}
        copies = [fact for fact in past if isinstance(fact, f.CheckpointCompleted | f.CheckpointHeld)]
        here = runs[-1].host, runs[-1].attempt
        others = [copy for copy in copies if (copy.holder, copy.sequence // SEQUENCES_PER_ATTEMPT) != here]
        kept = max((steps[copy.sequence] for copy in others), default=0)
        risk_s = (begin.step - kept) * STEP_S + (second + 0.5 - since)
        if risk_s < 0.0:
            continue
        per_s = next(owners.segments(second + 0.5))[2] * 0.5 * 0.8 * factors[host]
        if owners.count is not None:
            per_s *= owners.count / whole / sum(factors[name] for name in lent)
        total += per_s * (risk_s - STEP_S / 2.0)  # within the second the mean is that at the middle
    return total


# ---------------------------------------------------------------- whole runs
def mild(seed: int, **owners: object) -> Scenario:
    """24 hosts that are taken back twice a day, and a job every two hours."""
    return Scenario(
        name="mild",
        campus=three_tier(24, 3),
        seed=seed,
        duration_s=24 * HOUR_S,
        jobs=Jobs(interarrival=InverseLaw("exponential", 2.0 * HOUR_S), step_s=10.0),
        owners=Owners(hazard_per_s=0.1 / HOUR_S, grace_share=0.0, emergency_share=0.8, **owners),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("system", "owners"),
    [
        pytest.param("static", {}, id="each"),
        pytest.param("reclaimnet", {"count": 150, "host_sigma": 0.7}, id="counted", marks=pytest.mark.long),
    ],
)
def test_over_many_runs_emergencies_take_as_much_as_is_expected(system: str, owners: dict[str, object]) -> None:
    took, expected = [], []
    for seed in range(12):
        scenario = mild(seed, **owners)
        lost = simulate(scenario, generate(scenario), seed, system=system).summary().lost_time
        took.append(lost.emergencies_s)
        expected.append(lost.expected_emergencies_s)
    error = stdev([one - other for one, other in zip(took, expected, strict=True)]) / math.sqrt(len(took))
    assert abs(fmean(took) - fmean(expected)) < 3.0 * error
    assert 3.0 * error < 0.6 * fmean(took)  # twice as much would be seen


def test_the_law_of_a_trace_is_the_one_that_it_was_drawn_from() -> None:
    alike = paper_scenario(3, days=2.0)
    scenario = replace(alike, owners=replace(alike.owners, host_sigma=0.5))
    trace = generate(scenario)
    found = law_of(scenario, trace)
    assert found is not None and found.is_shared
    lent_s = sum(found.factors.values()) / len(found.factors)
    assert lent_s == pytest.approx(1.0, abs=0.5) and len(set(found.factors.values())) == len(found.factors)
    hazards = [end - start for start, end, _ in _until(found, scenario.duration_s)]
    assert sum(hazards) == pytest.approx(scenario.duration_s)
    per_run = sum((end - start) * per_s for start, end, per_s in _until(found, scenario.duration_s))
    assert per_run == pytest.approx(trace.emergencies, abs=0.51, rel=0.01)


def _until(law: ReclaimLaw, end_s: float) -> list[tuple[float, float, float]]:
    found = []
    for start, end, per_s in law.segments(0.0):
        if start >= end_s:
            return found
        found.append((start, min(end, end_s), per_s))
    raise AssertionError


def test_a_scaled_scenario_has_the_law_in_the_time_in_which_it_is_played() -> None:
    scenario = mild(1)
    scaled = replace(scenario, scale=Scale(bytes=0.01, time=0.1))
    one, other = (law_of(each, generate(each)) for each in (scenario, scaled))
    assert other.duration_s == pytest.approx(0.1 * one.duration_s)
    assert next(other.segments(0.0))[2] == pytest.approx(10.0 * next(one.segments(0.0))[2])
