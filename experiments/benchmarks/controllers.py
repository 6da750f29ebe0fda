"""Admission controllers side by side: do they keep the target delay, at what cost, from cold starts at both ends?

Every seed draws one history of jobs and spots, which all controllers follow through the live coordinator's own queue
(`courses.follow`: one slice of work after each job). Even seeds start at r = .05, odd ones at r = 6. Two averages are
kept of each run: over all jobs from the first on, which contains the learning, and over the last half of the jobs.
`fixed r*` does not learn: it has the exact r of the case. Its spread is what chance alone does to a run of that length,
and no controller's cost can be expected closer to cost* than that. `hindsight r` knows the history beforehand and has
the one r that keeps the target exactly on it: how far its cost is from cost* is what the history itself does to
any rule that keeps the delay.

A run's cost is that of the offers it happened to get, so it says little of what was learned. What was learned is judged
by theory: the exact delay and cost, for ever, of the r that was in use on average over the last half. (Not of `age` and
`hour-and-age`, whose rules are more than an r.) Hours throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from controller.core.queueing.controllers.age import Age
from controller.core.queueing.controllers.fixed import Fixed
from controller.core.queueing.replay import prepare
from experiments.benchmarks.controllers_laws import measure_laws
from experiments.benchmarks.controllers_traces import (
    hindsight_level,
    measure_traces,
    offers_of,
    records,
)
from experiments.benchmarks.results import write_result
from experiments.benchmarks.tables import short
from experiments.results.pictures import GOOD, INK, MUTED, OURS, PEER, SERIES, canvas
from experiments.results.statistics import interval
from experiments.theory.paper_b.stationary import under_level
from experiments.theory.paper_b.targets import TARGETS, Target
from experiments.worlds.queue.controller_runs import Course, follow
from experiments.worlds.queue.history import DrawnHistory
from experiments.worlds.queue.learners import LEARNERS

STARTS = (0.05, 6.0)
TOLERANCE = 0.02  # of delta and of cost*
# M/M, delta = 3: a delay of 3 h where jobs wait a day or not at all needs 15 500 jobs for 2 %
LONG = {"fig4": 50_000}
FIXED, HINDSIGHT = "fixed r*", "hindsight r"
NAMES = (FIXED, *LEARNERS)


@dataclass(frozen=True, slots=True)
class ControllerRun:
    """Mean delay (h) and cost of one seed, over all jobs and over the last half of them; and, exactly, of the r learned if it
    were held for ever (NaN: the rule is more than an r)."""

    delay_h: float
    cost: float
    last_delay_h: float
    last_cost: float
    learned_delay_h: float = math.nan
    learned_cost: float = math.nan


def one_run(case: Target, controller: str, seed: int, jobs: int) -> ControllerRun:
    """The seed's history, followed by the controller from the seed's start."""
    is_fixed = controller == FIXED
    learner = (
        Fixed(case.r_star)
        if is_fixed
        else LEARNERS[controller](case.delta_h, case.jobs.mean, STARTS[seed % 2])
    )
    course = follow(learner, DrawnHistory(case.jobs, case.spots, seed).piece(jobs), case.k)
    is_level = not isinstance(learner, Age)
    learned = _for_ever(case, float(course.levels[jobs // 2 :].mean())) if is_level else (math.nan, math.nan)
    return ControllerRun(*_means(course, 0), *_means(course, jobs // 2), *learned)


def in_hindsight(case: Target, seed: int, jobs: int) -> ControllerRun:
    """The seed's history with the one r that keeps the target on it."""
    piece = DrawnHistory(case.jobs, case.spots, seed).piece(jobs)
    level = hindsight_level(piece, case.delta_h)
    course = follow(Fixed(level), piece, case.k)
    return ControllerRun(*_means(course, 0), *_means(course, jobs // 2), *_for_ever(case, level))


def measure_controllers(
    out: Path,
    *,
    quick: bool = False,
    seeds: int | None = None,
    traces: Path | None = None,
    laws: bool = False,
) -> dict[str, Any]:
    """All cases, the recorded traces below `traces`, and `laws` that break the assumptions; writes controllers.json (after
    each part) and returns it. SpecError: a record cannot be read."""
    for path in records(traces) if traces is not None else ():
        offers_of(path)  # what is wrong with it is said before hours of runs, not after
    prepare()
    jobs, count = (2_000, 4) if quick else (10_000, 60)
    result: dict[str, Any] = {"seeds": seeds or count, "starts": STARTS, "tolerance": TOLERANCE, "cases": {}}
    for case in TARGETS:
        length = jobs if quick else LONG.get(case.name, jobs)
        result["cases"][case.name] = measure_case(case, length, result["seeds"])
        _write(out, result)
    if traces is not None:
        result["traces"] = measure_traces(traces, replicates=4 if quick else 40)
        _write(out, result)
    if laws:
        result["laws"] = measure_laws(2 if quick else 12, jobs)
        _write(out, result)
    draw(result, out / "controllers.svg")
    return result


def measure_case(case: Target, jobs: int, seeds: int) -> dict[str, Any]:
    """One case: what each controller did, and how far from what can be reached."""
    runs = {HINDSIGHT: [in_hindsight(case, seed, jobs) for seed in range(seeds)]}
    runs |= {name: [one_run(case, name, seed, jobs) for seed in range(seeds)] for name in NAMES}
    return {
        "jobs": jobs,
        "delta_h": case.delta_h,
        "cost_star": case.cost_star,
        "age_aware_bound": case.age_aware_cost,
        "controllers": {name: summary(case, of) for name, of in runs.items()},
    }


def summary(case: Target, runs: Sequence[ControllerRun]) -> dict[str, Any]:
    """Sum up one controller's runs: intervals of the means, and the share of runs within tolerance of delta and cost*."""
    values = {name: [getattr(run, name) for run in runs] for name in asdict(runs[0])}
    if math.isnan(runs[0].learned_cost):
        values["learned_delay_h"] = values["learned_cost"] = []
    intervals = {name: asdict(interval(of)) for name, of in values.items() if of}
    return {
        **intervals,
        "delay_within": _within(values["delay_h"], case.delta_h),
        "last_delay_within": _within(values["last_delay_h"], case.delta_h),
        "cost_within": _within(values["cost"], case.cost_star),
        "last_cost_within": _within(values["last_cost"], case.cost_star),
        "learned_delay_within": _within(values["learned_delay_h"], case.delta_h),
        "learned_cost_within": _within(values["learned_cost"], case.cost_star),
        "saving": _saving(case, intervals["cost"]["mean"]),
        "last_saving": _saving(case, intervals["last_cost"]["mean"]),
    }


def _means(course: Course, first: int) -> tuple[float, float]:
    """Mean delay and cost of the jobs from this one on; those that still wait at the end are left out."""
    return float(np.nanmean(course.delays_h[first:])), float(np.nanmean(course.costs[first:]))


def _for_ever(case: Target, level: float) -> tuple[float, float]:
    """(delay in h, cost) of a level that is held, by theory."""
    held = under_level(case.jobs, case.spots, level, case.k)
    return held.delay_h, held.cost


def _within(values: Sequence[float], exact: float) -> float | None:
    """The share of values that are near what is exact; None of none."""
    if not values:
        return None
    return float(np.mean([abs(value / exact - 1.0) <= TOLERANCE for value in values]))


def _saving(case: Target, cost: float) -> float | None:
    """Share of what the best age-aware policy saves over the best r; None where ages help by less than 1 %."""
    bound = case.age_aware_cost
    if bound is None or case.cost_star - bound < 0.01 * case.cost_star:
        return None
    return (case.cost_star - cost) / (case.cost_star - bound)


def _write(out: Path, result: Mapping[str, Any]) -> None:
    write_result(out / "controllers.json", result)


COLOURS = {
    "hindsight": SERIES[7],
    "fixed": MUTED,
    "algorithm1": PEER,
    "replay": OURS,
    "age": GOOD,
    "hour-and-age": SERIES[3],
}
SPREAD = 0.18  # between the points of one case
MOST, LARGEST = 1.5, 1.5  # delay over delta, cost over the best, at which the axes end


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Delay over delta and cost over its reference, a row a case; records below, if they were measured."""
    rows = list(_rows(result))
    title = "All jobs from a cold start on (95 % intervals; records: 90 % of replicates)"
    with canvas(path, 1, 2, (10.5, 1.2 + 0.42 * len(rows)), title, sharey=True) as (figure, [panels]):
        for place, (_, bound, controllers) in enumerate(rows):
            for order, (name, (delay, cost)) in enumerate(controllers.items()):
                y = place + SPREAD * (order - (len(controllers) - 1) / 2)
                _mark(panels[0], y, delay, name, None if place else name, MOST)
                _mark(panels[1], y, cost, name, None, LARGEST)
            if bound is not None:
                panels[1].plot([bound, bound], [place - 0.4, place + 0.4], color=INK, linewidth=1.2)
        panels[0].set(
            xlabel="delay / delta",
            xlim=(0.5, MOST),
            yticks=range(len(rows)),
            yticklabels=[r[0] for r in rows],
        )
        panels[1].set(xlabel="cost / cost of the best r;  bar: bound over all policies", xlim=(0.7, LARGEST))
        panels[0].set_ylim(len(rows) - 0.4, -0.6)
        for panel in panels:
            panel.axvline(1.0, color=MUTED, linewidth=0.8, zorder=0)
        figure.legend(loc="outside lower center", ncols=6)


Spread = tuple[float, float, float]


def _rows(result: Mapping[str, Any]) -> Iterator[tuple[str, float | None, dict[str, tuple[Spread, Spread]]]]:
    """(label, bound, {controller: (delay over delta, cost over reference)}), each as (mean, low, high)."""
    for name, case in result["cases"].items():
        bound, star = case["age_aware_bound"], case["cost_star"]
        controllers = {
            key: (_scaled(of["delay_h"], case["delta_h"]), _scaled(of["cost"], star))
            for key, of in case["controllers"].items()
        }
        yield f"{name}, {case['delta_h']:g} h", bound and bound / star, controllers
    for name, record in result.get("traces", {}).items():
        for share, of_all in record.get("deltas", {}).items():
            controllers = {}
            for key, of in of_all.items():
                mean, low, high = _scaled(of["cost_against_fixed"], 1.0)
                over_fixed = 1.0 + mean, 1.0 + low, 1.0 + high
                controllers[key] = _scaled(of["delay_over_delta"], 1.0), over_fixed
            yield f"{short(name)}, {share}", None, controllers


def _scaled(spread: Mapping[str, float], by: float) -> Spread:
    return spread["mean"] / by, spread["low"] / by, spread["high"] / by


def _mark(panel: Any, y: float, spread: Spread, name: str, label: str | None, end: float) -> None:
    """A point with its interval; beyond the end of the axis an arrow, and the number."""
    mean, low, high = spread
    colour = COLOURS[name.split()[0]]
    panel.plot([low, high], [y, y], color=colour, linewidth=1.5)
    panel.plot([mean], [y], "o", color=colour, markersize=4, label=label)
    if mean > end:
        panel.plot([end], [y], ">", color=colour, markersize=6, clip_on=False)
        panel.annotate(f"{mean:.2f}   ", (end, y), color=colour, ha="right", va="center", fontsize=8)
