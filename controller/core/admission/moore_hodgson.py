"""Whom to promise when rates may vary in time: Moore-Hodgson on one link, and its extension to networks.

On one link, with equal first moments, a set of payloads can all be delivered iff, in order of due time, every
prefix fits: sum of C up to k <= B (due_k - now). Moore and Hodgson (1968): go through them by due time, and
whenever the prefix no longer fits drop the largest payload in it. What is left is as many as can be delivered at
all. Payloads that are promised already cannot be dropped; the largest of the others is, and the result is still
the most that can be added (held to brute force in tests).

Beyond that (first moments that differ, caps, several links) the question whom to drop is NP-hard, and the same walk is a
heuristic with an exact floor: a set is kept only if `timetable` has a schedule for it. It differs from the print in three
ways (of 3 000 small instances on networks, 3 had a set with one more). It drops the one that occupies the links of the
misfit for longest (which on one link is the largest payload) among those whose absence makes room. It looks once more,
smallest first, at each that was dropped: what it was dropped for may be gone. And it decides for each set of flows that share
links on its own.

**Comfort.** A job would rather be stopped late: while it waits it computes, and a copy of its state travels ahead.
So a parcel may name a moment after its first one, from which it would rather be sent. That is granted only when
all are in time with it: admission is decided without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.core.admission.schedule import (
    Parcel,
    Timetable,
    all_in_time,
    timetable,
)
from topologies.spec import DirectedLink


class Wish(NamedTuple):
    """A parcel, when it would rather start, and whether it may be refused."""

    parcel: Parcel
    rather_s: float = -math.inf
    promised: bool = False

    @property
    def key(self) -> str:
        """The parcel's."""
        return self.parcel.key

    @property
    def comfortable(self) -> Parcel:
        """The parcel as it would rather be sent."""
        parcel = self.parcel
        return parcel._replace(start_s=self.rather_s) if self.rather_s > parcel.start_s else parcel


@dataclass(frozen=True, slots=True)
class AdmissionChoice:
    """Which wishes are delivered, and when."""

    schedule: Timetable
    crowded: dict[str, DirectedLink | None]  # of each wish refused, the link that is shortest of room for it


def choose(wishes: Sequence[Wish], now_s: float, share: Mapping[DirectedLink, float]) -> AdmissionChoice:
    """Choose as many wishes as can be delivered in time beside those that are promised.

    No promise is broken by an admission: a promise that is late is late without it too (a share shrank, a transfer
    stalled), and nothing is admitted on the links that it crosses. Exact for equal first moments
    on one link without caps; else see the module. Independent of the order of `wishes`. ValueError: a link
    without a share, or a key twice.
    """
    if len({wish.key for wish in wishes}) != len(wishes):
        raise ValueError("two wishes have the same key")
    spans, late, crowded = {}, set[str](), dict[str, DirectedLink | None]()
    for together in _components(wishes):
        part = _choose(together, now_s, share)
        spans.update(part.schedule.spans)
        late |= part.schedule.late
        crowded.update(part.crowded)
    return AdmissionChoice(Timetable(spans, frozenset(late)), crowded)


def _components(wishes: Sequence[Wish]) -> list[list[Wish]]:
    """Groups that share no link with each other, in order of due time."""
    group_of: dict[DirectedLink, list[Wish]] = {}
    groups: dict[int, list[Wish]] = {}
    for wish in sorted(wishes, key=_due):
        links = wish.parcel.links
        met = {id(group): group for link in links if (group := group_of.get(link)) is not None}
        mine = max(met.values(), key=len, default=[])
        for other in met.values():
            if other is not mine:
                mine += groups.pop(id(other))
                for member in other:
                    group_of.update(dict.fromkeys(member.parcel.links, mine))
        mine.append(wish)
        groups[id(mine)] = mine
        group_of.update(dict.fromkeys(links, mine))
    return [sorted(group, key=_due) for group in groups.values()]


def _choose(wishes: Sequence[Wish], now_s: float, share: Mapping[DirectedLink, float]) -> AdmissionChoice:
    """`choose` for wishes in order of due time."""
    easy = timetable([wish.comfortable for wish in wishes], now_s, share)
    if not easy.late:
        return AdmissionChoice(easy, {})
    promises = [wish for wish in wishes if wish.promised]
    late = timetable([wish.parcel for wish in promises], now_s, share).late
    if late and not timetable([wish.comfortable for wish in promises], now_s, share).late:
        # late if all start at once, but not as planned: they stay as planned, since no rule is monotone in starts
        late = frozenset()
        wishes = [wish._replace(parcel=wish.comfortable) if wish.promised else wish for wish in wishes]
    room = _Room(now_s, share, late)
    promises = [wish for wish in wishes if wish.promised]
    sore = {link for wish in promises if wish.key in room.late for link in wish.parcel.links}
    kept, dropped = _walk([w for w in wishes if w.promised or sore.isdisjoint(w.parcel.links)], room)
    for wish in sorted(dropped, key=lambda w: (w.parcel.payload_bytes, _due(w))):
        if room.has([*kept, wish]):
            kept.append(wish)
    names = {wish.key for wish in kept}
    crowded = {w.key: room.crowded(w, kept) for w in wishes if w.key not in names}
    kept.sort(key=_due)
    best = room.plan([wish.comfortable for wish in kept])
    if best.late <= room.late:
        return AdmissionChoice(best, crowded)
    # parcels start late where they can, earliest due time first
    starts = [wish.parcel for wish in kept]
    best = room.plan(starts)
    for index, wish in enumerate(kept):
        if wish.comfortable != wish.parcel:
            trial = [*starts[:index], wish.comfortable, *starts[index + 1 :]]
            plan = room.plan(trial)
            if plan.late <= room.late:
                starts, best = trial, plan
    return AdmissionChoice(best, crowded)


def _due(wish: Wish) -> tuple[float, str]:
    return wish.parcel.due_s, wish.parcel.key


def _walk(wishes: Sequence[Wish], room: _Room) -> tuple[list[Wish], list[Wish]]:
    """Moore and Hodgson: (the wishes that fit together, those dropped on the way).

    At a misfit the wish is dropped that takes most of the misfit's links, of those whose absence makes room if there is any.
    """
    kept, dropped = list[Wish](), list[Wish]()
    for wish in wishes:
        kept.append(wish)
        while not room.has(kept):
            last = set(kept[-1].parcel.links)
            costs = [
                (room.occupied_s(other, last), other.parcel.payload_bytes, *_due(other), other)
                for other in kept
                if not other.promised
            ]
            if not costs:  # promises in an order that no rule schedules, though all of them it does
                break
            dearest = [cost[-1] for cost in sorted(costs, key=lambda cost: cost[:-1], reverse=True)]
            makes_room = (one for one in dearest if room.has([other for other in kept if other is not one]))
            victim = next(makes_room, dearest[0])
            kept.remove(victim)
            dropped.append(victim)
    return kept, dropped


@dataclass(frozen=True, slots=True)
class _Room:
    """Questions about sets of wishes at one moment."""

    now_s: float
    share: Mapping[DirectedLink, float]
    late: frozenset[str]  # promises that are late whatever is decided

    def plan(self, parcels: Sequence[Parcel]) -> Timetable:
        return timetable(parcels, self.now_s, self.share)

    def has(self, wishes: Sequence[Wish]) -> bool:
        """Whether all can be delivered in time that can be at all."""
        parcels = [wish.parcel for wish in wishes]
        if not self.late:
            return all_in_time(parcels, self.now_s, self.share)
        return self.plan(parcels).late <= self.late

    def occupied_s(self, wish: Wish, links: set[DirectedLink]) -> float:
        """How long its payload fills those of its links, at their full rates."""
        mine = [link for link in wish.parcel.links if link in links]
        return math.fsum(
            wish.parcel.payload_bytes / self.share[link] if self.share[link] else math.inf for link in mine
        )

    def crowded(self, wish: Wish, kept: Sequence[Wish]) -> DirectedLink | None:
        """The link on which what is due before it, itself included, overruns its due time most."""

        def overrun_s(link: DirectedLink) -> float:
            before = (
                w for w in (*kept, wish) if link in w.parcel.links and w.parcel.due_s <= wish.parcel.due_s
            )
            needed = math.fsum(w.parcel.payload_bytes for w in before)
            return needed / self.share[link] if self.share[link] else math.inf

        return max(wish.parcel.links, key=overrun_s, default=None)
