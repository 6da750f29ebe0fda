"""`reclaimnet simulate`: a scenario in virtual time, with the files and the exit status of a live run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from controller.core.policies.overrides import parse_overrides, with_overrides
from controller.user_policies import find_policy
from controller.warm_up import compile_once
from experiments.cli.results import write_results
from experiments.inputs.scenario import Scenario, load
from experiments.inputs.traces import Trace, trace_of
from experiments.results.events_file import digest, write_run
from experiments.results.provenance import Provenance, provenance
from experiments.runtime.exit_status import ExitStatus
from experiments.worlds.virtual.run import VirtualRun, simulate
from topologies.units import format_duration


def simulate_file(
    console: Console,
    out: Path,
    scenario: str,
    *,
    system: str | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    records: Sequence[Path] = (),
    until_over: bool = False,
) -> int:
    """Play a scenario file (or `example:NAME`); `seed` stands in for the file's, for jobs and owners too. Return 0 or 1."""
    described, trace = described_with_trace(scenario, seed, records)
    if overrides:
        system = with_overrides(system or described.protocol.policy, parse_overrides(overrides))
    if system is not None:
        find_policy(system, "--policy")
    size = f"{len(described.volunteers)} volunteer hosts, {format_duration(described.duration_s)} of virtual time"
    console.print(f"[bold]{described.name}[/bold]: {size}, {trace.origin}")
    compile_once()
    run = simulate(described, trace, system=system, until_over=until_over)
    return write(console, out, run, provenance(described))


def described_with_trace(
    scenario: str, seed: int | None = None, records: Sequence[Path] = (), overrides: Sequence[str] = ()
) -> tuple[Scenario, Trace]:
    """Load a scenario (a file or `example:NAME`), with another seed and overrides if given, and its owners, recorded or drawn."""
    described = load(scenario)
    if overrides:
        protocol = replace(described.protocol, override=parse_overrides(overrides))
        described = replace(described, protocol=protocol)
    if seed is not None:
        described = replace(described, seed=seed)
    return described, trace_of(described, records)


def write(console: Console, out: Path, run: VirtualRun, origin: Provenance) -> int:
    """Write summary.json, events.jsonl, campus.toml and report.html into `out`; print the table; return the exit status."""
    write_run(out, run.facts, run.context.campus)
    said = f"{run.events} events, {len(run.facts)} facts, sha256 of events.jsonl {digest(run.facts)}"
    summary = write_results(console, out, run, origin, said)
    return ExitStatus.BROKEN if summary.invariants_broken else ExitStatus.KEPT
