"""What may be granted on each link at each moment: w(e, t) of the paper's program.

The research reserve is never granted: not to checkpoints either, though they may borrow it on line. The program has one
budget a link for checkpoints and migrations, and these have the share alone; so what it plans for a row that borrows is somewhat
more than the least. Where a trace has background traffic, which is known as well, only what it leaves is:
constant within an epoch. Both are the coordinator's own arithmetic (`Cluster.spendable`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf

from controller.core.model.cluster import LEAST_FALL, Cluster
from experiments.inputs.traces import BackgroundTraffic
from topologies.spec import DirectedLink

Links = Sequence[DirectedLink]


@dataclass(frozen=True)
class LinkBudgets:
    """Payload bytes/s. `always`: of each link; `left`: of links with background, less of it, one value an epoch.

    Epoch n is from `begin_s + n epoch_s` on; the first also before, the last for ever.
    """

    always: Mapping[DirectedLink, float]
    left: Mapping[DirectedLink, Sequence[float]] = field(default_factory=dict)
    begin_s: float = 0.0
    epoch_s: float = inf

    def at(self, link: DirectedLink, at_s: float) -> float:
        """The rate of a link from that moment on."""
        return self._of(link, self._epoch(at_s))

    def path(self, links: Links, at_s: float) -> float:
        """The rate of the narrowest of these; infinite of none."""
        epoch = self._epoch(at_s)
        return min((self._of(link, epoch) for link in links), default=inf)

    def least(self, links: Links, from_s: float, until_s: float) -> float:
        """The rate of the narrowest, in its worst epoch from then until then."""
        return min(self.path(links, at_s) for at_s in (from_s, *self.changes_s(from_s, until_s)))

    def changes_s(self, from_s: float, until_s: float) -> list[float]:
        """When epochs begin between two moments, both excluded."""
        if not self.left:
            return []
        first = max(1, floor((from_s - self.begin_s) / self.epoch_s) + 1)
        last = min(self._epochs - 1, ceil((until_s - self.begin_s) / self.epoch_s) - 1)
        return [self.begin_s + n * self.epoch_s for n in range(first, last + 1)]

    def backwards(self, links: Links, until_s: float) -> Iterator[tuple[float, float, float]]:
        """(from, until, rate) of the path, epoch by epoch into the past; the first of all has no begin."""
        if not self.left:
            yield -inf, until_s, self.path(links, until_s)
            return
        n = max(0, min(self._epochs, ceil((until_s - self.begin_s) / self.epoch_s)) - 1)
        while n > 0:
            from_s = self.begin_s + n * self.epoch_s
            yield from_s, until_s, self._narrowest(links, n)
            n, until_s = n - 1, from_s
        yield -inf, until_s, self._narrowest(links, 0)

    @property
    def _epochs(self) -> int:
        return len(next(iter(self.left.values())))

    def _epoch(self, at_s: float) -> int:
        if not self.left:
            return 0
        return max(0, min(self._epochs - 1, floor((at_s - self.begin_s) / self.epoch_s)))

    def _narrowest(self, links: Links, epoch: int) -> float:
        return min((self._of(link, epoch) for link in links), default=inf)

    def _of(self, link: DirectedLink, epoch: int) -> float:
        left = self.left.get(link)
        return self.always[link] if left is None else min(self.always[link], left[epoch])


def link_budgets_of(cluster: Cluster, background: BackgroundTraffic | None, begin_s: float) -> LinkBudgets:
    """The budgets of a coordinator's cluster, while the background of a trace (as played) begins at `begin_s`."""
    if background is None or not background.rates_bytes_per_s:
        return LinkBudgets(cluster.reservable)
    over: defaultdict[DirectedLink, list[int]] = defaultdict(list)
    for number, (source, target) in enumerate(background.flows):
        for link in cluster.routes.shortest_links(source, target):
            over[link].append(number)
    left: dict[DirectedLink, list[float]] = {}
    for link, numbers in over.items():
        wire = cluster.bandwidth.capacity[link]
        reserve, share = cluster.bandwidth.reserve, cluster.bandwidth.payload_share
        kept = (
            reserve.kept_bytes_per_s(wire, sum(row[n] for n in numbers))
            for row in background.rates_bytes_per_s
        )
        left[link] = [share * (wire - each) * (1.0 - LEAST_FALL) for each in kept]
    return LinkBudgets(cluster.reservable, left, begin_s, background.epoch_s)
