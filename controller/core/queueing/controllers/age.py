"""Level and ages by replay: whether a job may join also depends on how long ago the last offer was.

The ages (`shapes`) and r are fitted to the recorded arrivals; r after every `every` arrivals, as in `replay`, with the
measured delay in the books; the ages when the past is half as long again, later after every half window. A shape is sought on
each half of the past and tried on the other. If that saves jobs for sure, the better of the two is refined on all of the
past; if not, the shape in use, which proved itself once, stays as long as it saves anything on the newer half; and else
this is `Replay`.

A search replays some 400 shapes about 7 times each, over half of the past. There are two after half as many arrivals
as the past has: ten thousand steps for each arrival, about one window. They go on in slices (`work`), after those of
the fit of r to the shape in use, which goes on meanwhile.

**A shape** is at which ages of the gap jobs may join and must leave. Where offers are not Poisson, the age of the gap
(the time since the last offer) shows when the next one may come. With bath-tub spots it comes soon after the last one
or near the 24 h limit: to wait in between is waste. So: admit at an age below a1 or from a2 on, and jobs that wait at
age a3 leave. Where delta allows for several that wait, no job needs to be refused in between: the queue's limit is
lower then by so many (`fewer`). Three ages, that number and the level r come within 1 or 2 % of the optimum over all
policies on queue length and age. (That is an LP; notes, "beyond the paper".) A shape's price is the share of jobs
that it sends to on-demand when r makes the mean delay the aim: k does not matter. That r is not needed for it, since
share and delay follow one smooth curve as r grows, from (1, 0) at r = 0. So two points of it near the aim are enough.

The price is a step function of the ages, with noise, so derivatives are of no use. The search first tries the
families that theory suggests (only early: hazard falls with age; only late: it rises; both: bath-tub). The grid of
ages is half quantiles of the gaps and half evenly spaced. Then, from the best two, it tries one age at a time over
the whole grid until nothing is better; then smaller steps around the best.

A past of some hundred jobs always has a shape that would have fitted it better by chance. So it is sought on one half
of the past and tried on the other (`saving`): there it must save more jobs than `CAUTION` standard errors of the
paired difference (`proves`). Else the plain rule, which is optimal for Poisson spots (Theorem 4), stays.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import inf, sqrt
from typing import Any

import numpy as np

from controller.core.queueing.controllers.replay import MIN_SPOTS, Arrivals, Replay, Search, Sliced, bisect_level
from controller.core.queueing.replay import LEFT, REFUSED, Rule
from controller.numerics.arrays import Floats

POINTS = 12  # quantiles, and as many even steps, in the grid of ages
COARSE = 3  # of the grid, for pairs of ages
FEWER = (0.5, 1.0, 1.5, 2.0, inf)  # jobs by which the level may be lower between the ages
STARTS = 2  # shapes of the first round from which the second goes on
REFINEMENTS = 3  # halvings of the grid's step at the end
LONGEST_GAP = 0.995  # quantile of the gaps at which the grid ends
TRIALS = 8  # levels at most between 0 and r_max
NEAR = 0.005  # relative distance of a delay from the aim from which on the line between two points is straight enough
SHORT = 0.98  # of the aim: a shape whose delay stays below, at any r, is not used
BATCH, FEWEST_BATCHES = 40, 10  # jobs whose fates are taken together: several times as many as ever wait
CAUTION = 2.0  # standard errors that a shape must save on jobs it was not fitted to

# A shape is a rule of which the level does not count. It takes ages in seconds: join below the first or from the second on, with
# `fewer` jobs in between; leave at the third.
shape_of = partial(Rule, 0.0)
PLAIN = Rule(0.0)
Steps = Generator[int, None, None]


class ShapeSearch:
    """The search for the cheapest shape on one past, at one aim. Its generators yield the steps that each replay took."""

    def __init__(self, arrivals: Arrivals, aim_s: float, r_max: float) -> None:
        self.arrivals, self.aim_s, self.r_max = arrivals, aim_s, r_max
        self.grid_s = ages_grid(arrivals.gaps_s())
        self.prices: dict[Rule, float] = {}

    @property
    def best(self) -> Rule:
        """The cheapest of all that were priced; the first of equals."""
        return min(self.prices, key=self.prices.__getitem__, default=PLAIN)

    def run(self) -> Steps:
        """Search from nothing. If the plain rule does not reach the aim even at r_max, there is nothing to be saved."""
        yield from self._price([PLAIN])
        if self.prices[PLAIN] == inf or not self.grid_s:
            return
        yield from self._price(families(self.grid_s))
        for shape in sorted(self.prices, key=self.prices.__getitem__)[:STARTS]:
            before = None
            while shape != before:  # one age at a time over the whole grid, until nothing is better
                before = shape
                for line in lines(shape, [0.0, *self.grid_s, inf]):
                    yield from self._price(line)
                    shape = min([shape, *line], key=self.prices.__getitem__)
        yield from self.refine(self.best)

    def refine(self, *shapes: Rule) -> Steps:
        """Take smaller and smaller steps around the best of these, one age at a time."""
        yield from self._price(shapes)
        if not shapes:
            return
        ages_s = [0.0, *self.grid_s]
        step_s = max((b - a for a, b in pairwise(ages_s)), default=0.0) / 2.0
        for _ in range(REFINEMENTS):
            here = self.best
            yield from self._price(neighbours(here, step_s))
            step_s /= 1.0 if self.prices[self.best] < self.prices[here] else 2.0

    def _price(self, shapes: Iterable[Rule]) -> Steps:
        for shape in shapes:
            if shape not in self.prices:
                self.prices[shape] = yield from price(self.arrivals, shape, self.aim_s, self.r_max)


def price(arrivals: Arrivals, shape: Rule, aim_s: float, r_max: float) -> Generator[int, None, float]:
    """Find the share of jobs sent to on-demand at the level whose mean delay is the aim; infinity: no level reaches it.

    By false position with the Illinois modification (an end that stays twice counts half). Then by the line between
    the two points that enclose the aim. Yields the steps that each replay took.
    """
    below, above = (0.0, 0.0, 1.0), _point(arrivals, shape, r_max)  # (level, mean delay, share)
    yield len(arrivals)
    if above[1] <= SHORT * aim_s:
        return inf
    weight_below = weight_above = 1.0
    for _ in range(TRIALS):
        if above[1] <= aim_s or min(above[1] - aim_s, aim_s - below[1]) <= NEAR * aim_s:
            break
        short, over = weight_below * (aim_s - below[1]), weight_above * (above[1] - aim_s)
        found = _point(arrivals, shape, (below[0] * over + above[0] * short) / (over + short))
        yield len(arrivals)
        if found[1] < aim_s:
            below, weight_below, weight_above = found, 1.0, weight_above / 2.0
        else:
            above, weight_above, weight_below = found, 1.0, weight_below / 2.0
    part = (aim_s - below[1]) / (above[1] - below[1]) if above[1] > below[1] else 1.0
    return below[2] + min(1.0, part) * (above[2] - below[2])


def _point(arrivals: Arrivals, shape: Rule, level: float) -> tuple[float, float, float]:
    outcome = arrivals.run(replace(shape, level=level))
    return level, outcome.mean_delay_s, outcome.on_demand / max(1, outcome.left)


def ages_grid(gaps_s: Floats) -> list[float]:
    """Return ages worth trying, above 0, rising: quantiles of the gaps, and even steps up to nearly the longest."""
    if not len(gaps_s):
        return []
    inner = np.arange(1, POINTS) / POINTS
    even = np.arange(1, POINTS + 1) / POINTS * np.quantile(gaps_s, LONGEST_GAP)
    return [float(age_s) for age_s in np.unique(np.concatenate([np.quantile(gaps_s, inner), even])) if age_s > 0.0]


def families(grid_s: list[float]) -> Iterator[Rule]:
    """Yield shapes: only late, only early, and both with a coarser grid.

    Waiting jobs leave when joining ends, or stay; or some may join in between.
    """
    for age_s in grid_s:
        yield from (shape_of(0.0, age_s), shape_of(0.0, age_s, 0.0), shape_of(0.0, age_s, fewer=1.0))
        yield from (shape_of(age_s, inf, age_s), shape_of(age_s), shape_of(age_s, fewer=1.0))
    coarse_s = grid_s[::COARSE]
    for place, until_s in enumerate(coarse_s):
        for from_s in coarse_s[place + 1 :]:
            yield from (shape_of(until_s, from_s, until_s), shape_of(until_s, from_s))
            yield shape_of(until_s, from_s, fewer=1.0)


def lines(shape: Rule, ages_s: list[float]) -> Iterator[list[Rule]]:
    """Yield each age over the whole grid; then the end of joining together with leaving; then how many fewer in between."""
    yield [replace(shape, admit_until_age_s=age_s) for age_s in ages_s if age_s <= shape.admit_from_age_s]
    yield [replace(shape, admit_from_age_s=age_s) for age_s in ages_s if age_s >= shape.admit_until_age_s]
    yield [replace(shape, leave_at_age_s=age_s) for age_s in ages_s]
    yield [shape_of(age_s, shape.admit_from_age_s, age_s) for age_s in ages_s if age_s <= shape.admit_from_age_s]
    yield [replace(shape, fewer=fewer) for fewer in FEWER]


def neighbours(shape: Rule, step_s: float) -> list[Rule]:
    """Return the shapes with one age a step away."""
    moved = [
        replace(shape, **{name: age_s})
        for name in ("admit_until_age_s", "admit_from_age_s", "leave_at_age_s")
        for age_s in (getattr(shape, name) - step_s, getattr(shape, name) + step_s)
        if 0.0 <= age_s < inf
    ]
    return [near for near in moved if near.admit_until_age_s <= near.admit_from_age_s]


def saving(arrivals: Arrivals, shape: Rule, aim_s: float, r_max: float) -> Generator[int, None, tuple[float, float]]:
    """Return the share of jobs that the shape keeps from on-demand where the plain one does not, and its standard error.

    Both at the level whose mean delay on these arrivals is the aim, or at r_max if none has so much.
    """
    if shape == PLAIN or not len(arrivals.jobs_s):
        return 0.0, 0.0
    sent = []
    for candidate in (PLAIN, shape):
        level, _ = yield from bisect_level(arrivals, candidate, aim_s, r_max)
        decisions = arrivals.run(replace(candidate, level=level), record=True).decisions
        yield len(arrivals)
        assert decisions is not None  # they were asked for
        sent.append(np.isin(decisions, (REFUSED, LEFT)).astype(np.float64))
    kept = sent[0] - sent[1]
    return float(kept.mean()), _standard_error(kept)


def _standard_error(values: Floats) -> float:
    """Return the standard error of the mean, by batch means.

    Outcomes of consecutive jobs are negatively correlated, so an i.i.d. estimate would be three times too large.
    """
    size = max(1, min(BATCH, len(values) // FEWEST_BATCHES))
    count = len(values) // size
    means = values[: count * size].reshape(count, size).mean(axis=1)
    return float(means.std(ddof=1)) / sqrt(count) if count > 1 else inf


def proves(trials: Sequence[tuple[float, float]]) -> bool:
    """Return whether independent trials (`saving`), taken together, save more than so many standard errors."""
    return sum(saved for saved, _ in trials) > CAUTION * sqrt(sum(error**2 for _, error in trials))


# ---------------------------------------------------------------- the level, and the shape in use


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
