"""The fluid network on the scheduler, and the traffic that leaves each host, as its kernel would have counted it.

Flows that end do something, and every change of rates is seen by the egress counters: totals, and the peak rate of all
migrations together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from experiments.worlds.virtual.scheduler import Priority, Scheduler
from testbed.messages import EgressSample
from testbed.model.network import FluidFlow, FluidNetwork
from topologies.spec import DirectedLink, TrafficClass
from topologies.units import WIRE_PER_PAYLOAD

SAMPLE_S = 0.1  # the live agent's sampling period: the peak is one of these long
MIGRATION = (TrafficClass.PLANNED, TrafficClass.PRESYNC)


@dataclass(slots=True)
class _Counter:
    """Totals of a host: of migrations, of research, and of what the migration share holds."""

    over_bytes: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # of flows that are over
    told_bytes: list[int] = field(default_factory=lambda: [0, 0, 0])  # on the wire, in samples so far
    told_s: float = 0.0
    peak_bytes_per_s: float = 0.0
    peak_held_bytes_per_s: float = 0.0


class Egress:
    """Counters of all hosts (what switches send is not counted), payload inside, wire bytes in samples.

    `held`: the classes that hosts hold to the migration share.
    """

    def __init__(self, network: FluidNetwork, hosts: Iterable[str], held: Collection[TrafficClass]) -> None:
        self._network, self._held = network, held
        self._of = {host: _Counter() for host in hosts}

    def changed(self, flows: Iterable[FluidFlow]) -> None:
        """Update the peaks of the senders of these flows after a change of rates."""
        for source in {flow.links[0].source for flow in flows if flow.links}:
            counter = self._of.get(source)
            if counter is None:  # background between switches
                continue
            flows = self._network.flows_from(source)
            rate = sum([flow.rate_bytes_per_s for flow in flows if flow.traffic_class in MIGRATION])
            held = sum([flow.rate_bytes_per_s for flow in flows if flow.traffic_class in self._held])
            counter.peak_bytes_per_s = max(counter.peak_bytes_per_s, rate)
            counter.peak_held_bytes_per_s = max(counter.peak_held_bytes_per_s, held)

    def ended(self, flow: FluidFlow) -> None:
        """Count the bytes of a flow that is over."""
        counter = self._of.get(flow.links[0].source)
        if counter is None:  # background between switches
            return
        self._add(counter.over_bytes, flow, flow.moved_bytes)

    def sample(self, host: str, now_s: float) -> list[EgressSample]:
        """Return the traffic since the last sample: the busiest tenth of a second, and the rest."""
        counter = self._of[host]
        window_s = now_s - counter.told_s
        if window_s <= 0.0:
            return []
        payload_bytes = list(counter.over_bytes)
        for flow in self._network.flows_from(host):
            self._add(payload_bytes, flow, flow.moved(now_s))
        wire_bytes = [round(total * WIRE_PER_PAYLOAD) for total in payload_bytes]
        sent, other, kept = (now - told for now, told in zip(wire_bytes, counter.told_bytes, strict=True))
        peak_s = WIRE_PER_PAYLOAD * min(SAMPLE_S, window_s)
        peak = min(sent, round(counter.peak_bytes_per_s * peak_s))
        peak_held = min(kept, round(counter.peak_held_bytes_per_s * peak_s))
        self._of[host] = _Counter(counter.over_bytes, wire_bytes, now_s)
        self.changed(list(self._network.flows_from(host))[:1])
        if window_s <= SAMPLE_S:
            return [EgressSample(window_s, sent, other, kept)]
        rest = EgressSample(window_s - SAMPLE_S, sent - peak, other, kept - peak_held)
        return [EgressSample(SAMPLE_S, peak, 0, peak_held), rest]

    def _add(self, totals: list[float], flow: FluidFlow, moved_bytes: float) -> None:
        if flow.traffic_class in MIGRATION:
            totals[0] += moved_bytes
            totals[2] += moved_bytes if flow.traffic_class in self._held else 0.0
        else:
            totals[1] += moved_bytes


def together(samples: list[EgressSample]) -> EgressSample:
    """Merge several samples into one."""
    return EgressSample(
        sum(sample.period_s for sample in samples),
        sum(sample.migration_bytes for sample in samples),
        sum(sample.research_bytes for sample in samples),
        sum(sample.held_bytes for sample in samples),
    )


def guard_of(host: str) -> DirectedLink:
    """Return the host's aggregate bucket: it holds migrations to their share of the access link even if grants are wrong."""
    return DirectedLink(host, "aggregate bucket")


class ScheduledNetwork:
    """A fluid network whose time is the scheduler's."""

    def __init__(self, scheduler: Scheduler, fluid: FluidNetwork, egress: Egress) -> None:
        self.fluid, self.egress = fluid, egress
        self._scheduler = scheduler
        self._done: dict[str, Callable[[], None]] = {}
        self._armed_s = inf

    def start(
        self,
        key: str,
        links: Sequence[DirectedLink],
        traffic_class: TrafficClass,
        size_bytes: float,
        cap_bytes_per_s: float,
        done: Callable[[], None] | None = None,
        parallel: float = 1.0,
        *,
        yields: bool = True,
    ) -> None:
        """Start a flow (see `FluidNetwork.start`); `done` is called when its last byte is there."""
        if done is not None:
            self._done[key] = done
        now_s = self._scheduler.now_s
        begun = self.fluid.start(key, links, traffic_class, size_bytes, cap_bytes_per_s, now_s, parallel, yields=yields)
        self._changed(begun)

    def regrant(self, caps_bytes_per_s: Mapping[str, float]) -> None:
        """Set other caps for flows, all at once."""
        self._changed(self.fluid.regrant(caps_bytes_per_s, self._scheduler.now_s))

    def reroute(self, key: str, links: Sequence[DirectedLink]) -> None:
        """Set another path for a flow."""
        self._changed(self.fluid.reroute(key, links, self._scheduler.now_s))

    def stop(self, key: str) -> FluidFlow:
        """Cut a flow; return it with the bytes that it moved."""
        self._done.pop(key, None)
        flow, changed = self.fluid.stop(key, self._scheduler.now_s)
        self.egress.ended(flow)
        self._changed(changed)
        return flow

    def set_capacity(self, link: DirectedLink, capacity_bytes_per_s: float) -> None:
        """Set a link's capacity: slower, faster, or down (0)."""
        self._changed(self.fluid.set_capacity(link, capacity_bytes_per_s, self._scheduler.now_s))

    def _changed(self, flows: list[FluidFlow]) -> None:
        """Count the new rates; one event on the heap stands for the next end of a flow."""
        self.egress.changed(flows)
        end_s = self.fluid.next_end_s()
        if end_s < self._armed_s:
            self._armed_s = end_s
            self._scheduler.at(end_s, partial(self._flows_end, end_s), Priority.NETWORK)

    def _flows_end(self, armed_s: float) -> None:
        if armed_s != self._armed_s:
            return  # an earlier end has come in between, and stands for those after it
        self._armed_s = inf
        finished, changed = self.fluid.finish(self._scheduler.now_s)
        for flow in finished:
            self.egress.ended(flow)
        self._changed(changed)
        for flow in finished:
            if done := self._done.pop(flow.key, None):
                done()
