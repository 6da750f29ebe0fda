"""Recorded owners, whichever of the formats their files have, and whole traces."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import availability_counts, lifetimes, owner_events
from experiments.inputs.traces.availability_counts import Counts, read_json
from experiments.inputs.traces.background import background_traffic
from experiments.inputs.traces.generated import arrivals, generate, with_user_jobs
from experiments.inputs.traces.lifetimes import LentSpell
from experiments.inputs.traces.trace import Recorded, Trace
from experiments.inputs.traces.trace_file import TRACE, parse_trace
from experiments.inputs.traces.trace_warnings import doubts
from topologies import plugins, reading
from topologies.errors import SpecError

FORMATS = (
    'a spot trace (JSON {"metadata": {"gap_seconds": g}, "data": [counts]}), availability (CSV: time and counts, with a line '
    f"of names), a record of preemptions (CSV with the columns {','.join(lifetimes.COLUMNS)}), events (CSV with the columns "
    f"{','.join(owner_events.COLUMNS)}) or a trace (JSON, as `reclaimnet simulate --draw-only` writes it)"
)
FILE = "a trace (JSON, CSV, or a folder with trace.json)"

Record = Counts | list[LentSpell]
Found = Record | Recorded | Trace | None


def load_trace(path: str | Path, scenario: Scenario, *further: str | Path) -> Trace:
    """Return the trace of a file (or of a folder with `trace.json`) for this scenario, in its units.

    The content decides the format. `further`: files of the same kind, whose hosts come and go beside those of the
    first. Loyal hosts take no part (they carry research flows), and the scenario's script is replaced by the record.
    SpecError names file, line or index, value and the allowed ones. The trace's `warnings` list the limits of the
    record.
    """
    paths = [each / TRACE if each.is_dir() else each for each in map(Path, (path, *further))]
    found = [_read(each, scenario) for each in paths]
    if (
        len(found) > 1
        and (odd := next((n for n, each in enumerate(found) if not _is_like(each, found[0])), -1)) >= 0
    ):
        allowed = "files of one kind: counts or preemptions; what hosts of this campus do is one file"
        raise SpecError("trace", paths[odd].name, allowed, str(paths[odd]))
    if isinstance(found[0], Trace):
        trace = found[0]
    else:
        recorded = _fitted(found, " + ".join(each.name for each in paths), scenario)
        background, jobs, events = background_traffic(scenario), arrivals(scenario), recorded.events
        trace = Trace(recorded.origin, jobs, events, recorded.away, background)
    return replace(trace, warnings=doubts(scenario, trace))


def records_of(trace: str | Path | Sequence[str | Path] | None) -> tuple[Path, ...]:
    """Return the files, or the name of a function, that a trace is made from. SpecError: neither."""
    records = [] if trace is None else [trace] if isinstance(trace, str | Path) else trace
    if not isinstance(records, Sequence) or not all(isinstance(record, str | Path) for record in records):
        raise SpecError(
            "trace", trace, 'records, of a file, a folder or several, or "module:NAME" of a function'
        )
    return tuple(Path(record) for record in records)


def trace_of(scenario: Scenario, records: Sequence[Path]) -> Trace:
    """Return the trace with the owners of records (`load_trace`), or with generated owners if there are no records.

    A single record may name a function of a user's (`module:NAME`, or an entry point `reclaimnet.traces`) that makes the trace;
    the scenario's own jobs (`[[jobs]]`) are played in it, unless it has some of them itself.
    """
    if len(records) == 1 and not records[0].exists() and plugins.is_plugin(str(records[0]), plugins.TRACES):
        name = str(records[0])
        allowed = (
            'a file or folder of records, or "module:NAME" of a function that makes a Trace of a Scenario'
        )
        made = plugins.find("trace", name, plugins.TRACES, allowed)
        trace = plugins.call("trace", name, made, scenario) if callable(made) else made
        if not isinstance(trace, Trace):
            raise SpecError("trace", name, f"that gives a {type(trace).__name__}; allowed: {allowed}")
        check_hosts(trace, scenario, name)
        if not any(arrival.job.given for arrival in trace.arrivals):
            trace = replace(trace, arrivals=with_user_jobs(trace.arrivals, scenario))
        return replace(trace, warnings=(*trace.warnings, *doubts(scenario, trace)))
    return load_trace(records[0], scenario, *records[1:]) if records else generate(scenario)


def check_hosts(trace: Trace, scenario: Scenario, name: str) -> None:
    """Check that a trace is of this scenario's hosts. SpecError, for the trace of this name: it is not."""
    hosts = [host.name for host in scenario.volunteers]
    for host in (*trace.away, *(event.host for event in trace.owner_events)):
        if host not in hosts:
            near = "".join(f"; nearest: {each}" for each in difflib.get_close_matches(host, hosts, n=1))
            allowed = f"a trace of the scenario's volunteers; it has a host {host}{near}"
            raise SpecError("trace", name, allowed)


def _is_like(one: Found, other: Found) -> bool:
    return type(one) is type(other) and isinstance(one, Counts | list)


def _fitted(found: Sequence[Any], name: str, scenario: Scenario) -> Recorded:
    """Return the owners' events of records of one kind, fitted to the run."""
    if isinstance(found[0], Recorded):
        return found[0]
    owners, hosts = scenario.owners, [host.name for host in scenario.volunteers]
    fit = (
        name,
        [host for host in hosts if host not in owners.loyal],
        scenario.duration_s,
        owners,
        scenario.seed,
    )
    if isinstance(found[0], Counts):
        return availability_counts.fit_counts(availability_counts.together(found), *fit)
    spells = sorted((spell for each in found for spell in each), key=lambda spell: spell.started)
    return lifetimes.fit_spells(spells, *fit)


def read_record(path: Path) -> Record | None:
    """Return the record of machines anywhere that a file has; None: it is of one campus's hosts. SpecError names the file."""
    found = _read(path, None)
    return found if isinstance(found, Counts | list) else None


def _read(path: Path, scenario: Scenario | None) -> Found:
    """Return what a file has, in the format that its beginning shows; without a scenario, None for a campus's own hosts."""
    text = reading.read_text(path, FILE)
    try:
        if text.lstrip()[:1] in ("{", "["):
            document = read_json(text)
            if "metadata" in document:
                return availability_counts.counts_of(document)
            trace = parse_trace(document, scenario) if scenario else None
            if trace and scenario:
                check_hosts(trace, scenario, path.name)
            return trace
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
            return owner_events.parse_events(
                text, hosts, path.name, scenario.duration_s, scenario.owners.day_start_s
            )
        if "time" in columns[0] and len(columns) > 1:
            return availability_counts.parse_counts_csv(text)
        raise SpecError("content", text[:40] if text.strip() else "empty", FORMATS)
    except SpecError as error:
        raise error.within(str(path)) from None
