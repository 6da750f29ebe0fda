"""Events of a live campus's switches for its coordinator: trunks that die or come back, and others' traffic on trunks.

Trunks are those of a programmed network. Its controller reports when a port goes down, for any cause
(`openflow.jsonl`), and the coordinator plans on the routes that the controller's tables have from then on. A dead
controller reports nothing, but its tables do not change either. Counters are the kernel's, of the research class of
each trunk's end, for bridges and for Open vSwitch alike: OpenFlow's are later, or do not separate research from
migrations.
"""

from __future__ import annotations

import time

from controller.core.network.counted import CountedTraffic, trunks
from testbed.emulation.campus import LiveCampus
from testbed.emulation.description.shaping import RESEARCH_CLASS, ROOT_CLASS

LOOK_S = 0.05
Rates = list[tuple[str, str, float]]  # source, target, wire bytes/s


class NetworkWatch:
    """`count_s`: the time between two readings of the counters; None: they are not read."""

    def __init__(self, campus: LiveCampus, count_s: float | None) -> None:
        self._campus, self._count_s = campus, count_s
        self._said, self._size, self._counted_s = 0, 0, 0.0
        self._dead: frozenset[frozenset[str]] = frozenset()
        links = trunks(campus.spec) if count_s is not None else []
        capacity = campus.spec.capacity_bytes_per_s
        self._traffic = CountedTraffic({link: capacity[link] for link in links})
        self._links = links

    @property
    def has_work(self) -> bool:
        """True if there is anything to see."""
        return bool(self._links) or self._controller_runs

    @property
    def _controller_runs(self) -> bool:
        return self._campus.openflow is not None and self._campus.openflow.is_ours

    def hears_of(self, a: str, b: str) -> bool:
        """Return whether it is a trunk of which the network's own controller reports failures."""
        return self._controller_runs and {a, b} <= self._campus.plan.openflow.keys()

    def changed(self) -> Rates:
        """Return trunks that the controller has reported since the last call, with their present rates."""
        openflow = self._campus.openflow
        if openflow is None or not openflow.is_ours:
            return []
        size = openflow.events.stat().st_size if openflow.events.exists() else 0
        if size == self._size:
            return []
        events, self._size = openflow.read_events(), size
        dead = set(self._dead)
        for event in events[self._said :]:
            if event["event"] == "trunk":
                (dead.discard if event["up"] else dead.add)(frozenset(event["between"]))
            elif event["event"] == "programmed":
                dead = {frozenset(ends) for ends in event["dead"]}
        moved, self._dead, self._said = dead ^ self._dead, frozenset(dead), len(events)
        rates: Rates = []
        for trunk in sorted(moved, key=sorted):
            cable = self._campus.plan.cable_between(*sorted(trunk))
            for end, other in ((cable.a, cable.b), (cable.b, cable.a)):
                rates.append(
                    (end.node, other.node, 0.0 if trunk in dead else float(end.shape.rate_bytes_per_s))
                )
        return rates

    def counted(self) -> Rates:
        """Return others' traffic on changed trunks; nothing before it is time to read again."""
        now_s = time.monotonic()
        if self._count_s is None or now_s < self._counted_s + self._count_s:
            return []
        self._counted_s = now_s
        counters = self._campus.trunk_counters()
        sent = {link: float(counters[link][RESEARCH_CLASS].sent_bytes) for link in self._links}
        everything = {link: float(counters[link][ROOT_CLASS].sent_bytes) for link in self._links}
        self._traffic.read(now_s, sent, everything)
        return self._traffic.take_news()
