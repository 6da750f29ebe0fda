"""Cables between switches that go down and come back: drawn from a scenario's law, or read from a file.

    time,a,b,event,drain
    2 h,library,core1,down,1 min
    2.5 h,library,core1,up,

`time` and `drain` are seconds of the scenario (before its scale), or have a unit. `drain`: for how long before it goes down what
can leaves it; empty: it is cut without a word. Rows are in order of time. Every cable works at the beginning.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from experiments.inputs.scenario import Scenario
from experiments.inputs.scenario.parts import LinkEvent
from experiments.inputs.traces.csv_rows import read_rows
from experiments.inputs.traces.streams import stream, unit_exponential
from experiments.inputs.traces.timestamps import LATEST_S, Moments
from experiments.inputs.traces.trace import Trace
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.spec import Campus
from topologies.units import plain

COLUMNS = ("time", "a", "b", "event", "drain")
MAX_CUTS = 100_000


def cuts(scenario: Scenario) -> tuple[LinkEvent, ...]:
    """Failures and repairs of all cables between switches, before the run ends, in order of time; none without a law."""
    law, found = scenario.trunks, list[LinkEvent]()
    if law is None:
        return ()
    trunks = _trunks(scenario.campus)
    if not trunks:
        raise SpecError("trunks", "no cable between two switches", "a campus that has some")
    expected = len(trunks) * scenario.duration_s * law.hazard_per_s
    if expected > MAX_CUTS:
        raise SpecError(
            "trunks.hazard", law.hazard_per_s, f"at most {MAX_CUTS} expected failures, not {expected:.3g}"
        )
    for a, b in trunks:
        rng, works_s = stream(scenario.seed, "trunk", a, b), 0.0
        while True:
            at_s = works_s + unit_exponential(rng) / law.hazard_per_s
            repaired_s = at_s + law.repair_s * unit_exponential(rng)
            is_announced = rng.random() < law.announced and at_s - works_s >= law.drain_s
            if at_s >= scenario.duration_s:
                break
            found.append(LinkEvent(at_s, (a, b), up=False, drain_s=law.drain_s if is_announced else None))
            if repaired_s >= scenario.duration_s:
                break
            found.append(LinkEvent(repaired_s, (a, b), up=True))
            works_s = repaired_s
    return tuple(sorted(found, key=lambda cut: (cut.at_s, cut.between)))


def events_of_links(scenario: Scenario, trace: Trace) -> tuple[LinkEvent, ...]:
    """What happens to cables in a run: the scenario's events, and the trace's cuts; in order of time.

    SpecError: a trace that is no file of this scenario's cuts a cable that the campus does not have.
    """
    for cut in trace.cuts:
        a, b = cut.between
        if b not in scenario.campus.neighbours.get(a, {}):
            raise SpecError("cuts", f"{a}-{b}", f"the two ends of a cable of campus {scenario.campus.name}")
    return tuple(sorted([*scenario.events, *trace.cuts], key=lambda event: event.at_s))


def parse_cuts(
    text: str, campus: Campus, duration_s: float, moments: Moments | None = None
) -> tuple[LinkEvent, ...]:
    """The cuts of a CSV text before the run ends. SpecError says line, column, value and what is allowed."""
    moments, trunks = moments or Moments(), {frozenset(ends) for ends in _trunks(campus)}
    found: list[LinkEvent] = []
    down = set[frozenset[str]]()
    for row in read_rows(text, COLUMNS, optional=()):
        a, b, kind = row.text("a"), row.text("b"), row.text("event")
        ends = frozenset((a, b))
        if ends not in trunks:
            near = sorted("-".join(sorted(trunk)) for trunk in trunks if trunk & ends)[:12]
            raise row.wrong(
                "b", f"a switch that has a cable to the switch {a}{': ' + ', '.join(near) if near else ''}"
            )
        if kind != ("up" if ends in down else "down"):
            raise row.wrong("event", "up, for it is down" if ends in down else "down, for it works")
        at_s = moments.seconds(row, "time")
        if found and at_s < found[-1].at_s:
            raise row.wrong("time", f"at least the time of the row before, {found[-1].at_s:g} s")
        drain_s = None
        if row.text("drain"):
            if kind == "up":
                raise row.wrong("drain", "none: it comes back")
            drain_s = row.quantity("drain", Dimension.DURATION, 0.0, min(at_s, LATEST_S)) or None
        down ^= {ends}
        found.append(LinkEvent(at_s, (a, b), up=kind == "up", drain_s=drain_s))
    return tuple(cut for cut in found if cut.at_s < duration_s)


def cuts_csv(found: Iterable[LinkEvent]) -> str:
    """A text that `parse_cuts` reads as these."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for cut in found:
        drain = "" if cut.drain_s is None else plain(cut.drain_s)
        rows.writerow([plain(cut.at_s), *cut.between, "up" if cut.up else "down", drain])
    return text.getvalue()


def _trunks(campus: Campus) -> list[tuple[str, str]]:
    switches = campus.switch_by_name
    return [(link.a, link.b) for link in campus.links if link.a in switches and link.b in switches]
