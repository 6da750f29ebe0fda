"""Parameters of the decisions, as a scenario file has them: the queue (paper B) and the protocols (paper A).

Defaults are the papers' values where they give one, in real units; each line names the source of its number. The coordinator
takes both records of a scenario as it is played.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from topologies.calendars import Week
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.fields import check, choice, flag, machine, optional, overrides, quantity, whole
from topologies.keys import number

Amount = TypeVar("Amount", float, NDArray[np.float64])  # one, or of each
D = Dimension
DAY_S = 86_400.0
FENCE_MARGIN = 0.1  # of a lease: the coordinator waits so much longer than an agent
MIN_LEASE_S = 0.01  # as played: three heartbeats of each host fit into it, and no timer here is finer than a few ms
ENFORCEMENTS = ("pace", "drop", "none")
CONGESTION_CONTROLS = ("bbr", "cubic", "reno")
SNAPSHOTS = ("stop", "copy")
# policy: the one of the policy's row
LEARNERS = ("policy", "fixed", "algorithm1", "replay", "age")


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of paper B: join it at level r = N + p, or go to on-demand; r is learned."""

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
    """The protocols of paper A: P1, P2, P3, how their grants are enforced, and the machinery's periods."""

    # the system, or module:NAME; overrides become part of its name, reclaimnet+vault=false
    policy: str = choice((), "reclaimnet")
    # of fields of the policy, such as { vault = false }: an ablation
    override: Mapping[str, bool | str] | None = overrides()
    # of grants, in the kernel; drop: paper A's literal bucket, a baseline
    enforcement: str = choice(ENFORCEMENTS, "pace")
    congestion_control: str = choice(CONGESTION_CONTROLS, "bbr")  # paced flows hold their rate best with BBR
    # a job stands still until its snapshot is written (paper A), or, copy, until its state is copied in memory
    snapshots: str = choice(SNAPSHOTS, "stop")
    # GB/s at which a state is copied (unscaled), until a host has measured its own
    copy_gb_per_s: float = quantity(D.NUMBER, 6.0, above=True)
    # P1, beta of eq. (9): the part of an interval that sending may take; none: 0.9 if jobs go on meanwhile, else 0.2
    checkpoint_share: float | None = optional(number(D.NUMBER, 0.0, 1.0, above=True))
    stability_penalty: float = quantity(D.NUMBER, 1.0)  # P2, alpha of eq. (11): of a likely reclaim
    # P2, theta of Algorithm 2: the highest load of a destination
    max_load: float = quantity(D.NUMBER, 1.0, high=1.0, above=True)
    # P2: with so many candidates in the source's building only those are scored; none: all are
    k_min: int | None = whole(1, 10_000, None, optional=True)
    restart_s: float = quantity(D.DURATION, 10.0)  # T_r: from a checkpoint at its host to a running job
    # the past from which hazards are estimated
    hazard_window_s: float = quantity(D.DURATION, 14 * 86_400.0, above=True)
    prior_hazard_per_s: float = quantity(D.PER_TIME, 1.0 / 86_400.0, above=True)  # of an emergency, until one was seen
    control_period_s: float = quantity(D.DURATION, 10.0, above=True)  # least time between ticks: P1 and P3 again
    # the end of a calendar's window is announced this long before, as a notice; jobs with nowhere to go stop then
    calendar_notice_s: float = quantity(D.DURATION, 120.0)
    # whether the coordinator's machine keeps checkpoints: of policies that send any there
    head_stores: bool = flag(False)
    # ways between two hosts that P2 and P3 choose from on a campus with several paths; 1: one tree's
    paths: int = whole(1, 4, 4)
    # an agent unheard for so long must have stopped its jobs
    lease_s: float = quantity(D.DURATION, 30.0, low=MIN_LEASE_S)

    heartbeat_s: float = machine(1.0)  # between two heartbeats of an agent
    # to order a snapshot and learn of it: a migration needs it beside transfer and restart
    snapshot_s: float = machine(0.15)
    # to write it into memory, which a quiet core does at 1.7 to 2.1 GB/s
    snapshot_bytes_per_s: float = machine(1.5e9)
    # to be stopped and go on (`reclaimnet measure snapshots`), where a job stands still for a copy in memory alone
    copy_s: float = machine(0.001)
    # of the owners:
    day_s: float = machine(DAY_S)  # length of a day
    day_start_s: float = machine(0.0)  # time of day at which the run starts
    first_weekday: int = machine(0)  # of the day on which it starts; 0: Monday

    def __post_init__(self) -> None:
        check(self, "protocol")

    @property
    def week(self) -> Week:
        """The week by which calendars are read."""
        return Week(self.day_s, self.day_start_s, self.first_weekday)

    @property
    def fence_margin_s(self) -> float:
        """Seconds for which the coordinator waits beyond a lease."""
        return FENCE_MARGIN * self.lease_s

    @property
    def copies(self) -> bool:
        """True if a job stands still only until its state is copied in memory."""
        return self.snapshots == "copy"

    def writes_s(self, payload_bytes: float) -> float:
        """Return seconds from the order to take a snapshot of so much to its first byte: it is on its host's disk then."""
        return self.snapshot_s + payload_bytes / self.snapshot_bytes_per_s

    def pauses_s(self, payload_bytes: Amount, host_bytes_per_s: Amount | None = None) -> Amount:
        """Return p: seconds for which a snapshot of so much stops a job; at its host's own rate, if that is known."""
        if self.copies:
            fixed_s, assumed_bytes_per_s = self.copy_s, 1e9 * self.copy_gb_per_s
        else:
            fixed_s, assumed_bytes_per_s = self.snapshot_s, self.snapshot_bytes_per_s
        return fixed_s + payload_bytes / (assumed_bytes_per_s if host_bytes_per_s is None else host_bytes_per_s)
