"""Level r by replay: of all levels, the one that would have met the target delay on the recorded arrivals.

The gradient step of Algorithm 1 has to wait for delays, which are noisy, and needs a step size and a good start. But
the arrivals of jobs and offers do not depend on r, so the past can be run again for any r. The mean delay grows with
r, so bisection finds the r whose delay is the aim (`balance`). No step, no r_0 after the first few jobs.

A past in which even r_max would have been quick enough leaves r open; then the books decide: r rises by a step while
the measured delay is below delta, and falls by one while it is above.

One replay takes as long as its window; a bisection takes `HALVINGS` of them. `work` does a slice of at most one window
and is called between decisions: a decision only compares a draw with r.

**The aim** is what the average of all jobs so far needs to be delta (`Balance`). History shows which rule would have
kept delta, up to the noise of a finite window and to what a replay does not know: jobs that do not fit,
interruptions, offers withdrawn. None of it stays uncorrected: the debt E, the sum of (delay - delta) over all jobs
that left, is to be paid back over the next H jobs. The aim is delta exp(-E / (H delta)): about delta - E/H while the
debt is small, and above 0 when it is large. H is a twenty-fifth of the jobs so far, so the debt is a bounded random
walk: its standard deviation is that of H/2 jobs, not of all. That of a job is between .8 and 2.5 delta (notes). With
H = 400 the average of 10 000 jobs is within .4 % of delta at one sigma; a fixed rule has 2.5 %. H stays bounded, so a
replay that is wrong for ever is corrected too. It is not shorter still, because the aim then follows the noise. Cost
is convex in the delay, so an aim that moves costs more than one that stays. It is never shorter than twice the time
between two corrections, or they would overshoot.

A debt is paid at once if need be, savings are spent slowly. Where offers come in bursts, long silences are rare; none
may be in the past yet, and each adds to the delay of all that wait.

**The recorded past** is when jobs came and when offers came. It does not depend on which were admitted, so any rule
can be tried on it (notes on paper B: replay instead of gradient). The window is bounded in events: the last so many
jobs, and four times as many offers. It begins at an offer, where the age of the gap is known. Draws are not recorded
but made: the multiples of the golden section modulo 1, the same for every rule. They are spread evenly over any
stretch of jobs, so p means p with less noise than in independent draws.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from math import exp, inf

import numpy as np

from controller.core.queueing.controllers.controller import Controller
from controller.core.queueing.replay import QueueState, ReplayOutcome, Rule, replay
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
        self.jobs_s: deque[float] = deque(maxlen=window)
        self.spots_s: deque[float] = deque(maxlen=OFFERS_A_JOB * window)
        self.lost: Counter[float] = Counter()  # offers that no new job could take, by when they were made

    def since_s(self, jobs: int) -> float:
        """Return the times from the arrivals of the last so many jobs to the last of these, added up; O(jobs)."""
        last = list(self.jobs_s)[max(0, len(self.jobs_s) - jobs) :]
        return sum(self.jobs_s[-1] - came_s for came_s in last)

    @property
    def jobs(self) -> int:
        """Number of recorded jobs."""
        return len(self.jobs_s)

    @property
    def spots(self) -> int:
        """Number of recorded offers."""
        return len(self.spots_s) - self.lost.total()

    def arrivals(self) -> Arrivals:
        """Return a copy, from the first offer of which all is known; O(window). ValueError: no offer has been made."""
        if not len(self.spots_s) > self.lost.total():
            raise ValueError("no offer has been made yet: the past begins with one")
        # offers that were not lost; what was lost before the window began is forgotten
        lost, seen, kept_s = self.lost.copy(), Counter[float](), list[float]()
        for made_s in self.spots_s:
            if lost[made_s] > 0:
                lost[made_s] -= 1
                seen[made_s] += 1
            else:
                kept_s.append(made_s)
        self.lost = seen
        jobs_s, spots_s = np.array(self.jobs_s, np.float64), np.array(kept_s, np.float64)
        if len(jobs_s) == self.jobs_s.maxlen:
            spots_s = spots_s[max(0, np.searchsorted(spots_s, jobs_s[0], "right") - 1) :]
        began_s = float(spots_s[0])
        return Arrivals(began_s, jobs_s[jobs_s >= began_s], spots_s[1:], self.offer_ttl_s)


# ---------------------------------------------------------------- the level


# jobs of the past: they measure a delay to about 2 % (1 400 to 15 500 in the cases of paper B)
WINDOW = 10_000
MIN_JOBS, MIN_SPOTS = 8, 4  # before which r_0 holds: any guess from the past beats a bad r_0
SOONER = 0.2  # early on, r is fitted again when the past has grown by so much
HALVINGS = 14  # of [0, r_max]: r to r_max / 16 000
STEP = 0.5  # of r, at a fit whose past leaves r open
EXACT = 0.001  # relative error of the delay at which a bisection stops
SHORTEST, LONGEST = 50, 400  # jobs over which a debt is paid back: H
CORRECTIONS = 2  # in that time, at least
SHARE = 0.04  # H over the jobs so far
OWED, OWN = 3.0, 0.7  # most |E| / (H delta) in the aim: from delta / 20 to 2 delta
MEMORY = 10  # a debt of more than so many LONGEST H delta is forgotten

Search = Generator[int, None, None]  # yields the steps that it has just taken


class Sliced:
    """A search that goes on a slice at a time, each of `budget` steps or a little more."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._search: Search | None = None

    @property
    def idle(self) -> bool:
        """True if no search is under way."""
        return self._search is None

    def begin(self, search: Search) -> None:
        """Take up this search next."""
        self._search = search

    def slice(self) -> bool:
        """Do one slice of work; False: there was nothing to do."""
        if self._search is None:
            return False
        spent = 0
        for steps in self._search:
            spent += steps
            if spent + steps > self.budget:
                return True
        self._search = None
        return True


def bisect_level(
    arrivals: Arrivals, rule: Rule, aim_s: float, r_max: float
) -> Generator[int, None, tuple[float, ReplayOutcome]]:
    """Find the level in [0, r_max] of the rule at which the mean delay over `arrivals` is `aim_s` (or nearest).

    Returns it with its outcome; yields the steps of each replay.
    """
    low, high = 0.0, r_max
    level, outcome = r_max, arrivals.run(replace(rule, level=r_max))
    yield len(arrivals)
    if outcome.mean_delay_s <= aim_s:
        return level, outcome
    for _ in range(HALVINGS):
        level = (low + high) / 2.0
        outcome = arrivals.run(replace(rule, level=level))
        yield len(arrivals)
        if abs(outcome.mean_delay_s - aim_s) <= EXACT * aim_s:
            break
        low, high = (level, high) if outcome.mean_delay_s < aim_s else (low, level)
    return level, outcome


class Balance:
    """The cumulative delay error (s), corrected every `every` jobs. ValueError: a target that is no finite duration."""

    def __init__(self, target_delay_s: float, every: int = 1) -> None:
        if not 0.0 <= target_delay_s < inf:
            raise ValueError(f"target delay {target_delay_s} s: a finite duration of 0 or more")
        self.target_delay_s, self.every = target_delay_s, every
        self.jobs, self.debt_s = 0, 0.0

    def left(self, delay_s: float) -> None:
        """Record a job's delay."""
        self.jobs += 1
        bound_s = MEMORY * LONGEST * self.target_delay_s
        self.debt_s = min(bound_s, max(-bound_s, self.debt_s + delay_s - self.target_delay_s))

    def aim_s(self, pending_s: float = 0.0) -> float:
        """Return the mean delay that the coming jobs should have; `pending_s`: waits until now of jobs that have not left yet."""
        horizon = max(SHORTEST, CORRECTIONS * self.every, min(LONGEST, SHARE * self.jobs))
        if self.target_delay_s == 0.0:
            return 0.0
        relative = (self.debt_s + pending_s) / (horizon * self.target_delay_s)
        return self.target_delay_s * exp(-min(OWED, max(-OWN, relative)))


class Replay(Controller):
    """Level r from the recorded past, fitted again after every `every` arrivals (sooner at the start).

    `target_delay_s` is delta, of all jobs; `window`: jobs of the past that are kept. ValueError: a parameter that
    cannot work.
    """

    def __init__(
        self,
        target_delay_s: float,
        *,
        every: int = 100,
        r0: float = 1.0,
        r_max: float = 8.0,
        offer_ttl_s: float = 0.0,
        window: int = WINDOW,
    ) -> None:
        super().__init__(Rule(r0))
        if every < 1 or not r0 <= r_max < inf:
            raise ValueError(f"every {every}, r0 {r0}, r_max {r_max}: every >= 1 and r0 <= r_max < infinity")
        self.every, self.r_max, self.window = every, r_max, window
        self.balance, self.history = Balance(target_delay_s, every), RecordedArrivals(window, offer_ttl_s)
        self._arrived, self._fitted_at = 0, 0
        self._fitting = Sliced(window)

    def arrived(self, now_s: float) -> None:
        """Record the arrival."""
        self._arrived += 1
        self.history.jobs_s.append(now_s)

    def spot(self, now_s: float) -> None:
        """Record the offer."""
        self.history.spots_s.append(now_s)

    def lost(self, made_s: float) -> None:
        """Take the offer out of the record."""
        self.history.lost[made_s] += 1

    def left(self, delay_s: float) -> None:
        """Book the delay."""
        self.balance.left(delay_s)

    def work(self) -> bool:
        """Do a slice of the fit: replays of no more than one window of events in all, or one replay."""
        is_known = self.history.jobs >= MIN_JOBS and self.history.spots >= MIN_SPOTS
        if self._fitting.idle and is_known:
            due_after = min(self.every, max(1.0, SOONER * self._fitted_at))
            if self._arrived - self._fitted_at >= due_after:
                self._fitted_at = self._arrived
                self._fitting.begin(self._fit())
        return self._fitting.slice()

    def aim_s(self) -> float:
        """Return the mean delay to aim at now. The jobs that wait have waited at least since as many of the last arrivals."""
        return self.balance.aim_s(self.history.since_s(self._arrived - self.balance.jobs))

    def _fit(self) -> Search:
        arrivals = self.history.arrivals()
        aim_s = self.aim_s()
        level, outcome = yield from bisect_level(arrivals, self.rule, aim_s, self.r_max)
        self.hold(self._believed(level, outcome, aim_s))

    def _believed(self, level: float, outcome: ReplayOutcome, aim_s: float) -> float:
        """Return the level found, or, where the past leaves r open, a step from the present one towards the aim."""
        if level < self.r_max or outcome.mean_delay_s >= (1.0 - EXACT) * aim_s:
            return level
        up = aim_s >= self.balance.target_delay_s
        return min(self.r_max, self.level + STEP) if up else max(0.0, self.level - STEP)
