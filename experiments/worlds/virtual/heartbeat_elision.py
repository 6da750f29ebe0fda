"""Elision of heartbeats that can change nothing.

Live, each agent sends a heartbeat every second. Over two months of 53 hosts that would be 280 million messages. While
all is well, their only effects are that leases run on and that the coordinator has the jobs' progress. So here a host's
pulse is *held* once its agent's last heartbeat is acknowledged: leases do not end. Before every decision of the
coordinator each job's progress is set as a heartbeat of that moment would set it.

As soon as something happens to a connection or to either of its ends, the pulse is *roused*. Leases are set to the rest
that the last heartbeats would have left, and the next heartbeat is due when it would have been. From there on
heartbeats are really sent, until one is acknowledged over a connection that is well again.

Two things differ from a run with all heartbeats. Counters of egress come once, at the end of the run, not every second.
Decisions know how far a job is now, not up to a second ago: P2's scores count that work. While no connection breaks, all
else is equal, to the last bit.
"""

from __future__ import annotations

from functools import partial
from math import floor, inf
from typing import Any

from controller.core.coordinator import Coordinator
from controller.core.model import events as cev
from controller.core.model.cluster import Cluster
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.journal import MemoryJournal, Told
from experiments.worlds.virtual.workloads import Workloads
from testbed import messages as m
from testbed.messages import HeartbeatAck


class HeartbeatElision:
    """The hosts whose heartbeats are left out. With `held` False there are none."""

    def __init__(
        self, env: Environment, coordinator: Coordinator, connections: Connections, workloads: Workloads
    ) -> None:
        self._env, self.coordinator = env, coordinator
        self._connections, self._workloads = connections, workloads
        self._delay_s = env.costs.message_s
        self.journal: MemoryJournal | None = None  # of what the coordinator gets by the way

    def heard(self, machine: Machine, message: Any) -> None:
        """Hold a host's pulse if this message acknowledges its agent's last heartbeat and all is well.

        A heartbeat still on its way would end what is held: the coordinator would count a lease from it.
        """
        if not isinstance(message, HeartbeatAck) or machine.held or not self._connections.is_well(machine):
            return
        assert machine.core is not None
        lease = machine.core.lease
        if not lease.unacknowledged:
            machine.beats_from_s = lease.heartbeat_at_s
            lease.heartbeat_at_s = lease.lease_until_s = machine.lease_until_s = inf
            self._tell(partial(_lease, machine.name, inf))

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
        until_s = heard + self._delay_s + self.coordinator.cluster.protocol.lease_s
        self._tell(partial(_lease, machine.name, until_s))
        self._env.scheduler.at(machine.lease_until_s, lambda: self._workloads.fence(machine))

    def freshen(self) -> None:
        """Set the progress of all jobs on hosts whose heartbeats are left out."""
        for machine in self._workloads.busy():
            if machine.held:
                self.tell_steps(machine)

    def tell_steps(self, machine: Machine) -> None:
        """Set the progress of a host's jobs, as a heartbeat would."""
        jobs, now_s = self.coordinator.cluster.jobs, self._env.now_s
        for (name, attempt), process in machine.processes.items():
            job = jobs.get(name)
            if job is not None and job.attempt == attempt and job.host == machine.name:
                step = process.step(now_s)
                if step > job.step:
                    job.step = step
                    if self.journal is not None:
                        self.journal.keep(now_s, partial(_progress, name, step))

    def _tell(self, told: Told) -> None:
        told(self.coordinator.cluster)
        if self.journal is not None:
            self.journal.keep(self._env.now_s, told)


def _lease(host: str, until_s: float, cluster: Cluster) -> None:
    cluster.lease(cluster.hosts[host], until_s)


def _progress(job: str, step: int, cluster: Cluster) -> None:
    cluster.jobs[job].step = step


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
