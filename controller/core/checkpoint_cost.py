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

A price q a byte/s (the sum of the multipliers of the links crossed) buys the rate at which -dg/db = q, that is
g'(s) s^2 = q C. Left of the max: with x = lambda s and y = lambda q C it reads x^2 + x^1.5/sqrt 2 = y whatever the job,
one universal curve; for small x, where writes are short against the time between reclaims, b = (lambda C)^(1/3)
(sqrt 2 q)^(-2/3): Theorem 1's cube root. Right of it: s = sqrt(q C/(lambda + m)). The smaller s of the two holds.

All arguments are arrays of one length (or scalars); units are seconds, bytes and bytes/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROOT_2 = float(np.sqrt(2.0))
LEAST = 1e-290  # in place of 0: no division by it
POINTS, BEND = (
    1_000,
    12.0,
)  # of the table of log v over log y: so many within BEND of 0, straight lines beyond
ENDS = -230.0, 100.0  # of log v: y from below LEAST to 1e173


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost curves of some jobs: payloads (bytes, above 0), hazards (1/s, 0 or more) and `slope`, m (1/s)."""

    payload_bytes: Array
    hazard_per_s: Array
    slope_per_s: Array

    @classmethod
    def of(cls, payload_bytes: Array, hazard_per_s: Array, loss_budget_s: Array, beta: float) -> Costs:
        """m is the inverse of the longest interval allowed, or Young's where the network floor cuts him off."""
        with np.errstate(divide="ignore"):
            slope = np.maximum(0.5 / loss_budget_s, hazard_per_s / (2.0 * beta))
        return cls(payload_bytes, hazard_per_s, slope)

    def only(self, chosen: NDArray[np.intp]) -> Costs:
        """The curves of those jobs."""
        return Costs(self.payload_bytes[chosen], self.hazard_per_s[chosen], self.slope_per_s[chosen])

    def bought(self, price: Array) -> tuple[Array, Array]:
        """(rates at these prices, in bytes/s; elasticities -dlog b/dlog q, from 1/2 to 2/3). Prices above 0."""
        budget = price * self.payload_bytes
        straight = np.sqrt(budget / (self.hazard_per_s + self.slope_per_s))
        root, elasticity = _universal(self.hazard_per_s * budget)
        with np.errstate(divide="ignore", invalid="ignore"):
            young = np.where(self.hazard_per_s > 0.0, root * root / self.hazard_per_s, np.inf)
        bound = straight < young
        return self.payload_bytes / np.where(bound, straight, young), np.where(bound, 0.5, elasticity)

    def price(self, rate_bytes_per_s: Array) -> Array:
        """-dg/db: what one more byte/s is worth at this rate (above 0)."""
        write_s = self.payload_bytes / rate_bytes_per_s
        marginal = self.hazard_per_s + np.maximum(
            np.sqrt(self.hazard_per_s / (2.0 * write_s)), self.slope_per_s
        )
        return marginal * write_s / rate_bytes_per_s

    def cost(self, rate_bytes_per_s: Array) -> Array:
        """g: seconds lost per second with the best interval at this rate; infinite without bandwidth.

        Bounds on the rate are not checked here: below C/(2 beta L_max) it is the straight line, continued.
        """
        hazard, slope = self.hazard_per_s, self.slope_per_s
        with np.errstate(divide="ignore", invalid="ignore"):
            write_s = self.payload_bytes / rate_bytes_per_s
            turn_s = np.where(slope > 0.0, hazard / (2.0 * slope * slope), np.inf)
            young = np.sqrt(2.0 * hazard * np.minimum(write_s, turn_s))
            beyond = np.where(write_s > turn_s, slope * (write_s - turn_s), 0.0)
            waited = np.where(hazard > 0.0, hazard * write_s, 0.0)
        return waited + young + beyond


def _universal(y: Array) -> tuple[Array, Array]:
    """(sqrt x, dlog x/dlog y) where x^2 + x^1.5/sqrt 2 = y.

    In v = sqrt x; log v bends so little over log y that a table gives five digits, of which one step of Newton's method
    makes ten.
    """
    y = np.maximum(y, LEAST)
    v = np.exp(np.interp(np.log(y), *_table()))
    square = v * v
    v = (3.0 * square * square + ROOT_2 * square * v + y) / (4.0 * square * v + 1.5 * ROOT_2 * square)
    return v, (v + 1.0 / ROOT_2) / (2.0 * v + 1.5 / ROOT_2)


@cache
def _table() -> tuple[Array, Array]:
    """(log y, log v), rising."""
    log_v = np.concatenate((ENDS[:1], np.linspace(-BEND, BEND, POINTS), ENDS[1:]))
    v = np.exp(log_v)
    return 3.0 * log_v + np.log(v + 1.0 / ROOT_2), log_v
