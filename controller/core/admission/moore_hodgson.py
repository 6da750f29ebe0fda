"""Admission of migrations whose rates may vary in time: Moore-Hodgson on one link, and its extension to networks.

On one link, with equal first moments, a set of payloads can all be delivered iff, in order of due time, every
prefix fits: sum of C up to k <= B (due_k - now). Moore and Hodgson (1968): go through them by due time, and
whenever the prefix no longer fits drop the largest payload in it. What is left is as many as can be delivered at
all. Payloads with a reservation cannot be dropped; the largest of the others is, and the result is still
the most that can be added (held to brute force in tests).

Beyond that (first moments that differ, caps, several links) the question which to drop is NP-hard, and the same walk is a
heuristic with an exact floor: a set is kept only if `timetable` has a schedule for it. It differs from the print in three
ways (of 3 000 small instances on networks, 3 had a set with one more). It drops the one that occupies the links of the
misfit for longest (which on one link is the largest payload) among those whose absence makes room. It looks once more,
smallest first, at each that was dropped: what it was dropped for may be gone. And it decides for each set of flows that share
links on its own.

**Comfort.** A job would rather be stopped late: while it waits it computes, and a copy of its state travels ahead.
So a parcel may name a moment after its first one, from which it would rather be sent. That is granted only where
all are in time with it: admission is decided without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.core.admission.schedule import (
    Parcel,
    RateSpan,
    Timetable,
    all_in_time,
    timetable,
)
from topologies.spec import DirectedLink


@dataclass(frozen=True, slots=True)
class AdmissionChoice:
    """Choice of the parcels that are delivered, with their schedule."""

    schedule: Timetable
    # of each parcel refused, the link that is shortest of room for it
    crowded: dict[str, DirectedLink | None]


def choose(parcels: Sequence[Parcel], now_s: float, share: Mapping[DirectedLink, float]) -> AdmissionChoice:
    """Choose as many parcels as can be delivered in time beside those that are reserved.

    No reservation is broken by an admission: one that is late is late without it too (a share shrank, a transfer
    stalled), and nothing is admitted on the links that it crosses. Exact for equal first moments
    on one link without caps; else see the module. Independent of the order of `parcels`. ValueError: a link
    without a share, or a key twice.
    """
    if len({parcel.key for parcel in parcels}) != len(parcels):
        raise ValueError("two parcels have the same key")
    spans: dict[str, tuple[RateSpan, ...]] = {}
    late: set[str] = set()
    crowded: dict[str, DirectedLink | None] = {}
    for together in _components(parcels):
        part = _choose(together, now_s, share)
        spans.update(part.schedule.spans)
        late |= part.schedule.late
        crowded.update(part.crowded)
    return AdmissionChoice(Timetable(spans, frozenset(late)), crowded)


def _components(parcels: Sequence[Parcel]) -> list[list[Parcel]]:
    """Groups that share no link with each other, in order of due time."""
    group_of: dict[DirectedLink, list[Parcel]] = {}
    groups: dict[int, list[Parcel]] = {}
    for parcel in sorted(parcels, key=_due):
        links = parcel.links
        met = {id(group): group for link in links if (group := group_of.get(link)) is not None}
        mine = max(met.values(), key=len, default=[])
        for other in met.values():
            if other is not mine:
                mine += groups.pop(id(other))
                for member in other:
                    group_of.update(dict.fromkeys(member.links, mine))
        mine.append(parcel)
        groups[id(mine)] = mine
        group_of.update(dict.fromkeys(links, mine))
    return [sorted(group, key=_due) for group in groups.values()]


def _choose(parcels: Sequence[Parcel], now_s: float, share: Mapping[DirectedLink, float]) -> AdmissionChoice:
    """`choose` for parcels in order of due time."""
    easy = timetable([parcel.comfortable for parcel in parcels], now_s, share)
    if not easy.late:
        return AdmissionChoice(easy, {})
    reserved = [parcel for parcel in parcels if parcel.reserved]
    late = timetable(reserved, now_s, share).late
    if late and not timetable([parcel.comfortable for parcel in reserved], now_s, share).late:
        # late if all start at once, but not as planned: they stay as planned, since no rule is monotone in starts
        late = frozenset()
        parcels = [parcel.comfortable if parcel.reserved else parcel for parcel in parcels]
    room = _Room(now_s, share, late)
    reserved = [parcel for parcel in parcels if parcel.reserved]
    sore = {link for parcel in reserved if parcel.key in room.late for link in parcel.links}
    kept, dropped = _walk([w for w in parcels if w.reserved or sore.isdisjoint(w.links)], room)
    for parcel in sorted(dropped, key=lambda w: (w.payload_bytes, _due(w))):
        if room.has([*kept, parcel]):
            kept.append(parcel)
    names = {parcel.key for parcel in kept}
    crowded = {w.key: room.crowded(w, kept) for w in parcels if w.key not in names}
    kept.sort(key=_due)
    best = room.plan([parcel.comfortable for parcel in kept])
    if best.late <= room.late:
        return AdmissionChoice(best, crowded)
    # parcels start late where they can, earliest due time first
    starts = list(kept)
    best = room.plan(starts)
    for index, parcel in enumerate(kept):
        if parcel.comfortable != parcel:
            trial = [*starts[:index], parcel.comfortable, *starts[index + 1 :]]
            plan = room.plan(trial)
            if plan.late <= room.late:
                starts, best = trial, plan
    return AdmissionChoice(best, crowded)


def _due(parcel: Parcel) -> tuple[float, str]:
    return parcel.due_s, parcel.key


def _walk(parcels: Sequence[Parcel], room: _Room) -> tuple[list[Parcel], list[Parcel]]:
    """Moore and Hodgson: (the parcels that fit together, those dropped on the way).

    At a misfit the parcel is dropped that takes most of the misfit's links, of those whose absence makes room if there is any.
    """
    kept, dropped = list[Parcel](), list[Parcel]()
    for parcel in parcels:
        kept.append(parcel)
        while not room.has(kept):
            last = set(kept[-1].links)
            costs = [
                (room.occupied_s(other, last), other.payload_bytes, *_due(other), other)
                for other in kept
                if not other.reserved
            ]
            if not costs:  # reservations in an order that no rule schedules, though all of them it does
                break
            dearest = [cost[-1] for cost in sorted(costs, key=lambda cost: cost[:-1], reverse=True)]
            makes_room = (one for one in dearest if room.has([other for other in kept if other is not one]))
            victim = next(makes_room, dearest[0])
            kept.remove(victim)
            dropped.append(victim)
    return kept, dropped


@dataclass(frozen=True, slots=True)
class _Room:
    """Questions about sets of parcels at one moment."""

    now_s: float
    share: Mapping[DirectedLink, float]
    late: frozenset[str]  # reservations that are late whatever is decided

    def plan(self, parcels: Sequence[Parcel]) -> Timetable:
        return timetable(parcels, self.now_s, self.share)

    def has(self, parcels: Sequence[Parcel]) -> bool:
        """Return whether every parcel that can be in time at all is delivered in time."""
        if not self.late:
            return all_in_time(parcels, self.now_s, self.share)
        return self.plan(parcels).late <= self.late

    def occupied_s(self, parcel: Parcel, links: set[DirectedLink]) -> float:
        """Return the seconds for which its payload fills those of its links, at their full rates."""
        mine = [link for link in parcel.links if link in links]
        return math.fsum(
            parcel.payload_bytes / self.share[link] if self.share[link] else math.inf for link in mine
        )

    def crowded(self, parcel: Parcel, kept: Sequence[Parcel]) -> DirectedLink | None:
        """The link on which what is due before it, itself included, overruns its due time most."""

        def overrun_s(link: DirectedLink) -> float:
            before = (w for w in (*kept, parcel) if link in w.links and w.due_s <= parcel.due_s)
            needed = math.fsum(w.payload_bytes for w in before)
            return needed / self.share[link] if self.share[link] else math.inf

        return max(parcel.links, key=overrun_s, default=None)
