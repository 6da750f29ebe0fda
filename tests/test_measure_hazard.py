"""The judge of hazard estimators: its score, what it holds out, and that wrong estimators lose."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from io import StringIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from controller.core.placement.exposure import EMERGENCY, LEND, WITHDRAW
from controller.core.placement.hazard_states import STEPS
from controller.numerics.arrays import Floats
from experiments.benchmarks.hazard import (
    DEFAULT,
    FIRST_DAYS,
    FORECASTS,
    PRESENT,
    PRIOR,
    STEP_S,
    TENTHS,
    TRUTH,
    WINDOW_S,
    Forecast,
    Past,
    forecast_of,
    judge,
    measure_hazard,
    true_rates,
)
from experiments.benchmarks.hazard_ahead import AHEAD, NOW, PLAIN, judge_ahead
from experiments.benchmarks.hazard_pairs import judge_pairs
from experiments.benchmarks.hazard_records import (
    DAY_S,
    HazardRecord,
    bursts,
    drawn,
    of_counts,
    recorded,
    together,
)
from experiments.benchmarks.tables import ahead_table, hazard_table, pairs_table
from experiments.inputs.traces.availability_counts import Counts
from tests.hazard_of_one import estimate, experience
from tests.hazard_of_one import profile as profile_of
from topologies.errors import SpecError

HOUR_S = 3600.0
PEAKS = drawn(5, peaks=True, differ=True, hosts=20, days=16)
BASE = "one rate"
KNOWN = {name: forecast_of(name) for name in (BASE, "host", "hour", PRESENT, DEFAULT)}


def even(rate_per_s: float) -> dict[str, Forecast]:
    return {"even": lambda past, hosts, now_s: np.full(len(hosts), rate_per_s)}


def nats(record: HazardRecord, forecasts: dict[str, Forecast]) -> dict[str, float]:
    judged = judge(record, forecasts)
    return {name: float(judged.by_day(name)[0].sum()) for name in forecasts}


def test_the_score_is_the_likelihood_of_a_point_process() -> None:
    events = ((0.0, "a", LEND), (2.25 * DAY_S, "a", EMERGENCY), (2.5 * DAY_S, "a", LEND))
    scores, departures = judge(HazardRecord(events, 4), even(1e-5)).by_day("even")
    assert departures[FIRST_DAYS:].tolist() == [1.0, 0.0]  # the first days are not judged
    assert scores[:FIRST_DAYS].tolist() == [0.0, 0.0]
    assert scores[FIRST_DAYS:].tolist() == pytest.approx(
        [math.log(1e-5) - 1e-5 * 0.75 * DAY_S, -1e-5 * DAY_S]
    )


def test_an_end_that_is_no_departure_ends_the_time_lent_and_is_no_event() -> None:
    events = ((0.0, "a", LEND), (2.5 * DAY_S, "a", WITHDRAW), (2.75 * DAY_S, "a", EMERGENCY))
    scores, departures = judge(HazardRecord(events, 3), even(1e-5)).by_day("even")
    assert departures.sum() == 0.0
    assert scores.sum() == pytest.approx(-1e-5 * 0.5 * DAY_S)


def test_a_forecast_is_asked_before_its_step_and_sees_nothing_of_it() -> None:
    asked: dict[float, float] = {}

    def spy(past: Past, hosts: Sequence[str], now_s: float) -> Floats:
        asked[now_s] = experience(past.window, "a", now_s).events
        return np.full(len(hosts), 1e-5)

    taken_s = 2.25 * DAY_S + 10.0
    judge(HazardRecord(((0.0, "a", LEND), (taken_s, "a", EMERGENCY), (2.5 * DAY_S, "a", LEND)), 4), {"": spy})
    assert len(asked) == (2.0 - 0.25) * STEPS + 1  # while it was lent
    assert {at_s: seen for at_s, seen in asked.items() if seen != (at_s > taken_s)} == {}
    assert 2.25 * DAY_S in asked


def test_the_truth_beats_every_estimator_and_wrong_ones_lose_to_one_rate() -> None:
    def twelve_hours_off(past: Past, hosts: Sequence[str], now_s: float) -> Floats:
        profile = profile_of(past.window, now_s)
        return KNOWN[BASE](past, hosts, now_s) * profile[int(now_s % DAY_S // HOUR_S) - 12]

    def twice(past: Past, hosts: Sequence[str], now_s: float) -> Floats:
        return 2.0 * KNOWN[PRESENT](past, hosts, now_s)

    found = nats(PEAKS, {**KNOWN, TRUTH: true_rates(PEAKS), "off": twelve_hours_off, "twice": twice})
    assert max(found, key=found.__getitem__) == TRUTH
    assert found["off"] < found[BASE] < found["hour"] < found[PRESENT]
    assert found["host"] < found[PRESENT]
    assert found["twice"] < found[PRESENT]


def test_where_owners_have_no_memory_the_default_costs_next_to_nothing() -> None:
    found = nats(PEAKS, KNOWN)
    assert found[DEFAULT] - found[PRESENT] > -0.01 * PEAKS.departures


def test_where_owners_leave_in_bursts_the_default_foretells_what_hosts_and_hours_cannot() -> None:
    rng = np.random.default_rng(1)
    counts = [10] * (STEPS * 12)
    for begin in rng.integers(0, len(counts) - 20, 30):  # half of the zone, then the rest
        counts[begin : begin + 8] = [5] * 4 + [0] * 4
    record = of_counts(Counts(STEP_S, tuple(counts)))
    found = nats(record, KNOWN)
    assert found[DEFAULT] - found[PRESENT] > 0.5 * record.departures


def test_departures_of_many_at_once_are_not_taken_for_a_habit_of_the_hour() -> None:
    counts = [10] * (24 * 12 * 12)
    for day, hour in ((3, 5), (5, 14), (7, 9), (10, 20)):  # all go together, at another hour each time
        counts[(day * 24 + hour) * 12 : (day * 24 + hour) * 12 + 6] = [0] * 6
    record = of_counts(Counts(300.0, tuple(counts)))

    def three_borrowed(past: Past, hosts: Sequence[str], now_s: float) -> Floats:
        _, _, events, exposure_s, *_ = past.window._seen.seen(now_s)
        part = min(1.0, 3.0 / max(1.0, events.sum()))
        hours = (events + part * (events.sum() - events)) / (
            exposure_s + part * (exposure_s.sum() - exposure_s)
        )
        rate = past.window.campus(now_s).rate_per_s * exposure_s.sum() / max(1.0, events.sum())
        return np.full(len(hosts), rate * hours[int(now_s % DAY_S // HOUR_S)])

    found = nats(record, {**KNOWN, "three": three_borrowed})
    lost = {name: found[BASE] - of for name, of in found.items()}
    assert record.departures == 40
    assert lost["hour"] < 0.2 * record.departures
    assert lost["hour"] < 0.3 * lost["three"]


def test_each_tenth_holds_a_tenth_of_what_was_foretold_and_all_departures_are_in_one() -> None:
    judged = judge(PEAKS, KNOWN)
    tenths = np.array(judged.tenths(PRESENT, 8))
    late = judged.steps >= 8 * STEPS
    assert tenths.shape == (TENTHS, 3)
    assert tenths[:, 0] == pytest.approx(tenths[:, 0].mean(), rel=0.01)
    assert tenths[:, 1].sum() == judged.taken[late].sum()
    assert tenths[:, 2].sum() * HOUR_S == pytest.approx(judged.lent_s[late].sum())
    rates = tenths[:, 0] / tenths[:, 2]
    assert (np.diff(rates) >= 0.0).all()


def test_bursts_of_a_building_are_in_the_history_that_is_named_so() -> None:
    record = bursts(3, in_building=True, days=20)
    departures = [(at_s, host) for at_s, host, what in record.events if what == EMERGENCY]
    near_in_time = [
        (host, other) for (at_s, host), (then_s, other) in pairwise(departures) if then_s - at_s < 30.0
    ]
    near = sum(record.places[a].building == record.places[b].building for a, b in near_in_time)
    assert len(near_in_time) > 15
    assert near > 0.9 * len(near_in_time)
    assert max(at_s for at_s, *_ in record.events) < (record.days + 1) * DAY_S


def test_states_ahead_foretell_that_machines_die_young_and_cost_little_where_they_do_not() -> None:
    rng, events = np.random.default_rng(1), []
    for number in range(400):  # two thirds end within the hour, the others after a day
        began_s = 14 * DAY_S * rng.random()
        lives_s = 0.9 * HOUR_S * rng.random() if number % 3 else DAY_S * (1.0 + rng.random())
        events += [(began_s, f"m{number}", LEND), (began_s + lives_s, f"m{number}", EMERGENCY)]
    found = judge_ahead(HazardRecord(tuple(sorted(events)), 14), WINDOW_S, PRIOR)
    assert found[4][PLAIN] == 0.0
    assert found[4][AHEAD] > 0.05
    assert found[12][AHEAD] > found[12][NOW]  # a young host is not young for twelve hours
    alike = judge_ahead(PEAKS, WINDOW_S, PRIOR)
    assert all(of[AHEAD] > -0.02 for of in alike.values())


def test_classes_of_pairs_foretell_bursts_of_buildings_and_cost_little_where_there_are_none() -> None:
    found = judge_pairs(bursts(3, in_building=True, days=60), WINDOW_S, PRIOR)
    near, far = found["classes"]["same building"], found["classes"]["elsewhere"]
    assert near["seen"] > 4.0 * far["seen"]
    assert near["foretold"] > 4.0 * far["foretold"]
    assert found["gains"]["by class"] > 0.1
    assert found["gains"]["independent"] < 0.0
    alike = judge_pairs(drawn(6, peaks=False, differ=False, hosts=20, days=21), WINDOW_S, PRIOR)
    assert alike["gains"]["by class"] > -0.02
    assert alike["classes"]["same switch"]["foretold"] == pytest.approx(
        alike["classes"]["same switch"]["seen"], abs=0.01
    )


def test_pairs_that_left_together_are_counted_for_both() -> None:
    events = [(0.0, host, LEND) for host in ("a", "b", "c")]
    events += [(2.5 * DAY_S + late_s, host, EMERGENCY) for late_s, host in ((0.0, "a"), (200.0, "b"))]
    found = judge_pairs(HazardRecord(tuple(events), 4, places=together("abc")), WINDOW_S, PRIOR)
    assert found["departures"] == 2
    assert found["classes"] == {"same switch": {"pairs": 4, "foretold": 0.5, "seen": 0.5}}


def test_counts_become_hosts_that_are_lent_and_taken() -> None:
    record = of_counts(Counts(300.0, (2, 2, 0, 1)))
    assert [what for _, _, what in record.events] == [LEND, LEND, EMERGENCY, EMERGENCY, LEND]
    assert all(300.0 <= at_s < 600.0 for at_s, _, what in record.events if what == EMERGENCY)


def test_a_file_that_is_no_record_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(SpecError, match=r"bad\.json"):
        recorded(tmp_path / "bad.json")


def test_the_measurement_writes_what_it_says(tmp_path: Path) -> None:
    result = measure_hazard(tmp_path, quick=True)
    assert json.loads((tmp_path / "hazard.json").read_text())["second"].keys() == FORECASTS.keys()
    assert (tmp_path / "hazard.svg").stat().st_size > 10_000
    for record in result["records"].values():
        assert abs(record["second"][DEFAULT]["each"]) < 0.05  # nothing of the kind is in these owners
    out = StringIO()
    Console(file=out, width=250).print(hazard_table(result))
    assert "paper's campus" in out.getvalue()
    Console(file=out, width=250).print(pairs_table(result))
    Console(file=out, width=250).print(ahead_table(result))
    assert "same building" in out.getvalue()
    assert "12 h" in out.getvalue()


def test_the_coordinator_decides_on_the_upper_bound_of_the_likeliest_hazard() -> None:
    from controller.core.coordinator import Coordinator
    from controller.core.settings import Settings
    from topologies.presets import campus54

    world = Coordinator(campus54(), Settings(), lambda: 0.5).cluster
    host = world.volunteers[0].name
    for day in range(20):
        world.hazards.lend(host, day * DAY_S)
        world.hazards.emergency(host, (day + 0.5) * DAY_S)
    now_s = 20 * DAY_S
    alone = estimate(world.hazards, now_s, host)
    levels, profile = world.hazards.likely_by_hour((host,), now_s)
    likely = levels * profile[world.hour(now_s)]
    uppers, day = world.hazard_levels(now_s)  # of departures of any kind, which were emergencies all
    upper = uppers[world.places.number[host]] * day[world.hour(now_s)]
    assert float(likely[0]) * alone.upper / alone.mle == pytest.approx(float(upper))
