"""Heartbeats that can change nothing are not sent.

Live, each agent sends one a second. Over two months of 53 hosts that would be 280 million messages whose only effects, while
all is well, are that leases run on and that the coordinator knows how far jobs are. So here, once an agent's last
heartbeat is acknowledged, its pulse is *held*: leases do not end, and before anything that the coordinator
decides it is told how far each job is, as the last heartbeat would have told it (at most a heartbeat later than live: not at
all). As soon as something happens to a connection or to either of its ends, the pulse is *roused*: leases are set to what the
last heartbeats would have left, the next one is due when it would have been, and from there on they are really sent, until one
is acknowledged over a connection that is well again.

What differs from live: counters of egress come once, at the end of the run, not every second; and the coordinator's picture of
a job is never older than its event.
"""

from __future__ import annotations

from math import floor, inf
from typing import Any

from controller.core.coordinator import Coordinator
from controller.core.model import events as cev
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.journal import (
    LeaseTold,
    MemoryJournal,
    StepTold,
    Told,
)
from experiments.worlds.virtual.workloads import Workloads
from testbed import messages as m
from testbed.messages import HeartbeatAck


class HeartbeatElision:
    """Which hosts' heartbeats are left out. With `held` False none ever is."""

    def __init__(
        self, env: Environment, coordinator: Coordinator, connections: Connections, workloads: Workloads
    ) -> None:
        self._env, self.coordinator = env, coordinator
        self._connections, self._workloads = connections, workloads
        self._delay_s = env.costs.message_s
        self.journal: MemoryJournal | None = None  # of what the coordinator is told by the way

    def heard(self, machine: Machine, message: Any) -> None:
        """An agent heard the coordinator: if that acknowledged its last heartbeat and all is well, its pulse is held.

        One that is still on its way would end what is held: the coordinator would count a lease from it.
        """
        if not isinstance(message, HeartbeatAck) or machine.held or not self._connections.is_well(machine):
            return
        assert machine.core is not None
        lease = machine.core.lease
        if not lease.unacknowledged:
            machine.beats_from_s = lease.heartbeat_at_s
            lease.heartbeat_at_s = lease.lease_until_s = machine.lease_until_s = inf
            self._tell(LeaseTold(machine.name, inf))

    def rouse(self, machine: Machine) -> None:
        """Count heartbeats from now on; those that were left out were all acknowledged as far as there was time."""
        if machine.beats_from_s is None or machine.core is None:
            return
        now_s, first_s, lease = self._env.now_s, machine.beats_from_s, machine.core.lease
        machine.beats_from_s = None
        self._workloads.report(machine)
        self.tell_steps(machine)
        period_s, lease_s = lease.pace_s, lease.lease_s
        heard = first_s + period_s * floor((now_s - self._delay_s - first_s) / period_s)
        answered = first_s + period_s * floor((now_s - 2.0 * self._delay_s - first_s) / period_s)
        lease.heartbeat_at_s = first_s + period_s * max(0, floor((now_s - first_s) / period_s) + 1)
        lease.lease_until_s = machine.lease_until_s = answered + lease_s
        until_s = heard + self._delay_s + self.coordinator.cluster.settings.lease_s
        self._tell(LeaseTold(machine.name, until_s))
        self._env.scheduler.at(machine.lease_until_s, lambda: self._workloads.fence(machine))

    def freshen(self) -> None:
        """The coordinator hears how far all jobs are whose hosts' heartbeats are left out."""
        for machine in self._workloads.busy():
            if machine.held:
                self.tell_steps(machine)

    def tell_steps(self, machine: Machine) -> None:
        """What a heartbeat would say of a host's jobs."""
        jobs, now_s = self.coordinator.cluster.jobs, self._env.now_s
        for (name, attempt), process in machine.processes.items():
            job = jobs.get(name)
            if job is not None and job.attempt == attempt and job.host == machine.name:
                step = process.step(now_s)
                if step > job.step:
                    job.step = step
                    if self.journal is not None:
                        self.journal.keep(now_s, StepTold(name, step))

    def _tell(self, told: Told) -> None:
        told.tell(self.coordinator.cluster)
        if self.journal is not None:
            self.journal.keep(self._env.now_s, told)


def asks_for_steps(event: cev.Event) -> bool:
    """Return whether a decision may follow that depends on how far jobs are."""
    if not isinstance(event, cev.AgentSaid):
        return True
    message = event.message
    if isinstance(message, m.TransferEnded):
        return not message.ok
    if isinstance(message, m.SnapshotTaken):
        return message.final
    return not isinstance(message, (m.Heartbeat, m.CheckpointStored))
