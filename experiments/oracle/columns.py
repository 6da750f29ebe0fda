"""An oracle as columns of a policy: destinations are looked up, and checkpoints are nobody's business but the plan's.

Where the plan has nothing to say (a job that came out of the queue, a host that is not there after all), a destination is chosen
by eq. (11) with the truth in the place of the survival: 1 if the host stays until the job is over, else 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf

import numpy as np

from controller.core import placement
from controller.core.checkpointing import BETA, Bound, CheckpointJob, CheckpointPlan, Interval
from controller.core.placement import Candidate, Candidates, Choice, Missing, NoDestination, Request
from experiments.oracle.book import Book
from topologies.spec import DirectedLink

NEVER = Interval(inf, Bound.YOUNG, False, False, 0.0, 0.0)


@dataclass(frozen=True)
class Destinations:
    """P2. `at_first`: new jobs go where `book` says; else where the paper's P2 sends them."""

    book: Book
    now_s: Callable[[], float]
    at_first: bool

    def __call__(
        self, request: Request, candidates: Sequence[Candidate] | Candidates, *, draw: float = 0.0
    ) -> Choice | NoDestination:
        """A standby is never chosen here: the plan's checkpoints bring theirs."""
        if request.source is not None and request.notice_s is None:
            return NoDestination(Missing.CANDIDATE)
        columns = candidates if isinstance(candidates, Candidates) else Candidates.of(candidates)
        wanted = self.book.wanted(request.job)
        if wanted is not None:
            found = placement.select(request, _rows(columns, columns.hosts == wanted))
            if isinstance(found, Choice):
                return found
        elif not self.at_first and request.job not in self.book.where:
            return placement.select(request, columns, draw=draw)
        return placement.select(request, self._foreseen(columns, request.remaining_s))

    def _foreseen(self, columns: Candidates, remaining_s: float) -> Candidates:
        now_s = self.now_s()
        stays = [self.book.future.at(str(host), now_s) for host in columns.hosts]
        ends = np.array([-inf if stay is None else stay.until_s for stay in stays], dtype=float)
        survives = np.where(ends >= now_s + remaining_s, 1.0, 0.0)
        return replace(columns, survival=survives, expected_reclaims=1.0 - survives)


def _rows(columns: Candidates, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Candidates:
    return Candidates(*(getattr(columns, each.name)[which] for each in fields(Candidates)))


@dataclass(frozen=True)
class Checkpoints:
    """P1. No timers; the rate of a checkpoint that the plan has begun is the plan's, and all others have none."""

    book: Book

    def __call__(
        self, jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float = BETA
    ) -> dict[str, CheckpointPlan]:
        """Called like `checkpointing.plan`."""
        granted = self.book.granted_bytes_per_s
        return {job.key: CheckpointPlan(granted.get(job.key, 0.0), NEVER, None) for job in jobs}
