"""The coordinator's process dies and begins again from its journal, as `controller.persistence.recovery` does live."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
        self.cuts = 0  # of the journal
        # told what a cut has given up, before the coordinator that forgot it begins
        self.gave_up: Callable[[list[tuple[float, cev.Event]]], None] = lambda events: None

    def keep(self, event: cev.Event) -> None:
        """Record an event that is handed to the coordinator."""
        if self.journal is not None:
            self.journal.keep(self._env.now_s, event)

    def plan(self, at_s: float | None, down_s: float, given_up: int) -> None:
        """See `VirtualWorld.restart_coordinator`."""
        if self.journal is None:
            if self._env.scheduler.count:
                raise ValueError(
                    "a quiet world keeps a journal only if a restart is planned before its first event"
                )
            self.journal = self._heartbeats.journal = MemoryJournal()
        if at_s is None:
            self._die(down_s, given_up)
        else:
            self._env.scheduler.at(at_s, lambda: self._die(down_s, given_up), Priority.FAULT)

    def _die(self, down_s: float, given_up: int) -> None:
        if self._connections.refused:
            return
        self._env.note("the coordinator is killed")
        self._connections.hang_up()
        self._connections.refused = True
        self._env.after(down_s, partial(self.begin_again, given_up), Priority.FAULT)

    def begin_again(self, given_up: int = 0) -> None:
        """Start a process where the journal ends; the last `given_up` events are dropped first."""
        assert self.journal is not None
        cut = self.journal.cut(given_up)
        self._heartbeats.coordinator = self.journal.recall(self._fresh(), self._facts, is_cut=bool(cut))
        if cut:
            self._env.note(f"its journal is cut: {len(cut)} events are given up")
            self.cuts += 1
            self.gave_up(cut)
        self._connections.refused = False
        self._env.decide(cev.Restarted(self._env.now_s - self.journal.last_s, self.cuts))
