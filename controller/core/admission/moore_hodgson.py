"""Admission of migrations whose rates may vary in time: Moore-Hodgson on one link, and its extension to networks.

On one link, with equal first moments, a set of payloads can all be delivered iff, in order of due time, every
prefix fits: sum of C up to k <= B (due_k - now). Moore and Hodgson (1968): go through them by due time, and
whenever the prefix no longer fits drop the largest payload in it. What is left is as many as can be delivered at
all. Payloads with a reservation cannot be dropped; the largest of the others is, and the result is still
the most that can be added (held to brute force in tests).

Beyond that (first moments that differ, caps, several links) the question which to drop is NP-hard, and the same walk is a
heuristic with an exact floor: a set is kept only if `timetable` has a schedule for it. It differs from the print in two
ways (of 3 000 small instances on networks, 3 had a set with one more). It drops the one that occupies the links of the
misfit for longest (which on one link is the largest payload) among those whose absence makes room. It looks once more,
smallest first, at each that was dropped: what it was dropped for may be gone.

**Comfort.** A job would rather be stopped late: while it waits it computes, and a copy of its state travels ahead.
So a migration may name a moment after its first one, from which it would rather be sent. That is granted only where
all are in time with it: admission is decided without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.core.admission.schedule import MigrationRequest, Timetable, by_due, timetable
from topologies.spec import DirectedLink

Requests = Sequence[MigrationRequest]


def choose(
    requests: Requests, reserved: Requests, now_s: float, share: Mapping[DirectedLink, float]
) -> tuple[Timetable, dict[str, DirectedLink | None]]:
    """Return the schedule of as many requests as can be delivered in time beside those that are reserved.

    Beside it stand the keys of all others, each with the link that is shortest of room for it.
    No reservation is broken by an admission: one that is late is late without it too (a share shrank, a transfer
    stalled), and nothing is admitted on the links that it crosses. Exact for equal first moments
    on one link without caps; else see the module. Independent of the order of both. ValueError: a link
    without a share, or a key twice.
    """
    everything = sorted((*requests, *reserved), key=by_due)
    if len({each.key for each in everything}) != len(everything):
        raise ValueError("two migrations have the same key")
    easy = timetable([each.comfortable for each in everything], now_s, share)
    if not easy.late:
        return easy, {}
    late = timetable(reserved, now_s, share).late
    if late and not timetable([each.comfortable for each in reserved], now_s, share).late:
        # late if all start at once, but not as planned: they stay as planned, since no rule is monotone in starts
        late, reserved = frozenset(), [each.comfortable for each in reserved]
    room = _Room(now_s, share, late, frozenset(each.key for each in reserved))
    sore = {link for each in reserved if each.key in late for link in each.links}
    open_ones = [each for each in requests if sore.isdisjoint(each.links)]
    kept, dropped = room.walk(sorted((*open_ones, *reserved), key=by_due))
    for each in sorted(dropped, key=lambda each: (each.payload_bytes, by_due(each))):
        if room.has([*kept, each]):
            kept.append(each)
    names = {each.key for each in kept}
    crowded = {each.key: room.crowded(each, kept) for each in requests if each.key not in names}
    return room.latest(sorted(kept, key=by_due)), crowded


@dataclass(frozen=True, slots=True)
class _Room:
    """Questions about sets of migrations at one moment."""

    now_s: float
    share: Mapping[DirectedLink, float]
    late: frozenset[str]  # reservations that are late whatever is decided
    reserved: frozenset[str]

    def has(self, requests: Requests) -> bool:
        """Return whether every one that can be in time at all is delivered in time."""
        return timetable(requests, self.now_s, self.share).late <= self.late

    def walk(self, requests: Requests) -> tuple[list[MigrationRequest], list[MigrationRequest]]:
        """Moore and Hodgson: those that fit together, and those dropped on the way."""
        kept, dropped = list[MigrationRequest](), list[MigrationRequest]()
        for request in requests:
            kept.append(request)
            while not self.has(kept):
                last = kept[-1].links
                droppable = [each for each in kept if each.key not in self.reserved]
                if (
                    not droppable
                ):  # reservations in an order that the rule does not schedule, though all of them it does
                    break
                dearest = sorted(
                    droppable,
                    key=lambda each: (self.occupied_s(each, last), each.payload_bytes, by_due(each)),
                    reverse=True,
                )
                makes_room = (one for one in dearest if self.has([each for each in kept if each is not one]))
                victim = next(makes_room, dearest[0])
                kept.remove(victim)
                dropped.append(victim)
        return kept, dropped

    def latest(self, kept: Requests) -> Timetable:
        """Return the schedule in which all start when they would rather, or as many as can, earliest due time first."""
        starts = [each.comfortable for each in kept]
        best = timetable(starts, self.now_s, self.share)
        if best.late <= self.late:
            return best
        starts = list(kept)
        best = timetable(starts, self.now_s, self.share)
        for index, each in enumerate(kept):
            if each.comfortable is not each:
                trial = [*starts[:index], each.comfortable, *starts[index + 1 :]]
                plan = timetable(trial, self.now_s, self.share)
                if plan.late <= self.late:
                    starts, best = trial, plan
        return best

    def occupied_s(self, request: MigrationRequest, links: Sequence[DirectedLink]) -> float:
        """Return the seconds for which its payload fills those of its links, at their full rates."""
        return math.fsum(_filled_s(request.payload_bytes, self.share[x]) for x in request.links if x in links)

    def crowded(self, request: MigrationRequest, kept: Requests) -> DirectedLink | None:
        """The link on which what is due before it, itself included, overruns its due time most."""

        def needed_s(link: DirectedLink) -> float:
            before = (w for w in (*kept, request) if link in w.links and w.due_s <= request.due_s)
            return _filled_s(math.fsum(w.payload_bytes for w in before), self.share[link])

        return max(request.links, key=needed_s, default=None)


def _filled_s(payload_bytes: float, rate_bytes_per_s: float) -> float:
    return payload_bytes / rate_bytes_per_s if rate_bytes_per_s else math.inf
