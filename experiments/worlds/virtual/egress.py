"""Traffic leaving each host, as its kernel would have counted it: totals, and the peak rate of all migrations together."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from experiments.results.run_context import WIRE_PER_PAYLOAD
from testbed.messages import EgressSample
from testbed.model.network import FluidFlow, FluidNetwork
from topologies.spec import DirectedLink, TrafficClass

SAMPLE_S = 0.1  # the live agent's sampling period: the peak is one of these long
MIGRATION = (TrafficClass.PLANNED, TrafficClass.PRESYNC)


@dataclass(slots=True)
class _Counter:
    migration_bytes: float = 0.0  # of flows that are over
    research_bytes: float = 0.0
    held_bytes: float = 0.0
    peak_bytes_per_s: float = 0.0
    peak_held_bytes_per_s: float = 0.0
    told_migration: int = 0
    told_research: int = 0
    told_held: int = 0
    told_s: float = 0.0


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
        if flow.traffic_class in MIGRATION:
            counter.migration_bytes += flow.moved_bytes
            counter.held_bytes += flow.moved_bytes if flow.traffic_class in self._held else 0.0
        else:
            counter.research_bytes += flow.moved_bytes

    def sample(self, host: str, now_s: float) -> list[EgressSample]:
        """Return the traffic since the last sample: the busiest tenth of a second, and the rest."""
        counter = self._of[host]
        window_s = now_s - counter.told_s
        if window_s <= 0.0:
            return []
        migration_bytes, research_bytes, held_bytes = (
            counter.migration_bytes,
            counter.research_bytes,
            counter.held_bytes,
        )
        for flow in self._network.flows_from(host):
            if flow.traffic_class in MIGRATION:
                migration_bytes += flow.moved(now_s)
                held_bytes += flow.moved(now_s) if flow.traffic_class in self._held else 0.0
            else:
                research_bytes += flow.moved(now_s)
        migration = round(migration_bytes * WIRE_PER_PAYLOAD)
        research = round(research_bytes * WIRE_PER_PAYLOAD)
        held = round(held_bytes * WIRE_PER_PAYLOAD)
        sent, other = migration - counter.told_migration, research - counter.told_research
        kept = held - counter.told_held
        peak_s = WIRE_PER_PAYLOAD * min(SAMPLE_S, window_s)
        peak = min(sent, round(counter.peak_bytes_per_s * peak_s))
        peak_held = min(kept, round(counter.peak_held_bytes_per_s * peak_s))
        counter.told_migration, counter.told_research, counter.told_held = migration, research, held
        counter.told_s, counter.peak_bytes_per_s, counter.peak_held_bytes_per_s = now_s, 0.0, 0.0
        self.changed(list(self._network.flows_from(host))[:1])
        if window_s <= SAMPLE_S:
            return [EgressSample(0.0, window_s, sent, other, kept)]
        rest = EgressSample(0.0, window_s - SAMPLE_S, sent - peak, other, kept - peak_held)
        return [EgressSample(0.0, SAMPLE_S, peak, 0, peak_held), rest]


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
