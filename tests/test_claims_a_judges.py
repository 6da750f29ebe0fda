"""Judges of paper A's claims: a world as the paper says gets past them, and a wrong number does not."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.policies.table import ABLATION
from experiments.claims.framework.claim import Claim, ClaimKind, ClaimOutcome, Level
from experiments.claims.framework.panels import label
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import judge, near
from experiments.claims.pages import results_page
from experiments.claims.paper_a import campus_numbers, drift_runs, fig9
from experiments.claims.paper_a import drift as a_drift
from experiments.claims.paper_a import fig3 as a_fig3
from experiments.claims.paper_a import fig4 as a_fig4
from experiments.claims.paper_a import gap as a_gap
from experiments.claims.paper_a import table3 as a_table3
from experiments.claims.paper_a import table4 as a_table4
from experiments.claims.paper_a.campus_numbers import WORK_LOSS, metric_rows
from experiments.claims.paper_a.table3 import DEGRADATION
from experiments.claims.registry import CLAIMS, NOT_COVERED
from tests.claim_values import changed

SURE = 1e-6
# systems that hold no sender to its share, as checks call them
OPEN = (*("Slurm-PR", "Static", "Bamboo", "No-BPF", "no-tc-bpf"), *("none:", "P1:", "P2:", "P1+P2:"))


def value(group: str, system: str, quantity: str, measured: float, published: float | None = None) -> Value:
    ends = sorted((measured * (1.0 - SURE) - SURE, measured * (1.0 + SURE) + SURE))
    return Value(group, system, quantity, "", measured, *ends, 20, published=published)


def exact(row: Value) -> Value:
    return replace(row, low=row.measured, high=row.measured)


def table3() -> Iterator[Value]:
    measured = a_table3.PUBLISHED["reclaimnet"]
    for system, printed in a_table3.PUBLISHED.items():
        for quantity, number in printed.items():
            moved = {"success": 0.5, "degradation": -0.01}.get(quantity, 0.0)
            yield value(a_table3.GROUP, system, quantity, number + moved, number)
        if system != "reclaimnet":
            ratio = measured["work loss"] / printed["work loss"]
            yield value(a_table3.RATIOS, f"reclaimnet / {system}", "work loss", ratio, ratio)
            apart = measured["work loss"] - printed["work loss"]
            yield value(a_table3.RATIOS, f"reclaimnet - {system}", "work loss", apart)


def table4() -> Iterator[Value]:
    for subset, (_, down, lacking) in a_table4.PUBLISHED.items():
        yield value(a_table4.GROUP, ABLATION[subset], "degradation", lacking)
        yield value(a_table4.GROUP, ABLATION[subset], "downtime", down)
    for protocol, with_it, without in a_table4._steps():
        column = protocol == 2
        ratio = a_table4.PUBLISHED[with_it][column] / a_table4.PUBLISHED[without][column]
        pair = f"{a_table4.name(with_it)} / {a_table4.name(without)}"
        yield value(a_table4.RATIOS, pair, "downtime" if column else "work loss", ratio, ratio)
    yield value(a_table4.BESIDE, "none - bamboo", "work loss", 8.7 - 4.5)
    yield value(a_table4.PARTS, "P1", "work loss", a_table4.PART_OF_P1)


def fig3() -> Iterator[Value]:
    pair = " / ".join(a_fig3.PAIR)
    for quantity, ratio in (("median", a_fig3.MEDIAN_RATIO), ("p99", a_fig3.P99_RATIO), ("median per GB", 0.6)):
        yield value(a_fig3.RATIOS, pair, quantity, ratio)
    yield value(a_fig3.GROUP, "reclaimnet", "same building", 71.0)
    yield value(a_fig3.GROUP, "random-dst", "same building", 27.0)


def fig4() -> Iterator[Value]:
    for k in (1, 7):
        for system in a_fig4.SYSTEMS:
            late = 4.0 if system == "no-tc-bpf" and k == 7 else 0.0
            yield exact(value(f"{k} at once", system, "admitted and late", late))
            yield value(f"{k} at once", system, "completion", 50.0 * k)
    yield value(a_fig4.OVER_ALL, "no-tc-bpf", a_fig4.BEND, 1.0)
    for other in a_fig4.SYSTEMS[1:]:
        yield value("7 at once", f"reclaimnet - {other}", "in time", 0.3)


def gap() -> Iterator[Value]:
    for correlation in a_gap.CORRELATIONS:
        for what in ("predicted", "measured"):
            number = 100.0 * a_gap.predicted_gap(correlation)
            yield value(a_gap.BY_CORRELATION, f"correlation {correlation:+g}", f"{what} gap", number)
    for correlation in (a_gap.PRINTED_CORRELATION, 0.0):
        yield value("the paper's moments", f"eq. (6), correlation {correlation:+g}", "predicted gap", 5.2)
    yield value(a_gap.BY_LENGTH, "state holds for 10 min", "measured gap", -2.0)
    yield value(a_gap.ON_CAMPUS, a_gap.TV_FI, "measured gap", a_gap.PRINTED_MEASURED)


def drift() -> Iterator[Value]:
    yield value("after / before", "reclaimnet", "loss per event", 1.03)
    for window_h in drift_runs.WINDOWS_H:
        yield value(a_drift.ESTIMATE, a_drift.name(window_h), "re-converged after", 0.29)
    for other in a_drift.SYSTEMS[1:]:
        yield value(f"{a_drift.LOSS}, after", f"reclaimnet - {other}", "loss per event", -1.0)


WORLDS = {
    "table3": (CLAIMS["A-table3"], table3),
    "table4": (CLAIMS["A-table4"], table4),
    "fig3": (CLAIMS["A-fig3"], fig3),
    "fig4": (CLAIMS["A-fig4"], fig4),
    "gap": (CLAIMS["A-gap"], gap),
    "drift": (CLAIMS["A-drift"], drift),
}


def world(name: str) -> tuple[Claim, Values]:
    claim, rows = WORLDS[name]
    return claim, Values(tuple(rows()))


@pytest.mark.parametrize("name", WORLDS)
def test_the_papers_own_world_is_reproduced(name: str) -> None:
    claim, values = world(name)
    verdict = judge(claim, values)
    assert verdict.level is Level.REPRODUCED, verdict.because


@pytest.mark.parametrize(("apart", "outcome"), [(-9.0, ClaimOutcome.HOLDS), (9.0, ClaimOutcome.FAILS)])
def test_lost_gpu_time_is_judged_beside_table_3_and_moves_no_verdict(apart: float, outcome: ClaimOutcome) -> None:
    claim, values = world("table3")
    row = value(a_table3.RATIOS, "reclaimnet - slurm-pr", "lost GPU time", apart)
    verdict = judge(claim, Values((*values.rows, row)))
    [check] = [check for check in verdict.checks if "less GPU time in all" in check.text]
    assert (check.kind, check.outcome, verdict.level) == (ClaimKind.BEYOND, outcome, Level.REPRODUCED)


def test_the_distance_from_the_least_is_judged_beside_its_forced_part_and_what_it_covers() -> None:
    """Run: 4 of emergencies and 7 of pauses, 20 in all; a bound of 8, of 10 within budgets, 6 of it forced."""
    run = {
        "days": [[0.0] * 3] * 61,
        "expected_emergencies_s": 14_400.0,
        "lost_time": {"pauses": 25_200.0, "downtime": 46_800.0},
        "online_s": [28_800.0, 36_000.0, 21_600.0],
    }
    rows = tuple(metric_rows(a_table3.ONLINE, "reclaimnet", [run], None, campus_numbers.ONLINE))
    assert [row.measured for row in rows] == pytest.approx([11.0, 20.0, 11.0 / 8.0, 1.1, 1.25])
    claim, values = world("table3")
    verdict = judge(claim, Values((*values.rows, *rows)))
    [check] = [check for check in verdict.checks if "least of any on-line" in check.text]
    assert "pauses 11 GPU-h in 61 days; lost GPU time 20 GPU-h in 61 days; over the least" in check.detail
    assert check.detail.endswith("within loss budgets 1.1 ratio; the same, no forced pauses 1.25 ratio)")


def test_every_printed_cell_of_table_3_is_judged_or_named_where_it_is_not() -> None:
    """The work loss is by its ratio."""
    claim, values = world("table3")
    texts = {check.text for check in judge(claim, values).checks}
    left_out = {
        (system, quantity)
        for system, cells in a_table3.PUBLISHED.items()
        for quantity in cells.keys() & a_table3.CELLS.keys()
        if f"{label(system)}: {quantity} of {cells[quantity]:g}, as printed" not in texts
    }
    assert left_out == a_table3.NOT_JUDGED
    for words in ("oracle's traffic degradation", "under P3", "Bamboo's utilisation"):
        assert any(words in item for item in NOT_COVERED)


def test_degradation_that_the_fluid_world_decides_is_not_judged() -> None:
    """Where a reserve is kept research loses nothing of it; where none is, eight flows have an eighth each."""
    for name in ("table3", "table4"):
        claim, values = world(name)
        for check in judge(claim, values).checks:
            if "degradation" in check.text or "reference workload" in check.text or "research" in check.text:
                assert check.kind is ClaimKind.VALUE and any(each in check.text for each in OPEN), check.text


@pytest.mark.parametrize(
    ("name", "where", "measured", "level"),
    [
        ("table3", (a_table3.RATIOS, "reclaimnet - bamboo", "work loss"), 0.5, Level.NOT_REPRODUCED),
        ("table3", (a_table3.RATIOS, "reclaimnet / bamboo", "work loss"), 0.9, Level.ORDERING),
        ("table3", (a_table3.RATIOS, "reclaimnet / oracle", "work loss"), 1.1, Level.ORDERING),
        ("table3", (a_table3.GROUP, "reclaimnet", "success"), 89.0, Level.ORDERING),
        # what a world with a hard reserve decides by itself
        ("table3", (a_table3.GROUP, "reclaimnet", "degradation"), 3.5, Level.REPRODUCED),
        ("table3", (a_table3.GROUP, "slurm-pr", "degradation"), 57.0, Level.ORDERING),
        ("table3", (a_table3.GROUP, "oracle", "downtime"), 41.0, Level.ORDERING),
        ("table3", (a_table3.GROUP, "oracle", "success"), 84.0, Level.ORDERING),
        ("table3", (a_table3.GROUP, "oracle", "utilisation"), 99.0, Level.ORDERING),
        ("table4", (a_table4.GROUP, ABLATION[False, False, True], "degradation"), 0.0, Level.REPRODUCED),
        ("table4", (a_table4.GROUP, ABLATION[True, True, False], "degradation"), 60.0, Level.ORDERING),
        ("fig4", (a_fig4.OVER_ALL, "no-tc-bpf", a_fig4.BEND), 1.2, Level.ORDERINGS_ONLY),
        ("table4", (a_table4.RATIOS, "P1+P2+P3 / P2+P3", "work loss"), 1.1, Level.NOT_REPRODUCED),
        ("table4", (a_table4.RATIOS, "P2 / none", "downtime"), 0.9, Level.ORDERING),
        ("table4", (a_table4.PARTS, "P1", "work loss"), 30.0, Level.ORDERING),
        ("fig3", (a_fig3.RATIOS, "reclaimnet / random-dst", "median"), 1.2, Level.NOT_REPRODUCED),
        ("fig3", (a_fig3.RATIOS, "reclaimnet / random-dst", "median"), 0.8, Level.ORDERING),
        # whoever grants what is enough in a fluid net is in time
        ("fig4", ("1 at once", "reclaimnet", "admitted and late"), 1.0, Level.REPRODUCED),
        ("fig4", ("7 at once", "no-tc-bpf", "admitted and late"), 0.0, Level.NOT_REPRODUCED),
        ("gap", (a_gap.BY_CORRELATION, "correlation +0.39", "measured gap"), -1.0, Level.NOT_REPRODUCED),
        ("gap", (a_gap.BY_CORRELATION, "correlation +0.39", "measured gap"), 6.7, Level.ORDERING),
        ("table3", (a_table3.GROUP, "bamboo", "downtime"), 5.0, Level.ORDERING),
        ("table3", (a_table3.RATIOS, "reclaimnet - tv-fixed-interval", "work loss"), 0.1, Level.NOT_REPRODUCED),
        ("gap", (a_gap.ON_CAMPUS, a_gap.TV_FI, "measured gap"), -1.3, Level.ORDERING),
        ("drift", ("after / before", "reclaimnet", "loss per event"), 1.2, Level.ORDERING),
        ("drift", (f"{a_drift.LOSS}, after", "reclaimnet - static", "loss per event"), 1.0, Level.NOT_REPRODUCED),
    ],
)
def test_one_wrong_number_is_seen(name: str, where: tuple[str, str, str], measured: float, level: Level) -> None:
    claim, values = world(name)
    assert judge(claim, changed(values, *where[1:], measured, group=where[0])).level is level


def test_orderings_that_are_too_vague_are_undecided_not_refuted() -> None:
    claim, values = world("table3")
    vague = tuple(replace(row, low=row.measured - 9.0, high=row.measured + 9.0) for row in values.rows)
    assert judge(claim, replace(values, rows=vague)).level is Level.UNDECIDED


def test_what_did_not_happen_is_undecided() -> None:
    check = near(ClaimKind.VALUE, "something", None, 1.0, 0.1)
    assert check.outcome is ClaimOutcome.UNDECIDED
    assert "happened" in check.detail


def test_the_page_of_results_says_what_no_check_judges_and_names_claims_that_are_there(tmp_path: Path) -> None:
    text = results_page(tmp_path)
    assert f"have not been run: {', '.join(CLAIMS)}." in text
    for item, why in NOT_COVERED.items():
        assert f"| {item} | {why} |" in text
        assert set(re.findall(r"\b[AB]-[a-z]+\d*", f"{item} {why}")) <= CLAIMS.keys()


def test_a_parameter_that_changes_no_run_is_no_value_that_holds() -> None:
    rows = [Value("beta_p3", fig9.cell("beta_p3", 0.2), DEGRADATION, "%", 0.5)]
    for parameter, swept in fig9.SWEEPS.items():
        standard = fig9.cell(parameter, fig9.DEFAULTS[parameter])
        for value in swept:
            end = 1.0 if parameter == "alpha" else 1.01
            name = f"{fig9.cell(parameter, value)} / {standard}"
            rows.append(Value(f"{parameter}, over default", name, WORK_LOSS.quantity, "ratio", 1.0, 1.0, end, 6))
    found = [c for c in fig9.checks(Values(tuple(rows))) if WORK_LOSS.quantity in c.text and "alpha" in c.text]
    assert {check.kind for check in found} == {ClaimKind.BEYOND} and len(found) == 3
