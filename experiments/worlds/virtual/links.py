"""Links that are slow or down: what they carry, and which hosts can no longer be heard behind them."""

from __future__ import annotations

from collections.abc import Callable

from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.hosts import Connection
from topologies.spec import DirectedLink
from topologies.units import PAYLOAD_SHARE


class VirtualLinks:
    """All of them. `broken_off` is told of each connection that something happens to."""

    def __init__(
        self, env: Environment, connections: Connections, broken_off: Callable[[Connection], None]
    ) -> None:
        self._env, self._connections, self._broken_off = env, connections, broken_off
        self._capacity = dict(env.campus.capacity_bytes_per_s)

    def set(self, a: str, b: str, factor: float) -> None:
        """One works at `factor` of its rate, in both directions; 0: it is down, and messages wait."""
        self._env.note(f"the link {a}-{b} works at {factor:g} of its rate")
        for link in (DirectedLink(a, b), DirectedLink(b, a)):
            full = self._env.campus.capacity_bytes_per_s[link]
            self._capacity[link] = full * factor
            self._env.network.set_capacity(link, full * factor * PAYLOAD_SHARE)
        root = self._env.campus.coordinator.name
        for name, machine in self._env.machines.items():
            down = any(self._capacity[link] <= 0.0 for link in self._env.routes.route(name, root))
            if down and not self._connections.is_cut_off(name):
                if machine.link is not None:
                    self._broken_off(machine.link)
                self._connections.cut_off(name)
            elif not down and self._connections.is_cut_off(name):
                self._connections.joined(name)
