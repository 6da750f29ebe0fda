"""Rules by the hour of the day and the age of the gap: levels from the prices of waiting that the recorded arrivals imply.

Offers come at a rate that depends on the hour h and on the age a of the gap. From the record it is estimated as u(h) v(a), both
by maximum likelihood (each is exact given the other, in turn; a Poisson model with two factors), with one offer at the mean rate
believed before in each hour and age; jobs at a rate of the hour, likewise.

Given the rates, and a price c for each second that a job waits where an offer used saves 1, the best level at each hour and age
is that of a dynamic program over (number waiting, hour, age), backward over days until it repeats (`DayProgram`): the queue may
be as long as the last job in it is worth its wait, else it is sent away. Lower prices have longer queues. The price at which
the mean delay over the record is the aim is found by bisection, each trial a replay of the record itself, so the model need
not be right for the delay to be. By the theory of constrained Markov decision processes the optimum at a given mean delay
lies between the tables of two neighbouring prices: so all tables that were tried are kept, in order (`HourShape`), and r, their
mean level over the time, goes from one to the next.

What there is nothing to be gained from, at hours that are like any other, has to show on jobs that the tables were not made for:
`hour_and_age`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, sqrt
from typing import Any

import numpy as np

from controller.core.queueing.controllers.age_rules import ages_grid
from controller.core.queueing.controllers.arrivals import Arrivals
from controller.core.queueing.replay import LevelTable, Rule, part_at
from controller.numerics.arrays import Floats
from controller.numerics.jit import compiled, survivals

HOURS = 24  # parts of a day, as hazards have
ROUNDS = 20  # of the two factors in turn: they settle in a few
BELIEVED = 1.0  # offers (and jobs) at the mean rate, believed of each hour and age before any was seen
SETTLED = 1e-3  # of what one offer saves: a day more changes by less what one more job that waits is worth
# in the busiest hour at most, of jobs and offers: a second one within a step, which the program does not see, is then rare (3 %)
EVENTS_A_STEP = 0.25
MOST_DAYS = 400  # back from the end, at most
# prices tried at most: ten doublings, and as many halvings of their logarithm as come within a fiftieth
TRIALS = 16
CLOSE = 0.02  # relative distance of a delay from the aim within which no further price is tried
SPARE_LEVELS, PEAK = (
    5,
    9.0,
)  # the longest queue of the program: those, and so many times the mean number that delta allows


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Jobs a second by hour; offers a second by hour (rows) and age from each of `ages_s` on (columns)."""

    jobs: Floats
    spots: Floats
    ages_s: Floats
    share_of_time: Floats  # spent in each cell, sums to 1


def rates_of(arrivals: Arrivals, day_s: float, day_start_s: float, by_hour: bool = True) -> Rates:
    """The rates of a record, by hour and age; or by age alone, alike at every hour."""
    ages_s = np.array([0.0, *ages_grid(arrivals.gaps_s())])
    part_s = day_s / HOURS
    spent_s, offers = np.zeros((HOURS, len(ages_s))), np.zeros((HOURS, len(ages_s)))
    until_s = max(float(arrivals.jobs_s[-1]), float(arrivals.spots_s[-1]) if len(arrivals.spots_s) else 0.0)
    spend(arrivals.began_s, arrivals.spots_s, until_s, ages_s, part_s, day_start_s, spent_s, offers)
    total_s = spent_s.sum()
    came = np.floor((arrivals.jobs_s + day_start_s) / part_s).astype(np.int64) % HOURS
    job_rate, spot_rate = len(came) / total_s, max(1.0, offers.sum()) / total_s
    hourly, aged = np.full(HOURS, spot_rate), np.ones(len(ages_s))
    if not by_hour:
        aged = (offers.sum(axis=0) + BELIEVED) / ((hourly[:, None] * spent_s).sum(axis=0) + BELIEVED)
        return Rates(np.full(HOURS, job_rate), np.outer(hourly, aged), ages_s, spent_s / total_s)
    jobs = (np.bincount(came, minlength=HOURS) + BELIEVED) / (spent_s.sum(axis=1) + BELIEVED / job_rate)
    for _ in range(ROUNDS):
        aged = (offers.sum(axis=0) + BELIEVED) / ((hourly[:, None] * spent_s).sum(axis=0) + BELIEVED)
        hourly = (offers.sum(axis=1) + BELIEVED) / ((spent_s * aged).sum(axis=1) + BELIEVED / spot_rate)
    return Rates(jobs, np.outer(hourly, aged), ages_s, spent_s / total_s)


@compiled
def spend(
    began_s: float,
    spots_s: Floats,
    until_s: float,
    ages_s: Floats,
    part_s: float,
    day_start_s: float,
    spent_s: Floats,
    offers: Floats,
) -> None:
    """Adds to `spent_s` the time in each cell (hour, age), and to `offers` those that ended a gap there."""
    hours, ages = spent_s.shape
    at_s = began_s
    part = part_at(at_s, part_s, day_start_s)
    for number in range(len(spots_s) + 1):
        gap_began_s, age = at_s, 0
        end_s = spots_s[number] if number < len(spots_s) else until_s
        while True:
            next_s = (part + 1) * part_s - day_start_s
            if age + 1 < ages:
                next_s = min(next_s, gap_began_s + ages_s[age + 1])
            if next_s > end_s:
                break
            spent_s[part % hours, age] += next_s - at_s
            at_s = next_s
            if (part + 1) * part_s - day_start_s <= at_s:
                part += 1
            if age + 1 < ages and gap_began_s + ages_s[age + 1] <= at_s:
                age += 1
        spent_s[part % hours, age] += max(0.0, end_s - at_s)
        at_s = max(at_s, end_s)
        if number < len(spots_s):
            offers[part % hours, age] += 1.0


@compiled
def day_before(
    values: Floats,
    spare: Floats,
    joining: Floats,
    offered: Floats,
    older: Any,
    share_older: Floats,
    price: float,
    steps: int,
    levels: Floats,
) -> None:
    """Values [age, number waiting] at the end of a day become those at its beginning; `levels` [hour, age] the best ones.

    `joining` [hour] and `offered` [hour, age] are the probabilities of a job and an offer in a step, of which an hour has
    `steps`. A step later an age is `older` or, with the probability `share_older`, the next one. `price`: a job's wait of a step.
    """
    hours, (ages, count) = len(joining), values.shape
    for step in range(hours * steps - 1, -1, -1):
        hour = step // steps
        comes = joining[hour]
        for age in range(ages):
            taken, low, part = offered[hour, age], older[age], share_older[age]
            high = min(low + 1, ages - 1)
            best, level = -np.inf, 0
            for waiting in range(count):
                more, less = min(waiting + 1, count - 1), max(0, waiting - 1)
                stays = (1.0 - part) * values[low, waiting] + part * values[high, waiting]
                joins = (1.0 - part) * values[low, more] + part * values[high, more]
                saved, served, joined = 1.0, values[0, less], values[0, waiting]
                if waiting == 0:
                    saved, joined = 0.0, values[0, more]
                gain = (
                    taken * (saved + (1.0 - comes) * served + comes * joined)
                    + (1.0 - taken) * ((1.0 - comes) * stays + comes * joins)
                    - price * waiting
                )
                if gain > best:
                    best, level = gain, waiting
                spare[age, waiting] = best
            if step % steps == steps // 2:
                levels[hour, age] = level
        base = spare[0, 0]
        for age in range(ages):
            for waiting in range(count):
                values[age, waiting] = spare[age, waiting] - base


class DayProgram:
    """The dynamic program of one record's rates. Values are kept from one price to the next: they differ little."""

    def __init__(self, rates: Rates, most: int, day_s: float) -> None:
        ages, hour_s = len(rates.ages_s), day_s / HOURS
        hours = rates.share_of_time.sum(axis=1)
        offers = (rates.spots * rates.share_of_time).sum(axis=1) / np.where(hours > 0.0, hours, 1.0)
        # on average over an hour's ages: at one age an offer may be all but certain
        self.steps = max(1, ceil(float((rates.jobs + offers).max()) * hour_s / EVENTS_A_STEP))
        self.step_s = hour_s / self.steps
        self.joining, self.offered = (
            1.0 - survivals(rate.ravel() * self.step_s).reshape(rate.shape)
            for rate in (rates.jobs, rates.spots)
        )
        after_s = rates.ages_s + self.step_s
        self.older = np.searchsorted(rates.ages_s, after_s, "right") - 1
        widths_s = np.append(np.diff(rates.ages_s), inf)
        self.share_older = (after_s - rates.ages_s[self.older]) / widths_s[self.older]
        self.values = np.zeros((ages, most + 1))
        self.spare = np.zeros_like(self.values)

    def levels(self, price_per_s: float) -> Generator[int, None, Floats]:
        """The best number to wait at each hour and age. Yields the states of each day."""
        levels = np.zeros((HOURS, len(self.older)))
        for _ in range(MOST_DAYS):
            before = self.values.copy()
            day_before(
                self.values,
                self.spare,
                self.joining,
                self.offered,
                self.older,
                self.share_older,
                price_per_s * self.step_s,
                self.steps,
                levels,
            )
            yield self.values.size * HOURS * self.steps
            # what one more job is worth decides, not what an age is: these may go round for ever where gaps are regular
            change = np.diff(self.values, axis=1) - np.diff(before, axis=1)
            if float(np.abs(change).max()) < SETTLED:
                break
        return levels


@dataclass(frozen=True, slots=True, eq=False)
class HourShape:
    """Tables of levels in order of their mean, from none to r_max throughout; r is the mean level over the time of the record."""

    means: Floats
    tables: Floats  # [place in the order, hour, age]
    ages_s: Floats
    day_s: float
    day_start_s: float

    def table(self, level: float) -> LevelTable:
        """The one between the two whose means enclose the level."""
        high = min(max(1, int(np.searchsorted(self.means, level))), len(self.means) - 1)
        part = (level - self.means[high - 1]) / (self.means[high] - self.means[high - 1])
        part = min(1.0, max(0.0, part))
        levels = (1.0 - part) * self.tables[high - 1] + part * self.tables[high]
        return LevelTable(levels, self.ages_s, self.day_s, self.day_start_s)

    def rule(self, level: float) -> Rule:
        """The rule with this mean level."""
        return Rule(level, table=self.table(level))


def fit(
    arrivals: Arrivals, aim_s: float, r_max: float, day_s: float, day_start_s: float, by_hour: bool = True
) -> Generator[int, None, HourShape]:
    """The tables around the price of waiting at which the mean delay over the record is the aim. Yields steps taken."""
    rates = rates_of(arrivals, day_s, day_start_s, by_hour)
    yield HOURS * len(arrivals)
    wanted = aim_s * float(len(arrivals.jobs_s)) / float(arrivals.jobs_s[-1] - arrivals.began_s)
    most = min(ceil(r_max), SPARE_LEVELS + ceil(PEAK * wanted))
    program = DayProgram(rates, most, day_s)
    found: list[tuple[float, Floats]] = []
    low, high = 0.0, inf  # prices whose delay is above, and below the aim
    price = float((rates.spots * rates.share_of_time).sum())  # what waiting costs where one waits at a time
    for _ in range(TRIALS):
        levels = yield from program.levels(price)
        found.append((float((levels * rates.share_of_time).sum()), levels))
        table = LevelTable(levels, rates.ages_s, day_s, day_start_s)
        delay_s = arrivals.run(Rule(1.0, table=table)).mean_delay_s
        yield len(arrivals)
        if abs(delay_s - aim_s) <= CLOSE * aim_s:
            break
        low, high = (price, high) if delay_s > aim_s else (low, price)
        price = 2.0 * price if high == inf else price / 2.0 if low == 0.0 else sqrt(low * high)
    cells = rates.spots.shape
    ends = [(0.0, np.zeros(cells)), (r_max, np.full(cells, r_max))]
    order = sorted([*found, *ends], key=lambda each: each[0])
    order = [order[0], *(after for before, after in pairwise(order) if after[0] > before[0])]
    means, tables = np.array([mean for mean, _ in order]), np.array([levels for _, levels in order])
    return HourShape(means, tables, rates.ages_s, day_s, day_start_s)


def prepare() -> None:
    """Compiles now what would else be at the first fit."""
    arrivals = Arrivals(0.0, np.array([1.0, 3.0]), np.array([2.0]), 0.0)
    for _ in fit(arrivals, 1.0, 1.0, 24.0, 0.0):
        pass
