"""Take-overs of a live campus at work whose leader is killed: the log is an SQLite file, or in etcd, whose leader dies, too.

The hosts' owners stay away, so a job that stops has stopped for the take-over.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.benchmarks.frame import Goal, Result, Run, in_fresh_process, table_of, write_json
from experiments.benchmarks.scale import scale_scenario
from experiments.inputs.traces import generate
from experiments.results.live_display import Live
from experiments.results.takeovers import take_overs

SIZES, QUICK_SIZES = (54, 500), (54,)
SECONDS = 36.0
LEASE_S = 3.0
GOALS = {54: (1.2, 2.8), 500: (2.0, 2.8)}  # s until all agents are back; with etcd's leader dead, too
# name -> (where the log is, what is killed: with etcd's leader?)
KINDS = {"sqlite": ("sqlite", (False, False)), "etcd": ("etcd", (False, True))}


def measure(run: Run) -> dict[str, Any]:
    """Play each size with each kind of log; what is done is written after each."""
    runs: list[dict[str, Any]] = []
    sizes = run.hosts or (QUICK_SIZES if run.quick else SIZES)
    for hosts, kind in run.each([(hosts, kind) for hosts in sizes for kind in KINDS], "{0[0]} hosts, {0[1]}".format):
        found = in_fresh_process(__name__, hosts, kind, run.folder / f"{kind}-{hosts}")
        runs.append({"hosts": hosts, "kind": kind, **found})
        write_json(run.folder / "failover.json", {"runs": runs})
    return {"runs": runs}


def goals(result: Result) -> Iterator[Goal]:
    """Yield each take-over beside its goal; of a run that the machine did not keep up with it is not judged."""
    for run, what, with_etcds, taken in _taken(result):
        goal = GOALS.get(run["hosts"], GOALS[500])[with_etcds]
        met = taken["whole_s"] <= goal and not taken["stopped"] if run["hosts"] in GOALS and run["valid"] else None
        yield Goal(what, f"<= {goal:g} s, no job stopped", _measured(taken), met)


def play(hosts: int, kind: str, folder: Path) -> dict[str, Any]:
    """Play one run and return its take-overs. Needs root, and etcd for that kind."""
    from experiments.worlds.live.run import run_live

    journal, kills = KINDS[kind]
    base = scale_scenario(hosts, SECONDS, idle=False)
    scenario = replace(
        base,
        owners=replace(base.owners, hazard_per_s=0.0, script=()),
        protocol=replace(base.protocol, lease_s=LEASE_S),
        trust=replace(base.trust, standby=True, journal=journal),
    )
    with Path(os.devnull).open("w") as nowhere:
        played = run_live(
            scenario, generate(scenario), folder, lambda: Live(scenario, Console(file=nowhere)), kills=kills
        )
    fidelity = played.context.fidelity
    return {
        "taken": [asdict(each) for each in take_overs(played.facts, played.context.deaths)],
        "valid": fidelity.valid,
        "reasons": list(fidelity.reasons),
        "figures": fidelity.figures,
    }


def tables(result: Result) -> Iterator[Table | str]:
    """Yield a row for each take-over; then the reasons of runs that the machine did not keep up with."""
    rows = [(what, f"{taken['leads_s']:.2f} s", _measured(taken)) for _, what, _, taken in _taken(result)]
    yield table_of("Take-overs", ("killed", "the other led after", "all agents were back after"), rows)
    for run in result["runs"]:
        for reason in run["reasons"]:
            yield f"{run['hosts']} hosts, {run['kind']}: {reason}"


def _taken(result: Result) -> Iterator[tuple[dict[str, Any], str, bool, dict[str, Any]]]:
    """Yield (run, words, if etcd's leader was killed with it, take-over)."""
    for run in result["runs"]:
        for with_etcds, taken in zip(KINDS[run["kind"]][1], run["taken"], strict=False):
            what = f"{run['hosts']} hosts, {run['kind']}: leader" + (" and etcd's leader" if with_etcds else "")
            yield run, what, with_etcds, taken


def _measured(taken: dict[str, Any]) -> str:
    return f"{taken['whole_s']:.2f} s, {len(taken['stopped'])} jobs stopped"


if __name__ == "__main__":
    size, how, where = sys.argv[1:]
    print(json.dumps(play(int(size), how, Path(where))))
