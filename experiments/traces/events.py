"""One's own record: who did what when, in the scenario's time.

    time,host,event,notice
    0,h3,emergency,
    12 min,h1,reclaim,3 min
    20 min,h3,return,

`time` and `notice` are seconds of the scenario (before its scale), or have a unit; an empty notice is none, and a reclaim
without notice is an emergency. A column `grace` (yes or no) may follow. Rows are in order of time; hosts begin lent.
What lies after the end of the run is left out, and `origin` says how much.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from experiments.scenario.owners import OwnerEvent
from experiments.traces.csvs import Row, read_rows
from experiments.traces.trace import Recorded, in_order
from topologies import toml
from topologies.errors import SpecError
from topologies.units import parse_duration

COLUMNS = ("time", "host", "event", "notice")
EVENTS = ("reclaim", "emergency", "return")
LATEST_S = 1e9


def load_events(path: str | Path, hosts: Sequence[str], *, duration_s: float) -> Recorded:
    """The owners' events of a run of `duration_s`. SpecError says file, line, value and what is allowed."""
    try:
        return parse_events(toml.read_text(Path(path), "a trace (CSV)"), hosts, Path(path).name, duration_s)
    except SpecError as error:
        raise error.within(str(path)) from None


def parse_events(text: str, hosts: Sequence[str], name: str, duration_s: float) -> Recorded:
    """The events in a CSV text."""
    latest: dict[str, OwnerEvent] = {}
    events: list[OwnerEvent] = []
    for row in read_rows(text, COLUMNS):
        event = _event(row, hosts)
        _check_follows(row, event, events[-1] if events else None, latest.get(event.host))
        events.append(event)
        latest[event.host] = event
    if not events:
        raise SpecError("rows", 0, "at least one event")
    kept = in_order(events, duration_s)
    return Recorded(f"{name}: {len(kept)} of {len(events)} events before the end", kept)


def _event(row: Row, hosts: Sequence[str]) -> OwnerEvent:
    host, kind = row.text("host"), row.text("event")
    if host not in hosts:
        near = difflib.get_close_matches(host, hosts, n=1)
        raise row.wrong("host", f"a volunteer of the campus{f'; nearest: {near[0]}' if near else ''}")
    if kind not in EVENTS:
        raise row.wrong("event", f"one of {', '.join(EVENTS)}")
    notice_s = _seconds(row, "notice")
    if notice_s and kind != "reclaim":
        raise row.wrong("notice", f"none: a {kind} has no notice")
    grace = row.text("grace")
    if grace not in ("", "yes", "no") or (grace == "yes" and kind == "return"):
        raise row.wrong("grace", "yes or no; a return has none")
    return OwnerEvent(
        _seconds(row, "time"), host, "return" if kind == "return" else "reclaim", notice_s, grace == "yes"
    )


def _check_follows(row: Row, event: OwnerEvent, before: OwnerEvent | None, last: OwnerEvent | None) -> None:
    """In order of time, and for each host: reclaimed, returned, reclaimed, ..."""
    if before and event.at_s < before.at_s:
        raise row.wrong("time", f"at least the time of the row before, {before.at_s:g} s")
    if event.kind == (last.kind if last else "return"):
        state = "lent" if event.kind == "return" else "reclaimed already"
        raise row.wrong(
            "event", f"{'a reclaim' if event.kind == 'return' else 'a return'}: {event.host} is {state}"
        )
    if last and event.at_s < last.gone_s:
        raise row.wrong("time", f"a return after the notice has run out, at {last.gone_s:g} s")


def _seconds(row: Row, column: str) -> float:
    text = row.text(column)
    if column == "notice" and not text:
        return 0.0
    try:
        seconds = parse_duration(text)
    except ValueError:
        return row.number(column, LATEST_S, 'seconds (or with a unit: "3 min")')
    if seconds > LATEST_S:
        raise row.wrong(column, f"at most {LATEST_S:g} seconds")
    return seconds
