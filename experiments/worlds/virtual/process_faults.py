"""Signals to agents' processes: a killed one leaves only its disk, a stopped one receives its messages later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.replicas import Replicas
from experiments.worlds.virtual.scheduler import Priority
from experiments.worlds.virtual.transfers import Transfers
from experiments.worlds.virtual.workloads import Workloads


class ProcessFaults:
    """Signals to all agents. `arm` wakes the agent of a machine when it wants to be woken."""

    def __init__(
        self,
        env: Environment,
        connections: Connections,
        workloads: Workloads,
        transfers: Transfers,
        replicas: Replicas,
        arm: Callable[[Machine], None],
    ) -> None:
        self._env, self._connections = env, connections
        self._workloads, self._transfers, self._replicas = workloads, transfers, replicas
        self._arm = arm

    def kill(self, name: str, notice_after_s: float | None = None) -> bool:
        """Kill an agent (SIGKILL).

        False: it was dead already.

        The coordinator notices in its time (by default that of a message).
        """
        machine = self._env.machines[name]
        if machine.core is None:
            return False
        self._env.note(f"{name} is killed")
        link = machine.link
        if link is not None:
            self._env.broken_off(link)
        self._replicas.take_over(machine)
        self._transfers.abort_all(machine)
        self._workloads.kill_all(machine)
        self._transfers.cut_receiver(name, 0.0, "the connection broke")
        machine.core, machine.paused, machine.beats_from_s = None, False, None
        machine.deferred.clear()
        if link is not None:
            link.agent_open, link.cut, machine.link = False, True, None
            delay_s = self._env.costs.message_s if notice_after_s is None else notice_after_s
            self._env.after(
                delay_s,
                lambda: self._connections.coordinator_notices(link, "connection lost"),
                Priority.FAULT,
            )
        return True

    def pause(self, name: str, for_s: float) -> None:
        """Stop an agent (SIGSTOP), and continue it after a while (SIGCONT); nothing where it is dead, or stopped already."""
        machine = self._env.machines[name]
        if machine.core is None or machine.paused:
            return
        self._env.note(f"{name} is paused for {for_s:.2f} s")
        if machine.link is not None:
            self._env.broken_off(machine.link)
        machine.paused, core = True, machine.core

        def resume() -> None:
            if machine.core is not core or not machine.paused:
                return
            self._env.note(f"{name} goes on")
            machine.paused = False
            machine.wake_s = inf
            waiting, machine.deferred = machine.deferred, deque()
            while waiting:
                waiting.popleft()()
            if machine.core is core:
                self._arm(machine)

        self._env.after(for_s, resume, Priority.FAULT)
