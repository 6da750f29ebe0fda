"""Paper B, section V: controllers learn r from a small and from a large start; running averages of cost and delay.

The paper prints neither its starts, nor its step, nor how many jobs its curves have. Here: starts .05 and 6, alpha =
.01 an hour, W = 100, r_max = 8; all systems follow the same histories, seed by seed, so differences are paired.

What is judged is the second half of a run, not the running average at its end: from r = 6 some thousand jobs wait tens of
hours, and an average over all jobs remembers them for hundreds of thousands. The curves show the running averages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from controller.core.queueing.controllers import algorithm1
from experiments.claims.framework.claim import Config
from experiments.claims.framework.sweep import Result, Task, sweep
from experiments.claims.framework.values import Point, Value, Values
from experiments.claims.paper_b.learning_runs import (
    AGE,
    ALGORITHM1,
    EARLY_JOBS,
    FIXED,
    LARGE,
    REPLAY,
    SETTLED,
    SMALL,
    STEP_PER_H,
    SYSTEMS,
    deciding_code,
    grid,
    label,
    labels,
    one_run,
)
from experiments.results.statistics import (
    ConfidenceInterval,
    interval,
    intervals,
    paired,
)
from experiments.theory.paper_b import targets
from experiments.theory.paper_b.targets import BY_NAME, Target


@dataclass(frozen=True, slots=True)
class LearningCase:
    """One panel: `target` names its laws and exact numbers; the paper's own numbers where it prints them."""

    group: str
    target: str
    published_cost: float | None = None
    published_r: float | None = None

    @property
    def exact(self) -> Target:
        """Laws, delta, r*, cost*."""
        return BY_NAME[self.target]


@dataclass(frozen=True, slots=True)
class LearningSize:
    """Of a sweep: jobs a run and seeds, of Algorithm 1 (which is slow to settle, and quick to run) and of the others."""

    slow_jobs: int
    slow_seeds: int
    jobs: int
    seeds: int
    tolerance: float

    def of(self, system: str) -> tuple[int, int]:
        """(jobs a run, seeds) of a system."""
        is_slow = SYSTEMS[system].is_slow
        return (self.slow_jobs, self.slow_seeds) if is_slow else (self.jobs, self.seeds)


HEADLINE = ("delay", "cost")
JUDGED = (
    " Nor that the running averages themselves arrive: the numbers judged are of the second half of each run. From r_init = 6 "
    "the average over all jobs remembers its beginning, and is still above the target when the run ends."
)
QUICK, FULL = LearningSize(16_000, 6, 4_000, 3, 0.05), LearningSize(20_000, 60, 10_000, 60, 0.02)


def size_of(config: Config) -> LearningSize:
    """The claim's own, with the seeds that were asked for."""
    size = QUICK if config.quick else FULL
    if config.seeds is None:
        return size
    return replace(size, slow_seeds=config.seeds, seeds=config.seeds)


def run(cases: Sequence[LearningCase], config: Config) -> Values:
    """All systems, starts and seeds of the cases."""
    size = size_of(config)
    tasks = [task for case in cases for task in _tasks(case, size)]
    results = sweep(tasks, config, deciding_code())
    rows: list[Value] = []
    curves: list[Point] = []
    for case in cases:
        mine = {name: _of(case, name, size, results) for name in labels()}
        rows += (row for name, runs in mine.items() for row in _numbers(case, name, runs))
        rows += _comparisons(case, mine)
        curves += (point for name, runs in mine.items() for point in _curves(case, name, runs, size))
    return Values(tuple(rows), tuple(curves), _settings(size))


def _tasks(case: LearningCase, size: LearningSize) -> Iterator[Task]:
    for system, start in labels().values():
        jobs, seeds = size.of(system)
        for seed in range(seeds):
            arguments: tuple[Any, ...] = (case.exact, system, start, seed, jobs, size.slow_jobs)
            yield Task(_key(case, system, start, seed, size), one_run, arguments)


def _key(case: LearningCase, system: str, start: float, seed: int, size: LearningSize) -> str:
    jobs, _ = size.of(system)
    return f"{case.target}, {system} from {start:g}, seed {seed}, {jobs} of {size.slow_jobs} jobs"


def _of(case: LearningCase, name: str, size: LearningSize, results: dict[str, Result]) -> list[Result]:
    """The runs of one label, in the order of the seeds."""
    system, start = labels()[name]
    _, seeds = size.of(system)
    return [results[_key(case, system, start, seed, size)] for seed in range(seeds)]


def _numbers(case: LearningCase, name: str, runs: Sequence[Result]) -> Iterator[Value]:
    exact = case.exact
    is_level = labels()[name][0] != AGE  # whose r means something else: it holds at some ages only
    told: dict[str, tuple[str, float | None, float | None]] = {
        "delay": ("h", exact.delta_h, None),
        "cost": ("", exact.cost_star, case.published_cost),
        "r": ("jobs", exact.r_star if is_level else None, case.published_r if is_level else None),
        "r away": ("jobs", 0.0 if is_level else None, None),
        "early delay": ("h", None, None),
        "early cost": ("", None, None),
        "running delay": ("h", exact.delta_h, None),
        "running cost": ("", exact.cost_star, case.published_cost),
        "settled": ("jobs", None, None),
    }
    for quantity, (unit, theory, published) in told.items():
        found = interval([run[quantity] for run in runs])
        yield _value(case.group, name, quantity, unit, found, exact=theory, published=published)


def _comparisons(case: LearningCase, mine: dict[str, list[Result]]) -> Iterator[Value]:
    small, large = label(ALGORITHM1, SMALL), label(ALGORITHM1, LARGE)
    pairs = [(large, small, "cost", "")]
    for system in (REPLAY, AGE):
        for start in SYSTEMS[system].starts:
            name = label(system, start)
            pairs += [(name, FIXED, "cost", ""), (name, label(ALGORITHM1, start), "settled", "jobs")]
    for first, second, quantity, unit in pairs:
        count = min(len(mine[first]), len(mine[second]))
        samples = ([run[quantity] for run in mine[name][:count]] for name in (first, second))
        found = paired(*samples)
        yield _value(
            case.group, f"{first} - {second}", quantity, unit, found.difference, p_value=found.p_value
        )


def _value(
    group: str,
    system: str,
    quantity: str,
    unit: str,
    found: ConfidenceInterval,
    *,
    exact: float | None = None,
    published: float | None = None,
    p_value: float | None = None,
) -> Value:
    return Value(
        group,
        system,
        quantity,
        unit,
        found.mean,
        found.low,
        found.high,
        found.seeds,
        exact,
        published,
        p_value,
        MEANING[quantity],
    )


MEANING = {
    "delay": "mean over the second half of the jobs",
    "cost": "mean over the second half of the jobs",
    "r": "mean over the second half of the jobs",
    "r away": "mean of |r - r*| over the second half of the jobs",
    "early delay": f"mean over the first {EARLY_JOBS} jobs",
    "early cost": f"mean over the first {EARLY_JOBS} jobs",
    "running delay": "mean over all jobs of the run",
    "running cost": "mean over all jobs of the run",
    "settled": f"jobs after which the running delay stays within {SETTLED:.0%} of delta; the longest run if it does not",
}


def _curves(case: LearningCase, name: str, runs: Sequence[Result], size: LearningSize) -> Iterator[Point]:
    jobs, _ = size.of(labels()[name][0])
    for quantity, column in (("delay", "delays"), ("cost", "costs"), ("r", "rs")):
        samples = np.array([run[column] for run in runs])
        spread = np.quantile(samples, (0.1, 0.9), axis=0)
        for place, numbers in zip(grid(jobs), np.vstack([intervals(samples), spread]).T, strict=True):
            yield Point(case.group, name, quantity, float(place), *(float(number) for number in numbers))


def _settings(size: LearningSize) -> dict[str, str]:
    same = (size.jobs, size.seeds) == (size.slow_jobs, size.slow_seeds)
    slow = "" if same else f" (Algorithm 1: {size.slow_seeds} of {size.slow_jobs})"
    return {
        "runs": f"{size.seeds} seeds of {size.jobs} jobs{slow}",
        "jobs": f"{size.slow_jobs}",
        "r_init": f"{SMALL:g} and {LARGE:g}",
        "step alpha": f"{STEP_PER_H:g} per h, after every {algorithm1.WINDOW} jobs, r_max {algorithm1.R_MAX:g}",
        "k": f"{targets.K:g}",
        "tolerance": f"{size.tolerance:g}",
        "world": "paper B's queue, decided by the live coordinator's own queue and controllers",
    }
