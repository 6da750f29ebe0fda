"""The figures of `decisions` as a table on a terminal, and as a picture beside paper A's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.results.pictures import canvas

WHY_PAPER_DIFFERS = (
    "Paper A's 3 ms and 18 ms are its Fig. 8, whose coordinator, machine and load are not described; its text has Algorithm 1 "
    "at less than 0.1 ms a node, so most of it is likely to be one Python call a node. Here decisions are made on columns, and "
    "nothing that did not change is computed again."
)
COLUMNS = ("tick", "periodic_tick", "ten_reclaims", "p1", "p2", "p2_ten", "p3")


def decisions_table(result: Mapping[str, Any]) -> Table:
    """Medians and 99th percentiles in ms, a row a size; the published tick and the target beside ours."""
    growth = f"size^{result['growth_exponent']:.2f}, paper A size^{result['paper']['growth_exponent']:.2f}"
    heads = ("tick", "paper A", "goal", "periodic tick", "10 reclaims", "P1", "P2", "10 x P2", "P3")
    table = Table(
        "hosts", "jobs", *heads, title=f"ms: median (p99). Growth: {growth}", caption=_verdict_line(result)
    )
    for hosts, figures in result["sizes"].items():
        tick, *others = (_cell(figures[name]) for name in COLUMNS)
        paper, goal = (_ms(result[of]["tick_s"].get(hosts)) for of in ("paper", "targets"))
        table.add_row(str(hosts), str(figures["jobs"]), tick, paper, goal, *others)
    return table


def _cell(spread: Mapping[str, float]) -> str:
    return f"{_ms(spread['median_s'])} ({_ms(spread['p99_s'])})"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"


def _verdict_line(result: Mapping[str, Any]) -> str:
    missed = [name for name, met in result["verdict"].items() if not met]
    return "all goals met" if not missed else f"missed: {', '.join(missed)}"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Time over size, both logarithmic: ours with its 99th percentile, the goals, and what paper A printed."""
    sizes = list(result["sizes"])
    with canvas(path, 1, 1, (7.5, 4.8)) as (_, [[axes]]):
        lines = (("tick", "#2f6f9f", "o", "one tick: P1, P2, P3"), ("p2", "#5a9a5a", "s", "P2 alone"))
        for name, colour, marker, label in lines:
            medians, tails = (
                [result["sizes"][n][name][key] * 1e3 for n in sizes] for key in ("median_s", "p99_s")
            )
            axes.plot(sizes, medians, color=colour, marker=marker, label=f"{label}, median")
            axes.fill_between(
                sizes, medians, tails, color=colour, alpha=0.2, linewidth=0, label="to the 99th percentile"
            )
        paper, goals = result["paper"]["tick_s"], result["targets"]["tick_s"]
        axes.plot(
            list(paper), [s * 1e3 for s in paper.values()], "D--", color="#b5652b", label="paper A, Fig. 8"
        )
        axes.plot(
            list(goals), [s * 1e3 for s in goals.values()], "_", color="#a02020", markersize=22, label="goal"
        )
        axes.set(xscale="log", yscale="log", xlabel="hosts (a job on each second one)", ylabel="ms")
        axes.set_title(f"The coordinator's tick grows like size^{result['growth_exponent']:.2f}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
