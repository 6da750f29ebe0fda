"""Owners that reclaim exactly so often: `owners.count` reclaims, at times of day drawn from the hazard's profile.

A renewal process for each host gives a random number of reclaims; a published trace has a certain one. So here the
campus as a whole is drawn: given their number, the times of a Poisson process are independent draws from its intensity.
Some come together: a burst takes several hosts (with `burst_in_building`: of one building) within half a minute, and no
other reclaim falls near it, so that `owners.burst` is the most that ever happens at once. Which host is reclaimed is
drawn from those that are lent, in proportion to their factors (`host_sigma`); the law of absences gives the time of its
return. The run begins in the midst of this: only a share of the hosts is lent, the others are away for what is left of
an absence.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random

from experiments.inputs.scenario import OwnerEvent, Owners, Scenario
from experiments.inputs.traces.streams import host_factor, stream, unit_exponential
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
    factor: float = 1.0


def counted_events(scenario: Scenario) -> Recorded:
    """Return exactly `owners.count` reclaims. SpecError: more than the hosts allow."""
    owners, seed, count = scenario.owners, scenario.seed, scenario.owners.count
    assert count is not None
    hosts = [host for host in scenario.volunteers if host.name not in owners.loyal]
    places = [
        _Place(host.name, host.building, -LENT_FOR_S, factor=host_factor(owners, host.name, seed)) for host in hosts
    ]

    # away at the start, for what is left of the absence in which a moment falls that has nothing to do with it
    rng = stream(seed, "owners", "start")
    begin_away = rng.sample(places, round((1.0 - owners.lent_at_start) * len(places)))
    for place in begin_away:
        moment_s = BURN_IN * owners.absence.mean() * rng.random()
        while moment_s >= 0.0:
            moment_s -= owners.absence.quantile(rng.random())
        place.lent_s = -moment_s
    away = {place.host for place in begin_away}

    # emergencies: the share of the count, rounded, at places drawn
    emergencies = [n < round(owners.emergency_share * count) for n in range(count)]
    stream(seed, "owners", "kinds").shuffle(emergencies)
    is_emergency = iter(emergencies)

    rng = stream(seed, "owners", "who")
    events: list[OwnerEvent] = []
    for at_s, size in _groups(owners, count, scenario.duration_s, stream(seed, "owners", "times")):
        delays_s = sorted(rng.random() * BURST_S for _ in range(size))
        for delay_s, place in zip(delays_s, _chosen(places, at_s, size, owners, rng), strict=True):
            if place.lent_s > 0.0 or place.host in away:
                events.append(OwnerEvent(place.lent_s, place.host, "return"))
            notice, grace = rng.random(), rng.random()
            event = OwnerEvent(at_s + delay_s, place.host)
            if not next(is_emergency):
                event = replace(event, notice_s=owners.notice.quantile(notice))
            elif grace < owners.grace_share:
                event = replace(event, notice_s=owners.grace_s, grace=True)
            place.gone_s, place.lent_s = event.gone_s, event.gone_s + owners.absence.quantile(rng.random())
            events.append(event)
    back = [OwnerEvent(p.lent_s, p.host, "return") for p in places if p.gone_s > -inf or p.host in away]
    origin = f"generated, seed {seed}: {count} reclaims"
    return Recorded(origin, in_order([*events, *back], scenario.duration_s), tuple(sorted(away)))


def _groups(owners: Owners, count: int, duration_s: float, rng: Random) -> list[tuple[float, int]]:
    """Return (when, how many together), in order of time; the sizes add up to the count."""
    together = round(owners.burst_share * count) if owners.burst > 1 else 0
    sizes: list[int] = []
    while together > 1:  # the first is as large as bursts get
        sizes.append(min(rng.randint(2, owners.burst) if sizes else owners.burst, together))
        together -= sizes[-1]
    sizes += [1] * (count - sum(sizes))

    last_s = max(0.0, duration_s - BURST_S)
    total = owners.exposure(0.0, last_s)
    placed: list[tuple[float, int]] = []
    for size in sorted(sizes, reverse=True):  # the large ones first: they need room
        for _ in range(TRIES):
            at_s = owners.next_reclaim_s(0.0, rng.random() * total) if total > 0.0 else inf
            near = placed[bisect_left(placed, (at_s - APART_S, 0)) : bisect_left(placed, (at_s + APART_S, 0))]
            is_apart = not near if size > 1 else all(other == 1 for _, other in near)
            if at_s <= last_s and is_apart:
                break
        else:
            raise SpecError("owners.count", owners.count, "fewer: they do not fit into the run")
        insort(placed, (at_s, size))
    return placed


def _chosen(places: Sequence[_Place], at_s: float, size: int, owners: Owners, rng: Random) -> list[_Place]:
    """Draw `size` lent hosts; if too few are lent, the hosts that were away the longest come back shortly before."""
    since_s = at_s - LENT_FOR_S
    lent = [place for place in places if place.lent_s + LENT_FOR_S <= at_s]
    lacking = size - len(lent)
    if lacking > 0:
        gone = [place for place in places if place.gone_s < since_s < place.lent_s and since_s > 0.0]
        if len(gone) < lacking:
            allowed = f"fewer, or shorter absences: at {at_s:.0f} s no host is lent"
            raise SpecError("owners.count", owners.count, allowed)
        for place in sorted(gone, key=lambda place: (place.gone_s, place.host))[:lacking]:
            place.lent_s = since_s
            lent.append(place)
    if owners.burst_in_building:
        # the hosts of a building that has as many, drawn in proportion to what each has; all, if none has
        by_building: defaultdict[str, list[_Place]] = defaultdict(list)
        for place in lent:
            by_building[place.building].append(place)
        enough = [place.building for place in lent if len(by_building[place.building]) >= size]
        lent = by_building[rng.choice(enough)] if enough else lent
    if not owners.host_sigma:
        return rng.sample(lent, size)
    # without replacement, each in proportion to its factor: those with the first of exponential clocks
    return sorted(lent, key=lambda place: unit_exponential(rng) / place.factor)[:size]
