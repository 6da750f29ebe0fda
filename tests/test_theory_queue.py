"""Paper B's closed forms against computations that know nothing of them: chains solved as matrices, LPs, a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from experiments.theory.domain import DomainError
from experiments.theory.laws import BathTub, Deterministic, Exponential, Gamma, Law, Uniform
from experiments.theory.paper_b import single_slot, stationary
from experiments.theory.paper_b.targets import TARGETS, Target

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
def test_exact_levels_of_poisson_jobs_and_spots_solve_the_chain(
    mean_job: float, ratio: float, r: float
) -> None:
    found = stationary.under_level(Exponential(mean_job), Exponential(mean_job * ratio), r)
    levels = chain(mean_job, mean_job * ratio, r)
    padded = np.append(found.levels, np.zeros(len(levels) - len(found.levels)))
    assert padded == pytest.approx(levels, abs=1e-9)
    assert found.delay_h == pytest.approx(
        float(levels @ np.arange(len(levels))) * mean_job, rel=1e-7, abs=1e-9
    )
    assert found.cost == pytest.approx(10.0 - 9.0 * (1.0 - float(levels[0])) / ratio, abs=1e-7)


# ---------------------------------------------------------------- exact stationary numbers


@pytest.mark.parametrize(
    "spots",
    [BathTub(), Uniform(0.0, 24.0), Gamma(0.25, 48.0), Deterministic(12.0), Uniform(3.0, 5.0)],
    ids=str,
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
