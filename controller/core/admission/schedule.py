"""Times and rates of payloads: a fluid schedule of parcels over the links of a network.

A parcel has bytes, a first moment, a due time, a path and a cap (the host's own link). A schedule gives every
parcel a rate that is constant over spans of time; on no link is the sum of rates ever more than its share.

On one link without caps the schedule that gives everything to the earliest due time (EDF) delivers in time
whenever any schedule does, for any first moments (Jackson's rule with preemption; Horn 1974). With caps, or
on a network, the question is a linear program: bytes of each parcel in each span between two first or due
times, at most cap x length each, at most share x length in sum on each link. No rule that looks only at the
present solves it always. Two are tried here, and each one that succeeds is a witness, because the schedule
itself is what is enforced: nothing is admitted that cannot be delivered.

- **EDF until no laxity** (EDZL, Lee 1994): at every moment, parcels by due time, each as fast as its path has
  room; but one that must run at its peak rate from now on goes first. A parcel on a slow access link cannot make
  good later what it lets pass now; EDF does not see that. On one link without caps it is EDF.
- **constant**: eq. (12)'s rates throughout, where they fit on all links. A last resort, since it leaves nothing
  for those that come later.

Of random feasible sets of 2 to 6 parcels on a two-building network the first rule finds a schedule for 99.7 %;
plain EDF for 97 % (`tests/test_timetable.py` holds them to the linear program).

The rules are in machine code (`compiled`), on columns in order of due time and key: of the parcels with the least rank,
that with the least number turns to a link first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled
from topologies.spec import DirectedLink

SLIPPED = 0.05  # of a payload: a parcel that is behind by no more has hit delays, and may yet be in time
EXACT = 1e-9  # relative: what rounding may make of a payload or a laxity that is zero
# relative: what it may add to a sum; less than EXACT, so that a schedule forgives what a sum did
SUMMED = 1e-12

Spans = list[tuple[int, float, float, float]]  # (number of the parcel, from, until, bytes/s)


class Parcel(NamedTuple):
    """So many bytes over all of `links`, none before `start_s`, all by `due_s`, never faster than the cap.

    A tuple, as a span is: they are made all the time.
    """

    key: str
    payload_bytes: float
    start_s: float
    due_s: float
    links: tuple[DirectedLink, ...]
    cap_bytes_per_s: float = math.inf
    # a moment after `start_s` from which it would rather be sent, and whether it may not be refused: for `moore_hodgson`
    rather_start_s: float = -math.inf
    reserved: bool = False

    @property
    def comfortable(self) -> Parcel:
        """The same parcel, starting when it would rather be sent."""
        return self._replace(start_s=self.rather_start_s) if self.rather_start_s > self.start_s else self


class RateSpan(NamedTuple):
    """A rate in bytes/s, held from `from_s` until `until_s`."""

    from_s: float
    until_s: float
    rate_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Timetable:
    """`spans`: key -> spans with a positive rate, in order. `late`: parcels that miss their due time, if any."""

    spans: dict[str, tuple[RateSpan, ...]] = field(default_factory=dict)
    late: frozenset[str] = frozenset()

    def rate_at(self, key: str, now_s: float) -> float:
        """Return the rate of a parcel at a moment, bytes/s; 0 outside its spans."""
        spans = self.spans.get(key, ())
        return next((s.rate_bytes_per_s for s in spans if s.from_s <= now_s < s.until_s), 0.0)

    def begins_s(self, key: str) -> float:
        """Return the start of its first span; infinity for a parcel that has none."""
        spans = self.spans.get(key)
        return spans[0].from_s if spans else math.inf

    def ends_s(self, key: str) -> float:
        """Return the time of its last byte; minus infinity for a parcel without spans."""
        spans = self.spans.get(key)
        return spans[-1].until_s if spans else -math.inf

    def next_change_s(self, now_s: float) -> float:
        """The next moment after `now_s` at which some rate changes; infinity if none does."""
        edges = (edge for spans in self.spans.values() for s in spans for edge in (s.from_s, s.until_s))
        return min((edge for edge in edges if edge > now_s), default=math.inf)


def timetable(parcels: Iterable[Parcel], now_s: float, share: Mapping[DirectedLink, float]) -> Timetable:
    """A schedule that delivers every parcel by its due time, if one of the rules finds one (see the module).

    Otherwise a schedule that says which are late: those are sent too, with what the others leave. Independent of the
    order of `parcels`; equal due times go by key. ValueError: a link without a share.
    """
    ordered = _by_due(parcels)
    late, found = _timetable(*_columns(ordered, share), now_s)
    spans: list[list[RateSpan]] = [[] for _ in ordered]
    for number, from_s, until_s, rate in found:
        spans[number].append(RateSpan(from_s, until_s, rate))
    keys = [parcel.key for parcel in ordered]
    who = frozenset(key for key, is_late in zip(keys, late.tolist(), strict=True) if is_late)
    return Timetable({key: tuple(some) for key, some in zip(keys, spans, strict=True)}, who)


def all_in_time(parcels: Iterable[Parcel], now_s: float, share: Mapping[DirectedLink, float]) -> bool:
    """Return whether no parcel is late in their `timetable`; sums that rounding makes too large are not forgiven here.

    ValueError: a link without a share.
    """
    return _all_in_time(*_columns(_by_due(parcels), share), now_s)


# ---------------------------------------------------------------- parcels as columns


class _Freight(NamedTuple):
    """Parcels by due time: parcel i crosses link[first[i]:first[i + 1]], whose shares are in `share`.

    `peak` is the most that cap and path allow, bytes/s; `least` bytes count as none.
    """

    payload: Floats
    start_s: Floats
    due_s: Floats
    peak: Floats
    least: Floats
    first: Numbers
    link: Numbers
    share: Floats


def _by_due(parcels: Iterable[Parcel]) -> list[Parcel]:
    return sorted(parcels, key=lambda parcel: (parcel.due_s, parcel.key))


def _columns(
    parcels: Sequence[Parcel], share: Mapping[DirectedLink, float]
) -> tuple[Floats, Numbers, Numbers, Floats]:
    """Return payloads, starts, due times and caps; where the links of each begin; links, numbered as they come; their shares."""
    number: dict[DirectedLink, int] = {}
    first, crossed = [0], []
    for parcel in parcels:
        crossed += [number.setdefault(link, len(number)) for link in parcel.links]
        first.append(len(crossed))
    for link in number:
        if link not in share:
            raise ValueError(f"link {link}: no migration share is known")
    columns = [
        [parcel.payload_bytes for parcel in parcels],
        [parcel.start_s for parcel in parcels],
        [parcel.due_s for parcel in parcels],
        [parcel.cap_bytes_per_s for parcel in parcels],
    ]
    shares = np.array([share[link] for link in number], dtype=float)
    return np.array(columns, dtype=float), np.array(first), np.array(crossed, dtype=np.intp), shares


@compiled
def _freight(columns: Floats, first: Numbers, link: Numbers, share: Floats, now_s: float) -> _Freight:
    payload, start_s, due_s, peak = columns[0], columns[1].copy(), columns[2], columns[3].copy()
    least = np.empty(len(payload))
    for number in range(len(peak)):
        start_s[number] = max(now_s, start_s[number])
        for crossed in link[first[number] : first[number + 1]]:
            peak[number] = min(peak[number], share[crossed])
        # what passes between a time and the next that can be told from it: a schedule is no more exact than its clock
        rate, at_s, instant = peak[number], max(start_s[number], due_s[number]), 0.0
        if rate < np.inf and at_s < np.inf:
            instant = rate * (np.nextafter(at_s, np.inf) - at_s)
        least[number] = max(payload[number] * EXACT, instant)
    return _Freight(payload, start_s, due_s, peak, least, first, link, share)


@compiled
def _timetable(
    columns: Floats, first: Numbers, link: Numbers, share: Floats, now_s: float
) -> tuple[Mask, Spans]:
    """Return the parcels that are late, and spans: `timetable` on columns."""
    freight = _freight(columns, first, link, share, now_s)
    late, spans = _simulate(freight, now_s, True)
    if late.any():
        if _fits(freight):
            return np.zeros_like(late), _constant(freight)
        late, spans = _simulate(freight, now_s, False)
    return late, spans


@compiled
def _all_in_time(columns: Floats, first: Numbers, link: Numbers, share: Floats, now_s: float) -> bool:
    freight = _freight(columns, first, link, share, now_s)
    if _overrun(freight):
        return False
    return not _simulate(freight, now_s, True)[0].any() or _fits(freight)


@compiled
def _overrun(freight: _Freight) -> bool:
    """Return whether some link cannot carry the bytes due by some moment, even from the earliest start."""
    start_s, sent = np.full(len(freight.share), np.inf), np.zeros(len(freight.share))
    for number in range(len(freight.peak)):
        for link in freight.link[freight.first[number] : freight.first[number + 1]]:
            start_s[link] = min(start_s[link], freight.start_s[number])
    for number in range(len(freight.peak)):
        for link in freight.link[freight.first[number] : freight.first[number + 1]]:
            sent[link] += freight.payload[number]
            time_s = max(0.0, freight.due_s[number] - start_s[link])
            if sent[link] > freight.share[link] * time_s * (1.0 + SUMMED):
                return True
    return False


# ---------------------------------------------------------------- the rule that looks at the present


class _UnderWay(NamedTuple):
    """State of each parcel: bytes left, its rate now (NaN: it may not start yet), and the span that it is in."""

    left: Floats
    rate: Floats
    from_s: Floats
    until_s: Floats
    at_rate: Floats


@compiled
def _simulate(freight: _Freight, now_s: float, strict: bool) -> tuple[Mask, Spans]:
    """Follow a rule until everything is delivered. `strict`: only until a parcel must be late."""
    size = len(freight.peak)
    way = _UnderWay(freight.payload.copy(), np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size))
    late, spans, at_s = np.zeros(size, np.bool_), [(0, 0.0, 0.0, 0.0) for _ in range(0)], now_s
    while np.count_nonzero(way.left):
        for number in range(size):
            behind = _behind(freight, way, number, max(at_s, freight.start_s[number]))
            late[number] |= way.left[number] > 0.0 and behind > freight.least[number]
        if strict and late.any():
            return late, spans
        _set_rates(freight, way, at_s)
        until_s = _next_event_s(freight, way, at_s)
        if until_s == np.inf:  # a share of 0: those never arrive
            for number in range(size):
                late[number] |= way.left[number] > 0.0
            break
        # or an instant that no clock tells would never pass
        until_s = max(until_s, np.nextafter(at_s, np.inf))
        _advance(freight, way, spans, at_s, until_s)
        at_s = until_s
    for number in range(size):
        _end_span(way, spans, number)
    return late, spans


@compiled
def _behind(freight: _Freight, way: _UnderWay, number: int, at_s: float) -> float:
    """Bytes that its peak rate could not deliver any more by the due time; negative: laxity, in bytes."""
    return way.left[number] - freight.peak[number] * max(0.0, freight.due_s[number] - at_s)  # type: ignore[no-any-return]


@compiled
def _set_rates(freight: _Freight, way: _UnderWay, at_s: float) -> None:
    """Send by rank (0: no laxity left; 1: some; 2: hopeless) and due time, each as fast as its links have room."""
    room, ranks = freight.share.copy(), np.full(len(freight.peak), -1)
    for number in range(len(ranks)):
        way.rate[number] = np.nan
        if way.left[number] > 0.0 and freight.start_s[number] <= at_s:
            behind, least = _behind(freight, way, number, at_s), freight.least[number]
            if behind > max(least, SLIPPED * freight.payload[number]):
                ranks[number] = 2
            else:
                ranks[number] = 0 if behind >= -least else 1
    for rank in range(3):
        for number in range(len(ranks)):
            if ranks[number] == rank:
                links = freight.link[freight.first[number] : freight.first[number + 1]]
                rate = freight.peak[number]
                for link in links:
                    rate = min(rate, room[link])
                for link in links:
                    room[link] = max(0.0, room[link] - rate)
                way.rate[number] = rate


@compiled
def _next_event_s(freight: _Freight, way: _UnderWay, at_s: float) -> float:
    """Return the time at which rates change next: an arrival, a last byte, or the end of a parcel's laxity."""
    soonest_s = np.inf
    for number in range(len(way.rate)):
        rate, peak = way.rate[number], freight.peak[number]
        if way.left[number] > 0.0 and freight.start_s[number] > at_s:
            soonest_s = min(soonest_s, freight.start_s[number])
        if rate > 0.0:
            soonest_s = min(soonest_s, at_s + way.left[number] / rate)
        behind = _behind(freight, way, number, at_s)
        if behind < -freight.least[number] and rate < peak and peak < np.inf:
            soonest_s = min(soonest_s, at_s - behind / (peak - rate))
    return soonest_s


@compiled
def _advance(freight: _Freight, way: _UnderWay, spans: Spans, at_s: float, until_s: float) -> None:
    for number in range(len(way.rate)):
        rate = way.rate[number]
        if rate == np.inf:  # crosses no link: both ends are one host
            way.left[number] = 0.0
        elif rate > 0.0:
            left = way.left[number] - rate * (until_s - at_s)
            way.left[number] = left if left > freight.least[number] else 0.0
            if way.at_rate[number] != rate or way.until_s[number] != at_s:
                _end_span(way, spans, number)
                way.from_s[number], way.at_rate[number] = at_s, rate
            way.until_s[number] = until_s


@compiled
def _end_span(way: _UnderWay, spans: Spans, number: int) -> None:
    if way.at_rate[number] > 0.0:
        spans.append((number, way.from_s[number], way.until_s[number], way.at_rate[number]))


# ---------------------------------------------------------------- the rule that does not


@compiled
def _constant(freight: _Freight) -> Spans:
    """Each parcel at C / (due - start) from start to due."""
    spans = [(0, 0.0, 0.0, 0.0) for _ in range(0)]
    for number in range(len(freight.payload)):
        from_s, until_s = freight.start_s[number], freight.due_s[number]
        spans.append((number, from_s, until_s, freight.payload[number] / (until_s - from_s)))
    return spans


@compiled
def _fits(freight: _Freight) -> bool:
    """Return whether the constant rates are within caps, and on every link at every moment within its share."""
    for number, from_s, until_s, _ in _constant(freight):
        if not until_s > from_s or not freight.payload[number] <= freight.peak[number] * (until_s - from_s):
            return False
    for at_s in freight.start_s:
        taken = np.zeros(len(freight.share))
        for number, from_s, until_s, rate in _constant(freight):
            if from_s <= at_s and at_s < until_s:
                for link in freight.link[freight.first[number] : freight.first[number + 1]]:
                    taken[link] += rate
                    if taken[link] > freight.share[link] * (1.0 + EXACT):
                        return False
    return True
