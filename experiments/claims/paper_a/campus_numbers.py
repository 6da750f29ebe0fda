"""Definitions of the columns of Tables III and IV: one definition a quantity, over any number of runs.

A run of a few days holds too few interruptions to be a number. So every quantity is taken over all seeds together, and
its interval comes from resampling whole seeds.

Work loss is that of `losses`: in GPU-hours, brought to 61 days, and per interruption. Lost GPU time contains it
(`experiments.results.lost_time`). Downtime is the median over all jobs that a notice interrupted (paper A: "per
migration"), from the stop to the proved state at the next host. Success is the share of jobs under notice that lost
nothing, by any means: so a system which does not migrate can have one, too. Utilisation is the useful share of the time
from a job's first start to its end, in which it could use its GPU: the load fills only a few per cent of all GPU time
lent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from controller.numerics.arrays import Floats
from experiments.claims.framework.rows import row
from experiments.claims.framework.values import Value
from experiments.claims.paper_a.campus_runs import FULL_DAYS
from experiments.results.lost_time import LostPart
from experiments.results.statistics import ConfidenceInterval, Statistic, paired, pooled, pooled_pair
from experiments.runtime.tasks import Result

EMERGENCY = "emergency"


@dataclass(frozen=True, slots=True)
class Metric:
    """`samples` of one run (an array), and the `statistic` of the samples of several."""

    quantity: str
    unit: str
    samples: Callable[[Result], Floats]
    statistic: Statistic
    note: str = ""

    def of(self, runs: Sequence[Result]) -> ConfidenceInterval | None:
        """Return the interval over the seeds; None where there is nothing to count."""
        return pooled(self.statistic, [self.samples(run) for run in runs])

    def compared(
        self, first: Sequence[Result], second: Sequence[Result], combine: Callable[[float, float], float]
    ) -> ConfidenceInterval | None:
        """Return `combine` of two systems on the same seeds."""
        one, other = ([self.samples(run) for run in runs] for runs in (first, second))
        return pooled_pair(self.statistic, one, other, combine)


def ratio_of_sums(samples: Sequence[Floats]) -> float:
    """Return the sum of parts over the sum of wholes; samples are (part, whole) each."""
    part, whole = np.sum(samples, axis=0)
    return float(part / whole) if whole else math.nan


def quantile(q: float) -> Statistic:
    """Return the quantile of all samples together."""

    def statistic(samples: Sequence[Floats]) -> float:
        together = np.concatenate(samples)
        return float(np.quantile(together, q)) if len(together) else math.nan

    return statistic


def lost_s(run: Result) -> list[float]:
    """Return the loss of each interruption; what is still open has lost nothing yet."""
    return [each[4] or 0.0 for each in run["interruptions"]]


def _per_61_days(seconds: float, run: Result) -> Floats:
    return np.array([seconds / 3600.0 * FULL_DAYS, float(len(run["days"]))])


def _downtimes(run: Result) -> Floats:
    announced = (each for each in run["interruptions"] if each[3] != EMERGENCY)
    return np.array([each[5] for each in announced if each[5] is not None], dtype=np.float64)


def _successes(run: Result) -> Floats:
    announced = [each[4] for each in run["interruptions"] if each[3] != EMERGENCY and each[4] is not None]
    return np.array([100.0 * sum(lost == 0.0 for lost in announced), float(len(announced))])


def _hours(quantity: str, seconds: Callable[[Result], float], note: str) -> Metric:
    """Return a metric of GPU time, brought to 61 days."""
    unit = "GPU-h in 61 days"
    return Metric(quantity, unit, lambda run: _per_61_days(seconds(run), run), ratio_of_sums, note)


def _share(quantity: str, unit: str, parts: Callable[[Result], tuple[float, float]], note: str) -> Metric:
    """Return a metric of a part over its whole."""
    return Metric(quantity, unit, lambda run: np.array(parts(run)), ratio_of_sums, note)


def _paid_s(run: Result) -> float:
    """Return the seconds that planned checkpoints trade off: emergencies in the mean over their moments, and pauses."""
    return float(run["expected_emergencies_s"] + run["lost_time"][LostPart.PAUSES])


def _over(quantity: str, place: int, note: str = "", is_unforced: bool = False) -> Metric:
    """Return the metric of what was paid over a bound, the forced part taken from both if it is unforced."""

    def parts(run: Result) -> tuple[float, float]:
        forced_s = run["online_s"][2] * is_unforced
        return _paid_s(run) - forced_s, run["online_s"][place] - forced_s

    note = (
        f"emergencies, expected, and pauses over the bound of schedules that do not know the future, jobs as here{note}"
    )
    return _share(quantity, "ratio", parts, note)


def _useful_days(run: Result) -> tuple[float, float]:
    begun_h, useful_h, _ = np.sum(run["days"], axis=0).tolist()
    return 100.0 * useful_h, begun_h


WORK_LOSS = _hours("work loss", lambda run: sum(lost_s(run)), "sum over all interruptions")
PER_EVENT = _share(
    "loss per event", "min", lambda run: (sum(lost_s(run)) / 60.0, len(lost_s(run))), "work loss over interruptions"
)
DOWNTIME = Metric("downtime", "s", _downtimes, quantile(0.5), "median of what a notice interrupted")
SUCCESS = Metric("success", "%", _successes, ratio_of_sums, "of jobs under notice: lost nothing")
UTILISATION = _share("utilisation", "%", _useful_days, "useful share of the time from first start to end")
LOST_TIME = _hours(
    "lost GPU time",
    lambda run: sum(run["lost_time"].values()),
    "work loss, pauses, restarts, downtime and redundancy: all that jobs had or waited for and did not use",
)
EXPECTED = _hours(
    "work loss to emergencies, expected",
    lambda run: run["expected_emergencies_s"],
    "in the mean over their moments, jobs and copies being where they were",
)
# of runs that have an expectation and no replicas
OVER_ONLINE = _over("over the least on line", 0)
OVER_WITHIN = _over("over the least within loss budgets", 1, "; proved for rows whose intervals keep 2 L_max")
UNFORCED = _over("the same, no forced pauses", 1, "; without the pauses that 2 L_max alone forces on all", True)
PAID = _hours("emergencies, expected, and pauses", _paid_s, "what checkpoints lessen, and what they cost")
ONLINE_ANY = PAID, LOST_TIME, OVER_ONLINE
ONLINE = *ONLINE_ANY, OVER_WITHIN, UNFORCED
LOST_PARTS = tuple(
    _hours(part.replace("_", " "), lambda run, part=part: run["lost_time"][part], "part of the lost GPU time")  # type: ignore[misc]
    for part in LostPart
)
RESEARCH = tuple(
    _share(quantity, "%", lambda run, figure=figure: (100.0 * run["research"][figure], 1.0), note)  # type: ignore[misc]
    for quantity, figure, note in (
        ("research lost", "lost", "of all that it asks for"),
        ("research lost in its worst hour", "worst", "of what a flow asks for in an hour"),
    )
)
OVER_BUDGET = _share(
    "intervals above 2 L_max",
    "% of time",
    lambda run: (100.0 * run["over_budget"][0], run["over_budget"][1]),
    "of the time that jobs run with checkpoints; L_max is the loss budget, and the checkpoint on its way comes on top",
)
USEFUL = _hours(
    "useful GPU time",
    lambda run: 3600.0 * sum(day[1] for day in run["days"]),
    "of attempts that ended: a row that loses more may have done less",
)
METRICS = (WORK_LOSS, LOST_TIME, USEFUL, PER_EVENT, DOWNTIME, SUCCESS, UTILISATION)


def metric_rows(
    group: str,
    system: str,
    runs: Sequence[Result],
    published: dict[str, float] | None = None,
    metrics: Sequence[Metric] = METRICS,
) -> Iterator[Value]:
    """Yield a row a metric; `published` by quantity. What cannot be had (no notice in any run) has no row."""
    for metric in metrics:
        if (found := metric.of(runs)) is not None:
            printed = (published or {}).get(metric.quantity)
            yield row(group, system, metric.quantity, metric.unit, found, metric.note, published=printed)


def ratio_row(
    group: str,
    metric: Metric,
    names: tuple[str, str],
    first: Sequence[Result],
    second: Sequence[Result],
    published: float | None = None,
) -> Iterator[Value]:
    """Yield first over second, its interval, and Wilcoxon's p of the seeds' own numbers."""
    found = metric.compared(first, second, lambda one, other: one / other if other else math.nan)
    if found is None:
        return
    p_value = _wilcoxon(metric, first, second)
    system = f"{names[0]} / {names[1]}"
    yield row(group, system, metric.quantity, "ratio", found, metric.note, published=published, p_value=p_value)


def difference_row(
    group: str, metric: Metric, names: tuple[str, str], first: Sequence[Result], second: Sequence[Result]
) -> Iterator[Value]:
    """Yield first - second, its interval, and Wilcoxon's p of the seeds' own numbers. Use it for a quantity that may be 0."""
    found = metric.compared(first, second, lambda one, other: one - other)
    if found is None:
        return
    p_value = _wilcoxon(metric, first, second)
    yield row(group, f"{names[0]} - {names[1]}", metric.quantity, metric.unit, found, metric.note, p_value=p_value)


def _wilcoxon(metric: Metric, first: Sequence[Result], second: Sequence[Result]) -> float | None:
    """Return Wilcoxon's p over the seeds that have a number of their own under both."""
    alone = [[metric.statistic([metric.samples(run)]) for run in runs] for runs in (first, second)]
    both = [pair for pair in zip(*alone, strict=True) if all(map(math.isfinite, pair))]
    return paired([one for one, _ in both], [other for _, other in both]).p_value if len(both) > 1 else None
