"""How large a live campus one machine carries: runs of growing campuses, idle and at work, each valid or not, and by what.

Each size is played twice in processes of its own. *Idle*: agents, leases and heartbeats and nothing else. *At work*: jobs on half
of the hosts (above 500 hosts, on a quarter), reclaims as often as in the peaks of paper A's campus and of five hosts in a hundred
at one instant, checkpoints moving, research flowing, in real time, a byte for four hundred. Payloads, notices, periods and the
lease are paper A's (but no payload is above 10 GB, and jobs end after minutes); `pace` divides them all, so that as many times as
many checkpoints of so much less move in a second. Printed is how long the campus takes to stand, register and go, what each part
takes of the machine, how long the coordinator thinks and how late it answers, and whether the run can be believed.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.benchmarks.bringup import DOWN_PHASES
from experiments.benchmarks.goals import JudgedFigure
from experiments.inputs.scenario import Scenario, demo_scenario
from experiments.inputs.scenario.law import InverseLaw
from experiments.inputs.scenario.owners import HOUR_S, OwnerEvent
from experiments.inputs.scenario.parts import Protocol
from experiments.inputs.traces.generated import generate
from experiments.results.accounting import summarise
from experiments.results.live_display import Live
from experiments.results.pictures import canvas, dress
from testbed.errors import CommandFailed
from topologies import presets
from topologies.scale import Scale
from topologies.spec import ResearchReserve
from topologies.units import GBIT_PER_S, MBIT_PER_S

SIZES = (54, 100, 250, 500, 1000, 2000)
IDLE_S, WORK_S = 20.0, 90.0  # jobs arrive over the first half minute of work
BYTES = 1 / 400
LEAST_LEASE_S = 6.0
HOSTS_A_BUILDING = 60
FULL_LOAD_HOSTS = 500  # with more, half as large a share of them has a job
BURST_SHARE = 0.05
# of the issue: at 500 hosts on two processors
GOALS = {
    "agents_registered_s": 5.0,
    "idle_agents": 0.15,
    "idle_memory_bytes": 1.5e9,
    "busy_share": 0.6,
    "decisions_p99_s": 0.018,
    "reports_p99_s": 0.1,
    "down_s": 3.0,
}
# paper A, Fig. 8: its coordinator's decision at 500 nodes
PAPER_DECISION_S = 0.018


def scale_scenario(
    hosts: int,
    seconds: float,
    *,
    idle: bool,
    pace: float = 1.0,
    busy_share: float | None = None,
    seed: int = 1,
) -> Scenario:
    """A campus of so many hosts; `seconds` as played; `pace`: how many times as fast as paper A's protocol and payloads are.

    `busy_share` of the hosts have a job; None: half of them, above FULL_LOAD_HOSTS a quarter.
    """
    base = demo_scenario(
        hosts, max(3, hosts // HOSTS_A_BUILDING), max(2, hosts // 100), max(5.0, seconds), seed
    )
    campus = presets.three_tier(
        hosts,
        max(3, hosts // HOSTS_A_BUILDING),
        max(2, hosts // 100),
        uplink_bytes_per_s=10 * GBIT_PER_S,
        on_demand_slots=min(1024, hosts),
        on_demand_model=presets.A6000,
        reserve=ResearchReserve(beta=0.3, minimum_bytes_per_s=50 * MBIT_PER_S),
        name=f"scale{hosts}",
    )
    if busy_share is None:
        busy_share = 0.5 if hosts <= FULL_LOAD_HOSTS else 0.25
    run_time = InverseLaw("lognormal", 300.0, 0.35, 120.0, 900.0)
    busy = max(1, round(busy_share * hosts))
    at_s, notice_s = round(seconds / 3, 1), round(min(60.0, seconds / 3) / pace, 1)
    away = [f"h{n}" for n in range(2, hosts, max(1, round(1 / BURST_SHARE)))]
    away = [name for name in away if name not in base.owners.loyal]
    burst = [OwnerEvent(at_s, name, "reclaim", notice_s) for name in away]
    returns = [OwnerEvent(at_s + notice_s + 10.0, name, "return") for name in away]
    owners = replace(
        base.owners,
        hazard_per_s=0.35 / HOUR_S,
        peaks=(),
        notice=InverseLaw("exponential", 120.0 / pace, minimum=max(1.0, 10.0 / pace), maximum=1800.0 / pace),
        script=(*burst, *returns),
    )
    jobs = replace(
        base.jobs,
        interarrival=InverseLaw("exponential", run_time.mean() / busy),
        initial=busy,
        payload=InverseLaw("lognormal", 3.2e9 / pace, 1.2, 0.12e9, 10e9 / pace),
        run_time=run_time,
        step_s=10.0 / pace,
        loss_budget_s=900.0 / pace,
        min_capabilities=(0.0,),
    )
    if idle:
        owners = replace(owners, hazard_per_s=0.0, script=())
        jobs = replace(jobs, initial=0, count=0)
    return replace(
        base,
        name=campus.name,
        campus=campus,
        duration_s=seconds,
        jobs=jobs,
        owners=owners,
        protocol=Protocol(
            restart_s=10.0 / pace,
            control_period_s=10.0 / pace,
            lease_s=max(LEAST_LEASE_S, 30.0 / pace),
            snapshots="copy",
            checkpoint_share=0.2,
        ),
        scale=Scale(bytes=BYTES),
    )


def measure_scale(
    out: Path,
    sizes: Sequence[int] = SIZES,
    *,
    seconds: float = WORK_S,
    idle_s: float = IDLE_S,
    pace: float = 1.0,
    busy_share: float | None = None,
) -> dict[str, Any]:
    """Play each size idle and at work, write scale.json and scale.svg to `out`, return the figures.

    `pace`, `busy_share`: see `scale_scenario`.

    CommandFailed, with the child's words, if a run cannot be played (no root, no room).
    """
    out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {
        "cpus": os.cpu_count(),
        "kernel": os.uname().release,
        "seconds": seconds,
        "pace": pace,
        "busy_share": busy_share,
        "goals": GOALS,
        "runs": [],
    }
    for hosts in sizes:
        idle = in_fresh_process(out, hosts, idle_s, "idle")
        work = in_fresh_process(out, hosts, seconds, "work", pace, busy_share)
        result["runs"].append({"hosts": hosts, "idle": idle, "work": work})
        (out / "scale.json").write_text(json.dumps(result, indent=2) + "\n")
    result["exponents"] = exponents(result["runs"])
    (out / "scale.json").write_text(json.dumps(result, indent=2) + "\n")
    draw(result, out / "scale.svg")
    return result


def judged_figures(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    """The figures of `result`, as it stands in the JSON, that have a goal."""
    run = result["runs"][-1]
    idle, work, goals = run["idle"], run["work"], GOALS
    memory = sum(idle.get(f"memory_{part}_bytes", 0.0) for part in ("agents", "jobs"))
    busy = work.get("cpu_machine", 0.0) / result["cpus"]
    figures = {
        "agents_registered_s": (work["agents_registered_s"], "{:.1f} s"),
        "idle_agents": (idle.get("cpu_agents", 0.0), "{:.2f} processors"),
        "idle_memory_bytes": (memory, "{:.3g} bytes"),
        "busy_share": (busy, "{:.0%}"),
        "decisions_p99_s": (work.get("decisions_p99_s", 0.0), "{:.4f} s"),
        "reports_p99_s": (work.get("reports_p99_s", 0.0), "{:.3f} s"),
        "down_s": (work["down_s"], "{:.1f} s"),
    }
    for key, (found, shape) in figures.items():
        what = f"{run['hosts']} hosts (goal for 500): {key.rsplit('_', 1)[0].replace('_', ' ')}"
        met = found <= goals[key] if work["valid"] else None
        yield JudgedFigure(what, f"<= {shape.format(goals[key])}", shape.format(found), met)


def play(
    hosts: int, seconds: float, kind: str, folder: Path, pace: float = 1.0, busy_share: float | None = None
) -> dict[str, Any]:
    """One run: its figures. Root."""
    from experiments.worlds.live.run import run_live

    scenario = scale_scenario(hosts, seconds, idle=kind == "idle", pace=pace, busy_share=busy_share)
    with Path(os.devnull).open("w") as nowhere:
        unseen = partial(Live.of, scenario, Console(file=nowhere))
        played = run_live(scenario, generate(scenario), folder, unseen)
    summary = summarise(played.facts, played.context)
    figures: dict[str, Any] = dict(played.context.fidelity.figures)
    phases = {name: figures.pop(name) for name in list(figures) if name.startswith("up_")}
    down = {name: phases.pop(f"up_{name}_s") for name in DOWN_PHASES if f"up_{name}_s" in phases}
    figures |= {
        "up_s": sum(phases.values()),
        "up_phases_s": {name.removeprefix("up_"): seconds for name, seconds in phases.items()},
        "down_phases_s": down,
        "valid": played.context.fidelity.valid,
        "reasons": list(played.context.fidelity.reasons),
        "broken": [str(broken) for broken in summary.invariants_broken],
        "jobs_finished": summary.jobs.finished,
        "jobs_lost": summary.jobs.lost,
        "reclaims": summary.emergencies.count + summary.migrations.admitted + summary.migrations.degraded,
        "deaths": len(played.context.deaths),
    }
    return figures


def exponents(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Slope of log(figure) over log(hosts), by least squares: 1 is in proportion to the hosts."""
    found = {}
    for name in ("up_s", "agents_registered_s", "decisions_p99_s", "cpu_coordinator", "cpu_agents", "down_s"):
        points = [
            (math.log(run["hosts"]), math.log(run["work"][name]))
            for run in runs
            if run["work"].get(name, 0.0) > 0
        ]
        if len(points) < 2:
            continue
        mean_x = sum(x for x, _ in points) / len(points)
        mean_y = sum(y for _, y in points) / len(points)
        spread = sum((x - mean_x) ** 2 for x, _ in points)
        found[name] = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return found


def scale_table(result: Mapping[str, Any]) -> Table:
    """Sizes down, figures across."""
    table = Table(
        title=f"A live campus on {result['cpus']} processors, {result['seconds']:g} s at work, pace {result['pace']:g}, "
        f"jobs on {'a half, above 500 hosts a quarter' if result['busy_share'] is None else result['busy_share']} of hosts"
    )
    heads = (
        "hosts",
        "up",
        "registered",
        "idle: agents",
        "idle: memory",
        "work: machine",
        "coordinator",
        "agents",
        "jobs",
    )
    for head in (*heads, "decision p99", "report p99", "down", "valid"):
        table.add_column(head, justify="right")
    for run in result["runs"]:
        idle, work = run["idle"], run["work"]
        memory = sum(idle.get(f"memory_{part}_bytes", 0.0) for part in ("agents", "jobs"))
        table.add_row(
            f"{run['hosts']}",
            f"{work['up_s']:.2f} s",
            f"{work['agents_registered_s']:.2f} s",
            f"{idle.get('cpu_agents', math.nan):.2f}",
            f"{memory / 1e6:.0f} MB",
            f"{work.get('cpu_machine', math.nan) / result['cpus']:.0%}",
            *(f"{work.get(f'cpu_{part}', math.nan):.2f}" for part in ("coordinator", "agents", "jobs")),
            f"{1e3 * work.get('decisions_p99_s', math.nan):.1f} ms",
            f"{1e3 * work.get('reports_p99_s', math.nan):.0f} ms",
            f"{work['down_s']:.2f} s",
            "yes" if work["valid"] and not work["broken"] else "no",
        )
    table.caption = (
        "processors kept busy by each part; goals at 500 hosts on two: registered 5 s, idle .15 and 1.5 GB, machine 60 %, "
        "decision 18 ms, report 100 ms, down 3 s"
    )
    return table


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Time to stand, to register, to decide and to go, over hosts."""
    runs = result["runs"]
    hosts = [run["hosts"] for run in runs]
    with canvas(path, 1, 1, (8, 4.5), "A live campus, at work") as (_, [[axis]]):
        for name, words in (
            ("up_s", "campus stands"),
            ("agents_registered_s", "agents registered"),
            ("down_s", "gone"),
            ("decisions_p99_s", "decision, p99"),
            ("reports_p99_s", "report answered, p99"),
        ):
            axis.loglog(hosts, [run["work"].get(name, math.nan) for run in runs], marker="o", label=words)
        axis.axhline(PAPER_DECISION_S, linestyle=":", label="paper A: decision at 500 nodes")
        dress(axis, "hosts", "seconds")
        axis.legend()


def in_fresh_process(
    out: Path, hosts: int, seconds: float, kind: str, pace: float = 1.0, busy_share: float | None = None
) -> dict[str, Any]:
    """One run in a process of its own: its figures. CommandFailed, with the child's words, if it cannot be played."""
    folder = out / f"{kind}-{hosts}"
    words = [str(hosts), str(seconds), kind, str(folder), str(pace)]
    if busy_share is not None:
        words.append(str(busy_share))
    argv = [sys.executable, "-m", "experiments.benchmarks.scale", *words]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    if done.returncode:
        raise CommandFailed(argv, done.returncode, done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    size, length, how, where, *options = sys.argv[1:]
    print(json.dumps(play(int(size), float(length), how, Path(where), *map(float, options))))
