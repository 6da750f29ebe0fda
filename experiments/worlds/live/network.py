"""Events of a live campus's switches for its coordinator: trunks that die or come back.

Trunks are those of a programmed network. Its controller reports when a port goes down, for any cause
(`openflow.jsonl`). From then on the coordinator plans on the routes that the controller's tables have. A dead
controller reports nothing, but its tables do not change either.
"""

from __future__ import annotations

from testbed.emulation.campus import LiveCampus

LOOK_S = 0.05
Rates = list[tuple[str, str, float]]  # source, target, wire bytes/s


class NetworkWatch:
    """A reader of what the network's own controller reports."""

    def __init__(self, campus: LiveCampus) -> None:
        self._campus = campus
        self._said = self._size = 0
        self._dead: frozenset[frozenset[str]] = frozenset()

    @property
    def has_work(self) -> bool:
        """True if the network has a controller of this project's."""
        return self._campus.openflow is not None and self._campus.openflow.is_ours

    def hears_of(self, a: str, b: str) -> bool:
        """Return whether it is a trunk of which the network's own controller reports failures."""
        return self.has_work and {a, b} <= self._campus.plan.openflow.keys()

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
                rates.append((end.node, other.node, 0.0 if trunk in dead else float(end.shape.rate_bytes_per_s)))
        return rates
