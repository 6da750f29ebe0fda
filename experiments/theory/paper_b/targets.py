"""Cases with exact answers, by which controllers and simulators are judged (k = 10; hours).

r* and cost* are `stationary.fixpoint` to the digits given (a test recomputes them); `age_aware_cost` is the tests'
`level_and_age`, the least cost of any policy that may look at the time since the last spot. Cases: Fig. 2-5 of paper B
(Fig. 4 and 5 are M/M), and spot laws of other variability with the mean 12 h. The bounds are converged in the grid of ages
(480 cells, the fourth decimal is right). A first-order grid of 0.1 h gives too little where spots come in bursts: 8.35 for
gamma(0.25, 48).
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.theory.laws import BathTub, Exponential, Gamma, Law, Uniform

K = 10.0
POISSON_12 = Exponential(12.0)
GAMMA_12 = Gamma(12.0, 1.0)
BATH_TUB = BathTub(0.5, 1.0, 0.8, 24.0)


@dataclass(frozen=True, slots=True)
class Target:
    """The policy r = N + p at its best: `r_star` keeps E[T] = `delta_h` exactly, at cost `cost_star`.

    `age_aware_cost`: the bound over policies that see the age of the gap; None: not computed (jobs that are not Poisson).
    """

    name: str
    jobs: Law
    spots: Law
    delta_h: float
    r_star: float
    cost_star: float
    age_aware_cost: float | None = None
    k: float = K


TARGETS: tuple[Target, ...] = (
    Target("fig2-poisson", POISSON_12, BATH_TUB, 3.0, 0.32795701, 7.78629015, 6.4299),
    Target("fig2-gamma", GAMMA_12, BATH_TUB, 3.0, 0.29097154, 7.76960090),
    Target("fig3-poisson", POISSON_12, BATH_TUB, 18.0, 2.82855355, 3.41401190, 3.3064),
    Target("fig3-gamma", GAMMA_12, BATH_TUB, 18.0, 2.46608312, 2.88396402),
    Target("fig4", POISSON_12, Exponential(24.0), 3.0, 0.16666667, 8.87500000, 8.8750),
    Target("fig5", POISSON_12, Exponential(24.0), 27.0, 2.95833333, 5.80681818, 5.8068),
    Target("exp24-gamma", GAMMA_12, Exponential(24.0), 27.0, 2.58795536, 5.64549274),
    Target("uniform", POISSON_12, Uniform(0.0, 24.0), 3.0, 0.46616909, 6.85335865, 6.2944),
    Target("gamma-4", POISSON_12, Gamma(4.0, 3.0), 3.0, 0.50359330, 6.60074523, 5.9821),
    Target("gamma-quarter", POISSON_12, Gamma(0.25, 48.0), 3.0, 0.14120927, 9.04683743, 8.4423),
)

BY_NAME: dict[str, Target] = {target.name: target for target in TARGETS}
