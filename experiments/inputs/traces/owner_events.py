"""A user's own record of owners: the time of each reclaim and return, in the scenario's time.

    time,host,event,notice
    0,h3,emergency,
    12 min,h1,reclaim,3 min
    20 min,h3,return,

`time` and `notice` are seconds of the scenario (before its scale), or have a unit; an empty notice is none, and a reclaim
without notice is an emergency. A time may be a date instead (2026-03-02T11:30; see `csv_rows.times_s`).
A column `grace` (yes or no) may follow. Rows are in order of time; hosts begin lent, but for those whose first
row is `0,HOST,away,`: their owners have them. What lies after the end of the run is left out, and `origin` gives the amount.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.inputs.scenario.owners import OwnerEvent, Owners
from experiments.inputs.traces.csv_rows import LATEST_S, CsvRow, read_rows, times_s
from experiments.inputs.traces.trace import Recorded, in_order
from topologies.errors import SpecError, nearest
from topologies.units import format_duration

COLUMNS = ("time", "host", "event", "notice")
OPTIONAL = ("grace",)
EVENTS = ("reclaim", "emergency", "return", "away")


def parse_events(text: str, hosts: Sequence[str], name: str, duration_s: float, owners: Owners) -> Recorded:
    """Return the events in a CSV text; `owners` have the time of day at which the run begins, and the length of a grace."""
    rows = read_rows(text, COLUMNS, optional=OPTIONAL)
    away_rows = [row for row in rows if row.text("event") == "away"]
    others = [row for row in rows if row.text("event") != "away"]
    latest: dict[str, OwnerEvent] = {}
    events: list[OwnerEvent] = []
    for row in rows:
        _check(row, hosts)
    lines: dict[str, int] = {}
    for row in away_rows:
        host = row.text("host")
        if row.text("time") not in ("0", "0.0"):
            raise row.wrong("time", "0: away means from the start")
        if host in lines or any(row.line > other.line and host == other.text("host") for other in others):
            raise row.wrong("event", f"reclaim or return: {host} has a row already")
        lines[host] = row.line
        latest[host] = OwnerEvent(0.0, host)
    for row, at_s in zip(others, times_s(others, "time", day_start_s=owners.day_start_s), strict=True):
        host, kind = row.text("host"), "return" if row.text("event") == "return" else "reclaim"
        notice_s = row.duration_s("notice", LATEST_S)
        last = latest.get(host)
        if events and at_s < events[-1].at_s:
            raise row.wrong("time", f"at least the time of the row before, {events[-1].at_s:g} s")
        if kind == (last.kind if last else "return"):
            allowed, state = ("a reclaim", "lent") if kind == "return" else ("a return", "reclaimed already")
            raise row.wrong("event", f"{allowed}: {host} is {state}")
        if last and at_s < last.gone_s:
            raise row.wrong("time", f"a return after the notice has run out, at {last.gone_s:g} s")
        events.append(owners.with_grace(OwnerEvent(at_s, host, kind, notice_s, row.text("grace") == "yes")))
        latest[host] = events[-1]
    if not rows:
        raise SpecError("rows", 0, "at least one event")
    kept = in_order(events, duration_s)
    span = f" of {format_duration(events[-1].at_s)}" if events else ""
    origin = f"{name}: {len(kept)} of {len(events)} events{span} before the end"
    return Recorded(origin, kept, tuple(sorted(lines)))


def _check(row: CsvRow, hosts: Sequence[str]) -> None:
    """Check a row by itself."""
    host, kind, grace = row.text("host"), row.text("event"), row.text("grace")
    if host not in hosts:
        raise row.wrong("host", f"a volunteer of the campus{nearest(host, hosts)}")
    if kind not in EVENTS:
        raise row.wrong("event", f"one of {', '.join(EVENTS)}")
    if row.duration_s("notice", LATEST_S) and kind != "reclaim":
        raise row.wrong("notice", f"none: a {kind} has no notice")
    if grace not in ("", "yes", "no") or (grace == "yes" and kind in ("return", "away")):
        raise row.wrong("grace", "yes or no; a return has none")
