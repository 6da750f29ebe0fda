"""Rates of links over a run: as described, until a `LinkChanged` says otherwise."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from controller.core.model import facts as f
from experiments.results.history import Timed
from topologies.spec import Campus, DirectedLink


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
