"""Queues whose numbers theory knows exactly: what a simulator of paper B's model is held to. k = 10; hours.

Closed forms where there are any: Theorem 4's policy in M/M, one slot under six spot laws, a longest wait (Corollary
4), offers that stand for ever. The stationary chain at the fixed points of Algorithm 1 in Fig. 2 to 5 and at other
levels. Rules that look at the age of the gap: `AGED`, from the chain of the numbers that spots find (beyond paper B).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from controller.core.queueing.replay import Rule
from experiments.theory.laws import Deterministic, Exponential, Gamma, Law, Uniform
from experiments.theory.paper_b import single_slot, stationary, targets
from experiments.worlds.queue.simulator import Estimate, Model

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
AGE_RULES = {
    "a1 2.5, a2 11.63, N 2": AGE_RULE,
    "a1 1, a2 20, r 1.5": Rule(1.5, 1.0, 20.0, 3.0),
    "a1 2, a2 10, r 3.1, 1 fewer between": Rule(3.1, 2.0, 10.0, fewer=1.0),
}
# Poisson jobs every 12 h: (law of spots, rule) -> exact E[C], E[T] in hours
AGED = {
    ("bath-tub", "a1 2.5, a2 11.63, N 2"): (6.489504161322497, 3.005580160968975),
    ("bath-tub", "a1 1, a2 20, r 1.5"): (8.716879957748308, 0.35556248532015494),
    ("bath-tub", "a1 2, a2 10, r 3.1, 1 fewer between"): (3.391406995505668, 17.71330448987047),
    ("uniform", "a1 2.5, a2 11.63, N 2"): (8.116435022335281, 1.4296557969166546),
    ("uniform", "a1 1, a2 20, r 1.5"): (9.698833254277428, 0.22930292523525617),
    ("uniform", "a1 2, a2 10, r 3.1, 1 fewer between"): (2.973823248813442, 14.449474693004955),
    ("gamma-4", "a1 2.5, a2 11.63, N 2"): (8.653041439254773, 1.3114202385449114),
    ("gamma-4", "a1 1, a2 20, r 1.5"): (9.736949911959874, 0.35094585566085196),
    ("gamma-4", "a1 2, a2 10, r 3.1, 1 fewer between"): (2.9155582505158897, 13.646583001704867),
    ("gamma-quarter", "a1 2.5, a2 11.63, N 2"): (7.706543394636068, 9.50281106701881),
    ("gamma-quarter", "a1 1, a2 20, r 1.5"): (8.391192562624662, 6.713289037640479),
    ("gamma-quarter", "a1 2, a2 10, r 3.1, 1 fewer between"): (4.816036807627959, 22.557014161760822),
}


@dataclass(frozen=True, slots=True)
class QueueCase:
    """A model and its exact E[C] and E[T]; `family` names the formula."""

    family: str
    name: str
    model: Model
    cost: float
    delay_h: float

    def errors(self, estimate: Estimate) -> float:
        """Return the distance of the worse of cost and delay, in standard errors."""
        return max(estimate.cost.errors_from(self.cost), estimate.delay_h.errors_from(self.delay_h))


def cases() -> Iterator[QueueCase]:
    """Yield all cases; takes about a second."""
    for job_h, spot_h, r in (
        (12.0, 24.0, 0.3),
        (12.0, 24.0, 1.25),
        (12.0, 24.0, 2.5),
        (12.0, 12.0, 1.0),
        (12.0, 12.0, 4.5),
        (24.0, 12.0, 1.7),
    ):
        laws = Exponential(job_h), Exponential(spot_h)
        exact, model = stationary.under_level(*laws, r, K), Model(*laws, Rule(r), K)
        name = f"jobs {job_h:g}, spots {spot_h:g}, r {r}"
        yield QueueCase("Theorem 4, M/M", name, model, exact.cost, exact.delay_h)
    for law, spots in SPOTS.items():
        for p in (0.5, 1.0, single_slot.join_probability(12.0, spots, 3.0)):
            model = Model(Exponential(12.0), spots, Rule(p), K)
            cost, delay_h = single_slot.cost(12.0, spots, p, K), single_slot.delay_h(12.0, spots, p)
            yield QueueCase("one slot", f"{law}, p {p:.4g}", model, cost, delay_h)
    for target in targets.TARGETS:
        model = Model(target.jobs, target.spots, Rule(target.r_star), target.k)
        yield QueueCase("r* of Fig. 2-5", target.name, model, target.cost_star, target.delta_h)
    for words, jobs, spots in (
        ("Poisson jobs, bath-tub", Exponential(12.0), targets.BATH_TUB),
        ("gamma jobs, bath-tub", targets.GAMMA_12, targets.BATH_TUB),
        ("gamma jobs, Poisson spots", targets.GAMMA_12, Exponential(24.0)),
        ("gamma jobs, gamma spots", targets.GAMMA_12, Gamma(0.25, 48.0)),
    ):
        for r in (1.0, 2.5, 4.0):
            model, chain = Model(jobs, spots, Rule(r), K), stationary.under_level(jobs, spots, r, K)
            yield QueueCase("stationary", f"{words}, r {r}", model, chain.cost, chain.delay_h)
    for job_h, spot_h, delta_h in ((12.0, 12.0, 3.0), (12.0, 24.0, 7.9), (5.0, 4.0, 1.0)):
        # the shortest longest wait that keeps delta, (1/mu) log[(1 - lambda delta)/(1 - (lambda + mu) delta)]; cost by Theorem 2
        free = 1.0 - delta_h / job_h
        rule = Rule(1.0, longest_wait_s=spot_h * math.log(free / (free - delta_h / spot_h)))
        model = Model(Exponential(job_h), Exponential(spot_h), rule, K)
        name = f"jobs {job_h}, spots {spot_h}, longest wait"
        yield QueueCase("Corollary 4", name, model, K - (K - 1.0) * delta_h / spot_h, delta_h)
    # Offers that stand for ever, M/M, lambda > mu: jobs waiting less offers standing is a birth-death chain below N. Its
    # weights are rho^n, n = N, N - 1, ..., so P(N) = 1 - 1/rho, and every spot is used.
    for job_h, spot_h, n_max in ((6.0, 12.0, 2), (8.0, 12.0, 1)):
        rho = spot_h / job_h
        waiting = sum(n * rho ** (n - n_max) * (1.0 - 1.0 / rho) for n in range(1, n_max + 1))
        model = Model(Exponential(job_h), Exponential(spot_h), Rule(float(n_max)), K, math.inf)
        name = f"jobs {job_h}, spots {spot_h}, N {n_max}"
        yield QueueCase("offers that stand", name, model, K - (K - 1.0) / rho, waiting * job_h)
    for (law, text), (cost, delay_h) in AGED.items():
        model = Model(Exponential(12.0), SPOTS[law], AGE_RULES[text], K)
        yield QueueCase("age of the gap", f"{law}, {text}", model, cost, delay_h)
