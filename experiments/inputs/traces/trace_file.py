"""A whole trace as a file, to look at, to change, and to play again: trace.json, a line an event, a job or an epoch.

`owner_events` is needed; without `arrivals` the jobs are the scenario's, without `background` there is none.
Times are seconds, sizes bytes, rates bytes per second, of the scenario before its scale.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from experiments.inputs.scenario import Scenario, dumps
from experiments.inputs.scenario.job import JobArrival, JobDraw
from experiments.inputs.scenario.owners import OwnerEvent
from experiments.inputs.traces.generated import arrivals, with_user_jobs
from experiments.inputs.traces.trace import BackgroundTraffic, Trace, in_order
from topologies.errors import SpecError
from topologies.writing import write_whole

SCENARIO, TRACE = "scenario.toml", "trace.json"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    owner_events: tuple[OwnerEvent, ...]
    origin: str = ""
    arrivals: tuple[JobArrival, ...] | None = None
    away: tuple[str, ...] = ()
    background: BackgroundTraffic | None = None


def write_trace(folder: Path, scenario: Scenario, trace: Trace) -> list[Path]:
    """Write a trace in real units, and its scenario, into a folder; return the two files.

    The scenario's own jobs are not in the trace's file: they stand in the scenario.
    """
    drawn = tuple(arrival for arrival in trace.arrivals if arrival.job.given is None)
    texts = {SCENARIO: dumps(scenario), TRACE: trace_text(replace(trace, arrivals=drawn))}
    for name, text in texts.items():
        write_whole(folder / name, text)
    return [folder / name for name in texts]


def trace_text(trace: Trace) -> str:
    """Return the text from which `parse_trace` makes this trace."""
    parts = []
    for name in _File.__struct_fields__:
        value = getattr(trace, name)
        lines = ",\n".join(map(_json, value)) if isinstance(value, tuple) else ""
        parts.append(f'"{name}": [\n{lines}\n]' if lines else f'"{name}": {_json(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def parse_trace(document: dict[str, Any], scenario: Scenario) -> Trace:
    """Return the trace in a JSON document, as far as it lies in the scenario's run. SpecError names the place in it."""
    for key, of in (("owner_events", OwnerEvent), ("arrivals", JobArrival)):
        for place, item in enumerate(found if isinstance(found := document.get(key), list) else ()):
            _check_keys(item, of, f"{key}[{place}]")
    _check_keys(document.get("background"), BackgroundTraffic, "background")
    try:
        read = msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        why, _, path = str(error).partition(" - at `$.")
        raise SpecError(path.rstrip("`") or "trace", "what is there", f"{why[:1].lower()}{why[1:]}") from None
    until_s, nodes = scenario.duration_s, scenario.campus.neighbours
    for source, target in read.background.flows if read.background else ():
        if source == target or not {source, target} <= nodes.keys():
            allowed = "two different nodes of the campus"
            raise SpecError("background.flows", f"{source}>{target}", allowed)
    if read.arrivals is None:
        jobs = arrivals(scenario)
    else:
        jobs = with_user_jobs(tuple(each for each in read.arrivals if each.at_s < until_s), scenario)
    return Trace(
        read.origin,
        jobs,
        in_order(list(read.owner_events), until_s),
        read.away,
        read.background,
    )


def _check_keys(item: object, of: type[Any], path: str) -> None:
    """Check that an object has no key but those of a class."""
    known = [each.name for each in fields(of)]
    for key, value in item.items() if isinstance(item, dict) else ():
        if key not in known:
            near = "".join(f"nearest: {name}; " for name in difflib.get_close_matches(key, known, n=1))
            allowed = f"no key of this name; {near}allowed here: {', '.join(known)}"
            raise SpecError(f"{path}.{key}"[:120], "a value", allowed)
        if of is JobArrival and key == "job":
            _check_keys(value, JobDraw, f"{path}.job")


def _json(value: object) -> str:
    return msgspec.json.encode(dict(_given(value)) if is_dataclass(value) else value).decode()


def _given(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields that have a value, by name."""
    for each in fields(part):
        value = getattr(part, each.name)
        if value is not None:
            yield each.name, dict(_given(value)) if is_dataclass(value) else value
