"""A trace as text files: what is written is read back, dates, and errors that say where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from experiments.cli.traces import make_traces
from experiments.inputs.scenario import (
    Jobs,
    OwnerEvent,
    Scenario,
    load,
)
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces import (
    BackgroundTraffic,
    JobArrival,
    JobDraw,
    load_trace,
    paper_campus,
)
from experiments.inputs.traces.background_csv import background_csv, parse_background
from experiments.inputs.traces.cuts import parse_cuts
from experiments.inputs.traces.jobs_csv import jobs_csv, parse_jobs
from experiments.inputs.traces.owner_events_csv import events_csv, parse_events
from experiments.inputs.traces.timestamps import Moments
from experiments.worlds.virtual import simulate
from topologies.errors import SpecError
from topologies.presets import three_tier

CAMPUS = three_tier(4, 2)
HOSTS = ["h1", "h2", "h3", "h4"]
EVENTS = "time,host,event,notice\n"
JOBS = "time,job,payload,steps,step\n"

times = st.floats(0.0, 4e7)  # a dozen of them with their notices stay below the longest time, 1e9 s
positive = st.floats(1e-3, 1e8)


def seconds(rows: str, day_start_s: float = 0.0) -> list[float]:
    return [e.at_s for e in parse_events(EVENTS + rows, HOSTS, "x", 1e12, Moments(day_start_s)).events]


# ---------------------------------------------------------------- what is written is read back


@settings(max_examples=100)
@given(
    st.lists(
        st.builds(
            JobDraw,
            name=st.from_regex(r"[a-z]{1,6}", fullmatch=True),
            payload_bytes=st.integers(1, 10**12),
            steps=st.integers(1, 10**9),
            step_s=positive,
            dirty_fraction=st.floats(0.0, 1.0),
            memory_bytes=st.floats(0.0, 1e12),
            min_capability=st.floats(0.0, 12.0),
            loss_budget_s=positive,
        ),
        unique_by=lambda job: job.name,
    ),
    st.data(),
)
def test_jobs_are_read_as_they_were_written(jobs: list[JobDraw], data: st.DataObject) -> None:
    at = sorted(data.draw(st.lists(times, min_size=len(jobs), max_size=len(jobs))))
    arrivals = tuple(JobArrival(*pair) for pair in zip(at, jobs, strict=True))
    assert parse_jobs(jobs_csv(arrivals), Jobs(), 1e12) == arrivals


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(HOSTS), times, st.booleans()), max_size=12),
    st.sets(st.sampled_from(HOSTS)),
)
def test_events_are_read_as_they_were_written(steps: list[tuple[str, float, bool]], away: set[str]) -> None:
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
    if events or away:
        recorded = parse_events(events_csv(events, sorted(away)), HOSTS, "x", 1e12)
        assert (recorded.events, recorded.away) == (
            tuple(sorted(events, key=lambda e: (e.at_s, e.host))),
            tuple(sorted(away)),
        )


@settings(max_examples=50)
@given(positive, st.lists(st.tuples(st.floats(0.0, 1e12), st.floats(0.0, 1e12)), min_size=2, max_size=6))
def test_background_is_read_as_it_was_written(epoch_s: float, rates: list[tuple[float, float]]) -> None:
    traffic = BackgroundTraffic(epoch_s, (("h1", "h2"), ("d1", "core")), tuple(rates), (1, 41))
    assert parse_background(background_csv(traffic), CAMPUS) == traffic


def test_a_whole_trace_survives_its_folder_and_plays_alike(tmp_path: Path) -> None:
    make_traces(Console(quiet=True), tmp_path, seed=4, days=1.0, scenario=None)
    scenario, trace = paper_campus(4, days=1.0)
    read = load_trace(tmp_path, load(tmp_path / "scenario.toml"))
    assert replace(read, origin=trace.origin, warnings=()) == trace
    assert simulate(scenario, read).facts == simulate(scenario, trace).facts


def test_a_record_in_a_folder_of_its_own_takes_jobs_from_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "owners.csv").write_text(EVENTS + "60,h1,emergency,\n")
    scenario = Scenario("x", CAMPUS, duration_s=20 * HOUR_S)
    trace = load_trace(tmp_path, scenario)
    assert [event.host for event in trace.owner_events] == ["h1"]
    assert len(trace.arrivals) > 10
    assert trace.background is None


def test_another_trace_in_the_same_folder_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    make_traces(Console(quiet=True), tmp_path, seed=1, days=1.0, scenario=None)
    make_traces(Console(quiet=True), tmp_path, seed=None, days=1.0, scenario="example:lab")
    assert not (tmp_path / "background.csv").exists()


# ---------------------------------------------------------------- moments


def test_dates_count_from_the_scenarios_time_of_day() -> None:
    rows = (
        "2026-03-02T11:30,h1,emergency,\n2026-03-02 12:00:30,h2,reclaim,2 min\n2026-03-03T09:00,h1,return,\n"
    )
    assert seconds(rows, 9 * HOUR_S) == [2.5 * HOUR_S, 3 * HOUR_S + 30.0, 24 * HOUR_S]
    assert seconds(rows, 12 * HOUR_S)[0] == 23.5 * HOUR_S  # noon of the day before


def test_offsets_from_utc_are_taken_into_account() -> None:
    rows = "2026-03-02T11:30+01:00,h1,emergency,\n2026-03-02T11:30+00:00,h2,emergency,\n"
    assert seconds(rows) == [11.5 * HOUR_S, 12.5 * HOUR_S]


def test_a_host_may_be_away_from_the_start() -> None:
    recorded = parse_events(EVENTS + "0,h2,away,\n5 min,h2,return,\n400,h2,emergency,\n", HOSTS, "x", 1e4)
    assert recorded.away == ("h2",)
    assert [event.kind for event in recorded.events] == ["return", "reclaim"]


WRONG_EVENTS = {
    "date after seconds": ("5,h1,emergency,\n2026-03-02,h2,emergency,\n", "line 3, time", "seconds, as"),
    "seconds after date": ("2026-03-02,h1,emergency,\n5,h2,emergency,\n", "line 3, time", "a date, as"),
    "offset missing": (
        "2026-03-02T01:00Z,h1,emergency,\n2026-03-02T02:00,h2,emergency,\n",
        "line 3, time",
        "offset",
    ),
    "no date": ("2026-02-30,h1,emergency,\n", "line 2, time", "a date such as"),
    "earlier date": (
        "2026-03-02T05:00,h1,emergency,\n2026-03-01,h2,emergency,\n",
        "line 3, time",
        "a date from",
    ),
    "away later": ("5,h1,away,\n", "line 2, time", "from the start"),
    "away twice": ("0,h1,away,\n0,h1,away,\n", "line 3, event", "has a row already"),
    "away, then taken": ("0,h1,away,\n9,h1,emergency,\n", "line 3, event", "a return"),
    "away with notice": ("0,h1,away,5\n", "line 2, notice", "none"),
    "notice text": ("0,h1,reclaim,soon\n", "line 2, notice", "number of seconds"),
    "notice negative": ("0,h1,reclaim,-3\n", "line 2, notice", "from 0"),
}


@pytest.mark.parametrize("case", WRONG_EVENTS)
def test_a_wrong_event_is_refused_with_its_place(case: str) -> None:
    rows, key, allowed = WRONG_EVENTS[case]
    with pytest.raises(SpecError) as caught:
        seconds(rows)
    assert caught.value.key == key
    assert allowed in caught.value.allowed


WRONG_JOBS = {
    "payload": ("0,a,big,5,1\n", "line 2, payload", "bytes"),
    "no payload": ("0,a,0,5,1\n", "line 2, payload", "from 1"),
    "steps": ("0,a,1 GB,2.5,1\n", "line 2, steps", "whole number"),
    "steps 0": ("0,a,1 GB,0,1\n", "line 2, steps", "from 1"),
    "superscript": ("0,a,1 GB,²,1\n", "line 2, steps", "whole number"),
    "step": ("0,a,1 GB,5,0\n", "line 2, step", "seconds"),
    "name": ("0,,1 GB,5,1\n", "line 2, job", "1 to 64"),
    "strange name": ("0,a b,1 GB,5,1\n", "line 2, job", "letters, digits"),
    "twice": ("0,a,1 GB,5,1\n1,a,1 GB,5,1\n", "line 3, job", "no job before"),
    "unordered": ("5,a,1 GB,5,1\n1,b,1 GB,5,1\n", "line 3, time", "row before"),
}


@pytest.mark.parametrize("case", WRONG_JOBS)
def test_a_wrong_job_is_refused_with_its_place(case: str) -> None:
    rows, key, allowed = WRONG_JOBS[case]
    with pytest.raises(SpecError) as caught:
        parse_jobs(JOBS + rows, Jobs(), 1e9)
    assert caught.value.key == key
    assert allowed in caught.value.allowed


def test_what_a_file_of_jobs_leaves_out_is_the_scenarios() -> None:
    jobs = Jobs(dirty_fraction=0.7, loss_budget_s=77.0)
    text = "time,job,payload,steps,step,memory\n1 min,a,3.2 GB,10,2 s,\n90,b,1e9,1,0.5,6 GB\n"
    first, second = parse_jobs(text, jobs, 1e9)
    assert first == JobArrival(
        60.0, JobDraw("a", 3_200_000_000, 10, 2.0, 0.7, jobs.memory.typical, 0.0, 77.0)
    )
    assert (second.at_s, second.job.memory_bytes, second.job.payload_bytes) == (90.0, 6e9, 10**9)


WRONG_BACKGROUND = {
    "no node": ("time,h1>h99\n0,5\n", "line 1", "nodes of the campus"),
    "no arrow": ("time,h1\n0,5\n", "line 1", "SOURCE>TARGET"),
    "to itself": ("time,h1>h1\n0,5\n", "line 1", "different"),
    "parallel": ("time,h1>h2*0\n0,5\n", "line 1", "after the *"),
    "rate": ("time,h1>h2\n0,fast\n", "line 2, h1>h2", "rate"),
    "NaN": ("time,h1>h2\n0,nan\n", "line 2, h1>h2", "rate"),
    "start": ("time,h1>h2\n5,1\n10,1\n", "line 2, time", "begin at 0"),
    "uneven": ("time,h1>h2\n0,1\n10,1\n15,1\n", "line 4, time", "evenly"),
    "same time": ("time,h1>h2\n0,1\n0,1\n", "line 2, time", "evenly"),
    "no rows": ("time,h1>h2\n", "rows", "at least one row"),
    "no flows": ("time\n0\n", "rows", "one flow"),
}


@pytest.mark.parametrize("case", WRONG_BACKGROUND)
def test_a_wrong_background_is_refused_with_its_place(case: str) -> None:
    text, key, allowed = WRONG_BACKGROUND[case]
    with pytest.raises(SpecError) as caught:
        parse_background(text, CAMPUS)
    assert caught.value.key == key
    assert allowed in caught.value.allowed


def test_an_error_in_a_folder_names_the_file(tmp_path: Path) -> None:
    scenario = Scenario("x", CAMPUS)
    with pytest.raises(SpecError, match=r"owners\.csv"):
        load_trace(tmp_path, scenario)
    (tmp_path / "owners.csv").write_text(EVENTS + "0,h1,emergency,\n")
    for name in ("jobs.csv", "background.csv"):
        (tmp_path / name).write_text("rubbish\n")
        with pytest.raises(SpecError, match=name):
            load_trace(tmp_path, scenario)
        (tmp_path / name).unlink()


# ---------------------------------------------------------------- noise

fields = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "0",
        "1e999",
        "-1",
        "nan",
        "2026-03-02",
        "9999-12-31T23:59",
        "0001-01-01",
        "5 min",
        "h1",
        "away",
        "return",
        "1 GB",
        '"',
        "",
        "²",
    ]
)


@settings(max_examples=300)
@given(
    st.sampled_from(["events", "jobs", "background"]),
    st.lists(st.lists(fields, min_size=1, max_size=6), max_size=4),
)
def test_rows_of_noise_raise_nothing_but_spec_errors(kind: str, rows: list[list[str]]) -> None:
    noise = "\n".join(",".join(row) for row in rows)
    try:
        match kind:
            case "events":
                parse_events(EVENTS + noise, HOSTS, "x", 1e9)
            case "jobs":
                parse_jobs(JOBS + noise, Jobs(), 1e9)
            case "background":
                parse_background("time,h1>h2,d1>core\n" + noise, CAMPUS)
    except SpecError as error:
        assert str(error)


@settings(max_examples=100)
@given(st.text(max_size=60))
def test_noise_as_a_background_raises_nothing_but_spec_errors(noise: str) -> None:
    try:
        parse_background(noise, CAMPUS)
    except SpecError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("parse", "header", "said"),
    [
        (lambda text: parse_jobs(text, Jobs(), 1e9), "time,job,payload,steps,step,memoy", "nearest: memory"),
        (
            lambda text: parse_jobs(text, Jobs(), 1e9),
            "time,job,payload,steps,step,loss_budge",
            "nearest: loss_budget",
        ),
        (lambda text: parse_events(text, HOSTS, "x", 1e9), "time,host,event,notice,graze", "nearest: grace"),
        (lambda text: parse_cuts(text, CAMPUS, 1e9), "time,a,b,event,drain,drained", "nearest: drain"),
    ],
)
def test_a_column_that_a_file_of_ours_does_not_have_is_refused_with_the_nearest(
    parse: Callable[[str], object], header: str, said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        parse(f"{header}\n")


def test_background_may_have_empty_lines_before_its_first() -> None:
    text = "time,h1>h2\n0,5 MB/s\n60,6 MB/s\n"
    assert parse_background(f"\n{text}", CAMPUS) == parse_background(text, CAMPUS)
