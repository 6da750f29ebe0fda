"""Recorded owners as claims: every record below a folder, cut into cases; ours is first, behind, or cannot be told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from experiments.claims.framework.claim import ClaimKind, ClaimOutcome, Level
from experiments.claims.framework.records import PICTURE, read_record
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import judge
from experiments.claims.recorded import owner_records, traces
from experiments.claims.recorded.owner_records import (
    NOTICES_S,
    OwnerRecord,
    TraceCase,
    TraceRun,
    cases,
    play,
    recorded_campus,
    records,
    systems,
    with_notice,
)
from experiments.claims.registry import CLAIMS, chosen
from experiments.claims.reproduce import reproduce
from experiments.inputs.scenario.owners import HOUR_S, OwnerEvent
from topologies.errors import SpecError

OTHERS = ("slurm-pr", "bamboo", "random-dst")
CASE = "zone, notice 30 s, no storage server"
RECORDED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two zones of a day, of three and two machines, and some lifetimes."""
    place = tmp_path / "records" / "region"
    place.mkdir(parents=True)
    for name, counts in (("a", [3, 2, 3, 1, 3, 0, 2] * 12), ("b", [2, 1, 0, 2] * 20)):
        (place / f"{name}.json").write_text(json.dumps({"metadata": {"gap_seconds": 1200}, "data": counts}))
    lives = "".join(f"2019-02-18T{n % 24:02}:00:00Z,{1 + n % 5},{n % 2}\n" for n in range(40))
    (place.parent / "lives.csv").write_text(f"started_at,lifetime_h,preempted\n{lives}")
    return place.parent


def test_every_file_is_a_record_and_the_zones_of_a_folder_are_one_more(folder: Path) -> None:
    assert [record.name for record in records(folder)] == [
        "lives",
        "region/a",
        "region/b",
        "region, all zones",
    ]
    assert len(records(folder)[-1].files) == 2


def test_cases_are_every_notice_and_storage_and_can_be_asked_for_singly(folder: Path) -> None:
    found = cases(folder)
    assert len(found) == 4 * len(NOTICES_S) * len(owner_records.STORAGES)
    assert len({case.name for case in found}) == len(found)
    [one] = cases(folder, ["region/a, notice 30 s, no storage"])
    assert (one.record.name, one.notice_s, one.stores) == ("region/a", 30.0, False)
    with pytest.raises(SpecError, match="--only"):
        cases(folder, ["region/c"])
    with pytest.raises(SpecError, match="--traces"):
        cases(folder / "region" / "nothing")


def test_a_host_is_gone_when_the_record_says_and_told_so_before() -> None:
    events = [
        OwnerEvent(10.0, "h1", "reclaim"),
        OwnerEvent(200.0, "h2", "reclaim", 300.0),
        OwnerEvent(500.0, "h1", "return"),
        OwnerEvent(600.0, "h1", "reclaim", 5.0, grace=True),
    ]
    told = [event for event in with_notice(events, 30.0, 1e4) if event.kind == "reclaim"]
    assert [event.gone_s for event in told] == [10.0, 200.0, 600.0]
    assert [event.notice_s for event in told] == [5.0, 30.0, 30.0]
    assert not any(event.grace for event in told)
    assert [e.at_s for e in with_notice(events, 0.0, 1e4)] == [10.0, 200.0, 500.0, 600.0]


def test_hosts_are_the_most_machines_that_the_record_had_and_jobs_ask_for_half_of_what_is_lent(
    folder: Path,
) -> None:
    zones = records(folder)[-1]
    scenario, trace = recorded_campus(TraceRun(TraceCase(zones, 30.0, False), "reclaimnet", 1, 14.0))
    assert len(scenario.volunteers) == 5
    assert {event.host for event in trace.owner_events} == {host.name for host in scenario.volunteers}
    asked_h = sum(arrival.job.run_s for arrival in trace.arrivals) / HOUR_S
    lent_h = owner_records.lent_share(scenario, trace) * 5 * scenario.duration_s / HOUR_S
    assert asked_h == pytest.approx(owner_records.LOAD * lent_h, rel=0.01)
    assert not trace.warnings
    stored, _ = recorded_campus(TraceRun(TraceCase(zones, 30.0, True), "slurm-pr", 1, 14.0))
    assert (scenario.protocol.head_stores, stored.protocol.head_stores) == (False, True)


def test_another_content_is_another_run_and_the_same_content_elsewhere_is_not(
    folder: Path, tmp_path: Path
) -> None:
    def key(path: Path) -> str:
        return TraceRun(TraceCase(OwnerRecord("a", (path,)), 0.0, False), "static", 1, 1.0).key

    first, other = folder / "region" / "a.json", folder / "region" / "b.json"
    copy = tmp_path / "copy.json"
    copy.write_bytes(first.read_bytes())
    assert key(copy) == key(first) != key(other)


def rows(apart: dict[str, tuple[float, float]], taken: dict[str, float] | None = None) -> Iterator[Value]:
    """Ours and others: what lies between them, and what each takes of research (%, by default none)."""
    for system in ("reclaimnet", "writes-stop-jobs", "one-copy", "tv-fixed-interval", *OTHERS):
        yield Value(CASE, system, traces.WORST, "%", (taken or {}).get(system, 0.0))
    for quantity in traces.JUDGED:
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
        (
            {"bamboo": (-1.0, 1.0)},
            ClaimOutcome.UNDECIDED,
            "not distinguishable from first: Bamboo",
            Level.UNDECIDED,
        ),
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
    verdict = judge(traces.CLAIM, Values(tuple(rows(apart))))
    assert [check.outcome for check in verdict.checks] == [outcome] * 2
    assert all(words in check.detail for check in verdict.checks)
    assert verdict.level is level


def test_the_one_before_which_ours_is_first_is_the_nearest() -> None:
    found = traces.standing(Values(tuple(rows({"bamboo": (-0.9, -0.1)}))), CASE, traces.WORK)
    assert "before Bamboo" in found.detail


BEHIND_TWO = {"bamboo": (1.0, 2.0), "slurm-pr": (0.5, 4.0)}


@pytest.mark.parametrize(
    ("taken", "outcome", "rivals", "priced"),
    [
        ({}, ClaimOutcome.FAILS, {"Bamboo", "Slurm-PR"}, None),
        ({"bamboo": 3.0, "slurm-pr": 3.01}, ClaimOutcome.FAILS, {"Bamboo"}, {"Slurm-PR"}),
        ({"bamboo": 15.0, "slurm-pr": 3.01}, ClaimOutcome.HOLDS, set(), {"Bamboo", "Slurm-PR"}),
        ({"random-dst": 15.0}, ClaimOutcome.FAILS, {"Bamboo", "Slurm-PR"}, {"Rand-Dst"}),
    ],
)
def test_row_that_takes_more_than_3_percent_of_research_is_priced_and_the_same_row_that_does_not_is_a_rival(
    taken: dict[str, float], outcome: ClaimOutcome, rivals: set[str], priced: set[str] | None
) -> None:
    checks = list(traces.CLAIM.checks(Values(tuple(rows(BEHIND_TWO, taken)))))
    standings = [check for check in checks if check.kind is ClaimKind.ORDERING]
    assert [check.outcome for check in standings] == [outcome] * 2
    for check in standings:
        assert {name for name in ("Bamboo", "Slurm-PR") if name in check.detail} == rivals
    prices = [check for check in checks if check.kind is ClaimKind.PRICE]
    assert len(prices) == (0 if priced is None else 2)
    for check in prices:
        assert {name for name in ("Bamboo", "Slurm-PR", "Rand-Dst") if name in check.detail} == priced
        # it pays where another that takes from research loses less, and not where that loses more
        assert check.outcome is (ClaimOutcome.HOLDS if priced == {"Rand-Dst"} else ClaimOutcome.FAILS)


def test_price_that_cannot_be_told_is_undecided_and_moves_no_verdict() -> None:
    values = Values(tuple(rows({"bamboo": (-1.0, 1.0)}, {"bamboo": 4.0})))
    verdict = judge(traces.CLAIM, values)
    assert [check.outcome for check in verdict.checks if check.kind is ClaimKind.PRICE] == [
        ClaimOutcome.UNDECIDED
    ] * 2
    assert verdict.level is Level.ORDERINGS_ONLY
    among_all = traces.standing(values, CASE, traces.WORK, all_rows=True)
    assert among_all.outcome is ClaimOutcome.UNDECIDED and "Bamboo" in among_all.detail


def test_ours_is_not_first_where_it_takes_more_than_research_may_lose() -> None:
    values = Values(tuple(rows({}, {"reclaimnet": 3.2})))
    found = traces.standing(values, CASE, traces.WORK)
    assert found.outcome is ClaimOutcome.FAILS and "reclaimnet 3.2 %" in found.detail
    alone = Values(tuple(rows({}, dict.fromkeys(OTHERS, 50.0))))
    assert traces.standing(alone, CASE, traces.WORK).outcome is ClaimOutcome.UNDECIDED


def test_one_interval_for_all_is_met_at_its_own_price_and_rows_beside_ours_judge_nothing() -> None:
    found = [row for row in rows({}) if row.quantity in (traces.WORK, traces.WORST)]

    def apart(one: str, other: str, low: float, high: float) -> Value:
        return Value(CASE, f"{one} - {other}", traces.WORK, "GPU-h", (low + high) / 2.0, low, high, 10)

    # at unequal prices ours would be behind TV-FI, and it is behind both of its own relatives
    found += [
        apart("reclaimnet", other, 1.0, 2.0)
        for other in ("tv-fixed-interval", "writes-stop-jobs", "one-copy", "research-whole")
    ]
    at_equal_price = apart("writes-stop-jobs", "tv-fixed-interval", -0.5, 0.5)
    standing = traces.standing(Values((*found, at_equal_price)), CASE, traces.WORK)
    assert standing.outcome is ClaimOutcome.UNDECIDED
    assert (
        "not distinguishable from first: TV-FI (B7), a checkpoint costing both its write" in standing.detail
    )
    decided = apart("writes-stop-jobs", "tv-fixed-interval", 0.5, 1.5)
    standing = traces.standing(Values((*found, decided)), CASE, traces.WORK)
    assert standing.outcome is ClaimOutcome.FAILS and "behind TV-FI (B7), a checkpoint" in standing.detail


def test_a_claim_of_records_is_played_only_where_there_are_some() -> None:
    assert "traces" in CLAIMS
    assert "traces" not in [claim.name for claim in chosen([], has_records=False)]
    assert "traces" in [claim.name for claim in chosen(["all"], has_records=True)]
    with pytest.raises(SpecError, match="--traces"):
        chosen(["traces"], has_records=False)


def test_it_goes_from_records_to_a_page_and_is_resumed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "systems", lambda: ["slurm-pr", "tv-fixed-interval", "reclaimnet"])
    console = Console(file=StringIO(), width=200)
    asked = {"quick": True, "seeds": 2, "records": folder, "only": ["region/a, notice 120 s, no"]}
    reproduce(console, tmp_path / "out", ["traces"], **asked)  # type: ignore[arg-type]
    record, values = read_record(tmp_path / "out" / "traces")
    assert values.groups() == ["region/a, notice 120 s, no storage server"]
    assert {"writes-stop-jobs", "one-copy", "writes-stop-jobs - tv-fixed-interval"} <= {
        row.system for row in values.rows
    }
    standings = [check for check in record.verdict.checks if check.kind is ClaimKind.ORDERING]
    assert len(standings) == 2 and (tmp_path / "out" / "traces" / PICTURE).exists()
    ours = values.find(values.groups()[0], "reclaimnet", traces.LOST)
    parts = [row for row in values.rows if row.system == "reclaimnet" and row.note.startswith("part of")]
    assert sum(row.ours for row in parts) == pytest.approx(ours.ours)
    assert values.settings["ours"].count("of 1 cases") == 2
    assert values.settings["promises broken"] == "none, in any run"
    # what a row takes of research is measured, and every row is judged or priced
    assert 0.0 <= values.find(values.groups()[0], "reclaimnet", traces.WORST).ours <= traces.MOST_LOST
    for quantity in traces.JUDGED:
        told = [check.detail for check in record.verdict.checks if quantity in check.text]
        assert "TV-FI (B7)" in " ".join(told) or any("first, before" in each for each in told)
    monkeypatch.setattr(traces, "play", lambda wanted: pytest.fail("it was run before"))
    reproduce(console, tmp_path / "out", ["traces"], **asked)  # type: ignore[arg-type]


def test_over_all_records_each_counts_once_whatever_its_cases_and_those_of_several_files_do_not(
    folder: Path,
) -> None:
    """Ours loses 1 and 2 more than Slurm on the two zones, in all cases of each, and 100 on both together."""
    more = {"region/a": 1.0, "region/b": 2.0, "region, all zones": 100.0}
    found = {
        (case, system): [
            {
                "work_lost_h": 5.0 + system.startswith("reclaim") * more[case.record.name],
                "lost_h": 9.0,
                "research": {"worst": 0.2 * (system == "slurm-pr" and case.notice_s == 120.0)},
            }
        ]
        * (1 + (case.record.name == "region/a"))
        for case in cases(folder, ["region"])
        for system in ("slurm-pr", "tv-fixed-interval", "reclaimnet", "writes-stop-jobs")
    }
    values = Values(tuple(traces._over_records(found)))
    apart = values.find(traces.ALL, "reclaimnet - slurm-pr", traces.WORK)
    assert (apart.ours, apart.seeds) == (pytest.approx(1.5), 2)
    assert apart.low is not None and apart.low < 0.0  # two records decide nothing
    assert not traces.keeps(values, traces.ALL, "slurm-pr") and traces.keeps(values, traces.ALL, "reclaimnet")
    kinds = {check.kind for check in traces.CLAIM.checks(values)}
    assert kinds == {ClaimKind.ORDERING, ClaimKind.PRICE}


def test_lifetimes_are_played_with_the_notice_of_the_case(folder: Path) -> None:
    lives = records(folder)[0]
    found = play(TraceRun(TraceCase(lives, 0.0, False), "reclaimnet", 1, 1.0))
    assert found["interruptions"] > 0 and found["parts_h"]["notices"] == 0.0
    assert found["broken"] == []


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"{RECORDED} is not there")
def test_records_that_are_there_can_all_be_played() -> None:
    for record in records(RECORDED):
        scenario, trace = recorded_campus(TraceRun(TraceCase(record, 30.0, False), "reclaimnet", 1, 1.0))
        assert trace.owner_events and trace.arrivals, record.name
        assert replace(scenario, duration_s=1.0).volunteers
    assert set(systems()) >= {"reclaimnet", *OTHERS}
