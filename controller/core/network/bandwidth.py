"""Bandwidth that a link can still carry, with confidence: B(t) of paper A (eq. 10, section V-E's lower bound) for
every direction.

    available = delivery * payload_share * (B - max(B_res, (1 - m) research)) - committed,  never below 0

in payload bytes/s, where

- **B** is the declared wire rate. Nothing is probed: a probe would be migration traffic.
- **B_res** = max(beta B, B_min) is kept for research whether or not it is used (section VII-B).
  In an account that `lends` it, it is kept as far as research was told to ask for it: there a port's queue guarantees it,
  whatever is granted.
- **research** is what others ask for, as far as switches can tell (`tell`); a link of which nothing was told keeps its
  reserve and no more. Of what was told migrations may take m = `most_lost`: that is what paper A lets research
  lose ("under 3 %"). On a trunk that others fill to 97 % it doubles what checkpoints have. Paper A's section V-E takes
  mean + z sigma of the hosts' own 100 ms egress samples instead: those do not know where traffic goes, and what a campus
  reserves already covers it.
- **payload_share** turns wire rates into payload rates: 1448 of 1514 bytes of a full frame at an MTU of 1500.
- **delivery** is goodput over grant of recent transfers that this link held down: a low quantile, 1 while
  there are none.
- **committed** are the floors of admitted flows that cross it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from controller.core.network.links import Network
from controller.numerics.arrays import Floats
from topologies.spec import DirectedLink, ResearchReserve
from topologies.units import PAYLOAD_SHARE

TRANSFERS = 20  # remembered a link
MEMORY_S = 300.0  # and no longer than this: a link that no transfer crosses must be able to recover
LOW_QUANTILE = 0.1


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The least available link of a path; an empty path has infinite bandwidth and no link."""

    bytes_per_s: float
    link: DirectedLink | None


class LinkBandwidth:
    """Available bandwidth of every directed link, from measurements that are handed in.

    `capacity`: wire bytes/s of each link (`Campus.capacity_bytes_per_s`). `lends`: what research does not ask for of its reserve
    may be used. Times must not go backwards.
    """

    def __init__(
        self,
        capacity: Mapping[DirectedLink, float],
        reserve: ResearchReserve,
        memory_s: float = MEMORY_S,
        payload_share: float = PAYLOAD_SHARE,
        *,
        lends: bool = False,
    ) -> None:
        self.capacity = dict(capacity)
        self.network = Network(self.capacity)
        self.reserve = reserve
        self.memory_s = memory_s
        self.lends = lends
        self.payload_share = payload_share
        self._delivered: dict[DirectedLink, deque[tuple[float, float]]] = {}
        # of each link: the oldest of those that count, and `delivery` until that one counts no more
        self._delivery: dict[DirectedLink, tuple[float, float]] = {}
        # what research asks for, wire bytes/s
        self.told: dict[DirectedLink, float] = {}
        self._wire, self._reserved = self._columns()
        self._unmeasured = self._left(self._wire, self._reserved, np.zeros(len(self._wire)))

    def tell(self, research_bytes_per_s: Mapping[DirectedLink, float]) -> None:
        """Record what others ask of some links, wire bytes/s, until it is recorded anew."""
        links = np.array([self.network.number[link] for link in research_bytes_per_s], dtype=np.intp)
        wire = self._wire[links]
        told = np.minimum(list(research_bytes_per_s.values()), wire)
        self.told.update(zip(research_bytes_per_s, told.tolist(), strict=True))
        self._unmeasured[links] = self._left(wire, self._reserved[links], told)

    def change(self, wire_bytes_per_s: Mapping[DirectedLink, float]) -> None:
        """Some links have other rates from now on (0: down). What transfers got of them before says nothing any more."""
        self.capacity.update(wire_bytes_per_s)
        for link in wire_bytes_per_s:
            self._delivered.pop(link, None)
            self._delivery.pop(link, None)
        self._wire, self._reserved = self._columns()
        told = self.network.column({link: self.told.get(link, 0.0) for link in self.network.links})
        self._unmeasured = self._left(self._wire, self._reserved, np.minimum(told, self._wire))

    def _left(self, wire: Floats, reserved: Floats, asked: Floats) -> Floats:
        """Return the rest of links, payload bytes/s, of which research asks for so much (`kept_bytes_per_s`, in columns)."""
        if self.lends:
            reserved = np.minimum(reserved, asked)
        return self.payload_share * (wire - np.maximum(reserved, (1.0 - self.reserve.most_lost) * asked))

    def _columns(self) -> tuple[Floats, Floats]:
        """Return the rate of each link and its fixed reserve, wire bytes/s, by its number."""
        kept = {link: self.reserve.reserve_bytes_per_s(wire) for link, wire in self.capacity.items()}
        return self.network.column(self.capacity), self.network.column(kept)

    def share(self, link: DirectedLink) -> float:
        """Return the share of migrations in a link, payload bytes/s; all of it where the reserve is lent."""
        reserved = 0.0 if self.lends else self.reserve.reserve_bytes_per_s(self.capacity[link])
        return self.payload_share * (self.capacity[link] - reserved)

    @property
    def left_column(self) -> Floats:
        """Rest of each link after the reserve and the reported traffic, payload bytes/s, by its number."""
        return self._unmeasured

    def delivered(self, link: DirectedLink | None, goodput_over_grant: float, now_s: float) -> None:
        """A transfer ended that `link` held down (None: none did) and got this share of its grant."""
        if link is not None:
            self._delivered.setdefault(link, deque(maxlen=TRANSFERS)).append((now_s, goodput_over_grant))
            self._delivery.pop(link, None)

    def delivery(self, link: DirectedLink, now_s: float) -> float:
        """Low quantile of recent goodput over grant, from 0 to 1; 1 while nothing was seen."""
        since_s, known = now_s - self.memory_s, self._delivery.get(link)
        if known is not None and since_s < known[0]:
            return known[1]
        recent = [(at_s, share) for at_s, share in self._delivered.get(link, ()) if at_s > since_s]
        if not recent:
            return 1.0
        seen = sorted([share for _, share in recent])
        low = max(0.0, min(1.0, seen[int(LOW_QUANTILE * (len(seen) - 1))]))
        self._delivery[link] = (recent[0][0], low)
        return low

    def available(self, link: DirectedLink, now_s: float, committed_bytes_per_s: float = 0.0) -> float:
        """Return the rate that a new flow may count on, payload bytes/s, 0 or more; the committed rate is payload too."""
        wire, asked = self.capacity[link], self.told.get(link, 0.0)
        kept = self.reserve.kept_bytes_per_s(wire, asked)
        if self.lends:
            kept = min(kept, asked)
        free = self.delivery(link, now_s) * self.payload_share * (wire - kept)
        return max(0.0, free - committed_bytes_per_s)

    def available_column(self, now_s: float, committed_bytes_per_s: Floats | float = 0.0) -> Floats:
        """`available` of every link, by its number in `network`. Work is done only for links that were measured."""
        free, since_s = self._unmeasured.copy(), now_s - self.memory_s
        # links that held no transfer down since then are as good as never measured
        for link in [link for link, seen in self._delivered.items() if seen[-1][0] <= since_s]:
            del self._delivered[link]
        for link in self._delivered:
            free[self.network.number[link]] = self.available(link, now_s)
        return np.maximum(0.0, free - committed_bytes_per_s)


def bottleneck(path: Iterable[DirectedLink], available: Mapping[DirectedLink, float]) -> Bottleneck:
    """bw_bot(s, d), the least over the path (paper A, eq. 10), and which link that is; first of equals."""
    least = Bottleneck(math.inf, None)
    for link in path:
        if available[link] < least.bytes_per_s:
            least = Bottleneck(available[link], link)
    return least
