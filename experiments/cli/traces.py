"""`reclaimnet traces`: a trace, what it achieved of the paper's measurements, and its files, to change and to play again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.inputs.scenario import Scenario, load
from experiments.inputs.traces.achieved import achieved
from experiments.inputs.traces.doubts import tell
from experiments.inputs.traces.generated import generate
from experiments.inputs.traces.paper_campus import paper_campus
from experiments.inputs.traces.recorded import load_trace
from experiments.inputs.traces.trace import Trace
from experiments.inputs.traces.trace_file import SCENARIO, write_trace


def make_traces(
    console: Console,
    out: Path,
    *,
    seed: int | None,
    days: float,
    scenario: str | None,
    records: Sequence[Path] = (),
) -> None:
    """Paper A's campus, or the trace of a scenario file, or a record fitted to either. SpecError: none of them can be made."""
    if scenario is None:
        described, trace = paper_campus(1 if seed is None else seed, days=days)
    else:
        described = load(scenario)
        described = described if seed is None else replace(described, seed=seed)
        trace = generate(described)
    if records:
        trace = load_trace(records[0], described, *records[1:])
    console.print(statistics_table(described, trace))
    tell(console, trace.warnings)
    for file in write_trace(out, described, trace):
        console.print(file, highlight=False)
    console.print(f"play it: reclaimnet simulate {out / SCENARIO} --trace {out}", highlight=False)


def statistics_table(scenario: Scenario, trace: Trace) -> Table:
    """The paper's figure, the law's and the trace's, side by side."""
    table = Table(
        "where", "statistic", "paper A", "law", "this trace", "", title=f"{scenario.name}: {trace.origin}"
    )
    for column in table.columns[2:5]:
        column.justify = "right"

    def told(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"

    for each in achieved(scenario, trace):
        figures = map(told, (each.paper, each.law, each.achieved))
        table.add_row(each.finding, each.name, *figures, each.unit)
    return table
