"""Recorded lifetimes of preemptible machines: one row a machine, as in the public records of Google's preemptible VMs.

    vm,zone,machine_type,started_at,lifetime_h,preempted,load

A lifetime becomes a spell for which a host is lent. At its end the host is reclaimed: without notice if the machine was
preempted, with a notice of the scenario's law if its user ended it (preempted = 0). Between two spells the owner keeps
the host for as long as the scenario's law of absences gives; the record has no absences. How it is fitted to a run:

* All hosts begin lent, with a new spell each; the host that is free first takes the next spell. Spells come in the
  order in which the machines started, from a row that the seed draws; after the last one the first follows. So spells
  that were neighbours in time stay so.
* Lifetimes are played 1, 2, 4, ... times as fast as the scenario's time, the slowest that brings a reclaim for every second
  host.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from experiments.inputs.scenario.owners import HOUR_S, OwnerEvent, Owners
from experiments.inputs.traces.csv_rows import read_rows
from experiments.inputs.traces.streams import stream
from experiments.inputs.traces.trace import Recorded, in_order
from topologies.errors import SpecError
from topologies.units import format_duration

COLUMNS = ("started_at", "lifetime_h", "preempted")
LONGEST_H = 100_000.0
FASTEST = 4096


@dataclass(frozen=True, slots=True)
class LentSpell:
    """A machine's life: when it began (UTC), how long it was, and whether it was preempted."""

    started: datetime
    lifetime_s: float
    preempted: bool


def parse_spells(text: str) -> list[LentSpell]:
    """Return the lives in a CSV text, in order of their beginning."""
    spells = []
    for row in read_rows(text, COLUMNS):
        lifetime_s = row.number("lifetime_h", 0.0, LONGEST_H, "a number of hours") * HOUR_S
        preempted = row.text("preempted")
        if preempted not in ("0", "1"):
            raise row.wrong("preempted", "0 or 1")
        try:
            moment = datetime.fromisoformat(row.text("started_at"))
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            raise row.wrong("started_at", "a date and time such as 2019-02-18T08:57:39-08:00") from None
        spells.append(LentSpell(moment, lifetime_s, preempted == "1"))
    if not any(spell.lifetime_s > 0.0 for spell in spells):
        raise SpecError("rows", len(spells), "at least one machine with a lifetime above 0")
    return sorted((s for s in spells if s.lifetime_s > 0.0), key=lambda spell: spell.started)


def fit_spells(
    spells: Sequence[LentSpell], name: str, hosts: Sequence[str], duration_s: float, owners: Owners, seed: int
) -> Recorded:
    """Return the record, fitted to the run by the rules at the head of this file."""
    speed = 1.0
    while True:
        rng = stream(seed, "preemptions")
        first = int(rng.random() * len(spells))
        played: list[OwnerEvent] = []
        free = [(0.0, place, host) for place, host in enumerate(hosts)]  # (lent again at, order, host)
        for spell in itertools.islice(itertools.cycle(spells), first, None):
            if not free:
                break
            lent_s, place, host = heapq.heappop(free)
            if lent_s > 0.0:
                played.append(OwnerEvent(lent_s, host, "return"))
            at_s = lent_s + spell.lifetime_s / speed
            notice_s = 0.0 if spell.preempted else owners.notice.quantile(rng.random())
            again_s = at_s + notice_s + owners.absence.quantile(rng.random())
            if at_s < duration_s:
                played.append(OwnerEvent(at_s, host, "reclaim", notice_s))
                if again_s < duration_s:
                    heapq.heappush(free, (again_s, place, host))
        events = in_order(played, duration_s)
        reclaims = sum(event.kind == "reclaim" for event in events)
        if reclaims >= max(1, len(hosts) // 2) or speed >= FASTEST:
            lived = f"{len(spells)}, which lived for {format_duration(sum(spell.lifetime_s for spell in spells))}"
            origin = f"{name}: from machine {first + 1} of {lived} in all, on, played {speed:g} times as fast"
            return Recorded(origin, events)
        speed *= 2.0
