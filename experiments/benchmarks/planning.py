"""The rows of P1 and of P2 side by side, and that the default of each is the one that measures best (P3: `admission`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks.planning_epochs import measure_epochs, settings
from experiments.benchmarks.planning_moves import measure_moves

LOST = ("lost_per_s", "lost_to_first", "lost_to_first_where_kept", "stopped_per_s", "stopped_to_second")


def measure_planning(out: Path, *, quick: bool = False) -> dict[str, Any]:
    """Measure both; writes planning.json and returns what it holds. About a minute; `quick` a few seconds."""
    epochs, jobs = (60, 150) if quick else (1000, 3000)
    result: dict[str, Any] = {
        "epochs": epochs,
        "checkpoints": {name: measure_epochs(epochs, draw) for name, draw in settings().items()},
        "jobs": jobs,
        "destinations": measure_moves(jobs),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "planning.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def checkpoints_table(result: Mapping[str, Any]) -> Table:
    """P1: a row a setting and planner."""
    heads = (
        "setting",
        "planner",
        "epochs with a broken promise",
        "jobs with one",
        "lost, s/s",
        "to the first",
        "where all is kept",
        "if writes stopped jobs",
        "to the second",
    )
    table = Table(*heads, title=f"P1 on {result['epochs']} random epochs; the default is the first")
    for setting, planners in result["checkpoints"].items():
        label = setting
        for name, of in planners.items():
            shares = (f"{of['epochs_broken']:.0%}", f"{of['jobs_broken']:.0%}")
            lost = (of[key] for key in LOST)
            table.add_row(label, name, *shares, *(f"{value:.3f}" for value in lost))
            label = ""
        table.add_section()
    return table


def destinations_table(result: Mapping[str, Any]) -> Table:
    """P2: a row a rule."""
    heads = ("rule", "under way a job", "moves a job", "more than the first [90 %]")
    table = Table(
        *heads, title=f"P2 on {result['jobs']} random jobs until they are done; the default is the first"
    )
    for name, of in result["destinations"].items():
        more = f"{of['more']:+.1%} [{of['low']:+.1%}, {of['high']:+.1%}]"
        table.add_row(name, f"{of['under_way_s']:.1f} s", f"{of['moves']:.2f}", more)
    return table
