"""Speed and exactness of the simulated queue.

Speed is jobs per second of processor time on one core, with the wall clock beside it. The best of some rounds counts,
since others disturb and nothing speeds up. The simulator draws jobs, spots and admissions.

Agreement is the distance from the exact mean, in standard errors by batch means, for every case of `cases`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from rich.table import Table

from controller.core.queueing.replay import Rule
from experiments.benchmarks.frame import Goal, Result, Run, at_least, at_most, table_of
from experiments.theory.paper_b import targets
from experiments.worlds.queue.cases import K, QueueCase, cases
from experiments.worlds.queue.simulator import Model, simulate

ROUNDS: Final = 3
TARGET_JOBS_PER_S: Final = 10e6
TARGET_ERRORS: Final = 4.0
SEED: Final = 1
# jobs of a timed run, which takes a second or so, and of a case
JOBS, QUICK_JOBS = (20_000_000, 2_000_000), (4_000_000, 500_000)


def measure(run: Run) -> dict[str, Any]:
    """Measure speed and agreement: two minutes on one core, `quick` a fifth."""
    timed, judged = QUICK_JOBS if run.quick else JOBS
    speed = {}
    for case in run.each(_raced(), lambda each: each.name):
        cpu_s, wall_s = [], []
        for _ in range(ROUNDS):
            cpu_0_s, wall_0_s = time.process_time(), time.perf_counter()
            estimate = simulate(case.model, timed, SEED)
            cpu_s.append(time.process_time() - cpu_0_s)
            wall_s.append(time.perf_counter() - wall_0_s)
        rates = {"jobs_per_cpu_s": timed / min(cpu_s), "jobs_per_s": timed / min(wall_s)}
        speed[case.name] = {"family": case.family, "jobs": timed, **rates, "errors": case.errors(estimate)}
    agreement = [
        {"family": case.family, "case": case.name, "errors": case.errors(simulate(case.model, judged, SEED + place))}
        for place, case in enumerate(cases())
    ]
    return {"speed": speed, "agreement": agreement}


def goals(result: Result) -> Iterator[Goal]:
    """Yield the speed of the paper's policy, and the largest distance from theory."""
    slowest = min(row["jobs_per_cpu_s"] for row in result["speed"].values() if row["family"] == "paper's policy")
    worst = max(result["agreement"], key=lambda row: float(row["errors"]))
    millions = lambda rate: f"{rate / 1e6:.3g} M jobs/s"  # noqa: E731
    yield at_least("paper's policy, draws included", slowest, TARGET_JOBS_PER_S, millions)
    what = f"distance from theory, {len(result['agreement'])} cases (most: {worst['family']}, {worst['case']})"
    yield at_most(what, worst["errors"], TARGET_ERRORS, "{:.2f} SE".format)


def tables(result: Result) -> Iterator[Table]:
    """Yield jobs a second of each timed case, and the distance of its means from theory."""
    rows = [
        (case, *(f"{row[key]:,.0f}" for key in ("jobs", "jobs_per_cpu_s", "jobs_per_s")), f"{row['errors']:.2f} SE")
        for case, row in result["speed"].items()
    ]
    heads = ("case", "jobs", "jobs/s, processor", "jobs/s, wall", "from theory")
    yield table_of(f"Paper B's queue, one core, best of {ROUNDS}", heads, rows)


def _raced() -> Iterator[QueueCase]:
    """Yield the timed cases: the paper's policy in two of its figures, and the rule by the age of the gap."""
    for name in ("fig5", "fig2-poisson", "fig3-gamma"):
        target = targets.BY_NAME[name]
        model = Model(target.jobs, target.spots, Rule(target.r_star), K)
        yield QueueCase("paper's policy", name, model, target.cost_star, target.delta_h)
    yield next(case for case in cases() if case.family == "age of the gap")
