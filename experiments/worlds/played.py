"""A run that was played, in whichever world: its facts, and what was measured beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.core.model.facts import HostJoined
from controller.core.policies.table import Policy
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace
from experiments.inputs.traces.reclaim_law import law_of
from experiments.results.accounting import summarise
from experiments.results.history import History, Timed
from experiments.results.rules import not_promised
from experiments.results.run_context import RunContext, migration_shares
from experiments.results.summary import Summary


@dataclass(frozen=True)
class Played:
    """A run: its facts, (seconds, fact) in the journal's order, and its context."""

    facts: Sequence[Timed]
    context: RunContext

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", History(self.facts))

    def summary(self) -> Summary:
        """Return the figures, with every promise checked."""
        return summarise(self.facts, self.context)


def context_of(scenario: Scenario, trace: Trace, row: Policy) -> RunContext:
    """Return the context for judging a run of a scenario (in real units) under a row; the world adds its measurements."""
    played = scenario.played()
    return RunContext(
        seed=scenario.seed,
        scale=scenario.scale,
        campus=played.campus,
        share=migration_shares(played.campus, keeps_reserve=row.enforced),
        scenario=scenario.name,
        policy=scenario.protocol.policy,
        not_promised=not_promised(row),
        keeps_reserve=row.enforced,
        borrows=row.borrows,
        on_demand_cost=played.queue.on_demand_cost,
        level_max=played.queue.level_max,
        target_delay_s=played.queue.target_delay_s,
        replica_slowdown=0.0 if row.interruption.replication is None else row.interruption.replication.slowdown,
        day_s=played.owners.day_s,
        day_start_s=played.owners.day_start_s,
        reclaims=None if row.interruption.stays else law_of(scenario, trace),
    )


def agents_registered_s(facts: Iterable[Timed]) -> float:
    """Return the moment at which the last agent registered for the first time; 0 if none did."""
    first: dict[str, float] = {}
    for at_s, fact in facts:
        if isinstance(fact, HostJoined):
            first.setdefault(fact.host, at_s)
    return max(first.values(), default=0.0)
