"""Paper B's closed forms against computations that know nothing of them: chains solved as matrices, LPs, a simulation."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate

from controller.core.admission import admission
from experiments.theory.domain import DomainError
from experiments.theory.laws import BathTub, Deterministic, Exponential, Gamma, Law, Uniform
from experiments.theory.paper_a.theorems import adaptivity_gap, lognormal_gap_ratio, residual_for_research
from experiments.theory.paper_b import single_slot, stationary
from experiments.theory.paper_b.targets import TARGETS, Target
from topologies.spec import DirectedLink

Floats = NDArray[np.float64]
MEANS = st.floats(0.2, 50.0)


def chain(mean_job: float, mean_spot: float, r: float) -> Floats:
    """Stationary distribution of the birth-death chain, from its generator."""
    count = math.floor(r) + 2
    rates = np.zeros((count, count))
    for n in range(count - 1):
        rates[n, n + 1] = min(1.0, max(0.0, r - n)) / mean_job
        rates[n + 1, n] = 1.0 / mean_spot
    generator = rates - np.diag(rates.sum(axis=1))
    return np.asarray(np.linalg.lstsq(np.vstack([generator.T, np.ones(count)]), np.eye(count + 1)[-1])[0])


# ---------------------------------------------------------------- Poisson jobs and spots
@given(mean_job=MEANS, ratio=st.one_of(st.just(1.0), st.floats(0.1, 10.0)), r=st.floats(0.0, 12.0))
def test_exact_levels_of_poisson_jobs_and_spots_solve_the_chain(mean_job: float, ratio: float, r: float) -> None:
    found = stationary.under_level(Exponential(mean_job), Exponential(mean_job * ratio), r)
    levels = chain(mean_job, mean_job * ratio, r)
    padded = np.append(found.levels, np.zeros(len(levels) - len(found.levels)))
    assert padded == pytest.approx(levels, abs=1e-9)
    assert found.delay_h == pytest.approx(float(levels @ np.arange(len(levels))) * mean_job, rel=1e-7, abs=1e-9)
    assert found.cost == pytest.approx(10.0 - 9.0 * (1.0 - float(levels[0])) / ratio, abs=1e-7)


# ---------------------------------------------------------------- exact stationary numbers
@pytest.mark.parametrize(
    "spots", [BathTub(), Uniform(0.0, 24.0), Gamma(0.25, 48.0), Deterministic(12.0), Uniform(3.0, 5.0)], ids=str
)
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_one_slot_closed_form_is_the_stationary_chain(spots: Law, p: float) -> None:
    exact = stationary.under_level(Exponential(12.0), spots, p)
    assert single_slot.delay_h(12.0, spots, p) == pytest.approx(exact.delay_h, rel=1e-10)
    assert single_slot.cost(12.0, spots, p, 10.0) == pytest.approx(exact.cost, rel=1e-10)
    assert single_slot.join_probability(12.0, spots, exact.delay_h) == pytest.approx(p, rel=1e-7)


def test_laws_of_which_neither_is_a_clock_are_refused() -> None:
    with pytest.raises(DomainError, match="whole shape"):
        stationary.under_level(Gamma(2.5, 5.0), BathTub(), 1.5)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_targets_are_what_the_solver_says(target: Target) -> None:
    found = stationary.fixpoint(target.jobs, target.spots, target.delta_h, target.k)
    assert found.r_star == pytest.approx(target.r_star, abs=2e-8)
    assert found.cost == pytest.approx(target.cost_star, abs=2e-8)


# ---------------------------------------------------------------- paper A
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
    best = fixed(math.sqrt(2.0 * 3.0 * means[1] / means[0]))
    assert best <= min(fixed(s) for s in np.geomspace(0.01, 1000.0, 200)) * (1.0 + 1e-12)
    gap = adaptivity_gap(hazards.tolist(), rates.tolist(), 3.0)
    assert gap.gap == pytest.approx(best - adapted, abs=1e-9)
    assert gap.ratio == pytest.approx(best / adapted, rel=1e-9) and gap.ratio >= 1.0 - 1e-12


def test_correlation_of_hazard_and_slowness_shrinks_the_gap() -> None:
    rng = np.random.default_rng(5)
    for correlation in (-0.5, 0.0, 0.39, 1.0):
        normal = rng.multivariate_normal([0.0, 0.0], [[1.0, correlation], [correlation, 1.0]], 300_000)
        s, t = math.sqrt(math.log1p(0.62**2)), math.sqrt(math.log1p(0.39**2))
        hazards, slowness = np.exp(s * normal[:, 0]), np.exp(t * normal[:, 1])
        seen = adaptivity_gap(hazards.tolist(), (1.0 / slowness).tolist(), 1.0).ratio
        assert lognormal_gap_ratio(0.62, 0.39, correlation) == pytest.approx(seen, abs=2e-3)
    assert lognormal_gap_ratio(0.5, 0.5, 1.0) == pytest.approx(1.0)


@given(
    flows=st.lists(st.tuples(SMALL, st.integers(-2, 12).map(float)), min_size=0, max_size=7),
    share=st.integers(1, 12).map(float),
)
def test_printed_admission_is_that_of_a_running_sum(flows: list[tuple[float, float]], share: float) -> None:
    requests = [admission.MigrationRequest(f"{i}", c, slack_s, 0.0, (LINK,)) for i, (c, slack_s) in enumerate(flows)]

    taken, stopping = 0.0, []
    for i in sorted((i for i, (_, slack) in enumerate(flows) if slack > 0.0), key=lambda i: flows[i][1]):
        taken += flows[i][0] / flows[i][1]
        if taken > share * (1.0 + 1e-9):
            break
        stopping.append(i)
    assert sorted(int(key) for key in admission.edf_stop(requests, 0.0, {LINK: share}).admitted) == sorted(stopping)


def test_research_is_left_its_minimum_less_what_nobody_controls() -> None:
    assert residual_for_research(1e7, 0.8, 2e7) == pytest.approx(6e6)
    assert residual_for_research(1e7) == 1e7
    assert residual_for_research(1e6, 0.5, 1e9) == 0.0
    with pytest.raises(DomainError, match="phi"):
        residual_for_research(1e7, 0.0, 1.0)


# ---------------------------------------------------------------- laws of times
LAWS: list[Law] = [
    Exponential(12.0),
    Uniform(0.0, 24.0),
    Uniform(3.0, 5.0),
    Gamma(0.25, 48.0),
    Gamma(4.0, 3.0),
    Gamma(12.0, 1.0),
    Deterministic(12.0),
    BathTub(),
    BathTub(0.4137, 0.9, 0.76, 24.0),
    BathTub(0.8, 2.0, 5.0, 6.0),
    BathTub(1.0, 1.5, 0.8, 24.0),
]


def survival_integral(law: Law, weight: object, upper: float) -> float:
    """The integral of weight(t) (1 - F(t)) over [0, upper], cut at the law's corners."""
    assert callable(weight)
    cuts = sorted({0.0, *(c for c in law.corners if c < upper), *np.geomspace(1e-6, upper, 40)})
    cells = pairwise(cuts)
    return sum(float(integrate.quad(lambda t: weight(t) * (1.0 - float(law.cdf(t))), a, b)[0]) for a, b in cells)


def end_of(law: Law) -> float:
    return min(law.longest, 300.0 * law.mean)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("s", [0.0, 1e-3, 1.0 / 12.0, 1.25, 7.0, 300.0])
def test_laplace_transform_is_the_integral(law: Law, s: float) -> None:
    integral = 1.0 - s * survival_integral(law, lambda t: math.exp(-s * t), end_of(law))
    assert law.laplace(s) == pytest.approx(integral, rel=1e-6, abs=1e-6)
    match law:
        case Exponential(mean_h):
            assert law.laplace(s) == pytest.approx(1.0 / (1.0 + s * mean_h), abs=1e-12)
        case Gamma(shape, scale):
            assert law.laplace(s) == pytest.approx((1.0 + s * scale) ** -shape, abs=1e-12)
        case Deterministic(value):
            assert law.laplace(s) == pytest.approx(math.exp(-s * value), abs=1e-12)
    assert law.mean == pytest.approx(survival_integral(law, lambda t: 1.0, end_of(law)), rel=1e-6)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_follow_the_distribution_function(law: Law) -> None:
    drawn = np.sort(law.sample(np.random.default_rng(7), 100_000))
    assert drawn[0] >= 0.0 and drawn[-1] <= law.longest
    if isinstance(law, Deterministic):
        assert set(drawn) == {law.value}
        return
    expected = np.arange(1, len(drawn) + 1) / len(drawn)
    smooth = drawn > 0.0  # an atom at 0 is seen by the first draw after it
    assert np.abs(law.cdf(drawn) - expected)[smooth].max() < 1.95 / math.sqrt(len(drawn))  # 0.1 % by chance


@given(share=st.floats(0.05, 1.5), tau1=st.floats(0.05, 30.0), tau2=st.floats(0.05, 30.0), b=st.floats(1.0, 60.0))
def test_bath_tub_ends_where_its_formula_is_one(share: float, tau1: float, tau2: float, b: float) -> None:
    if share * math.exp(-b / tau2) >= 1.0:
        with pytest.raises(DomainError, match=r"F\(0\)"):
            BathTub(share, tau1, tau2, b)
        return
    law = BathTub(share, tau1, tau2, b)
    end = law.longest
    assert share * (1.0 - math.exp(-end / tau1) + math.exp((end - b) / tau2)) == pytest.approx(1.0, abs=1e-9)
    assert float(law.cdf(end)) == 1.0 and float(law.cdf(end * 0.999)) < 1.0
    assert 0.0 < law.mean < end
