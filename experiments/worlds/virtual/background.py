"""Traffic of others in the fluid network: flows of constant rate that change together, once an epoch.

Switches count the traffic on each link, so the coordinator receives the rates at each change. Owners' switches do not
affect these flows: a host that is closed to jobs is open to its owner. The bytes offered and the bytes carried are both
recorded; research degrades by the difference. The reserve is the part that research may rely on, whatever others send:
of each link max(beta B, B_min), shared by the flows that cross it in proportion to their demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from controller.core.model.events import LinksMeasured
from experiments.inputs.traces import BackgroundTraffic
from experiments.worlds.virtual.aggregates import Aggregate
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.scheduler import Priority
from testbed.model.network import FluidFlow
from topologies.spec import DirectedLink
from topologies.units import PAYLOAD_SHARE

# of what a flow asks for: lacking more it is degraded (paper A's "under 3 %")
DEGRADED = 0.03
ROUNDING = 1e-6  # of its reserve: lacking less it has it


@dataclass(frozen=True, slots=True)
class BackgroundAccount:
    """Totals over all background flows, in payload bytes and in seconds of a flow."""

    offered_bytes: float  # what their rates ask for
    carried_bytes: float
    reserved_bytes: float  # what they ask for within the reserve of their links
    short_bytes: float  # of that, what the network did not carry at that moment
    below_s: float  # in which a flow had less than it asks for within its reserve
    degraded_s: float  # in which a flow had less than 97 % of what it asks for
    flow_s: float  # in which a flow asked for something
    worst_epoch: float  # the largest share of what a flow asks for in an epoch that was not carried

    @property
    def degradation(self) -> float:
        """The share that was not carried, from 0 to 1."""
        if self.offered_bytes <= 0.0:
            return 0.0
        return max(0.0, 1.0 - self.carried_bytes / self.offered_bytes)

    def figures(self) -> dict[str, float]:
        """Return the shortfall of research.

        Shares of bytes: `lost` of the demand, `worst` of that in a flow's worst epoch, `short` of the reserve. Shares
        of time: `degraded`, and `below` the reserve. And `short_gb`.
        """
        return {
            "lost": self.degradation,
            "worst": self.worst_epoch,
            "short": self.short_bytes / self.reserved_bytes if self.reserved_bytes > 0.0 else 0.0,
            "degraded": self.degraded_s / self.flow_s if self.flow_s > 0.0 else 0.0,
            "below": self.below_s / self.flow_s if self.flow_s > 0.0 else 0.0,
            "short_gb": self.short_bytes / 1e9,
        }


@dataclass(slots=True, eq=False)
class _Watched:
    """A flow of the network: since `since_s` it has this rate."""

    asked_bytes_per_s: float
    reserved_bytes_per_s: float  # of what it asks for, what its links keep for it
    since_s: float
    rate_bytes_per_s: float = 0.0


class _Shortfall:
    """The shortfall of flows against reserve and demand, added up from one change of a rate to the next."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._flows: dict[str, _Watched] = {}
        self.reserved_bytes, self.short_bytes = 0.0, 0.0
        self.below_s, self.degraded_s, self.flow_s = 0.0, 0.0, 0.0

    def ask(self, asked_bytes_per_s: Mapping[str, float]) -> None:
        """Set the flows from now on, and the demand of each (payload); later rates come by `changed`."""
        self.settle()
        network, reserve, capacity = (
            self._env.network.fluid,
            self._env.campus.research_reserve,
            self._env.capacity,
        )
        asked_of: dict[DirectedLink, float] = {}
        for key, asked in asked_bytes_per_s.items():
            for link in network.flow(key).links:
                asked_of[link] = asked_of.get(link, 0.0) + asked
        part = {
            link: min(1.0, PAYLOAD_SHARE * reserve.reserve_bytes_per_s(capacity[link]) / asked)
            for link, asked in asked_of.items()
            if asked > 0.0
        }
        now_s, watched = self._env.now_s, {}
        for key, asked in asked_bytes_per_s.items():
            flow = network.flow(key)
            kept = asked * min((part.get(link, 1.0) for link in flow.links), default=1.0)
            watched[key] = _Watched(asked, kept, now_s, flow.rate_bytes_per_s)
        self._flows = watched

    def changed(self, flows: Sequence[FluidFlow]) -> None:
        """Record that the network gives these flows other rates from now on."""
        for flow in flows:
            watched = self._flows.get(flow.key)
            if watched is not None:
                self._settle(watched)
                watched.rate_bytes_per_s = flow.rate_bytes_per_s

    def settle(self) -> None:
        """Add up until now."""
        for watched in self._flows.values():
            self._settle(watched)

    def _settle(self, flow: _Watched) -> None:
        span_s, flow.since_s = self._env.now_s - flow.since_s, self._env.now_s
        if span_s <= 0.0 or flow.asked_bytes_per_s <= 0.0:
            return
        self.flow_s += span_s
        self.reserved_bytes += flow.reserved_bytes_per_s * span_s
        if flow.rate_bytes_per_s < flow.reserved_bytes_per_s * (1.0 - ROUNDING):
            self.short_bytes += (flow.reserved_bytes_per_s - flow.rate_bytes_per_s) * span_s
            self.below_s += span_s
        if flow.rate_bytes_per_s < flow.asked_bytes_per_s * (1.0 - DEGRADED):
            self.degraded_s += span_s


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
        # those of which something was told, first: what they carry no more is told, too
        self._links = list(dict.fromkeys(chain(self._told, (link for _, link, _ in crossed))))
        number = {link: place for place, link in enumerate(self._links)}
        self._crossed = np.array([number[link] for _, link, _ in crossed], dtype=np.intp)
        self._whose = np.array([n for n, _, _ in crossed], dtype=np.intp)
        self._part = np.array([part for *_, part in crossed], dtype=float)

    def _set_rates(self, rates: Sequence[float]) -> dict[str, float]:
        """Set the rate of each flow; return the caps of the network's flows (payload)."""
        self._rates, caps = rates, dict[str, float]()
        for each, rate in zip(self._flows, rates, strict=True):
            caps |= each.caps(rate * PAYLOAD_SHARE)
        self._env.network.regrant_all(caps)
        return caps

    def _tell(self) -> None:
        """Send changed rates of links to a coordinator that listens; others are sent with the next change."""
        part = np.array(self._rates)[self._whose] * self._part
        taken = np.bincount(self._crossed, part, len(self._links)).tolist()
        now = dict(zip(self._links, taken, strict=True))
        news = [
            (link.source, link.target, rate) for link, rate in now.items() if rate != self._told.get(link)
        ]
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
        self._shortfall = _Shortfall(env)
        env.network.watch = self._shortfall.changed
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
        short = self._shortfall
        short.settle()
        return BackgroundAccount(
            offered_bytes,
            sum(each.moved() for each in self._flows),
            short.reserved_bytes,
            short.short_bytes,
            short.below_s,
            short.degraded_s,
            short.flow_s,
            self._worst_until_now(),
        )

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

    def _set_rates(self, rates: Sequence[float]) -> dict[str, float]:
        self._shortfall.settle()
        caps = super()._set_rates(rates)
        self._shortfall.ask(caps)
        return caps
