"""What the benchmarks say on a terminal. The JSON beside has everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table


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


def packets_table(result: Mapping[str, Any]) -> Table:
    """Nanoseconds a packet, the harness taken off."""
    title = f"ns a packet in the kernel; {result['harness_ns']} ns of test harness taken off"
    table = Table("program", "ns", "goal", title=title)
    for name, cost_ns in result["packet_ns"].items():
        table.add_row(name, str(cost_ns), f"< {result['targets_ns'][name.split()[0]]}")
    return table
