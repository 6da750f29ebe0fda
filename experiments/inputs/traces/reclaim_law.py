"""The hazard that generated owners were drawn from, of which a trace shows one draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from experiments.inputs.scenario import Owners, Scenario
from experiments.inputs.traces.exact_counts import BURST_S, counted_events
from experiments.inputs.traces.generated import owner_events
from experiments.inputs.traces.streams import host_factor
from experiments.inputs.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class ReclaimLaw:
    """Emergencies (reclaims without notice and without grace) of one run, in the time in which it is played.

    A host that its owner lends is taken back with `factors[host]` times the hazard of `segments`. With `is_shared` (the
    campus as a whole has `owners.count` reclaims) it is divided by the sum of the factors of all hosts lent then.
    """

    owners: Owners
    duration_s: float
    factors: Mapping[str, float]  # of the hosts that follow the law: neither scripted nor loyal
    # of reclaims, all but those that follow another of their burst: nothing seen before announces these
    leading: float = 1.0

    @property
    def is_shared(self) -> bool:
        """True if hosts share a hazard of the campus; otherwise each has its own."""
        return self.owners.count is not None

    def segments(self, from_s: float) -> Iterator[tuple[float, float, float]]:
        """Return (start, end, emergencies per second) from a moment on, for ever."""
        owners = self.owners
        part = owners.emergency_share * (1.0 - owners.grace_share)
        if owners.count is not None:
            drawn = owners.exposure(0.0, max(0.0, self.duration_s - BURST_S))
            part *= owners.count / drawn if drawn > 0.0 else 0.0
        return ((start_s, end_s, part * hazard) for start_s, end_s, hazard in owners.segments(from_s))


def law_of(scenario: Scenario, trace: Trace) -> ReclaimLaw | None:
    """Return the law of a trace in the scenario's units; None where the scenario did not draw its owners, or has calendars."""
    owners = scenario.owners
    drawn = owner_events(scenario) if owners.count is None else counted_events(scenario).events
    if not trace.owner_events or trace.owner_events != drawn or any(host.lent for host in scenario.volunteers):
        return None
    apart = {*owners.loyal, *(event.host for event in owners.script)}
    followers = (host.name for host in scenario.volunteers if host.name not in apart)
    played = scenario.played()
    factors = {name: host_factor(owners, name, scenario.seed) for name in followers}
    reclaimed_s = sorted(event.at_s for event in drawn if event.kind != "return") if owners.burst > 1 else []
    following = sum(next_s - at_s <= BURST_S for at_s, next_s in pairwise(reclaimed_s))
    leading = 1.0 - following / max(1, len(reclaimed_s))
    return ReclaimLaw(played.owners, played.duration_s, factors, leading)
