"""A trace as a file: what is written is read back, and errors say where. Owners' events as CSV, with dates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments.cli.traces import write
from experiments.inputs.scenario import OwnerEvent, Scenario, load
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces import BackgroundTraffic, JobArrival, JobDraw, Trace, load_trace, paper_campus
from experiments.inputs.traces.owner_events import parse_events
from experiments.inputs.traces.trace_file import parse_trace, trace_text
from experiments.worlds.virtual import simulate
from topologies.presets import three_tier

CAMPUS = three_tier(4, 2)
SCENARIO = Scenario("x", CAMPUS, duration_s=1e9)
HOSTS = ["h1", "h2", "h3", "h4"]
EVENTS = "time,host,event,notice\n"

times = st.floats(0.0, 4e7)  # a dozen of them with their notices stay below the longest time, 1e9 s
positive = st.floats(1e-3, 1e8)


def seconds(rows: str, day_start_s: float = 0.0) -> list[float]:
    return [e.at_s for e in parse_events(EVENTS + rows, HOSTS, "x", 1e12, day_start_s).events]


def owner_events_of(steps: list[tuple[str, float, bool]], away: set[str]) -> tuple[OwnerEvent, ...]:
    here, events, at_s = set(HOSTS) - away, [], 0.0
    for host, gap_s, short in steps:
        at_s += gap_s
        notice_s = gap_s if short else 0.0
        if host in here:
            events.append(OwnerEvent(at_s, host, "reclaim", notice_s, grace=short and notice_s < 60.0))
            at_s += notice_s
        else:
            events.append(OwnerEvent(at_s, host, "return"))
        here ^= {host}
    return tuple(sorted(events, key=lambda event: (event.at_s, event.host)))


drawn_jobs = st.builds(
    JobDraw,
    name=st.from_regex(r"[a-z]{1,6}", fullmatch=True),
    payload_bytes=st.integers(1, 10**12),
    steps=st.integers(1, 10**9),
    step_s=positive,
    dirty_fraction=st.floats(0.0, 1.0),
    memory_bytes=st.floats(0.0, 1e12),
    min_capability=st.floats(0.0, 12.0),
    loss_budget_s=positive,
)


@given(
    st.lists(st.tuples(times, drawn_jobs), unique_by=lambda pair: pair[1].name, max_size=6),
    st.lists(st.tuples(st.sampled_from(HOSTS), times, st.booleans()), max_size=12),
    st.sets(st.sampled_from(HOSTS)),
    st.none() | st.lists(st.tuples(st.floats(0.0, 1e12), st.floats(0.0, 1e12)), min_size=1, max_size=6),
)
def test_a_trace_is_read_as_it_was_written(
    jobs: list[tuple[float, JobDraw]],
    steps: list[tuple[str, float, bool]],
    away: set[str],
    rates: list[tuple[float, float]] | None,
) -> None:
    arrivals = tuple(JobArrival(*pair) for pair in sorted(jobs, key=lambda pair: pair[0]))
    traffic = (
        BackgroundTraffic(60.0, (("h1", "h2"), ("d1", "core")), tuple(rates), (1, 41)) if rates else None
    )
    trace = Trace("x", arrivals, owner_events_of(steps, away), tuple(sorted(away)), traffic)
    assert parse_trace(json.loads(trace_text(trace)), SCENARIO) == trace


def test_a_whole_trace_survives_its_file_and_plays_alike(tmp_path: Path) -> None:
    scenario, trace = paper_campus(4, days=1.0)
    write(Console(quiet=True), tmp_path, scenario, trace)
    read = load_trace(tmp_path, load(tmp_path / "scenario.toml"))
    assert replace(read, warnings=()) == trace
    assert simulate(scenario, read).facts == simulate(scenario, trace).facts


def test_a_trace_without_jobs_has_the_scenarios_and_only_what_lies_in_the_run() -> None:
    scenario = Scenario("x", CAMPUS, duration_s=20 * HOUR_S)
    events = [{"at_s": 60, "host": "h1"}, {"at_s": 30 * HOUR_S, "host": "h2"}]
    trace = parse_trace({"owner_events": events}, scenario)
    assert [event.host for event in trace.owner_events] == ["h1"]
    assert len(trace.arrivals) > 10
    assert trace.background is None


# ---------------------------------------------------------------- owners' events


def test_dates_count_from_the_scenarios_time_of_day() -> None:
    rows = (
        "2026-03-02T11:30,h1,emergency,\n2026-03-02 12:00:30,h2,reclaim,2 min\n2026-03-03T09:00,h1,return,\n"
    )
    assert seconds(rows, 9 * HOUR_S) == [2.5 * HOUR_S, 3 * HOUR_S + 30.0, 24 * HOUR_S]
    assert seconds(rows, 12 * HOUR_S)[0] == 23.5 * HOUR_S  # noon of the day before
