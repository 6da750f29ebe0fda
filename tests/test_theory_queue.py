"""Paper B's closed forms against computations that know nothing of them: chains solved as matrices, LPs, a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from experiments.theory.domain import DomainError
from experiments.theory.laws import BathTub, Deterministic, Exponential, Gamma, Law, Uniform, while_it_lasts
from experiments.theory.paper_b import single_slot, stationary
from experiments.theory.paper_b.targets import TARGETS, Target
from tests import paper_b_theorems as theorems
from tests.age_bound import level_and_age

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
def test_markov_levels_solve_the_chain(mean_job: float, ratio: float, r: float) -> None:
    found = theorems.under_level(mean_job, mean_job * ratio, r, 10.0)
    levels = chain(mean_job, mean_job * ratio, r)
    padded = np.append(found.levels, np.zeros(len(levels) - len(found.levels)))
    assert padded == pytest.approx(levels, abs=1e-9)
    assert found.delay_h == pytest.approx(
        float(levels @ np.arange(len(levels))) * mean_job, rel=1e-7, abs=1e-9
    )
    assert found.cost == pytest.approx(10.0 - 9.0 * (1.0 - float(levels[0])) / ratio, abs=1e-7)


@given(mean_job=MEANS, ratio=st.one_of(st.just(1.0), st.floats(0.1, 10.0)), r=st.floats(0.0, 20.0))
def test_optimum_finds_the_level_whose_delay_is_asked_for(mean_job: float, ratio: float, r: float) -> None:
    delta = theorems.under_level(mean_job, mean_job * ratio, r, 10.0).delay_h
    if ratio < 1.0 and r > 6.0:  # the delay may be within rounding of its limit
        return
    found = theorems.optimum(mean_job, mean_job * ratio, delta, 10.0)
    assert found.r_star == pytest.approx(r, rel=1e-6, abs=1e-6)


@given(mean_job=MEANS, ratio=st.floats(0.2, 5.0), length=st.floats(0.05, 8.0))
def test_no_policy_of_the_queue_length_beats_the_optimum(
    mean_job: float, ratio: float, length: float
) -> None:
    ours = theorems.optimum(mean_job, mean_job * ratio, length * mean_job, 10.0).cost
    # any policy that sees the number waiting may refuse jobs and send waiting ones away: pi_(n+1) <= rho pi_n, and no more
    most = 80
    rises = np.eye(most, most + 1, 1) - ratio * np.eye(most, most + 1)
    levels = np.arange(most + 1.0)
    found = optimize.linprog(
        -(levels > 0.0).astype(float),
        np.vstack([rises, levels]),
        np.append(np.zeros(most), length),
        np.ones((1, most + 1)),
        [1.0],
    )
    assert ours == pytest.approx(10.0 + 9.0 * found.fun / ratio, abs=1e-5)


def test_theorem_5_has_its_limits() -> None:
    assert theorems.theorem5(12.0, 12.0, 4, 10.0).empty == pytest.approx(1.0 / 5.0)
    assert theorems.theorem5(12.0, 24.0, 0, 10.0).cost == 10.0
    assert theorems.theorem5(12.0, 24.0, 100_000, 10.0).cost == pytest.approx(5.5)
    assert theorems.theorem5(12.0, 6.0, math.inf, 10.0).delay_h == pytest.approx(12.0)
    with pytest.raises(DomainError, match="whole number"):
        theorems.theorem5(12.0, 24.0, 1.5, 10.0)
    with pytest.raises(DomainError, match="1/lambda"):
        theorems.theorem5(0.0, 24.0, 1, 10.0)


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
    if target.age_aware_cost is not None:
        bound = level_and_age(target.jobs.mean, target.spots, target.delta_h, target.k)
        assert bound.cost == pytest.approx(target.age_aware_cost, abs=3e-4)
        assert bound.delay_h <= target.delta_h * (1.0 + 1e-6)


# ---------------------------------------------------------------- bounds


def test_age_is_worth_nothing_where_spots_are_poisson() -> None:
    for delta in (3.0, 12.0):
        bound = level_and_age(12.0, Exponential(24.0), delta, 10.0).cost
        assert bound == pytest.approx(theorems.optimum(12.0, 24.0, delta, 10.0).cost, abs=5e-5)


# ---------------------------------------------------------------- Theorems 1-3, corollaries


@pytest.mark.parametrize("spots", [Uniform(0.0, 24.0), Exponential(12.0), Gamma(4.0, 3.0)], ids=str)
@pytest.mark.parametrize("delta", [0.5, 3.0, 5.9])
def test_corollary_1_is_the_linear_programs_where_spots_are_nbue(spots: Law, delta: float) -> None:
    grid = np.unique(np.concatenate([[0.0], np.geomspace(1e-4, 400.0, 3000)]))
    spent = [float(while_it_lasts(spots, np.ones_like, 0.0, float(w))) for w in grid] + [spots.mean]
    served = [*np.asarray(spots.cdf(grid)).tolist(), 1.0]
    wanted = theorems.mean_wait_allowed_h(12.0, delta)
    found = optimize.linprog(
        -np.array(served), A_eq=[np.ones(len(served)), spent], b_eq=[1.0, wanted], method="highs"
    )
    assert theorems.share_that_waits(12.0, spots.mean, delta) == pytest.approx(-found.fun, rel=1e-6)


@pytest.mark.parametrize(
    ("jobs", "spots"),
    [
        (Exponential(12.0), BathTub()),
        (Gamma(12.0, 1.0), Exponential(24.0)),
        (Gamma(12.0, 1.0), BathTub()),
        (Gamma(2.5, 4.0), Uniform(0.0, 24.0)),
        (Deterministic(9.0), Gamma(3.0, 4.0)),
    ],
    ids=str,
)
def test_chance_that_a_job_comes_first_is_what_draws_say(jobs: Law, spots: Law) -> None:
    rng, count = np.random.default_rng(3), 400_000
    seen = float((jobs.sample(rng, count) <= spots.sample(rng, count)).mean())
    assert theorems.job_before_spot(jobs, spots) == pytest.approx(seen, abs=4.5 * 0.5 / math.sqrt(count))


def test_theorem_2_is_exact_for_poisson_spots_and_any_renewal_jobs() -> None:
    jobs, spots = Gamma(12.0, 1.0), Exponential(24.0)
    longest = theorems.longest_one_slot_delay_h(jobs, spots)
    assert longest == pytest.approx(stationary.under_level(jobs, spots, 1.0).delay_h, rel=1e-9)
    for p in (0.2, 0.7, 1.0):
        exact = stationary.under_level(jobs, spots, p)
        assert theorems.cost_of_one_slot(10.0, 24.0, exact.delay_h) == pytest.approx(exact.cost, rel=1e-9)
    assert theorems.printed_threshold_h(jobs, spots) < longest  # the printed threshold is another number
