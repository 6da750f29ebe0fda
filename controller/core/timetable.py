"""When each payload travels, at which rate: a fluid schedule of parcels over the links of a network.

A parcel has bytes, a first moment, a due time, a path and a cap (the host's own link). A schedule gives every
parcel a rate that is constant over spans of time; on no link is the sum of rates ever more than its share.

On one link without caps the schedule that gives everything to the earliest due time (EDF) delivers in time
whenever any schedule does, for any first moments (Jackson's rule with preemption; Horn 1974). With caps, or
on a network, the question is a linear program: bytes of each parcel in each span between two first or due
times, at most cap x length each, at most share x length in sum on each link. No rule that looks only at the
present solves it always. Two are tried here, and each one that succeeds is a witness, because the schedule
itself is what is enforced: nothing is admitted that cannot be delivered.

- **EDF until no laxity** (EDZL, Lee 1994): at every moment, parcels by due time, each as fast as its path has
  room; but who must run at its peak rate from now on goes first. A parcel on a slow access link cannot make
  good later what it lets pass now; EDF does not see that. On one link without caps it is EDF.
- **constant**: eq. (12)'s rates throughout, where they fit on all links. A last resort, since it leaves nothing
  for those who come later.

Of random feasible sets of 2 to 6 parcels on a two-building network the first rule finds a schedule for 99.7 %;
plain EDF for 97 % (`tests/test_timetable.py` holds them to the linear program).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from topologies.spec import DirectedLink

SLIPPED = 0.05  # of a payload: who is behind by no more has hit delays, and may yet be in time
EXACT = 1e-9  # relative: what rounding may make of a payload or a laxity that is zero
SUMMED = (
    1e-12  # relative: what it may add to a sum; less than EXACT, so that a schedule forgives what a sum did
)


@dataclass(frozen=True, slots=True)
class Parcel:
    """So many bytes over all of `links`, none before `start_s`, all by `due_s`, never faster than the cap."""

    key: str
    payload_bytes: float
    start_s: float
    due_s: float
    links: tuple[DirectedLink, ...]
    cap_bytes_per_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Span:
    """A rate in bytes/s, held from `from_s` until `until_s`."""

    from_s: float
    until_s: float
    rate_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Timetable:
    """`spans`: key -> spans with a positive rate, in order. `late`: parcels that miss their due time, if any."""

    spans: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    late: frozenset[str] = frozenset()

    def rate_at(self, key: str, now_s: float) -> float:
        """What a parcel may send at a moment, bytes/s; 0 outside its spans."""
        spans = self.spans.get(key, ())
        return next((s.rate_bytes_per_s for s in spans if s.from_s <= now_s < s.until_s), 0.0)

    def begins_s(self, key: str) -> float:
        """When its first span begins; infinity for a parcel that has none."""
        return min((span.from_s for span in self.spans.get(key, ())), default=math.inf)

    def ends_s(self, key: str) -> float:
        """When its last byte is sent; minus infinity for a parcel without spans."""
        return max((span.until_s for span in self.spans.get(key, ())), default=-math.inf)

    def next_change_s(self, now_s: float) -> float:
        """The next moment after `now_s` at which some rate changes; infinity if none does."""
        edges = (edge for spans in self.spans.values() for s in spans for edge in (s.from_s, s.until_s))
        return min((edge for edge in edges if edge > now_s), default=math.inf)


def timetable(parcels: Sequence[Parcel], now_s: float, share: Mapping[DirectedLink, float]) -> Timetable:
    """A schedule that delivers every parcel by its due time, if one of the rules finds one (see the module).

    Otherwise a schedule that says who is late: those are sent too, with what the others leave. Independent of the
    order of `parcels`; equal due times go by key. ValueError: a link without a share.
    """
    waybills = _waybills(parcels, now_s, share)
    found = _simulate(waybills, now_s, share, strict=True) or _constant(waybills, share)
    if found is not None:
        return found
    best = _simulate(waybills, now_s, share, strict=False)
    assert best is not None
    return best


def overrun(parcels: Iterable[Parcel], now_s: float, share: Mapping[DirectedLink, float]) -> bool:
    """Whether on some link what is due by some moment is more than the link can carry until then: nothing can help.

    A test in one pass, of first moments it sees only the earliest. ValueError: a link without a share.
    """
    sent: dict[DirectedLink, tuple[float, float]] = {}  # link -> (earliest start, bytes due so far)
    ordered = sorted(parcels, key=lambda p: p.due_s)
    for parcel in sorted(ordered, key=lambda p: p.start_s, reverse=True):
        sent.update(dict.fromkeys(parcel.links, (max(now_s, parcel.start_s), 0.0)))
    for parcel in ordered:
        for link in parcel.links:
            if link not in share:
                raise ValueError(f"link {link}: no migration share is known")
            start_s, before = sent[link]
            sent[link] = start_s, before + parcel.payload_bytes
            if sent[link][1] > share[link] * max(0.0, parcel.due_s - start_s) * (1.0 + SUMMED):
                return True
    return False


def one_turn_each(parcels: Sequence[Parcel], now_s: float) -> bool:
    """Whether they differ in nothing but bytes and due times, and nothing but links limits them.

    Then EDF is exact, and they can be delivered unless they `overrun` a link (Jackson's rule).
    """
    ways = {(parcel.links, max(now_s, parcel.start_s), parcel.cap_bytes_per_s) for parcel in parcels}
    return not ways or (len(ways) == 1 and next(iter(ways))[2] == math.inf)


# ---------------------------------------------------------------- one parcel under way


@dataclass(slots=True)
class _Waybill:
    """A parcel while it is being scheduled; `peak` is the most that cap and path allow, bytes/s."""

    parcel: Parcel
    start_s: float
    peak: float
    least: float  # bytes that count as none
    left: float
    spans: list[Span]

    def behind(self, at_s: float) -> float:
        """Bytes that its peak rate could not deliver any more by the due time; negative: laxity, in bytes."""
        return self.left - self.peak * max(0.0, self.parcel.due_s - at_s)

    def turn(self, at_s: float) -> tuple[int, float, str]:
        """Sorts by: no laxity left, then due time, then hopeless."""
        behind = self.behind(at_s)
        hopeless = behind > max(self.least, SLIPPED * self.parcel.payload_bytes)
        rank = 2 if hopeless else 0 if behind >= -self.least else 1
        return rank, self.parcel.due_s, self.parcel.key


def _waybills(parcels: Iterable[Parcel], now_s: float, share: Mapping[DirectedLink, float]) -> list[_Waybill]:
    made = []
    for parcel in parcels:
        for link in parcel.links:
            if link not in share:
                raise ValueError(f"link {link}: no migration share is known")
        peak = min((share[link] for link in parcel.links), default=math.inf)
        peak, start_s = min(peak, parcel.cap_bytes_per_s), max(now_s, parcel.start_s)
        least = max(parcel.payload_bytes * EXACT, _in_one_instant(peak, max(start_s, parcel.due_s)))
        made.append(_Waybill(parcel, start_s, peak, least, parcel.payload_bytes, []))
    return made


def _in_one_instant(rate: float, at_s: float) -> float:
    """What passes between a time and the next that can be told from it: a schedule is no more exact than its clock."""
    return rate * math.ulp(at_s) if rate < math.inf and at_s < math.inf else 0.0


# ---------------------------------------------------------------- the rule that looks at the present


def _simulate(
    waybills: Sequence[_Waybill],
    now_s: float,
    share: Mapping[DirectedLink, float],
    *,
    strict: bool,
) -> Timetable | None:
    """Follow a rule until everything is delivered. `strict`: None as soon as somebody must be late."""
    for waybill in waybills:
        waybill.left, waybill.spans = waybill.parcel.payload_bytes, []
    at_s, late = now_s, set[str]()
    todo = [w for w in waybills if w.left > 0.0]
    while todo:
        for waybill in todo:
            if waybill.behind(max(at_s, waybill.start_s)) > waybill.least:
                if strict:
                    return None
                late.add(waybill.parcel.key)
        ready = [w for w in todo if w.start_s <= at_s]
        rates = _rates(sorted(ready, key=lambda w: w.turn(at_s)), share)
        until_s = _next_event_s(todo, rates, at_s)
        if until_s == math.inf:  # a share of 0: those never arrive
            return Timetable(_spans(waybills), frozenset(late | {w.parcel.key for w in todo}))
        until_s = max(
            until_s, math.nextafter(at_s, math.inf)
        )  # or an instant that no clock tells would never pass
        _advance(rates, at_s, until_s)
        at_s, todo = until_s, [w for w in todo if w.left > 0.0]
    return Timetable(_spans(waybills), frozenset(late))


def _rates(ordered: Sequence[_Waybill], share: Mapping[DirectedLink, float]) -> list[tuple[_Waybill, float]]:
    """In this order, each as fast as the links of its path have room."""
    room: dict[DirectedLink, float] = {}
    answer = []
    for waybill in ordered:
        links = waybill.parcel.links
        rate = waybill.peak
        for link in links:
            rate = min(rate, room.get(link, share[link]))
        for link in links:
            room[link] = max(0.0, room.get(link, share[link]) - rate)
        answer.append((waybill, rate))
    return answer


def _next_event_s(
    todo: Sequence[_Waybill],
    rates: Sequence[tuple[_Waybill, float]],
    at_s: float,
) -> float:
    """When the rates must be looked at again: an arrival, a last byte, or somebody's laxity is used up."""
    soonest_s = min((w.start_s for w in todo if w.start_s > at_s), default=math.inf)
    for waybill, rate in rates:
        if rate > 0.0:
            soonest_s = min(soonest_s, at_s + waybill.left / rate)
        behind = waybill.behind(at_s)
        if behind < -waybill.least and rate < waybill.peak < math.inf:
            soonest_s = min(soonest_s, at_s - behind / (waybill.peak - rate))
    return soonest_s


def _advance(rates: Sequence[tuple[_Waybill, float]], at_s: float, until_s: float) -> None:
    for waybill, rate in rates:
        if rate <= 0.0:
            continue
        if rate == math.inf:  # crosses no link: both ends are one host
            waybill.left = 0.0
            continue
        left = waybill.left - rate * (until_s - at_s)
        waybill.left = left if left > waybill.least else 0.0
        _append(waybill.spans, Span(at_s, until_s, rate))


def _append(spans: list[Span], span: Span) -> None:
    if spans and spans[-1].until_s == span.from_s and spans[-1].rate_bytes_per_s == span.rate_bytes_per_s:
        span = Span(spans.pop().from_s, span.until_s, span.rate_bytes_per_s)
    if span.until_s > span.from_s:
        spans.append(span)


def _spans(waybills: Iterable[_Waybill]) -> dict[str, tuple[Span, ...]]:
    return {w.parcel.key: tuple(w.spans) for w in waybills}


# ---------------------------------------------------------------- the rule that does not


def _constant(waybills: Sequence[_Waybill], share: Mapping[DirectedLink, float]) -> Timetable | None:
    """Everybody at C / (due - start) from start to due, if that fits on every link at every moment."""
    spans: dict[str, tuple[Span, ...]] = {}
    for waybill in waybills:
        parcel, window_s = waybill.parcel, waybill.parcel.due_s - waybill.start_s
        if window_s <= 0.0 or parcel.payload_bytes > waybill.peak * window_s:
            return None
        rate = parcel.payload_bytes / window_s
        spans[parcel.key] = (Span(waybill.start_s, parcel.due_s, rate),)
    return Timetable(spans) if _fits(waybills, spans, share) else None


def _fits(
    waybills: Sequence[_Waybill], spans: Mapping[str, tuple[Span, ...]], share: Mapping[DirectedLink, float]
) -> bool:
    moments = {w.start_s for w in waybills}
    for at_s in moments:
        taken: dict[DirectedLink, float] = {}
        for waybill in waybills:
            [span] = spans[waybill.parcel.key]
            if span.from_s <= at_s < span.until_s:
                for link in waybill.parcel.links:
                    taken[link] = taken.get(link, 0.0) + span.rate_bytes_per_s
        if any(rate > share[link] * (1.0 + EXACT) for link, rate in taken.items()):
            return False
    return True
