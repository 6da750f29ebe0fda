"""The learners as experiments start them, in hours: paper B's parameters."""

from __future__ import annotations

from collections.abc import Callable

from controller.core.queueing.controllers.age import Age
from controller.core.queueing.controllers.algorithm1 import Algorithm1
from controller.core.queueing.controllers.controller import Controller
from controller.core.queueing.controllers.replay import Replay

# alpha of Algorithm 1, an hour, where jobs come every 12 h: the larger of those that settle in all cases of paper B
STEP_PER_H, STEP_FOR_H = 0.01, 12.0

# (delta, mean time between jobs, r_0); names are those of `policies.table.LEARNERS`
LEARNERS: dict[str, Callable[[float, float, float], Controller]] = {
    "algorithm1": lambda delta_h, job_h, r0: Algorithm1(delta_h, STEP_PER_H * STEP_FOR_H / job_h, r0=r0),
    "replay": lambda delta_h, _, r0: Replay(delta_h, r0=r0),
    "age": lambda delta_h, _, r0: Age(delta_h, r0=r0),
}
