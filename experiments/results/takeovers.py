"""Take-overs of a run: how long the campus was without a coordinator, and the jobs that stopped for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
        if not isinstance(fact, f.CoordinatorRestarted) or not before:
            continue
        died, back, stopped = before[-1], dict.fromkeys(fact.hosts, at_s), list[str]()
        for later_s, later in facts[place + 1 :]:
            if isinstance(later, f.CoordinatorRestarted):
                break
            if isinstance(later, f.HostJoined) and back.get(later.host) == at_s:
                back[later.host] = later_s
            elif isinstance(later, f.JobStopped) and later.cause == "agent_lost":
                stopped.append(later.job)
        whole_s = max(back.values(), default=at_s)
        yield TakeOver(died.at_s, died.subject, at_s - died.at_s, whole_s - died.at_s, len(back), stopped)
