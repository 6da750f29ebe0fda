"""Records of machines and of availability, several at once, and what a run of a record says that it cannot show."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from experiments.cli.simulate import simulate_file
from experiments.cli.traces import make_traces
from experiments.inputs.scenario import OwnerEvent, Owners, Scenario
from experiments.inputs.traces import Trace, load_trace
from experiments.inputs.traces.availability_counts import Counts, parse_counts_csv, together
from experiments.inputs.traces.machines import Life, fit_machines, parse_machines, parse_series
from topologies.errors import SpecError
from topologies.presets import three_tier

BAMBOO = "480000,add,node1\n540000,add,node2\n600000,add,node3\n1440000,remove,node1\n2040000,add,node4\n2640000,remove,node2\n"
ALIBABA = "".join(f"0,{n},add,,64,0.69,1.0\n" for n in range(6)) + (
    "4000,1,softerror,agent_check,64,0.69,1.0\n5000,2,harderror,disk,64,0.69,1.0\n4500,3,softerror,x,64,0.69,1.0\n"
    "6000,3,add,,64,0.69,1.0\n"
)
HOSTS = [f"h{n}" for n in range(1, 6)]


def spot(data: Sequence[int], gap_s: float = 300.0) -> str:
    return json.dumps({"metadata": {"gap_seconds": gap_s}, "data": list(data)})


@cache
def scenario(hosts: int = 9, seed: int = 1) -> Scenario:
    return Scenario("x", three_tier(hosts, 1), seed=seed, duration_s=3000.0)


def loaded(folder: Path, *texts: str, hosts: int = 9, seed: int = 1) -> Trace:
    files = [folder / f"r{number}" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return load_trace(files[0], scenario(hosts, seed), *files[1:])


def leavers(trace: Trace) -> set[str]:
    return {event.host for event in trace.owner_events if event.kind == "reclaim"}


# ---------------------------------------------------------------- reading


def test_bamboo_s_records_are_lives_in_milliseconds() -> None:
    expected = ((Life(0.0, 960.0),), (Life(60.0, 2160.0),), (Life(120.0),), (Life(1560.0),))
    headed = parse_machines("time,event,node\n" + BAMBOO)
    assert headed == parse_machines(BAMBOO, ("time", "event", "node"))
    assert (headed.lives, headed.span_s, headed.unit) == (expected, 2160.0, "milliseconds")


def test_alibaba_s_soft_errors_end_within_the_hour_or_when_the_record_says() -> None:
    read = parse_machines(ALIBABA, ("time", "machine_id", "event", "detail", "cpu", "memory", "disk"))
    assert read.lives == (
        (Life(0.0),),
        (Life(0.0, 4000.0), Life(7600.0)),
        (Life(0.0, 5000.0, is_abrupt=True),),
        (Life(0.0, 4500.0), Life(6000.0)),
        (Life(0.0),),
        (Life(0.0),),
    )
    assert read.unit == "seconds"


def test_samples_of_hosts_are_lives_in_whatever_order_their_rows_are() -> None:
    rows = ["0,a,1", "0,b,0", "60,a,0", "60,b,1", "120,a,1", "120,b,1"]
    texts = [
        "timestamp,host,available\n" + "\n".join(order)
        for order in (rows, sorted(rows, key=lambda r: r[::-1]))
    ]
    assert parse_machines(texts[0]) == parse_machines(texts[1])
    assert parse_machines(texts[0]).lives == ((Life(0.0, 60.0), Life(120.0)), (Life(60.0),))
    wide = "timestamp,a,b\n0,1,0\n60,0,1\n120,1,1\n"
    assert parse_series(wide) == parse_machines(texts[0])
    assert parse_series(wide + "180,2,1\n") is None
    late = "timestamp,host,available\n0,a,1\n30,b,0\n60,a,0\n90,b,1\n"
    assert parse_machines(late).lives == ((Life(0.0, 60.0),), (Life(90.0),)), (
        "b was not there before it was looked for"
    )
    assert parse_series("timestamp,a\n0,1\n60,0\n") is None


@pytest.mark.parametrize(
    ("column", "times", "span_s", "unit"),
    [
        ("time", ("0", "300"), 300.0, "seconds"),
        ("time", ("1598918400", "1598918700"), 300.0, "seconds"),
        ("time", ("60000", "180000"), 120.0, "milliseconds"),
        ("time_s", ("60000", "180000"), 120_000.0, "seconds"),
        ("time_ms", ("10", "2010"), 2.0, "milliseconds"),
        ("time", ("1598918400123", "1631000000456"), 32081600.333, "milliseconds"),
        # a date says its unit, however short the record
        ("time", ("1693094407001", "1693096807001"), 2400.0, "milliseconds"),
        ("time", ("1693094407000007", "1693096807000007"), 2400.0, "microseconds"),
        ("time", ("1693094407000000000", "1693096807000000000"), 2400.0, "nanoseconds"),
        ("time", ("1598918400", "1698918401"), 100_000_001.0, "seconds"),
        ("time_us", ("10", "2000010"), 2.0, "microseconds"),
        ("timestamp_ns", ("10", "2000000010"), 2.0, "nanoseconds"),
        ("time", ("7", "40000007"), 40_000.0, "milliseconds"),
        ("time", ("2023-08-01T00:00", "2023-08-01T00:05"), 300.0, ""),
        ("time", ("1 min", "2 h"), 7140.0, ""),
    ],
)
def test_times_are_what_they_can_only_be(
    column: str, times: tuple[str, str], span_s: float, unit: str
) -> None:
    read = parse_machines(f"{column},event,node\n{times[0]},add,a\n{times[1]},remove,a\n")
    assert (read.span_s, read.unit) == (pytest.approx(span_s), unit)


def test_counts_of_zones_are_added_up_and_changes_are_sampled_at_their_closest() -> None:
    zones = "time,a,b\n0,4,2\n300,4,1\n600,1,0\n"
    assert parse_counts_csv(zones) == Counts(300.0, (6, 5, 1))
    changes = "0,0\n100,0\n100,4\n120,4\n120,12\n200,5\n"
    assert parse_counts_csv(changes, ("time", "available")) == Counts(
        20.0, (0, 0, 0, 0, 0, 4, 12, 12, 12, 12, 5)
    )


def test_what_times_were_taken_for_is_told(tmp_path: Path) -> None:
    rows = "".join(f"{1693094407001 + 300_000 * n},{4 - n % 3}\n" for n in range(12))
    assert "every 300 s (times in milliseconds)" in loaded(tmp_path, "time,available\n" + rows).origin
    assert "every 300 s, played" in loaded(tmp_path, spot([4, 3, 2] * 4)).origin


def test_records_of_several_zones_are_added_up_for_as_long_as_all_last() -> None:
    short, long = Counts(100.0, (1, 0, 1)), Counts(50.0, (2, 1, 2, 0, 2, 5, 5))
    assert together([short, long]) == Counts(50.0, (3, 2, 2, 0, 3))
    assert together([short]) == short


# ---------------------------------------------------------------- fitting


def test_a_host_is_there_just_when_its_machines_are() -> None:
    record = parse_machines(BAMBOO, ("time", "event", "node"))
    fitted = fit_machines([record], "x", HOSTS, 2161.0, Owners(emergency_share=1.0, grace_share=0.0), 1)
    assert len(fitted.away) == 2  # node 2 and node 3 join later; node 4 comes on the place of node 1
    assert [(event.at_s, event.kind) for event in fitted.events] == [
        (60.0, "return"),
        (120.0, "return"),
        (960.0, "reclaim"),
        (1560.0, "return"),
        (2160.0, "reclaim"),
    ]
    assert fitted.events[2].host == fitted.events[3].host


def test_a_hard_error_is_an_emergency_whatever_the_law_of_notices() -> None:
    record = parse_machines(ALIBABA, ("time", "machine_id", "event", "detail", "cpu", "memory", "disk"))
    events = fit_machines([record], "x", HOSTS, 7000.0, Owners(emergency_share=0.0), 1).events
    notices = {event.at_s: event.notice_s for event in events if event.kind == "reclaim"}
    assert notices[5000.0] == 0.0 < min(notices[4000.0], notices[4500.0])


def test_of_many_machines_those_that_leave_come_first(tmp_path: Path) -> None:
    steady = "".join(f"0,s{n},add\n" for n in range(500))
    text = "time,machine_id,event\n" + steady + "".join(f"{100 * n + 50},s{n},remove\n" for n in range(9))
    assert len(leavers(loaded(tmp_path, text))) >= 5


@pytest.mark.parametrize("kind", ["counts", "machines", "own"])
def test_a_seed_chooses_hosts_and_where_the_record_begins(kind: str, tmp_path: Path) -> None:
    rng = random.Random(5)
    texts = {
        "counts": spot([rng.randint(0, 4) for _ in range(200)]),
        "machines": "time,event,node\n"
        + "".join(
            f"{60 * n},{event},n{n % 7}\n" for n in range(400) for event in (("add", "remove")[n // 7 % 2],)
        ),
        "own": "time,host,event,notice\n5,h1,reclaim,\n9,h2,emergency,\n",
    }
    traces = [loaded(tmp_path, texts[kind], seed=seed) for seed in (1, 1, 2)]
    assert traces[0] == traces[1]
    assert traces[0].arrivals != traces[2].arrivals
    assert (traces[0].owner_events == traces[2].owner_events) == (kind == "own")  # it names the hosts itself


def test_any_record_of_machines_fits_any_number_of_hosts_and_any_length() -> None:
    for seed in range(150):
        rng = random.Random(seed)
        span, grain = rng.choice((1, 10, 3600, 10**7, 10**10)), rng.choice((1, 7, 300))
        events = rng.choice((("add", "remove"), ("add", "softerror", "harderror"), ("up", "down", "update")))
        rows = [
            f"{rng.randrange(span + 1) // grain * grain},{rng.choice(events)},n{rng.randrange(9)}"
            for _ in range(40)
        ]
        hosts = HOSTS[: rng.randint(1, 5)]
        duration_s = rng.choice((0.5, 3000.0, 1e7))
        record = parse_machines(MACHINES + "\n".join(rows))
        fitted = fit_machines([record], "x", hosts, duration_s, Owners(), seed)
        Trace("x", (), fitted.events, fitted.away)  # in order, alternating, returns after the notice
        assert all(0.0 <= event.at_s < duration_s and event.host in hosts for event in fitted.events)


# ---------------------------------------------------------------- empty experiments


def test_one_zone_of_one_machine_leaves_most_hosts_loyal_and_says_so_and_nine_do_not(tmp_path: Path) -> None:
    rng = random.Random(3)
    zones = [spot([int(rng.random() < 0.6) for _ in range(300)]) for _ in range(9)]
    one, nine = loaded(tmp_path, zones[0]), loaded(tmp_path, *zones)
    assert one.warnings == (
        "only 1 of 9 hosts are ever reclaimed: most of the campus behaves like machines without owners",
    )
    assert len(leavers(nine)) >= 5
    assert nine.warnings == ()
    assert nine.origin.startswith("r0 + r1 + r2")
    columns = zip(*(json.loads(zone)["data"] for zone in zones), strict=True)
    names = "time," + ",".join(f"z{number}" for number in range(9))
    rows = (f"{300 * step},{','.join(map(str, row))}" for step, row in enumerate(columns))
    together = loaded(tmp_path, "\n".join((names, *rows)))
    assert "9 of 9 places" in together.origin
    assert len(leavers(together)) >= 5


def test_record_without_drops_is_played_as_it_is_and_no_host_is_said_to_leave(tmp_path: Path) -> None:
    for text in (spot([4] * 400), "time,event,node\n0,add,a\n9000,add,b\n"):
        trace = loaded(tmp_path, text)
        assert trace.origin.endswith("played 1 times as fast")
        assert trace.warnings[0].startswith("none of 9 hosts is ever reclaimed")


def test_a_record_that_ends_early_says_when(tmp_path: Path) -> None:
    assert (
        loaded(tmp_path, spot([9, 4, 9, 3], gap_s=60.0))
        .warnings[0]
        .startswith("no owner does anything after ")
    )
    assert loaded(tmp_path, spot([9, 4, 9, 3] * 20, gap_s=60.0)).warnings == ()


def test_hosts_that_are_never_lent_are_counted(tmp_path: Path) -> None:
    trace = loaded(tmp_path, "time,host,event,notice\n" + "".join(f"0,h{n},away,\n" for n in range(1, 7)))
    assert trace.warnings[1] == "6 of 9 hosts are never lent: most of the campus is not there"


def test_the_warning_is_on_the_terminal_in_the_summary_and_on_the_page(tmp_path: Path) -> None:
    record, out = tmp_path / "flat.json", tmp_path / "out"
    record.write_text(spot([4] * 400))
    out.mkdir()
    screen = StringIO()
    console = Console(file=screen, width=300)
    assert simulate_file(console, out, "example:lab", records=[record]) == 0
    make_traces(console, out, seed=1, days=1.0, scenario="example:lab", records=[record])
    assert screen.getvalue().count("is ever reclaimed") == 2
    summary = json.loads((out / "summary.json").read_text())
    assert ["is ever reclaimed" in warning for warning in summary["warnings"]] == [True, False]
    assert "no reclaim met a job" in summary["warnings"][1]
    page = (out / "report.html").read_text()
    assert "Every promise kept; but little was put to the test" in page


# ---------------------------------------------------------------- mistakes

MACHINES = "time,event,node\n"
ZONES = "time,a,b\n"
WRONG = {
    "event": (MACHINES + "0,add,a\n5,explode,a\n", "line 3, event", "add, up"),
    "no machine": (MACHINES + "0,add,\n", "line 2, node", "printable"),
    "time": (MACHINES + "0,add,a\nsoon,remove,a\n", "line 3, time", "number"),
    "first time": (MACHINES + "soon,add,a\n", "line 2, time", "date"),
    "mixed times": (MACHINES + "0,add,a\n2023-08-01,remove,a\n", "line 3, time", "same kind"),
    "huge time": (MACHINES + "0,add,a\n1e300,remove,a\n", "line 3, time", "number"),
    "microseconds": (
        MACHINES + "600000000,add,a\n2506199602822,remove,a\n",
        "line 2, time",
        "such as time_us",
    ),
    "no date": (MACHINES + "20230827113000,add,a\n", "line 2, time", "before 2100"),
    "offset missing": (
        MACHINES + "2023-08-01T00:00Z,add,a\n2023-08-01T05:00,remove,a\n",
        "line 3, time",
        "offset",
    ),
    "no rows": (MACHINES, "rows", "at least one row"),
    "never there": (MACHINES + "0,remove,a\n", "rows", "some time"),
    "fields": (MACHINES + "0,add\n", "line 2", "3 fields"),
    "state": ("time,host,available\n0,a,yes\n", "line 2, available", "0 or 1"),
    "headerless Bamboo": (BAMBOO + "9000,add\n", "line 7", "3 fields"),
    "headerless Alibaba": (ALIBABA + "9000,3,fell,,,,\n", "line 11, event", "harderror"),
    "neither": ("5,6,7,8\n", "line 1", "time,machine_id,event"),
    "count": (ZONES + "0,1,1\n5,1,-1\n", "line 3, b", "0 to 100000"),
    "fraction": (ZONES + "0,1,1\n5,1.5,1\n", "line 3, a", "whole number"),
    "order": (ZONES + "5,1,2\n4,1,1\n", "line 3, time", "row before"),
    "one row": (ZONES + "0,1,1\n", "rows", "two rows"),
    "one moment": (ZONES + "0,1,1\n0,1,2\n", "rows", "0.001 s apart"),
    "one moment, nearly": (ZONES + "0,1,1\n1e-320,1,2\n", "rows", "0.001 s apart"),
    "zeros": ("time,a\n0,0\n5,0\n", "rows", "above 0"),
    "zeros of machines": (ZONES + "0,0,0\n5,0,0\n", "rows", "some time"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_malformed_record_says_where_and_what_is_allowed(case: str, tmp_path: Path) -> None:
    text, key, allowed = WRONG[case]
    with pytest.raises(SpecError) as caught:
        loaded(tmp_path, text)
    assert caught.value.key == key, caught.value
    assert allowed in caught.value.allowed, caught.value
    assert str(caught.value).startswith(f"{tmp_path / 'r0'}: ")


@pytest.mark.parametrize("other", [BAMBOO, "time,host,event,notice\n5,h1,reclaim,\n"])
def test_files_of_several_kinds_are_not_put_together(other: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="files of one kind") as caught:
        loaded(tmp_path, spot([1, 0, 1]), other)
    assert str(caught.value).startswith(f"{tmp_path / 'r1'}: ")


TOKENS = (
    "",
    "0",
    "-1",
    "nan",
    "inf",
    "1e400",
    "9" * 400,
    "add",
    "é",
    "\x00",
    '"',
    ",",
    "\n",
    "2023-13-01",
    "h1",
    "1 h",
    "0x10",
)


def garbled(text: str, rng: random.Random) -> str:
    """A text with one place changed."""
    begin = rng.randrange(len(text) + 1)
    return text[:begin] + rng.choice(TOKENS) + text[begin + rng.choice((0, 0, 1, 3, 12)) :]


def test_garbled_records_raise_nothing_but_spec_errors(tmp_path: Path) -> None:
    whole = [
        BAMBOO,
        MACHINES + BAMBOO,
        ALIBABA,
        "time,host,available\n0,a,1\n60,a,0\n120,a,1\n",
        ZONES + "0,1,1\n60,0,3\n120,2,0\n",
        spot([3, 1, 2, 0, 3]),
        "vm,zone,machine_type,started_at,lifetime_h,preempted,load\na,z,m,2019-02-18T08:57:39-08:00,1.5,1,idle\n",
        "time,host,event,notice\n0,h1,emergency,\n12 min,h2,reclaim,3 min\n20 min,h1,return,\n",
    ]
    rng = random.Random(14)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(250):
        try:
            trace = loaded(tmp_path, garbled(rng.choice(whole), rng), hosts=rng.choice((1, 3, 9)))
        except SpecError as error:
            outcomes["refused"] += 1
            assert 10 < len(str(error)) < 1200
            assert error.source == str(tmp_path / "r0") or error.key == "file"
        else:
            outcomes["read"] += 1
            assert all(isinstance(event, OwnerEvent) for event in trace.owner_events)
    assert min(outcomes.values()) > 25, outcomes
