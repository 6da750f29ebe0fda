"""Traffic leaving each host, as its kernel would have counted it: totals, and the peak rate of all migrations together."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from experiments.results.run_context import WIRE_PER_PAYLOAD
from testbed.messages import EgressSample
from testbed.model.network import FluidFlow, FluidNetwork
from topologies.spec import DirectedLink, TrafficClass

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
            return [EgressSample(0.0, window_s, sent, other, kept)]
        rest = EgressSample(0.0, window_s - SAMPLE_S, sent - peak, other, kept - peak_held)
        return [EgressSample(0.0, SAMPLE_S, peak, 0, peak_held), rest]

    def _add(self, totals: list[float], flow: FluidFlow, moved_bytes: float) -> None:
        if flow.traffic_class in MIGRATION:
            totals[0] += moved_bytes
            totals[2] += moved_bytes if flow.traffic_class in self._held else 0.0
        else:
            totals[1] += moved_bytes


def together(samples: list[EgressSample]) -> EgressSample:
    """Merge several samples into one."""
    return EgressSample(
        0.0,
        sum(sample.period_s for sample in samples),
        sum(sample.migration_bytes for sample in samples),
        sum(sample.research_bytes for sample in samples),
        sum(sample.held_bytes for sample in samples),
    )


def guard_of(host: str) -> DirectedLink:
    """Return the host's aggregate bucket: it holds migrations to their share of the access link even if grants are wrong."""
    return DirectedLink(host, "aggregate bucket")
