"""Research traffic in the fluid network, and what its receivers take in, window by window.

A flow is one connection: among several ways it takes the one of its hash. It goes on until one of its ends is closed, and again,
as another connection, when it is open. Windows are a second long as live, or longer in long runs, so that a run has at most
MAX_WINDOWS; one in which the flow began, was cut, or took another way counts only for others. So do all windows of flows that
are not greedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from experiments.inputs.scenario import ResearchFlow
from experiments.inputs.traces.generated import MAX_OPEN, flow_arrivals
from experiments.results.run_context import FlowCompletion, ResearchSample
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.scheduler import Priority
from topologies.paths import Routes, Way
from topologies.spec import DirectedLink, TrafficClass

WINDOW_S = 1.0
MAX_WINDOWS = 200


@dataclass(slots=True, eq=False)
class _Running:
    flow: ResearchFlow
    key: str
    size_bytes: float = inf
    began_s: float = 0.0
    hashes: dict[str, float] = field(default_factory=dict)  # of the connection, by switch
    way: Way = ()  # that it takes
    left: Way = ()  # ways that it took before, since the window began
    is_on: bool = False
    was_cut: bool = True  # since the window began, or had no way
    moved_bytes: float = 0.0  # at the beginning of the window
    stopped_bytes: float = 0.0  # moved in this window before it was cut
    capacity_bytes_per_s: float = 0.0  # of its path, then


class ResearchTraffic:
    """The scenario's research flows. `seed`: of those that have sizes."""

    def __init__(self, env: Environment, flows: Sequence[ResearchFlow], duration_s: float, seed: int) -> None:
        self._env, self.completions = env, list[FlowCompletion]()
        sized = [(flow, number) for number, flow in enumerate(flows) if flow.sizes is not None]
        self._streams = [(flow, flow_arrivals(flow, number, seed)) for flow, number in sized]
        self._flows = [_Running(flow, f"research {n}") for n, flow in enumerate(flows) if flow.sizes is None]
        self._measures, self._begun = any(flow.greedy for flow in flows), 0
        self._since_s = 0.0  # when the window began
        self._described = Routes(env.campus)
        self._window_s = max(WINDOW_S, duration_s / MAX_WINDOWS)
        self.samples: list[ResearchSample] = []

    def begin(self) -> None:
        """Start all senders."""
        for each in self._flows:
            self._turn_on(each)
        for flow, arrivals in self._streams:
            self._await(flow, arrivals, self._env.now_s)
        self._since_s = self._env.now_s
        if self._measures:
            self._env.after(self._window_s, self._window, Priority.TIMER)

    def add(self, flow: ResearchFlow) -> None:
        """Start one more sender now."""
        self._flows.append(_Running(flow, f"research {len(self._flows)}"))
        if not self._is_shut(self._flows[-1]):
            self._turn_on(self._flows[-1])
        if flow.greedy and not self._measures:
            self._measures = True
            self._env.after(self._window_s, self._window, Priority.TIMER)

    def _await(self, flow: ResearchFlow, arrivals: Iterator[tuple[float, int]], begin_s: float) -> None:
        """Have the next flow of a stream begin at its time; one that cannot connect is cut at once."""
        at_s, size_bytes = next(arrivals)

        def arrive() -> None:
            self._await(flow, arrivals, begin_s)
            self._begun += 1
            each = _Running(flow, f"research flow {self._begun}", size_bytes, self._env.now_s)
            if self._is_shut(each) or sum(other.flow is flow for other in self._flows) >= MAX_OPEN:
                self.completions.append(FlowCompletion(self._env.now_s, size_bytes, None))
            else:
                self._flows.append(each)
                self._turn_on(each)

        self._env.scheduler.at(begin_s + at_s, arrive, Priority.OWNER)

    def _arrived(self, each: _Running) -> None:
        """Account for a flow whose last byte is there."""
        each.stopped_bytes += each.size_bytes - each.moved_bytes
        self._over(each, self._env.now_s - each.began_s)

    def _over(self, each: _Running, took_s: float | None) -> None:
        each.is_on, each.left = False, (*each.left, *each.way)
        if self._measures:
            self._end_window(each, self._env.now_s - self._since_s)
        self._flows.remove(each)
        self.completions.append(FlowCompletion(self._env.now_s, int(each.size_bytes), took_s))

    def switched(self, host: str, *, closed: bool) -> None:
        """Stop or start the flows of a host that was shut off, or is open again."""
        for each in [*self._flows]:
            if host in (each.flow.source, each.flow.target):
                if closed and each.is_on:
                    each.stopped_bytes += self._env.network.stop(each.key).moved_bytes - each.moved_bytes
                    each.is_on, each.was_cut = False, True
                    each.left = (*each.left, *each.way)
                    if each.flow.sizes is not None:
                        self._over(each, None)
                elif not closed and not self._is_shut(each):
                    self._turn_on(each)

    def follow_routes(self) -> None:
        """Move all flows to the present ways."""
        for each in self._flows:
            if each.is_on:
                way = self._way(each)
                if way != each.way:
                    self._env.network.reroute(each.key, way)
                    each.way, each.left = way, (*each.left, *each.way)
                each.was_cut |= not self._env.routes.is_carried(way)

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
        sized = flow.sizes is not None
        cap, done = inf if sized else flow.rate_bytes_per_s, partial(self._arrived, each) if sized else None
        yields, each.is_on, each.moved_bytes = flow.transport == "tcp", True, 0.0
        env.network.start(each.key, each.way, TrafficClass.RESEARCH, each.size_bytes, cap, done, yields=yields)
        each.capacity_bytes_per_s = env.capacity[self._narrowest(each)]

    def _window(self) -> None:
        self._since_s = self._env.now_s
        for each in self._flows:
            self._end_window(each, self._window_s)
        self._env.after(self._window_s, self._window, Priority.TIMER)

    def _end_window(self, each: _Running, window_s: float) -> None:
        env, flow, taken_bytes, capacity, judged = self._env, each.flow, each.stopped_bytes, 0.0, 0.0
        way, narrowest = each.left, None
        if each.is_on:
            moved_bytes = env.network.fluid.flow(each.key).moved(env.now_s)
            taken_bytes += moved_bytes - each.moved_bytes
            way, narrowest = (*each.way, *each.left), self._narrowest(each)
            capacity, each.moved_bytes = env.capacity[narrowest], moved_bytes
            if flow.greedy and capacity == each.capacity_bytes_per_s and not (each.was_cut or each.left):
                judged = capacity
            if narrowest == self._described.bottleneck(flow.source, flow.target)[1]:
                narrowest = None
        if judged or taken_bytes or not each.was_cut:
            reserve = env.campus.research_reserve.reserve_bytes_per_s(judged)
            ends = (flow.source, flow.target)
            sample = ResearchSample(env.now_s, window_s, *ends, judged, reserve, taken_bytes, narrowest, way)
            self.samples.append(sample)
        each.was_cut, each.left, each.stopped_bytes = not each.is_on, (), 0.0
        each.capacity_bytes_per_s = capacity
