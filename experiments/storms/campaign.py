"""Storms by the thousand: seeds dealt to all cores, what was reached counted together, what failed shrunk.

Each storm stands alone, so the result depends neither on the process that plays it nor on the order. Of the storms that fail
in the same way one is shrunk: the others are most often the same bug.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from experiments.runtime.engines import Engine
from experiments.runtime.tasks import Task
from experiments.storms.generate import generate
from experiments.storms.play import StormFailure, play
from experiments.storms.script import Script
from experiments.storms.shrink import shrink

CHUNK = 8  # storms a task: some two seconds
MOST_SHRUNK = 12  # kinds of failures; more than that is one bug that shows everywhere


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """What is to be played: seeds from `first` to `last` - 1."""

    first: int
    last: int
    campus_file: str | None = None
    policy: str | None = None
    trunks: bool = False  # campuses have several paths, and trunks die

    def script(self, seed: int) -> Script:
        """The storm of one of them."""
        return generate(seed, campus_file=self.campus_file, policy=self.policy, trunks=self.trunks)


@dataclass(frozen=True, slots=True)
class FailedStorm:
    """A storm that broke something; `shrunk` once it was."""

    seed: int
    failure: StormFailure
    shrunk: Script | None = None


@dataclass
class Campaign:
    """What came of them all."""

    plan: CampaignPlan
    storms: int = 0
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    storms_with: Counter[str] = field(default_factory=Counter)  # in how many storms it happened at all
    failed: list[FailedStorm] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """What came of a few."""

    storms: int
    events: int
    counts: Counter[str]
    storms_with: Counter[str]
    failed: list[FailedStorm]


def run(
    plan: CampaignPlan, engine: Engine | None = None, *, progress: Callable[[Campaign], None] = lambda _: None
) -> Campaign:
    """Play all, then shrink one of each kind that failed. `progress` is called now and then. SpecError: nothing can be played."""
    campaign = Campaign(plan)
    plan.script(plan.first)
    chunks = [
        Task(f"storms from {first}", _play_some, (plan, first, min(first + CHUNK, plan.last)))
        for first in range(plan.first, plan.last, CHUNK)
    ]
    with (engine or Engine()).opened(len(chunks)) as play_all:
        for _, part in play_all(chunks):
            campaign.storms += part.storms
            campaign.events += part.events
            campaign.counts.update(part.counts)
            campaign.storms_with.update(part.storms_with)
            campaign.failed += part.failed
            progress(campaign)
        campaign.failed.sort(key=lambda failed: failed.seed)
        kinds = [
            Task(f"storm {each.seed}", _shrink_one, (plan, each)) for each in one_of_each(campaign.failed)
        ]
        shrunk = {failed.seed: failed for _, failed in play_all(kinds)}
    campaign.failed = [shrunk.get(failed.seed, failed) for failed in campaign.failed]
    return campaign


def one_of_each(failed: Sequence[FailedStorm]) -> list[FailedStorm]:
    """The first of each kind, at most MOST_SHRUNK."""
    first: dict[str, FailedStorm] = {}
    for each in failed:
        first.setdefault(each.failure.kind, each)
    return list(first.values())[:MOST_SHRUNK]


def _play_some(plan: CampaignPlan, first: int, last: int) -> _Part:
    counts: Counter[str] = Counter()
    storms_with: Counter[str] = Counter()
    events, failed = 0, []
    for seed in range(first, last):
        outcome = play(plan.script(seed))
        events += outcome.events
        counts.update(outcome.counts)
        storms_with.update(outcome.counts.keys())
        if outcome.failure is not None:
            failed.append(FailedStorm(seed, outcome.failure))
    return _Part(last - first, events, counts, storms_with, failed)


def _shrink_one(plan: CampaignPlan, failed: FailedStorm) -> FailedStorm:
    """Shrink it, and add the story of the short one."""
    short = shrink(plan.script(failed.seed), failed.failure)
    told = play(short, tells_story=True).failure or failed.failure
    return replace(failed, shrunk=short, failure=told)
