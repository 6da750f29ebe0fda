"""Generated traces: seeded, independent by purpose, and of the laws that the scenario names."""

import math
import statistics
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.inputs.scenario import InverseLaw, Jobs, OwnerEvent, Owners, Scenario, demo_scenario
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.scenario.parts import LinkEvent
from experiments.inputs.traces import JobArrival, JobDraw, Trace, generate
from topologies.errors import SpecError
from topologies.presets import campus54, three_tier
from topologies.scale import Scale

demos = st.builds(
    demo_scenario,
    hosts=st.integers(1, 30),
    buildings=st.integers(1, 4),
    on_demand=st.integers(0, 3),
    seconds=st.floats(10.0, 200.0),
    seed=st.integers(0, 10**6),
)


@given(demos)
def test_a_trace_is_in_order_and_every_owner_alternates(scenario: Scenario) -> None:
    trace = generate(scenario)  # Trace itself refuses disorder
    volunteers = {host.name for host in scenario.volunteers}
    for event in trace.owner_events:
        assert 0.0 <= event.at_s < scenario.duration_s
        assert event.host in volunteers - set(scenario.owners.loyal)
    assert all(0.0 <= a.at_s < scenario.duration_s for a in trace.arrivals)
    assert len({a.job.name for a in trace.arrivals}) == len(trace.arrivals)
    low, high = scenario.jobs.payload.minimum, scenario.jobs.payload.maximum
    assert all(low * 0.999 <= a.job.payload_bytes <= high * 1.001 for a in trace.arrivals)


@settings(max_examples=15)
@given(demos)
def test_the_same_seed_gives_the_same_trace(scenario: Scenario) -> None:
    assert generate(scenario) == generate(scenario)


@given(demos, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_generating_from_the_played_scenario_is_playing_the_generated_trace(
    scenario: Scenario, bytes_: float, time: float
) -> None:
    assume(
        bytes_ <= 800.0 * time
    )  # more, and a trunk of 10 Gbit/s would carry more than a description may say
    scenario = replace(scenario, scale=Scale(bytes_, time))
    scaled, played = scenario.scale.apply(generate(scenario)), generate(scenario.played())
    assert len(scaled.arrivals) == len(played.arrivals)
    for a, b in zip(scaled.arrivals, played.arrivals, strict=True):
        assert a.at_s == pytest.approx(b.at_s, rel=1e-6)
        assert abs(a.job.payload_bytes - b.job.payload_bytes) <= 1 + bytes_
        assert a.job.steps == b.job.steps
    for x, y in zip(scaled.owner_events, played.owner_events, strict=True):
        assert (x.host, x.kind, x.grace) == (y.host, y.kind, y.grace)
        assert x.at_s == pytest.approx(y.at_s, rel=1e-6)


def test_streams_of_different_purposes_do_not_move_each_other() -> None:
    scenario = demo_scenario()
    bigger = replace(scenario, jobs=replace(scenario.jobs, payload=InverseLaw("exponential", 2e9)))
    a, b = generate(scenario), generate(bigger)
    assert [x.at_s for x in a.arrivals] == [x.at_s for x in b.arrivals]
    assert [x.job.steps for x in a.arrivals] == [x.job.steps for x in b.arrivals]
    assert a.owner_events == b.owner_events


def test_the_script_is_followed_and_loyal_hosts_are_left_alone() -> None:
    scenario = demo_scenario(hosts=12, seed=3)
    scripted = {event.host for event in scenario.owners.script}
    events = generate(scenario).owner_events
    followed = tuple(e for e in events if e.host in scripted)
    assert followed == scenario.owners.script
    assert not any(e.host in scenario.owners.loyal for e in events)


@pytest.mark.parametrize("seed", range(8))
def test_every_demo_has_planned_reclaims_emergencies_and_a_grace(seed: int) -> None:
    reclaims = [e for e in generate(demo_scenario(seed=seed)).owner_events if e.kind == "reclaim"]
    assert any(e.notice_s > 0 and not e.grace for e in reclaims)
    assert any(e.notice_s == 0 for e in reclaims)
    assert any(e.grace for e in reclaims)


def test_a_month_of_the_paper_has_its_share_of_emergencies_and_peaks() -> None:
    back_soon = Owners(absence=InverseLaw("deterministic", 60.0))  # else half of the hosts are away at lunch
    scenario = Scenario("month", campus54(), seed=5, duration_s=30 * 24 * HOUR_S, owners=back_soon)
    reclaims = [e for e in generate(scenario).owner_events if e.kind == "reclaim"]
    owners = scenario.owners
    share = sum(e.notice_s == 0.0 or e.grace for e in reclaims) / len(reclaims)
    assert share == pytest.approx(owners.emergency_share, abs=4 * (0.42 * 0.58 / len(reclaims)) ** 0.5)
    assert all(e.notice_s >= 10.0 for e in reclaims if e.notice_s)
    hours = Counter(int((owners.day_start_s + e.at_s) % owners.day_s // HOUR_S) for e in reclaims)
    quiet = statistics.fmean(hours[h] for h in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
    assert hours[12] / quiet == pytest.approx(6.0, rel=0.15)


def test_interarrivals_have_the_mean_of_their_law() -> None:
    for shape, spread in (("exponential", 1.0), ("gamma", 12.0), ("deterministic", 1.0)):
        jobs = Jobs(interarrival=InverseLaw(shape, 60.0, spread))
        scenario = Scenario("x", three_tier(2, 1), duration_s=60.0 * 4000, jobs=jobs)
        times = [a.at_s for a in generate(scenario).arrivals]
        gaps = [b - a for a, b in pairwise(times)]
        assert statistics.fmean(gaps) == pytest.approx(60.0, rel=0.08)


def test_a_trace_out_of_order_is_refused() -> None:
    arrivals = generate(demo_scenario()).arrivals
    with pytest.raises(SpecError, match="order of time"):
        Trace("x", (arrivals[1], arrivals[0]), ())
    with pytest.raises(SpecError, match="hosts begin lent"):
        Trace("x", (), (OwnerEvent(1.0, "h1", "return"),))
    with pytest.raises(SpecError, match="a return"):
        Trace("x", (), (OwnerEvent(1.0, "h1"), OwnerEvent(2.0, "h1")))


JOB = JobDraw("a", 10**9, 100, 2.0, 0.5, 1e9, 0.0, 300.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "a b"),
        ("payload_bytes", math.nan),
        ("payload_bytes", 0),
        ("payload_bytes", 1e9),
        ("steps", 100.5),
        ("steps", -3),
        ("steps", 0),
        ("step_s", 0.0),
        ("dirty_fraction", 1.5),
        ("memory_bytes", math.inf),
        ("loss_budget_s", math.nan),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_the_field(field: str, value: object) -> None:
    with pytest.raises(SpecError, match=rf"^job.*{field.split('_')[0]}") as caught:
        replace(JOB, **{field: value})  # type: ignore[arg-type]
    assert caught.value.value == value or value != value


def test_numbers_of_numpy_become_pythons_wherever_a_trace_or_a_scenario_declares_them() -> None:
    job = replace(JOB, steps=np.int64(5), step_s=np.float32(0.5))  # type: ignore[arg-type]
    arrival, event = (
        JobArrival(np.float64(3.0), job),
        OwnerEvent(np.float64(50.0), "h1", notice_s=np.int32(60)),
    )
    owners = Owners(hazard_per_s=np.float32(0.5), count=np.int64(3))  # type: ignore[arg-type]
    law = InverseLaw("uniform", np.float64(2e9), np.float32(0.5))  # type: ignore[arg-type]
    scenario = replace(demo_scenario(), duration_s=np.float64(60.0), seed=np.int64(3))  # type: ignore[arg-type]
    found = (job.steps, job.step_s, arrival.at_s, event.at_s, event.notice_s, owners.count)
    others = (owners.hazard_per_s, law.typical, law.spread, scenario.duration_s, scenario.seed)
    assert found == (5, 0.5, 3.0, 50.0, 60, 3)
    assert not any(isinstance(each, np.generic) for each in (*found, *others))


def test_more_reclaims_than_the_hosts_have_room_for_are_refused_with_their_number() -> None:
    scenario = demo_scenario(hosts=3, buildings=1, seconds=60.0)
    crowded = replace(scenario, owners=replace(scenario.owners, count=500))
    with pytest.raises(SpecError, match=r"owners\.count = 500: fewer"):
        generate(crowded)


def test_what_a_scenario_says_without_effect_is_told_with_the_trace() -> None:
    plain = Scenario("x", three_tier(3, buildings=1), duration_s=600.0)
    assert generate(plain).warnings == ()
    ends = (plain.campus.links[0].a, plain.campus.links[0].b)
    gone = (
        OwnerEvent(500.0, "h1"),
        OwnerEvent(700.0, "h1", "return"),
    )  # that its owner stays is no event that is missed
    idle = replace(
        plain,
        owners=Owners(lent_at_start=0.5, burst_share=0.2, script=(*gone, OwnerEvent(1000.0, "h2"))),
        jobs=Jobs(work_s=60.0),
        events=(LinkEvent(600.0, ends, up=False),),
    )
    assert generate(idle).warnings == (
        "owners.lent_at_start has no effect without owners.count",
        "owners.burst_share has no effect without owners.count",
        "jobs.work has no effect without jobs.count",
        "1 of events would come after the end, 10 min",
        "1 of owners.script would come after the end, 10 min",
    )
    counted = replace(
        idle, owners=replace(idle.owners, count=2, script=()), jobs=Jobs(work_s=60.0, count=2), events=()
    )
    assert generate(counted).warnings == ()
