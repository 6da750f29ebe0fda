"""What a link can still carry, with confidence: B(t) of paper A (eq. 10, section V-E's lower bound) for every
direction.

    available = delivery * payload_share * (B - max(B_res, research)) - committed,  never below 0

in payload bytes/s, where

- **B** is the declared wire rate. Nothing is probed: a probe would be migration traffic.
- **B_res** = max(beta B, B_min) is kept for research whether or not it is used (section VII-B).
- **research** is an upper confidence bound of the measured use: mean + z standard deviations of the 100 ms
  samples of the egress counters over a window. Of a link that several hosts feed, means and variances are
  added: bursts of different owners are taken to be independent, and what a host sends is taken to cross every
  link that it may cross, since the counters do not know where it goes. A link that nobody measures keeps its
  reserve and no more. Where switches count (`tell`), what they say is a lower bound of it.
- **payload_share** turns wire rates into payload rates: 1448 of 1514 bytes of a full frame at an MTU of 1500.
- **delivery** is goodput over grant of recent transfers that this link held down: a low quantile, 1 while
  there are none.
- **committed** are the floors of admitted flows that cross it.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from controller.core.network.links import Floats, Network
from topologies.spec import DirectedLink, ResearchReserve

PAYLOAD_SHARE = 1448.0 / 1514.0  # of the wire bytes that HTB and the buckets count, TCP with timestamps
Z = 1.645  # one-sided 95 % of a normal distribution
WINDOW_S = 5.0  # a few control periods; paper A sees +-60 % in 10 min
TRANSFERS = 20  # remembered a link
MEMORY_S = 300.0  # and no longer than this: a link that nobody chooses must be able to recover
LOW_QUANTILE = 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples that arrived together: how many, their mean, and the sum of squared deviations from it."""

    at_s: float
    count: int
    mean: float
    squares: float

    @classmethod
    def of(cls, at_s: float, samples: Sequence[float]) -> Batch:
        """Of at least one sample."""
        mean = math.fsum(samples) / len(samples)
        return cls(at_s, len(samples), mean, math.fsum((x - mean) ** 2 for x in samples))


def mean_and_variance(batches: Iterable[Batch]) -> tuple[float, float]:
    """Of all their samples together; (0, 0) of none. This merge loses no digits (Chan et al., 1979)."""
    count, mean, squares = 0, 0.0, 0.0
    for batch in batches:
        total = count + batch.count
        shift = batch.mean - mean
        squares += batch.squares + shift * shift * count * batch.count / total
        mean += shift * batch.count / total
        count = total
    return mean, squares / count if count else 0.0


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The least available link of a path; an empty path has infinite bandwidth and no link."""

    bytes_per_s: float
    link: DirectedLink | None


class LinkBandwidth:
    """Available bandwidth of every directed link, from measurements that are handed in.

    `capacity`: wire bytes/s of each link (`Campus.capacity_bytes_per_s`). `feeds`: link -> hosts whose
    research traffic may cross it; by default each host's own egress only. Times must not go backwards.
    """

    def __init__(
        self,
        capacity: Mapping[DirectedLink, float],
        reserve: ResearchReserve,
        feeds: Mapping[DirectedLink, Sequence[str]] | None = None,
        window_s: float = WINDOW_S,
        memory_s: float = MEMORY_S,
        payload_share: float = PAYLOAD_SHARE,
    ) -> None:
        self.capacity = dict(capacity)
        self.network = Network(self.capacity)
        self.reserve = reserve
        self.feeds = {link: (link.source,) for link in capacity} if feeds is None else dict(feeds)
        self.window_s = window_s
        self.memory_s = memory_s
        self.payload_share = payload_share
        self._research: defaultdict[str, deque[Batch]] = defaultdict(deque)
        self._delivered: dict[DirectedLink, deque[tuple[float, float]]] = {}
        self._fed_by: defaultdict[str, list[DirectedLink]] = defaultdict(list)
        for link, hosts in self.feeds.items():
            for host in hosts:
                self._fed_by[host].append(link)
        self._kept = {link: reserve.reserve_bytes_per_s(wire) for link, wire in capacity.items()}
        self.told: dict[DirectedLink, float] = {}  # research use that switches counted, wire bytes/s
        self._wire, self._reserved = self.network.column(self.capacity), self.network.column(self._kept)
        self._unmeasured = self.payload_share * (self._wire - self._reserved)

    def observe(self, host: str, at_s: float, research_bytes_per_s: Sequence[float]) -> None:
        """A batch of egress samples of a host's research class: wire bytes/s over 100 ms each."""
        if research_bytes_per_s:
            batches = self._research[host]
            batches.append(Batch.of(at_s, research_bytes_per_s))
            _forget(batches, at_s - self.window_s)

    def tell(self, research_bytes_per_s: Mapping[DirectedLink, float]) -> None:
        """Switches have counted what others send over some links: wire bytes/s, until they are told anew."""
        links = np.array([self.network.number[link] for link in research_bytes_per_s], dtype=np.intp)
        wire = self._wire[links]
        told = np.minimum(list(research_bytes_per_s.values()), wire)
        self.told.update(zip(research_bytes_per_s, told.tolist(), strict=True))
        self._unmeasured[links] = self.payload_share * (wire - np.maximum(self._reserved[links], told))

    @property
    def left_column(self) -> Floats:
        """What the reserve and the traffic that was told leave of each link, payload bytes/s, by its number."""
        return self._unmeasured

    def delivered(self, link: DirectedLink | None, goodput_over_grant: float, now_s: float) -> None:
        """A transfer ended that `link` held down (None: none did) and got this share of its grant."""
        if link is not None:
            self._delivered.setdefault(link, deque(maxlen=TRANSFERS)).append((now_s, goodput_over_grant))

    def delivery(self, link: DirectedLink, now_s: float) -> float:
        """Low quantile of recent goodput over grant, from 0 to 1; 1 while nothing was seen."""
        since_s = now_s - self.memory_s
        seen = sorted(share for at_s, share in self._delivered.get(link, ()) if at_s > since_s)
        return max(0.0, min(1.0, seen[int(LOW_QUANTILE * (len(seen) - 1))])) if seen else 1.0

    def research_bytes_per_s(self, link: DirectedLink, now_s: float) -> float:
        """Upper bound of the research use of a link, wire bytes/s, at most its capacity."""
        if not self._research:
            return self.told.get(link, 0.0)
        moments = [self._moments(host, now_s) for host in self.feeds.get(link, ())]
        mean = math.fsum(m for m, _ in moments)
        seen = min(self.capacity[link], mean + Z * math.sqrt(math.fsum(v for _, v in moments)))
        return max(seen, self.told.get(link, 0.0))

    def available(self, link: DirectedLink, now_s: float, committed_bytes_per_s: float = 0.0) -> float:
        """What a new flow may count on, payload bytes/s, 0 or more; the committed rate is payload too."""
        free = self._free(link, self.research_bytes_per_s(link, now_s), self.delivery(link, now_s))
        return max(0.0, free - committed_bytes_per_s)

    def available_column(self, now_s: float, committed_bytes_per_s: Floats | float = 0.0) -> Floats:
        """`available` of every link, by its number in `network`. Work is done only for links that were measured."""
        free = self._unmeasured.copy()
        self._forget_deliveries(now_s - self.memory_s)
        fed = chain.from_iterable(self._fed_by.get(host, ()) for host in self._research)
        for link in {*self._delivered, *fed}:
            free[self.network.number[link]] = self.available(link, now_s)
        return np.maximum(0.0, free - committed_bytes_per_s)

    def available_everywhere(
        self, now_s: float, committed: Mapping[DirectedLink, float] | None = None
    ) -> dict[DirectedLink, float]:
        """`available` of every link."""
        taken = np.zeros(len(self.network))
        for link, rate in (committed or {}).items():
            taken[self.network.number[link]] = rate
        return self.network.mapping(self.available_column(now_s, taken))

    def _free(self, link: DirectedLink, research_bytes_per_s: float, delivery: float) -> float:
        wire = self.capacity[link]
        kept = max(self._kept[link], research_bytes_per_s)
        return delivery * self.payload_share * (wire - kept)

    def _forget_deliveries(self, before_s: float) -> None:
        """Links that held nobody down since then are as good as never measured."""
        for link in [link for link, seen in self._delivered.items() if seen[-1][0] <= before_s]:
            del self._delivered[link]

    def _moments(self, host: str, now_s: float) -> tuple[float, float]:
        batches = self._research.get(host)
        if not batches:
            return 0.0, 0.0
        _forget(batches, now_s - self.window_s)
        return mean_and_variance(batches)


def bottleneck(path: Iterable[DirectedLink], available: Mapping[DirectedLink, float]) -> Bottleneck:
    """bw_bot(s, d), the least over the path (paper A, eq. 10), and which link that is; first of equals."""
    least = Bottleneck(math.inf, None)
    for link in path:
        if available[link] < least.bytes_per_s:
            least = Bottleneck(available[link], link)
    return least


def _forget(batches: deque[Batch], before_s: float) -> None:
    while batches and batches[0].at_s <= before_s:
        batches.popleft()
