"""The parts of a scenario that are plain parameters: jobs, research flows, events of links, the law of others' traffic.

Defaults are the papers' values where they give one, in real units; each line names the source of its number.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field

from experiments.inputs.scenario.flow_sizes import SIZES, mean_bytes
from experiments.inputs.scenario.law import InverseLaw, drawn
from testbed.trust import TRANSFERS
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.fields import check, choice, flag, names, numbers, optional, quantity, whole
from topologies.keys import choice as one_of
from topologies.keys import flag as true_or_false
from topologies.keys import number, text
from topologies.units import MBIT_PER_S

D = Dimension
JOURNALS = ("sqlite", "etcd")


@dataclass(frozen=True, slots=True)
class Jobs:
    """The stream of jobs. Payloads follow F2 of paper A: 120 MB to 48 GB, median 3.2 GB.

    A lognormal of sigma 1.2 puts the two ends at the 0.3 % and the 98.8 % quantile.
    """

    # between two submissions
    interarrival: InverseLaw = field(default=InverseLaw("exponential", 600.0), metadata=drawn(D.DURATION))
    initial: int = whole(0, 100_000, 0)  # a burst at the start: ten times as dense as the rest
    count: int | None = whole(0, 1_000_000, None, optional=True)  # exactly so many, at any time alike
    # with `count`: what all run times add up to; 0: as they are drawn
    work_s: float = quantity(D.DURATION, 0.0)
    # of its checkpoints
    payload: InverseLaw = field(default=InverseLaw("lognormal", 3.2e9, 1.2, 120e6, 48e9), metadata=drawn(D.SIZE))
    # on a reference GPU, without interruptions
    run_time: InverseLaw = field(
        default=InverseLaw("lognormal", 2 * 3600.0, 1.0, 600.0, 24 * 3600.0), metadata=drawn(D.DURATION)
    )
    step_s: float = quantity(D.DURATION, 10.0, above=True)  # work is lost in whole steps
    dirty_fraction: float = quantity(D.NUMBER, 0.3, high=1.0)  # of the payload, rewritten by one step
    # that the job needs on its GPU
    memory: InverseLaw = field(default=InverseLaw("lognormal", 10e9, 0.5, 2e9, 24e9), metadata=drawn(D.SIZE))
    min_capabilities: tuple[float, ...] = numbers((0.0,))  # of its GPU: one of these, drawn for each job
    # names in the `speeds` of GPU models: one of these, drawn for each job; empty: `speed` counts
    workload_classes: tuple[str, ...] = names((), 'a list of classes of work, such as ["vision", "language"]')
    # L_max: intervals of at most 2 L_max (paper A's eq. 9)
    loss_budget_s: float = quantity(D.DURATION, 900.0, above=True)

    def __post_init__(self) -> None:
        check(self, "jobs")


@dataclass(frozen=True, slots=True)
class Trust:
    """Protection of a live campus against those who share its cables; the virtual world has none."""

    # sealed: checkpoints are encrypted, too; authenticated: only conversations; plain: no certificates, as published
    transfers: str = choice(TRANSFERS, "sealed")
    # the coordinators' log: a file, or three members of etcd, of which two keep each line
    journal: str = choice(JOURNALS, "sqlite")
    # a second coordinator follows the first, and leads within a second of its death
    standby: bool = flag(False)

    # a file of `reclaimnet ca init` that issues the names; none: an authority in memory, for this run
    authority: str | None = optional(text("a file of `reclaimnet ca init`"))

    def __post_init__(self) -> None:
        check(self, "trust")


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """A link that changes while the campus runs, in both directions; what is not named stays as it is."""

    at_s: float = quantity(D.DURATION)  # from the run's beginning
    # the two nodes that the cable joins
    between: tuple[str, ...] = names(MISSING, 'two nodes, such as ["h3", "a1"]')
    rate_bytes_per_s: float | None = optional(number(D.RATE, above=True))  # on the wire
    delay_s: float | None = optional(number(D.DURATION))  # one way; live only
    # of a packet; live only
    loss: float | None = optional(number(D.NUMBER, about="a probability less than 1"))
    # a packet takes the delay, more or less by at most this; live only
    jitter_s: float | None = optional(number(D.DURATION))
    up: bool | None = optional(true_or_false())  # whether the cable carries anything
    # for how long before that a trunk is drained
    drain_s: float | None = optional(number(D.DURATION, above=True))

    def __post_init__(self) -> None:
        check(self, "events")
        if len(self.between) != 2:
            raise SpecError("events.between", list(self.between), 'two nodes, such as ["h3", "a1"]')
        if self.drain_s is not None and (self.up is not False or self.drain_s > self.at_s):
            raise SpecError("events.drain", self.drain_s, "of an event with up = false, at most its time")
        if not self.changes:
            raise SpecError("events", f"nothing at {self.at_s:g} s", "at least one of rate, delay, loss, jitter, up")

    @property
    def changes(self) -> dict[str, float | bool]:
        """The values that are named, by field."""
        names = ("rate_bytes_per_s", "delay_s", "loss", "jitter_s", "up")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class ResearchFlow:
    """Traffic of research users from host to host: a TCP flow, a stream of TCP flows that have sizes, or datagrams."""

    # the host that sends
    source: str = choice(())
    # the host that receives
    target: str = choice(())
    # payload; greedy: as fast as it goes; of flows with sizes: what they ask for on average
    rate_bytes_per_s: float = quantity(D.RATE, math.inf, above=True, infinite="greedy")
    transport: str = choice(("tcp", "udp"), "tcp")  # udp: datagrams at its rate, whatever is lost of them
    # of flows that arrive as a Poisson process, as published (DCTCP 2010, VL2 2009); left out: one flow
    sizes: str | None = optional(one_of(SIZES))
    # of those flows; left out: the distribution's own, 1.7 or 7.5 MB
    mean_size_bytes: float | None = optional(number(D.SIZE, above=True))

    def __post_init__(self) -> None:
        key = f"research.{self.source}-{self.target}"
        check(self, key)
        if self.greedy and (self.transport == "udp" or self.sizes is not None):
            raise SpecError(f"{key}.rate", "greedy", "a rate: of datagrams, or of flows with sizes")
        if self.sizes is None:
            if self.mean_size_bytes is not None:
                raise SpecError(f"{key}.mean_size", self.mean_size_bytes, "none without sizes")
        elif self.transport == "udp":
            raise SpecError(f"{key}.transport", self.transport, "tcp, where flows have sizes")
        elif self.mean_size_bytes is None:
            object.__setattr__(self, "mean_size_bytes", mean_bytes(self.sizes))

    @property
    def greedy(self) -> bool:
        """True for a flow that goes as fast as it can."""
        return math.isinf(self.rate_bytes_per_s)


@dataclass(frozen=True, slots=True)
class BackgroundLaw:
    """Law of the bandwidth left by others, with means over the run, on the wire; a link below its mean is left alone.

    F3 and F4 of paper A have two levels: what is left of access links, on which paths inside a building are decided, and
    of the links between buildings and core. The traffic in between is constant over an epoch. What is left falls when
    owners are busy (the hazard of a reclaim is high) and goes up and down besides:

        log(left / mean) = -sigma (w s + sqrt(1 - w^2) e),    left within (1 - spread, 1 + spread) of the mean

    with s the hazard, standardised, and e a noise of the whole campus that remembers `memory` of itself from epoch to epoch.
    """

    local_bytes_per_s: float = quantity(D.RATE, 820 * MBIT_PER_S, above=True)  # F3: left of access links
    # F3: left between buildings and core
    core_bytes_per_s: float = quantity(D.RATE, 240 * MBIT_PER_S, above=True)
    spread: float = quantity(D.NUMBER, 0.6, high=0.99)  # F3: +-60 %
    sigma: float = quantity(D.NUMBER, 0.35, high=3.0)  # gives the variation of 1/B of F4, .31
    hazard_weight: float = quantity(D.NUMBER, 0.42, high=1.0)  # gives the correlation of F4, -.43
    building_sigma: float = quantity(D.NUMBER, 0.1, high=3.0)  # of each building apart; not in the paper
    memory: float = quantity(D.NUMBER, 0.5, high=0.999)  # from epoch to epoch; not in the paper
    # between two changes of the rates
    epoch_s: float = quantity(D.DURATION, 3600.0, above=True)

    def __post_init__(self) -> None:
        check(self, "background")
