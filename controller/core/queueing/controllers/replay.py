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
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from math import exp, inf

from controller.core.queueing.controllers.arrivals import Arrivals, RecordedArrivals
from controller.core.queueing.controllers.controller import Controller
from controller.core.queueing.replay import ReplayOutcome, Rule

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
        self.history.job(now_s)

    def spot(self, now_s: float) -> None:
        """Record the offer."""
        self.history.spot(now_s)

    def lost(self, made_s: float) -> None:
        """Take the offer out of the record."""
        self.history.lost(made_s)

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
