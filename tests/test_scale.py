"""One factor for bytes, one for time: everything else follows from dimensions."""

from dataclasses import dataclass, fields

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import topologies.spec as spec
from experiments.inputs.scenario import demo_scenario
from topologies.dimension import Dimension
from topologies.presets import three_tier
from topologies.scale import Scale

factors = st.floats(min_value=1e-6, max_value=1e6)
scales = st.builds(Scale, bytes=factors, time=factors)
values = st.floats(min_value=1e-9, max_value=1e12)


@given(scales, values, st.sampled_from(list(Dimension)))
def test_back_undoes_apply(scale: Scale, value: float, dimension: Dimension) -> None:
    assert scale.back(scale.apply(value, dimension), dimension) == pytest.approx(value, rel=1e-12)


@given(scales, values, values, values, values)
def test_ratios_without_dimension_are_invariant(
    scale: Scale, size: float, rate: float, notice: float, hazard: float
) -> None:
    played_size, played_rate = scale.apply(size, Dimension.SIZE), scale.apply(rate, Dimension.RATE)
    played_notice = scale.apply(notice, Dimension.DURATION)
    played_hazard = scale.apply(hazard, Dimension.PER_TIME)
    assert played_size / (played_rate * played_notice) == pytest.approx(size / (rate * notice), rel=1e-9)
    assert played_hazard * played_notice == pytest.approx(hazard * notice, rel=1e-9)
    # Lemma 1's interval is a duration: sqrt(2 C / (lambda b))
    interval_s = (2 * size / (hazard * rate)) ** 0.5
    played_interval_s = (2 * played_size / (played_hazard * played_rate)) ** 0.5
    assert played_interval_s == pytest.approx(scale.apply(interval_s, Dimension.DURATION), rel=1e-9)


@given(scales, values, values)
def test_a_rate_rises_by_its_rate_of_change_times_a_duration(
    scale: Scale, change: float, during: float
) -> None:
    played = scale.apply(change, Dimension.RATE_CHANGE) * scale.apply(during, Dimension.DURATION)
    assert played == pytest.approx(scale.apply(change * during, Dimension.RATE), rel=1e-9)


@given(scales)
def test_scaling_a_campus_scales_every_rate_delay_and_memory(scale: Scale) -> None:
    campus = three_tier(6, 2, 1, reserve=spec.ResearchReserve(0.3, 1e6))
    slow = spec.Campus(
        **{
            **{f.name: getattr(campus, f.name) for f in fields(campus)},
            "links": tuple(spec.Link(ln.a, ln.b, ln.rate_bytes_per_s, 1e-3, 0.01) for ln in campus.links),
        }
    )
    assume(
        max(link.rate_bytes_per_s for link in slow.links) * scale.factor(Dimension.RATE) <= 1e12
    )  # 8 Tbit/s
    played = scale.apply(slow)
    for before, after in zip(slow.links, played.links, strict=True):
        assert after.rate_bytes_per_s == before.rate_bytes_per_s * scale.factor(Dimension.RATE)
        assert after.delay_s == before.delay_s * scale.time
        assert after.loss == before.loss
    assert played.research_reserve.minimum_bytes_per_s == 1e6 * scale.factor(Dimension.RATE)
    assert played.research_reserve.beta == 0.3
    assert played.gpu_models[0].memory_bytes == slow.gpu_models[0].memory_bytes * scale.bytes
    assert played.hosts == slow.hosts


def test_every_number_of_a_campus_and_a_scenario_declares_its_dimension() -> None:
    """No field is forgotten: scaling them all would raise otherwise."""
    for kind in (spec.GpuModel, spec.Link, spec.ResearchReserve):
        for each in fields(kind):
            if each.type in ("float", float):
                assert isinstance(each.metadata.get("dimension"), Dimension), (kind, each.name)
    Scale(0.5, 0.5).apply(demo_scenario())


def test_a_number_without_dimension_is_an_error() -> None:
    @dataclass(frozen=True)
    class Careless:
        speed: float

    with pytest.raises(TypeError, match="speed declares no dimension"):
        Scale(2.0, 2.0).apply(Careless(1.0))
    with pytest.raises(TypeError, match="without a dimension"):
        Scale(2.0, 2.0).apply(3.0)
