"""What the benchmarks say on a terminal, a table each. The JSON beside has everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from experiments.benchmarks.goals import in_ms
from topologies.units import MBIT_PER_S

BASE = "age"  # the controller that others are set beside

VIRTUAL = (
    "jobs",
    "reclaims",
    "flows",
    "processor",
    "of it the run",
    "events/s",
    "memory",
    "sha256 of events.jsonl",
)
WHY_PAPER_DIFFERS = (
    "Paper A's 3 ms and 18 ms are its Fig. 8, whose coordinator, machine and load are not described; its text has Algorithm 1 "
    "at less than 0.1 ms a node, so most of it is likely to be one Python call a node. Here decisions are made on columns, and "
    "nothing that did not change is computed again."
)
DECISIONS = ("tick", "periodic_tick", "ten_reclaims", "p1", "p2", "p2_ten", "p3")
LOST = ("lost_per_s", "lost_to_first", "lost_to_first_where_kept", "stopped_per_s", "stopped_to_second")


def bringup_table(result: Mapping[str, Any]) -> Table:
    """Up and down of ours, of stock Mininet, and of bare namespaces and veths; then where our time goes."""
    table = Table(
        "", "up", "down", "memory of processes", title=f"{result['hosts']} hosts, {result['cpus']} cores"
    )
    for name in ("ours", "stock", "floor"):
        if measured := result.get(name):
            memory = measured.get("process_memory_bytes")
            size = f"{memory / 1e6:.0f} MB" if memory else ""
            table.add_row(name, f"{measured['up_s']:.2f} s", f"{measured['down_s']:.2f} s", size)
    if faster := result.get("times_faster"):
        goal = result["targets"]
        table.add_section()
        table.add_row(
            "stock / ours",
            f"{faster['up']:.1f} (goal {goal['up']:g})",
            f"{faster['down']:.1f} (goal {goal['down']:g})",
        )
    table.add_section()
    for phase, spent_s in sorted(result["ours"]["up_phases_s"].items(), key=lambda item: -item[1]):
        table.add_row(f"  {phase}", f"{spent_s:.3f} s")
    return table


def rates_table(result: Mapping[str, Any]) -> Table:
    """Goodput over grant, least and greatest of the flows, drops, and research's part of what the grants leave."""
    table = Table("setting", "system", "goodput / grant", "bucket drops", "research / rest", "goal")
    for setting, systems in result["settings"].items():
        label = setting
        for name, measured in systems.items():
            ratios = [flow["goodput_over_grant"] for flow in measured["flows"]]
            research = measured.get("research")
            rest = f"{research['goodput_over_rest']:.2f}" if research else ""
            met = "met" if result["verdict"][setting][name] else ""
            spread = f"{min(ratios):.3f}" if len(ratios) == 1 else f"{min(ratios):.3f} - {max(ratios):.3f}"
            table.add_row(label, name, spread, str(measured["bucket_drops"]), rest, met)
            label = ""
        table.add_section()
    return table


def rises_table(result: Mapping[str, Any]) -> Table:
    """How far a flow is behind a grant that follows one of nothing: parked, as ours are, and paced to (almost) nothing."""
    title = f"A grant, nothing for {result['nothing_s']:g} s, the grant again: by how much it is behind half a second's bytes"
    ways = list(result["rises"][0]["behind_s"])
    table = Table("grant", "congestion control", *ways, title=title)
    for rise in result["rises"]:
        grant = f"{rise['grant_bytes_per_s'] / MBIT_PER_S:g} Mbit/s"
        spans = [f"{in_ms(min(rise['behind_s'][way]))} - {in_ms(max(rise['behind_s'][way]))}" for way in ways]
        table.add_row(grant, rise["congestion"], *spans)
    return table


def decisions_table(result: Mapping[str, Any]) -> Table:
    """Medians and 99th percentiles in ms, a row a size; the published tick and the target beside ours."""
    growth = f"size^{result['growth_exponent']:.2f}, paper A size^{result['paper']['growth_exponent']:.2f}"
    missed = [name for name, met in result["verdict"].items() if not met]
    heads = ("tick", "paper A", "goal", "periodic tick", "10 reclaims", "P1", "P2", "10 x P2", "P3")
    title = f"ms: median (p99). Growth: {growth}"
    caption = "all goals met" if not missed else f"missed: {', '.join(missed)}"
    table = Table("hosts", "jobs", *heads, title=title, caption=caption)
    for hosts, figures in result["sizes"].items():
        spreads = [figures[name] for name in DECISIONS]
        tick, *others = (f"{_ms(spread['median_s'])} ({_ms(spread['p99_s'])})" for spread in spreads)
        paper, goal = (_ms(result[of]["tick_s"].get(hosts)) for of in ("paper", "targets"))
        table.add_row(str(hosts), str(figures["jobs"]), tick, paper, goal, *others)
    return table


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"


def queue_table(result: Mapping[str, Any]) -> Table:
    """Jobs a second of each simulator, how many jobs it decided otherwise, and how far each mean is from theory."""
    title = f"Paper B's queue, {result['machine']['processor']}, one core, best of {result['rounds']}"
    table = Table(
        "case",
        "simulator",
        "jobs",
        "jobs/s, processor",
        "jobs/s, wall",
        "otherwise",
        "from theory",
        title=title,
    )
    for case, rows in result["speed"].items():
        for place, (name, row) in enumerate(rows.items()):
            rates = (f"{row[key]:,.0f}" for key in ("jobs_per_cpu_s", "jobs_per_s"))
            otherwise = str(row.get("differing_jobs", ""))
            table.add_row(
                case if place == 0 else "",
                name,
                f"{row['jobs']:,}",
                *rates,
                otherwise,
                f"{row['errors']:.2f} SE",
            )
        table.add_section()
    return table


def queue_verdicts(result: Mapping[str, Any]) -> Iterator[str]:
    """One line a goal, one a thing left out."""
    met, goal, worst = result["met"], result["targets"], result["worst"]
    said = {True: "met", False: "missed"}
    yield (
        f"paper's policy, draws included: at least {result['slowest_jobs_per_cpu_s'] / 1e6:.1f} M jobs/s "
        f"(goal {goal['jobs_per_cpu_s'] / 1e6:g} M): {said[met['speed']]}"
    )
    yield (
        f"theory, {len(result['agreement'])} cases: at most {worst['errors']:.2f} SE away, at {worst['family']}, "
        f"{worst['case']} (goal {goal['errors']:g} SE): {said[met['agreement']]}"
    )
    yield from (f"{name} cannot say: {what}" for name, what in result["cannot_say"].items())
    yield from (f"left out, not installed: {name}" for name in result["not_installed"])
