"""Events from outside during one run, in the units of the scenario that they were made for."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from experiments.inputs.scenario.job import JobArrival
from experiments.inputs.scenario.owners import OwnerEvent, check_order
from topologies.dimension import DURATION, NUMBER, RATE, Dimension
from topologies.errors import SpecError

D = Dimension


@dataclass(frozen=True, slots=True)
class BackgroundTraffic:
    """Traffic that is not the testbed's: flows between hosts or switches, each at a constant wire rate during an epoch.

    Row n of `rates_bytes_per_s` holds from n epochs on, one rate a flow, the last one for ever. `parallel`: how many equal
    connections a flow is made of; where nothing is enforced, a link is shared by connections.
    """

    epoch_s: float = field(metadata=DURATION)
    flows: tuple[tuple[str, str], ...]
    rates_bytes_per_s: tuple[tuple[float, ...], ...] = field(metadata=RATE)
    parallel: tuple[int, ...] = field(metadata=NUMBER)

    def __post_init__(self) -> None:
        if len(self.parallel) != len(self.flows) or not all(many >= 1 for many in self.parallel):
            raise SpecError("background.parallel", self.parallel[:8], "a whole number of 1 or more for each flow")
        if not 0.0 < self.epoch_s < math.inf:
            raise SpecError("background.epoch", self.epoch_s, "a duration greater than 0")
        for epoch, row in enumerate(self.rates_bytes_per_s):
            if len(row) != len(self.flows):
                raise SpecError(f"background.rates[{epoch}]", len(row), f"{len(self.flows)}: one rate a flow")
            if not all(0.0 <= rate < math.inf for rate in row):
                raise SpecError(f"background.rates[{epoch}]", min(row), "finite rates of 0 or more")


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs and owners of one run, each in order of time.

    `origin` describes its source and the fit. Hosts begin lent, except those that are `away`:
    their owners have them from the start, and a return comes first, or nothing. `Scale.apply(trace)` plays it.
    """

    origin: str
    arrivals: tuple[JobArrival, ...]
    owner_events: tuple[OwnerEvent, ...]
    away: tuple[str, ...] = ()
    background: BackgroundTraffic | None = None

    def __post_init__(self) -> None:
        times = [arrival.at_s for arrival in self.arrivals]
        if any(after < before for before, after in pairwise(times)):
            raise SpecError("arrivals", "out of order", "arrivals in order of time")
        names = Counter(arrival.job.name for arrival in self.arrivals)
        for name, many in names.most_common(1):
            if many > 1:
                raise SpecError("arrivals", name, "jobs of different names")
        check_order(self.owner_events, "owner_events", self.away)

    @property
    def emergencies(self) -> int:
        """Reclaims without notice."""
        return sum(e.kind == "reclaim" and e.notice_s == 0.0 for e in self.owner_events)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Events of owners from a file; `origin` names the part of it, and the fit."""

    origin: str
    events: tuple[OwnerEvent, ...]
    away: tuple[str, ...] = ()  # hosts that their owners have from the start


def in_order(events: list[OwnerEvent], until_s: float) -> tuple[OwnerEvent, ...]:
    """Return the events before the run ends, in order of (time, host); a return and a reclaim of one instant keep their order."""
    return tuple(sorted((e for e in events if e.at_s < until_s), key=lambda e: (e.at_s, e.host)))
