"""Traffic of others in the fluid network: flows of constant rate that change together, once an epoch.

What they take of each link is what switches count, so the coordinator is told at each change. Owners' switches do not touch
them: a host that is closed to us is open to its owner. What they wanted to send and what they could is kept account of: research
degrades by as much as falls short.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import chain

import numpy as np

from controller.core.model.events import LinksMeasured
from experiments.inputs.traces import BackgroundTraffic
from experiments.worlds.virtual.aggregates import Aggregate
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.scheduler import Priority
from topologies.spec import DirectedLink
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
        self._flows = [
            Aggregate(env, f"background {number}", *ends, many)
            for number, (ends, many) in enumerate(zip(traffic.flows, traffic.parallel, strict=True))
        ]
        self._told: dict[DirectedLink, float] = {}
        self._offered_bytes, self._since_s, self._rate, self._number = 0.0, 0.0, 0.0, 0
        self._find_paths()

    def _find_paths(self) -> None:
        crossed = [(n, link, part) for n, each in enumerate(self._flows) for link, part in each.parts()]
        # those of which something was told, first: what they carry no more is told, too
        self._links = list(dict.fromkeys(chain(self._told, (link for _, link, _ in crossed))))
        number = {link: place for place, link in enumerate(self._links)}
        self._crossed = np.array([number[link] for _, link, _ in crossed], dtype=np.intp)
        self._whose = np.array([n for n, _, _ in crossed], dtype=np.intp)
        self._part = np.array([part for *_, part in crossed], dtype=float)

    def follow_routes(self) -> None:
        """All flows go on by the ways that are now, and are counted there."""
        are_others = [each.follow() for each in self._flows]
        if any(are_others):
            self._find_paths()
            if self._rate > 0.0:
                rates = self._traffic.rates_bytes_per_s[self._number]
                self._set_rates(rates)
                self._tell(rates)

    def begin(self) -> None:
        """The first epoch."""
        if self._traffic.rates_bytes_per_s:
            self._since_s = self._env.now_s
            for each in self._flows:
                each.begin()
            self._epoch(0)

    def account(self) -> BackgroundAccount:
        """Account for the time until now."""
        offered_bytes = self._offered_bytes + self._rate * (self._env.now_s - self._since_s)
        return BackgroundAccount(offered_bytes, sum(each.moved() for each in self._flows))

    def _epoch(self, number: int) -> None:
        rates, env = self._traffic.rates_bytes_per_s[number], self._env
        self._offered_bytes += self._rate * (env.now_s - self._since_s)
        self._since_s, self._rate, self._number = env.now_s, sum(rates) * PAYLOAD_SHARE, number
        self._set_rates(rates)
        if number + 1 < len(self._traffic.rates_bytes_per_s):
            env.after(self._traffic.epoch_s, lambda: self._epoch(number + 1), Priority.OWNER)
        self._tell(rates)

    def _set_rates(self, rates: Sequence[float]) -> None:
        caps: dict[str, float] = {}
        for each, rate in zip(self._flows, rates, strict=True):
            caps |= each.caps(rate * PAYLOAD_SHARE)
        self._env.network.regrant_all(caps)

    def _tell(self, rates: Sequence[float]) -> None:
        """What has changed on links, to a coordinator that listens; what it has not heard it is told with the next."""
        part = np.array(rates)[self._whose] * self._part
        taken = np.bincount(self._crossed, part, len(self._links)).tolist()
        now = dict(zip(self._links, taken, strict=True))
        news = [
            (link.source, link.target, rate)
            for link, rate in now.items()
            if rate != self._told.get(link) and link not in self._counted
        ]
        if news and not self._connections.refused:
            self._told = now
            self._env.decide(LinksMeasured(news))
