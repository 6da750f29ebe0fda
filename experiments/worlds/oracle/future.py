"""The future that an oracle knows: when each host is lent and how it will be taken back, and the budgets of links.

Budgets are w(e, t) of the paper's program. Migrations may have the migration share. Where checkpoints borrow, what both have
together may be all that research does not ask for; else that is the share, too. Where a trace has background traffic, which is
known as well, only what it leaves is: constant within an epoch. All of it is the coordinator's own arithmetic (`LinkCapacity`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from controller.core.model.cluster import Cluster
from controller.core.network.links import LEAST_FALL
from experiments.inputs.scenario import OwnerEvent, ResearchFlow
from experiments.inputs.traces import BackgroundTraffic, Trace
from topologies.spec import Campus, DirectedLink, Role
from topologies.units import PAYLOAD_SHARE

Links = Sequence[DirectedLink]


@dataclass(frozen=True, slots=True)
class Stay:
    """A time in which a host is lent, from `from_s`: notice comes at `notice_s`, and it closes at `until_s` (inf: never).

    Without notice `notice_s` is `until_s`. A host without an owner has one stay, for ever.
    """

    host: str
    from_s: float
    notice_s: float
    until_s: float

    @property
    def announced_s(self) -> float:
        """The length of the notice; 0 of an emergency."""
        return self.until_s - self.notice_s if self.until_s < inf else 0.0

    def takes_at(self, at_s: float) -> bool:
        """Return True if a job or a checkpoint may be brought there at that moment."""
        return self.from_s <= at_s < self.notice_s


class Future:
    """The stays of all hosts, each host's in order."""

    def __init__(self, stays: Mapping[str, tuple[Stay, ...]]) -> None:
        self.stays = stays
        self._from_s = {host: [stay.from_s for stay in of_host] for host, of_host in stays.items()}

    def at(self, host: str | None, at_s: float) -> Stay | None:
        """Return the stay that a moment falls into; None while its owner has the host, and of one without an owner."""
        if host is None or host not in self.stays:
            return None
        place = bisect_right(self._from_s[host], at_s) - 1
        stay = self.stays[host][place] if place >= 0 else None
        return stay if stay is not None and at_s < stay.until_s else None

    def open_at(self, at_s: float) -> list[Stay]:
        """Return stays of hosts that can be brought jobs at that moment, by name of the host."""
        found = (self.at(host, at_s) for host in sorted(self.stays))
        return [stay for stay in found if stay is not None and stay.takes_at(at_s)]


def future_of(campus: Campus, trace: Trace, begin_s: float) -> Future:
    """Return the future of a trace (in the units in which it is played) that begins at `begin_s`.

    A reclaim ends a stay, a return begins one; a return that calls off a notice lets it go on.
    """
    stays: dict[str, list[Stay]] = {host.name: [] for host in campus.hosts_of(Role.VOLUNTEER)}
    lent_s: dict[str, float | None] = {host: None if host in trace.away else 0.0 for host in stays}
    ending: dict[str, OwnerEvent] = {}

    def end(host: str, from_s: float) -> None:
        reclaim = ending[host]
        stays[host].append(Stay(host, from_s, begin_s + reclaim.at_s, begin_s + reclaim.gone_s))

    for event in trace.owner_events:
        host, from_s = event.host, lent_s[event.host]
        if event.kind == "reclaim":
            ending[host] = event
            continue
        if from_s is not None and host in ending and ending[host].gone_s <= event.at_s:
            end(host, from_s)
            from_s = None
        lent_s[host] = begin_s + event.at_s if from_s is None else from_s
        ending.pop(host, None)
    for host, from_s in lent_s.items():
        if from_s is not None and host in ending:
            end(host, from_s)
        elif from_s is not None:
            stays[host].append(Stay(host, from_s, inf, inf))
    return Future({host: tuple(of_host) for host, of_host in stays.items()})


# ---------------------------------------------------------------- links


@dataclass(frozen=True)
class LinkBudgets:
    """Rates of links, payload bytes/s, a row an epoch.

    Row n holds from `begin_s + n epoch_s` on; the first also before, the last for ever.
    """

    rows: Sequence[Mapping[DirectedLink, float]]
    begin_s: float = 0.0
    epoch_s: float = inf

    @cached_property
    def _from_s(self) -> list[float]:
        return [-inf, *(self.begin_s + n * self.epoch_s for n in range(1, len(self.rows)))]

    def path(self, links: Links, at_s: float) -> float:
        """Return the rate of the narrowest link from that moment on; infinite of none."""
        row = self.rows[bisect_right(self._from_s, at_s) - 1]
        return min([row[link] for link in links], default=inf)

    def changes_s(self, from_s: float, until_s: float) -> list[float]:
        """Return the moments at which epochs begin between two moments, both excluded."""
        return self._from_s[bisect_right(self._from_s, from_s) : bisect_left(self._from_s, until_s)]

    def backwards(self, links: Links, until_s: float) -> Iterator[tuple[float, float, float]]:
        """Yield (from, until, rate) of the path, epoch by epoch into the past; the first of all has no begin."""
        for from_s in reversed(self._from_s[: bisect_left(self._from_s, until_s)]):
            yield from_s, until_s, self.path(links, from_s)
            until_s = from_s


@dataclass(frozen=True, slots=True)
class ClassBudgets:
    """Budgets of migrations, and of migrations and checkpoints `together`, which are at least as large."""

    migrations: LinkBudgets
    together: LinkBudgets


def class_budgets_of(
    cluster: Cluster, background: BackgroundTraffic | None, research: Sequence[ResearchFlow], begin_s: float
) -> ClassBudgets:
    """Return the budgets of a coordinator's cluster, while the background of a trace (as played) begins at `begin_s`.

    `research`: a scenario's flows, which go on all the time. A coordinator learns of the background alone; of the
    reserve these have what they ask for.
    """
    wire, reserve = cluster.capacity.wire, cluster.capacity.reserve
    steady = defaultdict[DirectedLink, float](float)
    for flow in research:
        for link in cluster.routes.shortest_links(flow.source, flow.target):
            steady[link] += flow.rate_bytes_per_s / PAYLOAD_SHARE
    # the background's demand on each link that it crosses, wire bytes/s, a row an epoch
    crossing: defaultdict[DirectedLink, list[int]] = defaultdict(list)
    for number, (source, target) in enumerate(background.flows if background else ()):
        for link in cluster.routes.shortest_links(source, target):
            crossing[link].append(number)
    rows = background.rates_bytes_per_s if background else ()
    asked = [{link: sum(row[n] for n in some) for link, some in crossing.items()} for row in rows]

    def left_of(link: DirectedLink, kept_bytes_per_s: float) -> float:
        return PAYLOAD_SHARE * (wire[link] - kept_bytes_per_s) * (1.0 - LEAST_FALL)

    def kept(link: DirectedLink, told_bytes_per_s: float) -> float:
        return reserve.kept_bytes_per_s(wire[link], told_bytes_per_s)

    def kept_if_asked(link: DirectedLink, told_bytes_per_s: float) -> float:
        return min(wire[link], told_bytes_per_s + steady[link], kept(link, told_bytes_per_s))

    def budgets(always: Mapping[DirectedLink, float], kept: Callable[[DirectedLink, float], float]) -> LinkBudgets:
        left = [
            {**always, **{link: min(always[link], left_of(link, kept(link, rate))) for link, rate in row.items()}}
            for row in asked
        ]
        return LinkBudgets(left or [always], begin_s, background.epoch_s if background else inf)

    migrations = budgets(cluster.capacity.reservable, kept)
    if not cluster.policy.borrows:
        return ClassBudgets(migrations, migrations)
    always = {link: left_of(link, kept_if_asked(link, 0.0)) for link in wire}
    return ClassBudgets(migrations, budgets(always, kept_if_asked))
