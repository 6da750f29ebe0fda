"""Links by number, their rates, and the routes over them.

Decisions about every link or every flow at once are made on columns (numpy), one entry a link or a flow. Links are
numbered in the order of their names, so "the first by name", the rule for ties, is the smallest number.

**Rates** (`LinkCapacity`) are payload bytes/s: the share of migrations, and what of it can be reserved, granted and
lent. B(t) of paper A (eq. 10, section V-E's lower bound) for every direction is

    free = delivery * payload_share * (B - max(B_res, (1 - m) research)) - committed,  never below 0

where

- **B** is the declared wire rate. Nothing is probed: a probe would be migration traffic.
- **B_res** = max(beta B, B_min) is kept for research whether or not it is used (section VII-B). Checkpoints that borrow leave it
  as far as research was measured to ask for it: there a port's queue guarantees it, whatever is granted.
- **research** is what others ask for, as far as switches can measure it; a link of which nothing was measured keeps its
  reserve and no more. Of what was measured migrations may take m = `most_lost`: that is what paper A lets research
  lose ("under 3 %"). On a trunk that others fill to 97 % it doubles what checkpoints have. Paper A's section V-E takes
  mean + z sigma of the hosts' own 100 ms egress samples instead: those do not know where traffic goes, and what a campus
  reserves already covers it.
- **payload_share** turns wire rates into payload rates: 1448 of 1514 bytes of a full frame at an MTU of 1500.
- **delivery** is goodput over grant of recent transfers that this link held down: a low quantile, 1 while there are none.
- **committed** are the floors of admitted flows that cross it.

All columns are derived again when cables, the traffic of others, or the trunks that are announced to go down change.
So no reader can hold a rate of before.

**Routes** of pairs of hosts are numbers of links. `PathCache` keeps what is found of them until they change.
`RouteInstallation` is the exchange with the network's controller, which installs every pair that is pinned to another
route than the tree's (`lifecycle.link_changes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from math import inf

import numpy as np

from controller.numerics.arrays import Floats, Numbers
from topologies.paths import MAX_KNOWN, Routes, Way
from topologies.spec import DirectedLink, ResearchReserve
from topologies.units import PAYLOAD_SHARE

NO_LINK = -1  # in place of a link's number: no link holds this flow down
SLACK = 1e-9  # relative; what rounding may add to a sum of rates before it counts as more than a capacity


class Network:
    """Directed links, numbered once."""

    def __init__(self, links: Iterable[DirectedLink]) -> None:
        self.links: tuple[DirectedLink, ...] = tuple(sorted(set(links), key=str))
        self.names = tuple(map(str, self.links))
        self.number: dict[DirectedLink, int] = {link: number for number, link in enumerate(self.links)}

    def column(self, values: Mapping[DirectedLink, float]) -> Floats:
        """Return one value a link, by number. KeyError: a link without a value."""
        return np.array([values[link] for link in self.links], dtype=float)

    def path(self, links: Iterable[DirectedLink]) -> tuple[int, ...]:
        """Return the numbers of the links of a path, in order. KeyError: a link that is not of the network."""
        return tuple(self.number[link] for link in links)


def fits(wanted_bytes_per_s: float, capacity_bytes_per_s: float) -> bool:
    """Return whether a sum of rates is within a capacity, rounding forgiven."""
    return wanted_bytes_per_s <= capacity_bytes_per_s * (1.0 + SLACK)


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths of several flows one after the other (compressed rows).

    `link`: numbers of the links crossed; those of path i are `link[start[i]:start[i + 1]]`. A path crosses a link once.
    """

    link: Numbers
    start: Numbers

    @classmethod
    def of(cls, paths: Sequence[Sequence[int]]) -> Paths:
        """Make paths of one sequence of link numbers each."""
        start = np.fromiter(accumulate(map(len, paths), initial=0), np.intp, len(paths) + 1)
        return cls(np.fromiter(chain.from_iterable(paths), np.intp, int(start[-1])), start)

    def __len__(self) -> int:
        return len(self.start) - 1

    def load(self, rates: Floats, links: int) -> Floats:
        """Return the load of flows of these rates on each of `links` links."""
        each = rates.repeat(self.start[1:] - self.start[:-1])
        return np.bincount(self.link, each, links).astype(float, copy=False)

    def least(self, values: Floats) -> Floats:
        """Return the least of a value a link along each path; infinite where a path crosses no link."""
        answer = np.full(len(self), np.inf)
        crossing = np.flatnonzero(self.start[1:] - self.start[:-1])
        if crossing.size:
            answer[crossing] = np.minimum.reduceat(values[self.link], self.start[crossing])
        return answer


# ---------------------------------------------------------------- rates


LEAST_FALL = (
    0.01  # a rate that falls by less than 1 % is not worth a message: only so much less than a share is given out
)
TRANSFERS = 20  # remembered a link
MEMORY_S = 300.0  # and no longer than this: a link that no transfer crosses must be able to recover
LOW_QUANTILE = 0.1


def migration_share(
    wire_bytes_per_s: Mapping[DirectedLink, float], reserve: ResearchReserve
) -> dict[DirectedLink, float]:
    """Return B_mig = B - max(beta B, B_min) of every link, 0 or more, as a payload rate."""
    return {link: PAYLOAD_SHARE * reserve.migration_share_bytes_per_s(b) for link, b in wire_bytes_per_s.items()}


class LinkCapacity:
    """The rates of every link, as columns by the link's number.

    `wire_bytes_per_s`: of each cable; `borrows`: checkpoints may use what research does not ask for of its reserve.
    Times must not go backwards.
    """

    share: dict[DirectedLink, float]  # the one account that every grant is held against
    reservable_column: Floats  # the share, less the room for falls too small to announce; 0 where it drains
    reservable: dict[DirectedLink, float]
    withheld_column: Floats  # that room, of what checkpoints may use
    # what can be newly given out: `reservable_column`, or what others leave where that is less
    spendable_column: Floats
    spendable: dict[DirectedLink, float]
    # what flows are granted: `spendable_column`, and the whole of links that are draining
    given_column: Floats
    checkpoint_column: Floats  # what streams of checkpoints may be planned with: nothing of links that are draining
    lent_column: Floats  # what all flows together may be granted

    def __init__(
        self, wire_bytes_per_s: Mapping[DirectedLink, float], reserve: ResearchReserve, *, borrows: bool
    ) -> None:
        self.network = Network(wire_bytes_per_s)
        self.wire = dict(wire_bytes_per_s)  # of each cable, bytes/s
        self.research: dict[DirectedLink, float] = {}  # what others were measured to ask for, wire bytes/s
        self.draining = frozenset[frozenset[str]]()  # trunks that still carry, and are announced to go down
        self.reserve, self._borrows = reserve, borrows
        # link's number -> (when, goodput over grant) of recent transfers that it held down
        self._delivered: dict[int, deque[tuple[float, float]]] = {}
        self._derive()

    def measured(self, research_bytes_per_s: Mapping[DirectedLink, float]) -> None:
        """Record the traffic of others on some links, wire bytes/s; the other links' records stay.

        Two things still stand on the whole share: reservations that were made before the others came, and the account
        that every grant is held against. A migration is not broken off because of another's download.
        """
        self.research.update({link: min(rate, self.wire[link]) for link, rate in research_bytes_per_s.items()})
        self._derive()

    def changed(self, wire_bytes_per_s: Mapping[DirectedLink, float]) -> None:
        """Record other rates of some cables (0: down); what transfers got of them before counts no more."""
        self.wire.update(wire_bytes_per_s)
        for link in wire_bytes_per_s:
            self._delivered.pop(self.network.number[link], None)
        self._derive()

    def drain(self, trunks: frozenset[frozenset[str]]) -> None:
        """Record all trunks that are announced to go down: nothing is reserved there."""
        self.draining = trunks
        self._derive()

    def delivered(self, bottleneck: str, goodput_over_grant: float, now_s: float) -> None:
        """Record the share of its grant that a transfer got, which this link (as flows name it) holds down."""
        source, _, target = bottleneck.partition(">")
        link = self.network.number[DirectedLink(source, target)]
        self._delivered.setdefault(link, deque(maxlen=TRANSFERS)).append((now_s, goodput_over_grant))

    def free(
        self, now_s: float, committed_bytes_per_s: Floats | float = 0.0, *, for_checkpoints: bool = False
    ) -> Floats:
        """Return the rate of each link that a new flow may count on, beside what is committed."""
        delivery = np.full(len(self.network.links), PAYLOAD_SHARE)
        for link, seen in list(self._delivered.items()):
            recent = sorted([share for at_s, share in seen if at_s > now_s - MEMORY_S])
            if recent:
                delivery[link] *= max(0.0, min(1.0, recent[int(LOW_QUANTILE * (len(recent) - 1))]))
            else:
                del self._delivered[link]
        left = self._left_for_checkpoints if for_checkpoints else self._left
        free: Floats = np.maximum(0.0, delivery * left - committed_bytes_per_s)
        return free

    def _derive(self) -> None:
        network = self.network
        wire, asked = network.column(self.wire), np.zeros(len(network.links))
        for link, rate in self.research.items():
            asked[network.number[link]] = min(rate, self.wire[link])
        reserved = np.array([self.reserve.reserve_bytes_per_s(rate) for rate in wire.tolist()])
        taken = (1.0 - self.reserve.most_lost) * asked
        # wire bytes/s that research leaves
        self._left = self._left_for_checkpoints = wire - np.maximum(reserved, taken)
        carries = np.array([frozenset(link) not in self.draining for link in network.links], dtype=float)
        self.share = migration_share(self.wire, self.reserve)
        usable = network.column(self.share)
        whole = given = usable * (1.0 - LEAST_FALL)
        self.reservable_column = self.spendable_column = carries * whole
        if self.research:
            left = PAYLOAD_SHARE * self._left * (1.0 - LEAST_FALL)
            self.spendable_column, given = np.minimum(self.reservable_column, left), np.minimum(whole, left)
        self.given_column = given if self.draining else self.spendable_column
        self.checkpoint_column = lent = self.spendable_column
        if self._borrows:
            usable = PAYLOAD_SHARE * wire
            self._left_for_checkpoints = wire - np.maximum(np.minimum(reserved, asked), taken)
            lent = PAYLOAD_SHARE * self._left_for_checkpoints * (1.0 - LEAST_FALL)
            self.checkpoint_column = carries * lent
        self.withheld_column = LEAST_FALL * usable
        self.lent_column = np.maximum(self.given_column, lent)
        self.reservable, self.spendable = (
            dict(zip(network.links, column.tolist(), strict=True))
            for column in (self.reservable_column, self.spendable_column)
        )


# ---------------------------------------------------------------- routes


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
