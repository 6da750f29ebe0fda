"""The rules: when a check holds, and what verdict its checks make.

A value is near a target if its whole 95 % interval lies within the tolerance (an equivalence test: noise cannot pass it),
far if the whole interval lies outside, and undecided in between. An ordering holds if the whole interval lies on the
right side. So a run with too few seeds is undecided, never reproduced by being vague; fewer than six have no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from experiments.claims.framework.claim import Check, Claim, ClaimKind, ClaimOutcome, ClaimVerdict, Level
from experiments.claims.framework.values import TIMES, Value, Values, in_units

NOTHING = "nothing of it happened in these runs"
WORDS = {
    ClaimOutcome.HOLDS: "Won",
    ClaimOutcome.UNDECIDED: "Level, by its 95 % interval or without one",
    ClaimOutcome.FAILS: "Lost",
}
FEW, MAX_TOLD = 2, 4  # checks that a verdict lists with their numbers, and at all


def near(kind: ClaimKind, text: str, value: Value | None, target: float, tolerance: float) -> Check:
    """Return whether the value is `target` to a relative `tolerance`; undecided if there is none.

    ValueError: no such tolerance.
    """
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"tolerance {tolerance}: between 0 and 1")
    if value is None:
        return Check(kind, text, ClaimOutcome.UNDECIDED, NOTHING)
    low, high = _ends(value)
    below, above = sorted((target * (1.0 - tolerance), target * (1.0 + tolerance)))
    inside, outside = below <= low and high <= above, high < below or above < low
    error = (value.measured - target) / abs(target) if target else math.inf
    detail = f"{_shown(value)}; wanted {_told(target, value)} within {tolerance:.0%}, off by {error:+.1%}"
    return Check(kind, text, _outcome(inside, outside), detail)


def below(kind: ClaimKind, text: str, value: Value | None, bound: float) -> Check:
    """Return whether the value is less than `bound`; undecided if there is none."""
    return _beside(kind, text, value, bound, "less than", lambda low, high: (high < bound, low > bound))


def at_most(kind: ClaimKind, text: str, value: Value | None, bound: float) -> Check:
    """Return whether the value is `bound` or less; undecided if there is none."""
    return _beside(kind, text, value, bound, "at most", lambda low, high: (high <= bound, low > bound))


def above(kind: ClaimKind, text: str, value: Value | None, bound: float) -> Check:
    """Return whether the value is more than `bound`; undecided if there is none."""
    return _beside(kind, text, value, bound, "more than", lambda low, high: (low > bound, high < bound))


def _beside(
    kind: ClaimKind,
    text: str,
    value: Value | None,
    bound: float,
    words: str,
    sides: Callable[[float, float], tuple[bool, bool]],
) -> Check:
    """Return the check that an interval lies on one side; `sides` gives whether it lies there, and on the other."""
    if value is None:
        return Check(kind, text, ClaimOutcome.UNDECIDED, NOTHING)
    low, high = _ends(value)
    holds, fails = sides(low, high)
    # an interval that only touches the bound decides nothing; a number without one is on it, and so not beyond
    fails = fails or (not holds and low == high == bound)
    return Check(kind, text, _outcome(holds, fails), f"{_shown(value)}; wanted {words} {_told(bound, value)}")


def together(text: str, checks: Sequence[Check]) -> Check:
    """Return checks of one number as one: it holds if all do, and fails if one does."""
    outcomes = {check.outcome for check in checks}
    fails, holds = ClaimOutcome.FAILS in outcomes, outcomes == {ClaimOutcome.HOLDS}
    return Check(checks[0].kind, text, _outcome(holds, fails), "; ".join(check.detail for check in checks))


def judge(claim: Claim, values: Values) -> ClaimVerdict:
    """Return the verdict on values of the claim, which names what was corrected in the paper's algorithm."""
    verdict = decide(tuple(claim.checks(values)))
    if not claim.corrected:
        return verdict
    return replace(verdict, subject=", algorithm corrected", because=f"{verdict.because}. Judged is {claim.corrected}")


def decide(checks: Sequence[Check]) -> ClaimVerdict:
    """Decide the level of a verdict by the checks of values and orderings.

    Reproduced: all values and orderings hold. Ordering reproduced: all orderings hold, and a value beside them.
    Orderings only: no value holds, or none was judged. Not reproduced: an ordering fails, or a value where there is no
    ordering. Undecided: neither; more seeds could decide. ValueError: there is no check to judge by.
    """
    values = [check for check in checks if check.kind is ClaimKind.VALUE]
    orderings = [check for check in checks if check.kind is ClaimKind.ORDERING]
    if not values and not orderings:
        raise ValueError("no check of a value or an ordering: give one")
    open_orderings, open_values = _not_held(orderings), _not_held(values)
    if values and not open_orderings and not open_values:
        held = f"{len(values)} values and {len(orderings)} orderings hold"
        return ClaimVerdict(Level.REPRODUCED, held, tuple(checks))
    if orderings and not open_orderings:
        level = Level.ORDERING if len(open_values) < len(values) else Level.ORDERINGS_ONLY
        because = _because(open_values) or f"{len(orderings)} orderings hold, no value is judged"
        return ClaimVerdict(level, because, tuple(checks))
    decisive = open_orderings if orderings else open_values
    is_refuted = any(check.outcome is ClaimOutcome.FAILS for check in decisive)
    level = Level.NOT_REPRODUCED if is_refuted else Level.UNDECIDED
    return ClaimVerdict(level, _because(open_orderings + open_values), tuple(checks))


def who_wins(verdict: ClaimVerdict) -> str:
    """Return the orderings of a claim in a sentence, each with its interval: won, level and lost; empty where there is none."""
    orderings = [check for check in verdict.checks if check.kind is ClaimKind.ORDERING]
    parts = []
    for outcome, words in WORDS.items():
        if some := [check for check in orderings if check.outcome is outcome]:
            told = "; ".join(f"{check.text} ({check.detail.partition('; wanted')[0]})" for check in some[:MAX_TOLD])
            more = f"; and {len(some) - MAX_TOLD} more" if len(some) > MAX_TOLD else ""
            parts.append(f"{words}, {len(some)} of {len(orderings)}: {told}{more}.")
    return " ".join(parts)


def _not_held(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if check.outcome is not ClaimOutcome.HOLDS]


def _because(checks: Sequence[Check]) -> str:
    """Return the reason of a verdict: failed checks before undecided ones, with their numbers if they are few."""
    worst_first = sorted(checks, key=lambda check: check.outcome is not ClaimOutcome.FAILS)
    if len(checks) <= FEW:
        return "; ".join(f"{check.outcome}: {check.text} ({check.detail})" for check in worst_first)
    told = "; ".join(f"{check.outcome}: {check.text}" for check in worst_first[:MAX_TOLD])
    return told if len(checks) <= MAX_TOLD else f"{told}; and {len(checks) - MAX_TOLD} more (see the checks)"


def _ends(value: Value) -> tuple[float, float]:
    """Return the interval; of a single run the number itself, of several without an interval all numbers."""
    if value.low is None or value.high is None:
        return (value.measured, value.measured) if value.seeds == 1 else (-math.inf, math.inf)
    return value.low, value.high


def _shown(value: Value) -> str:
    ends = _ends(value)
    within = (
        f"{value.seeds} seeds, no interval" if math.isinf(ends[0]) else ", ".join(_told(end, value) for end in ends)
    )
    return f"{_told(value.measured, value)} [{within}] {'' if value.unit in TIMES else value.unit}".rstrip()


def _told(number: float, value: Value) -> str:
    return in_units(number, value.unit if value.unit in TIMES else "")


def _outcome(holds: bool, fails: bool) -> ClaimOutcome:
    return ClaimOutcome.HOLDS if holds else ClaimOutcome.FAILS if fails else ClaimOutcome.UNDECIDED
