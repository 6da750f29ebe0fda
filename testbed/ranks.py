"""Names of a gang's ranks, and which of their checkpoints a store keeps.

A gang is a job of several ranks. Each rank is a job of its own to all that carries, stores or counts, under a name that says
whose it is: `train.0of4` is rank 0 of the four of `train`. So nothing that knows a checkpoint only by its job needs to be told
that it is a part, on a disk neither.

A checkpoint of a gang is the parts of all ranks under one sequence number, and is complete when all of them are. So a store
may not drop a part because a newer one has come: that newer one may never be complete. It keeps the oldest part, below which
the coordinator has had everything dropped (`Forget`), and each that fewer than two newer ones of as much work follow: the one
that completes, the one that follows, and what an attempt that began further back has not yet computed again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

MOST_RANKS: Final = 64
MOST_NAMES: Final = 4096  # that are remembered: of all jobs that run at once, on the largest campus
NEWEST_KEPT: Final = 2  # parts of a rank that computed on, beside the oldest
_RANK: Final = re.compile(r"(.+)\.(0|[1-9][0-9]?)of([1-9][0-9]?)")


class Rank(NamedTuple):
    """Which rank of which gang."""

    gang: str
    number: int  # from 0
    ranks: int


def rank_name(gang: str, number: int, ranks: int) -> str:
    """What that rank is called."""
    return f"{gang}.{number}of{ranks}"


@lru_cache(maxsize=MOST_NAMES)
def rank_of(job: str) -> Rank | None:
    """Whose rank a job of this name is; None: it is a job of one."""
    found = _RANK.fullmatch(job)
    if found is None:
        return None
    number, ranks = int(found[2]), int(found[3])
    return Rank(found[1], number, ranks) if number < ranks and ranks > 1 else None


def gang_of(job: str) -> str:
    """The name of its gang; of a job of one, its own."""
    rank = rank_of(job)
    return job if rank is None else rank.gang


def superseded(job: str, steps: Mapping[int, int], arrived: int) -> list[int]:
    """Those of a job's checkpoints in a store that are of no use to it since `arrived` is there too.

    `steps` has the step of each by its sequence number, of `arrived` too.
    """
    if rank_of(job) is None:
        return [sequence for sequence in steps if sequence < arrived]

    def followers(number: int) -> int:
        return sum(later > number and step >= steps[number] for later, step in steps.items())

    return [number for number in sorted(steps)[1:] if number != arrived and followers(number) >= NEWEST_KEPT]
