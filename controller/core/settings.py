"""Everything that a decision may depend on and that does not change during a run."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Amount = TypeVar("Amount", float, NDArray[np.float64])  # one, or of each

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Parameters of the coordinator, in the time and byte scale of the run."""

    on_demand_cost: float = 10.0  # k of paper B
    target_delay_s: float = 3 * 3600.0  # delta of paper B
    level_step_per_s: float = 0.01 / 3600.0  # alpha of Algorithm 1
    level_window: int = 100  # W of Algorithm 1; arrivals between two fits of the controllers that replay
    level_start: float = 1.0  # r_0
    level_max: float = 8.0  # r_max
    learner: str = ""  # of policies.LEARNERS; empty: the policy's
    offer_ttl_s: float = inf  # a spot offer that was not used for so long is gone
    # free GPUs that are not offered to the queue, so that a migration finds a destination
    spare_gpus: int = 0
    checkpoint_share: float | None = None  # beta of eq. (9); None: the policy's
    stability_penalty: float = 1.0  # alpha of eq. (11)
    max_load: float = 1.0  # theta of Algorithm 2
    k_min: int | None = None  # Algorithm 2's locality filter; None: score every candidate
    restart_s: float = 10.0  # T_r
    snapshot_s: float = 0.0  # what a snapshot takes before its first byte leaves, whatever its size,
    snapshot_bytes_per_s: float = inf  # and W: how fast its payload is written
    # for which a snapshot stops a job that goes on, whatever its size; None: it stands still until all is written (paper A)
    snapshot_pause_s: float | None = None
    snapshot_pause_bytes_per_s: float = inf  # and while its payload is copied at this rate
    control_period_s: float = 10.0  # between two ticks: checkpoints are planned anew at the latest
    lease_s: float = 3.0  # no job runs longer after the last acknowledged heartbeat of its host
    heartbeat_s: float = 1.0  # between two heartbeats of an agent
    fence_margin_s: float = 0.5  # the coordinator waits so much longer than a lease
    hazard_window_s: float = 14 * DAY_S  # how far back owners' reclaims count
    # believed before anything was seen, as firmly as one event deserves
    prior_hazard_per_s: float = 1.0 / DAY_S
    day_s: float = DAY_S  # length of a day in the run's time scale
    day_start_s: float = 0.0  # time of day at which the run starts
    # ways from one host to another that P2 and P3 choose from, on a campus with several paths; 1: the tree's alone
    paths: int = 4
    head_stores: bool = False  # the coordinator's machine has an agent and keeps checkpoints: a head node
    policy: str = "reclaimnet"  # row of `policies.table` (`policy_of`)

    def writes_s(self, payload_bytes: float) -> float:
        """Seconds from the order to take a snapshot of so much to its first byte, at which it is on its host's disk."""
        return self.snapshot_s + payload_bytes / self.snapshot_bytes_per_s

    def pauses_s(self, payload_bytes: Amount, host_bytes_per_s: Amount | None = None) -> Amount:
        """p: seconds for which a snapshot of so much stops a job that goes on; at its host's own rate, where that is known."""
        if self.snapshot_pause_s is None:
            fixed_s, assumed_bytes_per_s = self.snapshot_s, self.snapshot_bytes_per_s
        else:
            fixed_s, assumed_bytes_per_s = self.snapshot_pause_s, self.snapshot_pause_bytes_per_s
        return fixed_s + payload_bytes / (
            assumed_bytes_per_s if host_bytes_per_s is None else host_bytes_per_s
        )
