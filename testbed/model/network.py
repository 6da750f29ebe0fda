"""Fluid network: flows on paths, rates that are max-min fair, everything constant between two events.

TCP over a switched campus settles within a few round trips of 50 us to 1 ms; checkpoints take seconds to minutes. So
packets are left out: a flow has a rate, and in between two changes bytes grow linearly. Rates change only when a flow
begins or ends, is granted another rate, or a link changes. What a flow has moved is computed when it is asked for, and
when it will end is known.

The rates are max-min fair under caps (Bertsekas and Gallager, Data Networks, section 6.5.2). A grant that is enforced
by pacing is a cap, a greedy flow has none. `Sharing.PRIORITY` serves classes strictly in the order EF, AF41, CS1, BE.
Paced flows were measured to hold 97 to 100 % of their grants beside greedy traffic in one queue, which strict order
reproduces. What keeps research from starving is not the network but the grants, whose sums leave the reserve. With a
`reserve` checkpoints leave research that much of each link, as far as it asks for it. They come before what else it
asks for. `Sharing.FAIR` is one queue in which all classes are alike: what TCP does when nothing is enforced.

Research that does not yield (UDP) takes what it sends of its queue before any TCP flow has its share. Where such flows fill a
link alone, all lose the same part.

**What makes it quick.** A link on which a class's caps add up to no more than higher classes leave binds no flow. It
can be left out of the problem. So a change matters only to those flows that are joined to it by a chain of links that
do bind ("tight"). In a campus whose grants fit there are none: a flow begins, gets its cap, and no other is looked at.

Rates and capacities are in one unit, payload bytes/s; the caller converts what links carry on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from math import inf

from topologies.spec import DirectedLink, TrafficClass

ENOUGH = 1.0 - 1e-9  # of a capacity: what fits below it with whatever else there is fits for certain
# relative: what sums of rates may be off before a link counts as tight, or a rate as changed
ROUNDING = 1e-12


class Sharing(StrEnum):
    """Division of a link among classes of service."""

    PRIORITY = "priority"
    FAIR = "fair"


_ORDER = (TrafficClass.EMERGENCY, TrafficClass.PLANNED, TrafficClass.PRESYNC, TrafficClass.RESEARCH)
_LEVELS = {Sharing.PRIORITY: dict(zip(_ORDER, (0, 1, 2, 4), strict=True)), Sharing.FAIR: dict.fromkeys(_ORDER, 1)}
_UNYIELDING = {Sharing.PRIORITY: 3, Sharing.FAIR: 0}  # the level of research that does not yield


@dataclass(slots=True, eq=False)
class FluidFlow:
    """A stream of bytes on a path. `rate_bytes_per_s` holds since `since_s`, when `moved_bytes` had been moved."""

    key: str
    traffic_class: TrafficClass
    links: tuple[DirectedLink, ...]
    size_bytes: float  # inf: it goes on until it is stopped
    cap_bytes_per_s: float
    began_s: float
    number: int  # in order of beginning: breaks ties
    path: tuple[int, ...]
    level: int
    parallel: float = 1.0  # it stands for so many flows that share its rate
    rate_bytes_per_s: float = 0.0
    moved_bytes: float = 0.0
    since_s: float = 0.0
    version: int = 0

    def moved(self, now_s: float) -> float:
        """Return the bytes moved until `now_s`, never more than its size."""
        return min(self.size_bytes, self.moved_bytes + self.rate_bytes_per_s * (now_s - self.since_s))

    def end_s(self) -> float:
        """Return the time of its last byte, if its rate stays; inf: never."""
        if self.rate_bytes_per_s <= 0.0 or self.size_bytes == inf:
            return inf if self.moved_bytes < self.size_bytes else self.since_s
        return self.since_s + max(0.0, self.size_bytes - self.moved_bytes) / self.rate_bytes_per_s


class FluidNetwork:
    """Flows and links in virtual time. Times (seconds) never decrease; methods return the flows whose rate changed.

    `capacity`: bytes/s of every directed link, in the unit of the flows' caps. `reserve`: what of a link of that capacity
    checkpoints leave to research while it asks for it (`Sharing.PRIORITY`).
    """

    def __init__(
        self,
        capacity: Mapping[DirectedLink, float],
        sharing: Sharing = Sharing.PRIORITY,
        reserve: Callable[[float], float] = lambda _: 0.0,
    ) -> None:
        self._index = {link: number for number, link in enumerate(capacity)}
        self._capacity = list(capacity.values())
        self._level_of = _LEVELS[sharing]
        levels = range(max(self._level_of.values()) + 1)
        self._members: list[list[dict[int, FluidFlow]]] = [[{} for _ in self._capacity] for _ in levels]
        self._tight: list[set[int]] = [set() for _ in levels]
        self._used = [[0.0] * len(self._capacity) for _ in levels]
        self._load = [0.0] * len(self._capacity)  # of all levels together
        self._above = [self._used[:level] for level in levels]  # what outranks each level
        self._caps = [[0.0] * len(self._capacity) for _ in levels]  # of the flows that have one, together
        self._greedy = [[0] * len(self._capacity) for _ in levels]  # flows that have none
        self._flows: dict[str, FluidFlow] = {}
        self._from: dict[str, dict[int, FluidFlow]] = {link.source: {} for link in capacity}
        self._ends: list[tuple[float, int, int, FluidFlow]] = []
        self._alive = [0 for _ in levels]  # flows at each level
        self._reserve = [reserve(each) for each in self._capacity]
        self._reserve_of = reserve
        # what flows of a level leave to research of each link, though it comes after them
        self._spared = [[0.0] * len(self._capacity) for _ in levels]
        self._research, self._unyielding = self._level_of[TrafficClass.RESEARCH], _UNYIELDING[sharing]
        reserves = sharing is Sharing.PRIORITY and any(self._reserve)
        # the first level that another research flow concerns
        self._concerned = self._level_of[TrafficClass.PRESYNC] if reserves else self._unyielding
        self._begun = 0

    # ------------------------------------------------------------ changes

    def start(
        self,
        key: str,
        links: Sequence[DirectedLink],
        traffic_class: TrafficClass,
        size_bytes: float,
        cap_bytes_per_s: float,
        now_s: float,
        parallel: float = 1.0,
        *,
        yields: bool = True,
    ) -> list[FluidFlow]:
        """Begin a flow, or `parallel` equal ones as one; `yields` False: research that sends at its cap whatever is lost.

        ValueError: the key is in use, a link is unknown, a size or cap is negative.
        """
        if key in self._flows:
            raise ValueError(f"flow {key} exists")
        if not (size_bytes >= 0.0 and cap_bytes_per_s >= 0.0):
            raise ValueError(f"flow {key}: size {size_bytes}, cap {cap_bytes_per_s}: 0 or more")
        try:
            path = tuple([self._index[link] for link in links])
        except KeyError as error:
            raise ValueError(f"flow {key}: the network has no link {error.args[0]}") from None
        level = self._level_of[traffic_class]
        if not yields:
            level, parallel = self._unyielding, cap_bytes_per_s
        self._begun += 1
        number = self._begun
        flow = FluidFlow(
            key,
            traffic_class,
            tuple(links),
            size_bytes,
            cap_bytes_per_s,
            now_s,
            number,
            path,
            level,
            parallel,
            since_s=now_s,
        )
        self._flows[key] = flow
        self._alive[level] += 1
        self._join(flow)
        if size_bytes == 0.0:
            heappush(self._ends, (now_s, number, 0, flow))
        return self._reshare(level, path, [flow], now_s)

    def reroute(self, key: str, links: Sequence[DirectedLink], now_s: float) -> list[FluidFlow]:
        """Move a flow to another path from now on, with what it has moved. KeyError: there is no such flow, or link."""
        flow, path = self._flows[key], tuple([self._index[link] for link in links])
        if path == flow.path:
            return []
        before = flow.path
        self._leave(flow, now_s)
        changed = self._reshare(flow.level, before, [], now_s)
        flow.links, flow.path = tuple(links), path
        self._join(flow)
        return changed + self._reshare(flow.level, path, [flow], now_s)

    def _join(self, flow: FluidFlow) -> None:
        """Put a flow on its links, and ask for its cap there."""
        for link in flow.path:
            self._members[flow.level][link][flow.number] = flow
        self._ask(flow, flow.cap_bytes_per_s, 1)
        if flow.links:
            self._from[flow.links[0].source][flow.number] = flow

    def _leave(self, flow: FluidFlow, now_s: float) -> None:
        """Take a flow off all its links, and record what it has moved until now."""
        self._ask(flow, flow.cap_bytes_per_s, -1)
        self._take(flow, -flow.rate_bytes_per_s)
        flow.moved_bytes, flow.since_s, flow.rate_bytes_per_s = flow.moved(now_s), now_s, 0.0
        flow.version += 1
        for link in flow.path:
            members = self._members[flow.level][link]
            del members[flow.number]
            if not members:  # sums begin again, without what rounding left of them
                self._load[link] -= self._used[flow.level][link]
                self._caps[flow.level][link] = self._used[flow.level][link] = 0.0
                self._spare(flow.level, link)
        if flow.links:
            del self._from[flow.links[0].source][flow.number]

    def regrant(self, caps_bytes_per_s: Mapping[str, float], now_s: float) -> list[FluidFlow]:
        """Change caps of flows: as if one after the other, but shared again only once for each class."""
        moved: dict[int, list[FluidFlow]] = {}
        for key, cap in caps_bytes_per_s.items():
            flow = self._flows[key]
            if flow.cap_bytes_per_s != cap:
                self._ask(flow, flow.cap_bytes_per_s, -1)
                flow.cap_bytes_per_s = cap
                self._ask(flow, cap, 1)
                moved.setdefault(flow.level, []).append(flow)
        changed: list[FluidFlow] = []
        for level in sorted(moved):
            touched = sorted({link for flow in moved[level] for link in flow.path})
            changed += self._reshare(level, touched, moved[level], now_s)
        return changed

    def _ask(self, flow: FluidFlow, cap_bytes_per_s: float, sign: int) -> None:
        """Ask for so much more (or less) of the links of a flow."""
        greedy, caps = self._greedy[flow.level], self._caps[flow.level]
        for link in flow.path:
            if cap_bytes_per_s == inf:
                greedy[link] += sign
            else:
                caps[link] += sign * cap_bytes_per_s
        for link in flow.path:
            self._spare(flow.level, link)

    def _spare(self, level: int, link: int) -> None:
        """Make checkpoints leave research what it asks for of its reserve of a link, after a change at this level."""
        if self._concerned == self._unyielding or level not in (self._unyielding, self._research):
            return
        caps = self._caps[self._research][link] + self._caps[self._unyielding][link]
        asked = inf if self._greedy[self._research][link] else max(0.0, caps)
        self._spared[self._concerned][link] = min(asked, self._reserve[link])

    def _take(self, flow: FluidFlow, more_bytes_per_s: float) -> None:
        """Take so much more of the links of a flow."""
        used, load = self._used[flow.level], self._load
        for link in flow.path:
            used[link] += more_bytes_per_s
            load[link] += more_bytes_per_s

    def stop(self, key: str, now_s: float) -> tuple[FluidFlow, list[FluidFlow]]:
        """End a flow now: (the flow, with what it moved; those whose rate changed by it). KeyError: there is none."""
        flow = self._flows.pop(key)
        self._alive[flow.level] -= 1
        self._leave(flow, now_s)
        return flow, self._reshare(flow.level, flow.path, [], now_s)

    def set_capacity(self, link: DirectedLink, capacity_bytes_per_s: float, now_s: float) -> list[FluidFlow]:
        """Set the capacity of a link, which becomes slower, faster, or goes down (0)."""
        number = self._index[link]
        self._capacity[number] = capacity_bytes_per_s
        self._reserve[number] = self._reserve_of(capacity_bytes_per_s)
        self._spare(self._research, number)
        return self._reshare(0, (number,), [], now_s)

    # ------------------------------------------------------------ questions

    def has_link(self, link: DirectedLink) -> bool:
        """Return True if the network has the link."""
        return link in self._index

    def next_end_s(self) -> float:
        """Return the time at which the next flow ends; inf if none does."""
        ends = self._ends
        while ends and ends[0][2] != ends[0][3].version:
            heappop(ends)
        return ends[0][0] if ends else inf

    def finish(self, now_s: float) -> tuple[list[FluidFlow], list[FluidFlow]]:
        """Return (flows whose last byte is there by now, in order of (end, beginning); flows whose rate changed by it)."""
        finished: list[FluidFlow] = []
        changed: list[FluidFlow] = []
        while self.next_end_s() <= now_s:
            flow = heappop(self._ends)[3]
            flow.moved_bytes, flow.since_s = flow.size_bytes, now_s
            changed += self.stop(flow.key, now_s)[1]
            finished.append(flow)
        return finished, changed

    def __contains__(self, key: str) -> bool:
        return key in self._flows

    def flow(self, key: str) -> FluidFlow:
        """Return the flow of that key. KeyError: there is none."""
        return self._flows[key]

    def flows(self) -> Iterable[FluidFlow]:
        """Return the flows, in order of their beginning."""
        return self._flows.values()

    def flows_from(self, source: str) -> Iterable[FluidFlow]:
        """Return the flows that begin at a node, in order of their beginning."""
        return self._from[source].values()

    # ------------------------------------------------------------ sharing

    def _reshare(self, level: int, touched: Iterable[int], seeds: list[FluidFlow], now_s: float) -> list[FluidFlow]:
        """Set new rates at `level` and below, where the links touched matter."""
        changed: list[FluidFlow] = []
        for lower in range(self._concerned if level in (self._unyielding, self._research) else level, len(self._used)):
            if lower != level and not self._alive[lower]:
                continue
            flows, room = self._closure(lower, touched, seeds if lower == level else [])
            moved = self._set_rates(flows, room, now_s) if flows else []
            if moved:
                changed += moved
                touched = {link for flow in moved for link in flow.path}.union(touched)
        return changed

    def _set_rates(self, flows: list[FluidFlow], room: Mapping[int, float], now_s: float) -> list[FluidFlow]:
        """Set the rates of these flows; those whose rate is another than before."""
        rates = [flow.cap_bytes_per_s for flow in flows]
        if room:
            asked = list(zip(rates, [flow.path for flow in flows], strict=True))
            rates = max_min(asked, room, [flow.parallel for flow in flows])
        changed = []
        for flow, rate in zip(flows, rates, strict=True):
            if abs(rate - flow.rate_bytes_per_s) > ROUNDING * rate:
                self._set_rate(flow, rate, now_s)
                changed.append(flow)
        return changed

    def _closure(
        self, level: int, touched: Iterable[int], seeds: list[FluidFlow]
    ) -> tuple[list[FluidFlow], dict[int, float]]:
        """Return the flows that a change on these links may concern, and the room of the tight links on their paths."""
        tight, members, caps = self._tight[level], self._members[level], self._caps[level]
        used, load, greedy, capacity = self._used[level], self._load, self._greedy[level], self._capacity
        spared = self._spared[level]
        room: dict[int, float] = {}
        todo = [
            link
            for link in touched
            if link in tight
            or (
                (caps[link] - used[link] + load[link] + spared[link] > ENOUGH * capacity[link] or greedy[link])
                and members[link]
                and self._look(level, link, room)
            )
        ]
        if not todo:
            return seeds, room
        for link in tight.intersection(todo):
            self._look(level, link, room)
        found = {flow.number: flow for flow in seeds}
        tight.difference_update(todo)
        seen = set(todo)
        while todo:
            link = todo.pop()
            for number, flow in members[link].items():
                if number not in found:
                    found[number] = flow
                    for other in flow.path:
                        if other not in seen and other not in room and self._look(level, other, room):
                            seen.add(other)
                            todo.append(other)
        tight.update(room)
        return [found[number] for number in sorted(found)], room

    def _look(self, level: int, link: int, room: dict[int, float]) -> bool:
        """Return True if a link binds a flow of a level, and record its spare capacity."""
        free = self._capacity[link] - self._spared[level][link]
        for used in self._above[level]:
            free -= used[link]
        if not self._greedy[level][link] and self._caps[level][link] <= free * (1.0 + ROUNDING):
            return False
        room[link] = max(0.0, free)
        return True

    def _set_rate(self, flow: FluidFlow, rate_bytes_per_s: float, now_s: float) -> None:
        self._take(flow, rate_bytes_per_s - flow.rate_bytes_per_s)
        flow.moved_bytes, flow.since_s = flow.moved(now_s), now_s
        flow.rate_bytes_per_s = rate_bytes_per_s
        flow.version += 1
        end_s = flow.end_s()
        if end_s < inf:
            heappush(self._ends, (end_s, flow.number, flow.version, flow))


def max_min(
    flows: Sequence[tuple[float, tuple[int, ...]]], room: Mapping[int, float], parallel: Sequence[float] | None = None
) -> list[float]:
    """Return max-min fair rates of flows, each (cap, links), where links without a `room` do not bind.

    `parallel`: for how many equal flows each stands, by default one. Progressive filling: the level rises until a flow
    reaches its cap or a link is full; the flows concerned are settled there.
    """
    rates = [cap for cap, _ in flows]
    if not room:
        return rates
    many = parallel if parallel is not None else [1.0] * len(flows)
    on = {link: [n for n, (_, path) in enumerate(flows) if link in path] for link in room}
    left = dict(room)
    rising = {n for some in on.values() for n in some}
    for n in sorted(rising, key=lambda n: (flows[n][0] / many[n], n)):
        while n in rising:
            counts = {link: sum([many[m] for m in some if m in rising]) for link, some in on.items()}
            levels = [(left[link] / count, link) for link, count in counts.items() if count]
            level, link = min(levels)
            capped = flows[n][0] <= level * many[n]
            for m in [n] if capped else [m for m in on[link] if m in rising]:
                rising.discard(m)
                rates[m] = flows[n][0] if capped else level * many[m]
                for each in flows[m][1]:
                    if each in left:
                        left[each] = max(0.0, left[each] - rates[m])
    return rates
