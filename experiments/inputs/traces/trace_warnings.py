"""Warnings about a run of a trace in which too little happens to show anything."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces.trace import Trace
from topologies.units import format_duration

# Below this share of hosts that ever leave, or of the time in which they do, most of the run is one that no owner disturbs.
ENOUGH = 0.5


def doubts(scenario: Scenario, trace: Trace) -> tuple[str, ...]:
    """Return sentences for the reader of the results; hosts that the scenario declares loyal do not count."""
    hosts = {host.name for host in scenario.volunteers} - set(scenario.owners.loyal)
    leave = hosts & {event.host for event in trace.owner_events if event.kind == "reclaim"}
    never_lent = hosts & set(trace.away) - {event.host for event in trace.owner_events}
    found = []
    if not leave:
        said = "what owners do to jobs is not put to the test"
        found.append(f"none of {len(hosts)} hosts is ever reclaimed: {said}")
    elif len(leave) < ENOUGH * len(hosts):
        said = "most of the campus behaves like machines without owners"
        found.append(f"only {len(leave)} of {len(hosts)} hosts are ever reclaimed: {said}")
    if len(hosts) - len(never_lent) < ENOUGH * len(hosts):
        said = "most of the campus is not there"
        found.append(f"{len(never_lent)} of {len(hosts)} hosts are never lent: {said}")
    last_s = max((event.at_s for event in trace.owner_events), default=0.0)
    if leave and last_s < ENOUGH * scenario.duration_s:
        span = f"{format_duration(last_s)} of {format_duration(scenario.duration_s)}"
        found.append(f"no owner does anything after {span}: the record may be shorter than the run")
    if not trace.arrivals:
        found.append("no job arrives")
    return tuple(found)


def tell(console: Console, warnings: Iterable[str]) -> None:
    """Print warnings, one a line."""
    for warning in warnings:
        console.print(f"[yellow]little is shown:[/yellow] {warning}")
