"""Ways of a migration on campuses with several between two hosts, in the order in which P3 is asked for them.

Links that stay half empty come first, as a migration would rather start half-way through its notice (`migration`), which doubles
the rate that it needs. The first way is the tree's, so what fits there goes there. What two migrations send from one host to
another goes the same way, because a switch tells pairs of hosts apart and not jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from controller.core.admission.admission import (
    Commitments,
    LinkShares,
    committed_rates,
    minimum_rate,
)
from controller.core.admission.schedule import MigrationRequest
from topologies.paths import Way

COMFORTABLE = 0.5  # of a link's share: up to here ways are taken as they come


def emptiest_first(
    ways: Sequence[Way], asked: MigrationRequest, now_s: float, share: LinkShares, committed: Commitments
) -> list[Way]:
    """Return the ways on which every link stays half empty, as they come; then the others by their fullest link."""
    taken, within_s = committed_rates(committed, now_s), asked.deadline_s - max(now_s, asked.start_s)
    needed = minimum_rate(asked.payload_bytes, within_s, asked.restart_s)
    rate = needed if needed < inf else 0.0

    def fullest(way: Way) -> float:
        carried = [(taken.get(link, 0.0) + rate, share[link]) for link in way]
        return max((load / of if of > 0.0 else inf for load, of in carried if load > 0.0), default=0.0)

    return sorted(ways, key=lambda way: max(COMFORTABLE, fullest(way)))
