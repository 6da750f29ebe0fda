"""What paper B's Figs. 2 to 5 say, as statements that can fail.

Delay and cost are judged, r is not: d(r) has kinks, and an r that is a tenth off may cost nothing (or the reverse).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.claims.framework.claim import Check, ClaimKind, ClaimVerdict
from experiments.claims.framework.values import Values
from experiments.claims.framework.verdicts import (
    above,
    below,
    decide,
    near,
)
from experiments.claims.paper_b.learning import LearningCase
from experiments.claims.paper_b.learning_runs import (
    AGE,
    ALGORITHM1,
    FIXED,
    LARGE,
    REPLAY,
    SMALL,
    label,
)
from experiments.theory.laws import Exponential


def judge(cases: Sequence[LearningCase], values: Values) -> ClaimVerdict:
    """From the values alone. ValuesError: one is missing."""
    return decide([check for case in cases for check in _checks(case, values)])


def _checks(case: LearningCase, values: Values) -> Iterator[Check]:
    tolerance = float(values.settings["tolerance"])
    yield from _converges(case, values, tolerance)
    yield from _from_both_sides(case, values)
    yield from _beyond(case, values, tolerance)


def _converges(case: LearningCase, values: Values, tolerance: float) -> Iterator[Check]:
    """To delta and to the cost of theory and paper, from either start."""
    delta_h, cost = case.exact.delta_h, case.exact.cost_star
    for start in (SMALL, LARGE):
        name = label(ALGORITHM1, start)
        delay, price = (values.find(case.group, name, quantity) for quantity in ("delay", "cost"))
        yield near(ClaimKind.VALUE, f"{case.group}: {name} keeps {delta_h:g} h", delay, delta_h, tolerance)
        yield near(ClaimKind.VALUE, f"{case.group}: {name} costs what theory says", price, cost, tolerance)
        if case.published_cost is not None:
            text = f"{case.group}: {name} costs what the paper says"
            yield near(ClaimKind.VALUE, text, price, case.published_cost, tolerance)


def _from_both_sides(case: LearningCase, values: Values) -> Iterator[Check]:
    """A small start begins cheap in delay and dear in cost, a large one the other way round; r comes nearer."""
    exact, group = case.exact, case.group
    small, large = label(ALGORITHM1, SMALL), label(ALGORITHM1, LARGE)
    early = {
        (name, what): values.find(group, name, f"early {what}")
        for name in (small, large)
        for what in ("delay", "cost")
    }
    kind = ClaimKind.ORDERING
    yield below(kind, f"{group}: {small} begins below delta", early[small, "delay"], exact.delta_h)
    yield above(kind, f"{group}: {small} begins dearer than it ends", early[small, "cost"], exact.cost_star)
    yield above(kind, f"{group}: {large} begins above delta", early[large, "delay"], exact.delta_h)
    yield below(kind, f"{group}: {large} begins cheaper than it ends", early[large, "cost"], exact.cost_star)
    for name, start in ((small, SMALL), (large, LARGE)):
        away = values.find(group, name, "r away")
        yield below(kind, f"{group}: {name} brings r nearer to r*", away, abs(start - exact.r_star))


def _beyond(case: LearningCase, values: Values, tolerance: float) -> Iterator[Check]:
    """Our controllers from either start, beside Algorithm 1 and beside r* known and fixed, on the same arrivals."""
    for system in (REPLAY, AGE):
        for start in (SMALL, LARGE):
            yield from _beside(case, values, tolerance, system, start)


def _beside(
    case: LearningCase, values: Values, tolerance: float, system: str, start: float
) -> Iterator[Check]:
    exact, group, kind, name = case.exact, case.group, ClaimKind.BEYOND, label(system, start)
    delay = values.find(group, name, "delay")
    yield near(kind, f"{group}: {name} keeps {exact.delta_h:g} h", delay, exact.delta_h, tolerance)
    sooner = values.find(group, f"{name} - {label(ALGORITHM1, start)}", "settled")
    yield below(kind, f"{group}: {name} settles in fewer jobs than Algorithm 1", sooner, 0.0)
    dearer = values.find(group, f"{name} - {FIXED}", "cost")
    if system == AGE and not isinstance(exact.spots, Exponential):
        yield below(kind, f"{group}: {name} costs less than r* known and fixed", dearer, 0.0)
    else:
        text = f"{group}: {name} costs at most {tolerance:.0%} more than r* known and fixed"
        yield below(kind, text, dearer, tolerance * exact.cost_star)
