"""The rules of a verdict: each of them must be able to fail."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from controller.numerics.arrays import Floats
from experiments.claims import both_papers as queue
from experiments.claims.framework.claim import Check, ClaimKind, ClaimOutcome, Level
from experiments.claims.framework.rows import curve, mean_row
from experiments.claims.framework.values import Point, Value, Values, ValuesError, in_units, read, write
from experiments.claims.framework.verdicts import above, below, decide, judge, near, who_wins
from experiments.claims.registry import CLAIMS
from experiments.results.provenance import provenance
from experiments.results.statistics import interval, intervals, paired, pooled, pooled_pair
from tests.claim_values import changed


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
def test_near_is_judged_by_the_whole_interval(measured: float, low: float, high: float, outcome: ClaimOutcome) -> None:
    found = near(ClaimKind.VALUE, "text", value(measured, low, high), 10.0, 0.02)
    assert found.outcome is outcome
    assert "wanted 10" in found.detail


def test_numbers_of_claims_are_in_human_units_and_a_sentence_says_who_wins() -> None:
    told = [
        in_units(*each) for each in ((71390.0, "s"), (1440.0, "h"), (0.3, "h"), (71390.0, "jobs"), (1 / 3, "ratio"))
    ]
    assert told == ["19.8 h", "60 d", "18 min", "71 390 jobs", "0.3333"]
    sides = {"less": value(-3.0, -4.0, -2.0), "even": value(-3.0, -4.0, 2.0), "more": value(3.0, 2.0, 4.0)}
    checks = [below(ClaimKind.ORDERING, text, each, 0.0) for text, each in sides.items()]
    words = who_wins(decide([check(ClaimKind.VALUE, ClaimOutcome.HOLDS), *checks]))
    assert words.startswith("Won, 1 of 3: less (-3 h [-4 h, -2 h])")
    assert "Level, by its 95 % interval or without one, 1 of 3: even (-3 h [-4 h, 2 h])" in words
    assert "Lost, 1 of 3: more (3 h [2 h, 4 h])" in words
    assert who_wins(decide([check(ClaimKind.VALUE, ClaimOutcome.HOLDS)])) == ""


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


def test_what_is_beyond_the_paper_moves_no_verdict_and_is_shown() -> None:
    beside = check(ClaimKind.BEYOND, ClaimOutcome.FAILS)
    found = decide([check(ClaimKind.VALUE, ClaimOutcome.HOLDS), beside])
    assert (found.level, found.checks[1]) == (Level.REPRODUCED, beside)
    with pytest.raises(ValueError, match="give one"):
        decide([check(ClaimKind.BEYOND, ClaimOutcome.HOLDS)])


# ---------------------------------------------------------------- what a claim leaves on disk
ROW = Value("a, with comma", 'sys "x"', "cost", "h", 0.1 + 0.2, 1 / 3, 2 / 3, 7, 0.3, None, 1e-300, "a note")
POINT = Point("a, with comma", "x", "cost", 10.0, 1 / 3, -1e-17, 1e17)
VALUES = Values(
    (ROW, Value("b", "y", "delay", "", np.float64(-0.0))), (POINT,), {"k": "10"}, False, (1, 3), 2.5, provenance()
)


def test_what_is_written_is_read_back_to_the_bit(tmp_path: Path) -> None:
    write(VALUES, tmp_path / "deep" / "er.json")
    assert read(tmp_path / "deep" / "er.json") == VALUES


def test_a_value_that_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(ValuesError, match="there are a, with comma, b"):
        VALUES.find("c", "y", "delay")
    with pytest.raises(ValuesError, match="of b there are y"):
        VALUES.find("b", "x", "delay")
    with pytest.raises(ValuesError, match="of b / y there are delay"):
        VALUES.find("b", "y", "cost")


@pytest.mark.parametrize(("before", "after"), [('"group"', '"grup"'), ('"seeds": 1', '"seeds": "much"'), ("]", "")])
def test_a_file_that_was_spoilt_is_refused_by_name(tmp_path: Path, before: str, after: str) -> None:
    write(VALUES, path := tmp_path / "spoilt.json")
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(ValuesError, match=r"spoilt\.json"):
        read(path)
    with pytest.raises(ValuesError, match="run the claim first"):
        read(tmp_path / "nothing.json")


# ---------------------------------------------------------------- intervals and paired tests over seeds
def test_the_same_samples_give_the_same_interval() -> None:
    samples = [3.0, 1.0, 4.0, 1.0, 5.0, 2.8]
    assert interval(samples) == interval(samples)
    assert interval(samples).low < 2.8 < interval(samples).high


@pytest.mark.parametrize("count", [6, 20, 60])
def test_the_interval_holds_the_true_mean_about_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(7)
    found = intervals(rng.exponential(1.0, (count, 2000)))
    covered = float(np.mean([low <= 1.0 <= high for _, low, high in found]))
    assert 0.88 < covered < 0.98  # skewed samples: the plain percentile interval has .79 for 6 of them


@pytest.mark.parametrize("count", [1, 2, 5])
def test_fewer_than_six_seeds_have_no_interval_and_no_p_anywhere(count: int) -> None:
    samples, seeds = np.ones((count, 3)), [np.array([1.0, 2.0])] * count
    found = paired(samples[:, 0].tolist(), [0.0] * count)
    rows = (found.difference, pooled(ratio, seeds), *curve("g", "s", "q", [1.0, 2.0, 3.0], samples))
    assert {end for row in rows for end in (row.low, row.high)} == {found.p_value} == {None}
    assert [row.mean for row in rows] == [1.0, 0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [float("inf"), 1.0]])
def test_samples_that_are_none_or_not_finite_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one, all finite"):
        interval(samples)


def test_pairs_see_a_small_difference_under_large_common_noise() -> None:
    common = np.random.default_rng(3).normal(0.0, 10.0, 20)
    jitter = np.random.default_rng(4).normal(0.0, 0.01, 20)
    found = paired((common + 0.1 + jitter).tolist(), common.tolist())
    assert 0.08 < found.difference.low < found.difference.high < 0.12
    assert found.p_value < 1e-4


def ratio(samples: Sequence[Floats]) -> float:
    """Of sums."""
    part, whole = np.sum(samples, axis=0)
    return float(part / whole) if whole else float("nan")


def test_a_pooled_statistic_is_of_all_seeds_together() -> None:
    samples = [np.array([1.0, 1.0]), np.array([0.0, 9.0]), np.array([3.0, 10.0])] * 2
    found = pooled(ratio, samples)
    assert found.mean == pytest.approx(4.0 / 20.0)  # the mean of the seeds' own ratios is .43
    assert found.low < found.mean < found.high
    assert pooled(ratio, samples) == found


@pytest.mark.parametrize("count", [6, 20])
def test_pooled_pairs_of_equal_systems_are_seldom_told_apart(count: int) -> None:
    """Losses with heavy tails: six seeds do not make a difference out of nothing."""
    rng, apart, rounds = np.random.default_rng(11), 0, 60
    for _ in range(rounds):
        one, other = ([np.array([x, 3.0]) for x in rng.lognormal(0.0, 1.0, count)] for _ in range(2))
        found = pooled_pair(ratio, one, other, lambda first, second: first - second)
        apart += found.low > 0.0 or found.high < 0.0
    assert apart / rounds < 0.15  # nominally .05


# ---------------------------------------------------------------- the claim in which both papers act
CLAIM = CLAIMS["AB-queue"]


def rows() -> Iterator[Value]:
    for load in queue.LOADS:
        for name in queue.SYSTEMS:
            delay_h = 1.0 if load == queue.LOADS[-1] else 0.1
            for quantity, measured in (("delay", delay_h), ("cost", 1.0 + load), ("in time", 100.0)):
                yield Value(queue.group(load), name, quantity, "", measured, measured, measured, 20)
        pair = f"{queue.LEARNED} - {queue.FIXED}"
        yield Value(queue.group(load), pair, "cost", "", -0.1, -0.1, -0.1, 20)


@pytest.mark.parametrize(
    ("system", "quantity", "measured", "level"),
    [
        (queue.LEARNED, "in time", 100.0, Level.REPRODUCED),
        (queue.LEARNED, "delay", 1.3, Level.NOT_REPRODUCED),
        (queue.LEARNED, "delay", 0.3, Level.ORDERINGS_ONLY),
        (queue.LEARNED, "in time", 90.0, Level.REPRODUCED),  # the world's own doing: not judged
        (f"{queue.LEARNED} - {queue.FIXED}", "cost", 0.1, Level.NOT_REPRODUCED),
        (queue.CAPPED, "delay", 0.2, Level.REPRODUCED),
    ],
)
def test_one_wrong_number_is_seen(system: str, quantity: str, measured: float, level: Level) -> None:
    most = queue.group(queue.LOADS[-1])
    verdict = judge(CLAIM, changed(Values(tuple(rows())), system, quantity, measured, group=most))
    assert verdict.level is level
    failed = [
        check.text for check in verdict.checks if check.kind is ClaimKind.BEYOND and check.outcome is ClaimOutcome.FAILS
    ]
    assert ["r_max = 8" in text for text in failed] == ([True] if system == queue.CAPPED else [])


def test_fewer_than_six_seeds_have_no_interval_and_decide_nothing() -> None:
    for seeds in (5, 6):
        found = mean_row("g", "s", "q", "h", [1.0 + 0.001 * n for n in range(seeds)])
        check = below(ClaimKind.VALUE, "less than 2", found, 2.0)
        assert (found.low is None) == (seeds == 5)
        assert check.outcome is (ClaimOutcome.UNDECIDED if seeds == 5 else ClaimOutcome.HOLDS)
    assert below(ClaimKind.VALUE, "one run", mean_row("g", "s", "q", "h", [1.0]), 2.0).outcome is ClaimOutcome.HOLDS


def test_owners_reclaim_while_jobs_are_sent_to_rented_capacity() -> None:
    found = queue.play(queue.LoadedRun("fixed", 2.0, 1, 1.0, 8.0))
    assert found["rented"] > 0.0 and found["cost"] > 1.0 and found["delay_h"] > 0.0
    assert found["reclaims"] + found["judged"] > 0
    assert found["lost_jobs"] == 0 and found["broken"] == []
