"""One run, described."""

import math
import random
import statistics
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.inputs.scenario import (
    InverseLaw,
    Jobs,
    OwnerEvent,
    Owners,
    Peak,
    Protocol,
    Queue,
    ResearchFlow,
    Scenario,
    demo_scenario,
    dumps,
    examples,
    load,
    loads,
)
from experiments.inputs.scenario.law import SHAPES
from experiments.inputs.scenario.owners import HOUR_S
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.files import campus54
from topologies.presets import three_tier
from topologies.scale import Scale
from topologies.spec import Role

SMALL = three_tier(4, 2, 1)


@pytest.mark.parametrize(
    "scenario",
    [demo_scenario(), demo_scenario(hosts=1), Scenario("plain", campus54(), seed=0), demo_scenario().played()],
)
def test_a_scenario_survives_a_file_exactly(scenario: Scenario) -> None:
    assert loads(dumps(scenario)) == scenario


def test_the_examples_load() -> None:
    assert "lab" in examples()
    assert "campuses" not in examples()  # a sweep
    for name in examples():
        assert load(f"example:{name}").volunteers


def test_playing_scales_once_and_only_once() -> None:
    scenario = demo_scenario()
    played = scenario.played()
    assert played.scale == Scale()
    assert played.played() == played
    assert played.duration_s == pytest.approx(75.0)
    assert scenario.scale.back(played.duration_s, Dimension.DURATION) == pytest.approx(3000.0)


@pytest.mark.parametrize(
    "made",
    [
        *(
            partial(Scenario, **{"name": "x", "campus": SMALL, **change})
            for change in (
                {"name": ""},
                {"seed": 1.5},
                {"seed": True},
                {"duration_s": math.inf},
                {"duration_s": math.nan},
                {"campus": three_tier(1, 1), "owners": Owners(loyal=("h2",))},
                {"owners": Owners(loyal=("h1",), script=(OwnerEvent(1.0, "h1"),))},
            )
        ),
        partial(Queue, target_delay_s=math.nan),
        partial(Queue, level_window=0),
        partial(Queue, on_demand_cost="10"),
        partial(Protocol, policy=""),
        partial(Jobs, dirty_fraction=1.1),
        partial(Jobs, payload=3e9),
        partial(OwnerEvent, -1.0, "h1"),
        partial(OwnerEvent, 1.0, "h1", "return", notice_s=3.0),
        partial(ResearchFlow, "a", "b", 0.0),
        partial(InverseLaw, "exponential", math.nan),
        partial(InverseLaw, "exponential", math.inf),
        partial(demo_scenario, hosts=0),
        partial(demo_scenario, hosts=-1),
        partial(demo_scenario, seconds=0),
        partial(demo_scenario, seconds=math.nan),
        partial(demo_scenario, seconds="60"),
        partial(demo_scenario, seed=-1),
        partial(demo_scenario, on_demand=-1),
    ],
)
def test_what_cannot_be_or_does_not_fit_together_is_refused(made: Callable[[], object]) -> None:
    with pytest.raises(SpecError):
        made()


HOURS = st.floats(0.0, 72.0)


@given(HOURS, st.floats(0.0, 40.0), st.floats(0.0, 8.0))
def test_the_next_reclaim_comes_when_the_hazard_has_been_collected(
    lent_h: float, exposure: float, factor: float
) -> None:
    """Against the integral of the hazard by the midpoint rule, a minute a step."""
    owners = Owners(
        hazard_per_s=0.5 / HOUR_S,
        peaks=(Peak(11.5 * HOUR_S, 13 * HOUR_S, factor), Peak(17.5 * HOUR_S, 20 * HOUR_S, factor)),
    )
    lent_s = lent_h * HOUR_S
    at_s = owners.next_reclaim_s(lent_s, exposure)
    assert at_s >= lent_s
    steps = max(1, round((at_s - lent_s) / 60.0))
    step_s = (at_s - lent_s) / steps
    collected = sum(next(owners.segments(lent_s + (i + 0.5) * step_s))[2] * step_s for i in range(steps))
    assert collected == pytest.approx(exposure, abs=0.5 / HOUR_S * 8 * 60 * (steps / 720 + 4))


@pytest.mark.parametrize("hosts", [1, 2, 3, 5, 6, 11, 12, 40, 200, 1000])
@pytest.mark.parametrize("seconds", [10, 75, 300])
def test_the_demo_fits_any_number_of_hosts_and_any_length(hosts: int, seconds: float) -> None:
    scenario = demo_scenario(hosts=hosts, seconds=seconds, seed=hosts)
    played = scenario.played()
    assert len(scenario.volunteers) == hosts
    assert played.duration_s == pytest.approx(seconds)
    slots = sum(h.gpus for h in scenario.campus.hosts_of(Role.ON_DEMAND))
    assert slots >= min(hosts, 8)
    assert all(flow.source in scenario.campus.host_by_name for flow in scenario.research)


def test_the_demo_is_played_at_the_size_that_two_cores_can_move() -> None:
    played = demo_scenario().played()
    access = played.campus.access_link("h1").rate_bytes_per_s * 8
    assert access == pytest.approx(160e6)
    assert played.jobs.payload.minimum == pytest.approx(4e6)
    assert played.jobs.payload.maximum == pytest.approx(40e6)
    assert played.jobs.run_time.minimum == pytest.approx(8.0)
    assert played.jobs.run_time.maximum == pytest.approx(25.0)
    assert played.protocol.lease_s == pytest.approx(3.0)
    real = demo_scenario()
    assert real.campus.access_link("h1").rate_bytes_per_s == 125e6
    assert real.jobs.payload.typical == 3.2e9
    assert real.owners.emergency_share == 0.42


# ---------------------------------------------------------------- random laws
SPREADS = {"deterministic": 1.0, "exponential": 1.0, "gamma": 4.0, "lognormal": 0.8, "uniform": 0.5}
laws = st.builds(
    lambda shape, typical: InverseLaw(shape, typical, SPREADS[shape]),
    st.sampled_from(sorted(SHAPES)),
    st.floats(1e-6, 1e12),
)
draws = st.floats(0.0, 1.0, exclude_max=True)


@given(laws, draws, draws)
def test_quantiles_rise(law: InverseLaw, a: float, b: float) -> None:
    assert law.quantile(min(a, b)) <= law.quantile(max(a, b))


@given(laws, draws, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_a_scaled_law_gives_the_scaled_draws(law: InverseLaw, u: float, bytes_: float, time: float) -> None:
    scale = Scale(bytes_, time)
    for dimension in Dimension:
        played = scale.apply(law, dimension).quantile(u)
        assert played == pytest.approx(scale.apply(law.quantile(u), dimension), rel=1e-9, abs=1e-300)


@given(st.sampled_from(["exponential", "gamma", "lognormal"]), draws, st.floats(0.1, 0.9), st.floats(1.1, 3.0))
def test_limits_hold_without_heaping_at_them(shape: str, u: float, low: float, high: float) -> None:
    law = InverseLaw(shape, 1.0, SPREADS[shape], low, high)
    assert low <= law.quantile(u) <= high
    assert low < law.quantile(0.001) < law.quantile(0.999) < high


@pytest.mark.parametrize(
    ("law", "mean"),
    [
        (InverseLaw("exponential", 5.0), 5.0),
        (InverseLaw("gamma", 5.0, 12.0), 5.0),
        (InverseLaw("uniform", 5.0, 1.0), 5.0),
        (InverseLaw("deterministic", 5.0), 5.0),
        (InverseLaw("lognormal", 5.0, 0.5), 5.0 * 2.718281828**0.125),
        (InverseLaw("exponential", 5.0, minimum=3.0), 8.0),  # without memory
    ],
)
def test_means_are_those_of_the_law(law: InverseLaw, mean: float) -> None:
    assert law.mean() == pytest.approx(mean, rel=2e-3)
    rng = random.Random(1)
    drawn = [law.quantile(rng.random()) for _ in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(mean, rel=0.04)
