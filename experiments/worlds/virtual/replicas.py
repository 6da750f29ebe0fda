"""Replicas that compute the same as their job: a host closes or dies, and another goes on at the same step.

Between a job and its replica nothing is sent, so nothing is simulated until the replica is needed. Then its state
becomes a checkpoint of the last whole step on its disk, and its agent reports it to the coordinator. The rest is as
with any checkpoint. `controller.core.policies.baselines` lists the parts of Bamboo that this models.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.core.lifecycle.attempts import replica_of
from controller.core.model.cluster import Cluster
from controller.core.model.events import AgentSaid
from controller.core.policies.baselines import Replication
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.hosts import Machine, Process
from testbed.agent.core import events as aev
from testbed.messages import SEQUENCES_PER_ATTEMPT, CheckpointStored, StoredCheckpoint
from topologies.spec import Role

REPLICAS = SEQUENCES_PER_ATTEMPT // 2  # of an attempt, from here on: no agent counts so far


class Replicas:
    """The replicas of all jobs, if the policy has any. `known` is what the coordinator knows."""

    def __init__(self, env: Environment, replication: Replication | None, known: Callable[[], Cluster]) -> None:
        self._env, self._replication, self._known = env, replication, known
        self.taken_over = 0

    def pace(self, machine: Machine) -> float:
        """Return the factor by which a step takes longer there: jobs on hosts without an owner are not replicated."""
        role = self._env.campus.host_by_name[machine.name].role
        if self._replication is None or role is not Role.VOLUNTEER:
            return 1.0
        return 1.0 + self._replication.slowdown

    def start_s(self, restore: StoredCheckpoint | None) -> float | None:
        """Return the seconds to go on from a replica's own state; None: this is another checkpoint."""
        own = restore is not None and restore.sequence % SEQUENCES_PER_ATTEMPT >= REPLICAS
        return self._replication.takeover_s if own and self._replication else None

    def take_over(self, machine: Machine) -> None:
        """Report the states of replicas that are in step: the machine's processes are about to die."""
        if self._replication is None:
            return
        for process in list(machine.processes.values()):
            replica = self._of(process)
            if replica is None or replica is machine or not process.alive:
                continue
            # at once: it would notice within a round trip, and what comes after must not overtake it
            env, spec, link = self._env, process.spec, replica.link
            if link is None or not link.coordinator_open or link.cut:
                continue
            step = process.step(env.now_s)
            sequence = process.attempt * SEQUENCES_PER_ATTEMPT + REPLICAS + self.taken_over
            state = StoredCheckpoint(spec.name, sequence, step, spec.payload_bytes, f"{spec.name}@{step}")
            self.taken_over += 1
            replica.disk.drop(spec.name, sequence)
            replica.store[spec.name, sequence] = state
            env.tell_agent(replica, aev.CheckpointReceived(state))
            env.decide(AgentSaid(replica.name, CheckpointStored(state)))

    def _of(self, process: Process) -> Machine | None:
        """Return the machine of its replica, if that lives, is lent, and has had the state of this attempt sent."""
        name, known = process.spec.name, self._known()
        job = known.jobs.get(name)
        host = replica_of(known, job) if job is not None and job.attempt == process.attempt else None
        if host is None:
            return None
        machine = self._env.machines[host]
        attempts = {sequence // SEQUENCES_PER_ATTEMPT for sequence in machine.store.of(name)}
        able = machine.core is not None and not machine.paused and not machine.closed
        return machine if able and process.attempt in attempts else None
