"""Others' traffic on links that no host can see, from counters of switches' ports: what the coordinator is told of it.

A port counts bytes. The rate of each reading varies, and what is reserved on a link must hold for a while, so a link is told
as taken by the mean and z sigma of the last few readings: paper A's lower bound of B(t), section V-E, with counters of switches
in place of hosts'. Changes too small to matter are not told; what has stopped is told as nothing.

What others ask for can be read off a port that is not full: what they send. A port that is full may hold them back, so a reading
below the last counts as the last there. (Migrations may take a little of what others ask for. Were that little of each reading
taken for the next, others would lose ever more.)
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from topologies.spec import Campus, DirectedLink

READINGS = 5  # that count
# 95 % of normal readings are below, were their mean and sigma known; with those of the last five, 87 % of the next ones are
Z = 1.645
NEWS = 0.05  # of a link's rate: a change of less is not told
FULL = 0.9  # of a link's rate: who sends more together may be held back by it


def trunks(campus: Campus) -> list[DirectedLink]:
    """Both directions of every cable between two switches."""
    switches = campus.switch_by_name.keys()
    return [way for link in campus.links if {link.a, link.b} <= switches for way in link.directions()]


class CountedTraffic:
    """Readings of the counters of links. `capacity`: wire bytes/s of each that is counted."""

    def __init__(self, capacity_bytes_per_s: Mapping[DirectedLink, float]) -> None:
        self._capacity = dict(capacity_bytes_per_s)
        self._last: dict[DirectedLink, tuple[float, float, float]] = {}
        self._rates = {link: deque[float](maxlen=READINGS) for link in capacity_bytes_per_s}
        self._told = dict.fromkeys(capacity_bytes_per_s, 0.0)

    def read(
        self,
        at_s: float,
        counted_bytes: Mapping[DirectedLink, float],
        all_bytes: Mapping[DirectedLink, float],
    ) -> None:
        """Bytes of others' traffic, and of all, that each link has carried since some time, as counted at `at_s`."""
        for link, count in counted_bytes.items():
            everything = all_bytes[link]
            before_s, before, all_before = self._last.get(link, (at_s, count, everything))
            self._last[link] = at_s, count, everything
            if at_s > before_s and count >= before:  # a port that was made anew counts from 0
                rates, rate = self._rates[link], (count - before) / (at_s - before_s)
                if everything - all_before >= FULL * self._capacity[link] * (at_s - before_s):
                    rate = max(rate, rates[-1] if rates else 0.0)
                rates.append(rate)

    def taken(self, link: DirectedLink) -> float:
        """Return an upper bound of others' rate on a link, wire bytes/s, at most its capacity."""
        rates = self._rates[link]
        if not rates:
            return 0.0
        mean = math.fsum(rates) / len(rates)
        sigma = math.sqrt(math.fsum((rate - mean) ** 2 for rate in rates) / len(rates))
        return min(self._capacity[link], mean + Z * sigma)

    def take_news(self) -> list[tuple[str, str, float]]:
        """Return (source, target, wire bytes/s) of each link whose reported rate has changed since the last call."""
        news = []
        for link, capacity in self._capacity.items():
            taken, least = self.taken(link), NEWS * capacity
            taken = taken if taken >= least else 0.0
            told = self._told[link]
            if abs(taken - told) >= least or (taken == 0.0 and told > 0.0):
                self._told[link] = taken
                news.append((link.source, link.target, taken))
        return news
