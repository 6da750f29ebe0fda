"""Rates of links, routes and ways over a run: as described, until a fact of WAYS changes them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from controller.core.model import facts as f
from experiments.results.history import Timed
from topologies.errors import SpecError
from topologies.paths import RouteHistory, Way, dead_trunks
from topologies.spec import Campus, DirectedLink

WAYS = (f.LinkChanged, f.TrunksDraining, f.WayTaken)
Flow = tuple[str, str, str]  # job, source, destination


class RoutesThen:
    """The routes and ways that the coordinator planned on, fact by fact, and then as a `history`."""

    def __init__(self, campus: Campus, facts: Iterable[Timed] = ()) -> None:
        self.history = RouteHistory(campus)
        self._capacity = dict(campus.capacity_bytes_per_s) if self.history.latest.has_choice else {}
        self._draining = frozenset[frozenset[str]]()
        for at_s, fact in facts:
            self.note(at_s, fact)

    def note(self, at_s: float, fact: f.Fact) -> bool:
        """Take in a fact, one of WAYS if it is to change anything.

        Return whether routes or ways are others now: never in a campus that is a tree. A way that the campus does not
        have changes nothing.
        """
        if not self._capacity:
            return False
        match fact:
            case f.WayTaken(source, destination, nodes):
                way = tuple(map(DirectedLink, nodes, nodes[1:])) or None
                try:
                    return self.history.pin(at_s, source, destination, way)
                except SpecError:
                    return False
            case f.TrunksDraining(trunks):
                self._draining = frozenset(map(frozenset, trunks))
            case f.LinkChanged(source, target, rate):
                self._capacity[DirectedLink(source, target)] = rate
            case _:
                return False
        dead = dead_trunks(self._capacity)
        self._draining -= dead  # what was announced has happened
        return self.history.follow(at_s, dead | self._draining)


class GrantsInForce:
    """Grants on the links that they cross, payload bytes/s, fact by fact; with the routes that the coordinator planned on."""

    def __init__(self, campus: Campus) -> None:
        self.on: dict[DirectedLink, dict[Flow, float]] = {}
        self._routes = RoutesThen(campus)
        self._rates: dict[Flow, float] = {}

    def note(self, at_s: float, fact: f.Fact) -> set[DirectedLink]:
        """Take in a fact; return the links on which grants changed. SpecError: the campus has no such hosts."""
        changed = set[DirectedLink]()
        if self._routes.note(at_s, fact):  # grants are in force on other links from now on
            changed |= self.on.keys()
            self.on.clear()
            for flow in self._rates:
                changed |= self._put(flow)
        if isinstance(fact, f.Granted | f.GrantEnded):
            flow = (fact.job, fact.source, fact.destination)
            way = self.way(flow)
            for link in way:
                self.on.setdefault(link, {}).pop(flow, None)
            self._rates.pop(flow, None)
            if isinstance(fact, f.Granted):
                self._rates[flow] = fact.rate_bytes_per_s
                self._put(flow)
            changed |= set(way)
        return changed

    def way(self, flow: Flow) -> Way:
        """Return the links that a flow crosses now."""
        return self._routes.history.latest.way(*flow[1:])

    def _put(self, flow: Flow) -> set[DirectedLink]:
        way = self.way(flow)
        for link in way:
            self.on.setdefault(link, {})[flow] = self._rates[flow]
        return set(way)


class LinkRates:
    """Wire rates of every direction at any time of a run."""

    def __init__(self, campus: Campus, facts: Iterable[Timed]) -> None:
        self._campus, self._described = campus, campus.capacity_bytes_per_s
        # times, and the rates from then on
        self._changes: dict[DirectedLink, tuple[list[float], list[float]]] = {}
        for at_s, fact in facts:
            if isinstance(fact, f.LinkChanged):
                times, rates = self._changes.setdefault(DirectedLink(fact.source, fact.target), ([], []))
                times.append(at_s)
                rates.append(fact.rate_bytes_per_s)

    def extremes(self, link: DirectedLink, from_s: float, until_s: float) -> tuple[float, float]:
        """Return (least, greatest) rate of the link in that time, wire bytes/s."""
        described = self._described.get(link, 0.0)
        if link not in self._changes:
            return described, described
        times, rates = self._changes[link]
        first, last = bisect_right(times, from_s), bisect_right(times, until_s)
        seen = [rates[first - 1] if first else described, *rates[first:last]]
        return min(seen), max(seen)

    def fastest_uplink(self, host: str, from_s: float, until_s: float) -> float:
        """Return the greatest rate in that time of the link by which all that leaves a host goes, wire bytes/s."""
        access = self._campus.access_link(host)
        uplink = DirectedLink(host, access.b if access.a == host else access.a)
        return self.extremes(uplink, from_s, until_s)[1]
