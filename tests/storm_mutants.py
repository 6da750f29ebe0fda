"""Worlds in which one rule is broken on purpose, through the seams by which a world gets its cores: a storm must notice each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from controller.core.coordinator import Coordinator
from controller.core.model import effects as cdo
from controller.core.model import events as cev
from controller.core.model.entities import Phase
from controller.core.network.max_min import Wants
from controller.core.policies.table import policy
from experiments.storms import StormWorld
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.world import DATA_PORT
from testbed import messages as m
from testbed.agent.core import effects as ado
from testbed.agent.core import events as aev
from testbed.agent.core.agent import AgentCore
from testbed.agent.core.stored import Shelf


def of_agents(kind: type[AgentCore]) -> type[StormWorld]:
    """A world whose agents are these."""

    class World(StormWorld):
        def new_agent(self, machine: Machine) -> AgentCore:
            return kind(machine.name, machine.incarnation, DATA_PORT, Shelf(machine.store))

    return World


def of_coordinator(kind: type[Coordinator]) -> type[StormWorld]:
    """A world whose coordinator is this one; none is quiet."""

    class World(StormWorld):
        def new_coordinator(self) -> Coordinator:
            return kind(self.stage.campus, self.settings, _Draws())

    return World


class _Draws:
    """A stream of one's own, to be given out again at a restart."""

    def __init__(self) -> None:
        self._drawn = 0

    def __call__(self) -> float:
        self._drawn += 1
        return (self._drawn * 0.6180339887) % 1.0


# ---------------------------------------------------------------- coordinators


class GrantsTwice(Coordinator):
    """Its sharing gives every flow twice what there is."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.cluster.policy = replace(self.cluster.policy, share=_share_twice)


def _share_twice(wants: Wants, spendable: Any) -> Any:
    rates, held_by = policy("reclaimnet").share(wants, spendable)
    return 2.0 * rates, held_by


class ForgetsAJob(Coordinator):
    """A job that waits when a connection ends is known no more."""

    def handle(self, event: cev.Event, now_s: float) -> list[cdo.Effect]:
        effects = super().handle(event, now_s)
        if isinstance(event, cev.AgentGone):
            waiting = [job.name for job in self.cluster.unfinished() if job.phase is Phase.WAITING]
            if waiting:
                del self.cluster.jobs[waiting[0]]
        return effects


class NeverWaitsForLeases(Coordinator):
    """Jobs of a connection that is gone count as dead at once."""

    def handle(self, event: cev.Event, now_s: float) -> list[cdo.Effect]:
        if isinstance(event, cev.AgentGone):
            self.cluster.hosts[event.host].lease_until_s = now_s - self.cluster.settings.fence_margin_s
        return super().handle(event, now_s)


class LeavesFlowsOpen(Coordinator):
    """Senders whose flow is over are not told to stop."""

    def handle(self, event: cev.Event, now_s: float) -> list[cdo.Effect]:
        effects = super().handle(event, now_s)
        return [
            e for e in effects if not (isinstance(e, cdo.Tell) and isinstance(e.message, m.CancelTransfers))
        ]


# ---------------------------------------------------------------- agents


class SaysStoredTooSoon(AgentCore):
    """Tells of a checkpoint a step beyond the one that has arrived."""

    def handle(self, event: aev.Event, now_s: float) -> list[ado.Effect]:
        return [_a_step_beyond(effect) for effect in super().handle(event, now_s)]


def _a_step_beyond(effect: ado.Effect) -> ado.Effect:
    match effect:
        case ado.Send(m.CheckpointStored(stored)):
            beyond = m.StoredCheckpoint(
                stored.job, stored.sequence, stored.step + 1, stored.payload_bytes, stored.digest
            )
            return ado.Send(m.CheckpointStored(beyond))
    return effect


class KeepsComputing(AgentCore):
    """Tells that its owner reclaims, and kills nothing."""

    def handle(self, event: aev.Event, now_s: float) -> list[ado.Effect]:
        effects = super().handle(event, now_s)
        if isinstance(event, aev.SwitchRead):
            return [effect for effect in effects if not isinstance(effect, ado.KillWorkload)]
        return effects


class NeverSlowsDown(AgentCore):
    """Takes a higher rate, and never a lower one."""

    def handle(self, event: aev.Event, now_s: float) -> list[ado.Effect]:
        if isinstance(event, aev.Received) and isinstance(event.message, m.Grant):
            sending = self.sendings.table.get((event.message.job, event.message.destination))
            if sending is not None and sending.rate_bytes_per_s > event.message.rate_bytes_per_s:
                return []
        return super().handle(event, now_s)


class ObeysOldOrders(AgentCore):
    """Starts what was ordered before it was known that the owner had taken the host."""

    def handle(self, event: aev.Event, now_s: float) -> list[ado.Effect]:
        if isinstance(event, aev.Received) and isinstance(event.message, m.StartJob):
            order = event.message
            event = aev.Received(m.StartJob(order.job, order.attempt, order.restore, self.closures))
        return super().handle(event, now_s)


class OutlivesItsLease(AgentCore):
    """Believes that each lease is for ever."""

    def handle(self, event: aev.Event, now_s: float) -> list[ado.Effect]:
        self.pulse.lease_s = 1e9 if self.pulse.lease_s else 0.0
        effects = super().handle(event, now_s)
        return [
            msgspec.structs.replace(e, until_s=1e9) if isinstance(e, ado.ExtendLease) else e for e in effects
        ]


MUTANTS: Mapping[str, type[StormWorld]] = {
    kind.__name__: of_agents(kind)
    for kind in (SaysStoredTooSoon, KeepsComputing, NeverSlowsDown, ObeysOldOrders, OutlivesItsLease)
} | {
    kind.__name__: of_coordinator(kind)
    for kind in (GrantsTwice, ForgetsAJob, NeverWaitsForLeases, LeavesFlowsOpen)
}
