"""Random laws: right in distribution, exact in their limits, and scaled with their unit."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.inputs.scenario import InverseLaw
from experiments.inputs.scenario.law import SHAPES
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.scale import Scale

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


@given(
    st.sampled_from(["exponential", "gamma", "lognormal"]), draws, st.floats(0.1, 0.9), st.floats(1.1, 3.0)
)
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


def test_half_of_the_payloads_of_the_paper_are_below_3_2_gigabytes() -> None:
    law = InverseLaw("lognormal", 3.2e9, 1.2, 120e6, 48e9)
    assert law.quantile(0.5) == pytest.approx(3.2e9, rel=0.02)
    assert law.quantile(0.0) == pytest.approx(120e6)
    assert law.quantile(1.0 - 1e-12) == pytest.approx(48e9, rel=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        ("pareto", 1.0),
        ("exponential", 0.0),
        ("exponential", float("nan")),
        ("exponential", float("inf")),
        ("gamma", 1.0, 0.0),
        ("uniform", 1.0, 1.5),
        ("exponential", 1.0, 1.0, 3.0, 2.0),
        ("exponential", 1.0, 1.0, 100.0),
        ("deterministic", 1.0, 1.0, 2.0),
    ],
)
def test_impossible_laws_are_refused(arguments: tuple[str, float]) -> None:
    with pytest.raises(SpecError):
        InverseLaw(*arguments)
