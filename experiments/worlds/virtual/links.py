"""Cables that are slow or down: what they carry, and who can no longer be heard behind them."""

from __future__ import annotations

from collections.abc import Callable

from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.context import Stage
from experiments.worlds.virtual.hosts import Connection
from topologies.spec import DirectedLink
from topologies.units import PAYLOAD_SHARE


class Cables:
    """All of them. `broken_off` is told of each connection that something happens to."""

    def __init__(
        self, stage: Stage, connections: Connections, broken_off: Callable[[Connection], None]
    ) -> None:
        self._stage, self._connections, self._broken_off = stage, connections, broken_off
        self._capacity = dict(stage.campus.capacity_bytes_per_s)

    def set(self, a: str, b: str, factor: float) -> None:
        """One works at `factor` of its rate, in both directions; 0: it is down, and messages wait."""
        self._stage.note(f"the link {a}-{b} works at {factor:g} of its rate")
        for link in (DirectedLink(a, b), DirectedLink(b, a)):
            full = self._stage.campus.capacity_bytes_per_s[link]
            self._capacity[link] = full * factor
            self._stage.wire.set_capacity(link, full * factor * PAYLOAD_SHARE)
        for name in self._stage.machines:
            self._judge_reach(name)

    def _judge_reach(self, name: str) -> None:
        way = self._stage.routes.route(name, self._stage.campus.coordinator.name)
        down = any(self._capacity[link] <= 0.0 for link in way)
        if down and not self._connections.is_cut_off(name):
            if (link := self._stage.machines[name].link) is not None:
                self._broken_off(link)
            self._connections.cut_off(name)
        elif not down and self._connections.is_cut_off(name):
            self._connections.joined(name)
