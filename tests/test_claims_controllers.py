"""The measurement of admission controllers: what it keeps of runs and of records, and what it prints."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from controller.core.queueing.replay import prepare
from experiments.benchmarks.controllers import (
    FIXED,
    NAMES,
    draw,
    measure_case,
    one_run,
    summary,
)
from experiments.benchmarks.controllers_laws import LAWS, measure_laws, one_history
from experiments.benchmarks.controllers_traces import (
    hindsight_level,
    measure_record,
    measure_traces,
    offers_of,
    records,
    resampled,
    resampled_days,
)
from experiments.benchmarks.tables import cases_table, laws_table, traces_table
from experiments.theory.paper_b.targets import BY_NAME
from experiments.worlds.queue.history import DrawnHistory, Piece
from topologies.errors import SpecError


def a_record(folder: Path, counts: list[int]) -> Path:
    path = folder / "place.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": counts}))
    return path


def test_seeds_repeat_and_the_exact_level_is_near_its_numbers() -> None:
    case = BY_NAME["fig5"]
    run = one_run(case, FIXED, seed=1, jobs=3000)
    assert run == one_run(case, FIXED, seed=1, jobs=3000)
    assert run.delay_h == pytest.approx(case.delta_h, rel=0.15)
    assert run.cost == pytest.approx(case.cost_star, rel=0.05)


def test_a_summary_counts_the_runs_that_are_within_two_percent() -> None:
    case = BY_NAME["fig2-poisson"]
    runs = [one_run(case, FIXED, seed, 100) for seed in range(3)]
    found = summary(case, runs)
    within = [abs(run.cost / case.cost_star - 1.0) <= 0.02 for run in runs]
    assert found["cost_within"] == pytest.approx(sum(within) / 3)
    assert found["saving"] == pytest.approx(
        (case.cost_star - found["cost"]["mean"]) / (case.cost_star - 6.4299)
    )
    assert summary(BY_NAME["fig5"], runs)["saving"] is None  # nothing can be saved


def test_what_was_learned_is_judged_by_theory_not_by_the_luck_of_the_run() -> None:
    case = BY_NAME["fig5"]
    exact = one_run(case, FIXED, seed=2, jobs=400)
    assert (exact.learned_delay_h, exact.learned_cost) == pytest.approx((case.delta_h, case.cost_star))
    assert exact.cost != pytest.approx(case.cost_star, rel=1e-3)
    early = one_run(case, "algorithm1", seed=2, jobs=400)  # from .05, far from r* after so few jobs
    assert early.learned_delay_h < 0.9 * case.delta_h and early.learned_cost > case.cost_star
    found = summary(case, [exact, early])
    assert (found["learned_delay_within"], found["learned_cost_within"]) == (0.5, 0.5)
    assert summary(case, [one_run(case, "age", 2, 400)])["learned_cost_within"] is None


def test_rises_are_offers_spread_over_their_gap(tmp_path: Path) -> None:
    gaps_h, rises = offers_of(a_record(tmp_path, [0, 3, 3, 1, 2]))
    times_h = np.concatenate([[0.0], np.cumsum(gaps_h)])
    assert rises == 2
    assert len(gaps_h) == 3
    assert times_h[2] < 300 / 3600
    assert 2 * 300 / 3600 < times_h[3] < 4 * 300 / 3600


def test_a_replicate_is_made_of_stretches_of_the_record() -> None:
    gaps_h = np.arange(1.0, 101.0)
    drawn = resampled(gaps_h, 3000.0, np.random.default_rng(1))
    assert drawn.sum() >= 3000.0
    assert ((np.diff(drawn.reshape(-1, 25)) % 100) == 1).all()


def test_the_level_in_hindsight_keeps_the_delay_from_below() -> None:
    case = BY_NAME["fig5"]
    piece: Piece = DrawnHistory(case.jobs, case.spots, 3).piece(2000)
    assert 2.0 < hindsight_level(piece, case.delta_h) < 4.0
    assert hindsight_level(piece, 0.0) < 0.01


def test_a_record_with_few_rises_is_left_out_and_says_why() -> None:
    assert "fewer than 50 rises" in measure_record(np.ones(200), 49, 1)["left_out"]


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a folder with records"):
        records(tmp_path)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(SpecError, match=r"bad\.json"):
        measure_traces(tmp_path, 1)


def test_every_law_has_about_the_offers_that_it_says() -> None:
    for law, times in LAWS.items():
        offers_h = times(np.random.default_rng(1), 200_000.0)
        mean_h = 200_000.0 / np.count_nonzero(offers_h <= 200_000.0)
        assert mean_h == pytest.approx(240.0 if law == "rare" else 12.0, rel=0.2), law
        assert (np.diff(offers_h) >= 0.0).all(), law


@pytest.mark.parametrize(
    "law", ["every 12 h", pytest.param("two at once", marks=pytest.mark.long), "half days"]
)
def test_offers_that_nobody_assumed_cost_age_no_more_than_replay_and_the_delay_is_kept(law: str) -> None:
    prepare()
    found = one_history(law, 3.0, seed=1, jobs=2000)
    for name in ("age", "hour-and-age"):
        assert found[name][0] == pytest.approx(3.0, rel=0.05)
        assert 1.0 + 9.0 * found[name][1] < 1.02 * (1.0 + 9.0 * found["replay"][1])


def test_controllers_that_leave_the_target_or_are_dearer_than_age_are_named() -> None:
    costs = {"2": 1.5, "10": 5.0, "100": 45.0}
    over = {"mean": 0.1, "low": 0.01, "high": 0.2}
    found = {"delay_over_delta": 1.2, "worst_off": 0.2, "last_costs": costs, "over_age": over}
    laws = {"rare": {"3": {"bound": 4.0, "hindsight": found, "replay": found, "age": found}}}
    out = StringIO()
    named = {"beyond": ["rare, 3 h: age"], "dearer": ["rare, 3 h: replay"]}
    Console(file=out, width=200).print(laws_table({"laws": {"seeds": 1, "jobs": 9, "laws": laws, **named}}))
    for words in ("rare, 3 h: age", "rare, 3 h: replay", "45.000", "+25.0%", "+0.100 [+0.010, +0.200]"):
        assert words in out.getvalue()


def test_laws_say_what_they_cost_at_every_price_and_beside_their_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("experiments.benchmarks.controllers_laws.LAWS", {"by day": LAWS["by day"]})
    found = measure_laws(2, 150)
    of = found["laws"]["by day"]["3"]
    assert of["bound"] == pytest.approx(6.771, abs=2e-3)
    assert of["age"]["over_age"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    rented = of["age"]["rented"]
    assert of["age"]["costs"] == pytest.approx(
        {"2": 1 + rented, "10": 1 + 9 * rented, "100": 1 + 99 * rented}
    )


def test_whole_days_keep_the_hours_of_their_offers() -> None:
    gaps_h = np.tile([2.0, 22.0], 10)
    times_h = resampled_days(gaps_h, 100.0, np.random.default_rng(1))
    assert (times_h % 24.0).tolist() == [0.0, 2.0] * 5
    with pytest.raises(ValueError, match="at least a day"):
        resampled_days(np.ones(5), 100.0, np.random.default_rng(1))


def test_tables_and_picture_show_every_controller(tmp_path: Path) -> None:
    a_record(tmp_path, [0, 2, 0, 1] * 30)
    result = {
        "seeds": 2,
        "starts": (0.05, 6.0),
        "tolerance": 0.02,
        "cases": {"fig5": measure_case(BY_NAME["fig5"], jobs=100, seeds=2)},
        "traces": measure_traces(tmp_path, replicates=1),
    }
    out = StringIO()
    for table in (cases_table(result), traces_table(result)):
        Console(file=out, width=200).print(table)
    for name in NAMES:
        assert name in out.getvalue()
    assert "place" in out.getvalue()
    draw(result, tmp_path / "controllers.svg")
    assert (tmp_path / "controllers.svg").stat().st_size > 10_000
