"""Others' traffic between two nodes: many connections, which switches with several ways share among them."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from experiments.worlds.virtual.environment import Environment
from topologies.spec import DirectedLink, TrafficClass


class Aggregate:
    """A flow of the network on each way, at its part of the rate. `parallel`: how many connections they are together."""

    def __init__(self, env: Environment, key: str, source: str, target: str, parallel: float = 1.0) -> None:
        self._env, self._key, self._ends, self._parallel = env, key, (source, target), parallel
        self.ways = env.shared_ways(source, target)
        self._begun = 0  # of the flows
        self._moved_bytes = 0.0  # by flows that are over

    def _name(self, number: int) -> str:
        return f"{self._key} by way {number}" if number else self._key

    def begin(self) -> None:
        """All flows, at no rate yet."""
        for _ in self.ways[self._begun :]:
            part, way = self.ways[self._begun]
            parallel = self._parallel * part
            name = self._name(self._begun)
            self._env.network.start(name, way, TrafficClass.RESEARCH, inf, 0.0, parallel=parallel)
            self._begun += 1

    def caps(self, rate_bytes_per_s: float) -> dict[str, float]:
        """By flow, what it is to have of this rate (payload)."""
        return {
            self._name(n): rate_bytes_per_s * part for n, (part, _) in enumerate(self.ways[: self._begun])
        }

    def follow(self) -> bool:
        """Go on by the ways that are now; the caller gives rates anew. Whether they are others."""
        ways = self._env.shared_ways(*self._ends)
        if ways == self.ways:
            return False
        self.ways, network = ways, self._env.network
        if self._begun:
            while self._begun > len(ways):
                self._begun -= 1
                self._moved_bytes += network.stop(self._name(self._begun)).moved_bytes
            for number in range(self._begun):
                part, way = ways[number]
                network.fluid.flow(self._name(number)).parallel = self._parallel * part
                network.reroute(self._name(number), way)
            self.begin()
        return True

    def moved(self) -> float:
        """Payload bytes until now."""
        now_s, fluid = self._env.now_s, self._env.network.fluid
        return self._moved_bytes + sum(fluid.flow(self._name(n)).moved(now_s) for n in range(self._begun))

    def parts(self) -> Iterator[tuple[DirectedLink, float]]:
        """Each link of each way, with the part that takes that way."""
        for part, way in self.ways:
            for link in way:
                yield link, part
