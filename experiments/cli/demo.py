"""`reclaimnet demo` and `run`: a scenario, live."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.console import Console

from experiments.cli.dashboard import page_beside
from experiments.cli.results import write_results
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace
from experiments.inputs.traces.trace_warnings import tell
from experiments.results.live_display import Live
from experiments.results.provenance import provenance
from experiments.runtime.exit_status import ExitStatus
from experiments.worlds.live.run import COMPLETED, run_live


def play(
    console: Console,
    out: Path,
    scenario: Scenario,
    trace: Trace,
    owners_gid: int | None = None,
    agents_per_process: int | None = None,
    web: int | None = None,
) -> ExitStatus:
    """Run a scenario live, write the report into `out`, and print the table. `web`: the port of a live page."""
    console.print(f"[bold]{scenario.name}[/bold]: {len(scenario.volunteers)} volunteer hosts, {trace.origin}")
    tell(console, trace.warnings)
    display = partial(Live, scenario, console)
    outcome = run_live(
        scenario,
        trace,
        out,
        display,
        owners_gid=owners_gid,
        agents_per_process=agents_per_process,
        beside=lambda world: page_beside(console, world.campus.id, web),
    )
    registered_s = outcome.context.fidelity.figures["agents_registered_s"]
    said = f"all agents had registered {registered_s:.2f} s after the campus stood"
    summary = write_results(console, out, outcome, provenance(scenario), said)
    if summary.invariants_broken:
        return ExitStatus.BROKEN
    return ExitStatus.KEPT if outcome.context.ended == COMPLETED else ExitStatus.CUT_SHORT
