"""Recorded lives of machines: when each one joined a cluster and when it left. Four ways to write it down:

    time,event,node             Bamboo (NSDI 23): add and remove; without a header, in milliseconds: 480000,add,node1
    time,machine_id,event       Alibaba (cluster-trace-v2017, server_event.csv): add, softerror, harderror; without a header
    time,host,available         samples of each host, 1 or 0 (a column may also be called node, machine, instance or vm)
    time,a,b,c                  the same, a column of 1 and 0 for each machine

Rows may come in any order. A machine whose first event is not its joining was there from the beginning, one whose first sample
is 0 was not; a row that says what is known already (another error of a machine that is gone) is passed over. After a soft error
a machine is back within the hour, if no row says when ("temporarily unavailable"). Names of machines are the record's own. How it
is fitted to a run:

* Hosts: machines of which one has left for good before the other joins share a place. Places are given to hosts drawn by the
  seed. If there are more places than hosts, those from which a machine ever leaves come first; if there are fewer, the
  other hosts stay lent.
* Speed: recorded time is played 1, 2, 4, ... times as fast as the scenario's, the slowest that brings a reclaim for every
  second host that takes part (or the whole record into the run); as it is, if no machine ever leaves.
* Window: of all stretches as long as the run, one of those with the most reclaims (at least 80 % of the most), drawn by the
  seed.
* A hard error is an emergency. Whether other ends give notice follows the scenario's law of owners; the record does not say.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from experiments.inputs.scenario.owners import OwnerEvent, Owners
from experiments.inputs.traces.availability_counts import BUSY, FASTEST, shortened
from experiments.inputs.traces.csv_rows import CsvRow, read_rows
from experiments.inputs.traces.generated import reclaim_of
from experiments.inputs.traces.streams import stream
from experiments.inputs.traces.timestamps import SUFFIXES, elapsed_s
from experiments.inputs.traces.trace import Recorded, in_order
from topologies.errors import SpecError
from topologies.tables import shown_text

TIMES = (
    *("time", "timestamp", "time_stamp", "ts", "datetime", "date"),
    *(f"{name}{suffix}" for name in ("time", "timestamp", "ts") for suffix in SUFFIXES.values()),
)
NAMES = ("node", "machine_id", "machineid", "machine", "instance", "instance_id", "vm", "host", "server")
EVENTS = ("event", "event_type", "eventtype")
STATES = ("available", "availability", "up", "state", "status")
JOINS = ("add", "up", "join")
LEAVES = ("remove", "down", "leave", "preempt")
SOFT, HARD = "softerror", "harderror"
# Says something else about a machine that is there.
OTHER = ("update",)
KNOWN = (*JOINS, *LEAVES, SOFT, HARD, *OTHER)
LONGEST_NAME = 200
# How long a machine is away after a soft error, where the record does not say.
SOFT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Life:
    """A machine is there from `from_s` until `until_s` (inf: to the end), seconds of the record."""

    from_s: float
    until_s: float = inf
    is_abrupt: bool = False  # it ended by a hard error


@dataclass(frozen=True, slots=True)
class Machines:
    """The lives of each machine, in order; `span_s`: length of the record; `unit`: what its numbers were taken for."""

    lives: tuple[tuple[Life, ...], ...]
    span_s: float
    unit: str = ""


def parse_machines(text: str, header: Sequence[str] | None = None) -> Machines:
    """The lives in a CSV text; `header`: its columns, if no line names them."""
    rows = list(read_rows(text, (), header))
    if not rows:
        raise SpecError("rows", 0, "at least one row")
    time, name, event, state = (column_of(rows[0].fields, names) for names in (TIMES, NAMES, EVENTS, STATES))
    if time is None or name is None or (event is None and state is None):
        allowed = "columns for the time, the machine, and its event or availability, such as time,node,event"
        raise SpecError("line 1", shown_text(",".join(rows[0].fields)), allowed)
    times_s, unit = elapsed_s(rows, time)
    told: dict[str, list[tuple[float, str]]] = {}
    for at_s, row in sorted(zip(times_s, rows, strict=True), key=lambda pair: pair[0]):
        machine = row.text(name)
        if not (machine.isprintable() and 0 < len(machine) <= LONGEST_NAME):
            raise row.wrong(name, f"a name of 1 to {LONGEST_NAME} printable characters")
        if event is None:
            said = _change(row, state or "")
        elif (said := row.text(event).lower()) not in KNOWN:
            raise row.wrong(event, f"one of {', '.join(KNOWN)}")
        told.setdefault(machine, []).append((at_s, said))
    return _machines(told, max(times_s), unit, sampled=event is None)


def parse_series(text: str) -> Machines | None:
    """The lives in a CSV text with a column of 1 and 0 for each of several machines; None if it is no such text."""
    rows = list(read_rows(text, ()))
    time, *names = rows[0].fields if rows else ("",)
    if min(len(rows), len(names)) < 2 or not all(
        row.text(name) in ("0", "1") for row in rows for name in names
    ):
        return None
    times_s, unit = elapsed_s(rows, time)
    ordered = sorted(zip(times_s, rows, strict=True), key=lambda pair: pair[0])
    told = {name: [(at_s, _change(row, name)) for at_s, row in ordered] for name in names}
    return _machines(told, max(times_s), unit, sampled=True)


def column_of(columns: Iterable[str], names: Sequence[str]) -> str | None:
    """The first of the columns that has one of these names, in capitals or not."""
    return next((column for column in columns if column.lower() in names), None)


def fit_machines(
    records: Sequence[Machines], name: str, hosts: Sequence[str], duration_s: float, owners: Owners, seed: int
) -> Recorded:
    """The records, each on places of its own, fitted to the run as this file's head says."""
    rng = stream(seed, "machines")
    places = [place for record in records for place in _places(record)]
    rng.shuffle(places)
    places.sort(key=lambda place: place[0].until_s == inf)
    chosen = dict(zip(rng.sample(list(hosts), min(len(hosts), len(places))), places, strict=False))
    ends_s = sorted(life.until_s for place in chosen.values() for life in place if life.until_s < inf)
    span_s = max(record.span_s for record in records)
    speed = 1.0
    while (
        ends_s
        and duration_s * speed < span_s
        and speed < FASTEST
        and max(_within(ends_s, at_s, duration_s * speed) for at_s in ends_s) < (len(chosen) + 1) // 2
    ):
        speed *= 2.0
    window_s, begin_s = duration_s * speed, 0.0
    if window_s < span_s:
        share = rng.random()
        begins_s = [min(max(0.0, end_s - share * window_s), span_s - window_s) for end_s in ends_s] or [0.0]
        found = [_within(ends_s, each_s, window_s) for each_s in begins_s]
        enough = BUSY * max(found)
        begin_s = rng.choice([each_s for each_s, ends in zip(begins_s, found, strict=True) if ends >= enough])
    events: list[OwnerEvent] = []
    for host, place in sorted(chosen.items()):
        events += _played(host, place, begin_s, speed, owners, rng)
    away = [
        host
        for host, place in sorted(chosen.items())
        if not any(life.from_s <= begin_s < life.until_s for life in place)
    ]
    units = sorted({record.unit for record in records} - {""})
    origin = (
        f"{name}: machines of {len(chosen)} of {len(places)} places{''.join(f', times in {unit}' for unit in units)}, "
        f"from {begin_s:.0f} s of {span_s:.0f} s on, played {speed:g} times as fast"
    )
    return Recorded(origin, in_order(events, duration_s), tuple(away))


def _machines(
    told: Mapping[str, Sequence[tuple[float, str]]], span_s: float, unit: str, *, sampled: bool
) -> Machines:
    stories = (story for _, story in sorted(told.items()))
    lives = tuple(filter(None, (tuple(_lives(story, sampled=sampled)) for story in stories)))
    if not lives:
        raise SpecError(
            "rows", sum(map(len, told.values())), "at least one machine that is there for some time"
        )
    return Machines(lives, span_s, unit)


def _change(row: CsvRow, column: str) -> str:
    if row.text(column) not in ("0", "1"):
        raise row.wrong(column, "0 or 1")
    return JOINS[0] if row.text(column) == "1" else LEAVES[0]


def _lives(story: Sequence[tuple[float, str]], *, sampled: bool) -> Iterator[Life]:
    """The lives of one machine, from its rows in order of time: what happened to it, or samples of whether it was there."""
    at_first_s, first = story[0]
    since_s: float | None = at_first_s if first in JOINS else None if sampled else 0.0
    back_s = inf  # from a soft error
    for at_s, event in story:
        if at_s >= back_s:
            since_s, back_s = back_s, inf
        if event in JOINS:
            since_s, back_s = at_s if since_s is None else since_s, inf
        elif event not in OTHER and since_s is not None:
            if since_s < at_s:
                yield Life(since_s, at_s, is_abrupt=event == HARD)
            since_s, back_s = None, at_s + SOFT_S if event == SOFT else inf
    if since_s is not None or back_s < inf:
        yield Life(back_s if since_s is None else since_s)


def places_left(record: Machines) -> int:
    """How many hosts it takes so that every machine that ever leaves is one of them for a while."""
    return sum(any(life.until_s < inf for life in place) for place in _places(record))


def _places(record: Machines) -> list[list[Life]]:
    """The lives that can be one host's, one after the other: machines of which one has left before the next one joins."""
    places: list[list[Life]] = []
    free: list[tuple[float, int]] = []  # (since, which place)
    for lives in sorted(record.lives, key=lambda lives: lives[0].from_s):
        if free and free[0][0] <= lives[0].from_s:
            number = heapq.heappop(free)[1]
            places[number] += lives
        else:
            number = len(places)
            places.append(list(lives))
        heapq.heappush(free, (lives[-1].until_s, number))
    return places


def _within(ends_s: Sequence[float], from_s: float, window_s: float) -> int:
    """How many of the ends, in order, fall into a window."""
    return bisect_left(ends_s, from_s + window_s) - bisect_left(ends_s, from_s)


def _played(
    host: str, place: Sequence[Life], begin_s: float, speed: float, owners: Owners, rng: Random
) -> Iterator[OwnerEvent]:
    """The owner's events that a place's lives mean, from the window's beginning on."""
    reclaim: OwnerEvent | None = None  # not given out yet: a return may cut the notice short
    for life in place:
        from_s, until_s = (life.from_s - begin_s) / speed, (life.until_s - begin_s) / speed
        if until_s <= 0.0:
            continue
        if from_s > 0.0:
            if reclaim is not None:
                yield shortened(reclaim, from_s)
            yield OwnerEvent(from_s, host, "return")
        reclaim = None
        if until_s < inf and life.is_abrupt:
            reclaim = OwnerEvent(until_s, host)
        elif until_s < inf:
            reclaim = reclaim_of(owners, host, until_s, rng.random(), rng.random())
    if reclaim is not None:
        yield reclaim
