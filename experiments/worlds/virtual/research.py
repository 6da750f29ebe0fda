"""Research traffic in the fluid network, and what its receivers take in, window by window.

A flow is one connection: among several ways it takes the one of its hash. It goes on until one of its ends is closed, and again,
as another connection, when it is open. Windows are a second long as live, or longer in
long runs, so that a run has at most MOST_WINDOWS; one in which the flow was cut is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from experiments.inputs.scenario import ResearchFlow
from experiments.results.run_context import ResearchSample
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.scheduler import Priority
from topologies.paths import Routes, Way
from topologies.spec import DirectedLink, TrafficClass

WINDOW_S = 1.0
MOST_WINDOWS = 200


@dataclass(slots=True, eq=False)
class _Running:
    flow: ResearchFlow
    key: str
    hashes: dict[str, float] = field(default_factory=dict)  # of the connection, by switch
    way: Way = ()  # that it takes
    is_on: bool = False
    was_cut: bool = True  # since the window began
    moved_bytes: float = 0.0  # at the beginning of the window
    capacity_bytes_per_s: float = 0.0  # of its path, then


class ResearchTraffic:
    """The scenario's research flows."""

    def __init__(self, env: Environment, flows: Sequence[ResearchFlow], duration_s: float) -> None:
        self._env = env
        self._flows = [_Running(flow, f"research {number}") for number, flow in enumerate(flows)]
        self._described = Routes(env.campus)
        self._window_s = max(WINDOW_S, duration_s / MOST_WINDOWS)
        self.samples: list[ResearchSample] = []

    def begin(self) -> None:
        """All senders start."""
        for each in self._flows:
            self._turn_on(each)
        if any(each.flow.greedy for each in self._flows):
            self._env.after(self._window_s, self._window, Priority.TIMER)

    def add(self, flow: ResearchFlow) -> None:
        """One more sender starts now."""
        began = any(each.flow.greedy for each in self._flows)
        self._flows.append(_Running(flow, f"research {len(self._flows)}"))
        if not self._is_shut(self._flows[-1]):
            self._turn_on(self._flows[-1])
        if flow.greedy and not began:
            self._env.after(self._window_s, self._window, Priority.TIMER)

    def switched(self, host: str, *, closed: bool) -> None:
        """A host was shut off, or is open again."""
        for each in self._flows:
            if host in (each.flow.source, each.flow.target):
                if closed and each.is_on:
                    self._env.network.stop(each.key)
                    each.is_on, each.was_cut = False, True
                elif not closed and not self._is_shut(each):
                    self._turn_on(each)

    def follow_routes(self) -> None:
        """All flows go on by the ways that are now; a window in which one was moved, or had none, is left out."""
        for each in self._flows:
            if each.is_on:
                way = self._way(each)
                if way != each.way or not self._env.routes.is_carried(way):
                    self._env.network.reroute(each.key, way)
                    each.way, each.was_cut = way, True

    def _is_shut(self, each: _Running) -> bool:
        machines = self._env.machines
        ends = (each.flow.source, each.flow.target)
        return any(machines[end].closed for end in ends if end in machines)

    def _way(self, each: _Running) -> Way:
        def hash_at(switch: str) -> float:
            if switch not in each.hashes:
                each.hashes[switch] = self._env.streams.of("hash", each.key).random()
            return each.hashes[switch]

        return self._env.hashed_way(each.flow.source, each.flow.target, hash_at)

    def _narrowest(self, each: _Running) -> DirectedLink:
        return min(each.way, key=self._env.capacity.__getitem__)

    def _turn_on(self, each: _Running) -> None:
        if each.is_on:
            return
        env, flow = self._env, each.flow
        each.hashes.clear()
        each.way = self._way(each)
        cap = inf if flow.greedy else flow.rate_bytes_per_s
        env.network.start(each.key, each.way, TrafficClass.RESEARCH, inf, cap)
        each.is_on, each.moved_bytes = True, 0.0
        each.capacity_bytes_per_s = env.capacity[self._narrowest(each)]

    def _window(self) -> None:
        env = self._env
        for each in self._flows:
            if each.is_on and each.flow.greedy:
                flow, moved = each.flow, env.network.fluid.flow(each.key).moved(env.now_s)
                narrowest, (_, described) = (
                    self._narrowest(each),
                    self._described.bottleneck(flow.source, flow.target),
                )
                capacity = env.capacity[narrowest]
                if not each.was_cut:
                    judged = capacity if capacity == each.capacity_bytes_per_s else 0.0
                    sample = ResearchSample(
                        env.now_s,
                        self._window_s,
                        flow.source,
                        flow.target,
                        judged,
                        env.campus.research_reserve.reserve_bytes_per_s(judged),
                        moved - each.moved_bytes,
                        narrowest if narrowest != described else None,
                        each.way,
                    )
                    self.samples.append(sample)
                each.was_cut, each.moved_bytes, each.capacity_bytes_per_s = False, moved, capacity
        env.after(self._window_s, self._window, Priority.TIMER)
