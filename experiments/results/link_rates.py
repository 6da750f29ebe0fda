"""Rates of links, and routes, over a run: as described, until a `LinkChanged` says otherwise."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from controller.core.model import facts as f
from experiments.results.history import Timed
from topologies.paths import RouteHistory, dead_trunks
from topologies.spec import Campus, DirectedLink


class RoutesThen:
    """The routes that the coordinator planned on, fact by fact, and then as a `history`."""

    def __init__(self, campus: Campus, facts: Iterable[Timed] = ()) -> None:
        self.history = RouteHistory(campus)
        self._capacity = dict(campus.capacity_bytes_per_s) if self.history.latest.has_choice else {}
        for at_s, fact in facts:
            if isinstance(fact, f.LinkChanged):
                self.note(at_s, fact)

    def note(self, at_s: float, fact: f.LinkChanged) -> bool:
        """A link has changed. Whether routes are others now: never in a campus that is a tree."""
        if not self._capacity:
            return False
        self._capacity[DirectedLink(fact.source, fact.target)] = fact.rate_bytes_per_s
        return self.history.follow(at_s, dead_trunks(self._capacity))


class LinkRates:
    """Wire rates of every direction at any time of a run."""

    def __init__(self, campus: Campus, facts: Iterable[Timed]) -> None:
        self._described = campus.capacity_bytes_per_s
        self._changes: dict[
            DirectedLink, tuple[list[float], list[float]]
        ] = {}  # times, and the rates from then on
        for at_s, fact in facts:
            if isinstance(fact, f.LinkChanged):
                times, rates = self._changes.setdefault(DirectedLink(fact.source, fact.target), ([], []))
                times.append(at_s)
                rates.append(fact.rate_bytes_per_s)

    def extremes(self, link: DirectedLink, from_s: float, until_s: float) -> tuple[float, float]:
        """(least, greatest) rate of the link in that time, wire bytes/s."""
        described = self._described.get(link, 0.0)
        if link not in self._changes:
            return described, described
        times, rates = self._changes[link]
        first, last = bisect_right(times, from_s), bisect_right(times, until_s)
        seen = [rates[first - 1] if first else described, *rates[first:last]]
        return min(seen), max(seen)
