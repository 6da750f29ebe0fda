"""The policy's row and the kernel's enforcement of a live run, from a scenario as it is played."""

from __future__ import annotations

from controller.core.policies.table import Policy, policy
from experiments.inputs.scenario.scenario import Scenario
from testbed.enforcement import Enforcement
from topologies.errors import SpecError


def live_row(played: Scenario) -> Policy:
    """Return the row of the policy that a live run plays.

    SpecError: no such row, or one that only the virtual world can play.
    """
    row = policy(played.protocol.policy)
    if row.interruption.replication is not None:
        allowed = "a system whose jobs run once: replicas that compute too are modelled in virtual time only (`simulate`)"
        raise SpecError("protocol.policy", played.protocol.policy, allowed)
    return row


def enforcement_of(played: Scenario) -> Enforcement:
    """Return the kernel's enforcement of grants: none for a system that does not ask for it, whatever the scenario has."""
    row = live_row(played)
    return Enforcement(played.protocol.enforcement) if row.enforced else Enforcement.NONE
