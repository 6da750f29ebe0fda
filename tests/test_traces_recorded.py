"""Recorded traces: what the file says, fitted to the run, and every malformed file named."""

import json
import os
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.inputs.scenario import (
    OwnerEvent,
    Owners,
    Scenario,
    demo_scenario,
)
from experiments.inputs.traces import (
    Trace,
    load_trace,
)
from experiments.inputs.traces.availability_counts import fit_counts, parse_counts
from experiments.inputs.traces.lifetimes import fit_spells, parse_spells
from experiments.inputs.traces.owner_events_csv import parse_events
from topologies.errors import SpecError
from topologies.presets import three_tier

HOSTS = [f"h{n}" for n in range(1, 9)]
HEADER = "vm,zone,machine_type,started_at,lifetime_h,preempted,load\n"
ROW = "a,z,m,2019-02-18T08:57:39.791-08:00,{hours},{preempted},idle\n"


def data() -> Path:
    """The recorded data, where the machine has it."""
    return Path(os.environ.get("RECLAIMNET_DATA", Path(__file__).parents[2] / "shared" / "data"))


def lent_at(events: tuple[OwnerEvent, ...], hosts: int, at_s: float) -> int:
    """How many hosts are not announced as reclaimed."""
    signs = [-1 if e.kind == "reclaim" else 1 for e in events if e.at_s <= at_s]
    return hosts + sum(signs)


counts = st.lists(st.integers(0, 8), min_size=2, max_size=40).filter(any)


@settings(max_examples=100)
@given(counts, st.integers(0, 1000))
def test_availability_is_that_of_the_record_at_every_sample(available: list[int], seed: int) -> None:
    text = json.dumps({"metadata": {"gap_seconds": 60}, "data": available})
    duration_s = 60.0 * (len(available) - 1)
    recorded = fit_counts(parse_counts(text), "x", HOSTS, duration_s, Owners(), seed)
    most = max(available) - len(recorded.away)
    for step, count in enumerate(available[:-1]):
        assert lent_at(recorded.events, most, 60.0 * step) == count
    Trace("x", (), recorded.events, recorded.away)  # in order, alternating, returns after the notice


@settings(max_examples=60)
@given(counts, st.integers(1, 5), st.floats(10.0, 5000.0), st.integers(0, 1000))
def test_any_record_fits_any_number_of_hosts_and_any_length(
    available: list[int], hosts: int, duration_s: float, seed: int
) -> None:
    text = json.dumps({"metadata": {"gap_seconds": 300}, "data": available})
    recorded = fit_counts(parse_counts(text), "x", HOSTS[:hosts], duration_s, Owners(), seed)
    Trace("x", (), recorded.events, recorded.away)
    assert all(event.at_s < duration_s and event.host in HOSTS[:hosts] for event in recorded.events)


def test_the_window_is_one_with_many_reclaims() -> None:
    quiet, busy = [4] * 500, [4, 0, 4, 0, 4, 0]
    text = json.dumps({"metadata": {"gap_seconds": 10}, "data": quiet + busy + quiet})
    for seed in range(10):
        events = fit_counts(parse_counts(text), "x", HOSTS, 60.0, Owners(), seed).events
        assert sum(event.kind == "reclaim" for event in events) >= 8


def test_a_slow_record_is_played_faster_until_something_happens() -> None:
    text = json.dumps({"metadata": {"gap_seconds": 3600}, "data": [8, 8, 8, 8, 8, 4, 4, 8, 8, 8, 3, 3] * 9})
    recorded = fit_counts(parse_counts(text), "x", HOSTS, 600.0, Owners(), 1)
    assert sum(event.kind == "reclaim" for event in recorded.events) >= 4
    assert "times as fast" in recorded.origin


def test_fewer_hosts_than_instances_keep_the_proportion() -> None:
    text = json.dumps({"metadata": {"gap_seconds": 60}, "data": [16, 8, 8, 0]})
    events = fit_counts(parse_counts(text), "x", HOSTS[:4], 180.0, Owners(), 1).events
    assert [lent_at(events, 4, t) for t in (0.0, 60.0, 120.0, 180.0)] == [4, 2, 2, 0]


def test_the_seed_chooses_hosts_and_the_same_seed_the_same() -> None:
    text = json.dumps({"metadata": {"gap_seconds": 60}, "data": [3, 0, 3, 1, 2]})
    traces = [fit_counts(parse_counts(text), "x", HOSTS, 240.0, Owners(), seed).events for seed in (1, 1, 2)]
    assert traces[0] == traces[1] != traces[2]


@settings(max_examples=60, deadline=None)
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


def spot(document: object) -> str:
    return json.dumps(document)


GAP = {"gap_seconds": 300}
EVENT = "time,host,event,notice\n"
WRONG = {
    "empty": ("", "content", "spot trace"),
    "prose": ("hello there", "content", "spot trace"),
    "broken JSON": ('{"metadata": {,', "line 1, column 15", "JSON"),
    "deep JSON": ("[" * 100_000, "JSON", "depth"),
    "JSON list": ("[1, 2]", "JSON", "gap_seconds"),
    "no metadata": (spot({"data": [1, 2]}), "JSON", "metadata"),
    "no data": (spot({"metadata": GAP}), "JSON", "data"),
    "no gap": (spot({"metadata": {}, "data": [1, 2]}), "metadata.gap_seconds", "from 0.001 to"),
    "gap 0": (
        spot({"metadata": {"gap_seconds": 0}, "data": [1, 2]}),
        "metadata.gap_seconds",
        "from 0.001 to",
    ),
    "gap tiny": (
        spot({"metadata": {"gap_seconds": 1e-320}, "data": [4, 1]}),
        "metadata.gap_seconds",
        "from 0.001 to",
    ),
    "gap text": (spot({"metadata": {"gap_seconds": "5"}, "data": [1, 2]}), "metadata.gap_seconds", "seconds"),
    "gap NaN": (
        spot({"metadata": {"gap_seconds": float("nan")}, "data": [1, 2]}),
        "metadata.gap_seconds",
        "seconds",
    ),
    "gap huge": (
        spot({"metadata": {"gap_seconds": 1e300}, "data": [1, 2]}),
        "metadata.gap_seconds",
        "to 2.592e+06",
    ),
    "gap huger": (
        spot({"metadata": {"gap_seconds": 10**400}, "data": [1, 2]}),
        "metadata.gap_seconds",
        "to 2.592e+06",
    ),
    "digits": ('{"metadata": {"gap_seconds": ' + "9" * 5000 + '}, "data": [1, 2]}', "JSON", "length"),
    "data text": (spot({"metadata": GAP, "data": "1"}), "data", "list"),
    "data short": (spot({"metadata": GAP, "data": [3]}), "data", "at least two"),
    "negative": (spot({"metadata": GAP, "data": [1, 2, -3]}), "data[2]", "0 to 100000"),
    "fraction": (spot({"metadata": GAP, "data": [1, 2.5]}), "data[1]", "whole number"),
    "NaN": (spot({"metadata": GAP, "data": [float("nan"), 1]}), "data[0]", "whole number"),
    "true": (spot({"metadata": GAP, "data": [True, 1]}), "data[0]", "whole number"),
    "null": (spot({"metadata": GAP, "data": [None, 1]}), "data[0]", "whole number"),
    "huge": (spot({"metadata": GAP, "data": [1, 10**30]}), "data[1]", "whole number"),
    "zeros": (spot({"metadata": GAP, "data": [0, 0]}), "data", "above 0"),
    "no column": ("vm,lifetime_h,preempted\n", "line 1", "column started_at"),
    "no rows": (HEADER, "rows", "at least one"),
    "short row": (HEADER + "a,b\n", "line 2", "7 fields"),
    "lifetime": (HEADER + ROW.format(hours="x", preempted=1), "line 2, lifetime_h", "0 to 100000"),
    "negative life": (HEADER + ROW.format(hours=-1, preempted=1), "line 2, lifetime_h", "0 to 100000"),
    "NaN life": (HEADER + ROW.format(hours="nan", preempted=1), "line 2, lifetime_h", "hours"),
    "huge life": (HEADER + ROW.format(hours="1e308", preempted=1), "line 2, lifetime_h", "hours"),
    "zero lives": (HEADER + ROW.format(hours=0, preempted=1), "rows", "above 0"),
    "preempted": (HEADER + ROW.format(hours=1, preempted="yes"), "line 2, preempted", "0 or 1"),
    "date": (HEADER + "a,b,c,yesterday,1,1,idle\n", "line 2, started_at", "date and time"),
    "quote": (HEADER + 'a,"b\n', "line 2", "comma-separated"),
    "event host": (EVENT + "1,h99,reclaim,\n", "line 2, host", "nearest: h9"),
    "event kind": (EVENT + "1,h2,steal,\n", "line 2, event", "reclaim, emergency, return"),
    "event time": (EVENT + "soon,h2,reclaim,\n", "line 2, time", "number of seconds"),
    "event NaN": (EVENT + "nan,h2,reclaim,\n", "line 2, time", "seconds"),
    "event negative": (EVENT + "-1,h2,reclaim,\n", "line 2, time", "from 0"),
    "event huge": (EVENT + "1e300,h2,reclaim,\n", "line 2, time", "1e+09"),
    "event huge days": (EVENT + "999999 d,h2,reclaim,\n", "line 2, time", "1e+09"),
    "unordered": (EVENT + "5,h2,reclaim,\n4,h3,reclaim,\n", "line 3, time", "row before"),
    "twice": (EVENT + "5,h2,reclaim,\n6,h2,reclaim,\n", "line 3, event", "reclaimed already"),
    "return first": (EVENT + "5,h2,return,\n", "line 2, event", "h2 is lent"),
    "return early": (EVENT + "5,h2,reclaim,60\n6,h2,return,\n", "line 3, time", "65 s"),
    "notice of return": (EVENT + "5,h2,reclaim,\n6,h2,return,3\n", "line 3, notice", "none"),
    "notice of emergency": (EVENT + "5,h2,emergency,3\n", "line 2, notice", "none"),
    "no events": (EVENT, "rows", "at least one event"),
    "no notice column": ("time,host,event\n", "line 1", "column notice"),
    "column twice": ("time,host,event,notice,time\n", "line 1", "each column once"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_malformed_file_says_where_and_what_is_allowed(case: str, tmp_path: Path) -> None:
    text, key, allowed = WRONG[case]
    file = tmp_path / "trace"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_trace(file, Scenario("x", three_tier(9, 1)))
    assert caught.value.key == key, caught.value
    assert allowed in caught.value.allowed, caught.value
    assert str(caught.value).startswith(f"{file}: ")
    assert len(str(caught.value)) < 500


@settings(max_examples=200)
@given(st.text(max_size=100), st.sampled_from(["", "{", EVENT, HEADER]))
def test_noise_raises_nothing_but_spec_errors(
    tmp_path_factory: pytest.TempPathFactory, noise: str, start: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "noise"
    file.write_text(start + noise)
    try:
        load_trace(file, Scenario("x", three_tier(2, 1)))
    except SpecError as error:
        assert str(error)


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


def test_cumulative_counts_help_is_right() -> None:
    """The helper of this file, on a case by hand."""
    events = (OwnerEvent(0.0, "h1"), OwnerEvent(5.0, "h1", "return"), OwnerEvent(6.0, "h2"))
    assert [lent_at(events, 2, t) for t in (0.0, 5.0, 6.0)] == list(accumulate([1, 1, -1]))
