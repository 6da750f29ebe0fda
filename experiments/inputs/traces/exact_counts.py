"""Owners who reclaim exactly so often: `owners.count` reclaims, at the times of day that the hazard's profile says.

A renewal process for each host gives a random number of reclaims; a published trace has a certain one. So here the campus as
a whole is drawn: given their number, the times of a Poisson process are independent draws from its intensity. Some come
together: a burst takes several hosts (with `burst_in_building`: of one building) within half a minute, and no other
reclaim falls near it, so that `owners.burst` is the most that ever happens at once. Who is reclaimed is drawn
from those who are lent; the law of absences says when they come back. The run begins in the midst of this: only
a share of the hosts is lent, the others are away for what is left of an absence.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from experiments.inputs.scenario import OwnerEvent, Owners, Scenario
from experiments.inputs.traces.streams import stream
from experiments.inputs.traces.trace import Recorded, in_order
from topologies.errors import SpecError

BURST_S = 30.0  # a burst lasts no longer
APART_S = 120.0  # between bursts and others
LENT_FOR_S = 60.0  # at least, before a host is reclaimed
BURN_IN = 50  # mean absences before the run: what is left of one at its start is in the long run's law
TRIES = 1000  # to place a burst apart from the others


@dataclass(slots=True)
class _Place:
    """A host: lent since `lent_s`, or away until then. `gone_s`: when it was last closed."""

    host: str
    building: str
    lent_s: float
    gone_s: float = -inf


def counted_events(scenario: Scenario) -> Recorded:
    """Exactly `owners.count` reclaims, or SpecError if that is more than the hosts allow."""
    owners, seed = scenario.owners, scenario.seed
    assert owners.count is not None
    hosts = [host for host in scenario.volunteers if host.name not in owners.loyal]
    places = [_Place(host.name, host.building, -LENT_FOR_S) for host in hosts]
    away = _begin(places, owners, stream(seed, "owners", "start"))
    groups = _groups(owners, scenario.duration_s, stream(seed, "owners", "times"))
    emergencies = _emergencies(owners, stream(seed, "owners", "kinds"))
    rng = stream(seed, "owners", "who")
    events: list[OwnerEvent] = []
    for at_s, size in groups:
        for delay_s, place in zip(_delays(size, rng), _chosen(places, at_s, size, owners, rng), strict=True):
            if place.lent_s > 0.0 or place.host in away:
                events.append(OwnerEvent(place.lent_s, place.host, "return"))
            event = _reclaim(owners, place.host, at_s + delay_s, next(emergencies), rng)
            place.gone_s, place.lent_s = event.gone_s, event.gone_s + owners.absence.quantile(rng.random())
            events.append(event)
    back = [OwnerEvent(p.lent_s, p.host, "return") for p in places if p.gone_s > -inf or p.host in away]
    origin = f"generated, seed {seed}: {owners.count} reclaims"
    return Recorded(origin, in_order([*events, *back], scenario.duration_s), tuple(sorted(away)))


def _begin(places: Sequence[_Place], owners: Owners, rng: Random) -> set[str]:
    """Who is away at the start, and until when."""
    number = round((1.0 - owners.lent_at_start) * len(places))
    away = rng.sample(list(places), number)
    for place in away:
        place.lent_s = _rest_of_absence(owners, rng)
    return {place.host for place in away}


def _rest_of_absence(owners: Owners, rng: Random) -> float:
    """What is left of the absence in which a moment falls that has nothing to do with it (inspection paradox)."""
    moment_s = BURN_IN * owners.absence.mean() * rng.random()
    while moment_s >= 0.0:
        moment_s -= owners.absence.quantile(rng.random())
    return -moment_s


def _groups(owners: Owners, duration_s: float, rng: Random) -> list[tuple[float, int]]:
    """(when, how many together), in order of time; the sizes add up to the count."""
    last_s = max(0.0, duration_s - BURST_S)
    total = owners.exposure(0.0, last_s)
    placed: list[tuple[float, int]] = []
    for size in sorted(_sizes(owners, rng), reverse=True):  # the large ones first: they need room
        for _ in range(TRIES):
            at_s = owners.next_reclaim_s(0.0, rng.random() * total) if total > 0.0 else inf
            if at_s <= last_s and _fits(placed, at_s, size):
                break
        else:
            raise SpecError("owners.count", owners.count, "fewer: they do not fit into the run")
        insort(placed, (at_s, size))
    return placed


def _fits(placed: Sequence[tuple[float, int]], at_s: float, size: int) -> bool:
    """Whether no burst is near (or, for a burst, nobody)."""
    near = placed[bisect_left(placed, (at_s - APART_S, 0)) : bisect_left(placed, (at_s + APART_S, 0))]
    return not near if size > 1 else all(other == 1 for _, other in near)


def _sizes(owners: Owners, rng: Random) -> list[int]:
    assert owners.count is not None
    left, together = owners.count, round(owners.burst_share * owners.count) if owners.burst > 1 else 0
    sizes: list[int] = []
    while together > 1:  # the first is as large as bursts get
        size = min(rng.randint(2, owners.burst) if sizes else owners.burst, together)
        sizes.append(size)
        together -= size
        left -= size
    return [*sizes, *[1] * left]


def _emergencies(owners: Owners, rng: Random) -> Iterator[bool]:
    """Which reclaims are emergencies: the share of the count, rounded, at places drawn."""
    assert owners.count is not None
    kinds = [n < round(owners.emergency_share * owners.count) for n in range(owners.count)]
    rng.shuffle(kinds)
    return iter(kinds)


def _delays(size: int, rng: Random) -> list[float]:
    return sorted(rng.random() * BURST_S for _ in range(size))


def _reclaim(owners: Owners, host: str, at_s: float, emergency: bool, rng: Random) -> OwnerEvent:
    notice, grace = rng.random(), rng.random()
    if not emergency:
        return OwnerEvent(at_s, host, "reclaim", owners.notice.quantile(notice))
    if grace < owners.grace_share:
        return OwnerEvent(at_s, host, "reclaim", owners.grace_s, grace=True)
    return OwnerEvent(at_s, host)


def _chosen(places: Sequence[_Place], at_s: float, size: int, owners: Owners, rng: Random) -> list[_Place]:
    """So many hosts that are lent; if too few are, some come back earlier."""
    lent = [place for place in places if place.lent_s + LENT_FOR_S <= at_s]
    lacking = size - len(lent)
    if lacking > 0:
        lent += _called_back(places, lacking, at_s)
    return rng.sample(_of_one_building(lent, size, rng) if owners.burst_in_building else lent, size)


def _of_one_building(lent: list[_Place], size: int, rng: Random) -> list[_Place]:
    """The hosts of a building that has as many, drawn in proportion to what each has; all, if none has."""
    by_building: defaultdict[str, list[_Place]] = defaultdict(list)
    for place in lent:
        by_building[place.building].append(place)
    enough = [place.building for place in lent if len(by_building[place.building]) >= size]
    return by_building[rng.choice(enough)] if enough else lent


def _called_back(places: Sequence[_Place], number: int, at_s: float) -> list[_Place]:
    """Those who have been away the longest, lent from shortly before on."""
    since_s = at_s - LENT_FOR_S
    gone = [place for place in places if place.gone_s < since_s < place.lent_s and since_s > 0.0]
    if len(gone) < number:
        raise SpecError("owners.count", at_s, f"fewer, or shorter absences: at {at_s:.0f} s nobody is lent")
    chosen = sorted(gone, key=lambda place: (place.gone_s, place.host))[:number]
    for place in chosen:
        place.lent_s = since_s
    return chosen
