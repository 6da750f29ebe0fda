"""The main job: a campus loses GPUs, and its jobs carry on elsewhere, in a minute and a half."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from experiments.inputs.scenario import Scenario, demo_scenario
from experiments.inputs.traces import Trace, trace_of
from experiments.inputs.traces.doubts import tell
from experiments.results import report
from experiments.results.live_display import Live
from experiments.results.promises import TIMED
from experiments.results.provenance import Provenance, provenance
from experiments.results.summary import Summary
from experiments.runtime.ending import ExitStatus
from experiments.worlds.live.run import COMPLETED, run_live
from experiments.worlds.played import Played


def demo(
    console: Console,
    out: Path,
    *,
    hosts: int,
    seconds: float,
    seed: int,
    records: Sequence[Path],
    owners_gid: int | None,
) -> ExitStatus:
    """The demonstration: generated owners with a director, or those of a recorded trace."""
    scenario = demo_scenario(hosts=hosts, buildings=3, on_demand=2, seconds=seconds, seed=seed)
    trace = trace_of(scenario, records)
    return play(console, out, scenario, trace, directed=not records, owners_gid=owners_gid)


def play(
    console: Console,
    out: Path,
    scenario: Scenario,
    trace: Trace,
    *,
    directed: bool = False,
    owners_gid: int | None = None,
) -> ExitStatus:
    """Run a scenario live, write the report into `out`, and print the table."""
    console.print(f"[bold]{scenario.name}[/bold]: {len(scenario.volunteers)} volunteer hosts, {trace.origin}")
    tell(console, trace.warnings)
    display = partial(Live.of, scenario, console)
    outcome = run_live(scenario, trace, out, display, directed=directed, owners_gid=owners_gid)
    summary = write(console, out, outcome, provenance(scenario))
    if summary.invariants_broken:
        return ExitStatus.BROKEN
    return ExitStatus.KEPT if outcome.context.ended == COMPLETED else ExitStatus.CUT_SHORT


def write(console: Console, out: Path, outcome: Played, origin: Provenance) -> Summary:
    """summary.json, report.html, and the table on the terminal."""
    summary = outcome.summary()
    report.write_summary(out, summary, origin)
    page = report.write(out, summary, outcome.facts, outcome.context, origin)
    console.print(report.summary_table(summary))
    registered_s = summary.fidelity.figures["agents_registered_s"]
    console.print(f"all agents had registered {registered_s:.2f} s after the campus stood")
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
