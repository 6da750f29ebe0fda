"""Checks of paper B's Figs. 2 to 5: statements that can fail.

Delay and cost are judged, r is not. Since d(r) has kinks, an r that is a tenth off may cost nothing, or the reverse.
Where one slot is best (r* below 1) the cost is k - (k - 1) mu d, and so repeats the delay d: both are one check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from experiments.claims.framework.claim import Check, ClaimKind
from experiments.claims.framework.values import Values
from experiments.claims.framework.verdicts import above, below, near, together
from experiments.claims.paper_b.learning import LearningCase
from experiments.claims.paper_b.learning_runs import AGE, ALGORITHM1, FIXED, LARGE, REPLAY, SMALL, label
from experiments.theory.laws import Exponential


def _once(case: LearningCase, who: str, delays: Sequence[Check], costs: Sequence[Check]) -> Iterator[Check]:
    """Yield a check of the delay and one of the cost, or one of both where the cost repeats the delay."""
    parts = [[*delays, *costs]] if case.exact.r_star < 1.0 else [delays, costs]
    for part in parts:
        yield together(f"{who} " + " and ".join(dict.fromkeys(check.text for check in part)), part)


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
            wanted = (exact.cost_star, case.published_cost)
            yield from _once(
                case,
                f"{group}: {name}",
                [near(kind, f"keeps {exact.delta_h:g} h", delay, exact.delta_h, tolerance)],
                [near(kind, "costs what it must", price, cost, tolerance) for cost in wanted if cost is not None],
            )
        early = {
            (name, what): values.find(group, name, f"early {what}")
            for name in (small, large)
            for what in ("delay", "cost")
        }
        kind = ClaimKind.ORDERING
        for name, at_first, others, cost in ((small, below, above, "dearer"), (large, above, below, "cheaper")):
            side = f"begins {'below' if name == small else 'above'} delta"
            yield from _once(
                case,
                f"{group}: {name}",
                [at_first(kind, side, early[name, "delay"], exact.delta_h)],
                [others(kind, f"begins {cost} than it ends", early[name, "cost"], exact.cost_star)],
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
