"""Open flows, what is derived from them, and the ends of leases and fences."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from controller.core.model.entities import CheckpointFlow, HostState, JobState
from controller.core.network.links import Network, Paths
from controller.core.network.routing import PathCache, RouteInstallation
from topologies.spec import TrafficClass


class FlowRows(NamedTuple):
    """Open flows in the order of their keys, and the links that each is shared on."""

    flows: list[CheckpointFlow]
    paths: Paths


class OpenFlows(dict[str, CheckpointFlow]):
    """Open flows by key, in the order of their opening. It changes by `put` and `take` alone."""

    def __init__(
        self,
        jobs: Mapping[str, JobState],
        network: Network,
        paths: PathCache,
        installation: RouteInstallation,
    ) -> None:
        super().__init__()
        self._jobs, self._network, self._cache, self._installation = jobs, network, paths, installation
        self._rows: FlowRows | None = None

    def put(self, flow: CheckpointFlow) -> None:
        """Open the flow, in place of one of its key."""
        self[flow.key], self._rows = flow, None

    def take(self, key: str) -> bool:
        """Close the flow; return whether it was open."""
        self._rows = None
        return self.pop(key, None) is not None

    def rerouted(self) -> None:
        """Drop the paths of flows: they are others."""
        self._rows = None

    def rows(self) -> FlowRows:
        """Return the flows and their links, kept until a flow comes or goes.

        A flow is shared on its route, and on the links that it may still take while that is being changed.
        """
        if self._rows is None:
            flows, held = [self[key] for key in sorted(self)], self._installation.held
            links = [self._cache.of(flow.source, flow.destination) for flow in flows]
            for row, flow in enumerate(flows if held else ()):
                if (route := held.get((flow.source, flow.destination))) is not None:
                    links[row] = tuple(dict.fromkeys((*links[row], *self._network.path(route.links))))
            self._rows = FlowRows(flows, Paths.of(links))
        return self._rows

    def from_host(self, source: str) -> list[CheckpointFlow]:
        """Return the flows that a host sends, in the order of their opening."""
        return [flow for flow in self.values() if flow.source == source]

    def to_host(self, destination: str) -> list[CheckpointFlow]:
        """Return the flows that are sent to a host, in the order of their opening."""
        return [flow for flow in self.values() if flow.destination == destination]

    def firm(self) -> list[CheckpointFlow]:
        """Return the flows for which something is reserved, in the order of their opening."""
        flows = self.values()
        return [flow for flow in flows if flow.reservation is not None or flow.floor_bytes_per_s > 0.0]

    def streams(self) -> list[CheckpointFlow]:
        """Return the streams of checkpoints: from where their jobs run, so no copy on its way to a vault."""
        presync, jobs = TrafficClass.PRESYNC, self._jobs
        return [f for f in self.values() if f.traffic_class is presync and jobs[f.job].host == f.source]


class LeaseTimers:
    """The time at which the lease of each connected host, or its fence, ends. A lease counts as over after a margin."""

    def __init__(self, hosts: Mapping[str, HostState], margin_s: float) -> None:
        self._hosts, self._margin_s = list(hosts.values()), margin_s
        self._number = {host.name: number for number, host in enumerate(self._hosts)}
        # time and number of the host: a heap, in which only those entries count that still hold
        self._ends: list[tuple[float, int]] = []

    def watch(self, host: HostState) -> None:
        """Follow a change of the host's lease or fence."""
        at_s = self._ends_s(host)
        if at_s < inf:
            heappush(self._ends, (at_s, self._number[host.name]))

    def next_s(self) -> float:
        """Return the end of the first lease of a connected host, or of the first fence; inf: none ends."""
        ends = self._ends
        while ends and ends[0][0] != self._ends_s(self._hosts[ends[0][1]]):
            heappop(ends)
        return ends[0][0] if ends else inf

    def ended(self, now_s: float) -> list[tuple[HostState, float]]:
        """Return the hosts whose lease or fence has ended by now, in order, and the time of that."""
        found: dict[int, float] = {}
        while (since_s := self.next_s()) <= now_s:
            found[heappop(self._ends)[1]] = since_s
        hosts = [(self._hosts[number], found[number]) for number in sorted(found)]
        for host, _ in hosts:
            self.watch(host)
        return hosts

    def _ends_s(self, host: HostState) -> float:
        """Return the time at which the host's silence has a consequence; inf: it has none."""
        lapses_s = host.lease_until_s + self._margin_s if host.connected else inf
        return min(lapses_s, host.fence_at_s)
