"""Paper A, Fig. 7: how much of the GPUs' time is useful, day by day."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments.claims.framework.claim import Check, ClaimKind, Config
from experiments.claims.framework.panels import Panel, label
from experiments.claims.framework.runs import gather
from experiments.claims.framework.values import Point, Value, Values
from experiments.claims.framework.verdicts import above, near
from experiments.claims.paper_a import campus_numbers as numbers
from experiments.claims.paper_a.campus_numbers import UTILISATION, Metric, ratio_of_sums
from experiments.claims.paper_a.campus_runs import size_of
from experiments.claims.paper_a.table3 import settings
from experiments.results.statistics import pooled
from topologies.files import campus54

SYSTEMS = ("reclaimnet", "bamboo", "no-migration", "slurm-pr", "reclaimnet-as-printed")
PUBLISHED = {"reclaimnet": 68.7, "reclaimnet-as-printed": 68.7, "bamboo": 58.7, "no-migration": 31.2, "slurm-pr": 38.1}
PRINTED_APART = 37.5  # points over no migration: the figure's caption
GROUP, APART, BOUND = "whole run", "ReclaimNet less others", "what the load can fill"
GPU_HOURS, DAYS = 4890.0, 61.0  # section IX-A
HOURS_A_DAY = 24.0


OF_LENT = Metric(
    "useful of lent",
    "%",
    lambda run: np.array([100.0, 1.0]) * np.sum(run["days"], axis=0)[[1, 2]],
    ratio_of_sums,
    "useful GPU time, of what owners lent",
)


def run(config: Config) -> Values:
    """Return the runs of Table III."""
    size = size_of(config)
    runs = gather({system: size.runs(system) for system in SYSTEMS}, config)
    rows: list[Value] = []
    for system in SYSTEMS:
        published = {UTILISATION.quantity: PUBLISHED[system]}
        rows += numbers.metric_rows(GROUP, system, runs[system], published, (UTILISATION, OF_LENT))
    for other in SYSTEMS[1:]:
        pair = ("reclaimnet", other)
        rows += numbers.difference_row(APART, UTILISATION, pair, runs["reclaimnet"], runs[other])
    gpus = sum(host.gpus for host in campus54().hosts)
    share = 100.0 * GPU_HOURS / (gpus * DAYS * HOURS_A_DAY)
    note = f"4 890 GPU-h of {gpus} GPUs in 61 days"
    rows.append(Value(BOUND, "any system", UTILISATION.quantity, "%", share, note=note, published=68.7))
    curves: list[Point] = []  # day by day, all seeds together; days on which no job was begun have no point
    for system in SYSTEMS:
        for day in range(min(len(each["days"]) for each in runs[system])):
            samples = [np.array([100.0 * each["days"][day][1], each["days"][day][0]]) for each in runs[system]]
            if (found := pooled(ratio_of_sums, samples)) is not None:
                mean = found.mean, found.low, found.high
                curves.append(Point(GROUP, system, UTILISATION.quantity, day + 1.0, *mean))
    return Values(tuple(rows), tuple(curves), settings(size.days, size.seeds, runs))


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    quantity = UTILISATION.quantity
    # Bamboo is not judged: its share is the constant by which a replica slows its job
    lower = "no-migration"
    apart = values.get(APART, f"reclaimnet - {lower}", quantity)
    text = f"ReclaimNet's GPU time is more useful than {label(lower)}'s"
    yield above(ClaimKind.ORDERING, text, apart, 0.0)
    text = f"by {PRINTED_APART:g} points more than {label(lower)}'s, as printed"
    yield near(ClaimKind.VALUE, text, apart, PRINTED_APART, 0.1)
    measured = values.get(GROUP, "reclaimnet", quantity)
    yield near(ClaimKind.VALUE, "ReclaimNet keeps 68.7 % of GPU time useful", measured, 68.7, 0.05)
    bound = values.find(BOUND, "any system", quantity)
    yield near(
        ClaimKind.BEYOND, "the load of section IX-A could fill 68.7 % of the campus's GPU time", bound, 68.7, 0.05
    )


PANELS = (
    Panel(
        UTILISATION.quantity,
        "Useful share of the time of jobs that are begun and not done",
        (GROUP,),
        x="day of the run",
        y="%, all seeds together",
    ),
    Panel(UTILISATION.quantity, "The whole run", (GROUP,)),
)
