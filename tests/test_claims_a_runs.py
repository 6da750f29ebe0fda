"""The runs that paper A's claims share, and every kind of claim from runs to page in small."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from experiments.claims import both_papers
from experiments.claims.framework.claim import Config
from experiments.claims.framework.panels import draw
from experiments.claims.framework.runs import gather
from experiments.claims.framework.values import file_of, read, write
from experiments.claims.framework.verdicts import judge
from experiments.claims.pages import PICTURE, results_page, write_index
from experiments.claims.paper_a import campus_numbers as numbers
from experiments.claims.paper_a import campus_result, campus_runs, drift, drift_runs, gap, gap_runs, reclaim_bursts
from experiments.claims.paper_a.campus_runs import Variation, Wanted
from experiments.claims.paper_b import learning
from experiments.claims.paper_b.learning import LearningSize
from experiments.claims.registry import CLAIMS
from experiments.inputs.scenario.owners import HOUR_S, Owners
from experiments.inputs.traces import paper_campus
from experiments.results import statistics
from experiments.results.provenance import provenance
from experiments.worlds.virtual import simulate

TINY_DAYS = 0.25
OF_PAPER_A = [name for name in CLAIMS if name.startswith("A-")]
PLAYED = [*OF_PAPER_A, "B4", "AB-queue"]
LONGER = ("A-table4", "A-fig4", "B4")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for the module: claims share their runs."""
    return tmp_path_factory.mktemp("claims")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of some hours, in this process."""
    monkeypatch.setattr(campus_runs, "QUICK_DAYS", TINY_DAYS)
    monkeypatch.setattr(reclaim_bursts, "SEVERAL", (1, 7))
    monkeypatch.setattr(drift, "QUICK_DAYS", (0.3, 0.3))
    monkeypatch.setattr(drift_runs, "WATCHED_DAYS", 20.0)
    monkeypatch.setattr(gap, "EPOCHS", dict.fromkeys(gap.LENGTHS_S, 40))
    monkeypatch.setattr(both_papers, "QUICK_DAYS", 0.15)
    monkeypatch.setattr(both_papers, "LOADS", (0.3, 0.9))
    monkeypatch.setattr(learning, "QUICK", LearningSize(400, 3, 300, 2, 0.05))
    monkeypatch.setattr(statistics, "POOLED_RESAMPLES", 200)


def config(out: Path) -> Config:
    return Config(out, quick=True, seeds=(1, 2))


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.long) if each in LONGER else each for each in PLAYED]
)
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("tiny")
def test_a_claim_goes_from_runs_to_values_picture_verdict_and_pages(name: str, out: Path) -> None:
    claim = CLAIMS[name]
    values = replace(claim.run(config(out)), is_quick=True, seeds=(1, 2), origin=provenance())
    write(values, path := file_of(out, name))
    assert read(path) == values
    draw(values, claim.title, claim.panels, path.with_suffix(PICTURE))
    verdict = judge(claim, values)
    assert path.with_suffix(PICTURE).read_bytes().startswith(b"<?xml")
    assert verdict.checks
    page = write_index(out).read_text()
    assert all(words in page for words in (claim.title, str(verdict.level), "What it does not prove"))
    assert "http" not in page.replace("http-equiv", "")
    results = results_page(out).splitlines()
    [line] = [line for line in results if line.startswith(f"| {name} ")]
    assert f"| {verdict} |" in line and f" | 2, from 1 | quick | {values.origin.commit} | 20" in line
    if name == "B4":  # of two seeds none has an interval
        cost = next(row for row in values.rows if row.quantity == "cost")
        shown = [line for line in results if line.startswith(f"| {cost.system} |")]
        assert any(f"{cost.measured:.4g}" in line for line in shown) and not any("[" in line for line in shown)


def test_every_table_and_figure_of_the_evaluation_has_a_claim() -> None:
    # 2: tests of the generator; 5, 8 and E4: `measure isolation`, `decisions` and `killswitch`
    figures = {f"A-fig{n}" for n in (3, 4, 6, 7, 9)}
    assert {"A-table3", "A-table4", "A-drift", "A-gap"} | figures == set(OF_PAPER_A)


@pytest.mark.usefixtures("tiny")
def test_a_run_that_one_claim_has_had_is_not_run_again_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Wanted] = []

    def counting(wanted: Wanted) -> dict[str, object]:
        seen.append(wanted)
        return {"system": wanted.system}

    monkeypatch.setattr(campus_runs, "play", counting)
    tasks = {"one": [Wanted("reclaimnet", seed, 3.0).task for seed in (1, 2)]}
    first = gather(tasks, config(tmp_path))
    other = gather(tasks | {"other": [Wanted("static", 1, 3.0).task]}, config(tmp_path))
    assert other["one"] == first["one"]
    assert [each.system for each in seen] == ["reclaimnet", "reclaimnet", "static"]


def test_a_run_has_a_key_of_its_own_for_everything_it_depends_on() -> None:
    base = Wanted("reclaimnet", 1, 3.0)
    others = [
        replace(base, system="static"),
        replace(base, seed=2),
        replace(base, days=4.0),
        *(replace(base, variation=Variation(**{each.name: (1, 2)})) for each in fields(Variation)),
    ]
    assert len({each.task.key for each in (base, *others)}) == len(others) + 1


def test_useful_time_of_table_3_is_what_jobs_kept_brought_to_two_months() -> None:
    scenario, trace = paper_campus(3, days=1.0)
    run = simulate(scenario, trace, 3, system="static")
    kept = run.summary().lost_time.useful_s / 3600.0
    found = numbers.USEFUL.of([campus_result.compact(run, trace)] * 2)
    assert found is not None and numbers.USEFUL in numbers.METRICS
    # of a job that runs when the run ends its balance has what it did up to its latest snapshot, and a day's figure nothing
    assert 0.5 * kept < found.mean / 61.0 <= kept


def test_hazards_after_the_drift_are_seventeen_tenths_of_those_before() -> None:
    owners = Owners(hazard_per_s=1.0 / HOUR_S, peaks=())
    drift_s = 10.0 * HOUR_S
    assert drift_runs.reclaimed_s(owners, 0.0, 3.0, drift_s) == pytest.approx(3.0 * HOUR_S)
    assert drift_runs.reclaimed_s(owners, 9.0 * HOUR_S, 1.0 + 1.7, drift_s) == pytest.approx(11.0 * HOUR_S)
    assert drift_runs.reclaimed_s(owners, 12.0 * HOUR_S, 1.7, drift_s) == pytest.approx(13.0 * HOUR_S)


def test_an_estimate_is_settled_only_when_it_stays_right_for_two_windows() -> None:
    step_h = drift_runs.STEP_S / HOUR_S
    right, wrong = [0.0] * 30, [1.0] * 5
    error = drift_runs.np.array([*wrong, *right[:10], *wrong, *right, *wrong])
    assert drift_runs.settled_h(error, 1.0) == pytest.approx(20 * step_h)
    assert drift_runs.settled_h(error[:15], 1.0) == drift_runs.WATCHED_DAYS * 24.0


def test_following_a_constant_state_saves_nothing_and_losses_are_those_of_young() -> None:
    count, length_s = 200, 86_400.0
    hazard, write_s = gap_runs.HAZARD_PER_S, gap_runs.WRITE_S
    np = drift_runs.np
    epochs = gap_runs.Epochs(length_s, np.full(count, hazard), np.full(count, write_s))
    moments = gap_runs.emergencies(epochs, np.random.default_rng(1))
    interval_s = (2.0 * write_s / hazard) ** 0.5
    cost = gap_runs.cost_rate(epochs, moments, lambda _: interval_s)
    assert cost == pytest.approx((2.0 * hazard * write_s) ** 0.5, rel=0.05)
    for other in (0.5, 2.0):
        assert gap_runs.cost_rate(epochs, moments, lambda _, x=other: x * interval_s) > 1.1 * cost


def test_a_wave_loses_research_only_where_nothing_is_enforced() -> None:
    short = reclaim_bursts.SHORT_S
    kept, taken = (
        reclaim_bursts.play(reclaim_bursts.Wave(system, 5, short, False, 1)) for system in ("reclaimnet", "no-tc-bpf")
    )
    assert kept["degradation"] == 0.0
    assert taken["degradation"] > 0.3
    assert (kept["late"], kept["noticed"], taken["noticed"]) == (0, 5, 5)
    assert kept["in_time"] == kept["admitted"] >= 1
