"""Owners and their switches: what the kernel enforces at once, and what the agent reads a moment later."""

from __future__ import annotations

from collections.abc import Callable

from experiments.worlds.virtual.context import Stage
from experiments.worlds.virtual.hosts import Machine
from experiments.worlds.virtual.scheduler import Priority
from testbed.agent.core import events as aev


class VirtualOwners:
    """The switches of all hosts. `closed` and `opened` are called when the kernel shuts a host off, or lets it on again."""

    def __init__(
        self, stage: Stage, closed: Callable[[Machine], None], opened: Callable[[Machine], None]
    ) -> None:
        self._stage, self._closed, self._opened = stage, closed, opened

    def reclaim(self, name: str, notice_s: float = 0.0, *, grace: bool = False) -> None:
        """The owner takes a host back, at once or in `notice_s`, during which the kernel lets no new connection in."""
        stage, machine = self._stage, self._stage.machines[name]
        stage.note(f"the owner of {name} reclaims it in {notice_s:.2f} s")
        machine.switch_version += 1
        version = machine.switch_version
        machine.isolate_at_s = None if notice_s <= 0.0 else stage.now_s + notice_s
        if notice_s <= 0.0:
            self._close(machine)
        else:
            self._open(machine)

        def isolate() -> None:
            if machine.switch_version == version:
                self._close(machine)

        if notice_s > 0.0:
            stage.after(notice_s, isolate, Priority.OWNER)
        self._read_soon(machine, grace)

    def give_back(self, name: str) -> None:
        """The owner lends it again."""
        machine = self._stage.machines[name]
        self._stage.note(f"the owner of {name} returns it")
        machine.switch_version += 1
        machine.isolate_at_s = None
        self._open(machine)
        self._read_soon(machine, grace=False)

    def read(self, machine: Machine, grace: bool = False) -> None:
        """The agent looks at the switch."""
        if machine.isolate_at_s is not None:
            left_s = max(0.0, machine.isolate_at_s - self._stage.now_s)
            self._stage.agent(machine, aev.SwitchRead(False, left_s, grace))
        elif machine.closed:
            self._stage.agent(machine, aev.SwitchRead(False, 0.0, grace))
        else:
            self._stage.agent(machine, aev.SwitchRead(True))

    def _close(self, machine: Machine) -> None:
        if not machine.closed:
            machine.closed = True
            self._closed(machine)

    def _open(self, machine: Machine) -> None:
        if machine.closed:
            machine.closed = False
            self._opened(machine)

    def _read_soon(self, machine: Machine, grace: bool) -> None:
        stage, version = self._stage, machine.switch_version

        def look() -> None:
            if machine.switch_version == version:
                self.read(machine, grace)

        delay_s = stage.streams.span(stage.costs.switch_s, "switch", machine.name)
        stage.after(delay_s, lambda: stage.to_agent(machine, look), Priority.PROCESS)
