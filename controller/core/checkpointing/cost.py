"""What one job's checkpoints cost it, as a function of its rate alone: the terms of the exact joint allocation.

A reclaim loses the work since the last *completed* checkpoint: half an interval and the write itself. A checkpoint also stops
the job for a while, p. A job that writes C at rate b every D seconds loses, in seconds per second,

    lambda (D/2 + C/b) + p/D,   C/(beta b) <= D <= 2 L_max            (eq. 9)

What p is depends on what writes. Both have one shape: with s = C/b seconds of writing and the best D put back, what is left
is a function g of s alone, which is convex, and so is it in b. s <= 2 beta L_max is the lower bound b >= C/(2 beta L_max).

**The write stops the job** (paper A, eq. 1 and 3, and the completion term): p = C/b. The best D is Young's
sqrt(2 s/lambda) clipped, and

    g'(s) = lambda + max(sqrt(lambda/(2 s)), m),   m = max(1/(2 L_max), lambda/(2 beta)):

Young's while he fits, then whichever bound he meets first, where g goes on as a straight line.

**The job goes on while its snapshot is sent** (what our agents do): p is the time of the snapshot, whatever the rate. The
best D is sqrt(2 p/lambda), which has no b in it, clipped. Bandwidth is then worth the completion term, and, for a job that would
checkpoint more often than its slice lets it (s > t = beta sqrt(2 p/lambda)), a shorter interval:

    g'(s) = lambda + m (1 - (t/s)^2) beyond t, lambda before,   m = lambda/(2 beta).

**A broken budget.** The job's interval is then max(min(best, 2 L_max), C/(beta b)): as if 2 L_max were the best interval where
the best is longer. While it goes on, its curve is the one above with t = beta min(sqrt(2 p/lambda), 2 L_max), which is its
own where the best is within 2 L_max; else p is thereby taken for 2 lambda L_max^2, since what a broken budget would save
in pauses is no reason to break it. Where the write stops the job, g' at 2 L_max falls from 1/(2 L_max) to
lambda/(2 beta) if the former is larger, and g is not convex: there it is the straight line of m = lambda/(2 beta) from 0.

A price q a byte/s (the sum of the multipliers of the links crossed) buys the rate at which -dg/db = q, that is
g'(s) s^2 = q C. On a straight part s = sqrt(q C/(lambda + m)); beyond t the same with q C + m t^2. In Young's part, with
x = lambda s and y = lambda q C, it reads x^2 + x^1.5/sqrt 2 = y whatever the job, one universal curve; for small x, where
writes are short against the time between reclaims, b = (lambda C)^(1/3) (sqrt 2 q)^(-2/3): Theorem 1's cube root. The
smaller s of a curve's two parts holds where the write stops the job; where it does not, the first, while it is below t.

Units are seconds, bytes and bytes/s.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from controller.numerics.arrays import Floats, Mask
from controller.numerics.jit import compiled, nearly_cbrt

ROOT_2 = math.sqrt(2.0)
SMALLEST, LARGEST = 1e-290, 1e280  # of what a root is sought for: no division by 0, no overflow
TURN = 0.25  # of y: below, x^1.5/sqrt 2 is the larger term
STEPS = 5  # of Newton, from at most 40 % off: 0.1, 1e-2, 1e-4, 1e-8, 1e-16


class CheckpointCosts(NamedTuple):
    """The cost curves of some jobs, a number a job."""

    payload_bytes: Floats  # above 0
    hazard_per_s: Floats  # 0 or more
    slope_per_s: Floats  # m
    turn_s: Floats  # the s at which the second part of the curve begins
    behind: bool  # whether jobs go on while they are sent


@compiled
def curves(
    payload_bytes: Floats,
    hazard_per_s: Floats,
    loss_budget_s: Floats,
    beta: float,
    broken: Mask,
    pauses_s: Floats,
) -> CheckpointCosts:
    """The cost curves of jobs. `broken`: jobs whose loss budget is dropped. `pauses_s`: seconds a snapshot stops the job;
    infinite: the write does."""
    slope, turn, behind = hazard_per_s / (2.0 * beta), np.zeros(len(hazard_per_s)), True
    for job in range(len(turn)):
        stops = pauses_s[job] == np.inf
        behind &= not stops
        if stops and not broken[job]:
            slope[job] = max(slope[job], 0.5 / loss_budget_s[job])
        if hazard_per_s[job] > 0.0:
            young = hazard_per_s[job] / (2.0 * slope[job] * slope[job])
            if not stops:
                best_s = math.sqrt(2.0 * pauses_s[job] / hazard_per_s[job])
                turn[job] = beta * (min(best_s, 2.0 * loss_budget_s[job]) if broken[job] else best_s)
            elif not broken[job] or loss_budget_s[job] * hazard_per_s[job] >= beta:
                turn[job] = young
    return CheckpointCosts(payload_bytes, hazard_per_s, slope, turn, behind)


@compiled
def bought(costs: CheckpointCosts, job: int, price: float) -> tuple[float, float]:
    """(the rate that the job buys at this price above 0, in bytes/s; its elasticity -dlog b/dlog q, at most 2/3)."""
    payload, hazard = costs.payload_bytes[job], costs.hazard_per_s[job]
    slope, turn = costs.slope_per_s[job], costs.turn_s[job]
    budget = price * payload
    if costs.behind:
        early = math.sqrt(budget / hazard)
        if early <= turn:
            return payload / early, 0.5
        saved = slope * turn * turn
        return payload / math.sqrt((budget + saved) / (hazard + slope)), 0.5 * budget / (budget + saved)
    straight = math.sqrt(budget / (hazard + slope))
    if turn > 0.0:
        root, elasticity = _universal(hazard * budget)
        young = root * root / hazard
        if young <= straight:
            return payload / young, elasticity
    return payload / straight, 0.5


@compiled
def worth(costs: CheckpointCosts, job: int, rate_bytes_per_s: float) -> float:
    """-dg/db: what one more byte/s is worth to the job at this rate (above 0)."""
    hazard, slope, turn = costs.hazard_per_s[job], costs.slope_per_s[job], costs.turn_s[job]
    write_s = costs.payload_bytes[job] / rate_bytes_per_s
    if costs.behind:
        marginal = hazard + slope * max(0.0, 1.0 - (turn / write_s) ** 2)
    else:
        marginal = hazard + max(math.sqrt(hazard / (2.0 * write_s)) if turn > 0.0 else 0.0, slope)
    return float(marginal * write_s / rate_bytes_per_s)


@compiled
def lost(costs: CheckpointCosts, job: int, rate_bytes_per_s: float) -> float:
    """g: seconds lost per second with the best interval at this rate; infinite without bandwidth.

    Of a job that goes on while it is sent, less what no rate changes: lambda D/2 + p/D of the best D. Bounds on the rate are
    not checked here: below C/(2 beta L_max) g goes on as it is.
    """
    hazard, slope, turn = costs.hazard_per_s[job], costs.slope_per_s[job], costs.turn_s[job]
    write_s = costs.payload_bytes[job] / rate_bytes_per_s
    if hazard + slope == 0.0:
        return 0.0  # no hazard: nothing can be lost
    waited = hazard * write_s if hazard > 0.0 else 0.0
    if costs.behind:
        later = max(0.0, write_s - turn)
        return float(waited + (slope * later * (later / write_s) if later > 0.0 else 0.0))
    young = math.sqrt(2.0 * hazard * min(write_s, turn))
    return float(waited + young + slope * max(0.0, write_s - turn))


@compiled
def _universal(y: float) -> tuple[float, float]:
    """(v = sqrt x, dlog x/dlog y) where x^2 + x^1.5/sqrt 2 = y, by Newton from (nearly) the larger of the two terms alone."""
    y = min(max(y, SMALLEST), LARGEST)
    v = nearly_cbrt(ROOT_2 * y) if y < TURN else math.sqrt(math.sqrt(y))
    for _ in range(STEPS):
        square = v * v
        v = (3.0 * square * square + ROOT_2 * square * v + y) / (4.0 * square * v + 1.5 * ROOT_2 * square)
    return v, (v + 1.0 / ROOT_2) / (2.0 * v + 1.5 / ROOT_2)
