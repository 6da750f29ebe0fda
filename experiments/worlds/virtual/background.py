"""Traffic of others in the fluid network: flows of constant rate that change together, once an epoch.

Switches count the traffic on each link, so the coordinator receives the rates at each change. Owners' switches do not
affect these flows: a host that is closed to jobs is open to its owner. The bytes offered and the bytes carried are both
recorded; research degrades by the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

import numpy as np

from controller.core.model.events import LinksMeasured
from experiments.inputs.traces import BackgroundTraffic
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.scheduler import Priority
from topologies.paths import Way
from topologies.spec import DirectedLink, TrafficClass
from topologies.units import PAYLOAD_SHARE


@dataclass(frozen=True, slots=True)
class BackgroundAccount:
    """Totals over all background flows, in payload bytes."""

    offered_bytes: float  # that their rates ask for
    carried_bytes: float
    worst_epoch: float  # the largest share of what a flow asks for in an epoch that was not carried

    def figures(self) -> dict[str, float]:
        """Return the shares of the demand that were not carried: `lost`, and `worst`, of a flow's worst epoch."""
        lost = 1.0 - self.carried_bytes / self.offered_bytes if self.offered_bytes > 0.0 else 0.0
        return {"lost": max(0.0, lost), "worst": self.worst_epoch}


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


class OthersTraffic:
    """Flows of others, whose rates on links the coordinator receives as switches count them."""

    def __init__(self, env: Environment, connections: Connections) -> None:
        self._env, self._connections = env, connections
        self._flows: list[Aggregate] = []
        self._rates: Sequence[float] = ()  # of each, wire bytes/s
        self._number: dict[tuple[str, str], int] = {}  # of flows by their ends
        self._told: dict[DirectedLink, float] = {}
        self._find_paths()

    def send(self, source: str, target: str, wire_bytes_per_s: float) -> None:
        """Set what others send from one node to another from now on."""
        if (source, target) not in self._number:
            self._number[source, target] = len(self._flows)
            self._flows.append(Aggregate(self._env, f"background {source}>{target}", source, target))
            self._flows[-1].begin()
            self._rates = (*self._rates, 0.0)
            self._find_paths()
        number = self._number[source, target]
        self._set_rates([wire_bytes_per_s if n == number else rate for n, rate in enumerate(self._rates)])
        self._tell()

    def end(self) -> None:
        """End all of it; transfers that it left no rate go on."""
        for source, target in self._number:
            self.send(source, target, 0.0)

    def follow_routes(self) -> None:
        """Move all flows to the present ways, and count them there."""
        are_others = [each.follow() for each in self._flows]
        if any(are_others):
            self._find_paths()
            if any(self._rates):
                self._set_rates(self._rates)
                self._tell()

    def _find_paths(self) -> None:
        crossed = [(n, link, part) for n, each in enumerate(self._flows) for link, part in each.parts()]
        # those of which something was sent, first: what they carry no more is sent, too
        self._links = list(dict.fromkeys(chain(self._told, (link for _, link, _ in crossed))))
        number = {link: place for place, link in enumerate(self._links)}
        self._crossed = np.array([number[link] for _, link, _ in crossed], dtype=np.intp)
        self._whose = np.array([n for n, _, _ in crossed], dtype=np.intp)
        self._part = np.array([part for *_, part in crossed], dtype=float)

    def _set_rates(self, rates: Sequence[float]) -> None:
        self._rates, caps = rates, dict[str, float]()
        for each, rate in zip(self._flows, rates, strict=True):
            caps |= each.caps(rate * PAYLOAD_SHARE)
        self._env.network.regrant(caps)

    def _tell(self) -> None:
        """Send changed rates of links to a coordinator that listens; others are sent with the next change."""
        part = np.array(self._rates)[self._whose] * self._part
        taken = np.bincount(self._crossed, part, len(self._links)).tolist()
        now = dict(zip(self._links, taken, strict=True))
        news = [(link.source, link.target, rate) for link, rate in now.items() if rate != self._told.get(link)]
        if news and not self._connections.refused:
            self._told = now
            self._env.decide(LinksMeasured(news))


class VirtualBackground(OthersTraffic):
    """The flows of a trace, from `begin` on."""

    def __init__(self, env: Environment, connections: Connections, traffic: BackgroundTraffic) -> None:
        super().__init__(env, connections)
        self._traffic = traffic
        self._flows = [
            Aggregate(env, f"background {number}", *ends, many)
            for number, (ends, many) in enumerate(zip(traffic.flows, traffic.parallel, strict=True))
        ]
        self._offered_bytes, self._since_s, self._rate = 0.0, 0.0, 0.0
        self._moved_bytes, self._worst_epoch = [0.0] * len(self._flows), 0.0  # of each, when the epoch began
        self._find_paths()

    def begin(self) -> None:
        """Start the first epoch."""
        if self._traffic.rates_bytes_per_s:
            self._since_s = self._env.now_s
            for each in self._flows:
                each.begin()
            self._epoch(0)

    def account(self) -> BackgroundAccount:
        """Return the account for the time until now."""
        offered_bytes = self._offered_bytes + self._rate * (self._env.now_s - self._since_s)
        carried_bytes = sum(each.moved() for each in self._flows)
        return BackgroundAccount(offered_bytes, carried_bytes, self._worst_until_now())

    def _worst_until_now(self) -> float:
        """Return the largest share of an epoch's bytes that a flow lacks, in any epoch; the present one counts as a whole one."""
        span_s, worst = self._env.now_s - self._since_s, self._worst_epoch
        for each, rate, before in zip(self._flows, self._rates, self._moved_bytes, strict=False):
            if rate > 0.0:
                asked_bytes_per_s = rate * PAYLOAD_SHARE
                lacking_bytes = asked_bytes_per_s * span_s - (each.moved() - before)
                worst = max(worst, lacking_bytes / (asked_bytes_per_s * self._traffic.epoch_s))
        return worst

    def _epoch(self, number: int) -> None:
        rates, env = self._traffic.rates_bytes_per_s[number], self._env
        self._offered_bytes += self._rate * (env.now_s - self._since_s)
        self._worst_epoch = self._worst_until_now()
        self._moved_bytes = [each.moved() for each in self._flows]
        self._since_s, self._rate = env.now_s, sum(rates) * PAYLOAD_SHARE
        self._set_rates(rates)
        if number + 1 < len(self._traffic.rates_bytes_per_s):
            env.after(self._traffic.epoch_s, lambda: self._epoch(number + 1), Priority.OWNER)
        self._tell()
