"""Budgets of each link at each moment: w(e, t) of the paper's program.

Migrations may have the migration share. Where checkpoints borrow, what both have together may be all that research does not ask
for; else that is the share, too. Where a trace has background traffic, which is known as well, only what it leaves is: constant
within an epoch. All of it is the coordinator's own arithmetic (`LinkCapacity`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf

from controller.core.model.cluster import Cluster
from controller.core.network.capacity import LEAST_FALL
from experiments.inputs.scenario import ResearchFlow
from experiments.inputs.traces import BackgroundTraffic
from topologies.spec import DirectedLink
from topologies.units import PAYLOAD_SHARE

Links = Sequence[DirectedLink]


@dataclass(frozen=True)
class LinkBudgets:
    """Rates of links, payload bytes/s. `always`: of each link; `left`: of links with background, less of it, one value an epoch.

    Epoch n is from `begin_s + n epoch_s` on; the first also before, the last for ever.
    """

    always: Mapping[DirectedLink, float]
    left: Mapping[DirectedLink, Sequence[float]] = field(default_factory=dict)
    begin_s: float = 0.0
    epoch_s: float = inf

    def at(self, link: DirectedLink, at_s: float) -> float:
        """Return the rate of a link from that moment on."""
        return self._of(link, self._epoch(at_s))

    def path(self, links: Links, at_s: float) -> float:
        """Return the rate of the narrowest link; infinite of none."""
        epoch = self._epoch(at_s)
        return min((self._of(link, epoch) for link in links), default=inf)

    def changes_s(self, from_s: float, until_s: float) -> list[float]:
        """Return the moments at which epochs begin between two moments, both excluded."""
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


@dataclass(frozen=True, slots=True)
class ClassBudgets:
    """Budgets of migrations, and of migrations and checkpoints `together`, which are at least as large."""

    migrations: LinkBudgets
    together: LinkBudgets

    def constraints(self) -> Iterator[tuple[LinkBudgets, bool]]:
        """Yield each budget that can bind, and True if it is of migrations alone."""
        yield self.together, False
        if self.migrations is not self.together:
            yield self.migrations, True


def class_budgets_of(
    cluster: Cluster, background: BackgroundTraffic | None, research: Sequence[ResearchFlow], begin_s: float
) -> ClassBudgets:
    """Return the budgets of a coordinator's cluster, while the background of a trace (as played) begins at `begin_s`.

    `research`: a scenario's flows, which go on all the time. A coordinator is told of the background alone; of the reserve these
    have what they ask for.
    """
    wire, reserve = cluster.capacity.wire, cluster.capacity.reserve
    told = _asked(cluster, background) if background is not None else {}
    epoch_s = background.epoch_s if background is not None else inf
    steady = defaultdict[DirectedLink, float](float)
    for flow in research:
        for link in cluster.routes.shortest_links(flow.source, flow.target):
            steady[link] += flow.rate_bytes_per_s / PAYLOAD_SHARE

    def budgets(
        always: Mapping[DirectedLink, float], kept: Callable[[DirectedLink, float], float]
    ) -> LinkBudgets:
        left = {link: [left_of(link, kept(link, rate)) for rate in rates] for link, rates in told.items()}
        return LinkBudgets(always, left, begin_s, epoch_s)

    def left_of(link: DirectedLink, kept_bytes_per_s: float) -> float:
        return PAYLOAD_SHARE * (wire[link] - kept_bytes_per_s) * (1.0 - LEAST_FALL)

    def kept(link: DirectedLink, told_bytes_per_s: float) -> float:
        return reserve.kept_bytes_per_s(wire[link], told_bytes_per_s)

    def kept_if_asked(link: DirectedLink, told_bytes_per_s: float) -> float:
        return min(wire[link], told_bytes_per_s + steady[link], kept(link, told_bytes_per_s))

    migrations = budgets(cluster.capacity.reservable, kept)
    if not cluster.policy.borrows:
        return ClassBudgets(migrations, migrations)
    always = {link: left_of(link, kept_if_asked(link, 0.0)) for link in wire}
    return ClassBudgets(migrations, budgets(always, kept_if_asked))


def _asked(cluster: Cluster, background: BackgroundTraffic) -> dict[DirectedLink, list[float]]:
    """Return the background's demand on each link that it crosses, wire bytes/s, one value an epoch."""
    over: defaultdict[DirectedLink, list[int]] = defaultdict(list)
    for number, (source, target) in enumerate(background.flows):
        for link in cluster.routes.shortest_links(source, target):
            over[link].append(number)
    rates = background.rates_bytes_per_s
    return {link: [sum(row[n] for n in numbers) for row in rates] for link, numbers in over.items() if rates}
