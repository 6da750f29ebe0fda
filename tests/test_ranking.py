"""How `reclaimnet` stands among other rows: first, behind, or it cannot be told; who breaks the constraint is no rival."""

from collections.abc import Iterator

import pytest

from experiments.claims.framework.claim import ClaimKind, ClaimOutcome, Level
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import judge
from experiments.claims.policy_comparison.ranking import JUDGED, OVER, RELATIVES, WORK, WORST, checks, standing, systems
from experiments.claims.registry import CLAIMS

OTHERS = ("slurm-pr", "bamboo", "random-dst")
CASE = "a campus"


def rows(
    apart: dict[str, tuple[float, float]], taken: dict[str, float] | None = None, over: dict[str, float] | None = None
) -> Iterator[Value]:
    """Rows of all systems: the differences, what each takes of research, and the share of time over budgets (0 if not said)."""
    for system in ("reclaimnet", *OTHERS):
        yield Value(CASE, system, WORST, "%", (taken or {}).get(system, 0.0))
        yield Value(CASE, system, OVER, "%", (over or {}).get(system, 0.0))
    for quantity in JUDGED:
        yield Value(CASE, "reclaimnet", quantity, "GPU-h", 9.0, 8.0, 10.0, 10)
        for other in OTHERS:
            low, high = apart.get(other, (-3.0, -1.0))
            yield Value(CASE, other, quantity, "GPU-h", 11.0, 10.0, 12.0, 10)
            mean = (low + high) / 2.0
            yield Value(CASE, f"reclaimnet - {other}", quantity, "GPU-h", mean, low, high, 10)


@pytest.mark.parametrize(
    ("apart", "outcome", "words", "level"),
    [
        ({}, ClaimOutcome.HOLDS, "first, before", Level.ORDERINGS_ONLY),
        ({"bamboo": (-1.0, 1.0)}, ClaimOutcome.UNDECIDED, "not distinguishable from first: Bamboo", Level.UNDECIDED),
        (
            {"bamboo": (-1.0, 1.0), "slurm-pr": (1.0, 2.0)},
            ClaimOutcome.FAILS,
            "behind Slurm-PR (B1') (+1.5 [+1, +2])",
            Level.NOT_REPRODUCED,
        ),
    ],
)
def test_ours_is_first_or_behind_somebody_or_it_cannot_be_told(
    apart: dict[str, tuple[float, float]], outcome: ClaimOutcome, words: str, level: Level
) -> None:
    verdict = judge(CLAIMS["traces"], Values(tuple(rows(apart))))
    assert [check.outcome for check in verdict.checks] == [outcome] * len(JUDGED)
    assert all(words in check.detail for check in verdict.checks)
    assert verdict.level is level


BEHIND_TWO = {"bamboo": (1.0, 2.0), "slurm-pr": (0.5, 4.0)}


@pytest.mark.parametrize(
    ("taken", "outcome", "rivals", "priced"),
    [
        ({}, ClaimOutcome.FAILS, {"Bamboo", "Slurm-PR"}, None),
        ({"bamboo": 3.0, "slurm-pr": 3.01}, ClaimOutcome.FAILS, {"Bamboo", "Slurm-PR"}, None),
        ({"bamboo": 4.0, "slurm-pr": 4.1}, ClaimOutcome.FAILS, {"Bamboo"}, {"Slurm-PR"}),
        ({"bamboo": 15.0, "slurm-pr": 4.1}, ClaimOutcome.HOLDS, set(), {"Bamboo", "Slurm-PR"}),
        ({"random-dst": 15.0}, ClaimOutcome.FAILS, {"Bamboo", "Slurm-PR"}, {"Rand-Dst"}),
    ],
)
def test_row_that_takes_clearly_more_than_3_percent_of_research_is_priced_and_the_same_row_that_does_not_is_a_rival(
    taken: dict[str, float], outcome: ClaimOutcome, rivals: set[str], priced: set[str] | None
) -> None:
    found = list(checks(Values(tuple(rows(BEHIND_TWO, taken))), [CASE]))
    ranking = [check for check in found if check.kind is ClaimKind.ORDERING]
    assert [check.outcome for check in ranking] == [outcome] * len(JUDGED)
    for check in ranking:
        assert {name for name in ("Bamboo", "Slurm-PR") if name in check.detail} == rivals
    prices = [check for check in found if check.kind is ClaimKind.BEYOND]
    assert len(prices) == (0 if priced is None else len(JUDGED))
    for check in prices:
        assert {name for name in ("Bamboo", "Slurm-PR", "Rand-Dst") if name in check.detail} == priced
        # it pays where another that takes from research loses less, and not where that loses more
        assert check.outcome is (ClaimOutcome.HOLDS if priced == {"Rand-Dst"} else ClaimOutcome.FAILS)


@pytest.mark.parametrize(
    ("measured", "bamboo", "is_rival"),
    [(0.0, 3.0, True), (2.9, 3.1, True), (0.0, 4.1, False), (7.0, 7.1, True), (7.0, 8.1, False)],
)
def test_row_over_loss_budgets_for_clearly_longer_than_3_percent_of_the_time_and_than_ours_is_priced(
    measured: float, bamboo: float, is_rival: bool
) -> None:
    over = {"reclaimnet": measured, "bamboo": bamboo}
    found = list(checks(Values(tuple(rows({"bamboo": (1.0, 2.0)}, over=over))), [CASE]))
    ranking = [check for check in found if check.kind is ClaimKind.ORDERING]
    assert {check.outcome for check in ranking} == {ClaimOutcome.FAILS if is_rival else ClaimOutcome.HOLDS}
    prices = [check for check in found if check.kind is ClaimKind.BEYOND]
    assert len(prices) == (0 if is_rival else len(JUDGED))
    assert all(f"Bamboo (B1), which has intervals above 2 L_max for {bamboo:.3g} %" in check.detail for check in prices)


def test_price_that_cannot_be_told_is_undecided_and_moves_no_verdict() -> None:
    values = Values(tuple(rows({"bamboo": (-1.0, 1.0)}, {"bamboo": 4.1})))
    verdict = judge(CLAIMS["traces"], values)
    assert [check.outcome for check in verdict.checks if check.kind is ClaimKind.BEYOND] == [
        ClaimOutcome.UNDECIDED
    ] * len(JUDGED)
    assert verdict.level is Level.ORDERINGS_ONLY


def test_ours_is_not_first_where_it_takes_more_than_research_may_lose() -> None:
    nearly = Values(tuple(rows({}, {"reclaimnet": 3.2})))
    assert standing(nearly, CASE, WORK).outcome is ClaimOutcome.HOLDS
    values = Values(tuple(rows({}, {"reclaimnet": 4.2})))
    found = standing(values, CASE, WORK)
    assert found.outcome is ClaimOutcome.FAILS and found.detail == "ReclaimNet takes 4.2 % of research in an hour"
    alone = Values(tuple(rows({}, dict.fromkeys(OTHERS, 50.0))))
    assert standing(alone, CASE, WORK).outcome is ClaimOutcome.UNDECIDED


def test_one_interval_for_all_is_a_rival_at_either_price_and_what_ours_lacks_judges_nothing() -> None:
    found = [row for row in rows({}) if row.quantity in (WORK, WORST, OVER)]

    def apart(other: str, low: float, high: float) -> list[Value]:
        mean = (low + high) / 2.0
        lost = Value(CASE, f"reclaimnet - {other}", WORK, "GPU-h", mean, low, high, 10)
        return [Value(CASE, other, WORST, "%", 0.0), Value(CASE, other, OVER, "%", 0.0), lost]

    lacking = [
        *apart("one-copy", 1.0, 2.0),
        *apart("research-whole", 1.0, 2.0),
        *apart("reclaimnet+vault=false", 1.0, 2.0),
    ]
    assert standing(Values((*found, *lacking)), CASE, WORK).outcome is ClaimOutcome.HOLDS
    for rival in ("one-interval", "tv-fixed-interval", "mine:ROW"):
        level = standing(Values((*found, *lacking, *apart(rival, -1.0, 1.0))), CASE, WORK)
        assert level.outcome is ClaimOutcome.UNDECIDED
        behind = standing(Values((*found, *lacking, *apart(rival, 1.0, 2.0))), CASE, WORK)
        assert behind.outcome is ClaimOutcome.FAILS and "behind" in behind.detail


def test_the_rows_compared_are_those_of_table_3_and_what_ours_is_otherwise() -> None:
    assert set(systems()) >= {"reclaimnet", "tv-fixed-interval", "one-interval", *RELATIVES, *OTHERS}
    assert len(set(systems())) == len(systems())
