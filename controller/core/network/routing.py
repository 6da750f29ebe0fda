"""Routes of pairs of hosts as numbers of links, and the installation of pinned routes in the network.

`PathCache` keeps what is found of routes until they change. `RouteInstallation` is the exchange with the network's controller,
which installs every pair that is pinned to another route than the tree's (`lifecycle.link_changes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from controller.core.network.links import Network, Paths
from controller.numerics.arrays import Floats, Numbers
from topologies.paths import MAX_KNOWN, Routes, Way
from topologies.spec import DirectedLink

Ends = tuple[str, str]  # source, destination


class PathCache:
    """Paths of pairs of hosts, kept until their routes change. A pair has at most so many routes to choose from."""

    def __init__(self, network: Network, routes: Routes, most_routes: int) -> None:
        self._network, self._routes, self._most_routes = network, routes, most_routes
        self._paths: dict[Ends, tuple[int, ...]] = {}
        self._others: dict[str, tuple[Numbers, Paths]] = {}

    def of(self, source: str, destination: str) -> tuple[int, ...]:
        """Return the numbers of the links from one host to another."""
        known = self._paths.get((source, destination))
        if known is None:
            if len(self._paths) >= MAX_KNOWN:
                self._paths.clear()
            way = self._routes.way(source, destination)
            known = self._paths[source, destination] = self._network.path(way)
        return known

    def rate(self, source: str, destination: str, free_bytes_per_s: Floats) -> float:
        """Return the least of a rate a link along the path; infinite to itself."""
        return float(free_bytes_per_s[[*self.of(source, destination)]].min(initial=inf))

    def widest_beside(self, source: str, hosts: Sequence[str], free_bytes_per_s: Floats) -> Floats:
        """Return the rate of the widest route beside the tree's to each of these hosts (always the same); 0 without one."""
        known = self._others.get(source)
        if known is None:
            ways = [
                (place, self._network.path(way))
                for place, host in enumerate(hosts)
                if host != source
                for way in self._routes.choices(source, host, self._most_routes)[1:]
            ]
            places = np.array([place for place, _ in ways], dtype=np.intp)
            known = self._others[source] = (places, Paths.of([path for _, path in ways]))
        widest = np.zeros(len(hosts))
        np.maximum.at(widest, known[0], known[1].least(free_bytes_per_s))
        return widest

    def forget(self, ends: Ends) -> None:
        """Drop the path of a pair that has another route."""
        self._paths.pop(ends, None)

    def forget_all(self) -> None:
        """Drop all paths: trunks died, or are back."""
        self._paths.clear()
        self._others.clear()


@dataclass(frozen=True, slots=True)
class HeldRoute:
    """A pair of hosts whose route is being changed: its packets may take any of these links."""

    request: int  # the number of the `SetWays` that changes it
    confirmed: Way | None  # the pin that the network has for sure; None: it has none
    links: tuple[DirectedLink, ...]  # of all routes since


@dataclass
class RouteInstallation:
    """Requests to the network's controller, and its answers."""

    dirty: bool  # pins or draining trunks differ from the last request
    numbers: dict[Ends, int] = field(default_factory=dict)  # of each pinned pair: another with each route
    pinned: int = 0  # routes pinned so far
    held: dict[Ends, HeldRoute] = field(default_factory=dict)
    # what grants take of trunks, as last sent; None: not known
    loads_sent: dict[DirectedLink, float] | None = None
    requested: int = 0  # requests so far
    confirmed: int = 0  # the last request that was confirmed
    due_s: float = inf  # when the answer is overdue
    answers: bool = True  # the controller is there

    def pin(self, ends: Ends) -> None:
        """Give the new pin of a pair a number."""
        self.pinned += 1
        self.numbers[ends], self.dirty = self.pinned, True

    def unpin(self, ends: Ends) -> None:
        """Drop the number of a pair that is pinned no more."""
        del self.numbers[ends]
        self.dirty = True

    def hold(self, ends: Ends, way: Way, pinned: Way | None) -> None:
        """Hold the former route of a pair (`pinned`, if it was a pin) until the network has answered."""
        if self.answers:
            held = self.held.get(ends)
            links = (*held.links, *way) if held else way
            confirmed = held.confirmed if held else pinned
            self.held[ends] = HeldRoute(self.requested + 1, confirmed, tuple(dict.fromkeys(links)))

    def died(self, trunks: Iterable[frozenset[str]]) -> None:
        """Take dead trunks out of held routes: nothing goes over them."""
        dead = set(trunks)
        for ends, held in self.held.items():
            links = tuple(link for link in held.links if frozenset(link) not in dead)
            self.held[ends] = HeldRoute(held.request, held.confirmed, links)
