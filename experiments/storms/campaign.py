"""Storms by the thousand: seeds dealt to all cores, faults counted together, failures shrunk.

Each storm stands alone, so neither the process that plays it nor the order matters. Of the storms that fail in the same way
only the first is shrunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import as_completed
from dataclasses import dataclass, field, replace

from experiments.runtime.workers import workers
from experiments.storms.generate import generate
from experiments.storms.play import StormFailure, play
from experiments.storms.script import Script
from experiments.storms.shrink import shrink

CHUNK = 8  # storms a task: some seconds
MAX_SHRUNK = 12  # kinds of failures; more than that is one bug that shows everywhere


@dataclass(frozen=True, slots=True)
class FailedStorm:
    """A storm that broke something; `shrunk` is its shortest script that still does."""

    seed: int
    failure: StormFailure
    shrunk: Script | None = None

    def told(self) -> str:
        """Return its story: what was broken, the shrunk script, and what happened to its subject."""
        lines = [f"storm {self.seed}: {self.failure.subject}: {self.failure.rule}"]
        if self.shrunk is not None:
            lines += ["", *(f"    {line}" for line in str(self.shrunk).splitlines()), ""]
        return "\n".join([*lines, *(f"  {line}" for line in self.failure.story)])


@dataclass
class Campaign:
    """The results of all storms so far."""

    storms: int = 0
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[FailedStorm] = field(default_factory=list)

    def add(self, other: Campaign) -> None:
        """Take in the results of other storms."""
        self.storms += other.storms
        self.events += other.events
        self.counts += other.counts
        self.failed = sorted([*self.failed, *other.failed], key=lambda failed: failed.seed)

    @property
    def admissions(self) -> str:
        """Return how many migrations were admitted, and how many of them were judged to be in time or late."""
        admitted = sum(count for key, count in self.counts.items() if key.startswith("admission: "))
        judged = self.counts["admission: judged"]
        share = f" ({judged / admitted:.0%})" if admitted else ""
        return f"Of {admitted} admitted migrations {judged}{share} were judged to be in time or late."


def run(
    seeds: range,
    *,
    campus_file: str | None = None,
    policy: str | None = None,
    processes: int = 1,
    progress: Callable[[Campaign], None] = lambda _: None,
) -> Campaign:
    """Play all, then shrink the first of each kind that failed. SpecError: nothing can be played."""
    campaign, where = Campaign(), (campus_file, policy)
    chunks = [seeds[first : first + CHUNK] for first in range(0, len(seeds), CHUNK)]
    with workers(min(processes, len(chunks))) as pool:
        for future in as_completed([pool.submit(_play_some, chunk, *where) for chunk in chunks]):
            campaign.add(future.result())
            progress(campaign)
        first: dict[str, FailedStorm] = {}
        for failed in campaign.failed:
            first.setdefault(failed.failure.kind, failed)
        shrinking = [pool.submit(_shrink_one, each, *where) for each in [*first.values()][:MAX_SHRUNK]]
        shrunk = {short.seed: short for short in (future.result() for future in shrinking)}
    campaign.failed = [shrunk.get(failed.seed, failed) for failed in campaign.failed]
    return campaign


def _play_some(seeds: range, campus_file: str | None, policy: str | None) -> Campaign:
    part = Campaign()
    for seed in seeds:
        outcome = play(generate(seed, campus_file=campus_file, policy=policy))
        failed = [] if outcome.failure is None else [FailedStorm(seed, outcome.failure)]
        part.add(Campaign(1, outcome.events, outcome.counts, failed))
    return part


def _shrink_one(failed: FailedStorm, campus_file: str | None, policy: str | None) -> FailedStorm:
    """Shrink it, and add the story of the short one."""
    short = shrink(generate(failed.seed, campus_file=campus_file, policy=policy), failed.failure)
    return replace(failed, shrunk=short, failure=play(short, tells_story=True).failure or failed.failure)
