"""Paper A, E8 and Fig. 6c: the hazard jumps to 1.7 times what it was."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from controller.numerics.arrays import Floats
from experiments.claims.framework.claim import Check, ClaimKind, Config
from experiments.claims.framework.panels import Panel, label
from experiments.claims.framework.rows import curve, mean_row, row
from experiments.claims.framework.runs import gather
from experiments.claims.framework.values import Point, Value, Values
from experiments.claims.framework.verdicts import below, near
from experiments.claims.paper_a import drift_runs
from experiments.claims.paper_a.campus_numbers import ratio_of_sums
from experiments.claims.paper_a.campus_runs import FULL_SEEDS, QUICK_SEEDS
from experiments.claims.paper_a.drift_runs import FACTOR, WINDOWS_H, Drift, losses_by_part, mean_error, play, watch
from experiments.results.statistics import pooled, pooled_pair
from experiments.runtime.tasks import Task

SYSTEMS = ("reclaimnet", "static", "slurm-pr")
PARTS = ("before", "after")
QUICK_DAYS, FULL_DAYS = (4.0, 3.0), (28.0, 14.0)
PRINTED_H, PRINTED_CHANGE = 0.3, 3.0 / 2.8
WITHIN = 0.07
LOSS, ESTIMATE = "loss per event", "hazard estimate"


def run(config: Config) -> Values:
    """Run the systems over the drift, and estimators on the trace alone."""
    seeds = config.seeds_of(QUICK_SEEDS, FULL_SEEDS)
    days = QUICK_DAYS if config.quick else FULL_DAYS
    cases = {
        system: [Task(f"drift: {system}, {days}, seed {n}", play, (system, Drift(n, *days))) for n in seeds]
        for system in SYSTEMS
    }
    cases[ESTIMATE] = [Task(f"drift: estimators, seed {n}", watch, (n,)) for n in seeds]
    found = gather(cases, config)
    seen = found.pop(ESTIMATE)
    parts = {
        system: [losses_by_part(run, Drift(n, *days)) for n, run in zip(seeds, runs, strict=True)]
        for system, runs in found.items()
    }
    settings = {
        "runs": f"{len(seeds)} seeds of {days[0]:g} + {days[1]:g} days; estimators over {drift_runs.WATCHED_DAYS:g} days after",
        "drift": f"hazard of every host {FACTOR:g} times as high from the end of day {days[0]:g} on",
        "world": "virtual campus; estimators on the trace alone",
    }
    rows, curves = [*_losses(parts)], list[Point]()
    for window_h in WINDOWS_H:
        hours = [each["hours"][f"{window_h:g}"] for each in seen]
        note = f"{drift_runs.WATCHED_DAYS * 24.0:g} h: never"
        rows.append(mean_row(ESTIMATE, name(window_h), "re-converged after", "h", hours, note, published=PRINTED_H))
        errors = mean_error(seen, window_h)  # every half day
        curves += curve(ESTIMATE, name(window_h), "error", np.arange(errors.shape[1]) / 2.0, errors)
    return Values(tuple(rows), tuple(curves), settings)


def _losses(parts: dict[str, list[tuple[Floats, Floats]]]) -> Iterator[Value]:
    """Yield the losses of each system before, after, and after over before; and how far ReclaimNet is from the others after."""
    for system, some in parts.items():
        for place, part in enumerate(PARTS):
            if found := pooled(ratio_of_sums, [each[place] for each in some]):
                yield row(f"{LOSS}, {part}", system, "loss per event", "min", found)
        before, after = ([each[place] for each in some] for place in (0, 1))
        if found := pooled_pair(ratio_of_sums, after, before, lambda one, other: one / other if other else np.nan):
            published = PRINTED_CHANGE if system == "reclaimnet" else None
            yield row("after / before", system, "loss per event", "ratio", found, published=published)
    for other in SYSTEMS[1:]:
        first, second = ([each[1] for each in parts[name]] for name in ("reclaimnet", other))
        if found := pooled_pair(ratio_of_sums, first, second, lambda one, two: one - two):
            yield row(f"{LOSS}, after", f"reclaimnet - {other}", "loss per event", "min", found)


def name(window_h: float) -> str:
    """Return the name of a window."""
    return f"window of {window_h:g} h" if window_h < 24.0 else f"window of {window_h / 24.0:g} d"


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    change = values.get("after / before", "reclaimnet", "loss per event")
    yield near(ClaimKind.VALUE, "ReclaimNet's loss per event stays within 7 %", change, 1.0, WITHIN)
    soonest = min(
        (values.find(ESTIMATE, name(w), "re-converged after") for w in WINDOWS_H), key=lambda row: row.measured
    )
    text = f"the estimate re-converges within 18 min (the best: {soonest.system})"
    yield below(ClaimKind.VALUE, text, soonest, PRINTED_H)
    for other in SYSTEMS[1:]:
        apart = values.get(f"{LOSS}, after", f"reclaimnet - {other}", "loss per event")
        yield below(
            ClaimKind.ORDERING, f"after the drift ReclaimNet loses less per event than {label(other)}", apart, 0.0
        )


PANELS = (
    Panel(
        "error",
        "What counting emergencies can know",
        (ESTIMATE,),
        x="days after the drift",
        y="error of the estimate, mean over seeds (log)",
        log="y",
        marks={"paper A: after 18 min": drift_runs.TOLERANCE},
    ),
    Panel("loss per event", "Losses before and after", tuple(f"{LOSS}, {part}" for part in PARTS)),
)
