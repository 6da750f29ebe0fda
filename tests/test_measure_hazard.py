"""The judge of hazard estimators: its score, what it holds out, and that wrong estimators lose."""

from __future__ import annotations

import json
import math
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from controller.core.placement.exposure import (
    EMERGENCY,
    HOURS,
    LEND,
    WITHDRAW,
)
from controller.core.placement.hazard import (
    DEFAULT,
    FORECASTS,
    HazardWindow,
    Table,
)
from experiments.benchmarks.hazard import (
    BASE,
    TRUTH,
    judge,
    measure_hazard,
    true_rates,
)
from experiments.benchmarks.hazard_records import (
    DAY_S,
    HazardRecord,
    drawn,
    of_counts,
    recorded,
)
from experiments.benchmarks.tables import hazard_table
from experiments.inputs.traces.availability_counts import Counts
from topologies.errors import SpecError

HOUR_S = 3600.0
PEAKS = drawn(5, peaks=True, differ=True, hosts=20, days=21)


def even(rate_per_s: float) -> dict[str, object]:
    return {"even": lambda seen, host, now_s: [rate_per_s] * HOURS}


def nats(record: HazardRecord, name: str) -> float:
    scores, _ = judge(record, {**FORECASTS, TRUTH: true_rates(record)})
    return float(scores[name].sum())


def test_the_score_is_the_likelihood_of_a_poisson_process() -> None:
    events = ((0.0, "a", LEND), (2.25 * DAY_S, "a", EMERGENCY), (2.5 * DAY_S, "a", LEND))
    scores, emergencies = judge(HazardRecord(events, 4), even(1e-5))  # type: ignore[arg-type]
    assert emergencies.tolist() == [1.0, 0.0]  # two days are not held out
    assert scores["even"].tolist() == pytest.approx([math.log(1e-5) - 1e-5 * 0.75 * DAY_S, -1e-5 * DAY_S])


def test_an_announced_departure_ends_the_time_lent_and_is_no_event() -> None:
    events = ((0.0, "a", LEND), (2.5 * DAY_S, "a", WITHDRAW), (2.75 * DAY_S, "a", EMERGENCY))
    scores, emergencies = judge(HazardRecord(events, 3), even(1e-5))  # type: ignore[arg-type]
    assert emergencies.tolist() == [0.0]
    assert scores["even"].tolist() == pytest.approx([-1e-5 * 0.5 * DAY_S])


def test_a_forecast_is_asked_before_its_day_and_sees_nothing_of_it() -> None:
    asked: list[tuple[float, float]] = []

    def spy(seen: HazardWindow, host: str, now_s: float) -> Table:
        asked.append((now_s, seen.experience("a", now_s).events))
        return [1e-5] * HOURS

    events = ((0.0, "a", LEND), (2.25 * DAY_S, "a", EMERGENCY), (2.5 * DAY_S, "a", LEND))
    judge(HazardRecord(events, 4), {"spy": spy})
    assert asked == [(2 * DAY_S, 0.0), (3 * DAY_S, 1.0)]


def test_the_truth_beats_every_estimator_and_wrong_ones_lose_to_one_rate() -> None:
    def twelve_hours_off(seen: HazardWindow, host: str, now_s: float) -> Table:
        table = list(FORECASTS["by hour"](seen, host, now_s))
        return [*table[12:], *table[:12]]

    def twice(seen: HazardWindow, host: str, now_s: float) -> Table:
        return [2.0 * rate for rate in FORECASTS[DEFAULT](seen, host, now_s)]

    forecasts = {**FORECASTS, TRUTH: true_rates(PEAKS), "off": twelve_hours_off, "twice": twice}
    total = {name: float(days.sum()) for name, days in judge(PEAKS, forecasts)[0].items()}
    assert max(total, key=total.__getitem__) == TRUTH
    assert total["off"] < total[BASE] < total["by hour"]
    assert total["twice"] < total[DEFAULT]


def test_the_coordinators_default_foretells_best_where_hosts_and_hours_differ() -> None:
    assert nats(PEAKS, DEFAULT) > max(nats(PEAKS, name) for name in FORECASTS if name != DEFAULT)


def test_where_nothing_differs_the_default_costs_next_to_nothing() -> None:
    alike = drawn(6, peaks=False, differ=False, hosts=20, days=21)
    assert nats(alike, DEFAULT) - nats(alike, BASE) > -0.02 * alike.emergencies


def test_departures_of_many_at_once_are_not_taken_for_a_habit_of_the_hour() -> None:
    counts = [10] * (24 * 12 * 12)
    for day, hour in ((3, 5), (5, 14), (7, 9), (10, 20)):  # all go together, at another hour each time
        counts[(day * 24 + hour) * 12 : (day * 24 + hour) * 12 + 6] = [0] * 6
    record = of_counts(Counts(300.0, tuple(counts)))

    def three_borrowed(seen: HazardWindow, host: str, now_s: float) -> Table:
        _, _, events, exposure_s, *_ = seen._seen.seen(now_s)
        part = min(1.0, 3.0 / max(1.0, events.sum()))
        hours = (events + part * (events.sum() - events)) / (
            exposure_s + part * (exposure_s.sum() - exposure_s)
        )
        rate = seen.estimate(now_s).mle
        return [rate * hour * exposure_s.sum() / max(1.0, events.sum()) for hour in hours.tolist()]

    scores, _ = judge(record, {**FORECASTS, "three": three_borrowed})
    lost = {name: float((scores[BASE] - of).sum()) for name, of in scores.items()}
    assert record.emergencies == 40
    assert lost["by hour"] < 0.2 * record.emergencies
    assert lost["by hour"] < 0.3 * lost["three"]


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
    assert result["best"] == DEFAULT
    assert json.loads((tmp_path / "hazard.json").read_text())["best"] == DEFAULT
    assert (tmp_path / "hazard.svg").stat().st_size > 10_000
    out = StringIO()
    Console(file=out, width=200).print(hazard_table(result))
    assert "as the coordinator's" in out.getvalue()


def test_the_coordinator_decides_on_the_default_with_its_upper_bound() -> None:
    from controller.core.coordinator import Coordinator
    from controller.core.settings import Settings
    from topologies.presets import campus54

    world = Coordinator(campus54(), Settings(), lambda: 0.5).cluster
    host = world.volunteers[0].name
    for day in range(20):
        world.hazards.lend(host, day * DAY_S)
        world.hazards.emergency(host, (day + 0.5) * DAY_S)
    now_s = 20 * DAY_S
    likely = FORECASTS[DEFAULT](world.hazards, host, now_s)
    estimate = world.hazards.estimate(now_s, host=host)
    levels, profile = world.hazard_levels(now_s)
    upper = [levels[world.places.number[host]] * factor for factor in profile]
    assert [rate * estimate.upper / estimate.mle for rate in likely] == pytest.approx(upper)
