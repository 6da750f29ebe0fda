"""Paper A, Fig. 3: how long a job stands still when it is moved, with P2 and with random destinations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from controller.numerics.arrays import Floats
from experiments.claims.framework.claim import Check, ClaimKind, Config
from experiments.claims.framework.panels import Panel
from experiments.claims.framework.runs import gather
from experiments.claims.framework.values import Point, Values
from experiments.claims.framework.verdicts import above, below, near
from experiments.claims.paper_a import campus_numbers as numbers
from experiments.claims.paper_a.campus_numbers import Metric, quantile, ratio_of_sums
from experiments.claims.paper_a.campus_runs import size_of
from experiments.claims.paper_a.table3 import settings
from experiments.results.statistics import ENOUGH_SEEDS
from experiments.runtime.tasks import Result

SYSTEMS = ("reclaimnet", "random-dst", "reclaimnet-as-printed", "no-tc-bpf")
GROUP, RATIOS = "per migration", "P2 over random destinations"
PAIR = ("reclaimnet", "random-dst")
PUBLISHED = {"reclaimnet": {"median": 61.0, "same building": 71.0}, "random-dst": {"median": 98.0}}
MEDIAN_RATIO, P99_RATIO = 61.0 / 98.0, 0.48  # 38 % and 52 % less
POINTS = 40  # of a curve


def _downtimes(run: Result) -> Floats:
    return np.array([each[3] for each in run["migrations"] if each[3] is not None], dtype=np.float64)


def _same_building(run: Result) -> Floats:
    where = [each[4] for each in run["migrations"] if each[4] is not None]
    return np.array([100.0 * sum(where), float(len(where))])


def _per_gb(run: Result) -> Floats:
    moved = (each for each in run["migrations"] if each[3] is not None and each[5] > 0.0)
    return np.array([each[3] / each[5] for each in moved], dtype=np.float64)


MEDIAN = Metric("median", "s", _downtimes, quantile(0.5), "downtime of migrations carried out")
P99 = Metric("p99", "s", _downtimes, quantile(0.99), "downtime of migrations carried out")
SAME = Metric("same building", "%", _same_building, ratio_of_sums, "of migrations carried out")
PER_GB = Metric("median per GB", "s/GB", _per_gb, quantile(0.5), "downtime over the payload to be moved")
COUNT = Metric("migrations", "a run", _downtimes, lambda runs: sum(map(len, runs)) / len(runs))
METRICS = (MEDIAN, P99, PER_GB, SAME, COUNT)


def run(config: Config) -> Values:
    """Return the runs of Table III."""
    size = size_of(config)
    runs = gather({system: size.runs(system) for system in SYSTEMS}, config)
    rows = [
        value
        for system in SYSTEMS
        for value in numbers.metric_rows(GROUP, system, runs[system], PUBLISHED.get(system), METRICS)
    ]
    for metric, published in ((MEDIAN, MEDIAN_RATIO), (P99, P99_RATIO), (PER_GB, None)):
        rows += numbers.ratio_row(RATIOS, metric, PAIR, runs[PAIR[0]], runs[PAIR[1]], published)
    curves = [point for system in SYSTEMS for point in _curve(system, runs[system])]
    return Values(tuple(rows), tuple(curves), settings(size.days, size.seeds, runs))


def _curve(system: str, runs: Sequence[Result]) -> Iterator[Point]:
    """Yield the distribution function at quantiles of all migrations, and between which shares most seeds lie, if six do."""
    alone = [_downtimes(each) for each in runs]
    together = np.sort(np.concatenate(alone))
    if not len(together):
        return
    for x in np.unique(np.quantile(together, np.linspace(0.0, 1.0, POINTS))).tolist():
        shares = [float((each <= x).mean()) for each in alone if len(each)]
        ends = np.quantile(shares, (0.025, 0.975)).tolist() if len(shares) >= ENOUGH_SEEDS else (None, None)
        yield Point(GROUP, system, "share at most", x, float((together <= x).mean()), *ends)


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    pair = " / ".join(PAIR)
    for metric, printed in ((MEDIAN, MEDIAN_RATIO), (P99, P99_RATIO)):
        ratio = values.get(RATIOS, pair, metric.quantity)
        text = f"P2 shortens the {metric.quantity} of downtime"
        yield below(ClaimKind.ORDERING, text, ratio, 1.0)
        yield near(ClaimKind.VALUE, f"{text} to {printed:.0%} of random destinations'", ratio, printed, 0.1)
    per_gb = values.get(RATIOS, pair, PER_GB.quantity)
    yield below(ClaimKind.BEYOND, "P2 shortens the median downtime of a gigabyte moved", per_gb, 1.0)
    same, other = (values.get(GROUP, system, "same building") for system in PAIR)
    chance = 100.0 if other is None else other.measured
    yield above(ClaimKind.ORDERING, "P2 stays in the building more often than chance does", same, chance)
    yield near(ClaimKind.VALUE, "P2 stays in the building for 71 % of migrations", same, 71.0, 0.1)


PANELS = (
    Panel(
        "share at most",
        "Downtime of a migration",
        (GROUP,),
        x="s from the stop to the proved state at the destination",
        y="share of migrations",
        log="x",
        marks={"median": 0.5},
    ),
)
