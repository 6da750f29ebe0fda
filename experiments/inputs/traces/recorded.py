"""Recorded owners, whichever of the formats their files have."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import availability_counts, lifetimes, owner_events
from experiments.inputs.traces.availability_counts import Counts
from experiments.inputs.traces.background import background_traffic
from experiments.inputs.traces.generated import arrivals, generate, with_user_jobs
from experiments.inputs.traces.lifetimes import LentSpell
from experiments.inputs.traces.trace import Recorded, Trace
from topologies import plugins, reading
from topologies.errors import SpecError, nearest

FORMATS = (
    'a spot trace (JSON {"metadata": {"gap_seconds": g}, "data": [counts]}), availability (CSV: time and counts, with a line '
    f"of names), a record of preemptions (CSV with the columns {','.join(lifetimes.COLUMNS)}) or events (CSV with the columns "
    f"{','.join(owner_events.COLUMNS)})"
)
FILE = "a record of owners (JSON or CSV)"

Record = Counts | list[LentSpell]


def records_of(trace: str | Path | Sequence[str | Path] | None) -> tuple[Path, ...]:
    """Return the files, or the name of a function, that a trace is made from. SpecError: neither."""
    records = [] if trace is None else [trace] if isinstance(trace, str | Path) else trace
    if not isinstance(records, Sequence) or not all(isinstance(record, str | Path) for record in records):
        raise SpecError("trace", trace, 'records, of a file or several, or "module:NAME" of a function')
    return tuple(Path(record) for record in records)


def trace_of(scenario: Scenario, records: Sequence[Path]) -> Trace:
    """Return the trace with the owners of records, or with generated owners if there are no records.

    A single record may name a function of a user's (`module:NAME`, or an entry point `reclaimnet.traces`) that makes the trace;
    the scenario's own jobs (`[[jobs]]`) are played in it, unless it has some of them itself.
    """
    if len(records) == 1 and not records[0].exists() and plugins.is_plugin(str(records[0]), plugins.TRACES):
        name = str(records[0])
        allowed = 'a file of records, or "module:NAME" of a function that makes a Trace of a Scenario'
        made = plugins.find("trace", name, plugins.TRACES, allowed)
        trace = plugins.call("trace", name, made, scenario) if callable(made) else made
        if not isinstance(trace, Trace):
            raise SpecError("trace", name, f"that gives a {type(trace).__name__}; allowed: {allowed}")
        check_hosts(trace, scenario, name)
        if not any(arrival.job.given for arrival in trace.arrivals):
            trace = replace(trace, arrivals=with_user_jobs(trace.arrivals, scenario))
        return trace
    return _recorded_trace(scenario, records) if records else generate(scenario)


def _recorded_trace(scenario: Scenario, paths: Sequence[Path]) -> Trace:
    """Return the trace of a scenario, in its units, with the owners that files record.

    The content decides the format. Several files are of the same kind, and the hosts of each come and go beside those of
    the others. Loyal hosts take no part (they carry research flows), and the scenario's script is replaced by the record.
    SpecError names file, line or index, value and the allowed ones.
    """
    found: list[Any] = [_read(path, scenario) for path in paths]
    first, *others = found
    for path, other in zip(paths[1:], others, strict=True):
        if type(other) is not type(first) or isinstance(other, Recorded):
            allowed = "files of one kind: counts or preemptions; what hosts of this campus do is one file"
            raise SpecError("trace", path.name, allowed, str(path))
    owners, hosts = scenario.owners, [host.name for host in scenario.volunteers]
    fit = (
        " + ".join(reading.readable(path.name) for path in paths),
        [host for host in hosts if host not in owners.loyal],
        scenario.duration_s,
        owners,
        scenario.seed,
    )
    if isinstance(first, Counts):
        recorded = availability_counts.fit_counts(availability_counts.together([first, *others]), *fit)
    elif isinstance(first, list):
        spells = sorted((spell for each in (first, *others) for spell in each), key=lambda spell: spell.started)
        recorded = lifetimes.fit_spells(spells, *fit)
    else:
        recorded = first
    background, jobs = background_traffic(scenario), arrivals(scenario)
    return Trace(recorded.origin, jobs, recorded.events, recorded.away, background)


def check_hosts(trace: Trace, scenario: Scenario, name: str) -> None:
    """Check that a trace is of this scenario's hosts. SpecError, for the trace of this name: it is not."""
    hosts = [host.name for host in scenario.volunteers]
    for host in (*trace.away, *(event.host for event in trace.owner_events)):
        if host not in hosts:
            allowed = f"a trace of the scenario's volunteers; it has a host {host}{nearest(host, hosts)}"
            raise SpecError("trace", name, allowed)


def read_record(path: Path) -> Record | None:
    """Return the record of machines anywhere that a file has; None: it is of one campus's hosts. SpecError names the file."""
    found = _read(path, None)
    return None if isinstance(found, Recorded) else found


def _read(path: Path, scenario: Scenario | None) -> Record | Recorded | None:
    """Return what a file has, in the format that its beginning shows; without a scenario, None for a campus's own hosts."""
    text = reading.read_text(path, FILE)
    try:
        if text.lstrip()[:1] in ("{", "["):
            return availability_counts.parse_counts_json(text)
        try:
            fields = next(csv.reader([text.lstrip().partition("\n")[0]]), [])
        except csv.Error:
            fields = []
        columns = [field.strip().lower() for field in fields] or [""]
        if "lifetime_h" in columns:
            return lifetimes.parse_spells(text)
        if {"host", "event"} & {*columns}:
            if scenario is None:
                return None
            hosts = [host.name for host in scenario.volunteers]
            name = reading.readable(path.name)
            return owner_events.parse_events(text, hosts, name, scenario.duration_s, scenario.owners)
        if any("time" in column for column in columns[:2]) and len(columns) > 1:
            return availability_counts.parse_counts_csv(text)
        raise SpecError("content", text[:40] if text.strip() else "empty", FORMATS)
    except SpecError as error:
        raise error.within(str(path)) from None
