"""How quick the virtual world is: paper A's two months, all systems, larger campuses, more checkpoint traffic.

Each run is a process of its own, one after the other, so that its processor time and its memory are its own; what is
counted is processor time of one core (the machine may be busy), of the trace, the run and its summary together, without
the start of Python. The modules that an event passes through are machine code, which is built first if
need be; the one system that has a goal of its own is run as Python, too, which must give the same journal. Others that share the
machine's caches make a run slower, by a third at times, and none makes it quicker: so that system is run ONE_SYSTEM_TRIES
times, and the fastest is held against its goal. A larger campus has jobs and reclaims in proportion; *flows* are transfers of
checkpoints, and there are more of them where more jobs run.
Exponents are slopes of log time over log size by least squares, with the coefficient of determination beside them.

Every run carries the hash of its journal, which is that of `events.jsonl`: the same seed gives the same one.
"""

from __future__ import annotations

import math
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from controller.core.model import facts as f
from controller.core.policies.table import SYSTEMS
from controller.warm_up import rehearse
from experiments.benchmarks.results import write_result
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import generate
from experiments.inputs.traces.paper_campus import DAYS, paper_scenario
from experiments.results.events_file import digest
from experiments.results.pictures import BAD, INK, OURS, canvas
from experiments.runtime import native
from experiments.runtime.workers import workers
from experiments.worlds.virtual.run import simulate
from topologies.presets import three_tier
from topologies.spec import Campus

PAPER_HOSTS = 54  # 53 volunteers and a coordinator
HOSTS = (54, 125, 250, 500)
LARGE, LARGE_DAYS = (500, 1000, 2000, 5000), 1.0  # campuses on which growth is judged
HOSTS_A_BUILDING = 14  # as in paper A's campus
JOB_FACTORS = (1.0, 2.0, 4.0, 8.0)  # times the paper's jobs
WEEK = 7.0  # days
ONE_SYSTEM_TRIES = 3
QUICK_DAYS, QUICK_HOSTS = 2.0, (54, 125)
TARGETS = {
    "one_system_cpu_s": 4.0,
    "all_systems_cpu_s": 90.0,
    "week_of_500_hosts_cpu_s": 10.0,
    "exponent_of_large": 1.2,
    "memory_bytes": 500e6,
}


@dataclass(frozen=True, slots=True)
class VirtualCase:
    """One run: a system on `hosts` hosts for `days` days, with `jobs` times the jobs of the paper's campus."""

    system: str = SYSTEMS[-1]
    hosts: int = PAPER_HOSTS
    days: float = DAYS
    jobs: float = 1.0
    seed: int = 1
    facts_on_disk: bool = False


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What a case took. Seconds are processor time; `run_s` is the virtual run alone; `memory_bytes` is the process's peak."""

    case: VirtualCase
    cpu_s: float
    run_s: float
    memory_bytes: int
    jobs: int
    reclaims: int
    events: int
    facts: int
    flows: int
    sha256: str
    native: bool  # of machine code

    @property
    def events_per_s(self) -> float:
        """Events in a second of the run's processor time."""
        return self.events / self.run_s


@dataclass(frozen=True, slots=True)
class Growth:
    """time ~ size^exponent; `determination` is R^2 of the fit in logarithms."""

    exponent: float
    determination: float

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Growth:
        """Fit (size, seconds), at least two different sizes."""
        x, y = ([math.log(point[axis]) for point in points] for axis in (0, 1))
        slope = statistics.linear_regression(x, y).slope
        spread = len(points) > 2 and len(set(y)) > 1
        return cls(slope, statistics.correlation(x, y) ** 2 if spread else 1.0)


def measure_virtual(
    out: Path,
    *,
    hosts: Sequence[int] = HOSTS,
    quick: bool = False,
    seed: int = 1,
    progress: Callable[[MeasuredRun], None] = lambda run: None,
) -> dict[str, Any]:
    """Measure everything; write virtual.json and virtual.svg to `out`, return what the JSON holds.

    Some five minutes; `quick` takes two days instead of 61 and of a week, and judges nothing.
    """
    days, week = (QUICK_DAYS, QUICK_DAYS) if quick else (DAYS, WEEK)
    sizes = QUICK_HOSTS if quick else tuple(sorted(set(hosts)))
    factors = JOB_FACTORS[:2] if quick else JOB_FACTORS

    def done(case: VirtualCase) -> MeasuredRun:
        run = alone(case)
        progress(run)
        return run

    lacking = native.ensure()
    systems = {system: done(VirtualCase(system, days=days, seed=seed)) for system in SYSTEMS}
    ours = systems[SYSTEMS[-1]]
    again = [done(ours.case) for _ in range(0 if quick else ONE_SYSTEM_TRIES - 1)]
    tries_s = [run.cpu_s for run in (ours, *again)]
    as_python = alone(ours.case, as_python=True)
    progress(as_python)
    by_hosts = [done(VirtualCase(hosts=n, days=week, seed=seed)) for n in sizes]
    by_large = [] if quick else [done(VirtualCase(hosts=n, days=LARGE_DAYS, seed=seed)) for n in LARGE]
    on_disk = done(replace(ours.case, facts_on_disk=True))
    by_flows = [done(VirtualCase(days=week, jobs=factor, seed=seed)) for factor in factors]
    result: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
        "systems": {name: _figures(run) for name, run in systems.items()},
        "all_systems_cpu_s": sum(run.cpu_s for run in systems.values()),
        "by_hosts": [_figures(run) for run in by_hosts],
        "by_large": [_figures(run) for run in by_large],
        "by_flows": [_figures(run) for run in by_flows],
        "growth": {
            "hosts": _growth([(run.case.hosts, run.cpu_s) for run in by_hosts]),
            "large": _growth([(run.case.hosts, run.cpu_s) for run in by_large]),
            "flows": _growth([(run.flows, run.cpu_s) for run in by_flows]),
        },
    }
    result["facts_on_disk"] = _figures(on_disk)
    result["one_system_cpu_s"] = tries_s
    result["one_system_as_python"] = _figures(as_python)
    result["not_native"] = lacking
    result["targets"] = TARGETS
    same = {
        "the journal that Python has": as_python.sha256 == ours.sha256,
        "the journal with its facts on disk": on_disk.sha256 == ours.sha256,
    }
    result["verdict"] = {} if quick else {**verdict(systems, by_hosts, min(tries_s), by_large), **same}
    write_result(out / "virtual.json", result)
    draw(result, out / "virtual.svg")
    return result


def alone(case: VirtualCase, *, as_python: bool = False) -> MeasuredRun:
    """The case in a process of its own; of machine code, where it is built."""
    with workers(1, prefer_native=not as_python) as pool:
        return pool.submit(play, case).result()


def play(case: VirtualCase) -> MeasuredRun:
    """The case in this process; its peak memory is that of all that the process ever did."""
    rehearse()  # compiled code is read from disk, at worst made
    began_s = time.process_time()
    scenario = scenario_of(case)
    trace = generate(scenario)
    ready_s = time.process_time()
    run = simulate(scenario, trace, system=case.system, facts_on_disk=case.facts_on_disk)
    ran_s = time.process_time()
    run.summary()
    over_s = time.process_time()
    return MeasuredRun(
        case,
        over_s - began_s,
        ran_s - ready_s,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        len(trace.arrivals),
        sum(event.kind == "reclaim" for event in trace.owner_events),
        run.events,
        len(run.facts),
        sum(isinstance(fact, f.TransferFinished) for _, fact in run.facts),
        digest(run.facts),
        native.is_preferred(),
    )


def scenario_of(case: VirtualCase) -> Scenario:
    """Paper A's campus, or one of another size with jobs and reclaims in proportion."""
    scenario = paper_scenario(case.seed, days=case.days)
    campus = scenario.campus if case.hosts == PAPER_HOSTS else campus_of(case.hosts)
    size = (case.hosts - 1) / (PAPER_HOSTS - 1)
    jobs, owners = scenario.jobs, scenario.owners
    assert jobs.count is not None
    assert owners.count is not None
    count = max(1, round(jobs.count * size * case.jobs))
    return replace(
        scenario,
        campus=campus,
        jobs=replace(jobs, count=count, work_s=jobs.work_s * count / jobs.count),
        owners=replace(owners, count=max(1, round(owners.count * size))),
    )


def campus_of(hosts: int) -> Campus:
    """A campus of so many hosts, the coordinator among them, with buildings of the size of the paper's."""
    volunteers = hosts - 1
    return three_tier(volunteers, max(1, round(volunteers / HOSTS_A_BUILDING)))


def verdict(
    systems: Mapping[str, MeasuredRun],
    by_hosts: Sequence[MeasuredRun],
    one_system_s: float,
    by_large: Sequence[MeasuredRun] = (),
) -> dict[str, bool]:
    """Goal -> whether it was met. A goal that was not measured is not there."""
    most = max((run.memory_bytes for run in [*systems.values(), *by_hosts]), default=0)
    met = {
        "one system, 61 days": one_system_s <= TARGETS["one_system_cpu_s"],
        "all systems, 61 days": sum(r.cpu_s for r in systems.values()) <= TARGETS["all_systems_cpu_s"],
        "memory": most <= TARGETS["memory_bytes"],
    }
    large = [run.cpu_s for run in by_hosts if run.case.hosts == HOSTS[-1]]
    if large:
        met["500 hosts, a week"] = max(large) <= TARGETS["week_of_500_hosts_cpu_s"]
    if growth := _growth([(run.case.hosts, run.cpu_s) for run in by_large]):
        met["growth to 5 000 hosts"] = growth["exponent"] <= TARGETS["exponent_of_large"]
    return met


def _figures(run: MeasuredRun) -> dict[str, Any]:
    return {**asdict(run), "events_per_s": run.events_per_s}


def _growth(points: Sequence[tuple[float, float]]) -> dict[str, float] | None:
    """The growth; None where there are fewer than two sizes."""
    return asdict(Growth.of(points)) if len({size for size, _ in points}) > 1 else None


def progress_line(run: MeasuredRun) -> str:
    """One run that is over."""
    case = run.case
    what = f"{case.system}, {case.hosts} hosts, {case.days:g} days, {case.jobs:g} x jobs"
    how = "" if run.native else ", as Python"
    how += ", facts on disk" if case.facts_on_disk else ""
    return f"{what}{how}: {run.cpu_s:.1f} s, {run.flows} flows, {run.events_per_s:,.0f} events/s"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Three panels: systems beside their goal, growth with hosts, growth with flows."""
    with canvas(path, 1, 3, (13.5, 4.4)) as (_, [[left, middle, right]]):
        goals, systems = result["targets"], result["systems"]
        left.barh(list(systems), [run["cpu_s"] for run in systems.values()], color=OURS)
        left.invert_yaxis()
        together = f"All {len(systems)} together {result['all_systems_cpu_s']:.0f} s"
        left.set_title(together)
        left.set_xlabel("s of one core")
        _grow(middle, [(run["case"]["hosts"], run["cpu_s"]) for run in result["by_hosts"]], "hosts", result)
        _grow(right, [(run["flows"], run["cpu_s"]) for run in result["by_flows"]], "flows", result)
        if result["verdict"]:
            tries_s = result["one_system_cpu_s"]
            left.plot(
                tries_s, [len(systems) - 1] * len(tries_s), "o", color=INK, markersize=4, label="its runs"
            )
            goal = f"goal for the fastest run of {list(systems)[-1]}"
            left.axvline(goals["one_system_cpu_s"], color=BAD, linestyle="--", label=goal)
            left.legend(loc="upper left", bbox_to_anchor=(0.0, -0.12), ncols=2)
            left.set_title(f"{together} (goal {goals['all_systems_cpu_s']:g} s)")
            week = goals["week_of_500_hosts_cpu_s"]
            middle.plot([500], [week], "_", color=BAD, markersize=22, label="goal")
            middle.legend()


def _grow(axes: Any, points: Sequence[tuple[float, float]], size: str, result: Mapping[str, Any]) -> None:
    axes.plot(*zip(*points, strict=True), "o-", color=OURS, label="measured")
    axes.set(xscale="log", yscale="log", xlabel=size, ylabel="s of one core")
    axes.set_xticks([x for x, _ in points], [f"{x:,g}" for x, _ in points])
    axes.minorticks_off()
    growth = result["growth"][size]
    axes.set_title(f"Grows like {size}^{growth['exponent']:.2f}" if growth else size)
    axes.grid()
