"""How long a checkpoint takes, at a rate, between two hosts: the virtual world's own arithmetic, with every draw at its worst.

A checkpoint at rate r is complete `overhead_s` + C/r after its snapshot was begun. A store takes only what it lacks, so if a
step rewrites a share f of the state, one that follows another to the same host within m steps has min(1, m f) C to carry.
Where that converges (f C/r below a step), an oracle sends a whole one and then smaller and smaller ones, and loses only the
time of the last: `chain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf

from experiments.virtual.costs import Costs
from testbed.enforcement import PACING_SHARE
from topologies.paths import Routes
from topologies.spec import DirectedLink

SAFETY_S = 0.05  # messages between the hosts and the coordinator, on top of what is computed
LEAST_GAIN = 0.02  # of a checkpoint's time: a further one that saves less is not sent
MOST_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Chain:
    """Checkpoints one after the other: the first begins `total_s` before the last is complete; each begins `begins_s` after
    the first. `lead_s`: from the last one's snapshot until it is complete, which is what is lost."""

    lead_s: float
    total_s: float
    begins_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Carriage:
    """`share_bytes_per_s` is what may be granted on each link, payload."""

    routes: Routes
    share_bytes_per_s: Mapping[DirectedLink, float]
    overhead_s: float
    restart_s: float

    def links(self, source: str, destination: str) -> tuple[DirectedLink, ...]:
        """The links that a checkpoint crosses."""
        return self.routes.route(source, destination)

    def rate_bytes_per_s(self, source: str, destination: str) -> float:
        """The highest grant on an empty network; infinite to itself."""
        return min((self.share_bytes_per_s[link] for link in self.links(source, destination)), default=inf)

    def lead_s(self, payload_bytes: float, grant_bytes_per_s: float) -> float:
        """From the begin of a snapshot until its checkpoint is complete; inf without bandwidth."""
        if grant_bytes_per_s <= 0.0:
            return inf
        return self.overhead_s + payload_bytes / (grant_bytes_per_s * PACING_SHARE)

    def chain(
        self, payload_bytes: float, dirty_fraction: float, step_s: float, grant_bytes_per_s: float
    ) -> Chain:
        """The shortest chain whose last checkpoint is (nearly) the smallest that can be; one, where more do not help."""
        lead_s = self.lead_s(payload_bytes, grant_bytes_per_s)
        begins_s, total_s = [0.0], lead_s
        while lead_s < inf and len(begins_s) < MOST_ROUNDS:
            dirty = min(1.0, ceil(lead_s / step_s) * dirty_fraction)
            next_s = self.lead_s(payload_bytes * dirty, grant_bytes_per_s)
            if next_s > lead_s * (1.0 - LEAST_GAIN):
                break
            begins_s.append(total_s)
            lead_s, total_s = next_s, total_s + next_s
        return Chain(lead_s, total_s, tuple(begins_s))


def overhead_of(costs: Costs, delay_s: float) -> float:
    """All of a checkpoint's time that is not on the wire, at most: order, snapshot, handshake, commit, word of it."""
    return (
        costs.snapshot_s[1] + costs.connect_s + costs.commit_s + 4.0 * (costs.message_s + delay_s) + SAFETY_S
    )
