"""What one job's checkpoints cost it, as a function of its rate alone: the terms of the exact joint allocation.

A reclaim loses the work since the last *completed* checkpoint: half an interval and the write itself, so a job that
writes C at rate b every D seconds loses, in seconds per second (paper A, eq. 1 and 3, and the completion term C/b),

    lambda (D/2 + C/b) + C/(b D),   C/(beta b) <= D <= 2 L_max            (eq. 9)

For s = C/b seconds of writing the best D is Young's sqrt(2 s/lambda) clipped into [s/beta, 2 L_max]. Put back, what is
left is a function g of s with the derivative

    g'(s) = lambda + max(sqrt(lambda/(2 s)), m),   m = max(1/(2 L_max), lambda/(2 beta)):

Young's while he fits, then whichever bound he meets first, where g goes on as a straight line. It needs
s <= 2 beta L_max, which is the lower bound b >= C/(2 beta L_max) of `checkpointing`. The cost is jointly convex in
(b, D) and so is what is left in b.

A job whose budget is broken writes as often as the network floor lets it, D = C/(beta b) > 2 L_max, wherever Young would have
it: it loses least then. Its g is the straight line alone, with m = lambda/(2 beta).

A price q a byte/s (the sum of the multipliers of the links crossed) buys the rate at which -dg/db = q, that is
g'(s) s^2 = q C. Left of the max: with x = lambda s and y = lambda q C it reads x^2 + x^1.5/sqrt 2 = y whatever the job,
one universal curve; for small x, where writes are short against the time between reclaims, b = (lambda C)^(1/3)
(sqrt 2 q)^(-2/3): Theorem 1's cube root. Right of it: s = sqrt(q C/(lambda + m)). The smaller s of the two holds.

Units are seconds, bytes and bytes/s.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.core.compiled import compiled, nearly_cbrt

Array = NDArray[np.float64]

ROOT_2 = math.sqrt(2.0)
LEAST, MOST = 1e-290, 1e280  # of what a root is sought for: no division by 0, no overflow
TURN = 0.25  # of y: below, x^1.5/sqrt 2 is the larger term
STEPS = 5  # of Newton, from at most 40 % off: 0.1, 1e-2, 1e-4, 1e-8, 1e-16


class Costs(NamedTuple):
    """The cost curves of some jobs: payloads (bytes, above 0), hazards (1/s, 0 or more), `slope`, m (1/s), `broken` budgets."""

    payload_bytes: Array
    hazard_per_s: Array
    slope_per_s: Array
    broken: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        payload_bytes: Array,
        hazard_per_s: Array,
        loss_budget_s: Array,
        beta: float,
        broken: NDArray[np.bool_] | None = None,
    ) -> Costs:
        """m is the inverse of the longest interval allowed, or Young's where the network floor cuts him off."""
        broken = np.zeros(len(payload_bytes), dtype=np.bool_) if broken is None else broken
        slope = _slopes(hazard_per_s, loss_budget_s, float(beta), broken)
        return cls(payload_bytes, hazard_per_s, slope, broken)


@compiled
def _slopes(hazard_per_s: Array, loss_budget_s: Array, beta: float, broken: NDArray[np.bool_]) -> Array:
    return np.maximum(np.where(broken, 0.0, 0.5 / loss_budget_s), hazard_per_s / (2.0 * beta))


@compiled
def bought(costs: Costs, job: int, price: float) -> tuple[float, float]:
    """(the rate that the job buys at this price above 0, in bytes/s; its elasticity -dlog b/dlog q, from 1/2 to 2/3)."""
    payload, hazard = costs.payload_bytes[job], costs.hazard_per_s[job]
    budget = price * payload
    straight = math.sqrt(budget / (hazard + costs.slope_per_s[job]))
    if hazard > 0.0 and not costs.broken[job]:
        root, elasticity = _universal(hazard * budget)
        young = root * root / hazard
        if young <= straight:
            return payload / young, elasticity
    return payload / straight, 0.5


@compiled
def worth(costs: Costs, job: int, rate_bytes_per_s: float) -> float:
    """-dg/db: what one more byte/s is worth to the job at this rate (above 0)."""
    hazard, write_s = costs.hazard_per_s[job], costs.payload_bytes[job] / rate_bytes_per_s
    young = 0.0 if costs.broken[job] else math.sqrt(hazard / (2.0 * write_s))
    marginal = hazard + max(young, costs.slope_per_s[job])
    return float(marginal * write_s / rate_bytes_per_s)


@compiled
def lost(costs: Costs, job: int, rate_bytes_per_s: float) -> float:
    """g: seconds lost per second with the best interval at this rate; infinite without bandwidth.

    Bounds on the rate are not checked here: below C/(2 beta L_max) it is the straight line, continued.
    """
    hazard, slope = costs.hazard_per_s[job], costs.slope_per_s[job]
    write_s = costs.payload_bytes[job] / rate_bytes_per_s
    if slope == 0.0:
        return 0.0  # no hazard either: nothing can be lost
    turn_s = 0.0 if costs.broken[job] else hazard / (2.0 * slope * slope)
    waited = hazard * write_s if hazard > 0.0 else 0.0
    young = math.sqrt(2.0 * hazard * min(write_s, turn_s))
    return float(waited + young + slope * max(0.0, write_s - turn_s))


@compiled
def _universal(y: float) -> tuple[float, float]:
    """(v = sqrt x, dlog x/dlog y) where x^2 + x^1.5/sqrt 2 = y, by Newton from (nearly) the larger of the two terms alone."""
    y = min(max(y, LEAST), MOST)
    v = nearly_cbrt(ROOT_2 * y) if y < TURN else math.sqrt(math.sqrt(y))
    for _ in range(STEPS):
        square = v * v
        v = (3.0 * square * square + ROOT_2 * square * v + y) / (4.0 * square * v + 1.5 * ROOT_2 * square)
    return v, (v + 1.0 / ROOT_2) / (2.0 * v + 1.5 / ROOT_2)
