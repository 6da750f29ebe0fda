"""Queues whose numbers theory knows exactly: what a simulator of paper B's model is held to. k = 10; hours.

Closed forms where there are any: Theorem 4's policy in M/M, one slot under six spot laws, a longest wait (Corollary
4), offers that stand for ever. The stationary chain at the fixed points of Algorithm 1 in Fig. 2 to 5 and at other
levels. The age of the gap: one small rule, whose numbers `ages` has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from controller.core.queueing.replay import Rule
from experiments.theory.laws import Deterministic, Exponential, Gamma, Law, Uniform
from experiments.theory.paper_b import (
    costs,
    markov,
    single_slot,
    stationary,
    targets,
    waits,
)
from experiments.worlds.queue.ages import under_ages
from experiments.worlds.queue.estimate import Estimate
from experiments.worlds.queue.model import Model

K = 10.0
SPOTS: dict[str, Law] = {
    "exponential": Exponential(12.0),
    "bath-tub": targets.BATH_TUB,
    "uniform": Uniform(0.0, 24.0),
    "gamma-4": Gamma(4.0, 3.0),
    "gamma-quarter": Gamma(0.25, 48.0),
    "deterministic": Deterministic(12.0),
}
AGE_RULE = Rule(2.0, admit_until_age_s=2.5, admit_from_age_s=11.63, leave_at_age_s=2.5)  # N = 2; hours here


@dataclass(frozen=True, slots=True)
class QueueCase:
    """A model and its exact E[C] and E[T]; `family` says which formula they are from."""

    family: str
    name: str
    model: Model
    cost: float
    delay_h: float

    def errors(self, estimate: Estimate) -> float:
        """How many standard errors the worse of cost and delay is away."""
        return max(estimate.cost.errors_from(self.cost), estimate.delay_h.errors_from(self.delay_h))


def cases() -> tuple[QueueCase, ...]:
    """All of them; takes about a second."""
    return (*_markov(), *_one_slot(), *_figures(), *_levels(), *_patience(), *_standing(), *_ages())


def _markov() -> Iterator[QueueCase]:
    for job_h, spot_h, r in (
        (12, 24, 0.3),
        (12, 24, 1.25),
        (12, 24, 2.5),
        (12, 12, 1.0),
        (12, 12, 4.5),
        (24, 12, 1.7),
    ):
        exact = markov.under_level(job_h, spot_h, r, K)
        model = Model(Exponential(job_h), Exponential(spot_h), Rule(r), K)
        yield QueueCase(
            "Theorem 4, M/M", f"jobs {job_h}, spots {spot_h}, r {r}", model, exact.cost, exact.delay_h
        )


def _one_slot() -> Iterator[QueueCase]:
    for name, spots in SPOTS.items():
        for p in (0.5, 1.0, single_slot.join_probability(12.0, spots, 3.0)):
            cost, delay_h = single_slot.cost(12.0, spots, p, K), single_slot.delay_h(12.0, spots, p)
            yield QueueCase(
                "one slot", f"{name}, p {p:.4g}", Model(Exponential(12.0), spots, Rule(p), K), cost, delay_h
            )


def _figures() -> Iterator[QueueCase]:
    for target in targets.TARGETS:
        model = Model(target.jobs, target.spots, Rule(target.r_star), target.k)
        yield QueueCase("r* of Fig. 2-5", target.name, model, target.cost_star, target.delta_h)


def _levels() -> Iterator[QueueCase]:
    for name, jobs, spots in (
        ("Poisson jobs, bath-tub", Exponential(12.0), targets.BATH_TUB),
        ("gamma jobs, bath-tub", targets.GAMMA_12, targets.BATH_TUB),
        ("gamma jobs, Poisson spots", targets.GAMMA_12, Exponential(24.0)),
        ("gamma jobs, gamma spots", targets.GAMMA_12, Gamma(0.25, 48.0)),
    ):
        for r in (1.0, 2.5, 4.0):
            exact = stationary.under_level(jobs, spots, r, K)
            yield QueueCase(
                "stationary", f"{name}, r {r}", Model(jobs, spots, Rule(r), K), exact.cost, exact.delay_h
            )


def _patience() -> Iterator[QueueCase]:
    for job_h, spot_h, delta_h in ((12.0, 12.0, 3.0), (12.0, 24.0, 7.9), (5.0, 4.0, 1.0)):
        rule = Rule(1.0, longest_wait_s=waits.fixed_wait_h(job_h, spot_h, delta_h))
        model = Model(Exponential(job_h), Exponential(spot_h), rule, K)
        cost = costs.cost_of_one_slot(K, spot_h, delta_h)
        yield QueueCase("Corollary 4", f"jobs {job_h}, spots {spot_h}, longest wait", model, cost, delta_h)


def _standing() -> Iterator[QueueCase]:
    """Offers that stand for ever, M/M, lambda > mu: jobs waiting less offers standing is a birth-death chain below N.

    Its weights are rho^n, n = N, N - 1, ..., so P(N) = 1 - 1/rho, and every spot is used.
    """
    for job_h, spot_h, n_max in ((6.0, 12.0, 2), (8.0, 12.0, 1)):
        rho = spot_h / job_h
        waiting = sum(n * rho ** (n - n_max) * (1.0 - 1.0 / rho) for n in range(1, n_max + 1))
        model = Model(Exponential(job_h), Exponential(spot_h), Rule(float(n_max)), K, math.inf)
        cost = K - (K - 1.0) / rho
        yield QueueCase(
            "offers that stand", f"jobs {job_h}, spots {spot_h}, N {n_max}", model, cost, waiting * job_h
        )


def _ages() -> Iterator[QueueCase]:
    rules = {"a1 2.5, a2 11.63, N 2": AGE_RULE, "a1 1, a2 20, r 1.5": Rule(1.5, 1.0, 20.0, 3.0)}
    rules["a1 2, a2 10, r 3.1, 1 fewer between"] = Rule(3.1, 2.0, 10.0, fewer=1.0)
    for name in ("bath-tub", "uniform", "gamma-4", "gamma-quarter"):
        for text, rule in rules.items():
            exact = under_ages(12.0, SPOTS[name], rule, K)
            model = Model(Exponential(12.0), SPOTS[name], rule, K)
            yield QueueCase("age of the gap", f"{name}, {text}", model, exact.cost, exact.delay_h)
