"""Paper A, Fig. 2 and F1 to F4: when owners come back, how large checkpoints are, what is left of links."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments.claims.framework.claim import (
    Check,
    Claim,
    ClaimKind,
    Config,
)
from experiments.claims.framework.pictures import (
    INK,
    OURS,
    PAPER,
    PRINTED_MARK,
    canvas,
    dress,
    line,
)
from experiments.claims.framework.rows import curve, exact_row, mean_row
from experiments.claims.framework.values import Values
from experiments.claims.framework.verdicts import near
from experiments.claims.paper_a.campus_result import DAY_S, lent_spells
from experiments.claims.paper_a.campus_runs import FULL_DAYS, FULL_SEEDS
from experiments.inputs.traces import paper_campus
from experiments.inputs.traces.achieved import Statistic, achieved

GROUP, LAW = "generated trace", "by theory"
QUICK_SEEDS = 6
TOLERANCE = 0.15
LEFT_OUT = ("Thm. 2",)  # see A-gap
BINS = 48  # of half an hour
WEEKDAYS = 5
SIZES_GB = tuple(np.geomspace(0.12, 48.0, 60).tolist())

CLAIM_TEXT = (
    "42 % of departures are emergencies, in two daily windows (11:30 to 13:00, 17:30 to 20:00) in which the hazard is up to six "
    "times as high; payloads go from 120 MB to 48 GB with a median of 3.2 GB (under 2 s to over 6 min at 1 Gbit/s); an "
    "interval tuned for the peak checkpoints up to 4.1 times too often off-peak; up to 7 hosts depart at once; links leave 820 "
    "Mbit/s within buildings and 240 across the core, +-60 %, the less the higher the hazard (correlation -.43)."
)
LIMITS = (
    "Anything about real owners: the paper's measurements are not published, and this trace was drawn so as to have its "
    "statistics. What is checked is that it has them, and what follows from them by arithmetic."
)


def run(config: Config) -> Values:
    """Traces of the whole two months, as many as there are seeds; drawing one takes a moment."""
    seeds = config.seeds or (QUICK_SEEDS if config.quick else FULL_SEEDS)
    statistics: list[dict[str, Statistic]] = []
    hazards, payloads = [], []
    for seed in range(1, seeds + 1):
        config.progress(seed - 1, seeds)
        scenario, trace = paper_campus(seed, days=FULL_DAYS)
        statistics.append({each.name: each for each in achieved(scenario, trace)})
        # reclaims per hour lent in each half hour of the day, on weekdays (the run begins on a Monday)
        events, lent_h = np.zeros(BINS), np.zeros(BINS)
        for event in trace.owner_events:
            if event.kind == "reclaim" and int(event.at_s // DAY_S) % 7 < WEEKDAYS:
                events[int(event.at_s % DAY_S // 1800.0)] += 1.0
        for _, from_s, until_s in lent_spells(
            trace, [host.name for host in scenario.volunteers], scenario.duration_s
        ):
            while from_s < until_s:
                half = int(from_s // 1800.0)
                next_s = min(until_s, (half + 1) * 1800.0)
                if (half // BINS) % 7 < WEEKDAYS:
                    lent_h[half % BINS] += (next_s - from_s) / 3600.0
                from_s = max(next_s, math.nextafter(from_s, math.inf))
        by_half_hour: list[float] = (events / np.maximum(lent_h, 1e-9)).tolist()
        hazards.append(by_half_hour)
        sizes_gb = [arrival.job.payload_bytes / 1e9 for arrival in trace.arrivals]
        payloads.append([sum(size <= x for size in sizes_gb) / len(sizes_gb) for x in SIZES_GB])
    config.progress(seeds, seeds)
    rows = []
    for name, one in statistics[0].items():
        samples = [each[name].achieved for each in statistics]
        numbers = [sample for sample in samples if sample is not None]
        if one.paper is not None and one.finding not in LEFT_OUT and len(numbers) == len(samples):
            rows.append(
                mean_row(GROUP, "paper campus", name, one.unit, numbers, one.finding, published=one.paper)
            )
    note = "square root of the ratio of hazards (Lemma 1)"
    rows.append(exact_row(LAW, "Lemma 1", "too often off-peak", "times", math.sqrt(6.0), note, published=4.1))
    curves = [
        *curve(GROUP, "paper campus", "hazard", np.arange(BINS) / 2.0 + 0.25, np.array(hazards)),
        *curve(GROUP, "paper campus", "payload", SIZES_GB, np.array(payloads)),
    ]
    settings = {
        "runs": f"{seeds} traces of {FULL_DAYS:g} days",
        "world": "none: the trace alone, before anything is played",
    }
    return Values(tuple(rows), tuple(curves), settings)


def checks(values: Values) -> Iterator[Check]:
    """What the paper says, from the values alone."""
    for row in values.rows:
        if row.group == GROUP and row.published is not None:
            yield near(
                ClaimKind.BUILT,
                f"{row.quantity}: {row.published:g} {row.unit}".rstrip(),
                row,
                row.published,
                TOLERANCE,
            )
    factor = values.find(LAW, "Lemma 1", "too often off-peak")
    text = "hazards six times as high make intervals 4.1 times as short (by Lemma 1 it is the root of six)"
    yield near(ClaimKind.VALUE, text, factor, 4.1, TOLERANCE)


def draw(values: Values, path: Path) -> None:
    """Hazard over the day, and the distribution of payloads."""
    with canvas(path, 1, 2, (12.0, 4.6), "What the traces are like") as (_, panels):
        left, right = panels[0]
        points = values.curve(GROUP, "paper campus", "hazard")
        hours = [point.x for point in points]
        left.axvspan(11.5, 13.0, color=PAPER, alpha=0.12, linewidth=0, label="paper A's two windows")
        left.axvspan(17.5, 20.0, color=PAPER, alpha=0.12, linewidth=0)
        left.step(
            hours, [point.mean for point in points], where="mid", color=OURS, label="generated, weekdays"
        )
        low, high = [point.low for point in points], [point.high for point in points]
        left.fill_between(hours, low, high, step="mid", color=OURS, alpha=0.2, linewidth=0)
        left.set_xlim(0.0, 24.0)
        left.set_xticks(range(0, 25, 4))
        dress(left, "hour of the day", "reclaims per host and hour lent", "a) Hazard of a reclaim")
        left.legend(loc="upper left")

        points = values.curve(GROUP, "paper campus", "payload")
        line(right, points, OURS, "generated")
        printed = "paper A: ends and median"
        right.plot([0.12, 3.2, 48.0], [0.0, 0.5, 1.0], "D", label=printed, zorder=4, **PRINTED_MARK)
        right.axhline(0.5, color=INK, linewidth=0.6, linestyle=":")
        right.set_xscale("log")
        ticks = (0.12, 0.5, 1, 3.2, 10, 48)
        right.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        right.set_xticks([], minor=True)
        dress(right, "payload, GB (log)", "share of jobs", "b) Checkpoint sizes")
        right.legend(loc="upper left")


CLAIM = Claim(
    name="A-fig2",
    paper="Paper A, Fig. 2",
    title="Measurement findings F1 to F4",
    text=CLAIM_TEXT,
    does_not_prove=LIMITS,
    headline=(),
    run=run,
    draw=draw,
    checks=checks,
    not_comparable=(
        "the paper's measurements are not published: our trace is drawn to have their statistics, so that it has them "
        "proves nothing about owners"
    ),
)
