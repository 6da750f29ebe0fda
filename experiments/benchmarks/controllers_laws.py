"""Admission controllers where the assumptions fail: offers that are regular, in batches, in bursts, by day only, drifting, rare.

None of these is in paper B. Jobs are Poisson, one in 12 h; every law of offers has about one in 12 h too, except the rare
ones (240 h). Asked is that a controller keeps the target delay and costs no more than `replay`, whatever comes; the
reference is `hindsight`, the one r that keeps the target exactly on the very history. Hours throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from controller.core.queueing.controllers.age import Age
from controller.core.queueing.controllers.fixed import Fixed
from controller.core.queueing.controllers.replay import Replay
from controller.core.queueing.queue import Controller
from experiments.benchmarks.controllers_traces import hindsight_level
from experiments.theory.laws import Floats
from experiments.worlds.queue.controller_runs import follow
from experiments.worlds.queue.history import Piece

K, MEAN_H = 10.0, 12.0
STARTS = (0.05, 6.0)
DELTAS_H = (3.0, 18.0)
DAY_H, YEAR_H = 24.0, 24.0 * 365
MOST_OFF = 0.05  # of the target delay, at the end of a run
MOST_DEARER = 0.02  # than `replay`


def renewal(gaps_h: Callable[[Generator, int], Floats]) -> Callable[[Generator, float], Floats]:
    """Offers with independent times between them."""
    return lambda rng, until_h: np.cumsum(gaps_h(rng, int(2.5 * until_h / MEAN_H) + 100))


def varying(
    rate_per_h: Callable[[Floats], Floats], most_per_h: float
) -> Callable[[Generator, float], Floats]:
    """Poisson offers whose rate depends on the time (thinning)."""

    def times(rng: Generator, until_h: float) -> Floats:
        drawn_h = np.cumsum(rng.exponential(1.0 / most_per_h, int(1.2 * until_h * most_per_h) + 100))
        return drawn_h[rng.random(len(drawn_h)) * most_per_h < rate_per_h(drawn_h)]

    return times


def batches(size: int) -> Callable[[Generator, float], Floats]:
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


LAWS: dict[str, Callable[[Generator, float], Floats]] = {
    "every 12 h": renewal(lambda rng, n: np.full(n, MEAN_H)),
    "Weibull, shape 3": renewal(lambda rng, n: MEAN_H / 0.89298 * rng.weibull(3.0, n)),
    "Weibull, shape 1/2": renewal(lambda rng, n: MEAN_H / 2.0 * rng.weibull(0.5, n)),
    "hyperexponential": renewal(
        lambda rng, n: np.where(rng.random(n) < 0.9, rng.exponential(2.0, n), rng.exponential(102.0, n))
    ),
    "lognormal, sigma 2": renewal(lambda rng, n: rng.lognormal(np.log(MEAN_H) - 2.0, 2.0, n)),
    "two at once": batches(2),
    "eight at once": batches(8),
    "on and off": on_and_off,
    "by day": varying(lambda at_h: np.where(at_h % DAY_H < DAY_H / 2.0, 1.0 / 6.0, 1.0 / 60.0), 1.0 / 6.0),
    "over the year": varying(
        lambda at_h: (1.0 + 0.8 * np.sin(2.0 * np.pi * at_h / YEAR_H)) / MEAN_H, 1.8 / MEAN_H
    ),
    "rare": renewal(lambda rng, n: rng.exponential(20.0 * MEAN_H, n)),
}
CONTROLLERS: dict[str, Callable[[float, float], Controller]] = {
    "replay": lambda delta_h, r0: Replay(delta_h, r0=r0),
    "age": lambda delta_h, r0: Age(delta_h, r0=r0),
}


def measure_laws(seeds: int, jobs: int) -> dict[str, Any]:
    """{law: {delta: {controller: figures}}}, and which are beyond MOST_OFF or MOST_DEARER, on average over the seeds."""
    laws = {
        name: {f"{delta_h:g}": _measure(name, delta_h, seeds, jobs) for delta_h in DELTAS_H} for name in LAWS
    }
    beyond = [
        f"{law}, {delta} h: {name}"
        for law, deltas in laws.items()
        for delta, of in deltas.items()
        for name in CONTROLLERS
        if abs(of[name]["delay_over_delta"] - 1.0) > MOST_OFF
        or of[name]["cost"] > (1.0 + MOST_DEARER) * of["replay"]["cost"]
    ]
    return {"seeds": seeds, "jobs": jobs, "laws": laws, "beyond": beyond}


def _measure(law: str, delta_h: float, seeds: int, jobs: int) -> dict[str, dict[str, float]]:
    """Of each controller: mean and worst delay over delta, and mean cost."""
    histories = [one_history(law, delta_h, seed, jobs) for seed in range(seeds)]
    figures = {}
    for name in histories[0]:
        delays_h, costs = np.array([each[name] for each in histories]).T
        delays = delays_h / delta_h
        figures[name] = {
            "delay_over_delta": float(delays.mean()),
            "worst_off": float(np.abs(delays - 1.0).max()),
            "cost": float(costs.mean()),
        }
    return figures


def one_history(law: str, delta_h: float, seed: int, jobs: int) -> dict[str, tuple[float, float]]:
    """(mean delay, mean cost) of every controller on one history; even seeds start at r = .05, odd ones at 6."""
    rng = default_rng(seed)
    jobs_h = np.cumsum(rng.exponential(MEAN_H, jobs))
    offers_h = LAWS[law](rng, float(jobs_h[-1]))
    piece = Piece(jobs_h, offers_h[offers_h <= jobs_h[-1]], rng.random(jobs))
    controllers: dict[str, Controller] = {"hindsight": Fixed(hindsight_level(piece, delta_h))}
    controllers |= {name: make(delta_h, STARTS[seed % 2]) for name, make in CONTROLLERS.items()}
    courses = {name: follow(controller, piece, K) for name, controller in controllers.items()}
    return {
        name: (float(np.nanmean(course.delays_h)), float(np.nanmean(course.costs)))
        for name, course in courses.items()
    }
