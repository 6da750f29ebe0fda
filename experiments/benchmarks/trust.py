"""The cost of names and TLS in a live campus: the same runs with certificates and without, one after the other.

Each size is played idle and at work, as `scale` plays it, and each of them twice: all conversations by TLS with both ends'
certificates and sealed transfers, and all of them plain, as before. *Registered* is from the moment at which the campus
stands to the last agent's Hello. Memory and processors are those of the idle agents. The decision is at work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.table import Table

from experiments.benchmarks import scale
from experiments.benchmarks.frame import Goal, Result, Run, in_fresh_process, table_of, write_json

SIZES, QUICK_SIZES = (54, 500), (54,)
IDLE_S, WORK_S, QUICK_WORK_S = 20.0, 90.0, 30.0
KINDS = ("plain", "sealed")
# (which run, figure, format) and goals by size, on two processors
FIGURES = {
    "registered": ("idle", "agents_registered_s", "{:.2f} s", {54: 1.6, 500: 3.5}),
    "memory of idle agents": ("idle", "memory_bytes", "{:.3g} bytes", {500: 280e6}),
    "processors of idle agents": ("idle", "cpu_agents", "{:.3f}", {500: 0.09}),
    "decision, p99": ("work", "decisions_p99_s", "{:.4f} s", {500: 0.006}),
}


def measure(run: Run) -> dict[str, Any]:
    """Play each size; what is done is written after each. CommandFailed if a run cannot be played."""
    sizes = run.hosts or (QUICK_SIZES if run.quick else SIZES)
    lengths_s = {"idle": IDLE_S, "work": QUICK_WORK_S if run.quick else WORK_S}
    rows: list[dict[str, Any]] = []
    for hosts in run.each(sizes, "{} hosts".format):
        row: dict[str, Any] = {"hosts": hosts}
        for transfers in KINDS:
            row[transfers] = {
                kind: in_fresh_process(
                    scale.__name__, hosts, length_s, kind, run.folder / f"{kind}-{transfers}-{hosts}", transfers
                )
                for kind, length_s in lengths_s.items()
            }
        rows.append(row)
        write_json(run.folder / "trust.json", {"runs": rows})
    return {"runs": rows}


def goals(result: Result) -> Iterator[Goal]:
    """Yield each figure with certificates beside its goal, where its size has one."""
    for row in result["runs"]:
        for what, (kind, key, shape, limits) in FIGURES.items():
            if (limit := limits.get(row["hosts"])) is not None:
                found = row["sealed"][kind].get(key, math.nan)
                met = found <= limit if row["sealed"]["work"]["valid"] else None
                yield Goal(f"{row['hosts']} hosts: {what}", f"<= {shape.format(limit)}", shape.format(found), met)


def tables(result: Result) -> Iterator[Table | str]:
    """Yield figures down, sizes and kinds across; then reasons of invalid runs and broken rules."""
    columns = [(f"{row['hosts']}, {kind}", row[kind]) for row in result["runs"] for kind in KINDS]
    rows = [
        (what, *(shape.format(runs[kind].get(key, math.nan)) for _, runs in columns))
        for what, (kind, key, shape, _) in FIGURES.items()
    ]
    yield table_of("Names and TLS beside plain conversations", ("hosts", *(head for head, _ in columns)), rows)
    for head, runs in columns:
        for kind, played in runs.items():
            for reason in (*played["reasons"], *played["broken"]):
                yield f"{head}, {kind}: {reason}"
