"""Generated traces: seeded, independent by purpose, and of the laws that the scenario names."""

import json
import math
import os
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from experiments.cli.run import simulate as simulate_command
from experiments.inputs.scenario import InverseLaw, Jobs, OwnerEvent, Owners, Scenario, demo_scenario
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces import BackgroundTraffic, JobArrival, JobDraw, Trace, generate, trace_of
from experiments.inputs.traces.availability_counts import Counts, fit_counts, parse_counts_csv, parse_counts_json
from experiments.inputs.traces.lifetimes import fit_spells, parse_spells
from experiments.inputs.traces.owner_events import parse_events
from topologies.errors import SpecError
from topologies.files import campus54
from topologies.presets import three_tier
from topologies.scale import Scale

demos = st.builds(
    demo_scenario,
    hosts=st.integers(1, 30),
    buildings=st.integers(1, 4),
    on_demand=st.integers(0, 3),
    seconds=st.floats(10.0, 200.0),
    seed=st.integers(0, 10**6),
)


@given(demos)
def test_a_trace_is_in_order_and_every_owner_alternates(scenario: Scenario) -> None:
    trace = generate(scenario)  # Trace itself refuses disorder
    volunteers = {host.name for host in scenario.volunteers}
    for event in trace.owner_events:
        assert 0.0 <= event.at_s < scenario.duration_s
        assert event.host in volunteers - set(scenario.owners.loyal)
    assert all(0.0 <= a.at_s < scenario.duration_s for a in trace.arrivals)
    assert len({a.job.name for a in trace.arrivals}) == len(trace.arrivals)
    low, high = scenario.jobs.payload.minimum, scenario.jobs.payload.maximum
    assert all(low * 0.999 <= a.job.payload_bytes <= high * 1.001 for a in trace.arrivals)


@given(demos, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_generating_from_the_played_scenario_is_playing_the_generated_trace(
    scenario: Scenario, bytes_: float, time: float
) -> None:
    assume(bytes_ <= 800.0 * time)  # more, and a trunk of 10 Gbit/s would carry more than a description may say
    scenario = replace(scenario, scale=Scale(bytes_, time))
    scaled, played = scenario.scale.apply(generate(scenario)), generate(scenario.played())
    assert len(scaled.arrivals) == len(played.arrivals)
    for a, b in zip(scaled.arrivals, played.arrivals, strict=True):
        assert a.at_s == pytest.approx(b.at_s, rel=1e-6)
        assert abs(a.job.payload_bytes - b.job.payload_bytes) <= 1 + bytes_
        assert a.job.steps == b.job.steps
    for x, y in zip(scaled.owner_events, played.owner_events, strict=True):
        assert (x.host, x.kind, x.grace) == (y.host, y.kind, y.grace)
        assert x.at_s == pytest.approx(y.at_s, rel=1e-6)


def test_streams_of_different_purposes_do_not_move_each_other() -> None:
    scenario = demo_scenario()
    bigger = replace(scenario, jobs=replace(scenario.jobs, payload=InverseLaw("exponential", 2e9)))
    a, b = generate(scenario), generate(bigger)
    assert [x.at_s for x in a.arrivals] == [x.at_s for x in b.arrivals]
    assert [x.job.steps for x in a.arrivals] == [x.job.steps for x in b.arrivals]
    assert a.owner_events == b.owner_events


def test_the_script_is_followed_and_loyal_hosts_are_left_alone() -> None:
    scenario = demo_scenario(hosts=12, seed=3)
    scripted = {event.host for event in scenario.owners.script}
    events = generate(scenario).owner_events
    followed = tuple(e for e in events if e.host in scripted)
    assert followed == scenario.owners.script
    assert not any(e.host in scenario.owners.loyal for e in events)


@pytest.mark.parametrize("seed", range(8))
def test_every_demo_has_planned_reclaims_emergencies_and_a_grace(seed: int) -> None:
    reclaims = [e for e in generate(demo_scenario(seed=seed)).owner_events if e.kind == "reclaim"]
    assert any(e.notice_s > 0 and not e.grace for e in reclaims)
    assert any(e.notice_s == 0 for e in reclaims)
    assert any(e.grace for e in reclaims)


def test_a_month_of_the_paper_has_its_share_of_emergencies_and_peaks() -> None:
    back_soon = Owners(absence=InverseLaw("deterministic", 60.0))  # else half of the hosts are away at lunch
    scenario = Scenario("month", campus54(), seed=5, duration_s=30 * 24 * HOUR_S, owners=back_soon)
    reclaims = [e for e in generate(scenario).owner_events if e.kind == "reclaim"]
    owners = scenario.owners
    share = sum(e.notice_s == 0.0 or e.grace for e in reclaims) / len(reclaims)
    assert share == pytest.approx(owners.emergency_share, abs=4 * (0.42 * 0.58 / len(reclaims)) ** 0.5)
    assert all(e.notice_s >= 10.0 for e in reclaims if e.notice_s)
    hours = Counter(int((owners.day_start_s + e.at_s) % owners.day_s // HOUR_S) for e in reclaims)
    quiet = statistics.fmean(hours[h] for h in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
    assert hours[12] / quiet == pytest.approx(6.0, rel=0.15)


def test_interarrivals_have_the_mean_of_their_law() -> None:
    for shape, spread in (("exponential", 1.0), ("gamma", 12.0), ("deterministic", 1.0)):
        jobs = Jobs(interarrival=InverseLaw(shape, 60.0, spread))
        scenario = Scenario("x", three_tier(2, 1), duration_s=60.0 * 4000, jobs=jobs)
        times = [a.at_s for a in generate(scenario).arrivals]
        gaps = [b - a for a, b in pairwise(times)]
        assert statistics.fmean(gaps) == pytest.approx(60.0, rel=0.08)


def test_a_trace_out_of_order_is_refused() -> None:
    arrivals = generate(demo_scenario()).arrivals
    with pytest.raises(SpecError, match="order of time"):
        Trace("x", (arrivals[1], arrivals[0]), ())
    with pytest.raises(SpecError, match="hosts begin lent"):
        Trace("x", (), (OwnerEvent(1.0, "h1", "return"),))
    with pytest.raises(SpecError, match="a return"):
        Trace("x", (), (OwnerEvent(1.0, "h1"), OwnerEvent(2.0, "h1")))


JOB = JobDraw("a", 10**9, 100, 2.0, 0.5, 1e9, 0.0, 300.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "a b"),
        ("payload_bytes", math.nan),
        ("payload_bytes", 0),
        ("payload_bytes", 1e9),
        ("steps", 100.5),
        ("steps", -3),
        ("steps", 0),
        ("step_s", 0.0),
        ("dirty_fraction", 1.5),
        ("memory_bytes", math.inf),
        ("loss_budget_s", math.nan),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_the_field(field: str, value: object) -> None:
    with pytest.raises(SpecError, match=rf"^job.*{field.split('_')[0]}") as caught:
        replace(JOB, **{field: value})  # type: ignore[arg-type]
    assert caught.value.value == value or value != value


def test_numbers_of_numpy_become_pythons_wherever_a_trace_or_a_scenario_declares_them() -> None:
    job = replace(JOB, steps=np.int64(5), step_s=np.float32(0.5))  # type: ignore[arg-type]
    arrival, event = (JobArrival(np.float64(3.0), job), OwnerEvent(np.float64(50.0), "h1", notice_s=np.int32(60)))
    owners = Owners(hazard_per_s=np.float32(0.5), count=np.int64(3))  # type: ignore[arg-type]
    law = InverseLaw("uniform", np.float64(2e9), np.float32(0.5))  # type: ignore[arg-type]
    scenario = replace(demo_scenario(), duration_s=np.float64(60.0), seed=np.int64(3))  # type: ignore[arg-type]
    found = (job.steps, job.step_s, arrival.at_s, event.at_s, event.notice_s, owners.count)
    others = (owners.hazard_per_s, law.typical, law.spread, scenario.duration_s, scenario.seed)
    assert found == (5, 0.5, 3.0, 50.0, 60, 3)
    assert not any(isinstance(each, np.generic) for each in (*found, *others))


def test_more_reclaims_than_the_hosts_have_room_for_are_refused_with_their_number() -> None:
    scenario = demo_scenario(hosts=3, buildings=1, seconds=60.0)
    crowded = replace(scenario, owners=replace(scenario.owners, count=500))
    with pytest.raises(SpecError, match=r"owners\.count = 500: fewer"):
        generate(crowded)


# ---------------------------------------------------------------- parts of a trace that a user's function made
def traffic(epoch_s: float = 5.0, rates: tuple[float, ...] = (1.0,), parallel: int = 1) -> BackgroundTraffic:
    return BackgroundTraffic(epoch_s, (("h1", "h2"),), (rates,), (parallel,))


@pytest.mark.parametrize(
    ("made", "key", "allowed"),
    [
        (lambda: OwnerEvent(-1.0, "h1"), "event of h1.at", ""),
        (lambda: OwnerEvent(5.0, "h1", "steal"), "event of h1.kind", "one of reclaim, return"),
        (lambda: traffic(epoch_s=0.0), "background.epoch", ""),
        (lambda: traffic(rates=(1.0, 2.0)), r"background.rates\[0\]", "one rate a flow"),
        (lambda: traffic(rates=(math.inf,)), r"background.rates\[0\]", "finite"),
        (lambda: traffic(parallel=0), "background.parallel", ""),
    ],
)
def test_a_wrong_part_is_named_with_what_is_allowed(made: Callable[[], object], key: str, allowed: str) -> None:
    with pytest.raises(SpecError, match=f"^{key}.* = .*{allowed}"):
        made()


CAMPUS = three_tier(4, 2)
SCENARIO = Scenario("x", CAMPUS, duration_s=1e9)
FOUR = ["h1", "h2", "h3", "h4"]
EVENTS = "time,host,event,notice\n"


def seconds(rows: str, day_start_s: float = 0.0) -> list[float]:
    return [e.at_s for e in parse_events(EVENTS + rows, FOUR, "x", 1e12, Owners(day_start_s=day_start_s)).events]


# ---------------------------------------------------------------- owners' events
def test_dates_count_from_the_scenarios_time_of_day() -> None:
    rows = "2026-03-02T11:30,h1,emergency,\n2026-03-02 12:00:30,h2,reclaim,2 min\n2026-03-03T09:00,h1,return,\n"
    assert seconds(rows, 9 * HOUR_S) == [2.5 * HOUR_S, 3 * HOUR_S + 30.0, 24 * HOUR_S]
    assert seconds(rows, 12 * HOUR_S)[0] == 23.5 * HOUR_S  # noon of the day before


# ---------------------------------------------------------------- recorded traces
HOSTS = [f"h{n}" for n in range(1, 9)]
HEADER = "vm,zone,machine_type,started_at,lifetime_h,preempted,load\n"
ROW = "a,z,m,2019-02-18T08:57:39.791-08:00,{hours},{preempted},idle\n"
EVENT = "time,host,event,notice\n"


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
    return trace_of(scenario(hosts, seed), files)


def spot(data: Sequence[object], gap_s: object = 300.0) -> str:
    return json.dumps({"metadata": {"gap_seconds": gap_s}, "data": list(data)})


counts = st.lists(st.integers(0, 8), min_size=2, max_size=40).filter(any)


@given(counts, st.integers(0, 1000))
def test_availability_is_that_of_the_record_at_every_sample(available: list[int], seed: int) -> None:
    text = spot(available, 60)
    duration_s = 60.0 * (len(available) - 1)
    recorded = fit_counts(parse_counts_json(text), "x", HOSTS, duration_s, Owners(), seed)
    most = max(available) - len(recorded.away)
    for step, count in enumerate(available[:-1]):
        signs = [-1 if e.kind == "reclaim" else 1 for e in recorded.events if e.at_s <= 60.0 * step]
        assert most + sum(signs) == count  # hosts that are not announced as reclaimed
    Trace("x", (), recorded.events, recorded.away)  # in order, alternating, returns after the notice


@given(counts, st.integers(1, 5), st.floats(10.0, 5000.0), st.integers(0, 1000))
def test_any_record_fits_any_number_of_hosts_and_any_length(
    available: list[int], hosts: int, duration_s: float, seed: int
) -> None:
    text = spot(available, 300)
    recorded = fit_counts(parse_counts_json(text), "x", HOSTS[:hosts], duration_s, Owners(), seed)
    Trace("x", (), recorded.events, recorded.away)
    assert all(event.at_s < duration_s and event.host in HOSTS[:hosts] for event in recorded.events)


def test_the_window_is_one_with_many_reclaims() -> None:
    quiet, busy = [4] * 500, [4, 0, 4, 0, 4, 0]
    text = spot(quiet + busy + quiet, 10)
    for seed in range(10):
        events = fit_counts(parse_counts_json(text), "x", HOSTS, 60.0, Owners(), seed).events
        assert sum(event.kind == "reclaim" for event in events) >= 8


@given(
    st.lists(st.tuples(st.floats(0.0, 50.0), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 8),
    st.integers(0, 1000),
)
def test_lifetimes_become_spells_for_any_number_of_hosts(rows: list[tuple[float, bool]], hosts: int, seed: int) -> None:
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
    recorded = parse_events(text, HOSTS, "mine.csv", 190.0, Owners())
    assert recorded.events == (
        OwnerEvent(5.0, "h1", "reclaim", 120.0),
        OwnerEvent(60.0, "h2"),
        OwnerEvent(90.0, "h3", "reclaim", 3.0, grace=True),
    )
    assert recorded.origin == "mine.csv: 3 of 4 events of 3.33 min before the end"
    hours = parse_events(
        "time_h,host,event,notice_min\n0.5,h1,reclaim,2\n1,h2,emergency,\n", HOSTS, "x", 7200.0, Owners()
    )
    assert hours.events == (OwnerEvent(1800.0, "h1", "reclaim", 120.0), OwnerEvent(3600.0, "h2"))


def test_a_grace_without_a_notice_is_as_long_as_the_owners_grace() -> None:
    emergency, owners = OwnerEvent(60.0, "h2", grace=True), Owners(grace_s=20.0)
    assert parse_events("time,host,event,notice,grace\n60,h2,emergency,,yes\n", HOSTS, "x", 90.0, owners).events == (
        OwnerEvent(60.0, "h2", "reclaim", 20.0, grace=True),
    )
    assert Owners(grace_s=20.0, script=(emergency,)).script == (replace(emergency, notice_s=20.0),)
    scaled = replace(SCENARIO, owners=Owners(script=(emergency,)), duration_s=90.0, scale=Scale(time=0.1)).played()
    assert [(event.at_s, event.notice_s) for event in generate(scaled).owner_events if event.grace] == [(6.0, 1.0)]


def test_counts_of_zones_are_added_up_and_changes_are_sampled_at_their_closest() -> None:
    assert parse_counts_csv("time,a,b\n0,4,2\n300,4,1\n600,1,0\n") == Counts(300.0, (6, 5, 1))
    changes = "time,available\n0,0\n100,0\n100,4\n120,4\n120,12\n200,5\n"
    assert parse_counts_csv(changes) == Counts(20.0, (0, 0, 0, 0, 0, 4, 12, 12, 12, 12, 5))
    for column, first, second in (
        ("time", "1598918400", "1598918700"),
        ("time", "2023-08-01", "2023-08-01T00:05"),
        ("time", "1 h", "65 min"),
        ("time_h", "1.5", "95 min"),
        ("time_min", "15", "20"),
        ("date,time", "2023-08-01,23:59:00", "2023-08-02,00:04:00"),
    ):
        assert parse_counts_csv(f"{column},a\n{first},1\n{second},0\n") == Counts(300.0, (1, 0))


def test_hours_that_are_not_named_are_no_seconds() -> None:
    record = "".join(f"{hour / 60},{hour % 3}\n" for hour in range(5000))
    with pytest.raises(SpecError, match=r"5000 times within 83.3167 s.* in a column time_h"):
        parse_counts_csv(f"time,a\n{record}")
    assert parse_counts_csv(f"time_h,a\n{record}").gap_s == pytest.approx(60.0)


def test_one_zone_of_one_machine_leaves_most_hosts_alone_and_nine_do_not(tmp_path: Path) -> None:
    rng = random.Random(3)
    zones = [spot([int(rng.random() < 0.6) for _ in range(300)]) for _ in range(9)]
    one, nine = loaded(tmp_path, zones[0]), loaded(tmp_path, *zones)
    assert len({event.host for event in one.owner_events}) == 1
    assert len({event.host for event in nine.owner_events if event.kind == "reclaim"}) >= 5
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


def test_the_warning_is_on_the_terminal_in_the_summary_and_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, out = tmp_path / "flat.json", tmp_path / "out"
    record.write_text(spot([4] * 400))
    out.mkdir()
    assert simulate_command("example:lab", trace=[record], out=out) == 0
    assert "little is shown: no reclaim met a job" in capsys.readouterr().out
    assert "no reclaim met a job" in json.loads((out / "summary.json").read_text())["warnings"][0]
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
            trace = trace_of(scenario, [path])
            reclaims = sum(event.kind == "reclaim" for event in trace.owner_events)
            assert reclaims >= 1, (path.name, hosts)
            assert path.name in trace.origin
            assert trace_of(scenario, [path]) == trace
            assert trace.arrivals
