"""`reclaimnet compare --runs N`: many live runs, some fitted, the others predicted; a table, and prediction.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from experiments.compare.page import told
from experiments.compare.prediction import (
    Figure,
    ObservedRun,
    Prediction,
    predict,
)
from experiments.inputs.scenario import Scenario, load
from experiments.inputs.traces import Trace, generate, trace_of
from experiments.results.live_display import Live
from experiments.results.provenance import provenance
from experiments.runtime.ending import ExitStatus
from experiments.worlds.live.run import COMPLETED, run_live
from topologies.writing import write_whole

FITTED, SCENARIO, OWNERS = "fitted", "another scenario", "other owners"
UNSEEN = "example:lab"


def predict_file(
    console: Console,
    out: Path,
    scenario: str,
    runs: int,
    *,
    seed: int | None = None,
    records: Sequence[Path] = (),
) -> ExitStatus:
    """Play so many runs live: a third of the scenario (its costs are fitted), a third of another one, a third with other owners
    (those of `records`, or drawn by the other one's law). Everything of run n is in `out`/n, and prediction.json in `out`."""
    described = load(scenario)
    described = described if seed is None else replace(described, seed=seed)
    observed: list[ObservedRun] = []
    is_whole = True
    for number, (case, each, trace) in enumerate(list(cases(described, runs, records)), 1):
        console.print(
            f"[bold]run {number} of {runs}[/bold], {case}: {each.name}, seed {each.seed}, {trace.origin}"
        )
        folder = out / str(number)
        folder.mkdir(exist_ok=True)
        outcome = run_live(each, trace, folder, partial(Live.of, each, console))
        for reason in outcome.context.fidelity.reasons:
            console.print(f"[yellow]does not count:[/yellow] {reason}")
        observed.append(ObservedRun(case, each, trace, outcome))
        if outcome.context.ended != COMPLETED:
            is_whole = False
            break
    found = predict(
        [run for run in observed if run.case == FITTED], [run for run in observed if run.case != FITTED]
    )
    record = {
        **msgspec.to_builtins(found),
        "near": found.is_near,
        "provenance": msgspec.to_builtins(provenance(described)),
    }
    write_whole(out / "prediction.json", msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    console.print(table_of(found))
    for reason in found.reasons:
        console.print(f"[yellow]not judged:[/yellow] {reason}")
    console.print(out / "prediction.json", highlight=False)
    if found.reasons or not is_whole:
        return ExitStatus.CUT_SHORT
    return ExitStatus.KEPT if found.is_near else ExitStatus.BROKEN


def cases(
    described: Scenario, runs: int, records: Sequence[Path] = ()
) -> Iterator[tuple[str, Scenario, Trace]]:
    """What is played: case by case in turn, so that a machine that slows down slows all of them; each with a seed of its own."""
    unseen = replace(load(UNSEEN), duration_s=described.duration_s)
    drawn = replace(described, owners=replace(unseen.owners, script=()))
    for number in range(runs):
        case, of = ((FITTED, described), (SCENARIO, unseen), (OWNERS, described if records else drawn))[
            number % 3
        ]
        each = replace(of, seed=of.seed + number)
        yield case, each, trace_of(each, records) if case == OWNERS else generate(each)


def table_of(found: Prediction) -> Table:
    """A row for each quantity: both differences, and where live and virtual values lie."""
    table = Table(
        title=f"{len(found.runs)} runs predicted with the costs of {found.fitted_runs} others; "
        f"{found.left_out} do not count, since the machine did not keep up"
    )
    heads = (
        "",
        "runs",
        "fitted to itself",
        "worst",
        "held out",
        "worst",
        "near",
        "allowed",
        "live",
        "virtual",
    )
    for name in heads:
        table.add_column(name, justify="right" if name else "left")
    for figure in found.figures:
        table.add_row(
            figure.name,
            str(figure.runs),
            *map(_percent, (figure.fitted_median, figure.fitted_worst)),
            *map(_percent, (figure.held_out_median, figure.held_out_worst)),
            f"{figure.held_out_near} of {figure.runs}",
            f"{figure.tolerance:.0%}",
            _spread(figure, figure.live),
            _spread(figure, figure.virtual),
        )
    return table


def _percent(difference: float | None) -> str:
    return "-" if difference is None else f"{difference:+.1%}"


def _spread(figure: Figure, quantiles: Sequence[float | None]) -> str:
    """The quantiles of 10, 50 and 90 %."""
    return " / ".join(told(value, figure.unit) for value in quantiles)
