"""`reclaimnet sweep`: many runs of a scenario, on a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.inputs.seeds import seeds_of
from experiments.runtime.engines import Engine
from experiments.runtime.exit_status import ExitStatus
from experiments.runtime.progress import progress_bar
from experiments.sweeps import run_sweep
from experiments.sweeps.plan import read_plan, value_of_key
from topologies.errors import SpecError

MOST_TOLD = 20  # promises that were broken


def sweep_file(
    console: Console,
    out: Path,
    what: str,
    *,
    policies: str | None,
    overrides: Sequence[str],
    seeds: str | None,
    values: Sequence[str],
    records: Sequence[Path],
    until_over: bool,
    figures: str | None,
    workers: int | None,
    dask: str | None,
) -> int:
    """Play a sweep and write it into `out`. Return 0, or 1 if a promise was broken. SpecError: an option or a file is wrong."""
    varied = [value_of_key(text) for text in values]
    if len({key for key, _ in varied}) < len(varied):
        raise SpecError("--set", ", ".join(key for key, _ in varied), "each key once, its values with commas")
    plan = read_plan(
        what,
        policies=_words(policies),
        overrides=overrides,
        seeds=seeds_of(seeds) if seeds is not None else None,
        values=dict(varied),
        records=tuple(map(str, records)),
        until_over=until_over,
        figures=_words(figures),
    )
    where = f"the workers of {dask}" if dask else f"{workers or os.cpu_count() or 1} processes"
    console.print(f"[bold]{plan.scenario.name}[/bold]: {len(plan)} runs by {where}", highlight=False)
    with progress_bar(console, "runs", len(plan)) as progress:
        result = run_sweep(plan, Engine(workers or os.cpu_count() or 1, dask), out, progress)
    page = result.write(out)
    keys = result.plan.keys
    table = Table(title=repr(result)[1:-1], title_style="bold")
    for name in ("figure", "policy", *keys):
        table.add_column(name)
    for name in ("mean", "95 %", "difference", "95 %"):
        table.add_column(name, justify="right")
    before = None
    for row in result.rows:
        if before not in (None, row.figure):
            table.add_section()
        table.add_row(
            "" if row.figure == before else row.figure,
            row.policy,
            *(value for _, value in row.values),
            _number(row.mean),
            _range(row.low, row.high),
            _number(row.difference),
            _range(row.difference_low, row.difference_high),
        )
        before = row.figure
    console.print(table)
    broken = list(result.broken)
    for line in broken[:MOST_TOLD]:
        console.print(f"[red]broken:[/red] {line}", highlight=False)
    if len(broken) > MOST_TOLD:
        console.print(f"and {len(broken) - MOST_TOLD} more")
    console.print(f"{page}, {out / 'runs.csv'}, {out / 'intervals.csv'}", highlight=False)
    return ExitStatus.BROKEN if broken else ExitStatus.KEPT


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.4g} to {high:.4g}"
