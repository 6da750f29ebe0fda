"""A recorded trace, whichever of the formats it has: the owners come from the files, the jobs from the scenario."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import (
    availability_counts,
    lifetimes,
    machines,
    owner_events_csv,
)
from experiments.inputs.traces.availability_counts import Counts
from experiments.inputs.traces.background import background_traffic
from experiments.inputs.traces.cuts import cuts
from experiments.inputs.traces.doubts import doubts
from experiments.inputs.traces.folder import load_folder
from experiments.inputs.traces.generated import arrivals, generate, with_own_jobs
from experiments.inputs.traces.lifetimes import LentSpell
from experiments.inputs.traces.machines import Machines
from experiments.inputs.traces.timestamps import Moments, is_moment
from experiments.inputs.traces.trace import Recorded, Trace
from topologies import plugins, toml
from topologies.errors import SpecError

FORMATS = (
    'a spot trace (JSON {"metadata": {"gap_seconds": g}, "data": [counts]}), availability (CSV: time and counts), machines '
    "that come and go (CSV: time,event,node or time,machine_id,event or time,host,available), a record of preemptions (CSV "
    f"with the columns {','.join(lifetimes.COLUMNS)}) or events (CSV with the columns {','.join(owner_events_csv.COLUMNS)})"
)
FILE = "a trace (JSON, CSV, or a folder of CSV files)"
# The columns of files without a line of names: Bamboo's, Alibaba's (cluster-trace-v2017, server_event.csv).
BAMBOO = ("time", "event", "node")
ALIBABA = ("time", "machine_id", "event", "detail", "cpu", "memory", "disk")
AVAILABLE = ("time", "available")

Record = Counts | Machines | list[LentSpell]


def load_trace(path: str | Path, scenario: Scenario, *further: str | Path) -> Trace:
    """The trace of a file (or of a folder, see `folder`) for this scenario, in its units; the content says which format it is.

    `further`: files of the same kind, whose hosts come and go beside those of the first. Loyal hosts take no part (they carry
    research flows), and the scenario's script is replaced by the record. SpecError says file, line or index, value and what is
    allowed. The trace's `warnings` say what it does not put to the test.
    """
    paths = [Path(path), *map(Path, further)]
    if paths[0].is_dir() and not further:
        trace = load_folder(paths[0], scenario)
    else:
        recorded = _recorded(paths, scenario)
        background, jobs, owners = background_traffic(scenario), arrivals(scenario), recorded.events
        trace = Trace(recorded.origin, jobs, owners, recorded.away, background, cuts=cuts(scenario))
    return replace(trace, warnings=doubts(scenario, trace))


def records_of(trace: str | Path | Sequence[str | Path] | None) -> tuple[Path, ...]:
    """The files, or the name of a function, that a trace is made from. SpecError: neither."""
    records = [] if trace is None else [trace] if isinstance(trace, str | Path) else trace
    if not isinstance(records, Sequence) or not all(isinstance(record, str | Path) for record in records):
        raise SpecError(
            "trace", trace, 'records, of a file, a folder or several, or "module:NAME" of a function'
        )
    return tuple(Path(record) for record in records)


def trace_of(scenario: Scenario, records: Sequence[Path]) -> Trace:
    """The trace with the owners of records (`load_trace`), or with generated owners if there are no records.

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
        hosts = {host.name for host in scenario.volunteers}
        for host in (*trace.away, *(event.host for event in trace.owner_events)):
            if host not in hosts:
                raise SpecError("trace", name, f"a trace of the scenario's volunteers; it has a host {host}")
        if not any(arrival.job.given for arrival in trace.arrivals):
            trace = replace(trace, arrivals=with_own_jobs(trace.arrivals, scenario))
        return replace(trace, warnings=(*trace.warnings, *doubts(scenario, trace)))
    return load_trace(records[0], scenario, *records[1:]) if records else generate(scenario)


def _recorded(paths: Sequence[Path], scenario: Scenario) -> Recorded:
    """The owners' events that records of one kind give together, fitted to the run; SpecError names the file."""
    owners, duration_s, seed = scenario.owners, scenario.duration_s, scenario.seed
    hosts = [host.name for host in scenario.volunteers if host.name not in owners.loyal]
    name = " + ".join(path.name for path in paths)
    found: list[Record] = []
    for path in paths:
        read = read_record(path)
        if read is None and len(paths) == 1:
            return _events_of(path, scenario)
        if read is None or (found and type(read) is not type(found[0])):
            allowed = (
                "files of one kind: counts, machines or preemptions; what hosts of this campus do is one file"
            )
            raise SpecError("trace", path.name, allowed, str(path))
        found.append(read)
    available = [each for each in found if isinstance(each, Counts)]
    if available:
        return availability_counts.fit_counts(
            availability_counts.together(available), name, hosts, duration_s, owners, seed
        )
    lives = [each for each in found if isinstance(each, Machines)]
    if lives:
        return machines.fit_machines(lives, name, hosts, duration_s, owners, seed)
    spells = [spell for each in found if isinstance(each, list) for spell in each]
    spells.sort(key=lambda spell: spell.started)
    return lifetimes.fit_spells(spells, name, hosts, duration_s, owners, seed)


def read_record(path: Path) -> Record | None:
    """What a file tells of machines anywhere; None: it tells what a campus's hosts did. SpecError names the file."""
    text = toml.read_text(path, FILE)
    try:
        return _read(text)
    except SpecError as error:
        raise error.within(str(path)) from None


def _events_of(path: Path, scenario: Scenario) -> Recorded:
    """What a file says that the hosts of this campus did. SpecError names the file."""
    volunteers = [host.name for host in scenario.volunteers]
    text, moments = toml.read_text(path, FILE), Moments(scenario.owners.day_start_s)
    try:
        return owner_events_csv.parse_events(text, volunteers, path.name, scenario.duration_s, moments)
    except SpecError as error:
        raise error.within(str(path)) from None


def _read(text: str) -> Record | None:
    """The record in a text, in the format that its beginning tells; None: events of a campus's hosts."""
    if text.lstrip()[:1] in ("{", "["):
        return availability_counts.parse_counts(text)
    try:
        fields = next(csv.reader([text.lstrip().partition("\n")[0]]), [])
    except csv.Error:
        fields = []
    first = [field.strip() for field in fields] or [""]
    if is_moment(first[0]) and len(first) > 1:
        if len(first) == len(AVAILABLE):
            return availability_counts.parse_counts_csv(text, AVAILABLE)
        if first[1].lower() in machines.KNOWN and len(first) == len(BAMBOO):
            return machines.parse_machines(text, BAMBOO)
        if first[2].lower() in machines.KNOWN and len(first) <= len(ALIBABA):
            return machines.parse_machines(text, ALIBABA[: len(first)])
        raise SpecError("line 1", ",".join(first)[:40], FORMATS)
    columns = {column.lower() for column in first}
    is_of_machines = machines.column_of(columns, machines.NAMES) is not None
    if "lifetime_h" in columns:
        return lifetimes.parse_spells(text)
    if is_of_machines and columns & {*machines.EVENTS, *machines.STATES} and not {"host", "event"} <= columns:
        return machines.parse_machines(text)
    if {"host", "event"} & columns:
        return None
    if first[0].lower() in machines.TIMES and len(first) > 1:
        return machines.parse_series(text) or availability_counts.parse_counts_csv(text)
    raise SpecError("content", text[:40] if text.strip() else "empty", FORMATS)
