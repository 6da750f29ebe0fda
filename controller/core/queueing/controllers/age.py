"""Level and ages by replay: whether a job may join also depends on how long ago the last offer was.

The ages (`shapes`) and r are fitted to the recorded arrivals; r after every `every` arrivals, as in `replay`, with the
measured delay in the books; the ages when the past is half as long again, later after every half window. A shape is sought on
each half of the past and tried on the other. If that saves jobs for sure, the better of the two is refined on all of the
past; if not, the shape in use, which proved itself once, stays as long as it saves anything on the newer half; and else
this is `Replay`.

A search replays some 400 shapes about 7 times each, over half of the past, and there are two after half as many
arrivals as the past has: ten thousand steps for each arrival, about one window. They go on in slices (`work`), after those of
the fit of r to the shape in use, which goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import Unpack

from controller.core.queueing.controllers.age_rules import (
    PLAIN,
    RuleShape,
    ShapeSearch,
    proves,
    saving,
)
from controller.core.queueing.controllers.arrivals import Arrivals
from controller.core.queueing.controllers.replay import (
    MIN_SPOTS,
    Replay,
    ReplayParameters,
    Search,
    Sliced,
    bisect_level,
)
from controller.core.queueing.replay import Rule

FIRST_SEARCH = 50  # arrivals: before, no shape could prove itself


class Age(Replay):
    """Parameters are those of `Replay`."""

    def __init__(self, target_delay_s: float, **parameters: Unpack[ReplayParameters]) -> None:
        super().__init__(target_delay_s, **parameters)
        self.shape = PLAIN
        self._search_at = min(FIRST_SEARCH, self.window)
        self._searching = Sliced(self.window)

    def follow(self, shape: RuleShape, level: float) -> None:
        """Decide by this shape at this level from now on."""
        self.shape = shape
        self.hold(level)
        self.admit_until_age_s, self.admit_from_age_s = shape.until_s, shape.from_s
        self.leave_at_age_s, self.fewer = shape.leave_s, shape.fewer

    def rule_at(self, level: float) -> Rule:
        """The shape in use, at another level."""
        return self.shape.rule(level)

    def work(self) -> bool:
        """A slice of the fit of r if that is due, else of the search for a shape."""
        if super().work():
            return True
        if self._searching.idle and self._arrived >= self._search_at and self.history.spots >= MIN_SPOTS:
            self._search_at = self._arrived + max(1, min(self._arrived // 2, self.window // 2))
            self._searching.begin(self._reshape())
        return self._searching.slice()

    def _reshape(self) -> Search:
        arrivals = self.history.arrivals()
        shape = yield from self._choose(arrivals)
        if shape == self.shape:
            return
        aim_s = self.aim_s()
        level, outcome = yield from bisect_level(arrivals, shape.rule, aim_s, self.r_max)
        self.follow(shape, self._believed(level, outcome, aim_s))

    def _choose(self, arrivals: Arrivals) -> Generator[int, None, RuleShape]:
        """A new shape if seeking one pays on jobs that it was not sought on; else the one in use, if it still does."""
        older, newer = arrivals.halves()
        found, trials = [], []
        for sought_on, tried_on in ((older, newer), (newer, older)):
            search = ShapeSearch(sought_on, self.balance.target_delay_s, self.r_max)
            yield from search.run()
            found.append(search.best)
            trials.append((yield from self._trial(tried_on, search.best)))
        found = found if proves(trials) else []
        if self.shape != PLAIN:
            saved, _ = yield from self._trial(newer, self.shape)
            found += [self.shape] if saved > 0.0 else []
        polish = ShapeSearch(arrivals, self.balance.target_delay_s, self.r_max)
        yield from polish.refine(*found)
        return polish.best if polish.prices.get(polish.best, inf) < inf else PLAIN

    def _trial(self, past: Arrivals, shape: RuleShape) -> Generator[int, None, tuple[float, float]]:
        return saving(past, shape, self.balance.target_delay_s, self.r_max)
