"""Events from outside during one run, in the units of the scenario that they were made for."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from zlib import crc32

import msgspec

from experiments.inputs.scenario.owners import OwnerEvent, check_order
from testbed.bounds import LARGEST_PAYLOAD_BYTES, LARGEST_STEP, NAME_RULE, is_name
from testbed.messages import JobSpec
from topologies import keys
from topologies.dimension import DURATION, NUMBER, RATE, SIZE, Dimension
from topologies.errors import SpecError
from topologies.fields import check, quantity, whole

D = Dimension


def wrong_name(name: object) -> str:
    """Return what a job's name may be, if this is none; empty if it is."""
    return "" if isinstance(name, str) and is_name(name) else f"a name of {NAME_RULE}"


@dataclass(frozen=True, slots=True)
class JobDraw:
    """A job: so many steps of `step_s` on one GPU, with a state of `payload_bytes` that a checkpoint must carry.

    SpecError: a number that is none, or that no job can have.
    """

    name: str
    payload_bytes: int = field(metadata={**SIZE, "kind": keys.whole(1, LARGEST_PAYLOAD_BYTES)})
    steps: int = whole(1, LARGEST_STEP)
    step_s: float = quantity(D.DURATION, above=True)
    dirty_fraction: float = quantity(D.NUMBER, high=1.0)  # share of the state that a step rewrites
    memory_bytes: float = quantity(D.SIZE)  # of a GPU
    min_capability: float = quantity(D.NUMBER)
    loss_budget_s: float = quantity(D.DURATION, above=True)
    given: JobSpec | None = None  # a user's own job, at real scale: its workload, params or program

    def __post_init__(self) -> None:
        if allowed := wrong_name(self.name):
            raise SpecError("job", self.name, allowed)
        check(self, f"job {self.name}")

    @property
    def run_s(self) -> float:
        """Seconds of work, without interruptions."""
        return self.steps * self.step_s

    def spec(self) -> JobSpec:
        """Return the job as it is submitted, in either world.

        Its state is its own: a seed by its name. Jobs of one seed would hold the same bytes at the same step: a store
        that has one would lack little of another. A user's own job keeps its own state.
        """
        figures: dict[str, Any] = {
            "step_s": self.step_s,
            "payload_bytes": self.payload_bytes,
            "memory_bytes": self.memory_bytes,
            "min_capability": self.min_capability,
            "loss_budget_s": self.loss_budget_s,
        }
        if self.given is not None:
            return msgspec.structs.replace(self.given, name=self.name, **figures)
        figures["params"] = {"dirty_fraction": self.dirty_fraction, "seed": crc32(self.name.encode())}
        return JobSpec(name=self.name, steps=self.steps, **figures)


@dataclass(frozen=True, slots=True)
class JobArrival:
    """A job is submitted. SpecError: at no time of a run."""

    at_s: float = field(metadata={**DURATION, "kind": keys.number(D.DURATION)})
    job: JobDraw

    def __post_init__(self) -> None:
        check(self, f"job {self.job.name}")


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
            raise SpecError(
                "background.parallel", self.parallel[:8], "a whole number of 1 or more for each flow"
            )
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

    `origin` describes its source and the fit, `warnings` its limits. Hosts begin lent, except those that are `away`:
    their owners have them from the start, and a return comes first, or nothing. `Scale.apply(trace)` plays it.
    """

    origin: str
    arrivals: tuple[JobArrival, ...]
    owner_events: tuple[OwnerEvent, ...]
    away: tuple[str, ...] = ()
    background: BackgroundTraffic | None = None
    warnings: tuple[str, ...] = ()

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
