"""Gangs as their users see them: each attempt of all ranks once, where they were, and what its end cost.

To the journal a gang is n jobs (docs/how/gangs.md); here ranks with one attempt number are put together again. What an end cost
is told twice: the work that the gang does again, once (`lost_s`), and the time of all its GPUs for that (`lost_gpu_s`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from experiments.results.history import OVER, Attempt
from experiments.results.losses import LostSteps
from testbed.ranks import Rank, rank_of


@dataclass
class GangAttempt:
    """One attempt of a gang; `ended_s` None: it was there when the journal ended."""

    gang: str
    attempt: int
    size: int  # ranks that the gang has
    ranks: dict[int, Attempt] = field(default_factory=dict)  # by number
    lost_s: float = 0.0  # work of one rank that the gang does again: the most of any
    lost_gpu_s: float = 0.0  # of all ranks together
    # ranks that begin the next attempt on another host, by number -> that host; None: no attempt has followed
    moved: dict[int, str] | None = None

    @property
    def hosts(self) -> list[str]:
        """The hosts by rank."""
        return [self.ranks[number].host for number in sorted(self.ranks)]

    @property
    def dispatched_s(self) -> float:
        """When the first rank was."""
        return min(rank.dispatched_s for rank in self.ranks.values())

    @property
    def running_s(self) -> float | None:
        """When the last rank was there, so that all computed; None: never."""
        times = [rank.running_s for rank in self.ranks.values()]
        known = [at_s for at_s in times if at_s is not None]
        return max(known) if len(known) == self.size else None

    @property
    def ended_s(self) -> float | None:
        """When the first rank ended, and with it the computing."""
        return min((rank.ended_s for rank in self.ranks.values() if rank.ended_s is not None), default=None)

    @property
    def how(self) -> str:
        """How the first rank ended, as in `history`; empty: it has not."""
        ended = [rank for rank in self.ranks.values() if rank.ended_s is not None]
        return min(ended, key=lambda rank: rank.ended_s or 0.0).how if ended else ""

    @property
    def from_step(self) -> int:
        """The step that all began from."""
        return min(rank.from_step for rank in self.ranks.values())


def gang_attempts(found: Sequence[Attempt], lost: Iterable[LostSteps] = ()) -> list[GangAttempt]:
    """All attempts of gangs, those of one gang one behind the other, gangs in order of their first dispatch."""
    of_gang: dict[str, dict[int, GangAttempt]] = {}
    for attempt in found:
        if (rank := rank_of(attempt.job)) is not None:
            tries = of_gang.setdefault(rank.gang, {})
            one = tries.setdefault(attempt.attempt, GangAttempt(rank.gang, attempt.attempt, rank.ranks))
            one.ranks[rank.number] = attempt
    for steps in lost:
        whose: Rank | None = rank_of(steps.job)
        if whose is not None and steps.attempt in of_gang.get(whose.gang, {}):
            one = of_gang[whose.gang][steps.attempt]
            one.lost_s, one.lost_gpu_s = max(one.lost_s, steps.work_s), one.lost_gpu_s + steps.work_s
    for tries in of_gang.values():
        for before, after in pairwise(tries.values()):
            before.moved = {
                number: rank.host
                for number, rank in sorted(after.ranks.items())
                if number in before.ranks and before.ranks[number].host != rank.host
            }
    return [one for tries in of_gang.values() for one in tries.values()]


def is_interrupted(one: GangAttempt) -> bool:
    """Whether it ended before its gang did."""
    return one.ended_s is not None and one.how not in OVER
