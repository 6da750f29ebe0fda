"""The coordinator's settings, from a scenario as it is played."""

from __future__ import annotations

from math import inf

from controller.core.policies.table import Policy, policy
from controller.core.settings import Settings
from experiments.inputs.scenario import Scenario
from testbed.enforcement import Enforcement
from topologies.errors import SpecError

HEARTBEAT_S = 1.0  # counters are sent on at 1 Hz; a shorter lease needs more
# of all hosts together, as Nomad's servers bound them: each costs the coordinator some half a millisecond of a processor
HEARTBEATS_PER_S = 250.0
MIN_COUNT_S = 0.2
SNAPSHOT_S = 0.15  # to order a snapshot and hear of it: a migration needs it beside transfer and restart
SNAPSHOT_BYTES_PER_S = 1.5e9  # to write it into memory, which a quiet core does at 1.7 to 2.1 GB/s
# where a job stands still for a copy in memory alone (`reclaimnet measure snapshots`), beside the copy at the protocol's rate (by
# default half of what a quiet core does, for one that another process wants too): to be stopped and go on
SNAPSHOT_PAUSE_S = 0.001


def snapshot_s(payload_bytes: float) -> float:
    """Return p of a payload where a job stands still until its snapshot is written, as `Settings.writes_s` has it."""
    return SNAPSHOT_S + payload_bytes / SNAPSHOT_BYTES_PER_S


def count_period_s(control_period_s: float) -> float:
    """Return the time between readings of switches' counters: half a control period, but not below the kernel's."""
    return max(MIN_COUNT_S, control_period_s / 2.0)


def heartbeat_s(hosts: int, lease_s: float) -> float:
    """Return the pause between two heartbeats of a busy host, in a campus of so many; a lease has three of them at least."""
    return min(max(HEARTBEAT_S, hosts / HEARTBEATS_PER_S), lease_s / 3.0)


def settings_of(played: Scenario) -> Settings:
    """Return the coordinator's settings of `played`, which is `scenario.played()`.

    Machine time (heartbeats, writing a snapshot) is not scaled: it is what it is.
    """
    queue, protocol, owners = played.queue, played.protocol, played.owners
    return Settings(
        on_demand_cost=queue.on_demand_cost,
        target_delay_s=queue.target_delay_s,
        learner="" if queue.learner == "policy" else queue.learner,
        level_step_per_s=queue.level_step_per_s,
        level_window=queue.level_window,
        level_start=queue.level_start,
        level_max=queue.level_max,
        offer_ttl_s=queue.offer_ttl_s,
        spare_gpus=queue.spare_gpus,
        checkpoint_share=protocol.checkpoint_share,
        stability_penalty=protocol.stability_penalty,
        max_load=protocol.max_load,
        k_min=protocol.k_min,
        restart_s=protocol.restart_s,
        snapshot_s=SNAPSHOT_S,
        snapshot_bytes_per_s=SNAPSHOT_BYTES_PER_S,
        snapshot_pause_s=None if protocol.snapshots == "stop" else SNAPSHOT_PAUSE_S,
        snapshot_pause_bytes_per_s=inf if protocol.snapshots == "stop" else 1e9 * protocol.copy_gb_per_s,
        control_period_s=protocol.control_period_s,
        lease_s=protocol.lease_s,
        heartbeat_s=heartbeat_s(len(played.campus.hosts), protocol.lease_s),
        fence_margin_s=0.1 * protocol.lease_s,
        hazard_window_s=protocol.hazard_window_s,
        prior_hazard_per_s=protocol.prior_hazard_per_s,
        day_s=owners.day_s,
        day_start_s=owners.day_start_s,
        paths=protocol.paths,
        head_stores=protocol.head_stores,
        policy=protocol.policy,
    )


def live_row(played: Scenario) -> Policy:
    """Return the row of the policy that a live run plays.

    SpecError: no such row, or one that only the virtual world can play.
    """
    row = policy(played.protocol.policy)
    if row.replication is not None:
        allowed = "a system whose jobs run once: replicas that compute too are modelled in virtual time only (`simulate`)"
        raise SpecError("protocol.policy", played.protocol.policy, allowed)
    return row


def enforcement_of(played: Scenario) -> Enforcement:
    """Return the kernel's enforcement of grants: none for a system that does not ask for it, whatever the scenario has."""
    row = live_row(played)
    return Enforcement(played.protocol.enforcement) if row.enforced else Enforcement.NONE
