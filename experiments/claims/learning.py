"""Paper B, section V: controllers learn r from a small and from a large start; running averages of cost and delay.

The paper prints neither its starts, nor its step, nor how many jobs its curves have. Here: starts .05 and 6, alpha =
.01 an hour, W = 100, r_max = 8; all systems follow the same histories, seed by seed, so differences are paired.

What is judged is the second half of a run, not the running average at its end: from r = 6 some thousand jobs wait tens of
hours, and an average over all jobs remembers them for hundreds of thousands. The curves show the running averages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from controller.core import queue, replaying
from controller.core.levels import age, algorithm1, balance, fixed, history, replay, shapes
from controller.core.queue import Controller
from experiments.claims import courses, printed
from experiments.claims.claim import Config
from experiments.claims.courses import follow
from experiments.claims.statistics import Interval, interval, intervals, paired
from experiments.claims.sweep import Result, Task, sweep
from experiments.claims.values import Point, Value, Values
from experiments.queueing import history as drawn
from experiments.theory import laws, targets
from experiments.theory.laws import Floats
from experiments.theory.targets import BY_NAME, Target

SMALL, LARGE = 0.05, 6.0  # r_init; the paper says "small" and "large"
STEP_PER_H = 0.01  # alpha: the larger of those that settle in all cases (with W = 100 and r_max = 8)
EARLY_JOBS = 300  # by which the two starts are still to be told apart
SETTLED = 0.05  # of delta, for "jobs until settled"
POINTS = 70  # of a curve
FIXED, ALGORITHM1, PRINTED, REPLAY, AGE = "fixed r*", "Algorithm 1", "as printed", "replay", "age"


@dataclass(frozen=True, slots=True)
class Case:
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
class System:
    """A controller to be started anywhere; `is_slow`: it needs long runs before its second half is worth judging."""

    make: Callable[[Target, float], Controller]
    starts: tuple[float, ...] = (SMALL, LARGE)
    is_slow: bool = False


SYSTEMS: dict[str, System] = {
    FIXED: System(lambda target, _: fixed.Fixed(target.r_star), (SMALL,)),
    ALGORITHM1: System(
        lambda target, r0: algorithm1.Algorithm1(target.delta_h, STEP_PER_H, r0=r0), is_slow=True
    ),
    PRINTED: System(lambda target, r0: printed.PrintedAlgorithm1(target.delta_h, STEP_PER_H, r0=r0)),
    REPLAY: System(lambda target, r0: replay.Replay(target.delta_h, r0=r0, compiled=True)),
    AGE: System(lambda target, r0: age.Age(target.delta_h, r0=r0, compiled=True)),
}
DECIDING_CODE = (
    *(queue, replaying, fixed, algorithm1, balance, history, replay, shapes, age),
    *(printed, courses, drawn, laws, targets),
)


@dataclass(frozen=True, slots=True)
class Size:
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


QUICK, FULL = Size(16_000, 6, 4_000, 3, 0.05), Size(20_000, 60, 10_000, 60, 0.02)


def size_of(config: Config) -> Size:
    """The claim's own, with the seeds that were asked for."""
    size = QUICK if config.quick else FULL
    if config.seeds is None:
        return size
    return replace(size, slow_seeds=config.seeds, seeds=config.seeds)


def run(cases: Sequence[Case], config: Config) -> Values:
    """All systems, starts and seeds of the cases."""
    size = size_of(config)
    tasks = [task for case in cases for task in _tasks(case, size)]
    results = sweep(tasks, config, DECIDING_CODE)
    rows: list[Value] = []
    curves: list[Point] = []
    for case in cases:
        mine = {name: _of(case, name, size, results) for name in labels()}
        rows += (row for name, runs in mine.items() for row in _numbers(case, name, runs))
        rows += _comparisons(case, mine)
        curves += (point for name, runs in mine.items() for point in _curves(case, name, runs, size))
    return Values(tuple(rows), tuple(curves), _settings(size))


def label(system: str, start: float) -> str:
    """Its name in values and figures."""
    return system if len(SYSTEMS[system].starts) == 1 else f"{system} from {start:g}"


def labels() -> dict[str, tuple[str, float]]:
    """Label -> (system, start), of all that are run."""
    return {label(name, start): (name, start) for name, system in SYSTEMS.items() for start in system.starts}


def grid(jobs: int) -> Floats:
    """The numbers of jobs at which curves have a point."""
    return np.unique(np.geomspace(10, jobs, POINTS).astype(int)).astype(np.float64)


def one_run(target: Target, system: str, start: float, seed: int, jobs: int, horizon: int) -> Result:
    """One course, and what is kept of it: numbers of the second half, and the curves.

    `horizon`: what "never settled" counts as, so that a short run is not praised for being short.
    """
    history_of_seed = drawn.History(target.jobs, target.spots, seed).piece(jobs)
    course = follow(SYSTEMS[system].make(target, start), history_of_seed, target.k)
    delays_h, costs = _running(course.delays_h), _running(course.costs)
    half, places = jobs // 2, grid(jobs).astype(int) - 1
    return {
        "delay": float(np.nanmean(course.delays_h[half:])),
        "cost": float(np.nanmean(course.costs[half:])),
        "r": float(course.levels[half:].mean()),
        "r away": float(np.abs(course.levels[half:] - target.r_star).mean()),
        "early delay": float(delays_h[EARLY_JOBS - 1]),
        "early cost": float(costs[EARLY_JOBS - 1]),
        "running delay": float(delays_h[-1]),
        "running cost": float(costs[-1]),
        "settled": _settled(delays_h, target.delta_h, horizon),
        "delays": [round(float(value), 6) for value in delays_h[places]],
        "costs": [round(float(value), 6) for value in costs[places]],
        "rs": [round(float(value), 6) for value in course.levels[places]],
    }


def _running(samples: Floats) -> Floats:
    """Averages of the first 1, 2, ... jobs, those left out that wait at the end of the run."""
    counted = np.maximum(1, np.cumsum(~np.isnan(samples)))
    averages: Floats = np.nancumsum(samples) / counted
    return averages


def _settled(running_h: Floats, delta_h: float, horizon: int) -> float:
    """Jobs after which the running average stays near delta; the horizon, if it is not near at the end."""
    away = np.flatnonzero(np.abs(running_h - delta_h) > SETTLED * delta_h)
    if not len(away):
        return 0.0
    return float(horizon if away[-1] == len(running_h) - 1 else away[-1] + 1)


def _tasks(case: Case, size: Size) -> Iterator[Task]:
    for system, start in labels().values():
        jobs, seeds = size.of(system)
        for seed in range(seeds):
            arguments: tuple[Any, ...] = (case.exact, system, start, seed, jobs, size.slow_jobs)
            yield Task(_key(case, system, start, seed, size), one_run, arguments)


def _key(case: Case, system: str, start: float, seed: int, size: Size) -> str:
    jobs, _ = size.of(system)
    return f"{case.target}, {system} from {start:g}, seed {seed}, {jobs} of {size.slow_jobs} jobs"


def _of(case: Case, name: str, size: Size, results: dict[str, Result]) -> list[Result]:
    """The runs of one label, in the order of the seeds."""
    system, start = labels()[name]
    _, seeds = size.of(system)
    return [results[_key(case, system, start, seed, size)] for seed in range(seeds)]


def _numbers(case: Case, name: str, runs: Sequence[Result]) -> Iterator[Value]:
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


def _comparisons(case: Case, mine: dict[str, list[Result]]) -> Iterator[Value]:
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
    found: Interval,
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


def _curves(case: Case, name: str, runs: Sequence[Result], size: Size) -> Iterator[Point]:
    jobs, _ = size.of(labels()[name][0])
    for quantity, column in (("delay", "delays"), ("cost", "costs"), ("r", "rs")):
        samples = np.array([run[column] for run in runs])
        spread = np.quantile(samples, (0.1, 0.9), axis=0)
        for place, numbers in zip(grid(jobs), np.vstack([intervals(samples), spread]).T, strict=True):
            yield Point(case.group, name, quantity, float(place), *(float(number) for number in numbers))


def _settings(size: Size) -> dict[str, str]:
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
