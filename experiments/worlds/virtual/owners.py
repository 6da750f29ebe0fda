"""Owners and their switches: what the kernel enforces at once, and what the agent reads a moment later."""

from __future__ import annotations

from collections.abc import Callable

from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.scheduler import Priority
from testbed.agent.core import events as aev


class VirtualOwners:
    """The switches of all hosts. `switched` is called when the kernel has shut a host off, or let it on again."""

    def __init__(self, env: Environment, switched: Callable[[Machine], None]) -> None:
        self._env, self._switched = env, switched

    def reclaim(self, name: str, notice_s: float = 0.0, *, grace: bool = False) -> None:
        """Take a host back for its owner, at once or in `notice_s`. During a notice the kernel lets no new connection in."""
        env, machine = self._env, self._env.machines[name]
        env.note(f"the owner of {name} reclaims it in {notice_s:.2f} s")
        machine.switch_version += 1
        version = machine.switch_version
        machine.isolate_at_s = None if notice_s <= 0.0 else env.now_s + notice_s
        self._set(machine, closed=notice_s <= 0.0)

        def isolate() -> None:
            if machine.switch_version == version:
                self._set(machine, closed=True)

        if notice_s > 0.0:
            env.after(notice_s, isolate, Priority.OWNER)
        self._read_soon(machine, grace)

    def give_back(self, name: str) -> None:
        """Lend a host again."""
        machine = self._env.machines[name]
        self._env.note(f"the owner of {name} returns it")
        machine.switch_version += 1
        machine.isolate_at_s = None
        self._set(machine, closed=False)
        self._read_soon(machine, grace=False)

    def read(self, machine: Machine, grace: bool = False) -> None:
        """Hand the state of the switch to the agent."""
        if machine.isolate_at_s is not None:
            left_s = max(0.0, machine.isolate_at_s - self._env.now_s)
            self._env.agent(machine, aev.SwitchRead(False, left_s, grace))
        elif machine.closed:
            self._env.agent(machine, aev.SwitchRead(False, 0.0, grace))
        else:
            self._env.agent(machine, aev.SwitchRead(True))

    def _set(self, machine: Machine, *, closed: bool) -> None:
        if machine.closed is not closed:
            machine.closed = closed
            self._switched(machine)

    def _read_soon(self, machine: Machine, grace: bool) -> None:
        env, version = self._env, machine.switch_version

        def look() -> None:
            if machine.switch_version == version:
                self.read(machine, grace)

        delay_s = env.streams.span(env.costs.switch_s, "switch", machine.name)
        env.after(delay_s, lambda: env.to_agent(machine, look), Priority.PROCESS)
