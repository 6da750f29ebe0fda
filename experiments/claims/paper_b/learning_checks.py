"""Checks of paper B's Figs. 2 to 5: statements that can fail.

Delay and cost are judged, r is not. Since d(r) has kinks, an r that is a tenth off may cost nothing, or the reverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from experiments.claims.framework.claim import Check, ClaimKind
from experiments.claims.framework.values import Values
from experiments.claims.framework.verdicts import above, below, near
from experiments.claims.paper_b.learning import LearningCase
from experiments.claims.paper_b.learning_runs import AGE, ALGORITHM1, FIXED, LARGE, REPLAY, SMALL, label
from experiments.theory.laws import Exponential


def checks(cases: Sequence[LearningCase], values: Values) -> Iterator[Check]:
    """Yield the paper's statements on each panel, and the results of the other controllers.

    ValuesError: a value is missing.
    """
    tolerance = float(values.settings["tolerance"])
    for case in cases:
        exact, group = case.exact, case.group
        # Algorithm 1 converges from either start to delta and to the cost of theory and paper, and from opposite sides: a small
        # start begins cheap in delay and dear in cost, a large one the other way round; r comes nearer
        small, large = label(ALGORITHM1, SMALL), label(ALGORITHM1, LARGE)
        kind = ClaimKind.VALUE
        for name in (small, large):
            delay, price = (values.find(group, name, quantity) for quantity in ("delay", "cost"))
            yield near(kind, f"{group}: {name} keeps {exact.delta_h:g} h", delay, exact.delta_h, tolerance)
            yield near(kind, f"{group}: {name} costs what theory says", price, exact.cost_star, tolerance)
            if case.published_cost is not None:
                text = f"{group}: {name} costs what the paper says"
                yield near(kind, text, price, case.published_cost, tolerance)
        early = {
            (name, what): values.find(group, name, f"early {what}")
            for name in (small, large)
            for what in ("delay", "cost")
        }
        kind = ClaimKind.ORDERING
        yield below(kind, f"{group}: {small} begins below delta", early[small, "delay"], exact.delta_h)
        yield above(
            kind, f"{group}: {small} begins dearer than it ends", early[small, "cost"], exact.cost_star
        )
        yield above(kind, f"{group}: {large} begins above delta", early[large, "delay"], exact.delta_h)
        yield below(
            kind, f"{group}: {large} begins cheaper than it ends", early[large, "cost"], exact.cost_star
        )
        for name, start in ((small, SMALL), (large, LARGE)):
            away = values.find(group, name, "r away")
            yield below(kind, f"{group}: {name} brings r nearer to r*", away, abs(start - exact.r_star))
        # our controllers from either start, beside Algorithm 1 and beside r* known and fixed, on the same arrivals
        kind = ClaimKind.BEYOND
        for system, start in product((REPLAY, AGE), (SMALL, LARGE)):
            name = label(system, start)
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
