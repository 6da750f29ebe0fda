"""Paper A, Fig. 6a and 6b: work loss by class of job, downtime by time of day (6c is A-drift)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from controller.numerics.arrays import Floats
from experiments.claims.framework.claim import Check, ClaimKind, Config
from experiments.claims.framework.panels import Panel, label
from experiments.claims.framework.runs import gather
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import above, at_most, below, near
from experiments.claims.paper_a import campus_numbers as numbers
from experiments.claims.paper_a.campus_numbers import EMERGENCY, Metric, quantile, ratio_of_sums
from experiments.claims.paper_a.campus_runs import ORACLE, Variation, size_of
from experiments.claims.paper_a.table3 import settings
from experiments.runtime.tasks import Result

CLASSES = {"Vision": 120, "NLP": 340, "LLM-7B LoRA": 720, "LLM-13B LoRA": 1200, "RL": 210}  # MB
SYSTEMS = ("slurm-pr", "static", "random-dst", "reclaimnet", ORACLE)
REGIMES = {  # hours of the day
    "off-peak, 3 to 7": (3.0, 7.0),
    "morning, 8 to 12": (8.0, 12.0),
    "midday, 12 to 16": (12.0, 16.0),
    "afternoon, 14 to 18": (14.0, 18.0),
    "evening, 18 to 22": (18.0, 22.0),
}
PEAKS, PEAK_HOURS = "peaks of owners (F1)", ((11.5, 13.0), (17.5, 20.0))
B7 = "tv-fixed-interval"
MOVING = ("random-dst", "reclaimnet")
OFF_PEAK = "off-peak, 3 to 7"
NEAR_ORACLE = 1.12


def _loss_of_class(place: int, run: Result) -> Floats:
    mine = [each for each in run["interruptions"] if each[1] % len(CLASSES) == place]
    return np.array([sum(each[4] or 0.0 for each in mine) / 60.0, float(len(mine))])


def _downtime_within(hours: tuple[float, float], run: Result) -> Floats:
    announced = [each for each in run["interruptions"] if each[3] != EMERGENCY and each[5] is not None]
    return np.array([each[5] for each in announced if hours[0] <= each[0] % 24.0 < hours[1]], dtype=np.float64)


def _at_peaks(metric: Metric) -> Metric:
    """Return the metric of the interruptions within the peaks alone."""

    def samples(run: Result) -> Floats:
        within = [each for each in run["interruptions"] if any(a <= each[0] % 24.0 < b for a, b in PEAK_HOURS)]
        return metric.samples({**run, "interruptions": within})

    return replace(metric, samples=samples)


BY_CLASS = {
    name: Metric("loss per event", "min", partial(_loss_of_class, place), ratio_of_sums)
    for place, name in enumerate(CLASSES)
}
BY_REGIME = {
    name: Metric("downtime", "s", partial(_downtime_within, hours), quantile(0.5), "median")
    for name, hours in REGIMES.items()
}


def run(config: Config) -> Values:
    """Run the classes by themselves; take the regimes from Table III's runs."""
    size, classes = size_of(config), Variation(payloads_mb=tuple(CLASSES.values()))
    cases = {("class", system): size.runs(system, classes) for system in SYSTEMS}
    runs = gather(cases | {("day", system): size.runs(system) for system in (*MOVING, B7)}, config)
    rows: list[Value] = []
    for name, metric in BY_CLASS.items():
        rows += _rows(name, metric, {system: runs["class", system] for system in SYSTEMS})
        for other in SYSTEMS:
            if other != "reclaimnet":
                pair = ("reclaimnet", other)
                rows += numbers.difference_row(
                    f"{name}, apart", metric, pair, runs["class", pair[0]], runs["class", other]
                )
    for name, metric in BY_REGIME.items():
        rows += _rows(name, metric, {system: runs["day", system] for system in MOVING})
    for metric in (numbers.DOWNTIME, numbers.SUCCESS):
        pair = (B7, "reclaimnet")
        rows += numbers.difference_row(PEAKS, _at_peaks(metric), pair, *(runs["day", system] for system in pair))
    return Values(tuple(rows), (), settings(size.days, size.seeds, {s: runs["class", s] for s in SYSTEMS}))


def _rows(group: str, metric: Metric, runs: dict[str, Sequence[Result]]) -> Iterator[Value]:
    for system, some in runs.items():
        yield from numbers.metric_rows(group, system, some, None, (metric,))


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    lost = "loss per event"
    for name in CLASSES:
        for other in ("slurm-pr", "static", "random-dst"):
            apart = values.get(f"{name}, apart", f"reclaimnet - {other}", lost)
            yield below(ClaimKind.ORDERING, f"{name}: ReclaimNet loses less per event than {label(other)}", apart, 0.0)
        measured, bound = (values.get(name, system, lost) for system in ("reclaimnet", ORACLE))
        most = NEAR_ORACLE * bound.measured if bound is not None else 0.0
        yield at_most(
            ClaimKind.VALUE, f"{name}: within 12 % of the oracle's schedule", None if bound is None else measured, most
        )
    longer, fewer = (values.get(PEAKS, f"{B7} - reclaimnet", quantity) for quantity in ("downtime", "success"))
    yield above(ClaimKind.ORDERING, "at peak hours jobs are down for longer with B7", longer, 0.0)
    yield below(ClaimKind.ORDERING, "at peak hours fewer jobs are handed over without loss with B7", fewer, 0.0)
    off_peak = values.get(OFF_PEAK, "reclaimnet", "downtime")
    for regime in REGIMES:
        if regime != OFF_PEAK:
            median = None if off_peak is None else values.get(regime, "reclaimnet", "downtime")
            target = 1.0 if off_peak is None else off_peak.measured
            yield near(ClaimKind.VALUE, f"{regime}: median downtime within 10 % of off-peak", median, target, 0.1)


PANELS = (
    Panel("loss per event", "a) Job classes", tuple(CLASSES), y="min of work lost per interruption"),
    Panel("downtime", "b) Regimes of the day", tuple(REGIMES), y="s, median downtime after a notice"),
)
