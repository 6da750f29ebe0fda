"""Workloads as progress models: a process is a step at a time, and the step is computed when it is asked for.

Nothing happens while a job computes. One event marks its end; snapshots, which hold it up, move that end.
"""

from __future__ import annotations

from functools import partial
from math import inf

from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.hosts import Machine, Process
from experiments.worlds.virtual.replicas import Replicas
from experiments.worlds.virtual.scheduler import Priority
from testbed import messages as m
from testbed.agent.core import effects as ado
from testbed.agent.core import events as aev
from testbed.agent.core.agent import AgentCore

SILENT = (  # events that an agent answers without a word about how far jobs are, or with a snapshot's own step
    aev.WorkloadStarted,
    aev.CheckpointReceived,
    aev.SendEnded,
    aev.SnapshotDone,
    aev.Woke,
)
SILENT_ORDERS = (m.Grant, m.Protect, m.Unprotect, m.SendStored, m.Forget, m.HeartbeatAck)
KEPT_SNAPSHOTS = 2  # of a job on its own host, as the live agent keeps them


def tells_steps(core: AgentCore, event: aev.Event, now_s: float) -> bool:
    """Return whether an agent may report its jobs' progress after this event, or because of the time."""
    if isinstance(event, aev.WorkloadsProgressed):
        return False
    if isinstance(event, aev.Received):
        if not isinstance(event.message, SILENT_ORDERS):
            return True
    elif not isinstance(event, SILENT):
        return True
    closes_s = inf if core.reclaim_at_s is None else core.reclaim_at_s
    return now_s >= min(core.lease.heartbeat_at_s, core.lease.lease_until_s, closes_s)


class Workloads:
    """Starts, ends and snapshots of all workloads."""

    def __init__(self, env: Environment, replicas: Replicas) -> None:
        self._env, self._replicas = env, replicas
        self._number = {name: number for number, name in enumerate(env.machines)}
        self._busy: dict[int, Machine] = {}  # hosts with a process, by number
        self._in_order: list[Machine] | None = None  # the same
        self.may_fail: set[str] = set()  # jobs whose workload failed, by a fault

    def busy(self) -> list[Machine]:
        """Return hosts on which a process is, in order."""
        if self._in_order is None:
            self._in_order = [self._busy[number] for number in sorted(self._busy)]
        return self._in_order

    def _remove(self, machine: Machine, job: str, attempt: int) -> Process | None:
        process = machine.processes.pop((job, attempt), None)
        if not machine.processes:
            self._busy.pop(self._number[machine.name], None)
            self._in_order = None
        return process

    def start(self, machine: Machine, order: ado.StartWorkload) -> None:
        """Make a process; it runs once its state is proved."""
        spec, attempt, restore = order.spec, order.attempt, order.restore
        self._env.specs[spec.name] = spec
        pace = self._replicas.pace(machine) / order.speed
        process = Process(spec, attempt, restore.step if restore else 0, pace=pace)
        machine.processes[spec.name, attempt] = process
        self._busy[self._number[machine.name]], self._in_order = machine, None
        core = machine.core
        takes_s = self._replicas.start_s(restore)
        if takes_s is None:
            takes_s = self._env.streams.span(self._env.costs.start_s, "start", machine.name)

        def started() -> None:
            if process.alive and machine.core is core:
                self._started(machine, process, restore)

        self._env.after(takes_s, started, Priority.PROCESS)

    def _started(self, machine: Machine, process: Process, restore: m.StoredCheckpoint | None) -> None:
        spec, env, reason = process.spec, self._env, ""
        failure = env.faults.workload(machine.name, spec.name, process.attempt)
        if restore and (restore.job, restore.sequence) not in machine.store:
            reason = "no such checkpoint here"
        elif restore and (restore.job, restore.sequence) in machine.disk.rotten:
            reason = "the checkpoint's bytes are not those of its manifest"
        elif failure is not None:
            reason = failure.reason
            if restore is None:
                self.may_fail.add(spec.name)
        if failure is not None or reason:
            self._exit(machine, process, finished=False, reason=reason)
            return
        process.running_from_s = env.now_s
        step = process.told_step = process.base_step
        env.tell_agent(machine, aev.WorkloadStarted(spec.name, process.attempt, step, f"{spec.name}@{step}"))
        self._watch_end(machine, process)

    def _watch_end(self, machine: Machine, process: Process) -> None:
        """Let a process prove its state and end when all steps are done, unless it is killed meanwhile."""
        env = self._env

        def proved() -> None:
            if process.alive:
                self._exit(machine, process, finished=True, reason="")

        def computed() -> None:
            if not process.alive or process.running_from_s == inf:
                return
            if process.step(env.now_s) >= process.spec.steps:
                takes_s = env.streams.span(env.costs.finish_s, "finish", machine.name)
                env.after(takes_s, proved, Priority.PROCESS)
            else:
                self._watch_end(machine, process)  # snapshots held it up

        env.scheduler.at(process.end_s(), computed, Priority.PROCESS)

    def _exit(
        self,
        machine: Machine,
        process: Process,
        *,
        finished: bool,
        reason: str,
        fenced: bool = False,
        killed: bool = False,
    ) -> None:
        name, attempt = process.spec.name, process.attempt
        step = process.step(self._env.now_s)
        process.alive = False
        self._remove(machine, name, attempt)
        outcome: m.Outcome = "finished" if finished else "killed" if killed else "failed"
        ended = m.JobEnded(name, attempt, outcome, step, f"{name}@{step}", reason)
        self._env.tell_agent(machine, aev.WorkloadEnded(ended, fenced))

    def kill(self, machine: Machine, job: str, attempt: int) -> None:
        """Kill a process (SIGKILL), for certain."""
        if process := self._remove(machine, job, attempt):
            process.alive = False

    def end(self, machine: Machine, order: ado.EndWorkload) -> None:
        """End it within the grace that it is given."""
        process = machine.processes.get((order.job, order.attempt))
        takes_s = self._env.streams.span(self._env.costs.finish_s, "end", machine.name)

        def ended() -> None:
            if process is not None and process.alive:
                self._exit(machine, process, finished=False, reason="asked to end")

        self._env.after(min(takes_s, order.grace_s), ended, Priority.PROCESS)

    def kill_from_outside(self, machine: Machine, job: str) -> bool:
        """Kill a process as the kernel's OOM killer does, or a user of the host. False: no process of the job is there."""
        found = [process for (name, _), process in machine.processes.items() if name == job]
        for process in found:
            self._env.note(f"{machine.name}: the process of {job} is killed from outside")
            self._exit(machine, process, finished=False, reason="killed by signal 9", killed=True)
        return bool(found)

    def kill_all(self, machine: Machine) -> None:
        """Kill all processes of a machine, as they die with their agent."""
        for job, attempt in list(machine.processes):
            self.kill(machine, job, attempt)

    def fence(self, machine: Machine) -> None:
        """Stop a machine's processes when the lease lapses, whatever the agent does."""
        if self._env.now_s < machine.lease_until_s:
            return
        for process in list(machine.processes.values()):
            self._env.note(f"{machine.name}: {process.spec.name} fences itself")
            self._exit(machine, process, finished=False, reason="the lease lapsed", fenced=True)

    def report(self, machine: Machine) -> None:
        """Let the agent know how far its workloads are: asked before anything that depends on it."""
        claims = list[m.JobClaim]()
        for (job, attempt), process in machine.processes.items():
            step = process.step(self._env.now_s)
            if step > process.told_step and process.running_from_s < inf and process.alive:
                process.told_step = step
                claims.append(m.JobClaim(job, attempt, step))
        if claims:
            self._env.agent(machine, aev.WorkloadsProgressed(claims))

    # ------------------------------------------------------------ snapshots

    def snapshot(self, machine: Machine, order: ado.TakeSnapshot) -> None:
        """Take a snapshot of the present state; it is in the store when it is written.

        The job stands still for the write, or for a copy in memory.
        """
        env, process = self._env, machine.processes.get((order.job, order.attempt))
        ordered_s = env.streams.span(env.costs.snapshot_s, "snapshot", machine.name)
        if process is None or process.running_from_s == inf:
            env.after(0.0, lambda: self._failed(machine, order, "the process has gone"), Priority.PROCESS)
            return
        step = process.step(env.now_s)
        if step >= process.spec.steps:  # it proves its state and receives nothing more
            gone = partial(self._failed, machine, order, "the process has gone")
            env.after(env.costs.finish_s[1], gone, Priority.PROCESS)
            return
        costs, payload_bytes = env.costs, process.spec.payload_bytes
        write_s = payload_bytes / costs.snapshot_bytes_per_s + machine.disk.slow_s
        takes_s = stood_s = ordered_s + write_s
        cost = None
        if costs.snapshot_pause_s is not None:
            if not order.final:
                stood_s = env.streams.span(costs.snapshot_pause_s, "snapshot pause", machine.name)
                stood_s += payload_bytes / costs.snapshot_pause_bytes_per_s
            cost = m.SnapshotCost(stood_s, write_s)
        core = machine.core

        def written() -> None:
            if machine.core is core:
                self._written(machine, order, process, step, cost)

        env.after(takes_s, lambda: env.to_agent(machine, written), Priority.PROCESS)
        process.pause(env.now_s, stood_s)

    def _written(
        self, machine: Machine, order: ado.TakeSnapshot, process: Process, step: int, cost: m.SnapshotCost | None
    ) -> None:
        env = self._env
        failure = env.faults.snapshot(machine.name, order)
        if not process.alive:
            self._failed(machine, order, "the process has gone")
        elif machine.disk.full or failure is not None:
            self._failed(machine, order, failure.reason if failure else "no space left on device")
        else:
            job, sequence = order.job, order.sequence
            if order.final:
                self.kill(machine, job, order.attempt)
            taken = m.StoredCheckpoint(job, sequence, step, process.spec.payload_bytes, f"{job}@{step}")
            machine.store[job, sequence] = taken
            machine.disk.keep_latest(job, KEPT_SNAPSHOTS)
            env.agent(machine, aev.SnapshotDone(order.attempt, taken, order.final, cost))

    def _failed(self, machine: Machine, order: ado.TakeSnapshot, reason: str) -> None:
        failed = aev.SnapshotFailed(order.job, order.attempt, order.final, reason)
        self._env.tell_agent(machine, failed)
