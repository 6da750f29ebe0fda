"""Runs of one system: the controllers, the run, and the result kept of it.

`learning` reads the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from controller.core.queueing import replay as replaying
from controller.core.queueing.controllers import controller
from controller.numerics.arrays import Floats
from experiments.runtime.tasks import Result
from experiments.theory.paper_b.targets import Target
from experiments.worlds.queue import history as drawn
from experiments.worlds.queue.controller_runs import LEARNERS, follow

SMALL, LARGE = 0.05, 6.0  # r_init; the paper has "small" and "large"
EARLY_JOBS = 300  # by which the two starts must still be distinguishable
SETTLED = 0.05  # of delta, for "jobs until settled"
POINTS = 70  # of a curve
FIXED, ALGORITHM1, REPLAY, AGE = "fixed r*", "Algorithm 1", "replay", "age"


@dataclass(frozen=True, slots=True)
class LearningSystem:
    """A controller to be started anywhere; `is_slow`: it needs long runs before its second half is worth judging."""

    make: Callable[[Target, float], controller.Controller]
    starts: tuple[float, ...] = (SMALL, LARGE)
    is_slow: bool = False


def _learner(name: str) -> Callable[[Target, float], controller.Controller]:
    return lambda target, r0: LEARNERS[name](target.delta_h, target.jobs.mean, r0)


SYSTEMS: dict[str, LearningSystem] = {
    FIXED: LearningSystem(lambda target, _: controller.Controller(replaying.Rule(target.r_star)), (SMALL,)),
    ALGORITHM1: LearningSystem(_learner("algorithm1"), is_slow=True),
    REPLAY: LearningSystem(_learner(REPLAY)),
    AGE: LearningSystem(_learner(AGE)),
}


def label(system: str, start: float) -> str:
    """Return the system's name in values and figures."""
    return system if len(SYSTEMS[system].starts) == 1 else f"{system} from {start:g}"


def labels() -> dict[str, tuple[str, float]]:
    """Return label -> (system, start), of all that are run."""
    return {label(name, start): (name, start) for name, system in SYSTEMS.items() for start in system.starts}


def grid(jobs: int) -> Floats:
    """Return the numbers of jobs at which curves have a point."""
    return np.unique(np.geomspace(10, jobs, POINTS).astype(int)).astype(np.float64)


def one_run(target: Target, system: str, start: float, seed: int, jobs: int, horizon: int) -> Result:
    """Run one course; return numbers of its second half, and the curves.

    `horizon`: the jobs of the longest run. This run is the beginning of that history: drawn by itself, a shorter one
    would have other spots of a law that is a mixture. It is also the value of "never settled", so that a short run is
    not praised for being short.
    """
    history_of_seed = drawn.DrawnHistory(target.jobs, target.spots, seed).piece(horizon).first(jobs)
    course = follow(SYSTEMS[system].make(target, start), history_of_seed, target.k)
    delays_h, costs = _running(course.delays_h), _running(course.costs)
    half, places = jobs // 2, grid(jobs).astype(int) - 1
    return {
        "delay": float(np.nanmean(course.delays_h[half:])),
        "cost": float(np.nanmean(course.costs[half:])),
        "r": float(course.levels[half:].mean()),
        "r away": float(np.abs(course.levels[half:] - target.r_star).mean()),
        "early delay": float(delays_h[EARLY_JOBS - 1]),
        "early cost": float(costs[EARLY_JOBS - 1]),
        "running delay": float(delays_h[-1]),
        "running cost": float(costs[-1]),
        "settled": settled(delays_h, target.delta_h, horizon),
        "delays": [round(float(value), 6) for value in delays_h[places]],
        "costs": [round(float(value), 6) for value in costs[places]],
        "rs": [round(float(value), 6) for value in course.levels[places]],
    }


def _running(samples: Floats) -> Floats:
    """Return averages of the first 1, 2, ... jobs, without those that wait at the end of the run."""
    counted = np.maximum(1, np.cumsum(~np.isnan(samples)))
    averages: Floats = np.nancumsum(samples) / counted
    return averages


def settled(running_h: Floats, delta_h: float, horizon: int) -> float:
    """Return the number of jobs after which the running average stays near delta; the horizon, if it is not near at the end."""
    away = np.flatnonzero(np.abs(running_h - delta_h) > SETTLED * delta_h)
    if not len(away):
        return 0.0
    return float(horizon if away[-1] == len(running_h) - 1 else away[-1] + 1)
