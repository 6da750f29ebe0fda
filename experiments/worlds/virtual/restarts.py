"""The coordinator's process dies and begins again from its journal, as `controller.persistence.recovery` does live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.core.coordinator import Coordinator
from controller.core.model import events as cev
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.heartbeat_elision import HeartbeatElision
from experiments.worlds.virtual.journal import MemoryJournal
from experiments.worlds.virtual.scheduler import Priority


class Restarts:
    """Keeps the journal, unless the world is `quiet` and no restart was planned before its first event."""

    def __init__(
        self,
        env: Environment,
        connections: Connections,
        heartbeats: HeartbeatElision,
        fresh: Callable[[], Coordinator],
        facts: list[tuple[float, Any]],
        *,
        quiet: bool,
    ) -> None:
        self._env, self._connections, self._heartbeats = env, connections, heartbeats
        self._fresh, self._facts = fresh, facts
        self.journal = None if quiet else MemoryJournal()

    def keep(self, event: cev.Event) -> None:
        """Record an event that is handed to the coordinator."""
        if self.journal is not None:
            self.journal.keep(self._env.now_s, event)

    def plan(self, at_s: float | None, down_s: float) -> None:
        """See `VirtualWorld.restart_coordinator`."""
        if self.journal is None:
            if self._env.scheduler.count:
                raise ValueError(
                    "a quiet world keeps a journal only if a restart is planned before its first event"
                )
            self.journal = self._heartbeats.journal = MemoryJournal()
        if at_s is None:
            self._die(down_s)
        else:
            self._env.scheduler.at(at_s, lambda: self._die(down_s), Priority.FAULT)

    def _die(self, down_s: float) -> None:
        if self._connections.refused:
            return
        self._env.note("the coordinator is killed")
        self._connections.hang_up()
        self._connections.refused = True
        self._env.after(down_s, self.begin_again, Priority.FAULT)

    def begin_again(self) -> None:
        """Start a process where the journal ends."""
        assert self.journal is not None
        self._heartbeats.coordinator = self.journal.recall(self._fresh(), self._facts)
        self._connections.refused = False
        self._env.decide(cev.Restarted(self._env.now_s - self.journal.last_s))
