"""`reclaimnet simulate --system oracle`: writes what a simulation writes, and the gap of each window (windows.json)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from controller.warm_up import compile_once
from experiments.cli.simulate import described_with_trace, write
from experiments.results.provenance import provenance
from experiments.worlds.oracle import Window, run_oracle
from topologies.units import format_duration
from topologies.writing import write_whole

SYSTEM = "oracle"  # beside the rows of `controller.core.policies`: it needs the whole trace, so it is not one of them


def play_file(
    console: Console,
    out: Path,
    scenario: str,
    *,
    seed: int | None = None,
    records: Sequence[Path] = (),
    until_over: bool = False,
) -> int:
    """Plan and play a scenario file (or `example:NAME`); exit status as of `simulate_file`."""
    described, trace = described_with_trace(scenario, seed, records)
    console.print(f"[bold]{described.name}[/bold], {SYSTEM}: {trace.origin}")
    compile_once()
    played = run_oracle(described, trace, until_over=until_over)
    table = Table(
        "window", "jobs", "ends of stays", "variables", "objective s", "bound s", "gap", "CPU s", ""
    )
    whole = [window for window in played.windows if not window.amends]
    for number, window in enumerate(whole):
        table.add_row(f"{number + 1}, from {format_duration(window.from_s)}", *_figures([window]))
    amended = [window for window in played.windows if window.amends]
    if amended:
        table.add_row(f"{len(amended)} amendments", *_figures(amended))
    console.print(table)
    console.print(f"the schedule ({played.schedule}) lost {format_duration(played.lost_s)} of a GPU")
    out.mkdir(parents=True, exist_ok=True)
    figures = [
        {key: value for key, value in msgspec.to_builtins(window).items() if key != "chosen"}
        for window in played.windows
    ]
    write_whole(out / "windows.json", msgspec.json.encode(figures))
    return write(console, out, played.run, provenance(described))


def _figures(windows: Sequence[Window]) -> list[str]:
    """Return the row of some windows: sums, the worst gap, every status."""
    return [
        str(sum(window.jobs for window in windows)),
        str(sum(len(window.chosen) for window in windows)),
        str(sum(window.variables for window in windows)),
        f"{sum(window.objective_s for window in windows):.3f}",
        f"{sum(window.bound_s for window in windows):.3f}",
        f"{max(window.gap for window in windows):.2%}",
        f"{sum(window.solve_s for window in windows):.2f}",
        ", ".join(sorted({window.status for window in windows})),
    ]
