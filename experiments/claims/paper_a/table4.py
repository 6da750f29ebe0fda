"""Paper A, Table IV: what P1, P2 and P3 do each, alone and together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from controller.core.policies.table import ABLATION
from controller.numerics.arrays import Floats
from experiments.claims.framework.claim import Check, ClaimKind, Config
from experiments.claims.framework.rows import row
from experiments.claims.framework.runs import gather
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import above, below, near
from experiments.claims.paper_a import campus_numbers as numbers
from experiments.claims.paper_a.campus_runs import size_of
from experiments.claims.paper_a.table3 import CELLS, DEGRADATION, degradations, panels, settings
from experiments.results.statistics import pooled
from experiments.runtime.tasks import Result

Subset = tuple[bool, bool, bool]

GROUP, RATIOS = "Table IV", "one protocol more"
PUBLISHED: dict[Subset, tuple[float, float, float]] = {  # GPU-h, s, %
    (False, False, False): (8.7, 145, 34.8),
    (True, False, False): (4.9, 142, 33.6),
    (False, True, False): (8.1, 79, 32.4),
    (False, False, True): (8.5, 144, 3.1),
    (True, True, False): (3.1, 71, 31.0),
    (True, False, True): (3.8, 98, 7.3),
    (False, True, True): (4.6, 67, 2.9),
    (True, True, True): (2.8, 61, 2.8),
}
BESIDE = "none beside Bamboo"
PARTS, PART_OF_P1 = "part of the reduction", 64.0  # E1


def name(subset: Subset) -> str:
    """Return `P1+P3`, or `none`."""
    return "+".join(f"P{n}" for n, is_on in enumerate(subset, 1) if is_on) or "none"


def run(config: Config) -> Values:
    """Run all eight subsets; three of them are rows of Table III, and its runs."""
    size = size_of(config)
    cases = {subset: size.runs(ABLATION[subset]) for subset in PUBLISHED}
    [bamboo] = gather({"bamboo": size.runs("bamboo")}, config).values()
    runs = gather(cases, config)
    rows: list[Value] = []
    for subset, printed in PUBLISHED.items():
        published = {"work loss": printed[0], "downtime": printed[1]}
        rows += numbers.metric_rows(GROUP, ABLATION[subset], runs[subset], published)
    rows += degradations(GROUP, {ABLATION[subset]: printed[2] for subset, printed in PUBLISHED.items()}, config)
    for protocol, with_it, without in _steps():
        metric = numbers.DOWNTIME if protocol == 2 else numbers.WORK_LOSS
        published_ratio = PUBLISHED[with_it][protocol - 1] / PUBLISHED[without][protocol - 1]
        pair = (name(with_it), name(without))
        rows += numbers.ratio_row(RATIOS, metric, pair, runs[with_it], runs[without], published_ratio)
    none = runs[False, False, False]
    rows += numbers.difference_row(BESIDE, numbers.WORK_LOSS, ("none", "bamboo"), none, bamboo)
    rows += _part_of_p1(runs)
    return Values(tuple(rows), (), settings(size.days, size.seeds, {name(s): r for s, r in runs.items()}))


def _part_of_p1(runs: Mapping[Subset, Sequence[Result]]) -> Iterator[Value]:
    """Yield P1's part of the reduction of work loss that all three protocols achieve."""

    def part(samples: Sequence[Floats]) -> float:
        (none, p1, every), wholes = np.sum(samples, axis=0).reshape(3, 2).T
        none, p1, every = np.array([none, p1, every]) / np.maximum(wholes, 1e-9)
        return float(100.0 * (none - p1) / (none - every)) if none > every else math.nan

    subsets = (False, False, False), (True, False, False), (True, True, True)
    three = zip(*(runs[subset] for subset in subsets), strict=True)
    samples = [np.concatenate([numbers.WORK_LOSS.samples(run) for run in some]) for some in three]
    if (found := pooled(part, samples)) is not None:
        yield row(PARTS, "P1", "work loss", "%", found, "of what all three take off", published=PART_OF_P1)


def _steps() -> Iterator[tuple[int, Subset, Subset]]:
    """Yield (protocol, with it, without it) in every combination of the others; P3 is judged by traffic, not by a ratio."""
    for one, other in product((False, True), repeat=2):
        yield 1, (True, one, other), (False, one, other)
        yield 2, (one, True, other), (one, False, other)


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    text = f"P1 alone takes off {PART_OF_P1:g} % of the work loss that all three do"
    yield near(ClaimKind.VALUE, text, values.get(PARTS, "P1", "work loss"), PART_OF_P1, 0.1)
    more = values.get(BESIDE, "none - bamboo", "work loss")
    yield above(ClaimKind.ORDERING, "with none of the three more work is lost than with Bamboo (E7)", more, 0.0)
    for protocol, with_it, without in _steps():
        is_p2 = protocol == 2
        quantity, what = ("downtime", "shortens downtime") if is_p2 else ("work loss", "reduces work loss")
        ratio = values.get(RATIOS, f"{name(with_it)} / {name(without)}", quantity)
        text = f"P{protocol} {what}, added to {name(without)}"
        printed = PUBLISHED[with_it][is_p2] / PUBLISHED[without][is_p2]
        yield below(ClaimKind.ORDERING, text, ratio, 1.0)
        yield near(ClaimKind.VALUE, f"{text}: by the printed factor", ratio, printed, 0.1)
    for subset, (_, downtime_s, degradation) in PUBLISHED.items():
        if not subset[2]:  # under P3 research loses nothing, as the fluid network is built
            lacking = values.find(GROUP, ABLATION[subset], DEGRADATION)
            text = f"{name(subset)}: degradation of {degradation:g} %, as printed"
            yield near(ClaimKind.VALUE, text, lacking, degradation, CELLS[DEGRADATION])
        text = f"{name(subset)}: downtime of {downtime_s:g} s, as printed"
        down = values.get(GROUP, ABLATION[subset], "downtime")
        yield near(ClaimKind.VALUE, text, down, downtime_s, CELLS["downtime"])


PANELS = panels(GROUP)
