"""Laws of times: their formulas against quadrature of their own distribution functions, and against their draws."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from experiments.theory.domain import DomainError
from experiments.theory.laws import BathTub, Deterministic, Exponential, Gamma, Law, Uniform

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
    return sum(
        float(integrate.quad(lambda t: weight(t) * (1.0 - float(law.cdf(t))), a, b)[0]) for a, b in cells
    )


def end_of(law: Law) -> float:
    return min(law.longest, 300.0 * law.mean)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("s", [0.0, 1e-3, 1.0 / 12.0, 1.25, 7.0, 300.0])
def test_laplace_transform_is_the_integral(law: Law, s: float) -> None:
    integral = 1.0 - s * survival_integral(law, lambda t: math.exp(-s * t), end_of(law))
    assert law.laplace(s) == pytest.approx(integral, rel=1e-6, abs=1e-6)
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


@given(
    share=st.floats(0.05, 1.5),
    tau1=st.floats(0.05, 30.0),
    tau2=st.floats(0.05, 30.0),
    b=st.floats(1.0, 60.0),
)
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
