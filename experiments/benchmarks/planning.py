"""The rows of P1 and of P2 side by side, and that the default of each is the one that measures best (P3: `admission`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.benchmarks.planning_epochs import measure_epochs, settings
from experiments.benchmarks.planning_moves import measure_moves
from experiments.benchmarks.results import write_result


def measure_planning(out: Path, *, quick: bool = False) -> dict[str, Any]:
    """Measure both; writes planning.json and returns what it holds. About a minute; `quick` a few seconds."""
    epochs, jobs = (60, 150) if quick else (1000, 3000)
    result: dict[str, Any] = {
        "epochs": epochs,
        "checkpoints": {name: measure_epochs(epochs, draw) for name, draw in settings().items()},
        "jobs": jobs,
        "destinations": measure_moves(jobs),
    }
    write_result(out / "planning.json", result)
    return result
