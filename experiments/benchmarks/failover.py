"""Take-overs of a live campus at work whose leader is killed: the log is an SQLite file, or in etcd, whose leader dies, too.

The hosts' owners stay away, so a job that stops has stopped for the take-over.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks.frame import GOAL_HOSTS, Goal, Result, Run, in_fresh_process, write_json
from experiments.benchmarks.scale import scale_scenario
from experiments.inputs.traces import generate
from experiments.results.live_lines import unseen
from experiments.results.takeovers import take_overs

SIZES, QUICK_SIZES = (54, GOAL_HOSTS), (54,)
SECONDS = 36.0
LEASE_S = 3.0
GOALS_S = {54: (1.2, 2.8), GOAL_HOSTS: (2.0, 2.8)}  # until all agents are back; with etcd's leader dead, too
KILLS = {"sqlite": (False, False), "etcd": (False, True)}  # by kind of log: of a leader; True: and etcd's


def measure(run: Run) -> dict[str, Any]:
    """Play each size with each kind of log; what is done is written after each."""
    runs: list[dict[str, Any]] = []
    sizes = run.hosts or (QUICK_SIZES if run.quick else SIZES)
    for hosts, kind in run.each([(hosts, kind) for hosts in sizes for kind in KILLS], "{0[0]} hosts, {0[1]}".format):
        found = in_fresh_process(__name__, hosts, kind, run.folder / f"{kind}-{hosts}")
        runs.append({"hosts": hosts, "kind": kind, **found})
        write_json(run.folder / "failover.json", {"runs": runs})
    return {"runs": runs}


def goals(result: Result) -> Iterator[Goal]:
    """Yield each take-over beside its goal; of a run that the machine did not keep up with it is not judged."""
    for run in result["runs"]:
        for with_etcds, taken in zip(KILLS[run["kind"]], run["taken"], strict=False):
            what = f"{run['hosts']} hosts, {run['kind']}: leader" + (" and etcd's leader" if with_etcds else "")
            goal_s = GOALS_S.get(run["hosts"], GOALS_S[GOAL_HOSTS])[with_etcds]
            met = taken["whole_s"] <= goal_s and not taken["stopped"] if run["valid"] else None
            measured = f"{taken['whole_s']:.2f} s (led: {taken['leads_s']:.2f}), {len(taken['stopped'])} stopped"
            yield Goal(what, f"all agents back in {goal_s:g} s, no job stopped", measured, met)


def play(hosts: int, kind: str, folder: Path) -> dict[str, Any]:
    """Play one run and return its take-overs. Needs root, and etcd for that kind."""
    from experiments.worlds.live.run import run_live

    base = scale_scenario(hosts, SECONDS, idle=False)
    scenario = replace(
        base,
        owners=replace(base.owners, hazard_per_s=0.0, script=()),
        protocol=replace(base.protocol, lease_s=LEASE_S),
        trust=replace(base.trust, standby=True, journal=kind),
    )
    played = run_live(scenario, generate(scenario), folder, unseen, kills=KILLS[kind])
    fidelity = played.context.fidelity
    return {
        "taken": [asdict(each) for each in take_overs(played.facts, played.context.deaths)],
        "valid": fidelity.valid,
        "reasons": list(fidelity.reasons),
        "figures": fidelity.figures,
    }


def tables(result: Result) -> Iterator[Table | str]:
    """Yield the reasons of runs that the machine did not keep up with; take-overs are beside their goals."""
    for run in result["runs"]:
        for reason in run["reasons"]:
            yield f"{run['hosts']} hosts, {run['kind']}: {reason}"


if __name__ == "__main__":
    size, how, where = sys.argv[1:]
    print(json.dumps(play(int(size), how, Path(where))))
