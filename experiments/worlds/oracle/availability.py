"""Future of the hosts that an oracle knows: when each is lent, and how it will be taken back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from experiments.inputs.scenario import OwnerEvent
from experiments.inputs.traces import Trace
from topologies.spec import Campus, Role


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

    def at(self, host: str, at_s: float) -> Stay | None:
        """Return the stay that a moment falls into; None while its owner has the host."""
        place = bisect_right(self._from_s[host], at_s) - 1
        if place < 0:
            return None
        stay = self.stays[host][place]
        return stay if at_s < stay.until_s else None

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
