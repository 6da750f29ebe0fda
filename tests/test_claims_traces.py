"""Recorded owners as claims: every record below a folder, cut into cases."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from experiments.claims.framework.claim import ClaimKind
from experiments.claims.framework.values import Values, read
from experiments.claims.framework.verdicts import judge
from experiments.claims.pages import PICTURE
from experiments.claims.policy_comparison import owner_records, ranking, traces
from experiments.claims.policy_comparison.owner_records import (
    NOTICES_S,
    TraceCase,
    TraceRun,
    cases,
    recorded_campus,
    records,
    with_notice,
)
from experiments.claims.registry import CLAIMS, chosen
from experiments.claims.reproduce import reproduce
from experiments.inputs.scenario.owners import HOUR_S, OwnerEvent
from experiments.inputs.traces.paper_campus import DAY_S
from experiments.runtime.exit_status import ExitStatus
from topologies.errors import SpecError

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
    assert [record.name for record in records(folder)] == ["lives", "region/a", "region/b", "region, all zones"]
    assert len(records(folder)[-1].files) == 2


def test_cases_are_every_notice_and_storage_and_can_be_asked_for_singly(folder: Path) -> None:
    found = cases(folder)
    assert len(found) == 4 * len(NOTICES_S) * len(owner_records.STORAGES)
    assert len({case.name for case in found}) == len(found)
    [one] = cases(folder, ["region/a, notice 30 s, no storage"])
    assert (one.record.name, one.notice_s, one.stores) == ("region/a", 30.0, False)
    with pytest.raises(SpecError, match="--only"):
        cases(folder, ["region/c"])
    with pytest.raises(SpecError, match="--trace"):
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


def test_hosts_are_the_most_machines_that_the_record_had_and_jobs_ask_for_half_of_what_is_lent(folder: Path) -> None:
    zones = records(folder)[-1]
    scenario, trace = recorded_campus(TraceRun(TraceCase(zones, 30.0, False), "reclaimnet", 1, 14.0))
    assert len(scenario.volunteers) == 5
    assert {event.host for event in trace.owner_events} == {host.name for host in scenario.volunteers}
    asked_h = sum(arrival.job.run_s for arrival in trace.arrivals) / HOUR_S
    lent_h = owner_records.lent_share(scenario, trace) * 5 * scenario.duration_s / HOUR_S
    assert asked_h == pytest.approx(owner_records.LOAD * lent_h, rel=0.01)
    stored, _ = recorded_campus(TraceRun(TraceCase(zones, 30.0, True), "slurm-pr", 1, 14.0))
    assert (scenario.protocol.head_stores, stored.protocol.head_stores) == (False, True)


def test_a_record_in_any_form_is_as_large_and_as_long_as_it_says(tmp_path: Path) -> None:
    """Counts that were written down at their changes, and more instances than are played."""
    hours = [0, 4, 3, 5, 0, 2]
    (tmp_path / "counts.csv").write_text("time,n\n" + "".join(f"{n * 3600},{count}\n" for n, count in enumerate(hours)))
    many = {"metadata": {"gap_seconds": 3600}, "data": [200, 100] * 6}
    (tmp_path / "many.json").write_text(json.dumps(many))
    expected = {
        "counts": (5, 5 / 24),
        "many": (owner_records.MAX_HOSTS, 11 / 24),
        f"{tmp_path.name}, all zones": (owner_records.MAX_HOSTS, 5 / 24),
    }
    found = {each.name: each for each in records(tmp_path)}
    assert found.keys() == expected.keys()
    for name, (hosts, days) in expected.items():
        case = TraceCase(found[name], 30.0, False)
        scenario, trace = recorded_campus(TraceRun(case, "reclaimnet", 1, 14.0))
        assert len(scenario.volunteers) == hosts
        assert scenario.duration_s == pytest.approx(days * DAY_S)
        leave = {event.host for event in trace.owner_events if event.kind == "reclaim"}
        assert len(leave) == hosts or (name != "counts" and len(leave) > hosts / 2)


def test_a_claim_of_records_is_played_only_where_there_are_some() -> None:
    assert "traces" in CLAIMS
    assert "traces" not in [claim.name for claim in chosen([], has_records=False)]
    assert "traces" in [claim.name for claim in chosen(["all"], has_records=True)]
    with pytest.raises(SpecError, match="--trace"):
        chosen(["traces"], has_records=False)


def test_it_goes_from_records_to_a_page_and_is_resumed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "systems", lambda: ["slurm-pr", "tv-fixed-interval", "reclaimnet"])
    console = Console(file=StringIO(), width=200)
    asked = {"quick": True, "seeds": (1, 2), "records": folder, "only": ["region/a, notice 120 s, no"]}
    reproduce(console, tmp_path / "out", ["traces"], **asked)  # type: ignore[arg-type]
    values = read(tmp_path / "out/traces.json")
    verdict = judge(CLAIMS["traces"], values)
    assert values.groups() == ["region/a, notice 120 s, no storage server"]
    assert {"slurm-pr", "reclaimnet - tv-fixed-interval"} <= {row.system for row in values.rows}
    judged = [check for check in verdict.checks if check.kind is ClaimKind.ORDERING]
    assert len(judged) == 2 and (tmp_path / "out/traces.json").with_suffix(PICTURE).exists()
    measured = values.find(values.groups()[0], "reclaimnet", ranking.LOST)
    parts = [row for row in values.rows if row.system == "reclaimnet" and row.note.startswith("part of")]
    assert sum(row.measured for row in parts) == pytest.approx(measured.measured)
    assert values.settings["reclaimnet"].count("of 1 cases") == 2
    assert values.settings["promises broken"] == "none, in any run"
    # what a row takes of research is measured, and every row is judged or priced
    assert 0.0 <= values.find(values.groups()[0], "reclaimnet", ranking.WORST).measured <= ranking.MAX_LOST
    for quantity in (ranking.WORK, ranking.LOST):  # recorded owners have no law
        told = [check.detail for check in verdict.checks if quantity in check.text]
        assert "TV-FI (B7)" in " ".join(told) or any("first, before" in each for each in told)
    monkeypatch.setattr(owner_records, "play", lambda wanted: pytest.fail("it was run before"))
    assert reproduce(console, tmp_path / "out", ["traces"], **asked)[0] == ExitStatus.CUT_SHORT  # type: ignore[arg-type]
    assert "no verdict: a quick run" in console.file.getvalue()  # type: ignore[attr-defined]
    again = tmp_path / "again"
    reproduce(console, again, [], quick=False, seeds=None, kept=tmp_path / "out")
    assert (again / "traces.json").read_bytes() == (tmp_path / "out/traces.json").read_bytes()
    assert (again / "index.html").exists() and again.joinpath("traces").with_suffix(PICTURE).exists()


def test_over_all_records_each_counts_once_whatever_its_cases_and_those_of_several_files_do_not(folder: Path) -> None:
    """`reclaimnet` loses 1 and 2 more than Slurm on the two zones, in all cases of each, and 100 on both together."""
    more = {"region/a": 1.0, "region/b": 2.0, "region, all zones": 100.0}
    found = {
        (case.name, system): [
            {
                "work_lost_s": 3600.0 * (5.0 + system.startswith("reclaim") * more[case.record.name]),
                "lost_time": {"downtime": 32400.0},
                "research": {"worst": 0.2 * (system == "slurm-pr" and case.notice_s == 120.0)},
                "over_budget": [0.0, 1.0],
            }
        ]
        * (1 + (case.record.name == "region/a"))
        for case in cases(folder, ["region"])
        for system in ("slurm-pr", "tv-fixed-interval", "reclaimnet")
    }
    values = Values(tuple(traces._over_records(cases(folder, ["region"]), found)))
    apart = values.find(traces.ALL, "reclaimnet - slurm-pr", ranking.WORK)
    assert (apart.measured, apart.seeds) == (pytest.approx(1.5), 2)
    assert apart.low is None  # two records decide nothing
    assert ranking.breach(values, traces.ALL, "slurm-pr") == "takes 20 % of research in an hour"
    assert not ranking.breach(values, traces.ALL, "reclaimnet")
    kinds = {check.kind for check in traces.checks(values)}
    assert kinds == {ClaimKind.ORDERING, ClaimKind.BEYOND}
