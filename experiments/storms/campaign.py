"""Storms by the thousand: seeds dealt to all cores, faults counted together.

Each storm stands alone, so neither the process that plays it nor the order matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field

from experiments.runtime.workers import workers
from experiments.storms.generate import generate
from experiments.storms.play import StormFailure, play

CHUNK = 8  # storms a task: some seconds


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
    chunks = [seeds[first : first + CHUNK] for first in range(0, len(seeds), CHUNK)]
    with workers(min(processes, len(chunks))) as pool:
        for future in as_completed([pool.submit(play_some, chunk, campus_file, policy) for chunk in chunks]):
            part = future.result()
            campaign.storms += part.storms
            campaign.events += part.events
            campaign.counts += part.counts
            campaign.failed = dict(sorted((campaign.failed | part.failed).items()))
            progress(campaign)
    return campaign


def play_some(seeds: Sequence[int], campus_file: str | None = None, policy: str | None = None) -> Campaign:
    """Play these storms here, one after the other."""
    part = Campaign()
    for seed in seeds:
        outcome = play(generate(seed, campus_file=campus_file, policy=policy))
        part.storms += 1
        part.events += outcome.events
        part.counts += outcome.counts
        if outcome.failure is not None:
            part.failed[seed] = outcome.failure
    return part
