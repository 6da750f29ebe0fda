"""Admission controllers on laws of offers: those that the theory has bounds for, and those where the assumptions fail.

Stationary ones with a bound over policies that see the gap's age (`bounds`), offers by day with a bound over policies that see
the hour (`bounds_by_hour`), the same six and a half hours later, peaks that move from day to day; and offers that are regular,
in batches, in bursts, drifting, rare. Jobs are Poisson, one in 12 h; every law of offers has about one in 12 h too, except the
rare ones (240 h). Asked is that a controller keeps the target delay, and costs no more than `age`, whatever comes. Beside them
`hindsight`, the one r that keeps the target exactly on the very history. No rule depends on k, so one run says the cost for all:
1 + (k - 1) times the share of jobs that is rented. Hours throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from controller.core.queueing.controllers.fixed import Fixed
from controller.core.queueing.queue import Controller
from controller.numerics.arrays import Floats
from experiments.benchmarks.controllers_traces import hindsight_level
from experiments.results.statistics import interval
from experiments.theory.laws import Exponential, Law
from experiments.theory.paper_b.bounds import level_and_age
from experiments.theory.paper_b.bounds_by_hour import level_and_hour
from experiments.theory.paper_b.targets import BATH_TUB
from experiments.worlds.queue.controller_runs import follow
from experiments.worlds.queue.history import Piece
from experiments.worlds.queue.learners import DAY_H, LEARNERS

MEAN_H = 12.0
PRICES = (2.0, 10.0, 100.0)  # k; bounds are had for the second
STARTS = (0.05, 6.0)
DELTAS_H = (3.0, 18.0)
YEAR_H = 24.0 * 365
MOST_OFF = 0.05  # of the target delay, at the end of a run
BASE = "age"  # what no controller may be dearer than
# offers an hour from 9 to 18 h, and else: two a day
OPEN_PER_H, CLOSED_PER_H, OPENS_H, CLOSES_H = 0.2, 0.013, 9.0, 18.0

Times = Callable[[Generator, float], Floats]


def renewal(gaps_h: Callable[[Generator, int], Floats]) -> Times:
    """Offers with independent times between them."""
    return lambda rng, until_h: np.cumsum(gaps_h(rng, int(2.5 * until_h / MEAN_H) + 100))


def varying(rate_per_h: Callable[[Floats], Floats], most_per_h: float) -> Times:
    """Poisson offers whose rate depends on the time (thinning)."""

    def times(rng: Generator, until_h: float) -> Floats:
        drawn_h = np.cumsum(rng.exponential(1.0 / most_per_h, int(1.2 * until_h * most_per_h) + 100))
        return drawn_h[rng.random(len(drawn_h)) * most_per_h < rate_per_h(drawn_h)]

    return times


def batches(size: int) -> Times:
    """So many offers at one moment."""
    single = renewal(lambda rng, n: rng.exponential(size * MEAN_H, n))
    return lambda rng, until_h: np.repeat(single(rng, until_h), size)


def on_and_off(rng: Generator, until_h: float) -> Floats:
    """An offer every six hours for two days on average, then none for as long."""
    offers: list[Floats] = []
    at_h = 0.0
    while at_h < until_h:
        on_h, off_h = rng.exponential(48.0, 2)
        offers.append(np.sort(at_h + on_h * rng.random(rng.poisson(on_h / 6.0))))
        at_h += on_h + off_h
    return np.concatenate(offers)


def by_day(later_h: float) -> Times:
    """Many while a campus is open, few else; the day begins so much later."""

    def rate_per_h(at_h: Floats) -> Floats:
        time_h = (at_h - later_h) % DAY_H
        return np.where((time_h >= OPENS_H) & (time_h < CLOSES_H), OPEN_PER_H, CLOSED_PER_H)

    return varying(rate_per_h, OPEN_PER_H)


def moving_peak(rng: Generator, until_h: float) -> Floats:
    """As by day, but each day's nine hours begin at any time that lets them end with it."""
    days = int(until_h / DAY_H) + 2
    opens_h = DAY_H * np.arange(days) + rng.uniform(0.0, DAY_H - (CLOSES_H - OPENS_H), days)

    def rate_per_h(at_h: Floats) -> Floats:
        since_h = at_h - opens_h[np.minimum(at_h / DAY_H, days - 1).astype(int)]
        return np.where((since_h >= 0.0) & (since_h < CLOSES_H - OPENS_H), OPEN_PER_H, CLOSED_PER_H)

    return varying(rate_per_h, OPEN_PER_H)(rng, until_h)


def evenings(rng: Generator, until_h: float) -> Floats:
    """Two a day, at seven, give or take half an hour."""
    nights = np.repeat(DAY_H * np.arange(int(until_h / DAY_H) + 1), 2)
    return np.sort(nights + 19.0 + rng.normal(0.0, 0.5, len(nights)))


def of_law(law: Law) -> Times:
    """Offers with independent times of this law between them."""
    return renewal(law.sample)


EXPONENTIAL = Exponential(MEAN_H)
LAWS: dict[str, Times] = {
    "Poisson": of_law(EXPONENTIAL),
    "bath-tub": of_law(BATH_TUB),
    "by day": by_day(0.0),
    "by day, 6.5 h later": by_day(6.5),
    "peaks that move": moving_peak,
    "at seven in the evening": evenings,
    "every 12 h": renewal(lambda rng, n: np.full(n, MEAN_H)),
    "Weibull, shape 3": renewal(lambda rng, n: MEAN_H / 0.89298 * rng.weibull(3.0, n)),
    "Weibull, shape 1/2": renewal(lambda rng, n: MEAN_H / 2.0 * rng.weibull(0.5, n)),
    "hyperexponential": renewal(
        lambda rng, n: np.where(rng.random(n) < 0.9, rng.exponential(2.0, n), rng.exponential(102.0, n))
    ),
    "lognormal, sigma 1": renewal(lambda rng, n: rng.lognormal(np.log(MEAN_H) - 0.5, 1.0, n)),
    "lognormal, sigma 2": renewal(lambda rng, n: rng.lognormal(np.log(MEAN_H) - 2.0, 2.0, n)),
    "two at once": batches(2),
    "eight at once": batches(8),
    "on and off": on_and_off,
    "half days": varying(lambda at_h: np.where(at_h % DAY_H < DAY_H / 2.0, 1.0 / 6.0, 1.0 / 60.0), 1.0 / 6.0),
    "over the year": varying(
        lambda at_h: (1.0 + 0.8 * np.sin(2.0 * np.pi * at_h / YEAR_H)) / MEAN_H, 1.8 / MEAN_H
    ),
    "rare": renewal(lambda rng, n: rng.exponential(20.0 * MEAN_H, n)),
}


def bound(law: str, delta_h: float) -> float | None:
    """The least cost of any policy, at the second of the `PRICES`; None where theory has no bound."""
    k = PRICES[1]
    if law in ("Poisson", "bath-tub"):
        spots = EXPONENTIAL if law == "Poisson" else BATH_TUB
        return level_and_age(MEAN_H, spots, delta_h, k).cost
    if law.startswith("by day"):  # whatever the time at which the day begins
        spots_per_h = [OPEN_PER_H if OPENS_H <= hour < CLOSES_H else CLOSED_PER_H for hour in range(24)]
        return level_and_hour([1.0 / MEAN_H] * 24, spots_per_h, delta_h, k).cost
    return None


def measure_laws(seeds: int, jobs: int) -> dict[str, Any]:
    """{law: {delta: {"bound", controller: figures}}}; which are beyond MOST_OFF on average over the seeds, and which are dearer
    than `age` for sure (95 % of the paired difference, of the second half of the jobs)."""
    # of each controller: mean and worst delay over delta; rented share, in all and of the second half of the jobs; costs
    laws: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in LAWS}
    for law, delta_h in product(LAWS, DELTAS_H):
        histories = [one_history(law, delta_h, seed, jobs) for seed in range(seeds)]
        base = np.array([each[BASE][2] for each in histories])
        figures = laws[law][f"{delta_h:g}"] = {"bound": bound(law, delta_h)}
        for name in histories[0]:
            delays_h, rented, late = np.array([each[name] for each in histories]).T
            delays = delays_h / delta_h
            over = interval(((PRICES[1] - 1.0) * (late - base)).tolist())
            figures[name] = {
                "delay_over_delta": float(delays.mean()),
                "worst_off": float(np.abs(delays - 1.0).max()),
                "rented": float(rented.mean()),
                "costs": {f"{k:g}": float(1.0 + (k - 1.0) * rented.mean()) for k in PRICES},
                "last_costs": {f"{k:g}": float(1.0 + (k - 1.0) * late.mean()) for k in PRICES},
                "over_age": {"mean": over.mean, "low": over.low, "high": over.high},
            }
    each = [
        (f"{law}, {delta} h: {name}", of[name])
        for law, deltas in laws.items()
        for delta, of in deltas.items()
        for name in LEARNERS
    ]
    return {
        "seeds": seeds,
        "jobs": jobs,
        "laws": laws,
        "beyond": [words for words, of in each if abs(of["delay_over_delta"] - 1.0) > MOST_OFF],
        "dearer": [words for words, of in each if of["over_age"]["low"] > 0.0],
    }


def one_history(law: str, delta_h: float, seed: int, jobs: int) -> dict[str, tuple[float, float, float]]:
    """(mean delay, share rented, that of the second half) of every controller on one history; even seeds start at r = .05, odd
    ones at 6."""
    rng = default_rng(seed)
    jobs_h = np.cumsum(rng.exponential(MEAN_H, jobs))
    offers_h = LAWS[law](rng, float(jobs_h[-1]))
    piece = Piece(jobs_h, offers_h[offers_h <= jobs_h[-1]], rng.random(jobs))
    controllers: dict[str, Controller] = {"hindsight": Fixed(hindsight_level(piece, delta_h))}
    controllers |= {name: make(delta_h, MEAN_H, STARTS[seed % 2]) for name, make in LEARNERS.items()}
    found = {}
    for name, controller in controllers.items():
        course = follow(controller, piece, PRICES[0])
        rented = (course.costs - 1.0) / (PRICES[0] - 1.0)
        found[name] = (
            float(np.nanmean(course.delays_h)),
            float(np.nanmean(rented)),
            float(np.nanmean(rented[jobs // 2 :])),
        )
    return found
