"""The rules of a verdict: each of them must be able to fail."""

import pytest

from experiments.claims.framework.claim import Check, ClaimKind, ClaimOutcome, Level
from experiments.claims.framework.values import CANNOT, Value, Values
from experiments.claims.framework.verdicts import above, below, decide, judge, near
from experiments.claims.registry import CLAIMS


def value(measured: float, low: float, high: float) -> Value:
    return Value("g", "s", "q", "h", measured, low, high)


def check(kind: ClaimKind, outcome: ClaimOutcome) -> Check:
    return Check(kind, "something", outcome, "by much")


@pytest.mark.parametrize(
    ("measured", "low", "high", "outcome"),
    [
        (10.0, 9.9, 10.1, ClaimOutcome.HOLDS),
        (10.0, 9.0, 10.1, ClaimOutcome.UNDECIDED),  # right on target, and too vague to say so
        (10.0, 9.9, 10.3, ClaimOutcome.UNDECIDED),
        (10.3, 10.21, 10.4, ClaimOutcome.FAILS),
        (9.5, 9.4, 9.79, ClaimOutcome.FAILS),
        (10.3, 10.1, 10.5, ClaimOutcome.UNDECIDED),
    ],
)
def test_near_is_judged_by_the_whole_interval(
    measured: float, low: float, high: float, outcome: ClaimOutcome
) -> None:
    found = near(ClaimKind.VALUE, "text", value(measured, low, high), 10.0, 0.02)
    assert found.outcome is outcome
    assert "wanted 10" in found.detail


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -0.1, float("nan")])
def test_a_tolerance_that_judges_nothing_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        near(ClaimKind.VALUE, "t", value(1.0, 1.0, 1.0), 1.0, tolerance)


def test_sides_are_judged_by_the_whole_interval() -> None:
    sides = [(value(1.0, 0.5, 1.5), 2.0), (value(3.0, 2.5, 3.5), 2.0), (value(1.9, 1.0, 2.5), 2.0)]
    assert [below(ClaimKind.ORDERING, "t", *side).outcome for side in sides] == [
        ClaimOutcome.HOLDS,
        ClaimOutcome.FAILS,
        ClaimOutcome.UNDECIDED,
    ]
    assert [above(ClaimKind.ORDERING, "t", *side).outcome for side in sides] == [
        ClaimOutcome.FAILS,
        ClaimOutcome.HOLDS,
        ClaimOutcome.UNDECIDED,
    ]


@pytest.mark.parametrize(
    ("values", "orderings", "level"),
    [
        ("h", "h", Level.REPRODUCED),
        ("hf", "h", Level.ORDERING),
        ("hu", "h", Level.ORDERING),
        ("h", "hf", Level.NOT_REPRODUCED),
        ("h", "u", Level.UNDECIDED),
        ("h", "uf", Level.NOT_REPRODUCED),
        ("f", "u", Level.UNDECIDED),
        ("f", "h", Level.ORDERINGS_ONLY),
        ("u", "hh", Level.ORDERINGS_ONLY),
        ("u", "", Level.UNDECIDED),
        ("h", "", Level.REPRODUCED),
        ("f", "", Level.NOT_REPRODUCED),
        ("", "h", Level.ORDERINGS_ONLY),
    ],
)
def test_values_and_orderings_make_the_verdict(values: str, orderings: str, level: Level) -> None:
    outcome = {"h": ClaimOutcome.HOLDS, "f": ClaimOutcome.FAILS, "u": ClaimOutcome.UNDECIDED}
    checks = [check(ClaimKind.VALUE, outcome[letter]) for letter in values]
    checks += [check(ClaimKind.ORDERING, outcome[letter]) for letter in orderings]
    found = decide(checks)
    assert found.level is level
    assert ("something" in found.because) == (level is not Level.REPRODUCED and values != "")
    assert found.because


def test_what_is_beyond_the_paper_moves_no_verdict() -> None:
    held = check(ClaimKind.VALUE, ClaimOutcome.HOLDS)
    assert decide([held, check(ClaimKind.BEYOND, ClaimOutcome.FAILS)]).level is Level.REPRODUCED
    with pytest.raises(ValueError, match="give one"):
        decide([check(ClaimKind.BEYOND, ClaimOutcome.HOLDS)])


def test_what_holds_by_construction_moves_no_verdict_and_is_shown() -> None:
    built = check(ClaimKind.BUILT, ClaimOutcome.FAILS)
    found = decide([check(ClaimKind.VALUE, ClaimOutcome.HOLDS), built])
    assert (found.level, found.checks[1]) == (Level.REPRODUCED, built)
    with pytest.raises(ValueError, match="give one"):
        decide([check(ClaimKind.BUILT, ClaimOutcome.HOLDS)])


def test_what_cannot_be_measured_is_not_comparable_and_has_no_checks() -> None:
    found = judge(CLAIMS["A-fig3"], Values((), (), {CANNOT: "it needs root"}))
    assert (found.level, found.because, found.checks) == (Level.NOT_COMPARABLE, "it needs root", ())
