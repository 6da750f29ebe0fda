"""What every played run leaves, live or virtual: its files, and the terminal's table of it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from experiments.inputs.traces.doubts import tell
from experiments.results import report
from experiments.results.promises import TIMED
from experiments.results.provenance import Provenance
from experiments.results.summary import Summary
from experiments.worlds.played import Played


def write_results(console: Console, out: Path, run: Played, origin: Provenance, said: str) -> Summary:
    """summary.json and report.html into `out`, beside events.jsonl; the table, `said`, and all that speaks against the run."""
    summary = run.summary()
    report.write_summary(out, summary, origin)
    page = report.write(out, summary, run.facts, run.context, origin)
    console.print(report.summary_table(summary))
    console.print(said)
    for rule, why in summary.not_promised.items():
        console.print(f"[yellow]not promised:[/yellow] {rule}: {why}")
    tell(console, summary.warnings)
    for broken in summary.invariants_broken:
        console.print(f"[red]broken:[/red] {broken.rule}: {broken.subject}")
        for line in broken.story:
            console.print(f"    {line}", markup=False, highlight=False)
    for reason in summary.fidelity.reasons:
        console.print(f"[yellow]not to be believed:[/yellow] {reason}")
    if not summary.fidelity.valid:
        console.print(f"not judged, since the machine did not keep up: {'; '.join(sorted(TIMED))}")
    console.print(f"{page}, {out / 'summary.json'}, {out / 'events.jsonl'}", highlight=False)
    return summary
