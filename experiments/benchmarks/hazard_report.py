"""The figures of `hazard` as a table on a terminal, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.results.pictures import canvas

COLOURS = ("#9a9a9a", "#2f6f9f", "#c0703a", "#3f8f4f", "#d0b000")


def hazard_table(result: Mapping[str, Any]) -> Table:
    """A row a history, a column a forecast: nats an emergency more than one rate for all."""
    names = list(result["total"])
    title = f"Held-out days: nats an emergency more than '{names[0]}' [90 %]; window {result['window_days']:g} days"
    table = Table(
        "history", "days", "emergencies", *names[1:], "the truth", title=title, caption=_verdict(result)
    )
    for record, of in result["records"].items():
        found = of["forecasts"]
        cells = [_cell(found.get(name)) for name in (*names[1:], "the truth")]
        table.add_row(record, str(of["days"]), str(of["emergencies"]), *cells)
    return table


def _cell(gain: Mapping[str, float] | None) -> str:
    return "" if gain is None else f"{gain['each']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]"


def _verdict(result: Mapping[str, Any]) -> str:
    nats = ", ".join(f"{name} {total:+.0f}" for name, total in result["total"].items())
    same = (
        "as the coordinator's"
        if result["best"] == result["default"]
        else f"the coordinator's is {result['default']}"
    )
    return f"nats over all histories: {nats}. Best: {result['best']}, {same}"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Gains with their intervals, a row a history."""
    records = list(result["records"].items())
    names = [*result["total"], "the truth"]
    with canvas(path, 1, 1, (8.0, 1.4 + 0.45 * len(records))) as (_, [[axes]]):
        for order, (name, colour) in enumerate(zip(names, COLOURS, strict=True)):
            rows = [
                (y, of["forecasts"][name]) for y, (_, of) in enumerate(records) if name in of["forecasts"]
            ]
            shifted = [y + 0.15 * (order - 2) for y, _ in rows]
            axes.hlines(shifted, [g["low"] for _, g in rows], [g["high"] for _, g in rows], color=colour)
            axes.plot([g["each"] for _, g in rows], shifted, "o", color=colour, markersize=4, label=name)
        axes.set_yticks(
            range(len(records)), [f"{name}\n({of['emergencies']})" for name, of in records], fontsize=8
        )
        axes.invert_yaxis()
        axes.axvline(0.0, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.set_xlabel("log-likelihood of held-out days, nats an emergency more than one rate for all")
        axes.legend(fontsize=8)
