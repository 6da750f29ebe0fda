"""The coordinator's process dies and begins again from its journal, as `controller.persistence.recovery` does live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from controller.core.coordinator import Coordinator
from controller.core.model import events as cev
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.context import Stage
from experiments.worlds.virtual.heartbeat_elision import Pulses
from experiments.worlds.virtual.journal import Memory
from experiments.worlds.virtual.scheduler import Priority


class Restarts:
    """Keeps the journal, unless the world is `quiet` and no restart was planned before its first event."""

    def __init__(
        self,
        stage: Stage,
        connections: Connections,
        pulses: Pulses,
        fresh: Callable[[], Coordinator],
        facts: Sequence[tuple[float, Any]],
        *,
        quiet: bool,
    ) -> None:
        self._stage, self._connections, self._pulses = stage, connections, pulses
        self._fresh, self._facts = fresh, facts
        self.memory = None if quiet else Memory()

    def keep(self, event: cev.Event) -> None:
        """The coordinator is handed an event."""
        if self.memory is not None:
            self.memory.keep(self._stage.now_s, event)

    def plan(self, at_s: float | None, down_s: float) -> None:
        """See `VirtualWorld.restart_coordinator`."""
        if self.memory is None:
            if self._stage.heap.count:
                raise ValueError(
                    "a quiet world keeps a journal only if a restart is planned before its first event"
                )
            self.memory = self._pulses.memory = Memory()
        if at_s is None:
            self._die(down_s)
        else:
            self._stage.heap.at(at_s, lambda: self._die(down_s), Priority.FAULT)

    def _die(self, down_s: float) -> None:
        if self._connections.refused:
            return
        self._stage.note("the coordinator is killed")
        self._connections.hang_up()
        self._connections.refused = True
        self._stage.after(down_s, self.begin_again, Priority.FAULT)

    def begin_again(self) -> None:
        """A process goes on where the journal ends."""
        assert self.memory is not None
        self._pulses.coordinator = self.memory.recall(self._fresh(), self._facts)
        self._connections.refused = False
        self._stage.decide(cev.Restarted(self._stage.now_s - self.memory.last_s))
