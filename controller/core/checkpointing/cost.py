"""Expected loss of one job as a function of its checkpoint rate alone: the terms of the exact joint allocation.

A reclaim loses the work since the last *completed* checkpoint: half an interval and the write itself. A snapshot also stops the
job for p seconds. A job that writes C at rate b every D seconds loses, in seconds per second,

    lambda (D/2 + C/b) + p/D,   C/(beta b) <= D <= 2 L_max            (eq. 9)

With s = C/b seconds of writing and the best D put back, a convex function g of s remains, and it is convex in b too. The best D
is sqrt(2 p/lambda), clipped, and has no b in it. Bandwidth is then worth the completion term. For a job that would checkpoint
more often than its slice lets it, s > t = beta sqrt(2 p/lambda), it is also worth a shorter interval:

    g'(s) = lambda + m (1 - (t/s)^2) beyond t, lambda before,   m = lambda/(2 beta).

A kept loss budget is the lower bound b >= C/(2 beta L_max).

**A broken budget.** The job's interval is then max(min(best, 2 L_max), C/(beta b)): as if 2 L_max were the best interval where
the best is longer. So its curve has t = beta min(sqrt(2 p/lambda), 2 L_max). That takes p for 2 lambda L_max^2 where the best is
longer: pauses that a broken budget would save are no reason to break it.

A price q a byte/s (the sum of the multipliers of the links crossed) buys the rate at which -dg/db = q, that is
g'(s) s^2 = q C: s = sqrt(q C/lambda) below t, and sqrt((q C + m t^2)/(lambda + m)) beyond.

Units are seconds, bytes and bytes/s.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from controller.numerics.arrays import Floats, Mask
from controller.numerics.jit import compiled


class CheckpointCosts(NamedTuple):
    """Cost curves of some jobs, a number a job."""

    payload_bytes: Floats  # above 0
    hazard_per_s: Floats  # 0 or more
    slope_per_s: Floats  # m
    turn_s: Floats  # t, the s at which the second part of the curve begins


@compiled
def curves(
    payload_bytes: Floats,
    hazard_per_s: Floats,
    loss_budget_s: Floats,
    beta: float,
    broken: Mask,
    pauses_s: Floats,
) -> CheckpointCosts:
    """Return the cost curves of jobs. `broken`: jobs whose loss budget is dropped; `pauses_s`: p of each."""
    turn = np.zeros(len(hazard_per_s))
    for job in range(len(turn)):
        if hazard_per_s[job] > 0.0:
            best_s = math.sqrt(2.0 * pauses_s[job] / hazard_per_s[job])
            turn[job] = beta * (min(best_s, 2.0 * loss_budget_s[job]) if broken[job] else best_s)
    return CheckpointCosts(payload_bytes, hazard_per_s, hazard_per_s / (2.0 * beta), turn)


@compiled
def bought(costs: CheckpointCosts, job: int, price: float) -> tuple[float, float]:
    """Return the rate in bytes/s that the job buys at this price above 0, and its elasticity -dlog b/dlog q, at most 1/2."""
    payload, hazard = costs.payload_bytes[job], costs.hazard_per_s[job]
    slope, turn = costs.slope_per_s[job], costs.turn_s[job]
    budget = price * payload
    early = math.sqrt(budget / hazard)
    if early <= turn:
        return payload / early, 0.5
    saved = slope * turn * turn
    return payload / math.sqrt((budget + saved) / (hazard + slope)), 0.5 * budget / (budget + saved)


@compiled
def worth(costs: CheckpointCosts, job: int, rate_bytes_per_s: float) -> float:
    """Return -dg/db: the value of one more byte/s to the job at this rate (above 0)."""
    hazard, slope, turn = costs.hazard_per_s[job], costs.slope_per_s[job], costs.turn_s[job]
    write_s = costs.payload_bytes[job] / rate_bytes_per_s
    marginal = hazard + slope * max(0.0, 1.0 - (turn / write_s) ** 2)
    return float(marginal * write_s / rate_bytes_per_s)


@compiled
def lost(costs: CheckpointCosts, job: int, rate_bytes_per_s: float) -> float:
    """Return g: seconds lost per second with the best interval at this rate; infinite without bandwidth.

    The part that no rate changes, lambda D/2 + p/D of the best D, is left out. Bounds on the rate are not checked here: below
    C/(2 beta L_max) g goes on as it is.
    """
    hazard, slope, turn = costs.hazard_per_s[job], costs.slope_per_s[job], costs.turn_s[job]
    write_s = costs.payload_bytes[job] / rate_bytes_per_s
    if hazard + slope == 0.0:
        return 0.0  # no hazard: nothing can be lost
    if write_s == math.inf:
        return math.inf
    waited = hazard * write_s if hazard > 0.0 else 0.0
    later = max(0.0, write_s - turn)
    return float(waited + (slope * later * (later / write_s) if later > 0.0 else 0.0))
