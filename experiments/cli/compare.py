"""`reclaimnet compare`: a scenario live and virtual, and the page that shows both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from experiments.cli.simulate import described_with_trace
from experiments.compare.comparison import ComparedQuantity, compare
from experiments.compare.costs import measure_costs
from experiments.compare.page import page, told
from experiments.inputs.traces.trace_warnings import tell
from experiments.results.events_file import write_events
from experiments.results.live_display import Live
from experiments.results.provenance import provenance
from experiments.runtime.exit_status import ExitStatus
from experiments.worlds.live.run import COMPLETED, run_live
from experiments.worlds.virtual import simulate
from experiments.worlds.virtual.overheads import costs_of
from topologies.writing import write_whole


def compare_file(
    console: Console, out: Path, scenario: str, *, seed: int | None = None, records: Sequence[Path] = ()
) -> ExitStatus:
    """Play a scenario file (or `example:NAME`) in both worlds; compare.html, compare.json and both runs' events into `out`."""
    described, trace = described_with_trace(scenario, seed, records)
    console.print(f"[bold]{described.name}[/bold]: live, then virtual; {trace.origin}")
    tell(console, trace.warnings)
    live = run_live(described, trace, out, lambda: Live(described, console))
    assumed = costs_of(described.played().protocol)
    measured = measure_costs(live.facts, described.scale.apply(trace), assumed)
    virtual = simulate(described, trace, costs=measured.costs, quiet=False)
    usual = simulate(described, trace, quiet=False)
    judged, beside = compare(live, virtual), compare(live, usual)
    write_events(out / "virtual.jsonl", virtual.facts)
    origin = provenance(described)
    write_whole(
        out / "compare.html", page(described.name, live, virtual, judged, beside, measured, assumed, origin)
    )
    record = {
        "near": judged.is_near,
        "not_to_be_believed": judged.reasons,
        "jobs": len(judged.jobs),
        "same_ways": judged.same_ways,
        "quantities": [_row(quantity) for quantity in judged.quantities],
        "at_usual_costs": [_row(quantity) for quantity in beside.quantities],
        "costs": measured.costs,
        "observations": measured.counts,
        "provenance": origin,
    }
    write_whole(out / "compare.json", msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    table = Table(title=f"{judged.same_ways} of {len(judged.jobs)} jobs went the same way")
    for name in ("", "live", "fitted to it", "difference", "at usual costs", "difference", "allowed"):
        table.add_column(name, justify="right" if name else "left")
    for one, other in zip(judged.quantities, beside.quantities, strict=True):
        table.add_row(
            one.name,
            told(one.live, one.unit),
            told(one.virtual, one.unit),
            _difference(one),
            told(other.virtual, other.unit),
            _difference(other),
            f"{one.tolerance:.0%}",
        )
    console.print(table)
    for reason in judged.reasons:
        console.print(f"[yellow]not judged:[/yellow] {reason}")
    console.print(f"{out / 'compare.html'}, {out / 'compare.json'}", highlight=False)
    if judged.reasons or live.context.ended != COMPLETED:
        return ExitStatus.CUT_SHORT
    return ExitStatus.KEPT if judged.is_near else ExitStatus.BROKEN


def _row(quantity: ComparedQuantity) -> dict[str, object]:
    return {**msgspec.to_builtins(quantity), "difference": quantity.difference, "near": quantity.is_near}


def _difference(quantity: ComparedQuantity) -> str:
    if quantity.difference is None:
        return "neither" if quantity.is_near else "one only"
    return f"[{'green' if quantity.is_near else 'red'}]{quantity.difference:+.1%}[/]"
