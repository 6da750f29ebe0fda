"""Storms by the thousand: seeds dealt to all cores, faults counted together.

Each storm stands alone, so neither the process that plays it nor the order matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from experiments.runtime.engines import Engine
from experiments.runtime.tasks import Task
from experiments.storms.generate import generate
from experiments.storms.play import StormFailure, StormOutcome, play


@dataclass
class Campaign:
    """The results of all storms so far; `failed`: by the number of the storm."""

    storms: int = 0
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[int, StormFailure] = field(default_factory=dict)

    @property
    def admissions(self) -> str:
        """Return how many migrations were admitted, and how many of them were judged to be in time or late."""
        admitted = sum(count for key, count in self.counts.items() if key.startswith("admission: "))
        judged = self.counts["admission: judged"]
        share = f" ({judged / admitted:.0%})" if admitted else ""
        return f"Of {admitted} admitted migrations {judged}{share} were judged to be in time or late."


def run(
    seeds: Sequence[int],
    *,
    campus_file: str | None = None,
    policy: str | None = None,
    processes: int = 1,
    progress: Callable[[Campaign], None] = lambda _: None,
) -> Campaign:
    """Play all, and report progress. SpecError: nothing can be played."""
    campaign = Campaign()
    tasks = [Task(f"storm {seed}", play_one, (seed, campus_file, policy)) for seed in seeds]
    with Engine(processes).opened(len(tasks)) as play_all:
        for task, outcome in play_all(tasks):
            campaign.storms += 1
            campaign.events += outcome.events
            campaign.counts += outcome.counts
            if outcome.failure is not None:
                campaign.failed[task.arguments[0]] = outcome.failure
            progress(campaign)
    campaign.failed = dict(sorted(campaign.failed.items()))
    return campaign


def play_one(seed: int, campus_file: str | None, policy: str | None) -> StormOutcome:
    """Play a storm; its facts are not brought back."""
    return replace(play(generate(seed, campus_file=campus_file, policy=policy)), facts=())
