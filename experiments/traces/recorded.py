"""A recorded trace, whichever of the formats it has: the owners come from the file, the jobs from the scenario."""

from __future__ import annotations

from pathlib import Path

from experiments.scenario import Scenario
from experiments.traces import counts, events, lifetimes
from experiments.traces.background import background_traffic
from experiments.traces.folder import load_folder
from experiments.traces.generated import arrivals, generate
from experiments.traces.moments import Moments
from experiments.traces.trace import Recorded, Trace
from topologies import toml
from topologies.errors import SpecError

FORMATS = (
    'a spot trace (JSON {"metadata": {"gap_seconds": g}, "data": [counts]}), a record of preemptions (CSV with the '
    f"columns {','.join(lifetimes.COLUMNS)}) or events (CSV with the columns {','.join(events.COLUMNS)})"
)


def load_trace(path: str | Path, scenario: Scenario) -> Trace:
    """The trace of a file (or of a folder, see `folder`) for this scenario, in its units; the content says which format it is.

    Loyal hosts take no part (they carry research flows), and the scenario's script is replaced by the record. SpecError
    says file, line or index, value and what is allowed.
    """
    if Path(path).is_dir():
        return load_folder(Path(path), scenario)
    text = toml.read_text(Path(path), "a trace (JSON, CSV, or a folder of CSV files)")
    try:
        recorded = _parse(text, Path(path).name, scenario)
    except SpecError as error:
        raise error.within(str(path)) from None
    background = background_traffic(scenario)
    return Trace(recorded.origin, arrivals(scenario), recorded.events, recorded.away, background)


def trace_of(scenario: Scenario, record: Path | None) -> Trace:
    """With the owners of a record (`load_trace`), or generated ones where there is none."""
    return generate(scenario) if record is None else load_trace(record, scenario)


def _parse(text: str, name: str, scenario: Scenario) -> Recorded:
    owners, duration_s, seed = scenario.owners, scenario.duration_s, scenario.seed
    everybody = [host.name for host in scenario.volunteers]
    hosts = [host for host in everybody if host not in owners.loyal]
    columns = {column.strip() for column in text.partition("\n")[0].split(",")}
    if text.lstrip()[:1] in ("{", "["):
        return counts.fit_counts(counts.parse_counts(text), name, hosts, duration_s, owners, seed)
    if "lifetime_h" in columns:
        return lifetimes.fit_spells(lifetimes.parse_spells(text), name, hosts, duration_s, owners, seed)
    if {"time", "host", "event"} & columns:
        return events.parse_events(text, everybody, name, duration_s, Moments(owners.day_start_s))
    raise SpecError("content", text[:40] if text.strip() else "empty", FORMATS)
