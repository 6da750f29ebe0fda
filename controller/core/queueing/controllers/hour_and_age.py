"""Level by the hour of the day and the age of the gap, where the hour tells something; else what `Age` does.

Two fits of tables (`hour_rules`) stand beside the shape that `Age` has found: one whose rates depend on the age of the gap
alone, one whose rates depend on the hour too. As shapes do, each has to save jobs for sure on the halves of the past that it was
not fitted to: the first more than the shape, the second more than whatever has been best until then. For sure means that over
all searches of an endless run, together, tables that save nothing are followed with a probability of `ERRS` at most: search m
spends ERRS / (m (m + 1)) of it, half on each test (`age_rules.caution_of`). On Poisson offers and jobs, where there is nothing
to be saved, the first search followed tables in .2, 1.0 and 1.8 % of some 4 000 pasts of 30, 100 and 300 jobs, the third in
none, .05 and .2 %, where 2.5 and .4 % are allowed. So where hours are alike, or peaks move from day to day until the hour tells
nothing, it is not followed. Tables in use stay as long as they save anything over the shape on the newer half. r, the mean level
over the time, is fitted to the measured delay as in `Replay`.

A fit solves some ten dynamic programs, in all 30 to 200 windows of work, a day of each at a time; there are six at most after
each search for a shape, which takes several times as long.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Unpack

from controller.core.queueing.controllers.age import Age
from controller.core.queueing.controllers.age_rules import RuleShape, Shape, caution_of, proves, saving
from controller.core.queueing.controllers.arrivals import Arrivals
from controller.core.queueing.controllers.hour_rules import HourShape, fit
from controller.core.queueing.controllers.replay import (
    LEAST_JOBS,
    LEAST_SPOTS,
    ReplayParameters,
    Search,
    bisect_level,
)
from controller.core.queueing.replay import Rule

# the customary level of a test; of two halves of 1 000 jobs the first search then asks for 2.4 standard errors, the tenth for 4.1
ERRS = 0.05


class HourAndAge(Age):
    """Parameters of `Age`; a day has `day_s` seconds, and `day_start_s` is the time of day at time 0."""

    def __init__(
        self,
        target_delay_s: float,
        *,
        day_s: float,
        day_start_s: float = 0.0,
        **parameters: Unpack[ReplayParameters],
    ) -> None:
        super().__init__(target_delay_s, **parameters)
        self.day_s, self.day_start_s = day_s, day_start_s
        self.hours: HourShape | None = None  # in use in place of the shape
        self._searches = 0

    def hold(self, level: float) -> None:
        """Decide at this level from now on."""
        super().hold(level)
        self.table = None if self.hours is None else self.hours.table(level)

    def rule_at(self, level: float) -> Rule:
        """What is in use, at another level."""
        return super().rule_at(level) if self.hours is None else self.hours.rule(level)

    def _reshape(self) -> Search:
        arrivals = self.history.arrivals()
        shape = yield from self._choose(arrivals)
        hours = yield from self._choose_hours(arrivals, shape)
        if shape == self.shape and hours is self.hours:
            return
        aim_s = self.aim_s()
        rule_at = shape.rule if hours is None else hours.rule
        level, outcome = yield from bisect_level(arrivals, rule_at, aim_s, self.r_max)
        level = self._believed(level, outcome, aim_s)
        self.hours = hours
        self.follow(shape, level)

    def _choose_hours(self, arrivals: Arrivals, shape: RuleShape) -> Generator[int, None, HourShape | None]:
        """Tables that save jobs for sure over the shape, by hour if that saves more; else those in use, if they still do."""
        aim_s, halves = self.balance.target_delay_s, arrivals.halves()
        best: tuple[Shape, Shape] = (shape, shape)
        chosen = None
        if not all(len(half.jobs_s) >= LEAST_JOBS and len(half.spots_s) >= LEAST_SPOTS for half in halves):
            return None
        self._searches += 1
        errs = ERRS / (2.0 * self._searches * (self._searches + 1))
        sure = caution_of([len(half.jobs_s) for half in halves], errs)
        for by_hour in (False, True):
            fits, trials = [], []
            for sought_on, tried_on, against in zip(halves, halves[::-1], best, strict=True):
                found = yield from self._fit_tables(sought_on, by_hour)
                fits.append(found)
                trials.append((yield from saving(tried_on, found, aim_s, self.r_max, against)))
            if proves(trials, sure):
                best, chosen = (fits[0], fits[1]), by_hour
        if chosen is not None:
            return (yield from self._fit_tables(arrivals, chosen))
        if self.hours is None:
            return None
        saved, _ = yield from saving(halves[1], self.hours, aim_s, self.r_max, shape)
        return self.hours if saved > 0.0 else None

    def _fit_tables(self, arrivals: Arrivals, by_hour: bool) -> Generator[int, None, HourShape]:
        target_s = self.balance.target_delay_s
        return fit(arrivals, target_s, self.r_max, self.day_s, self.day_start_s, by_hour)
