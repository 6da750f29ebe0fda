"""Counters of switches' ports in the virtual campus: others' traffic on trunks, read periodically and sent to the coordinator."""

from __future__ import annotations

from controller.core.model.events import LinksMeasured
from controller.core.network.counted import CountedTraffic, trunks
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.scheduler import Priority
from topologies.spec import TrafficClass
from topologies.units import PAYLOAD_SHARE


class VirtualCounters:
    """Counters of every trunk, from `begin` on. A flow counts with the rate that it has at each reading."""

    def __init__(self, env: Environment, connections: Connections, period_s: float) -> None:
        self._env, self._connections, self._period_s = env, connections, period_s
        self.links = frozenset(trunks(env.campus))
        capacity = env.campus.capacity_bytes_per_s
        self._counted = CountedTraffic({link: capacity[link] for link in trunks(env.campus)})
        self._bytes = dict.fromkeys(trunks(env.campus), 0.0)
        self._all_bytes = dict(self._bytes)

    def begin(self) -> None:
        """Take the first reading; the others follow."""
        env = self._env
        self._counted.read(env.now_s, self._bytes, self._all_bytes)
        env.after(self._period_s, self._read, Priority.TIMER)

    def _read(self) -> None:
        env = self._env
        for flow in env.network.fluid.flows():
            sent_bytes = flow.rate_bytes_per_s / PAYLOAD_SHARE * self._period_s
            for link in self.links.intersection(flow.links):
                self._all_bytes[link] += sent_bytes
                if flow.traffic_class is TrafficClass.RESEARCH:
                    self._bytes[link] += sent_bytes
        self._counted.read(env.now_s, self._bytes, self._all_bytes)
        if not self._connections.refused and (news := self._counted.take_news()):
            env.decide(LinksMeasured(news))
        env.after(self._period_s, self._read, Priority.TIMER)
