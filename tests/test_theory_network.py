"""Paper A's closed forms against brute force and integrals of their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.admission import admission
from controller.core.checkpointing import intervals
from experiments.theory.domain import DomainError
from experiments.theory.paper_a.theorems import lognormal_gap_ratio, residual_for_research
from topologies.spec import DirectedLink

SMALL = st.integers(1, 20).map(float)
EPOCHS = st.lists(st.tuples(st.floats(0.01, 10.0), st.floats(0.01, 10.0)), min_size=1, max_size=20)
LINK = DirectedLink("source", "switch")


@given(epochs=EPOCHS)
def test_adaptivity_gap_is_the_difference_of_two_minima(epochs: list[tuple[float, float]]) -> None:
    hazards, rates = map(np.array, zip(*epochs, strict=True))

    def fixed(interval_s: float) -> float:
        return float(np.mean(hazards * interval_s / 2.0 + 3.0 / rates / interval_s))  # eq. 1 and 3

    adapted = float(np.mean(np.sqrt(2.0 * hazards * 3.0 / rates)))
    means = float(hazards.mean()), float((1.0 / rates).mean())
    best = fixed(intervals.stationary_interval_s(3.0, *means))
    assert best <= min(fixed(s) for s in np.geomspace(0.01, 1000.0, 200)) * (1.0 + 1e-12)
    gap = intervals.adaptivity_gap(hazards.tolist(), rates.tolist(), 3.0)
    assert gap.gap == pytest.approx(best - adapted, abs=1e-9)
    assert gap.ratio == pytest.approx(best / adapted, rel=1e-9) and gap.ratio >= 1.0 - 1e-12


def test_correlation_of_hazard_and_slowness_shrinks_the_gap() -> None:
    rng = np.random.default_rng(5)
    for correlation in (-0.5, 0.0, 0.39, 1.0):
        normal = rng.multivariate_normal([0.0, 0.0], [[1.0, correlation], [correlation, 1.0]], 300_000)
        s, t = math.sqrt(math.log1p(0.62**2)), math.sqrt(math.log1p(0.39**2))
        hazards, slowness = np.exp(s * normal[:, 0]), np.exp(t * normal[:, 1])
        seen = intervals.adaptivity_gap(hazards.tolist(), (1.0 / slowness).tolist(), 1.0).ratio
        assert lognormal_gap_ratio(0.62, 0.39, correlation) == pytest.approx(seen, abs=2e-3)
    assert lognormal_gap_ratio(0.5, 0.5, 1.0) == pytest.approx(1.0)


@given(
    flows=st.lists(st.tuples(SMALL, st.integers(-2, 12).map(float)), min_size=0, max_size=7),
    share=st.integers(1, 12).map(float),
)
def test_printed_admission_is_that_of_a_running_sum(flows: list[tuple[float, float]], share: float) -> None:
    requests = [
        admission.MigrationRequest(f"{i}", c, slack_s, 0.0, (LINK,)) for i, (c, slack_s) in enumerate(flows)
    ]

    taken, stopping = 0.0, []
    for i in sorted((i for i, (_, slack) in enumerate(flows) if slack > 0.0), key=lambda i: flows[i][1]):
        taken += flows[i][0] / flows[i][1]
        if taken > share * (1.0 + 1e-9):
            break
        stopping.append(i)
    assert sorted(int(key) for key in admission.edf_stop(requests, 0.0, {LINK: share}).admitted) == sorted(
        stopping
    )


def test_research_is_left_its_minimum_less_what_nobody_controls() -> None:
    assert residual_for_research(1e7, 0.8, 2e7) == pytest.approx(6e6)
    assert residual_for_research(1e7) == 1e7
    assert residual_for_research(1e6, 0.5, 1e9) == 0.0
    with pytest.raises(DomainError, match="phi"):
        residual_for_research(1e7, 0.0, 1.0)
