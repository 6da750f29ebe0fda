"""Traffic of others in the fluid network: flows of constant rate that change together, once an epoch.

What they take of each link is what switches count, so the coordinator is told at each change. Owners' switches do not touch
them: a host that is closed to us is open to its owner. What they wanted to send and what they could is kept account of: research
degrades by as much as falls short.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import chain
from math import inf

import numpy as np

from controller.core.model.events import LinksMeasured
from experiments.inputs.traces import BackgroundTraffic
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.scheduler import Priority
from topologies.spec import DirectedLink, TrafficClass
from topologies.units import PAYLOAD_SHARE


@dataclass(frozen=True, slots=True)
class BackgroundAccount:
    """Payload of all background flows: what their rates ask for, and what the network carried."""

    offered_bytes: float
    carried_bytes: float

    @property
    def degradation(self) -> float:
        """The share that was not carried, from 0 to 1."""
        if self.offered_bytes <= 0.0:
            return 0.0
        return max(0.0, 1.0 - self.carried_bytes / self.offered_bytes)


class VirtualBackground:
    """The flows of a trace, from `begin` on. `counted`: links of which the counters of switches tell."""

    def __init__(
        self,
        env: Environment,
        connections: Connections,
        traffic: BackgroundTraffic,
        counted: Set[DirectedLink] = frozenset(),
    ) -> None:
        self._counted = counted
        self._env, self._connections, self._traffic = env, connections, traffic
        self._keys = [f"background {number}" for number in range(len(traffic.flows))]
        self._told: dict[DirectedLink, float] = {}
        self._offered_bytes, self._since_s, self._rate, self._number = 0.0, 0.0, 0.0, 0
        self._find_paths()

    def _find_paths(self) -> None:
        self._paths = [self._env.routes.route(source, target) for source, target in self._traffic.flows]
        # those of which something was told, first: what they carry no more is told, too
        self._links = list(dict.fromkeys(chain(self._told, chain.from_iterable(self._paths))))
        number = {link: place for place, link in enumerate(self._links)}
        self._crossed = np.array([number[link] for path in self._paths for link in path], dtype=np.intp)
        self._whose = np.array([n for n, path in enumerate(self._paths) for _ in path], dtype=np.intp)

    def follow_routes(self) -> None:
        """All flows go on by the routes that are now, and are counted there."""
        self._find_paths()
        for key, path in zip(self._keys, self._paths, strict=True):
            if key in self._env.network.fluid:
                self._env.network.reroute(key, path)
        if self._rate > 0.0:
            self._tell(self._traffic.rates_bytes_per_s[self._number])

    def begin(self) -> None:
        """The first epoch."""
        if self._traffic.rates_bytes_per_s:
            self._since_s = self._env.now_s
            for key, path, many in zip(self._keys, self._paths, self._traffic.parallel, strict=True):
                self._env.network.start(key, path, TrafficClass.RESEARCH, inf, 0.0, parallel=many)
            self._epoch(0)

    def account(self) -> BackgroundAccount:
        """Until now."""
        now_s, network = self._env.now_s, self._env.network.fluid
        carried = sum(network.flow(key).moved(now_s) for key in self._keys if key in network)
        return BackgroundAccount(self._offered_bytes + self._rate * (now_s - self._since_s), carried)

    def _epoch(self, number: int) -> None:
        rates, env = self._traffic.rates_bytes_per_s[number], self._env
        self._offered_bytes += self._rate * (env.now_s - self._since_s)
        self._since_s, self._rate, self._number = env.now_s, sum(rates) * PAYLOAD_SHARE, number
        env.network.regrant_all(
            {key: rate * PAYLOAD_SHARE for key, rate in zip(self._keys, rates, strict=True)}
        )
        if number + 1 < len(self._traffic.rates_bytes_per_s):
            env.after(self._traffic.epoch_s, lambda: self._epoch(number + 1), Priority.OWNER)
        self._tell(rates)

    def _tell(self, rates: Sequence[float]) -> None:
        """What has changed on links, to a coordinator that listens; what it has not heard it is told with the next."""
        taken = np.bincount(self._crossed, np.array(rates)[self._whose], len(self._links)).tolist()
        now = dict(zip(self._links, taken, strict=True))
        news = [
            (link.source, link.target, rate)
            for link, rate in now.items()
            if rate != self._told.get(link) and link not in self._counted
        ]
        if news and not self._connections.refused:
            self._told = now
            self._env.decide(LinksMeasured(news))
