"""Paper A, Fig. 8: how long the coordinator thinks, over the size of the campus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.benchmarks.decisions import growth_exponent, measure_size
from experiments.claims.framework.claim import Check, ClaimKind, Config
from experiments.claims.framework.panels import Panel
from experiments.claims.framework.rows import mean_row
from experiments.claims.framework.values import Values
from experiments.claims.framework.verdicts import below
from experiments.runtime.workers import workers

SIZES = (54, 125, 250, 500)
PRINTED_MS = {54: 3.0, 500: 18.0}
NOTICE_MS = 10_000.0  # the least notice
QUICK_REPEATS, FULL_REPEATS, SAMPLES = 3, 20, 60


def run(config: Config) -> Values:
    """Time ticks of the live coordinator's core, here and now, never taken from an earlier run."""
    repeats = config.seeds or (QUICK_REPEATS if config.quick else FULL_REPEATS)
    found: dict[int, list[dict[str, Any]]] = {size: [] for size in SIZES}
    with workers(1) as pool:  # a process of its own, as a live coordinator has
        for done in range(repeats):
            for place, size in enumerate(SIZES):
                config.progress(done * len(SIZES) + place, repeats * len(SIZES))
                found[size].append(pool.submit(measure_size, size, SAMPLES).result())
    config.progress(repeats * len(SIZES), repeats * len(SIZES))
    rows = []
    for size, some in found.items():
        for quantity, key in (("median", "p50"), ("p99", "p99")):
            samples = [1e3 * each["tick"][key] for each in some]
            published = PRINTED_MS.get(size) if quantity == "median" else None
            rows.append(mean_row("one tick", f"{size} hosts", quantity, "ms", samples, published=published))
    exponents = [
        growth_exponent({size: found[size][n]["tick"]["p50"] for size in SIZES}) for n in range(repeats)
    ]
    printed = growth_exponent({size: ms / 1e3 for size, ms in PRINTED_MS.items()})
    rows.append(
        mean_row("growth", "reclaimnet", "exponent", "", exponents, "time ~ size^exponent", published=printed)
    )
    settings = {
        "runs": f"{repeats} repetitions of {SAMPLES} ticks at each size",
        "tick": "an owner's notice: P2 for the job, P3 for the set, P1 for all jobs; a job on each second host",
        "world": "the coordinator's core alone, wall-clock time of this machine",
    }
    return Values(tuple(rows), (), settings)


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    exponent = values.find("growth", "reclaimnet", "exponent")
    yield below(ClaimKind.ORDERING, "latency grows more slowly than the campus", exponent, 1.0)
    for size, printed in PRINTED_MS.items():
        median = values.find("one tick", f"{size} hosts", "median")
        yield below(
            ClaimKind.VALUE, f"{size} hosts: no slower than the printed {printed:g} ms", median, printed
        )
    tail = values.find("one tick", "500 hosts", "p99")
    yield below(
        ClaimKind.VALUE,
        "500 hosts: 99 of 100 ticks end within a hundredth of the least notice",
        tail,
        NOTICE_MS / 100.0,
    )


_HOSTS = {f"{size} hosts": float(size) for size in SIZES}
PANELS = (
    Panel("median", "One tick, median", xs=_HOSTS, x="hosts (log)", y="ms (log)", log="xy"),
    Panel("p99", "One tick, p99", xs=_HOSTS, x="hosts (log)", y="ms (log)", log="xy"),
)
