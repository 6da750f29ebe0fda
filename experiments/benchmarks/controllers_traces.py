"""Admission controllers on recorded offers: availability counts (JSON) and lifetimes of preemptible machines (CSV).

From a record of counts each rise of the number of instances is so many offers, spread evenly over the gap between two
samples by a draw; from a record of lifetimes each lifetime is the time between two offers, as paper B reads it. Jobs are
Poisson, as many on average as rises (a rise of sixteen is good for the jobs that wait then, not for sixteen jobs of the next
hours); target delays are `DELTAS` mean times between jobs (3 h and 18 h where paper B has 12 h).

A record is one history, and a short one, so chance is judged by resampling it: a replicate strings together blocks of
whole days drawn from a record of counts, or blocks of `BLOCK` successive gaps from a record of lifetimes, which has no clock
(circularly), until `JOBS` jobs have come, a stream of their own. So what is asked is: if it went on like this record for so many
jobs.
All controllers follow the same replicate. `fixed` has the r that meets the target in hindsight on that very replicate:
no controller of paper B's form can do better. Differences are paired; intervals are 90 % percentiles over replicates, and 95 %
of the mean beside `age`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from controller.core.queueing.controllers.algorithm1 import R_MAX
from controller.core.queueing.controllers.fixed import Fixed
from controller.core.queueing.queue import Controller
from controller.core.queueing.replay import Rule, replay
from controller.numerics.arrays import Floats
from experiments.inputs.traces.availability_counts import parse_counts
from experiments.inputs.traces.lifetimes import parse_spells
from experiments.results.statistics import interval
from experiments.worlds.queue.controller_runs import follow
from experiments.worlds.queue.history import Piece
from experiments.worlds.queue.learners import DAY_H, LEARNERS
from topologies import toml
from topologies.errors import SpecError

K = 10.0
DELTAS = (0.25, 1.5)  # of the mean gap between offers
BLOCK = 25  # gaps
JOBS = 2_000  # of a replicate
LEAST_RISES = 50  # in a record: fewer say nothing
LEAST_DAYS = 2  # of a record, or there are none to draw from
HOUR_S = 3600.0
START = 1.0  # r_0
HALVINGS = 20
BOUNDS = (0.05, 0.95)
FIXED, BASE = "fixed", "age"


def measure_traces(folder: Path, replicates: int) -> dict[str, Any]:
    """Every record below the folder: {name: {offers, rises, job_gap_h, deltas: {delta: {controller: figures}}}}.

    SpecError: the folder holds no record, or a file is none; nothing is measured then.
    """
    offers = {path: offers_of(path) for path in records(folder)}
    return {
        str(path.relative_to(folder)): measure_record(*found, replicates, has_clock=path.suffix == ".json")
        for path, found in offers.items()
    }


def records(folder: Path) -> list[Path]:
    """Files that may hold a record, by name."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".csv"))
    if not found:
        raise SpecError(
            "--traces", str(folder), "a folder with records of counts (.json) or lifetimes (.csv)"
        )
    return found


def offers_of(path: Path) -> tuple[Floats, int]:
    """(times between successive offers of a record, hours; rises of which they are part). SpecError: not a record."""
    try:
        text = toml.read_text(path, "a record of offers (JSON, CSV)")
        if path.suffix == ".csv":
            gaps_h = np.array([spell.lifetime_s / HOUR_S for spell in parse_spells(text)])
            return gaps_h, len(gaps_h)
        counts = parse_counts(text)
    except SpecError as error:
        raise error if error.source else error.within(str(path)) from None
    draws = default_rng(0)
    rises = [max(0, after - before) for before, after in pairwise(counts.available)]
    times_h = [np.sort(place + draws.random(rise)) for place, rise in enumerate(rises)]
    return np.diff(np.concatenate(times_h)) * counts.gap_s / HOUR_S, sum(rise > 0 for rise in rises)


def measure_record(gaps_h: Floats, rises: int, replicates: int, has_clock: bool = False) -> dict[str, Any]:
    """Both target delays. `has_clock`: the record says when offers came, so that its days can be kept whole."""
    if rises < LEAST_RISES:
        return {"offers": len(gaps_h), "rises": rises, "left_out": f"fewer than {LEAST_RISES} rises"}
    gap_h = float(gaps_h.sum()) / rises
    has_clock = has_clock and float(gaps_h.sum()) >= LEAST_DAYS * DAY_H
    # of each controller: delay over delta, cost, and cost against the r that is best in hindsight, of all replicates
    deltas: dict[str, dict[str, Any]] = {}
    for share in DELTAS:
        delta_h = share * gap_h
        rows = [
            dict(_replicate(gaps_h, gap_h, delta_h, default_rng(seed), has_clock))
            for seed in range(replicates)
        ]
        best, base = (np.array([row[name][1] for row in rows]) for name in (FIXED, BASE))
        figures = deltas[f"{share:g}"] = {}
        for name in rows[0]:
            delays_h, costs = np.array([row[name] for row in rows]).T
            figures[name] = {
                "delay_over_delta": _spread(delays_h / delta_h),
                "cost": _spread(costs),
                "cost_against_fixed": _spread(costs / best - 1.0),
                "cost_against_age": asdict(interval((costs / base - 1.0).tolist())),
            }
    return {"offers": len(gaps_h), "rises": rises, "job_gap_h": gap_h, "deltas": deltas}


def resampled(gaps_h: Floats, least_h: float, rng: Generator) -> Floats:
    """Gaps that add up to this at least, in blocks drawn from the record, its end joined to its beginning."""
    drawn: list[Floats] = []
    total_h = 0.0
    while total_h < least_h:
        block = gaps_h[(rng.integers(0, len(gaps_h)) + np.arange(BLOCK)) % len(gaps_h)]
        drawn.append(block)
        total_h += float(block.sum())
    return np.concatenate(drawn)


def resampled_days(gaps_h: Floats, least_h: float, rng: Generator) -> Floats:
    """Times of offers on as many days as last so long, each a whole day drawn from the record, counted from its first offer.

    What days have in common, their hours, stays; what one day has of another does not. ValueError: not a whole day.
    """
    times_h = np.append(0.0, np.cumsum(gaps_h))
    days = int(times_h[-1] / DAY_H)
    if not days:
        raise ValueError(f"a record of {times_h[-1]:.3g} h: at least a day")
    drawn = rng.integers(0, days, int(least_h / DAY_H) + 1)
    edges = np.searchsorted(times_h, DAY_H * np.arange(days + 1))
    each = [
        times_h[edges[day] : edges[day + 1]] + DAY_H * (place - int(day)) for place, day in enumerate(drawn)
    ]
    return np.concatenate(each)


def _replicate(
    gaps_h: Floats, gap_h: float, delta_h: float, rng: Generator, has_clock: bool
) -> Iterator[tuple[str, tuple[float, float]]]:
    """(mean delay, mean cost) of each controller, all jobs from the first on; jobs come every `gap_h`."""
    jobs_h = np.cumsum(rng.exponential(gap_h, JOBS))
    until_h = float(jobs_h[-1])
    offers_h = (
        resampled_days(gaps_h, until_h, rng) if has_clock else np.cumsum(resampled(gaps_h, until_h, rng))
    )
    piece = Piece(jobs_h, offers_h, rng.random(JOBS))
    controllers: Mapping[str, Controller] = {
        FIXED: Fixed(hindsight_level(piece, delta_h)),
        **{name: make(delta_h, gap_h, START) for name, make in LEARNERS.items()},
    }
    for name, controller in controllers.items():
        course = follow(controller, piece, K)
        yield name, (float(np.nanmean(course.delays_h)), float(np.nanmean(course.costs)))


def hindsight_level(piece: Piece, delta_h: float) -> float:
    """The r in [0, R_MAX] whose mean delay on this very history is nearest to delta from below."""
    low, high = 0.0, R_MAX
    for _ in range(HALVINGS):
        level = (low + high) / 2.0
        delay_h = replay(Rule(level), piece.job_times_h, piece.spot_times_h, piece.draws).mean_delay_s
        low, high = (level, high) if delay_h <= delta_h else (low, level)
    return low


def _spread(values: Floats) -> dict[str, float]:
    low, high = np.quantile(values, BOUNDS)
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}
