"""The benchmark as a picture: jobs a second of each simulator, and the distance of every case from theory."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from experiments.results.pictures import canvas

OURS, PEER = "#2f6f9f", "#b5652b"
LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.9}


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Two panels: speed on a log scale, agreement in standard errors."""
    title = f"Paper B's queue, simulated: {result['machine']['processor']}, one core"
    with canvas(path, 1, 2, (14, 6), title, width_ratios=[1, 1.1]) as (_, [[left, right]]):
        _draw_speed(left, result)
        _draw_agreement(right, result)


def _draw_speed(axes: Any, result: Mapping[str, Any]) -> None:
    systems = list(next(iter(result["speed"].values())))
    height = 0.8 / len(result["speed"])
    for place, (case, rows) in enumerate(result["speed"].items()):
        for line, name in enumerate(systems):
            rate = rows[name]["jobs_per_cpu_s"]
            y = line + (place - (len(result["speed"]) - 1) / 2) * height
            axes.barh(
                y, rate, height * 0.9, color=OURS if name.startswith("ours") else PEER, alpha=1 - 0.18 * place
            )
            axes.annotate(
                f" {case}  {_rate(rate)}",
                (rate, y),
                va="center",
                fontsize=7.5,
                color="#333333",
                zorder=3,
                bbox=LABEL,
            )
    goal = result["targets"]["jobs_per_cpu_s"]
    axes.axvline(goal, color="#3a8a45", linewidth=1)
    axes.annotate(f"goal {_rate(goal)} ", (goal, -0.62), ha="right", fontsize=8, color="#3a8a45")
    axes.set_xscale("log")
    axes.set_xlim(1e4, 2e9)
    axes.set_ylim(len(systems) - 0.4, -0.75)
    axes.set_yticks(range(len(systems)), [name.replace(", ", ",\n") for name in systems], fontsize=9)
    axes.set_xlabel("jobs per second of processor time (log)")
    axes.set_title("Speed; histories are given to all rows but the first", fontsize=10)


def _draw_agreement(axes: Any, result: Mapping[str, Any]) -> None:
    families = [(name, list(rows)) for name, rows in groupby(result["agreement"], lambda row: row["family"])]
    for line, (_, rows) in enumerate(families):
        for exact, mean, color, above in (
            ("exact_cost", "cost", OURS, -0.13),
            ("exact_delay_h", "delay_h", PEER, 0.13),
        ):
            distances = [_distance(row[mean], row[exact]) for row in rows]
            label = {"cost": "mean cost", "delay_h": "mean delay"}[mean] if line == 0 else None
            axes.scatter(distances, [line + above] * len(rows), s=22, color=color, alpha=0.7, label=label)
    limit = result["targets"]["errors"]
    axes.axvspan(-limit, limit, color="#e6f2e7", zorder=0)
    axes.axvline(0.0, color="#999999", linewidth=0.8)
    axes.set_xlim(-limit - 1, limit + 1)
    axes.set_yticks(
        range(len(families)), [f"{name}\n{len(rows)} cases" for name, rows in families], fontsize=9
    )
    axes.invert_yaxis()
    axes.set_xlabel("simulated less exact, in standard errors (green: within four)")
    axes.set_title(f"Agreement with theory, {result['jobs']['case'] / 1e6:g} M jobs a case", fontsize=10)
    axes.legend(fontsize=8, loc="lower right")


def _distance(mean: tuple[float, float], exact: float) -> float:
    value, error = mean
    return (value - exact) / error if error else 0.0


def _rate(jobs_per_s: float) -> str:
    return f"{jobs_per_s / 1e6:.3g} M/s" if jobs_per_s >= 1e6 else f"{jobs_per_s / 1e3:.3g} k/s"
