"""The figures of `virtual` on a terminal, goals beside what was measured, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks.virtual import MeasuredRun
from experiments.results.pictures import canvas

HEADS = (
    "jobs",
    "reclaims",
    "flows",
    "processor",
    "of it the run",
    "events/s",
    "memory",
    "sha256 of events.jsonl",
)


def progress_line(run: MeasuredRun) -> str:
    """One run that is over."""
    case = run.case
    what = f"{case.system}, {case.hosts} hosts, {case.days:g} days, {case.jobs:g} x jobs"
    how = "" if run.native else ", as Python"
    return f"{what}{how}: {run.cpu_s:.1f} s, {run.flows} flows, {run.events_per_s:,.0f} events/s"


def virtual_table(result: Mapping[str, Any]) -> Table:
    """A row a run, the goals in the caption."""
    table = Table("", *HEADS, title="the virtual world", caption=_caption(result))
    for name, run in result["systems"].items():
        table.add_row(f"{name}, {run['case']['days']:g} days", *_cells(run))
    all_s = result["all_systems_cpu_s"]
    table.add_row(f"all {len(result['systems'])} systems", "", "", "", f"{all_s:.1f} s")
    table.add_section()
    for run in result["by_hosts"]:
        table.add_row(f"{run['case']['hosts']} hosts, {run['case']['days']:g} days", *_cells(run))
    table.add_section()
    for run in result["by_flows"]:
        table.add_row(f"{run['case']['jobs']:g} x jobs, {run['case']['days']:g} days", *_cells(run))
    return table


def _cells(run: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(run["jobs"]),
        str(run["reclaims"]),
        str(run["flows"]),
        f"{run['cpu_s']:.1f} s",
        f"{run['run_s']:.1f} s",
        f"{run['events_per_s']:,.0f}",
        f"{run['memory_bytes'] / 1e6:.0f} MB",
        run["sha256"][:16],
    )


def _caption(result: Mapping[str, Any]) -> str:
    goals = result["targets"]
    lines = [
        f"goals: one system {goals['one_system_cpu_s']:g} s, all {goals['all_systems_cpu_s']:g} s, "
        f"500 hosts for a week {goals['week_of_500_hosts_cpu_s']:g} s, {goals['memory_bytes'] / 1e6:g} MB"
    ]
    lines.append(f"one system, run by run: {', '.join(f'{s:.1f}' for s in result['one_system_cpu_s'])} s")
    lines.append(f"the same as Python: {result['one_system_as_python']['cpu_s']:.1f} s")
    if result["not_native"] is not None:
        lines.append(f"all as Python, since the machine code could not be built: {result['not_native']}")
    lines += [
        f"grows like {size}^{growth['exponent']:.2f} (R2 {growth['determination']:.3f})"
        for size, growth in result["growth"].items()
        if growth is not None
    ]
    if verdict := result["verdict"]:
        missed = [name for name, met in verdict.items() if not met]
        lines.append("all goals met" if not missed else f"missed: {', '.join(missed)}")
    return "\n".join(lines)


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Three panels: systems beside their goal, growth with hosts, growth with flows."""
    with canvas(path, 1, 3, (13.5, 4.4)) as (_, [[left, middle, right]]):
        goals, systems = result["targets"], result["systems"]
        left.barh(list(systems), [run["cpu_s"] for run in systems.values()], color="#2f6f9f")
        left.invert_yaxis()
        left.set_title(f"All {len(systems)} together {result['all_systems_cpu_s']:.0f} s")
        left.set_xlabel("s of one core")
        _grow(middle, [(run["case"]["hosts"], run["cpu_s"]) for run in result["by_hosts"]], "hosts", result)
        _grow(right, [(run["flows"], run["cpu_s"]) for run in result["by_flows"]], "flows", result)
        if result["verdict"]:
            tries_s = result["one_system_cpu_s"]
            left.plot(
                tries_s, [len(systems) - 1] * len(tries_s), "o", color="black", markersize=4, label="its runs"
            )
            goal = f"goal for the fastest run of {list(systems)[-1]}"
            left.axvline(goals["one_system_cpu_s"], color="#a02020", linestyle="--", label=goal)
            left.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.0, -0.12), ncols=2)
            left.set_title(f"{left.get_title()} (goal {goals['all_systems_cpu_s']:g} s)")
            week = goals["week_of_500_hosts_cpu_s"]
            middle.plot([500], [week], "_", color="#a02020", markersize=22, label="goal")
            middle.legend(fontsize=8)


def _grow(axes: Any, points: Sequence[tuple[float, float]], size: str, result: Mapping[str, Any]) -> None:
    axes.plot(*zip(*points, strict=True), "o-", color="#2f6f9f", label="measured")
    axes.set(xscale="log", yscale="log", xlabel=size, ylabel="s of one core")
    axes.set_xticks([x for x, _ in points], [f"{x:,g}" for x, _ in points])
    axes.minorticks_off()
    growth = result["growth"][size]
    axes.set_title(f"Grows like {size}^{growth['exponent']:.2f}" if growth else size)
    axes.grid(alpha=0.3)
