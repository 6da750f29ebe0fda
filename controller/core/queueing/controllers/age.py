"""Level and ages by replay: whether a job may join also depends on how long ago the last offer was.

The ages (`shapes`) and r are fitted to the recorded arrivals; r after every `every` arrivals, as in `replay`, with the
measured delay in the books; the ages when the past is half as long again, later after every half window. A shape is sought on
each half of the past and tried on the other. If that saves jobs for sure, the better of the two is refined on all of the
past; if not, the shape in use, which proved itself once, stays as long as it saves anything on the newer half; and else
this is `Replay`.

A search replays some 400 shapes about 7 times each, over half of the past. There are two after half as many arrivals
as the past has: ten thousand steps for each arrival, about one window. They go on in slices (`work`), after those of
the fit of r to the shape in use, which goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from math import inf
from typing import Any

from controller.core.queueing.controllers.age_rules import (
    PLAIN,
    ShapeSearch,
    proves,
    saving,
)
from controller.core.queueing.controllers.arrivals import Arrivals
from controller.core.queueing.controllers.replay import (
    MIN_SPOTS,
    Replay,
    Search,
    Sliced,
    bisect_level,
)
from controller.core.queueing.replay import Rule

FIRST_SEARCH = 50  # arrivals: before, no shape could prove itself


class Age(Replay):
    """Level and ages by replay; parameters are those of `Replay`."""

    def __init__(self, target_delay_s: float, **parameters: Any) -> None:
        super().__init__(target_delay_s, **parameters)
        self._search_at = min(FIRST_SEARCH, self.window)
        self._searching = Sliced(self.window)

    @property
    def shape(self) -> Rule:
        """The ages of the rule in use."""
        return replace(self.rule, level=PLAIN.level)

    def work(self) -> bool:
        """Do a slice of the fit of r if that is due, else of the search for a shape."""
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
        level, outcome = yield from bisect_level(arrivals, shape, aim_s, self.r_max)
        self.rule = replace(shape, level=self._believed(level, outcome, aim_s))

    def _choose(self, arrivals: Arrivals) -> Generator[int, None, Rule]:
        """Find a new shape if seeking one pays on jobs that it was not sought on; else keep the one in use, if it still does."""
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

    def _trial(self, past: Arrivals, shape: Rule) -> Generator[int, None, tuple[float, float]]:
        return saving(past, shape, self.balance.target_delay_s, self.r_max)
