"""What the benchmark says on a terminal. The JSON beside it has everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table


def queue_table(result: Mapping[str, Any]) -> Table:
    """Jobs a second of each simulator, who decided otherwise, and how far each mean is from theory."""
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
                case if place == 0 else "", name, f"{row['jobs']:,}", *rates, otherwise, _errors(row)
            )
        table.add_section()
    return table


def verdicts(result: Mapping[str, Any]) -> Iterator[str]:
    """One line a goal, one a thing left out."""
    met, goal, worst = result["met"], result["targets"], result["worst"]
    yield (
        f"paper's policy, draws included: at least {result['slowest_jobs_per_cpu_s'] / 1e6:.1f} M jobs/s "
        f"(goal {goal['jobs_per_cpu_s'] / 1e6:g} M): {_word(met['speed'])}"
    )
    yield (
        f"theory, {len(result['agreement'])} cases: at most {_errors(worst)} away, at {worst['family']}, "
        f"{worst['case']} (goal {goal['errors']:g} SE): {_word(met['agreement'])}"
    )
    yield from (f"{name} cannot say: {what}" for name, what in result["cannot_say"].items())
    yield from (f"left out, not installed: {name}" for name in result["not_installed"])


def _errors(row: Mapping[str, Any]) -> str:
    return f"{row['errors']:.2f} SE"


def _word(is_met: bool) -> str:
    return "met" if is_met else "missed"
