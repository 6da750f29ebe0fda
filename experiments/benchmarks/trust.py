"""The cost of trust in a live campus: names, sealed transfers, sandboxed jobs and fail-over, each beside what is without.

Each size is played idle, and the largest goal's size at work, as `scale` plays it: half of the hosts have a job. *Plain* has no
certificates. *Sealed* has TLS with both ends' certificates and sealed transfers. *All* also has its log in etcd and a standby;
jobs are in their sandbox always. *Registered* is from the moment at which the campus stands to the last agent's Hello. An effect
after commit waits for its line in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from experiments.benchmarks import scale
from experiments.benchmarks.frame import GOAL_HOSTS, Goal, Result, Run, in_fresh_process, table_of, write_json
from testbed.errors import TestbedError

SIZES = (54, GOAL_HOSTS)
IDLE_S, WORK_S, QUICK_WORK_S = 15.0, 300.0, 60.0
WAYS = {"plain": ("plain", "sqlite"), "sealed": ("sealed", "sqlite"), "all": ("sealed", "etcd")}
PLAYED = {"idle": ("plain", "sealed"), "work": ("plain", "all")}  # the last of each is judged
# (figure, kind of run, key, format, goals by size), on two processors
FIGURES = (
    ("registered", "idle", "agents_registered_s", "{:.2f} s", {54: 1.6, GOAL_HOSTS: 3.5}),
    ("memory of idle agents", "idle", "memory_bytes", "{:.3g} bytes", {GOAL_HOSTS: 280e6}),
    ("processors of idle agents", "idle", "cpu_agents", "{:.3f}", {GOAL_HOSTS: 0.09}),
    ("reasons why the run at work is invalid", "work", "faults", "{:.0f}", {GOAL_HOSTS: 0}),
    ("decision, p99", "work", "decisions_p99_s", "{:.4f} s", {GOAL_HOSTS: 0.006}),
    ("effect after commit, p99", "work", "writes_p99_s", "{:.4f} s", {GOAL_HOSTS: 0.018}),
)


def measure(run: Run) -> dict[str, Any]:
    """Play each size and kind; what is done is written after each, with the reason of what fails."""
    lengths_s = {"idle": IDLE_S, "work": QUICK_WORK_S if run.quick else WORK_S}
    plays = [
        (hosts, kind, way)
        for hosts in run.hosts or SIZES
        for kind, ways in PLAYED.items()
        for way in ways
        if kind == "idle" or hosts == GOAL_HOSTS
    ]
    runs: list[dict[str, Any]] = []
    found: dict[str, Any] = {"runs": runs}
    for hosts, kind, way in run.each(plays, lambda play: " ".join(map(str, play))):
        folder = run.folder / f"{kind}-{way}-{hosts}"
        try:
            figures = in_fresh_process(scale.__name__, hosts, lengths_s[kind], kind, folder, *WAYS[way])
        except TestbedError as error:
            figures = {"valid": False, "reasons": [str(error)], "broken": []}
        figures["faults"] = len(figures["reasons"] + figures["broken"])
        runs.append({"hosts": hosts, "kind": kind, "way": way, **figures})
        write_json(run.folder / "trust.json", found)
    return found


def goals(result: Result) -> Iterator[Goal]:
    """Yield each figure beside its goal, and what cannot be judged with the reason."""
    runs = {(run["hosts"], run["kind"], run["way"]): run for run in result["runs"]}
    for what, kind, key, shape, limits in FIGURES:
        for hosts, limit in limits.items():
            run = runs.get((hosts, kind, PLAYED[kind][-1]), {"valid": False, "reasons": ["not played"], "broken": []})
            shown = [shape.format(run[key])] if key in run else []
            met = run[key] <= limit if shown and (run["valid"] or key == "faults") else None
            why = [] if met else [*run["reasons"], *run["broken"]][:1]
            yield Goal(f"{hosts} hosts: {what}", f"<= {shape.format(limit)}", "; ".join([*shown, *why]), met)


def tables(result: Result) -> Iterator[Table | str]:
    """Yield runs down, figures across; then reasons of invalid runs and broken rules."""
    rows = [
        (
            f"{run['hosts']}, {run['kind']}, {run['way']}",
            *(
                shape.format(run[key]) if key in run and kind == run["kind"] else ""
                for _, kind, key, shape, _ in FIGURES
            ),
        )
        for run in result["runs"]
    ]
    yield table_of("Trust beside plain conversations", ("hosts", *(figure[0] for figure in FIGURES)), rows)
    for run, row in zip(result["runs"], rows, strict=True):
        for reason in (*run["reasons"], *run["broken"]):
            yield f"{row[0]}: {reason}"
