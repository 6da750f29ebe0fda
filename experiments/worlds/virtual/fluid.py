"""The fluid network on the scheduler: flows that end do something, and every change of rates is seen by the egress counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf

from experiments.worlds.virtual.egress import Egress
from experiments.worlds.virtual.scheduler import Priority, Scheduler
from testbed.model.network import FluidFlow, FluidNetwork
from topologies.spec import DirectedLink, TrafficClass


class ScheduledNetwork:
    """A fluid network whose time is the scheduler's."""

    def __init__(self, scheduler: Scheduler, fluid: FluidNetwork, egress: Egress) -> None:
        self.fluid, self.egress = fluid, egress
        self._scheduler = scheduler
        self._done: dict[str, Callable[[], None]] = {}
        self._armed_s = inf

    def start(
        self,
        key: str,
        links: Sequence[DirectedLink],
        traffic_class: TrafficClass,
        size_bytes: float,
        cap_bytes_per_s: float,
        done: Callable[[], None] | None = None,
        parallel: float = 1.0,
    ) -> None:
        """Start a flow (or `parallel` equal ones as one); `done` is called when its last byte is there."""
        if done is not None:
            self._done[key] = done
        now_s = self._scheduler.now_s
        self._changed(
            self.fluid.start(key, links, traffic_class, size_bytes, cap_bytes_per_s, now_s, parallel)
        )

    def regrant(self, key: str, cap_bytes_per_s: float) -> None:
        """Set another cap for a flow."""
        self._changed(self.fluid.regrant(key, cap_bytes_per_s, self._scheduler.now_s))

    def regrant_all(self, caps_bytes_per_s: Mapping[str, float]) -> None:
        """Set other caps for many flows at once."""
        self._changed(self.fluid.regrant_all(caps_bytes_per_s, self._scheduler.now_s))

    def reroute(self, key: str, links: Sequence[DirectedLink]) -> None:
        """Set another path for a flow."""
        self._changed(self.fluid.reroute(key, links, self._scheduler.now_s))

    def stop(self, key: str) -> FluidFlow:
        """Cut a flow; return it with the bytes that it moved."""
        self._done.pop(key, None)
        flow, changed = self.fluid.stop(key, self._scheduler.now_s)
        self.egress.ended(flow)
        self._changed(changed)
        return flow

    def set_capacity(self, link: DirectedLink, capacity_bytes_per_s: float) -> None:
        """Set a link's capacity: slower, faster, or down (0)."""
        self._changed(self.fluid.set_capacity(link, capacity_bytes_per_s, self._scheduler.now_s))

    def _changed(self, flows: list[FluidFlow]) -> None:
        """Count the new rates; one event on the heap stands for the next end of a flow."""
        self.egress.changed(flows)
        end_s = self.fluid.next_end_s()
        if end_s < self._armed_s:
            self._armed_s = end_s
            self._scheduler.at(end_s, partial(self._flows_end, end_s), Priority.NETWORK)

    def _flows_end(self, armed_s: float) -> None:
        if armed_s != self._armed_s:
            return  # an earlier end has come in between, and stands for those after it
        self._armed_s = inf
        finished, changed = self.fluid.finish(self._scheduler.now_s)
        for flow in finished:
            self.egress.ended(flow)
        self._changed(changed)
        for flow in finished:
            if done := self._done.pop(flow.key, None):
                done()
