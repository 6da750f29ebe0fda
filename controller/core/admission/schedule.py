"""Times and rates of payloads: a fluid schedule of migrations over the links of a network.

A migration has bytes, a first moment, a due time, a path and a cap (the host's own link). A schedule gives every
migration a rate that is constant over spans of time; on no link is the sum of rates ever more than its share.

On one link without caps, giving everything to the earliest due time (EDF) delivers in time whenever any schedule
does, for any first moments. (Jackson's rule with preemption; Horn 1974.) With caps, or on a network, the question is
a linear program: bytes of each migration in each span between two first or due times. They are at most cap x length
each, and at most share x length in sum on each link. No rule that looks only at the present solves it always. A rule
that succeeds is enough, because the schedule itself is what is enforced: nothing is admitted that cannot be
delivered.

The rule is **EDF until no laxity** (EDZL, Lee 1994). At every moment migrations go by due time, each as fast as its
path has room; but one that must run at its peak rate from now on goes first. A migration on a slow access link cannot
make good later what it lets pass now; EDF does not see that. On one link without caps it is EDF. Of random feasible
sets of 2 to 6 migrations on a two-building network it finds a schedule for 99.7 %; plain EDF for 97 %
(`tests/test_timetable.py`).

It is in machine code (`compiled`), on columns in order of due time and key. Of the migrations with the least rank,
the one with the least number turns to a link first.

**The reservation** of an admitted migration is bytes by a deadline, while they are being sent. A timetable states
when a migration's bytes may travel; what has travelled is known only roughly. The coordinator knows what it granted.
A paced flow gets at least `GOODPUT` of that (measured; `reclaimnet measure rates`). A rate that rises is known at the
sender up to `LAG_S` later, and the last byte is followed by its acknowledgement. So a reservation

- counts in granted bytes, of which it takes C / GOODPUT to carry C;
- counts nothing before the final snapshot is known to exist, since a running copy may be worth nothing by then;
- counts a rise from `LAG_S` later;
- ends `MARGIN_S` before the destination must begin to restart.

Counted like that the rest is an upper bound, and planning it again at every change corrects the timetable by itself.
The bound may be wrong (a flow got less of its grant than was ever seen). A migration that has had all of its bytes
and has not arrived is then given some more, a few times: without room of its own it would wait behind all others for
its last bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled
from topologies.spec import DirectedLink

SLIPPED = 0.05  # of a payload: a migration that is behind by no more has hit delays, and may yet be in time
EXACT = 1e-9  # relative: what rounding may make of a payload or a laxity that is zero

by_due = attrgetter("due_s", "key")  # the order of due times, ties by key
Spans = list[tuple[int, float, float, float]]  # (number of the migration, from, until, bytes/s)


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """A planned migration: bytes over all of `links`, none before `start_s`, all by `due_s`, never faster than the cap."""

    key: str
    payload_bytes: float  # C
    deadline_s: float  # when its host closes
    restart_s: float  # T_r
    links: tuple[DirectedLink, ...]  # from source to destination
    start_s: float = 0.0  # not before this moment (0: at once)
    # a later moment that would be welcome, so that a copy travels ahead; granted where no other request is refused for it
    rather_start_s: float = -math.inf
    cap_bytes_per_s: float = math.inf  # never faster than this

    @property
    def due_s(self) -> float:
        """Time at which the last byte must be there: D - T_r."""
        return self.deadline_s - self.restart_s

    @property
    def comfortable(self) -> MigrationRequest:
        """The same request, starting when it would be welcome."""
        return replace(self, start_s=self.rather_start_s) if self.rather_start_s > self.start_s else self


class RateSpan(NamedTuple):
    """A rate in bytes/s, held from `from_s` until `until_s`."""

    from_s: float
    until_s: float
    rate_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Timetable:
    """A schedule. `spans`: key -> spans with a positive rate, in order. `late`: migrations that miss their due time, if any."""

    spans: dict[str, tuple[RateSpan, ...]] = field(default_factory=dict)
    late: frozenset[str] = frozenset()

    def rate_at(self, key: str, now_s: float) -> float:
        """Return the rate of a migration at a moment, bytes/s; 0 outside its spans."""
        spans = self.spans.get(key, ())
        return next((s.rate_bytes_per_s for s in spans if s.from_s <= now_s < s.until_s), 0.0)

    def next_change_s(self, now_s: float) -> float:
        """Return the next moment after `now_s` at which some rate changes; infinity if none does."""
        edges = (edge for spans in self.spans.values() for s in spans for edge in (s.from_s, s.until_s))
        return min((edge for edge in edges if edge > now_s), default=math.inf)


def timetable(requests: Iterable[MigrationRequest], now_s: float, share: Mapping[DirectedLink, float]) -> Timetable:
    """Return a schedule that delivers every migration by its due time, if the rule finds one (see the module).

    Otherwise the schedule names those that are late. They are sent too, with what the others leave. Independent of
    the order of `requests`; equal due times go by key.
    """
    ordered = sorted(requests, key=by_due)
    late, found = _simulate(_freight(ordered, share, now_s), now_s)
    spans: list[list[RateSpan]] = [[] for _ in ordered]
    for number, from_s, until_s, rate in found:
        mine = spans[number]
        if mine and (mine[-1].until_s, mine[-1].rate_bytes_per_s) == (from_s, rate):
            from_s = mine.pop().from_s
        mine.append(RateSpan(from_s, until_s, rate))
    keys = [request.key for request in ordered]
    who = frozenset(key for key, is_late in zip(keys, late.tolist(), strict=True) if is_late)
    return Timetable({key: tuple(some) for key, some in zip(keys, spans, strict=True)}, who)


# ---------------------------------------------------------------- migrations as columns


class _Freight(NamedTuple):
    """Migrations by due time: number i crosses link[first[i]:first[i + 1]], whose shares are in `share`.

    `peak` is the most that cap and path allow, bytes/s; `least` bytes count as none. Bytes `left` and the present `rate` (NaN: it
    may not start yet) change as time goes on.
    """

    payload: Floats
    start_s: Floats
    due_s: Floats
    peak: Floats
    least: Floats
    left: Floats
    rate: Floats
    first: Numbers
    link: Numbers
    share: Floats


def _freight(requests: Sequence[MigrationRequest], share: Mapping[DirectedLink, float], now_s: float) -> _Freight:
    """Return the requests in columns. Their links are numbered as they come."""
    number: dict[DirectedLink, int] = {}
    first, crossed, rows = [0], list[int](), list[tuple[float, ...]]()
    for request in requests:
        crossed += [number.setdefault(link, len(number)) for link in request.links]
        first.append(len(crossed))
        peak = min([request.cap_bytes_per_s, *(share[link] for link in request.links)])
        start_s, due_s, payload = max(now_s, request.start_s), request.due_s, request.payload_bytes
        # what passes between a time and the next that differs from it: a schedule is no more exact than its clock
        at_s, instant = max(start_s, due_s), 0.0
        if peak < math.inf and at_s < math.inf:
            instant = peak * (math.nextafter(at_s, math.inf) - at_s)
        rows.append((payload, start_s, due_s, peak, max(payload * EXACT, instant), payload, 0.0))
    payloads, starts_s, dues_s, peaks, leasts, left, rates = np.array(rows, dtype=float).reshape(-1, 7).T.copy()
    links, shares = np.array(crossed, dtype=np.intp), np.array([share[link] for link in number], dtype=float)
    return _Freight(payloads, starts_s, dues_s, peaks, leasts, left, rates, np.array(first), links, shares)


@compiled
def _simulate(freight: _Freight, now_s: float) -> tuple[Mask, Spans]:
    """Follow the rule until everything is delivered; return who is late."""
    left, late = freight.left, np.zeros(len(freight.left), np.bool_)
    spans, at_s = [(0, 0.0, 0.0, 0.0) for _ in range(0)], now_s
    while np.count_nonzero(left):
        for number in range(len(left)):
            behind = _behind(freight, number, max(at_s, freight.start_s[number]))
            late[number] |= left[number] > 0.0 and behind > freight.least[number]
        _set_rates(freight, at_s)
        until_s = _next_event_s(freight, at_s)
        if until_s == np.inf:  # a share of 0: those never arrive
            late |= left > 0.0
            break
        # or an instant that no clock shows would never pass
        until_s = max(until_s, np.nextafter(at_s, np.inf))
        _advance(freight, spans, at_s, until_s)
        at_s = until_s
    return late, spans


@compiled
def _behind(freight: _Freight, number: int, at_s: float) -> float:
    """Return the bytes that its peak rate could not deliver any more by the due time; negative: laxity, in bytes."""
    return freight.left[number] - freight.peak[number] * max(0.0, freight.due_s[number] - at_s)  # type: ignore[no-any-return]


@compiled
def _set_rates(freight: _Freight, at_s: float) -> None:
    """Send by rank (0: no laxity left; 1: some; 2: hopeless) and due time, each as fast as its links have room."""
    room, ranks = freight.share.copy(), np.full(len(freight.peak), -1)
    for number in range(len(ranks)):
        freight.rate[number] = np.nan
        if freight.left[number] > 0.0 and freight.start_s[number] <= at_s:
            behind, least = _behind(freight, number, at_s), freight.least[number]
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
                freight.rate[number] = rate


@compiled
def _next_event_s(freight: _Freight, at_s: float) -> float:
    """Return the time at which rates change next: an arrival, a last byte, or the end of a migration's laxity."""
    soonest_s = np.inf
    for number in range(len(freight.rate)):
        rate, peak = freight.rate[number], freight.peak[number]
        if freight.left[number] > 0.0 and freight.start_s[number] > at_s:
            soonest_s = min(soonest_s, freight.start_s[number])
        if rate > 0.0:
            soonest_s = min(soonest_s, at_s + freight.left[number] / rate)
        behind = _behind(freight, number, at_s)
        if behind < -freight.least[number] and rate < peak and peak < np.inf:
            soonest_s = min(soonest_s, at_s - behind / (peak - rate))
    return soonest_s


@compiled
def _advance(freight: _Freight, spans: Spans, at_s: float, until_s: float) -> None:
    for number in range(len(freight.rate)):
        rate = freight.rate[number]
        if rate == np.inf:  # crosses no link: both ends are one host
            freight.left[number] = 0.0
        elif rate > 0.0:
            left = freight.left[number] - rate * (until_s - at_s)
            freight.left[number] = left if left > freight.least[number] else 0.0
            spans.append((number, at_s, until_s, rate))


# ---------------------------------------------------------------- one admitted transfer


GOODPUT = 0.97  # least share of its grant that a paced flow was seen to get
LAG_S = 0.1  # the longest that a message to an agent was seen to take on a busy machine
MARGIN_S = 0.2  # between timetable and restart: the receiver's fsync, and its word to the coordinator
NOTHING = 1e-6  # of a payload: what is left then is rounding
SOME_MORE, TIMES_MORE = 0.05, 4  # of a payload, and how often: who needs more than this is not slow but stuck


@dataclass(slots=True)
class Reservation:
    """A reservation: `left_bytes` granted bytes are to be sent by `due_s`."""

    left_bytes: float
    due_s: float
    lead_s: float  # from the final snapshot to its first byte, at most
    final_at_s: float = inf  # when the source is ordered to take the final snapshot, at the latest
    told: bool = False  # whether the source knows final_at_s
    since_s: float | None = None  # up to when bytes have been counted; None until the final snapshot exists
    reserved_bytes_per_s: float = 0.0  # of its path, on average until it is due, when last counted
    slow_until_s: float = -inf  # a rise is not sure to have arrived before
    slow_bytes_per_s: float = 0.0  # what counts until then
    more_bytes: float = field(init=False)  # what it gets more, each time it has had all and is not there
    times_more: int = TIMES_MORE

    def __post_init__(self) -> None:
        self.more_bytes = SOME_MORE * self.left_bytes

    @property
    def start_s(self) -> float:
        """Moment at which sending begins if nothing is moved: the first byte's expected time, later the last count's."""
        return self.final_at_s + self.lead_s if self.since_s is None else self.since_s

    def begin(self, now_s: float) -> None:
        """Count what is sent from now on as what was reserved."""
        if self.since_s is None:
            self.since_s = now_s

    def count(self, now_s: float, rate_bytes_per_s: float) -> None:
        """Count what was sent until now at this grant (0: what its sender did is not known)."""
        if self.since_s is not None and now_s > self.since_s:
            slow_s = max(0.0, min(now_s, self.slow_until_s) - self.since_s)
            sent = slow_s * self.slow_bytes_per_s + (now_s - self.since_s - slow_s) * rate_bytes_per_s
            left = self.left_bytes - sent
            if left <= NOTHING * self.left_bytes:
                left = self.more_bytes if self.times_more else 0.0
                self.times_more = max(0, self.times_more - 1)
            self.left_bytes, self.since_s = left, now_s
        self.reserved_bytes_per_s = self.left_bytes / (self.due_s - now_s) if now_s < self.due_s else 0.0

    def regranted(self, now_s: float, old_bytes_per_s: float, new_bytes_per_s: float) -> None:
        """Record that the grant changes now; a rise counts only when it is sure to have arrived."""
        before = min(self.slow_bytes_per_s, old_bytes_per_s) if now_s < self.slow_until_s else old_bytes_per_s
        self.slow_bytes_per_s = min(before, new_bytes_per_s)
        if new_bytes_per_s > old_bytes_per_s:
            self.slow_until_s = now_s + LAG_S

    def request(
        self, key: str, links: tuple[DirectedLink, ...], cap_bytes_per_s: float, now_s: float, *, movable: bool
    ) -> MigrationRequest:
        """Build the request for which P3 has to leave room. `movable`: the final snapshot's moment can still be changed."""
        start_s = rather_s = self.start_s
        if self.since_s is None and movable:
            start_s = min(now_s, self.final_at_s) + self.lead_s
        return MigrationRequest(key, self.left_bytes, self.due_s, 0.0, links, start_s, rather_s, cap_bytes_per_s)
