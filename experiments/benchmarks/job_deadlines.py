"""What deadlines cost, and what the rule that keeps them is worth: the same jobs and owners, with the rule and without.

The campus is that of the claim AB-queue: paper A's owners, hosts that rent out GPUs, and more work than owners lend GPUs for.
Each job is to be finished within so many times its run time. `no-deadlines` treats them as jobs without one: paper B's queue
alone says which go to on-demand. All on demand would keep every deadline too, at the price of all work there. Where few GPUs
are rented out, jobs take turns on them or are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks.results import write_result
from experiments.inputs.traces import generate
from experiments.inputs.traces.loaded_campus import SLOTS, loaded_campus
from experiments.results.losses import SECONDS_AN_HOUR
from experiments.worlds.virtual import simulate

ROWS = ("reclaimnet", "no-deadlines")
FACTORS = (1.15, 1.5, 2.0, 4.0)
LOAD, LEVEL_MAX = 1.2, 8.0
FEW = 4  # rented GPUs; the owners have thirty


def measure_job_deadlines(out: Path, *, quick: bool = False) -> dict[str, Any]:
    """Play both rows; writes job_deadlines.json and returns what it holds. Minutes; `quick`: one seed, one day."""
    seeds, days = (range(501, 502), 1.0) if quick else (range(501, 505), 4.0)
    runs = [
        {"rented": rented, "factor": factor, "system": system, "seed": seed}
        | _play(system, factor, seed, days, rented)
        for rented in (SLOTS, FEW)
        for factor in FACTORS
        for system in ROWS
        for seed in seeds
    ]
    result = {"load": LOAD, "days": days, "runs": runs}
    write_result(out / "job_deadlines.json", result)
    return result


def _play(system: str, factor: float, seed: int, days: float, rented: int) -> dict[str, Any]:
    scenario = loaded_campus(LOAD, seed, days, LEVEL_MAX, rented)
    scenario = replace(scenario, jobs=replace(scenario.jobs, deadline_factor=factor))
    trace = generate(scenario)
    summary = simulate(scenario, trace, seed, system=system).summary()
    jobs, deadlines = summary.jobs, summary.deadlines
    return {
        "submitted": len(trace.arrivals),
        "refused": deadlines.refused,
        "due": deadlines.in_time + deadlines.late + deadlines.excused,
        "late": deadlines.late + deadlines.excused,
        "pressed": deadlines.pressed,
        "on_demand_gpu_h": jobs.on_demand_gpu_s / SECONDS_AN_HOUR,
        "work_h": sum(arrival.job.run_s for arrival in trace.arrivals) / SECONDS_AN_HOUR,
        "work_lost_h": summary.lost_time.work_lost_s / SECONDS_AN_HOUR,
        "broken": [broken.rule for broken in summary.invariants_broken],
    }


def job_deadlines_table(result: dict[str, Any]) -> Table:
    """A row for each number of rented GPUs, factor and system, all seeds together."""
    head = (
        "rented GPUs",
        "within",
        "system",
        "jobs",
        "refused",
        "late",
        "pressed",
        "on-demand GPU-h",
        "of all work",
    )
    table = Table(*head, title=f"load {result['load']:g}, {result['days']:g} days a run")
    rows: dict[tuple[int, float, str], list[dict[str, Any]]] = {}
    for run in result["runs"]:
        rows.setdefault((run["rented"], run["factor"], run["system"]), []).append(run)
    for (rented, factor, system), runs in rows.items():
        late, due, hours = _sum(runs, "late"), _sum(runs, "due"), _sum(runs, "on_demand_gpu_h")
        table.add_row(
            f"{rented}",
            f"{factor:g} x run time",
            system,
            f"{_sum(runs, 'submitted'):.0f}",
            f"{_sum(runs, 'refused'):.0f}",
            f"{late:.0f} ({late / max(1.0, due):.1%})",
            f"{_sum(runs, 'pressed'):.0f}",
            f"{hours:.0f}",
            f"{hours / _sum(runs, 'work_h'):.0%}",
            end_section=system == ROWS[-1],
        )
    return table


def _sum(runs: Iterable[dict[str, Any]], name: str) -> float:
    return sum(float(run[name]) for run in runs)
