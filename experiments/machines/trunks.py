"""Measurement of the trunks between machines before a run: by which hosts, and what these can send if it is as declared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from testbed.emulation.fidelity import LinkRate
from topologies.paths import Routes
from topologies.spec import Campus, Link
from topologies.units import GBIT_PER_S, PAYLOAD_SHARE

MAX_RATE_BYTES_PER_S = 2.0 * GBIT_PER_S  # that is asked for: a faster trunk is not filled
MAX_PAIRS = 4


@dataclass(frozen=True)
class Crossing:
    """A trunk between two machines, and the hosts that measure it: each sends to one on the other machine."""

    link: Link
    pairs: tuple[tuple[str, str], ...]
    rate_bytes_per_s: float  # that these can send over it at once, on the wire

    def rate(self, taken: float) -> LinkRate:
        """Return what its receivers took in together, payload bytes/s, beside what was to be expected."""
        declared = self.rate_bytes_per_s * PAYLOAD_SHARE
        whole = self.rate_bytes_per_s >= MAX_RATE_BYTES_PER_S
        return LinkRate(self.link.a, self.link.b, declared, min(taken, declared) if whole else taken)


def crossings(campus: Campus) -> list[Crossing]:
    """Return the trunks between machines that hosts can measure. Hosts with the fastest links are taken, each once."""
    routes, place = Routes(campus), campus.machine_of
    hosts = sorted(
        campus.hosts, key=lambda host: -min(link.rate_bytes_per_s for link in campus.neighbours[host.name].values())
    )
    found = []
    for trunk in (link for link in campus.links if place[link.a] != place[link.b]):
        left = {link: link.rate_bytes_per_s for link in campus.links}
        left[trunk] = min(left[trunk], MAX_RATE_BYTES_PER_S)
        pairs: list[tuple[str, str]] = []
        taken = 0.0
        sides = [[host.name for host in hosts if place[host.name] == place[end]] for end in (trunk.a, trunk.b)]
        for source, target in product(*sides):
            way = routes.links_of(source, target)
            share = min(left[link] for link in way)
            if trunk in way and share > 0.0 and not {source, target} & {end for pair in pairs for end in pair}:
                for link in way:
                    left[link] -= share
                pairs.append((source, target))
                taken += share
            if len(pairs) == MAX_PAIRS or left[trunk] <= 0.0:
                break
        if pairs:
            found.append(Crossing(trunk, tuple(pairs), taken))
    return found
