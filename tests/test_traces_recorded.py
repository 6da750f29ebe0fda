"""Recorded traces: what the file says, fitted to the run, and every malformed file named."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments.cli.simulate import simulate_file
from experiments.cli.traces import draw
from experiments.inputs.scenario import OwnerEvent, Owners, Scenario, demo_scenario
from experiments.inputs.traces import Trace, load_trace
from experiments.inputs.traces.availability_counts import (
    Counts,
    counts_of,
    fit_counts,
    parse_counts_csv,
)
from experiments.inputs.traces.lifetimes import fit_spells, parse_spells
from experiments.inputs.traces.owner_events import parse_events
from topologies.errors import SpecError
from topologies.presets import three_tier

HOSTS = [f"h{n}" for n in range(1, 9)]
HEADER = "vm,zone,machine_type,started_at,lifetime_h,preempted,load\n"
ROW = "a,z,m,2019-02-18T08:57:39.791-08:00,{hours},{preempted},idle\n"
EVENT = "time,host,event,notice\n"
ZONES = "time,a,b\n"


def data() -> Path:
    """The recorded data, where the machine has it."""
    return Path(os.environ.get("RECLAIMNET_DATA", Path(__file__).parents[2] / "shared" / "data"))


@cache
def scenario(hosts: int = 9, seed: int = 1) -> Scenario:
    return Scenario("x", three_tier(hosts, 1), seed=seed, duration_s=3000.0)


def loaded(folder: Path, *texts: str, hosts: int = 9, seed: int = 1) -> Trace:
    files = [folder / f"r{number}" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return load_trace(files[0], scenario(hosts, seed), *files[1:])


def spot(data: Sequence[object], gap_s: object = 300.0) -> str:
    return json.dumps({"metadata": {"gap_seconds": gap_s}, "data": list(data)})


def lent_at(events: tuple[OwnerEvent, ...], hosts: int, at_s: float) -> int:
    """How many hosts are not announced as reclaimed."""
    signs = [-1 if e.kind == "reclaim" else 1 for e in events if e.at_s <= at_s]
    return hosts + sum(signs)


counts = st.lists(st.integers(0, 8), min_size=2, max_size=40).filter(any)


@given(counts, st.integers(0, 1000))
def test_availability_is_that_of_the_record_at_every_sample(available: list[int], seed: int) -> None:
    text = spot(available, 60)
    duration_s = 60.0 * (len(available) - 1)
    recorded = fit_counts(counts_of(json.loads(text)), "x", HOSTS, duration_s, Owners(), seed)
    most = max(available) - len(recorded.away)
    for step, count in enumerate(available[:-1]):
        assert lent_at(recorded.events, most, 60.0 * step) == count
    Trace("x", (), recorded.events, recorded.away)  # in order, alternating, returns after the notice


@given(counts, st.integers(1, 5), st.floats(10.0, 5000.0), st.integers(0, 1000))
def test_any_record_fits_any_number_of_hosts_and_any_length(
    available: list[int], hosts: int, duration_s: float, seed: int
) -> None:
    text = spot(available, 300)
    recorded = fit_counts(counts_of(json.loads(text)), "x", HOSTS[:hosts], duration_s, Owners(), seed)
    Trace("x", (), recorded.events, recorded.away)
    assert all(event.at_s < duration_s and event.host in HOSTS[:hosts] for event in recorded.events)


def test_the_window_is_one_with_many_reclaims() -> None:
    quiet, busy = [4] * 500, [4, 0, 4, 0, 4, 0]
    text = spot(quiet + busy + quiet, 10)
    for seed in range(10):
        events = fit_counts(counts_of(json.loads(text)), "x", HOSTS, 60.0, Owners(), seed).events
        assert sum(event.kind == "reclaim" for event in events) >= 8


@given(
    st.lists(st.tuples(st.floats(0.0, 50.0), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 8),
    st.integers(0, 1000),
)
def test_lifetimes_become_spells_for_any_number_of_hosts(
    rows: list[tuple[float, bool]], hosts: int, seed: int
) -> None:
    text = HEADER + "".join(ROW.format(hours=hours, preempted=int(dead)) for hours, dead in rows)
    if not any(hours * 3600 > 0 for hours, _ in rows):
        with pytest.raises(SpecError, match="lifetime above 0"):
            parse_spells(text)
        return
    recorded = fit_spells(parse_spells(text), "x", HOSTS[:hosts], 3600.0, Owners(), seed)
    Trace("x", (), recorded.events)


def test_a_preempted_machine_is_an_emergency_and_another_one_gives_notice() -> None:
    for preempted in (0, 1):
        text = HEADER + ROW.format(hours=0.25, preempted=preempted) * 5
        events = fit_spells(parse_spells(text), "x", ["h1"], 3600.0, Owners(), 1).events
        assert events[0].at_s == 900.0
        assert (events[0].notice_s == 0.0) == bool(preempted)


def test_ones_own_events_are_taken_as_they_are() -> None:
    text = "time,host,event,notice,grace\n5,h1,reclaim,2 min,\n1 min,h2,emergency,,\n90,h3,reclaim,3,yes\n200,h1,return,,no\n"
    recorded = parse_events(text, HOSTS, "mine.csv", 190.0)
    assert recorded.events == (
        OwnerEvent(5.0, "h1", "reclaim", 120.0),
        OwnerEvent(60.0, "h2"),
        OwnerEvent(90.0, "h3", "reclaim", 3.0, grace=True),
    )
    assert recorded.origin == "mine.csv: 3 of 4 events before the end"


def test_counts_of_zones_are_added_up_and_changes_are_sampled_at_their_closest() -> None:
    assert parse_counts_csv("time,a,b\n0,4,2\n300,4,1\n600,1,0\n") == Counts(300.0, (6, 5, 1))
    changes = "time,available\n0,0\n100,0\n100,4\n120,4\n120,12\n200,5\n"
    assert parse_counts_csv(changes) == Counts(20.0, (0, 0, 0, 0, 0, 4, 12, 12, 12, 12, 5))
    for first, second in (
        ("1598918400", "1598918700"),
        ("2023-08-01", "2023-08-01T00:05"),
        ("1 h", "65 min"),
    ):
        assert parse_counts_csv(f"time,a\n{first},1\n{second},0\n") == Counts(300.0, (1, 0))


def test_one_zone_of_one_machine_leaves_most_hosts_loyal_and_says_so_and_nine_do_not(tmp_path: Path) -> None:
    rng = random.Random(3)
    zones = [spot([int(rng.random() < 0.6) for _ in range(300)]) for _ in range(9)]
    one, nine = loaded(tmp_path, zones[0]), loaded(tmp_path, *zones)
    assert one.warnings == (
        "only 1 of 9 hosts are ever reclaimed: most of the campus behaves like machines without owners",
    )
    assert len({event.host for event in nine.owner_events if event.kind == "reclaim"}) >= 5
    assert nine.warnings == ()
    assert nine.origin.startswith("r0 + r1 + r2")


@pytest.mark.parametrize("kind", ["counts", "own"])
def test_a_seed_chooses_hosts_and_where_the_record_begins(kind: str, tmp_path: Path) -> None:
    rng = random.Random(5)
    text = (
        spot([rng.randint(0, 4) for _ in range(200)])
        if kind == "counts"
        else EVENT + "5,h1,reclaim,\n9,h2,emergency,\n"
    )
    traces = [loaded(tmp_path, text, seed=seed) for seed in (1, 1, 2)]
    assert traces[0] == traces[1]
    assert traces[0].arrivals != traces[2].arrivals
    assert (traces[0].owner_events == traces[2].owner_events) == (kind == "own")  # it names the hosts itself


def test_the_warning_is_on_the_terminal_in_the_summary_and_on_the_page(tmp_path: Path) -> None:
    record, out = tmp_path / "flat.json", tmp_path / "out"
    record.write_text(spot([4] * 400))
    out.mkdir()
    screen = StringIO()
    console = Console(file=screen, width=300)
    assert simulate_file(console, out, "example:lab", records=[record]) == 0
    draw(console, out, "example:lab", seed=1, records=[record])
    assert screen.getvalue().count("is ever reclaimed") == 2
    summary = json.loads((out / "summary.json").read_text())
    assert ["is ever reclaimed" in warning for warning in summary["warnings"]] == [True, False]
    assert "no reclaim met a job" in summary["warnings"][1]
    page = (out / "report.html").read_text()
    assert "Every promise kept; but little was put to the test" in page


@pytest.mark.parametrize("other", [HEADER + ROW.format(hours=1, preempted=1), EVENT + "5,h1,reclaim,\n"])
def test_files_of_several_kinds_are_not_put_together(other: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="files of one kind") as caught:
        loaded(tmp_path, spot([1, 0, 1]), other)
    assert str(caught.value).startswith(f"{tmp_path / 'r1'}: ")


def recorded_files() -> list[Path]:
    return sorted([*data().glob("**/*.json"), *data().glob("**/*.csv")])


@pytest.mark.skipif(not recorded_files(), reason="no recorded data beside the checkout (RECLAIMNET_DATA)")
def test_every_recorded_trace_plays_in_a_demo() -> None:
    for path in recorded_files():
        for seed, hosts in ((1, 12), (2, 5), (3, 40)):
            scenario = demo_scenario(hosts=hosts, seed=seed)
            trace = load_trace(path, scenario)
            reclaims = sum(event.kind == "reclaim" for event in trace.owner_events)
            assert reclaims >= 1, (path.name, hosts)
            assert path.name in trace.origin
            assert load_trace(path, scenario) == trace
            assert trace.arrivals
