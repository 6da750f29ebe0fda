"""Paper B, section V: controllers learn r from a small and from a large start; running averages of cost and delay.

The paper prints neither its starts, nor its step, nor the number of jobs of its curves. Here: starts 0.05 and 6, alpha =
0.01 an hour, W = 100, r_max = 8; all systems follow the same histories, seed by seed, so differences are paired.

The second half of a run is judged, not the running average at its end: from r = 6 some thousand jobs wait tens of
hours, and an average over all jobs remembers them for hundreds of thousands. The curves show the running averages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.core.queueing.controllers import controller
from experiments.claims.framework.claim import Config
from experiments.claims.framework.panels import Panel
from experiments.claims.framework.rows import curve, mean_row, paired_row
from experiments.claims.framework.runs import gather
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
    SYSTEMS,
    grid,
    label,
    labels,
    one_run,
)
from experiments.runtime.tasks import Result, Task
from experiments.theory.paper_b import targets
from experiments.theory.paper_b.targets import BY_NAME, Target
from experiments.worlds.queue.controller_runs import STEP_PER_H


@dataclass(frozen=True, slots=True)
class LearningCase:
    """A panel: `target` names its laws and exact numbers; the paper's own numbers where it prints them."""

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
    """Size of a sweep: jobs a run and seeds, of Algorithm 1 (slow to settle, and quick to run) and of the others."""

    slow_jobs: int
    slow_seeds: int
    jobs: int
    seeds: int
    tolerance: float

    def of(self, system: str) -> tuple[int, int]:
        """Return (jobs a run, seeds) of a system."""
        is_slow = SYSTEMS[system].is_slow
        return (self.slow_jobs, self.slow_seeds) if is_slow else (self.jobs, self.seeds)


QUICK, FULL = LearningSize(16_000, 6, 4_000, 6, 0.05), LearningSize(20_000, 60, 10_000, 60, 0.02)
# the cases of each figure; paper B prints Theorem 5's formula, and its value at N = 3 stands for Fig. 5's cost
FIGURES = {
    "B2": (
        LearningCase("Poisson jobs", "fig2-poisson", published_cost=7.75, published_r=0.3),
        LearningCase("Gamma jobs", "fig2-gamma", published_cost=7.75, published_r=0.3),
    ),
    "B3": (LearningCase("Poisson jobs", "fig3-poisson"), LearningCase("Gamma jobs", "fig3-gamma")),
    "B4": (LearningCase("Poisson jobs and spots", "fig4", published_cost=8.875),),
    "B5": (LearningCase("Poisson jobs and spots", "fig5", published_cost=5.8, published_r=3.0),),
}
_SECOND_HALF = "mean over the second half of the jobs"
_EARLY, _ALL = f"mean over the first {EARLY_JOBS} jobs", "mean over all jobs of the run"
# quantity -> (unit, meaning)
QUANTITIES = {
    "delay": ("h", _SECOND_HALF),
    "cost": ("", _SECOND_HALF),
    "r": ("jobs", _SECOND_HALF),
    "r away": ("jobs", "mean of |r - r*| over the second half of the jobs"),
    "early delay": ("h", _EARLY),
    "early cost": ("", _EARLY),
    "running delay": ("h", _ALL),
    "running cost": ("", _ALL),
    "settled": (
        "jobs",
        f"jobs after which the running delay stays within {SETTLED:.0%} of delta; the longest run if it does not",
    ),
}


def panels(cases: Sequence[LearningCase]) -> tuple[Panel, ...]:
    """Return running averages of cost and of delay, and r, of each case."""
    found = []
    for case in cases:
        exact, of, x = case.exact, (case.group,), "jobs so far (log)"
        marks = {f"theory {exact.cost_star:.3f}": exact.cost_star}
        if exact.age_aware_cost is not None and exact.age_aware_cost < exact.cost_star - 0.01:
            marks[f"bound with the age {exact.age_aware_cost:.3f}"] = exact.age_aware_cost
        found += [
            Panel("cost", f"Running average of cost: {case.group}", of, x=x, log="x", marks=marks),
            Panel(
                "delay",
                f"Running average of delay, h: {case.group}",
                of,
                x=x,
                log="xy",
                marks={f"target {exact.delta_h:g} h": exact.delta_h},
            ),
            Panel("r", f"r: {case.group}", of, x=x, log="xy", marks={f"theory {exact.r_star:.3f}": exact.r_star}),
        ]
    return tuple(found)


def size_of(config: Config) -> LearningSize:
    """Return the claim's own, with the seeds that were asked for."""
    size = QUICK if config.quick else FULL
    count = len(config.seeds or ())
    return replace(size, slow_seeds=count, seeds=count) if count else size


def run(cases: Sequence[LearningCase], config: Config) -> Values:
    """Run all systems, starts and seeds of the cases."""
    size = size_of(config)
    tasks: dict[tuple[LearningCase, str], list[Task]] = {}  # one a seed
    for case in cases:
        for name, (system, start) in labels().items():
            jobs, seeds = size.of(system)
            key = f"{case.target}, {system} from {start:g}, seed {{}}, {jobs} of {size.slow_jobs} jobs"
            tasks[case, name] = [
                Task(key.format(seed), one_run, (case.exact, system, start, seed, jobs, size.slow_jobs))
                for seed in config.seeds_of(seeds, seeds)
            ]
    results = gather(tasks, config)
    rows: list[Value] = []
    curves: list[Point] = []
    for case in cases:
        mine = {name: results[case, name] for name in labels()}
        for name, runs in mine.items():
            rows += _numbers(case, name, runs)
            places = grid(size.of(labels()[name][0])[0])
            for quantity, column in (("delay", "delays"), ("cost", "costs"), ("r", "rs")):
                samples = np.array([one[column] for one in runs])
                curves += curve(case.group, name, quantity, places, samples)
        rows += _comparisons(case, mine)
    same = (size.jobs, size.seeds) == (size.slow_jobs, size.slow_seeds)
    slow = "" if same else f" (Algorithm 1: {size.slow_seeds} of {size.slow_jobs})"
    settings = {
        "runs": f"{size.seeds} seeds of {size.jobs} jobs{slow}",
        "jobs": f"{size.slow_jobs}",
        "r_init": f"{SMALL:g} and {LARGE:g}",
        "step alpha": f"{STEP_PER_H:g} per h, after every {controller.WINDOW} jobs, r_max {controller.R_MAX:g}",
        "k": f"{targets.K:g}",
        "tolerance": f"{size.tolerance:g}",
        "world": "paper B's queue, decided by the live coordinator's own queue and controllers",
    }
    return Values(tuple(rows), tuple(curves), settings)


def _numbers(case: LearningCase, name: str, runs: Sequence[Result]) -> Iterator[Value]:
    """Yield a row a quantity, beside theory and paper. The r of `age` means something else: it holds at some ages only."""
    exact = case.exact
    theory = {"delay": exact.delta_h, "cost": exact.cost_star}
    theory |= {f"running {quantity}": number for quantity, number in theory.items()}
    published = {"cost": case.published_cost, "running cost": case.published_cost}
    if labels()[name][0] != AGE:
        theory |= {"r": exact.r_star, "r away": 0.0}
        published["r"] = case.published_r
    for quantity, (unit, note) in QUANTITIES.items():
        beside = {"exact": theory.get(quantity), "published": published.get(quantity)}
        yield mean_row(case.group, name, quantity, unit, [run[quantity] for run in runs], note, **beside)


def _comparisons(case: LearningCase, mine: dict[str, list[Result]]) -> Iterator[Value]:
    """Compare on the seeds that both have: the starts of Algorithm 1, and the learners with r* fixed and Algorithm 1."""
    pairs = [(label(ALGORITHM1, LARGE), label(ALGORITHM1, SMALL), "cost")]
    for system in (REPLAY, AGE):
        for start in SYSTEMS[system].starts:
            name = label(system, start)
            pairs += [(name, FIXED, "cost"), (name, label(ALGORITHM1, start), "settled")]
    for first, second, quantity in pairs:
        unit, note = QUANTITIES[quantity]
        samples = zip(
            *((one[quantity], two[quantity]) for one, two in zip(mine[first], mine[second], strict=False)), strict=True
        )
        yield paired_row(case.group, f"{first} - {second}", quantity, unit, *samples, note=note)
