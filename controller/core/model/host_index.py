"""Hosts and the jobs on them as sets and columns, so that no decision looks at all of them, and the ends of leases and fences."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf

import numpy as np

from controller.core.model.entities import HostState
from controller.core.network.links import Network
from controller.core.placement.tree_rates import Places
from controller.numerics.arrays import Floats, Mask
from topologies.paths import Routes
from topologies.spec import Campus


class HostIndex:
    """Sets of hosts by name, and volunteers by their number in `places`; `note` follows each change of a host."""

    places: Places  # the volunteers, by number, and their places in the tree of routes

    def __init__(
        self, campus: Campus, hosts: Mapping[str, HostState], network: Network, routes: Routes
    ) -> None:
        self._campus, self._network, self._routes = campus, network, routes
        self._names = [name for name, host in hosts.items() if host.is_volunteer]
        self.rerouted()
        self.volunteers = [hosts[name] for name in self.places.hosts]  # in the order of their numbers
        by_name = sorted(hosts.items())
        self.ownerless = [host for _, host in by_name if not host.is_volunteer]  # the others, by name
        self.usable_column: Mask = np.array([host.usable for host in self.volunteers], dtype=bool)
        # GPUs that are used or reserved
        self.taken_column: Floats = np.array([host.taken_gpus for host in self.volunteers], dtype=float)
        self.usable = {name for name, host in hosts.items() if host.usable}
        self.apart = {name for name, host in hosts.items() if not host.connected}  # not connected

    def rerouted(self) -> None:
        """Derive the places of volunteers again: routes have changed."""
        self.places = Places(self._campus, self._names, self._network, self._routes)

    def note(self, host: HostState) -> None:
        """Bring sets and columns up to date with the host."""
        name, usable = host.name, host.usable
        (self.usable.add if usable else self.usable.discard)(name)
        (self.apart.discard if host.connected else self.apart.add)(name)
        number = self.places.number.get(name)
        if number is not None:
            self.usable_column[number], self.taken_column[number] = usable, host.taken_gpus


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
        """Hosts whose lease or fence has ended by now, in order, and the time of that."""
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
