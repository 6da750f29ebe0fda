"""The parts of a scenario that are plain parameters: the queue (paper B), the protocols (paper A), jobs, research flows.

Defaults are the papers' values where they give one, in real units; each line names the source of its number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field

from controller.core.policies.overrides import with_overrides
from controller.user_policies import find_policy
from experiments.inputs.scenario.fields import (
    check,
    choice,
    drawn,
    flag,
    names,
    numbers,
    optional,
    overrides,
    quantity,
    whole,
)
from experiments.inputs.scenario.law import InverseLaw
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.keys import flag as true_or_false
from topologies.keys import number

D = Dimension
MIN_LEASE_S = (
    0.01  # as played: three heartbeats of each host fit into it, and no timer here is finer than a few ms
)
ENFORCEMENTS = ("pace", "drop", "none")
CONGESTION_CONTROLS = ("bbr", "cubic", "reno")
SNAPSHOTS = ("stop", "copy")
# policy: the one of the policy's row
LEARNERS = ("policy", "fixed", "algorithm1", "replay", "age")


@dataclass(frozen=True, slots=True)
class Queue:
    """Paper B: join the queue at level r = N + p, or go to on-demand; r is learned."""

    # k: what a job costs on-demand; on a spot slot it costs 1
    on_demand_cost: float = quantity(D.NUMBER, 10.0, low=1.0)
    # delta: mean delay until a job starts, over all jobs
    target_delay_s: float = quantity(D.DURATION, 3 * 3600.0, above=True)
    learner: str = choice(LEARNERS, "policy")  # the rule that learns r; policy: that of the policy's row
    # alpha of Algorithm 1: how far a delay off the target moves r
    level_step_per_s: float = quantity(D.PER_TIME, 0.01 / 3600.0, above=True)
    level_window: int = whole(1, 1_000_000, 100)  # W: arrivals between two corrections of r
    level_start: float = quantity(D.NUMBER, 1.0)  # r_0: r at the beginning
    level_max: float = quantity(D.NUMBER, 8.0)  # r_max: the greatest r
    # how long a free GPU that no job takes stays on offer; 0: paper B's model; inf: until its owner comes back
    offer_ttl_s: float = quantity(D.DURATION, math.inf, infinite="inf")
    spare_gpus: int = whole(0, 10_000, 0)  # free GPUs that the queue leaves for migrations to go to

    def __post_init__(self) -> None:
        check(self, "queue")
        if self.level_start > self.level_max:
            raise SpecError("queue.level_start", self.level_start, f"at most level_max, {self.level_max:g}")


@dataclass(frozen=True, slots=True)
class Protocol:
    """Paper A: P1, P2, P3, how their grants are enforced, and the machinery's periods."""

    # the system: a row of the table of systems, or module:NAME; it has its overrides in its name, reclaimnet+vault=false
    policy: str = choice((), "reclaimnet")
    # of fields of the policy, such as { vault = false }: an ablation; they become part of its name
    override: Mapping[str, bool | str] | None = overrides()
    # of grants, in the kernel; drop: paper A's literal bucket, a baseline
    enforcement: str = choice(ENFORCEMENTS, "pace")
    congestion_control: str = choice(CONGESTION_CONTROLS, "bbr")  # paced flows hold their rate best with BBR
    # while a snapshot is taken a job stands still until it is written (paper A), or, copy, until its state is copied in memory
    snapshots: str = choice(SNAPSHOTS, "stop")
    # GB/s at which a state is copied, by machines as they are (no scale changes it), until a host has measured its own
    copy_gb_per_s: float = quantity(D.NUMBER, 6.0, above=True)
    # P1, beta of eq. (9): the part of an interval that sending may take; none: 0.9 where jobs go on meanwhile, else paper A's 0.2
    checkpoint_share: float | None = optional(number(D.NUMBER, 0.0, 1.0, above=True))
    stability_penalty: float = quantity(D.NUMBER, 1.0)  # P2, alpha of eq. (11): of a likely reclaim
    # P2, theta of Algorithm 2: the highest load of a destination
    max_load: float = quantity(D.NUMBER, 1.0, high=1.0, above=True)
    # P2: with so many candidates in the source's building only those are scored; none: all are
    k_min: int | None = whole(1, 10_000, None, optional=True)
    restart_s: float = quantity(D.DURATION, 10.0)  # T_r: from a checkpoint at its host to a running job
    # the past from which hazards are estimated; paper A has two weeks
    hazard_window_s: float = quantity(D.DURATION, 14 * 86_400.0, above=True)
    prior_hazard_per_s: float = quantity(
        D.PER_TIME, 1.0 / 86_400.0, above=True
    )  # of an emergency, until one was seen
    control_period_s: float = quantity(D.DURATION, 10.0, above=True)  # one epoch of P1 and P3
    # whether the coordinator's machine, which no owner takes, keeps checkpoints: of policies that send any there
    head_stores: bool = flag(False)
    # whether others' traffic that switches count on trunks is left its room; else research has its reserve and no more
    trunk_counters: bool = flag(False)
    # ways from one host to another that P2 and P3 choose from on a campus with several paths; 1: one tree's
    paths: int = whole(1, 4, 4)
    # an agent unheard for so long must have stopped its jobs
    lease_s: float = quantity(D.DURATION, 30.0, low=MIN_LEASE_S)

    def __post_init__(self) -> None:
        check(self, "protocol")
        if self.override is not None:
            object.__setattr__(self, "policy", with_overrides(self.policy, self.override))
            object.__setattr__(self, "override", None)
        find_policy(self.policy, "protocol.policy")


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
    payload: InverseLaw = field(
        default=InverseLaw("lognormal", 3.2e9, 1.2, 120e6, 48e9), metadata=drawn(D.SIZE)
    )
    # on a GPU, without interruptions
    run_time: InverseLaw = field(
        default=InverseLaw("lognormal", 2 * 3600.0, 1.0, 600.0, 24 * 3600.0), metadata=drawn(D.DURATION)
    )
    step_s: float = quantity(D.DURATION, 10.0, above=True)  # work is lost in whole steps
    dirty_fraction: float = quantity(D.NUMBER, 0.3, high=1.0)  # of the payload, rewritten by one step
    # that the job needs on its GPU
    memory: InverseLaw = field(default=InverseLaw("lognormal", 10e9, 0.5, 2e9, 24e9), metadata=drawn(D.SIZE))
    min_capabilities: tuple[float, ...] = numbers((0.0,))  # of its GPU: one of these, drawn for each job
    # L_max: intervals of at most 2 L_max (paper A's eq. 9); the checkpoint on its way comes on top of what a reclaim costs
    loss_budget_s: float = quantity(D.DURATION, 900.0, above=True)

    def __post_init__(self) -> None:
        check(self, "jobs")


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
    # whether packets may overtake each other by their jitter; live only
    reorders: bool | None = optional(true_or_false())
    up: bool | None = optional(true_or_false())  # whether the cable carries anything
    # for how long before that a trunk is drained: whatever can leaves it while it still carries
    drain_s: float | None = optional(number(D.DURATION, above=True))

    def __post_init__(self) -> None:
        check(self, "events")
        if len(self.between) != 2:
            raise SpecError("events.between", list(self.between), 'two nodes, such as ["h3", "a1"]')
        if self.drain_s is not None and (self.up is not False or self.drain_s > self.at_s):
            raise SpecError("events.drain", self.drain_s, "of an event with up = false, at most its time")
        if not self.changes:
            raise SpecError(
                "events",
                f"nothing at {self.at_s:g} s",
                "at least one of rate, delay, loss, jitter, reorders, up",
            )

    @property
    def changes(self) -> dict[str, float | bool]:
        """The values that are named, by field."""
        names = ("rate_bytes_per_s", "delay_s", "loss", "jitter_s", "reorders", "up")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class ResearchFlow:
    """Traffic of research users: a TCP flow from host to host, at a rate or as fast as it goes."""

    # the host that sends
    source: str = choice(())
    # the host that receives
    target: str = choice(())
    # payload; greedy: as fast as it goes
    rate_bytes_per_s: float = quantity(D.RATE, math.inf, above=True, infinite="greedy")

    def __post_init__(self) -> None:
        check(self, f"research.{self.source}-{self.target}")

    @property
    def greedy(self) -> bool:
        """True for a flow that goes as fast as it can."""
        return math.isinf(self.rate_bytes_per_s)
