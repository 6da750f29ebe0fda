"""The recorded past: when jobs came and when offers came.

It does not depend on which were admitted, so any rule can be tried on it (notes on paper B: replay instead of
gradient).

The window is bounded in events: the last so many jobs, and four times as many offers. It begins at an offer, where
the age of the gap is known. Draws are not recorded but made: the multiples of the golden section modulo 1, the same
for every rule. They are spread evenly over any stretch of jobs, so p means p with less noise than in independent
draws.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np

from controller.core.queueing.replay import (
    QueueState,
    ReplayOutcome,
    Rule,
    replay,
)
from controller.numerics.arrays import Floats

OFFERS_A_JOB = 4  # kept at most; where offers are more frequent still, no job waits long
GOLDEN = (5.0**0.5 - 1.0) / 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """A stretch of the past, from `began_s`, when an offer was made, on; times in seconds, sorted."""

    began_s: float
    jobs_s: Floats
    spots_s: Floats
    offer_ttl_s: float
    draws: Floats = field(init=False)

    def __post_init__(self) -> None:
        places = np.arange(len(self.jobs_s), dtype=np.float64)
        object.__setattr__(self, "draws", places * GOLDEN % 1.0)

    def __len__(self) -> int:
        return len(self.jobs_s) + len(self.spots_s)

    def run(self, rule: Rule, record: bool = False) -> ReplayOutcome:
        """Replay the rule over the arrivals; takes O(len) steps."""
        start = QueueState(last_spot_s=self.began_s)
        return replay(rule, self.jobs_s, self.spots_s, self.draws, self.offer_ttl_s, start, record=record)

    def gaps_s(self) -> Floats:
        """Return the times between offers, in order; those made at the same moment count once."""
        gaps = np.diff(self.spots_s, prepend=self.began_s)
        return gaps[gaps > 0.0]

    def halves(self) -> tuple[Arrivals, Arrivals]:
        """Return the older and the newer half of the jobs; both begin at an offer."""
        return self._between(0, len(self.jobs_s) // 2), self._between(len(self.jobs_s) // 2, len(self.jobs_s))

    def _between(self, first: int, beyond: int) -> Arrivals:
        """Return the jobs of these places that came after the first offer behind the job before them."""
        since_s = self.jobs_s[first - 1] if first else self.began_s
        until_s = self.jobs_s[beyond - 1] if beyond else self.began_s
        spots_s = self.spots_s[(self.spots_s > since_s) & (self.spots_s <= until_s)]
        if first:
            since_s, spots_s = (spots_s[0], spots_s[1:]) if len(spots_s) else (until_s, spots_s)
        jobs_s = self.jobs_s[first:beyond]
        return Arrivals(since_s, jobs_s[jobs_s >= since_s], spots_s, self.offer_ttl_s)


class RecordedArrivals:
    """A record of arrivals as they happen. ValueError: a window below 1."""

    def __init__(self, window: int, offer_ttl_s: float) -> None:
        if window < 1:
            raise ValueError(f"window {window}: at least one job")
        self.offer_ttl_s = offer_ttl_s
        self._jobs_s: deque[float] = deque(maxlen=window)
        self._spots_s: deque[float] = deque(maxlen=OFFERS_A_JOB * window)
        self._lost: Counter[float] = Counter()

    def job(self, now_s: float) -> None:
        """Record a job."""
        self._jobs_s.append(now_s)

    def spot(self, now_s: float) -> None:
        """Record an offer."""
        self._spots_s.append(now_s)

    def lost(self, made_s: float) -> None:
        """Remove an offer that no new job could take."""
        self._lost[made_s] += 1

    def since_s(self, jobs: int) -> float:
        """Return the times from the arrivals of the last so many jobs to the last of these, added up; O(jobs)."""
        last = list(self._jobs_s)[max(0, len(self._jobs_s) - jobs) :]
        return sum(self._jobs_s[-1] - came_s for came_s in last)

    @property
    def jobs(self) -> int:
        """Number of recorded jobs."""
        return len(self._jobs_s)

    @property
    def spots(self) -> int:
        """Number of recorded offers."""
        return len(self._spots_s) - self._lost.total()

    def arrivals(self) -> Arrivals:
        """Return a copy, from the first offer of which all is known; O(window). ValueError: no offer has been made."""
        if not len(self._spots_s) > self._lost.total():
            raise ValueError("no offer has been made yet: the past begins with one")
        # offers that were not lost; what was lost before the window began is forgotten
        lost, seen, kept_s = self._lost.copy(), Counter[float](), list[float]()
        for made_s in self._spots_s:
            if lost[made_s] > 0:
                lost[made_s] -= 1
                seen[made_s] += 1
            else:
                kept_s.append(made_s)
        self._lost = seen
        jobs_s, spots_s = np.array(self._jobs_s, np.float64), np.array(kept_s, np.float64)
        if len(jobs_s) == self._jobs_s.maxlen:
            spots_s = spots_s[max(0, np.searchsorted(spots_s, jobs_s[0], "right") - 1) :]
        began_s = float(spots_s[0])
        return Arrivals(began_s, jobs_s[jobs_s >= began_s], spots_s[1:], self.offer_ttl_s)
