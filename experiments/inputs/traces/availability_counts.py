"""Recorded availability: how many instances of a cloud region could be had, sampled every so often, or at each change.

    {"metadata": {"gap_seconds": 300}, "data": [4, 4, 1, 0, ...]}

    time,available              or one column a zone, which are added up: time,us-east-1a,us-east-1b;
    0,4                         times at any distance, in order: seconds, or with a unit, or dates
    300,1                       or the unit is in the column's name: time_h, time_min; or two columns: date,time,available

Several records (for example, of the zones of one region) are added up, from the beginning of each, as long as the
shortest lasts. A drop is so many reclaims, a rise so many returns; hosts that the first sample lacks are away from the
start. When in the gap between two samples it happened is not recorded, so the times are spread over the gap. How the
record is fitted to a run:

* Hosts: up to `max(data)` hosts take part, drawn once; if there are more, the rest stay lent. If there are fewer, counts
  are scaled down in proportion.
* Speed: recorded time is played 1, 2, 4, ... times as fast as the scenario's. The slowest is taken that brings a
  reclaim for every second host that takes part, or the whole record into the run. A record in which nothing drops is
  played as it is.
* Window: the seed draws a stretch as long as the run, among those with the most reclaims (at least 80 % of the most).
* Which hosts, and whether they give notice, follow the scenario's law of owners; the record has neither.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from experiments.inputs.scenario.owners import OwnerEvent, Owners
from experiments.inputs.traces.csv_rows import read_rows, times_s
from experiments.inputs.traces.generated import reclaim_of
from experiments.inputs.traces.streams import stream
from experiments.inputs.traces.trace import Recorded, in_order
from topologies.errors import SpecError
from topologies.tables import shown
from topologies.units import format_duration

MOST = 100_000  # instances
SHORTEST_GAP_S, LONGEST_GAP_S = 1.0, 30 * 86_400.0
FASTEST = 4096
# Of a record whose changes are written at any time: enough for a second's grain in a day.
MAX_SAMPLES = 100_000
LATEST_S = 1e10  # such as seconds since 1970; larger numbers are in a finer unit
BUSY = 0.8  # of the reclaims of the busiest window


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of available instances, sampled every `gap_s` seconds."""

    gap_s: float
    available: tuple[int, ...]

    def fitted(self, hosts: int) -> Counts:
        """Return the record scaled down to at most `hosts` instances."""
        most = max(self.available)
        if most <= hosts:
            return self
        return replace(self, available=tuple((n * hosts + most // 2) // most for n in self.available))

    def drops(self) -> list[int]:
        """Return the number of reclaims in each gap."""
        return [max(0, before - after) for before, after in itertools.pairwise(self.available)]

    def at(self, gap_s: float, samples: int) -> list[int]:
        """Return the first `samples` of the record, sampled every `gap_s` seconds."""
        last = len(self.available) - 1
        return [self.available[min(last, int(step * gap_s / self.gap_s + 1e-6))] for step in range(samples)]


def parse_counts_json(text: str) -> Counts:
    """Return the record in a JSON text: an object with `metadata` and `data`."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(f"line {error.lineno}, column {error.colno}", error.msg, "JSON") from None
    except (RecursionError, ValueError):
        raise SpecError("JSON", text[:40], "values of a reasonable depth and length") from None
    metadata, data = (document.get("metadata"), document.get("data")) if isinstance(document, dict) else (0, 0)
    if not isinstance(metadata, dict) or "data" not in document:
        allowed = 'an object {"metadata": {"gap_seconds": ...}, "data": [...]}'
        raise SpecError("JSON", shown(document), allowed)
    gap_s = metadata.get("gap_seconds")
    is_number = isinstance(gap_s, int | float) and not isinstance(gap_s, bool)
    if gap_s is None or not is_number or not SHORTEST_GAP_S <= gap_s <= LONGEST_GAP_S:
        allowed = f"seconds, from {SHORTEST_GAP_S:g} to {LONGEST_GAP_S:g}"
        raise SpecError("metadata.gap_seconds", shown(gap_s), allowed)
    if not isinstance(data, list) or len(data) < 2:
        raise SpecError("data", shown(data), "a list of at least two counts")
    for place, count in enumerate(data):
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST:
            raise SpecError(f"data[{place}]", shown(count), f"a whole number from 0 to {MOST}")
    if not any(data):
        raise SpecError("data", "only zeros", "at least one count above 0")
    return Counts(float(gap_s), tuple(data))


def parse_counts_csv(text: str) -> Counts:
    """Return the record in a CSV text whose first column is the time and all others are counts."""
    rows = read_rows(text, ())
    if len(rows) < 2:
        raise SpecError("rows", len(rows), "at least two rows, at different times")
    time, *zones = rows[0].fields
    if not zones:
        raise SpecError("line 1", shown(time), "a column for the time, and at least one of counts")
    found_s = times_s(rows, time, latest_s=LATEST_S)
    for row, (before_s, at_s) in zip(rows[1:], itertools.pairwise(found_s), strict=True):
        if at_s < before_s:
            raise row.wrong(time, "at least the time of the row before")
    since_s = [at_s - found_s[0] for at_s in found_s]
    totals = [sum(row.whole(zone, 0, MOST) for zone in zones) for row in rows]
    gaps_s = [after - before for before, after in itertools.pairwise(since_s) if after > before]
    if since_s[-1] < SHORTEST_GAP_S * max(1, len(gaps_s)):
        found = f"{len(gaps_s) + 1} times within {since_s[-1]:g} s"
        allowed = (
            f"at least two, {SHORTEST_GAP_S:g} s or more apart in the mean; numbers of hours are in a column time_h"
        )
        raise SpecError("rows", found, allowed)
    gap_s = max(min(gaps_s), since_s[-1] / MAX_SAMPLES, SHORTEST_GAP_S)
    samples = round(since_s[-1] / gap_s) + 1
    available = [totals[bisect_right(since_s, step * gap_s * (1.0 + 1e-9)) - 1] for step in range(samples)]
    if not any(available):
        raise SpecError("rows", "only zeros", "at least one count above 0")
    return Counts(gap_s, tuple(available))


def together(records: Sequence[Counts]) -> Counts:
    """Return the sum of several records, as long as the shortest of them."""
    if len(records) == 1:
        return records[0]
    gap_s = min(record.gap_s for record in records)
    length_s = min(record.gap_s * (len(record.available) - 1) for record in records)
    gap_s = max(gap_s, length_s / MAX_SAMPLES)
    columns = [record.at(gap_s, int(length_s / gap_s + 1e-6) + 1) for record in records]
    return Counts(gap_s, tuple(map(sum, zip(*columns, strict=True))))


def fit_counts(
    counts: Counts, name: str, hosts: Sequence[str], duration_s: float, owners: Owners, seed: int
) -> Recorded:
    """Return the record, fitted to the run by the rules at the head of this file."""
    rng = stream(seed, "spot trace")
    fitted = counts.fitted(len(hosts))
    chosen = rng.sample(list(hosts), max(fitted.available))
    drops, wanted = fitted.drops(), max(1, len(chosen) // 2)
    speed = 1.0  # the slowest power of two whose busiest window has the reclaims that are wanted
    while True:
        steps = max(1, round(min(float(len(drops)), duration_s * speed / fitted.gap_s)))
        total = [0, *itertools.accumulate(drops)]
        in_window = [after - before for before, after in zip(total, total[steps:], strict=False)]
        happens = duration_s * speed >= fitted.gap_s and max(in_window) >= wanted
        if happens or steps == len(drops) or speed >= FASTEST or not any(drops):
            break
        speed *= 2.0
    enough = BUSY * max(in_window)
    start = rng.choice([begin for begin, dropped in enumerate(in_window) if dropped >= enough])
    window = replace(fitted, gap_s=fitted.gap_s / speed, available=fitted.available[start : start + steps + 1])
    samples = f"samples {start} to {start + steps} of {len(counts.available)} every {counts.gap_s:g} s"
    samples += f" ({format_duration(counts.gap_s * (len(counts.available) - 1))} in all)"
    origin = f"{name}: {samples}, played {speed:g} times as fast"
    lent, away = list(chosen), list[str]()
    away += [_take(lent, rng) for _ in range(len(chosen) - window.available[0])]
    from_the_start = tuple(sorted(away))
    events: list[OwnerEvent] = []
    reclaimed: dict[str, OwnerEvent] = {}  # not among the events yet: a return may cut the notice short
    for step, (before, after) in enumerate(itertools.pairwise(window.available)):
        for share in sorted(rng.random() for _ in range(abs(after - before))):
            at_s = (step + share) * window.gap_s
            host = _take(lent if after < before else away, rng)
            if after < before:
                away.append(host)
                reclaimed[host] = reclaim_of(owners, host, at_s, rng.random(), rng.random())
            else:
                lent.append(host)
                if host in reclaimed:
                    events.append(shortened(reclaimed.pop(host), at_s))
                events.append(OwnerEvent(at_s, host, "return"))
    events += reclaimed.values()
    return Recorded(origin, in_order(events, duration_s), from_the_start)


def shortened(reclaim: OwnerEvent, return_s: float) -> OwnerEvent:
    """Return the reclaim, its notice at most half of the time until the host's return."""
    return replace(reclaim, notice_s=min(reclaim.notice_s, (return_s - reclaim.at_s) / 2.0))


def _take(names: list[str], rng: Random) -> str:
    return names.pop(int(rng.random() * len(names)))
