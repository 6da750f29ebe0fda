"""Histories of owners to judge hazard estimators on: drawn ones, whose laws are known, and recorded ones.

Drawn: 53 hosts for six weeks, reclaimed with paper A's peaks (F1) or without, all alike or with factors of a gamma law of
CV .62 (F4), of whose departures the emergencies count; and the paper's campus, with weekends and bursts, of whose departures
all count. Recorded: lifetimes of preemptible machines, each a host that is lent once, at the hours of the record's clock
(UTC); and counts of available instances, whose falls are departures of hosts drawn by a seed, since the record does not
say which instance went. The hosts of a record stand in one building.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random

from controller.core.placement.exposure import EMERGENCY, LEND, WITHDRAW
from controller.core.placement.joint_departures import Neighbourhood, neighbourhoods
from experiments.inputs.scenario.owners import Owners
from experiments.inputs.traces.availability_counts import Counts, parse_counts
from experiments.inputs.traces.exact_counts import counted_events
from experiments.inputs.traces.generated import owner_life
from experiments.inputs.traces.lifetimes import LentSpell, parse_spells
from experiments.inputs.traces.paper_campus import paper_campus
from experiments.inputs.traces.streams import stream
from topologies import toml
from topologies.errors import SpecError

DAY_S = 86_400.0
HOSTS, DAYS = 53, 42
SHAPE = 1.0 / 0.62**2  # of a gamma law with that CV

Event = tuple[float, str, int]  # (when, host, LEND, WITHDRAW or EMERGENCY); time 0 is a midnight


@dataclass(frozen=True, slots=True)
class HazardRecord:
    """Events in order of time, over `days` whole days."""

    events: tuple[Event, ...]
    days: int
    truth: dict[str, Owners] | None = None  # of drawn ones: the hazard of reclaims of each host
    places: Mapping[str, Neighbourhood] = field(default_factory=dict)  # where the hosts stand

    @property
    def departures(self) -> int:
        """How many there are (EMERGENCY)."""
        return sum(what == EMERGENCY for _, _, what in self.events)


def drawn(seed: int, *, peaks: bool, differ: bool, hosts: int = HOSTS, days: int = DAYS) -> HazardRecord:
    """A campus whose hazards are known."""
    rng = stream(seed, "hazards")
    base = Owners(day_start_s=0.0) if peaks else Owners(day_start_s=0.0, peaks=())
    factors = [rng.gammavariate(SHAPE, 1.0 / SHAPE) if differ else 1.0 for _ in range(hosts)]
    truth = {
        f"h{n}": replace(base, hazard_per_s=base.hazard_per_s * factor) for n, factor in enumerate(factors)
    }
    events: list[Event] = []
    for host, owners in truth.items():
        events.append((0.0, host, LEND))
        for event in owner_life(owners, host, seed, days * DAY_S):
            sudden = EMERGENCY if event.notice_s == 0.0 else WITHDRAW
            events.append((event.at_s, host, LEND if event.kind == "return" else sudden))
    return HazardRecord(tuple(sorted(events)), days, truth, together(truth))


def bursts(seed: int, *, in_building: bool, days: int) -> HazardRecord:
    """The paper's campus, whose owners leave in bursts now and then: from the whole campus, or from one building."""
    scenario, _ = paper_campus(seed, days=float(days))
    owners = replace(scenario.owners, burst_in_building=in_building)
    trace = counted_events(replace(scenario, owners=owners))
    begin = [(0.0, host.name, LEND) for host in scenario.volunteers if host.name not in trace.away]
    events = [(e.at_s, e.host, LEND if e.kind == "return" else EMERGENCY) for e in trace.events]
    late_s = owners.day_start_s  # time 0 is a midnight
    moved = tuple((at_s + late_s, host, what) for at_s, host, what in (*begin, *events))
    last = int((late_s + scenario.duration_s) // DAY_S)
    return HazardRecord(moved, last, None, neighbourhoods(scenario.campus))


def together(hosts: Iterable[str]) -> dict[str, Neighbourhood]:
    """All hosts on one switch of one building."""
    return dict.fromkeys(hosts, Neighbourhood("a1", "b1"))


def recorded(path: Path) -> HazardRecord:
    """A record in a file: counts (.json) or lifetimes (.csv). SpecError: it is none."""
    try:
        text = toml.read_text(path, "a record of offers (JSON, CSV)")
        return of_spells(parse_spells(text)) if path.suffix == ".csv" else of_counts(parse_counts(text))
    except SpecError as error:
        raise error.within(str(path)) from None


def of_spells(spells: list[LentSpell]) -> HazardRecord:
    """Each machine lent once, and taken at its end; if its user ended it, that is no emergency."""
    midnight = spells[0].started.replace(hour=0, minute=0, second=0, microsecond=0)
    events: list[Event] = []
    for number, spell in enumerate(spells):
        began_s = (spell.started - midnight).total_seconds()
        ended = EMERGENCY if spell.preempted else WITHDRAW
        events += [(began_s, f"m{number}", LEND), (began_s + spell.lifetime_s, f"m{number}", ended)]
    events.sort()
    return HazardRecord(
        tuple(events), int(events[-1][0] // DAY_S) + 1, places=together(f"m{n}" for n in range(len(spells)))
    )


def of_counts(counts: Counts) -> HazardRecord:
    """A record of as many hosts as counts ever had; time 0 is its first sample."""
    rng, events = Random("counts"), list[Event]()
    away = [f"i{n}" for n in range(max(counts.available))]
    places = together(away)
    lent = [away.pop() for _ in range(counts.available[0])]
    events += ((0.0, host, LEND) for host in lent)
    for step, (before, after) in enumerate(pairwise(counts.available)):
        for share in sorted(rng.random() for _ in range(abs(after - before))):
            taken, given = (lent, away) if after < before else (away, lent)
            host = taken.pop(rng.randrange(len(taken)))
            given.append(host)
            events.append(((step + share) * counts.gap_s, host, EMERGENCY if after < before else LEND))
    return HazardRecord(tuple(events), int(len(counts.available) * counts.gap_s // DAY_S) + 1, places=places)
