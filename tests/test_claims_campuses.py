"""Other campuses as claims: each case changes what its name says, and is played by every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from experiments.claims.compared import campuses, standings
from experiments.claims.compared.campuses import CASES, CampusRun, chosen, play
from experiments.claims.framework.claim import ClaimKind, ClaimOutcome
from experiments.claims.framework.records import PICTURE, read_record
from experiments.claims.framework.values import Values
from experiments.claims.reproduce import reproduce
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces.achieved import lent_share
from experiments.inputs.traces.paper_campus import PaperCampus, paper_campus, paper_scenario
from experiments.runtime.tasks import Result
from topologies.errors import SpecError
from topologies.presets import three_tier


def test_names_are_apart_and_can_be_asked_for_singly() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert [case.name for case in chosen(("two buildings",))] == ["two buildings"]
    assert chosen(()) == list(CASES)
    with pytest.raises(SpecError, match=r"--only.*two buildings"):
        chosen(("three buildings",))


def test_another_choice_is_another_run() -> None:
    case = CASES[0]
    other = replace(case, choices=replace(case.choices, lent_share=0.4))
    keys = {CampusRun(each, "reclaimnet", 1, 2.0).key for each in (case, replace(case, days=3.0), other)}
    assert len(keys) == 2  # days are a run's own


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_changes_something_and_can_be_played(case: campuses.CampusCase) -> None:
    assert case.choices != PaperCampus()
    found = play(CampusRun(case, "reclaimnet", 7, 0.1))
    assert found["submitted"] > 0 and found["broken"] == []


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_a_load_is_a_share_of_the_gpu_time_that_owners_lend(load: float) -> None:
    scenario, trace = paper_campus(2, days=20.0, choices=PaperCampus(load=load))
    asked_h = sum(arrival.job.run_s for arrival in trace.arrivals) / HOUR_S
    gpus = sum(host.gpus for host in scenario.volunteers)
    lent_h = lent_share(scenario, trace) * gpus * scenario.duration_s / HOUR_S
    assert asked_h == pytest.approx(load * lent_h, rel=0.15)  # which hosts are lent is drawn


def test_a_larger_campus_has_as_many_jobs_and_reclaims_a_host() -> None:
    paper = paper_scenario(1, days=20.0)
    larger = paper_scenario(1, days=20.0, choices=PaperCampus(campus=three_tier(530, 8)))
    assert larger.jobs.count == pytest.approx(10 * (paper.jobs.count or 0), rel=0.01)
    assert larger.owners.count == pytest.approx(10 * (paper.owners.count or 0), rel=0.01)
    assert larger.owners.hazard_per_s == paper.owners.hazard_per_s
    assert larger.owners.absence == paper.owners.absence


@pytest.mark.parametrize("load", [0.0, 1.0, -0.3])
def test_a_load_that_cannot_be_is_refused(load: float) -> None:
    with pytest.raises(SpecError, match="load"):
        paper_scenario(1, choices=PaperCampus(load=load))


def runs_of(work_lost_h: Mapping[tuple[str, str], Sequence[float]]) -> dict[tuple[str, str], list[Result]]:
    """(case, system) -> a run for each of these, alike in all else."""
    return {
        key: [
            {
                "work_lost_h": lost,
                "expected_emergencies_h": None,
                "lost_h": 9.0,
                "research": {"worst": 0.01},
                "over_budget": [0.02, 1.0],
            }
            for lost in hours
        ]
        for key, hours in work_lost_h.items()
    }


def test_over_all_campuses_each_counts_the_same_whatever_is_lost_there() -> None:
    # half of what the other loses on a small campus, twice as much on a large one, the same on a third; a fourth loses nothing
    work_lost_h = {"small": (1.0, 2.0), "large": (600.0, 300.0), "third": (40.0, 40.0), "calm": (0.0, 1.0)}
    found = runs_of(
        {
            (case, system): [lost, lost]
            for case, pair in work_lost_h.items()
            for system, lost in zip(("reclaimnet", "slurm-pr"), pair, strict=True)
        }
    )
    values = Values(tuple(campuses._over_cases(found)))
    apart = values.find(campuses.ALL, "reclaimnet - slurm-pr", standings.WORK)
    assert (apart.ours, apart.seeds) == (pytest.approx(0.0, abs=1e-9), 3)
    assert "of 3 campuses" in apart.note
    assert apart.low == pytest.approx(-apart.high) and apart.high > 69.0  # 100 ln 2 either way
    assert values.find(campuses.ALL, "slurm-pr", standings.WORK).ours == pytest.approx(
        (2 * 300 * 40) ** (1 / 3)
    )
    # the same in lost GPU time, whatever the seed
    assert values.find(campuses.ALL, "reclaimnet - slurm-pr", standings.LOST).high == 0.0
    checks = list(campuses.checks(values))
    assert [check.outcome for check in checks] == [ClaimOutcome.UNDECIDED] * 2
    assert values.find(campuses.ALL, "slurm-pr", standings.OVER).ours == pytest.approx(2.0)
    assert not list(campuses._over_cases({key: runs for key, runs in found.items() if key[0] == "small"}))


def test_a_row_that_loses_nothing_somewhere_takes_no_campus_from_the_others() -> None:
    hours = {"reclaimnet": 1.0, "slurm-pr": 2.0, "bamboo": 4.0}
    places = ("one", "two", "three")
    work_lost_h = {(case, system): [lost, lost] for case in places for system, lost in hours.items()}
    values = Values(tuple(campuses._over_cases(runs_of({**work_lost_h, ("two", "bamboo"): [0.0, 0.0]}))))
    counts = {
        other: values.find(campuses.ALL, f"reclaimnet - {other}", standings.WORK).seeds
        for other in ("slurm-pr", "bamboo")
    }
    assert counts == {"slurm-pr": 3, "bamboo": 2}


def test_twelve_campuses_of_the_same_seeds_decide_no_more_than_one() -> None:
    """Ours loses a tenth less with each of three seeds, and more with the fourth, on every campus alike."""
    names = [f"campus {place}" for place in range(12)]
    hours = {"reclaimnet": [1.8, 3.6, 2.7, 2.2], "slurm-pr": [2.0, 4.0, 3.0, 2.0]}
    values = [
        Values(
            tuple(campuses._over_cases(runs_of({(case, row): hours[row] for case in some for row in hours})))
        )
        for some in (names[:2], names)
    ]
    two, twelve = (each.find(campuses.ALL, "reclaimnet - slurm-pr", standings.WORK) for each in values)
    assert twelve.ours == pytest.approx(two.ours) and twelve.ours < 0.0
    assert twelve.high == pytest.approx(two.high) and twelve.high > 0.0
    # other campuses would add to it
    more = {
        (case, row): [
            lost * (2.0 if row == "slurm-pr" and case == "campus 3" else 1.0) for lost in hours[row]
        ]
        for case in names
        for row in hours
    }
    wider = Values(tuple(campuses._over_cases(runs_of(more)))).find(
        campuses.ALL, "reclaimnet - slurm-pr", standings.WORK
    )
    assert wider.high - wider.low > 1.05 * (twelve.high - twelve.low)
    alone = {key: some[:1] for key, some in more.items()}
    assert not [row for row in campuses._over_cases(runs_of(alone)) if row.quantity in standings.JUDGED]


def test_it_goes_from_cases_to_a_page_and_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standings, "systems", lambda: ["slurm-pr", "one-interval", "reclaimnet"])
    monkeypatch.setattr(campuses, "QUICK_PART", 0.01)
    console = Console(file=StringIO(), width=200)
    asked = {"quick": True, "seeds": 2, "only": ["two buildings", "snapshots within"]}
    reproduce(console, tmp_path / "out", ["campuses"], **asked)  # type: ignore[arg-type]
    record, values = read_record(tmp_path / "out" / "campuses")
    assert values.groups() == ["two buildings", "snapshots within a GPU", campuses.ALL]
    judged = [
        check
        for check in record.verdict.checks
        if check.kind is ClaimKind.ORDERING and not check.text.startswith(campuses.ALL)
    ]
    assert len(judged) == 6 and (tmp_path / "out" / "campuses" / PICTURE).exists()
    assert values.settings["ours"].count("of 2 cases") == len(standings.JUDGED)
    assert "two buildings 0.2" in values.settings["days"]
    monkeypatch.setattr(campuses, "play", lambda wanted: pytest.fail("it was run before"))
    reproduce(console, tmp_path / "out", ["campuses"], **asked)  # type: ignore[arg-type]
