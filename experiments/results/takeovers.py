"""Take-overs of a run: how long the campus was without a coordinator, and the jobs that stopped for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Any

from controller.core.model import facts as f
from experiments.results.run_context import COORDINATORS, Death


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A coordinator that died, and the one that led next."""

    died_s: float
    subject: str
    leads_s: float  # after that
    whole_s: float  # after that: all agents are back
    agents: int
    stopped: list[str]  # jobs, since their agents were lost

    def __str__(self) -> str:
        stopped = f"jobs stopped: {', '.join(self.stopped)}" if self.stopped else "no job stopped"
        return (
            f"{self.subject} died at {self.died_s:.1f} s: the other led after {self.leads_s:.2f} s, "
            f"all {self.agents} agents were back after {self.whole_s:.2f} s, {stopped}"
        )


def take_overs(facts: Sequence[tuple[float, Any]], deaths: Sequence[Death]) -> Iterator[TakeOver]:
    """Yield one for each time that a coordinator began again, after a death."""
    for place, (at_s, fact) in enumerate(facts):
        before = [death for death in deaths if death.subject in COORDINATORS and death.at_s <= at_s]
        if isinstance(fact, f.CoordinatorRestarted) and before:
            after = list(takewhile(lambda timed: not isinstance(timed[1], f.CoordinatorRestarted), facts[place + 1 :]))
            back = {each.host: joined_s for joined_s, each in reversed(after) if isinstance(each, f.HostJoined)}
            stopped = [each.job for _, each in after if isinstance(each, f.JobStopped) and each.cause == "agent_lost"]
            died_s, whole_s = before[-1].at_s, max((back.get(host, inf) for host in fact.hosts), default=at_s)
            yield TakeOver(died_s, before[-1].subject, at_s - died_s, whole_s - died_s, len(fact.hosts), stopped)
