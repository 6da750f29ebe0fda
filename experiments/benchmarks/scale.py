"""Live campuses of growing size on one machine, idle and at work: the figures of each run, and its validity.

Each size is played twice in processes of its own. *Idle*: agents, leases and heartbeats and nothing else. *At work*:
half of the hosts have jobs (above 500 hosts, a quarter), in real time, with a byte for four hundred. Checkpoints move,
and research flows. Owners reclaim as often as in the peaks of paper A's campus, and five hosts in a hundred at one
instant. Payloads, notices, periods and the lease are paper A's, but no payload is above 10 GB and jobs end after
minutes. The table has the times of bring-up, registration and teardown, and the processor time of each part. It also
has the coordinator's thinking and answering times, and the validity of the run.

Over several machines (`--machines`) the same work is played again, in namespaces of this machine. They share its
processors, so that what differs from one machine is what spreading costs. The links of that campus are scaled; trunks
at their full rate are measured by a small one. What real machines should carry is computed from the cost of a host, a
job and a decision on one.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.table import Table

from controller.core.parameters import Protocol
from experiments.benchmarks.bringup import DOWN_PHASES
from experiments.benchmarks.frame import (
    GOAL_HOSTS,
    Goal,
    Result,
    Run,
    at_least,
    at_most,
    at_size,
    in_fresh_process,
    in_ms,
    table_of,
    write_json,
)
from experiments.inputs.scenario import Scenario, demo_scenario
from experiments.inputs.scenario.law import InverseLaw
from experiments.inputs.scenario.owners import HOUR_S, OwnerEvent
from experiments.inputs.scenario.parts import Trust
from experiments.inputs.traces.generated import generate
from experiments.results.accounting import summarise
from experiments.results.live_lines import unseen
from experiments.worlds.played import Played
from topologies import presets
from topologies.scale import Scale
from topologies.spec import ResearchReserve
from topologies.units import GBIT_PER_S, MBIT_PER_S

SIZES, QUICK_SIZES = (54, 100, 250, 500, 1000, 2000), (54, 250)
IDLE_S, WORK_S, QUICK_WORK_S = 20.0, 90.0, 30.0  # jobs arrive over the first half minute of work
BYTES = 1 / 400
OUTLOOK = (64, 0.6, 0.6)  # processors, how much of them may be busy, and of the coordinator's
HOSTS_A_BUILDING, MIN_BUILDINGS = 60, 4  # which four machines can share
FULL_LOAD_HOSTS = 500  # with more, half as large a share of them has a job
BURST_SHARE = 0.05
TRUNK_HOSTS, TRUNK_S, TRUNK_SHARE, TRUNK_RTT_S = 16, 5.0, 0.9, 3e-4  # of the campus for trunks, and their goals
# (which run, figure) -> its words, goal at 500 hosts on two processors, format; the decision is paper A's, Fig. 8
GOALS = {
    ("work", "agents_registered_s"): ("agents registered", 5.0, "{:.1f} s"),
    ("idle", "cpu_agents"): ("idle agents", 0.15, "{:.2f} processors"),
    ("idle", "memory_bytes"): ("idle memory", 1.5e9, "{:.3g} bytes"),
    ("work", "busy_share"): ("busy share", 0.6, "{:.0%}"),
    ("work", "decisions_p99_s"): ("decision, p99", 0.018, "{:.4f} s"),
    ("work", "reports_p99_s"): ("report answered, p99", 0.1, "{:.3f} s"),
    ("work", "down_s"): ("teardown", 3.0, "{:.1f} s"),
}


def scale_scenario(hosts: int, seconds: float, *, idle: bool) -> Scenario:
    """Return a campus of so many hosts for `seconds`; half of the hosts have a job, above FULL_LOAD_HOSTS a quarter."""
    buildings, on_demand = max(MIN_BUILDINGS, hosts // HOSTS_A_BUILDING), max(2, hosts // 100)
    base = demo_scenario(hosts, buildings, on_demand, max(5.0, seconds), seed=1)
    campus = presets.three_tier(
        hosts,
        buildings,
        on_demand,
        uplink_bytes_per_s=10 * GBIT_PER_S,
        on_demand_slots=min(1024, hosts),
        on_demand_model=presets.A6000,
        reserve=ResearchReserve(beta=0.3, minimum_bytes_per_s=50 * MBIT_PER_S),
        name=f"scale{hosts}",
    )
    busy_share = 0.5 if hosts <= FULL_LOAD_HOSTS else 0.25
    run_time = InverseLaw("lognormal", 300.0, 0.35, 120.0, 900.0)
    busy = max(1, round(busy_share * hosts))
    at_s, notice_s = round(seconds / 3, 1), round(min(60.0, seconds / 3), 1)
    away = [f"h{n}" for n in range(2, hosts, max(1, round(1 / BURST_SHARE)))]
    away = [name for name in away if name not in base.owners.loyal]
    burst = [OwnerEvent(at_s, name, "reclaim", notice_s) for name in away]
    returns = [OwnerEvent(at_s + notice_s + 10.0, name, "return") for name in away]
    owners = replace(
        base.owners,
        hazard_per_s=0.35 / HOUR_S,
        peaks=(),
        notice=InverseLaw("exponential", 120.0, minimum=10.0, maximum=1800.0),
        script=(*burst, *returns),
    )
    jobs = replace(
        base.jobs,
        interarrival=InverseLaw("exponential", run_time.mean() / busy),
        initial=busy,
        payload=InverseLaw("lognormal", 3.2e9, 1.2, 0.12e9, 10e9),
        run_time=run_time,
        step_s=10.0,
        loss_budget_s=900.0,
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
        protocol=Protocol(restart_s=10.0, control_period_s=10.0, lease_s=30.0, snapshots="copy", checkpoint_share=0.2),
        scale=Scale(bytes=BYTES),
    )


def measure(run: Run) -> dict[str, Any]:
    """Play each size idle and at work; what is done is written after each. CommandFailed if a run cannot be played."""
    sizes, seconds = run.hosts or SIZES, WORK_S
    if run.quick:
        sizes, seconds = run.hosts or QUICK_SIZES, QUICK_WORK_S
    if run.machines:
        from experiments.machines.rehearsal import spread as spread_over

        for hosts, machines in product(sizes, run.machines):  # what cannot be is said before an hour is spent
            spread_over(scale_scenario(hosts, seconds, idle=True).campus, machines)
    trunks = [
        {"machines": n, **in_fresh_process(__name__, TRUNK_HOSTS, TRUNK_S, "trunks", run.folder / f"trunks-{n}", n)}
        for n in run.machines
    ]
    runs: list[dict[str, Any]] = []
    for hosts in run.each(sizes, "{} hosts".format):
        found = {
            kind: in_fresh_process(__name__, hosts, length_s, kind, run.folder / f"{kind}-{hosts}")
            for kind, length_s in (("idle", IDLE_S), ("work", seconds))
        }
        spread = [
            {"machines": n, **in_fresh_process(__name__, hosts, seconds, "work", run.folder / f"on-{n}-{hosts}", n)}
            for n in run.machines
        ]
        runs.append({"hosts": hosts, **found, "spread": spread})
        write_json(run.folder / "scale.json", {"seconds": seconds, "runs": runs, "trunks": trunks})
    return {"seconds": seconds, "runs": runs, "trunks": trunks}


def goals(result: Result) -> Iterator[Goal]:
    """Yield the campus of 500 hosts beside the goals on two processors; without it the largest, not judged."""
    run = next((each for each in result["runs"] if each["hosts"] == GOAL_HOSTS), result["runs"][-1])
    for (which, key), (words, goal, shape) in GOALS.items():
        found, what = run[which].get(key, math.nan), f"{run['hosts']} hosts: {words}"
        met = found <= goal if run["work"]["valid"] else None
        yield at_size(Goal(what, f"<= {shape.format(goal)}", shape.format(found), met), run["hosts"])
    for each in result.get("trunks", ()):
        slowest, longest_s = _trunks(each)
        what = f"trunks of 2 Gbit/s between {each['machines']} machines"
        yield at_least(f"{what}: slowest, over declared", slowest, TRUNK_SHARE, "{:.3f}".format)
        yield at_most(f"{what}: round trip", longest_s, TRUNK_RTT_S, in_ms)


def _trunks(figures: Result) -> tuple[float, float]:
    """Return the lowest rate over declared of a run's trunks between machines, and the longest round trip."""
    rates, trips = (
        [value for key, value in figures.items() if key.startswith(f"trunk_{of}_")] for of in ("rate", "round_trip")
    )
    return min(rates, default=math.nan), max(trips, default=math.nan)


def play(
    hosts: int, seconds: float, kind: str, folder: Path, transfers: str = "sealed", journal: str = "sqlite"
) -> dict[str, Any]:
    """Play one run, `transfers` and `journal` as a scenario's, and return its figures. Needs root; etcd has a standby."""
    from experiments.worlds.live.run import run_live

    trust = Trust(transfers, journal, standby=journal == "etcd")
    scenario = replace(scale_scenario(hosts, seconds, idle=kind == "idle"), trust=trust)
    return _figures(run_live(scenario, generate(scenario), folder, unseen))


def play_spread(hosts: int, seconds: float, kind: str, folder: Path, machines: int) -> dict[str, Any]:
    """Play one run over so many machines, which are namespaces of this one, and return its figures. Needs root."""
    from experiments.machines.conductor import run_on_machines
    from experiments.machines.rehearsal import rehearsed, spread

    scenario = scale_scenario(hosts, seconds, idle=kind != "work")
    if kind == "trunks":
        scenario = replace(scenario, scale=Scale())
    scenario = replace(scenario, campus=spread(scenario.campus, machines))
    folder.mkdir(parents=True, exist_ok=True)
    with rehearsed(scenario.campus, folder) as address:
        return _figures(run_on_machines(scenario, generate(scenario), folder, unseen, address=address))


def _figures(played: Played) -> dict[str, Any]:
    summary = summarise(played.facts, played.context)
    figures: dict[str, Any] = dict(played.context.fidelity.figures)
    phases = {name: figures.pop(name) for name in list(figures) if name.startswith("up_")}
    down = {name: phases.pop(f"up_{name}_s") for name in DOWN_PHASES if f"up_{name}_s" in phases}
    figures |= {
        "up_s": sum(phases.values()),
        "up_phases_s": {name.removeprefix("up_"): seconds for name, seconds in phases.items()},
        "down_phases_s": down,
        "busy_share": figures.get("cpu_machine", math.nan) / (os.cpu_count() or 1),
        "memory_bytes": math.fsum(figures.get(f"memory_{part}_bytes", 0.0) for part in ("agents", "jobs")),
        "valid": played.context.fidelity.valid,
        "reasons": list(played.context.fidelity.reasons),
        "broken": [str(broken) for broken in summary.invariants_broken],
        "jobs_finished": summary.jobs.finished,
        "jobs_lost": summary.jobs.lost,
        "reclaims": summary.emergencies.count + summary.migrations.admitted + summary.migrations.degraded,
        "deaths": len(played.context.deaths),
    }
    return figures


def tables(result: Result) -> Iterator[Table | str]:
    """Yield sizes down, figures across; then reasons of invalid runs and broken rules."""
    heads = ("hosts", "up", "registered", "idle: agents", "idle: memory", "work: machine", "coordinator")
    rows = []
    for run in result["runs"]:
        idle, work = run["idle"], run["work"]
        rows.append(
            (
                f"{run['hosts']}",
                f"{work['up_s']:.2f} s",
                f"{work['agents_registered_s']:.2f} s",
                f"{idle.get('cpu_agents', math.nan):.2f}",
                f"{idle['memory_bytes'] / 1e6:.0f} MB",
                f"{work['busy_share']:.0%}",
                *(f"{work.get(f'cpu_{part}', math.nan):.2f}" for part in ("coordinator", "agents", "jobs")),
                f"{1e3 * work.get('decisions_p99_s', math.nan):.1f} ms",
                f"{1e3 * work.get('reports_p99_s', math.nan):.0f} ms",
                f"{work['down_s']:.2f} s",
                "yes" if work["valid"] and not work["broken"] else "no",
            )
        )
    yield table_of(
        f"A live campus, {result['seconds']:g} s at work",
        (*heads, "agents", "jobs", "decision p99", "report p99", "down", "valid"),
        rows,
        "coordinator, agents, jobs: processors kept busy by each",
    )
    spread = [(run, each) for run in result["runs"] for each in run.get("spread", ())]
    if spread:
        yield _spread_table(spread)
        yield _outlook_table(result["runs"])
    for run in result["runs"]:
        for each in (run["work"], *run.get("spread", ())):
            place = f" on {each['machines']} machines" if "machines" in each else ""
            for reason in (*each["reasons"], *each["broken"]):
                yield f"{run['hosts']} hosts{place}: {reason}"


def _spread_table(spread: Sequence[tuple[Result, Result]]) -> Table:
    rows = []
    for run, each in spread:
        used = [value for key, value in sorted(each.items()) if key.startswith("processors_")]
        slowest, longest_s = _trunks(each)
        rows.append(
            (
                f"{run['hosts']}",
                f"{each['machines']}",
                f"{each['agents_registered_s']:.2f} s",
                f"{each['busy_share']:.0%} / {run['work']['busy_share']:.0%}",
                ", ".join(f"{value:.2f}" for value in used),
                f"{slowest:.3f}",
                in_ms(longest_s),
                " / ".join(f"{1e3 * one.get('decisions_p99_s', math.nan):.1f}" for one in (each, run["work"])),
                "yes" if each["valid"] and not each["broken"] else "no",
            )
        )
    heads = ("hosts", "machines", "registered", "busy / on one", "processors of each", "slowest trunk", "round trip")
    note = "slowest trunk: measured over declared rate; round trip: the longest, of whole frames"
    title = "The same over machines that are namespaces of this one"
    return table_of(title, (*heads, "decision p99 / on one, ms", "valid"), rows, note)


def _outlook_table(runs: Sequence[Result]) -> Table:
    """Return what so many processors should carry if costs grow as hosts do, and what ends it."""
    processors, share, coordinator = OUTLOOK
    rows = []
    for run in runs:
        work, hosts = run["work"], run["hosts"]
        own = work["cpu_coordinator"] / hosts
        other = (work["cpu_machine"] - work["cpu_coordinator"]) / hosts
        by_machines, by_coordinator = share * (processors - 1.0) / other, coordinator / own
        ends = "the coordinator, one process" if by_coordinator < by_machines else "processors of the machines"
        rows.append(
            (f"{hosts}", f"{1e3 * other:.2f}", f"{1e3 * own:.2f}", f"{by_machines:.0f}", f"{by_coordinator:.0f}", ends)
        )
    heads = (
        "from",
        "ms of a host, with its jobs",
        "of the coordinator for it",
        "hosts by processors",
        "by coordinator",
        "ends by",
    )
    note = f"at {share:.0%} of the processors and {coordinator:.0%} of the coordinator's; ms of processor a second"
    return table_of("Computed, not measured: what 4 machines of 16 processors should carry", heads, rows, note)


if __name__ == "__main__":
    size, length, how, where, *others = sys.argv[1:]
    told = (int(size), float(length), how, Path(where))
    print(
        json.dumps(play_spread(*told, int(others[0])) if others[:1] and others[0].isdigit() else play(*told, *others))
    )
