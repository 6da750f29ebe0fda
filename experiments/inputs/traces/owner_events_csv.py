"""A user's own record: what each owner did when, in the scenario's time.

    time,host,event,notice
    0,h3,emergency,
    12 min,h1,reclaim,3 min
    20 min,h3,return,

`time` and `notice` are seconds of the scenario (before its scale), or have a unit; an empty notice is none, and a reclaim
without notice is an emergency. A time may be a date instead (2026-03-02T11:30; see `timestamps` for when the run then begins).
A column `grace` (yes or no) may follow. Rows are in order of time; hosts begin lent, but for those whose first
row is `0,HOST,away,`: their owners have them. What lies after the end of the run is left out, and `origin` says how much.
`events_csv` writes such a file, and reading it gives the same events.
"""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Iterable, Sequence

from experiments.inputs.scenario.owners import OwnerEvent
from experiments.inputs.traces.csv_rows import read_rows
from experiments.inputs.traces.timestamps import LATEST_S, Moments
from experiments.inputs.traces.trace import Recorded, in_order
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.units import plain

COLUMNS = ("time", "host", "event", "notice")
OPTIONAL = ("grace",)
EVENTS = ("reclaim", "emergency", "return", "away")


def parse_events(
    text: str, hosts: Sequence[str], name: str, duration_s: float, moments: Moments | None = None
) -> Recorded:
    """The events in a CSV text."""
    moments = moments or Moments()
    latest: dict[str, OwnerEvent] = {}
    events: list[OwnerEvent] = []
    away: list[str] = []
    for row in read_rows(text, COLUMNS, optional=OPTIONAL):
        host, kind = row.text("host"), row.text("event")
        if host not in hosts:
            near = difflib.get_close_matches(host, hosts, n=1)
            raise row.wrong("host", f"a volunteer of the campus{f'; nearest: {near[0]}' if near else ''}")
        if kind not in EVENTS:
            raise row.wrong("event", f"one of {', '.join(EVENTS)}")
        notice_s = row.quantity("notice", Dimension.DURATION, 0.0, LATEST_S, default=0.0)
        if notice_s and kind != "reclaim":
            raise row.wrong("notice", f"none: a {kind} has no notice")
        grace = row.text("grace")
        if grace not in ("", "yes", "no") or (grace == "yes" and kind in ("return", "away")):
            raise row.wrong("grace", "yes or no; a return has none")
        at_s = moments.seconds(row, "time") if kind != "away" or row.text("time") != "0" else 0.0
        event = OwnerEvent(at_s, host, "return" if kind == "return" else "reclaim", notice_s, grace == "yes")
        last = latest.get(event.host)
        if kind == "away":
            if event.at_s != 0.0:
                raise row.wrong("time", "0: away means from the start")
            if last:
                raise row.wrong("event", f"reclaim or return: {event.host} has a row already")
            away.append(event.host)
        else:
            if events and event.at_s < events[-1].at_s:
                raise row.wrong("time", f"at least the time of the row before, {events[-1].at_s:g} s")
            if event.kind == (last.kind if last else "return"):
                is_return = event.kind == "return"
                allowed, state = ("a reclaim", "lent") if is_return else ("a return", "reclaimed already")
                raise row.wrong("event", f"{allowed}: {event.host} is {state}")
            if last and event.at_s < last.gone_s:
                raise row.wrong("time", f"a return after the notice has run out, at {last.gone_s:g} s")
            events.append(event)
        latest[event.host] = event
    if not (events or away):
        raise SpecError("rows", 0, "at least one event")
    kept = in_order(events, duration_s)
    origin = f"{name}: {len(kept)} of {len(events)} events before the end"
    return Recorded(origin, kept, tuple(sorted(away)))


def events_csv(events: Iterable[OwnerEvent], away: Iterable[str] = ()) -> str:
    """The text of a file that gives these events back."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *OPTIONAL])
    writer.writerows(("0", host, "away", "", "") for host in away)
    for event in events:
        kind = "emergency" if event.kind == "reclaim" and not event.notice_s else event.kind
        notice = plain(event.notice_s) if event.notice_s else ""
        writer.writerow((plain(event.at_s), event.host, kind, notice, "yes" if event.grace else ""))
    return out.getvalue()
