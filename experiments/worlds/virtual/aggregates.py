"""Others' traffic between two nodes: many connections, which switches with several ways share among them."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from experiments.worlds.virtual.environment import Environment
from topologies.paths import Way
from topologies.spec import DirectedLink, TrafficClass


class Aggregate:
    """A flow of the network on each way, at its part of the rate. `parallel`: how many connections they are together."""

    def __init__(self, env: Environment, key: str, source: str, target: str, parallel: float = 1.0) -> None:
        self._env, self._key, self._ends, self._parallel = env, key, (source, target), parallel
        self.ways = env.shared_ways(source, target)
        self._flows: dict[Way, str] = {}  # those that have begun: keys in the network
        self._begun = 0
        self._moved_bytes = 0.0  # by flows that are over

    def begin(self) -> None:
        """Start all flows that do not exist yet, at no rate."""
        for part, way in self.ways:
            if way not in self._flows:
                key = f"{self._key} ({self._begun})" if self._begun else self._key
                self._flows[way], self._begun = key, self._begun + 1
                parallel = self._parallel * part
                self._env.network.start(key, way, TrafficClass.RESEARCH, inf, 0.0, parallel=parallel)

    def caps(self, rate_bytes_per_s: float) -> dict[str, float]:
        """Return each flow's cap when the aggregate has this rate (payload)."""
        return {self._flows[way]: rate_bytes_per_s * part for part, way in self.ways if way in self._flows}

    def follow(self) -> bool:
        """Move to the present ways; return whether ways or parts changed. The caller sets rates again."""
        ways = self._env.shared_ways(*self._ends)
        if ways is self.ways or ways == self.ways:
            return False
        self.ways, network, part_of = ways, self._env.network, {way: part for part, way in ways}
        if self._flows:
            for way in [way for way in self._flows if way not in part_of]:
                self._moved_bytes += network.stop(self._flows.pop(way)).moved_bytes
            for way, key in self._flows.items():
                network.fluid.flow(key).parallel = self._parallel * part_of[way]
            self.begin()
        return True

    def moved(self) -> float:
        """Return payload bytes until now."""
        now_s, fluid = self._env.now_s, self._env.network.fluid
        return self._moved_bytes + sum(fluid.flow(key).moved(now_s) for key in self._flows.values())

    def parts(self) -> Iterator[tuple[DirectedLink, float]]:
        """Yield each link of each way, with the part that takes that way."""
        for part, way in self.ways:
            for link in way:
                yield link, part
