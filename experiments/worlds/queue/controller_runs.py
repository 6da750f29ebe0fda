"""Courses: a controller admits, over a drawn history, to the very queue that the live coordinator uses.

Times are in hours here, whatever the suffix of the queue's arguments: it only adds and compares. Averages run over jobs
in order of arrival, each with its final wait and cost; those sent to on-demand waited 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from controller.core.queueing.controllers.age import Age
from controller.core.queueing.controllers.controller import Algorithm1, Controller
from controller.core.queueing.controllers.replay import Replay
from controller.core.queueing.queue import Dispatch, OnDemand, SpotJob, SpotQueue
from controller.numerics.arrays import Floats
from experiments.worlds.queue.history import Piece

# alpha of Algorithm 1, an hour, where jobs come every 12 h: the larger of those that settle in all cases of paper B
STEP_PER_H, STEP_FOR_H = 0.01, 12.0

# (delta, mean time between jobs, r_0); names are those of `policies.table.LEARNERS`
LEARNERS: dict[str, Callable[[float, float, float], Controller]] = {
    "algorithm1": lambda delta_h, job_h, r0: Algorithm1(delta_h, STEP_PER_H * STEP_FOR_H / job_h, r0=r0),
    "replay": lambda delta_h, _, r0: Replay(delta_h, r0=r0),
    "age": lambda delta_h, _, r0: Age(delta_h, r0=r0),
}

# Slices of work between two jobs at most; the live coordinator, which has hours, does as many as there are.
SLICES = 3


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Series by job, in order of arrival: wait (h), cost (NaN if it still waits at the end), and r after the arrival."""

    delays_h: Floats
    costs: Floats
    levels: Floats


def follow(controller: Controller, history: Piece, k: float) -> Course:
    """Follow a controller through paper B's model, in which an offer not used at once is gone.

    The controller may work a little after each job.
    """
    count = len(history.draws)
    course = Course(np.full(count, np.nan), np.full(count, np.nan), np.empty(count))
    queue = SpotQueue(controller, offer_ttl_s=0.0)
    spots_h, coming = history.spot_times_h.tolist(), 0
    for job, (now_h, draw) in enumerate(zip(history.job_times_h.tolist(), history.draws.tolist(), strict=True)):
        while coming < len(spots_h) and spots_h[coming] <= now_h:
            # a spot still serves the job whose time to leave is now
            _send_off(queue, course, np.nextafter(spots_h[coming], 0.0), k)
            sent = queue.offer(coming, spots_h[coming])
            if isinstance(sent, Dispatch):
                course.delays_h[int(sent.job)], course.costs[int(sent.job)] = sent.delay_s, 1.0
            coming += 1
        _send_off(queue, course, now_h, k)
        answer = queue.submit(SpotJob(str(job)), now_h, draw)
        if isinstance(answer, OnDemand):
            course.delays_h[job], course.costs[job] = 0.0, k
        course.levels[job] = controller.level
        slices = 0
        while slices < SLICES and controller.work():
            slices += 1
    return course


def _send_off(queue: SpotQueue, course: Course, until_h: float, k: float) -> None:
    """Let every job leave whose time has come, each at its own moment."""
    while len(queue) and (due_h := queue.next_deadline_s()) <= until_h:
        for gone in queue.renege(due_h):
            course.delays_h[int(gone.job)], course.costs[int(gone.job)] = gone.delay_s, k
