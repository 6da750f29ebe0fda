"""`reclaimnet simulate --draw-only`: a trace, its figures beside those of paper A, and its files, to change and to play again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.cli.simulate import described_with_trace
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces.achieved import achieved
from experiments.inputs.traces.trace import Trace
from experiments.inputs.traces.trace_file import SCENARIO, write_trace
from experiments.inputs.traces.trace_warnings import tell


def draw(
    console: Console, out: Path, scenario: str, *, seed: int | None = None, records: Sequence[Path] = ()
) -> None:
    """Draw the trace of a scenario file (or `example:NAME`), or fit a record to it; write and print it."""
    write(console, out, *described_with_trace(scenario, seed, records))


def write(console: Console, out: Path, described: Scenario, trace: Trace) -> None:
    """Print the figures of a trace beside paper A's, and write scenario and trace into `out`."""
    console.print(statistics_table(described, trace))
    tell(console, trace.warnings)
    for file in write_trace(out, described, trace):
        console.print(file, highlight=False)
    console.print(f"play it: reclaimnet simulate {out / SCENARIO} --trace {out}", highlight=False)


def statistics_table(scenario: Scenario, trace: Trace) -> Table:
    """Return figures of the paper, of the law and of the trace, side by side."""
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
