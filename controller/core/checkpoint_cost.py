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

All arguments are arrays of one length (or scalars); units are seconds, bytes and bytes/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from testbed.elementary import cbrts

Array = NDArray[np.float64]

ROOT_2 = float(np.sqrt(2.0))
LEAST, MOST = 1e-290, 1e173  # of what a root is looked up for: no division by 0, no overflow
LOWEST, HIGHEST = -963, 576  # their exponents, of 2
PARTS = 64  # of the table between two powers of 2
STEPS = 5  # of Newton, for the table: quadratic, 1e-15


@dataclass(frozen=True, slots=True)
class Costs:
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
        broken = np.zeros(len(payload_bytes), dtype=bool) if broken is None else broken
        with np.errstate(divide="ignore"):
            slope = np.maximum(np.where(broken, 0.0, 0.5 / loss_budget_s), hazard_per_s / (2.0 * beta))
        return cls(payload_bytes, hazard_per_s, slope, broken)

    def only(self, chosen: NDArray[np.intp]) -> Costs:
        """The curves of those jobs."""
        return Costs(
            self.payload_bytes[chosen],
            self.hazard_per_s[chosen],
            self.slope_per_s[chosen],
            self.broken[chosen],
        )

    def bought(self, price: Array) -> tuple[Array, Array]:
        """(rates at these prices, in bytes/s; elasticities -dlog b/dlog q, from 1/2 to 2/3). Prices above 0."""
        budget = price * self.payload_bytes
        straight = np.sqrt(budget / (self.hazard_per_s + self.slope_per_s))
        root, elasticity = _universal(self.hazard_per_s * budget)
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = (self.hazard_per_s > 0.0) & ~self.broken
            young = np.where(fits, root * root / self.hazard_per_s, np.inf)
        bound = straight < young
        return self.payload_bytes / np.where(bound, straight, young), np.where(bound, 0.5, elasticity)

    def price(self, rate_bytes_per_s: Array) -> Array:
        """-dg/db: what one more byte/s is worth at this rate (above 0)."""
        write_s = self.payload_bytes / rate_bytes_per_s
        young = np.where(self.broken, 0.0, np.sqrt(self.hazard_per_s / (2.0 * write_s)))
        marginal = self.hazard_per_s + np.maximum(young, self.slope_per_s)
        return marginal * write_s / rate_bytes_per_s

    def cost(self, rate_bytes_per_s: Array) -> Array:
        """g: seconds lost per second with the best interval at this rate; infinite without bandwidth.

        Bounds on the rate are not checked here: below C/(2 beta L_max) it is the straight line, continued.
        """
        hazard, slope = self.hazard_per_s, self.slope_per_s
        with np.errstate(divide="ignore", invalid="ignore"):
            write_s = self.payload_bytes / rate_bytes_per_s
            turn_s = np.where(slope > 0.0, hazard / (2.0 * slope * slope), np.inf)
            turn_s = np.where(self.broken, 0.0, turn_s)
            young = np.sqrt(2.0 * hazard * np.minimum(write_s, turn_s))
            beyond = np.where(write_s > turn_s, slope * (write_s - turn_s), 0.0)
            waited = np.where(hazard > 0.0, hazard * write_s, 0.0)
        return waited + young + beyond


def _universal(y: Array) -> tuple[Array, Array]:
    """(sqrt x, dlog x/dlog y) where x^2 + x^1.5/sqrt 2 = y.

    In v = sqrt x; between two powers of 2 a table with straight lines gives five digits, of which one step of Newton's
    method makes ten. No logarithm is taken: the table is looked up by the exponent and the first bits of y.
    """
    y = np.minimum(np.maximum(y, LEAST), MOST)
    mantissa, exponent = np.frexp(y)
    place = (2 * PARTS) * mantissa - PARTS
    part = place.astype(np.intp)
    row, table = (exponent - LOWEST) * PARTS + part, _table()
    below = table[row]
    v = below + (place - part) * (table[row + 1] - below)
    square = v * v
    v = (3.0 * square * square + ROOT_2 * square * v + y) / (4.0 * square * v + 1.5 * ROOT_2 * square)
    return v, (v + 1.0 / ROOT_2) / (2.0 * v + 1.5 / ROOT_2)


@cache
def _table() -> Array:
    """v where y is 2^LOWEST/2 and so on, PARTS numbers evenly from each power of 2 to the next."""
    exponents = np.repeat(np.arange(LOWEST, HIGHEST + 1), PARTS)
    y = np.ldexp(0.5 + np.tile(np.arange(PARTS), HIGHEST + 1 - LOWEST) / (2 * PARTS), exponents)
    v = np.minimum(np.sqrt(np.sqrt(y)), cbrts(ROOT_2 * y))  # either term alone: at most 22 % too high
    for _ in range(STEPS):
        square = v * v
        v = (3.0 * square * square + ROOT_2 * square * v + y) / (4.0 * square * v + 1.5 * ROOT_2 * square)
    return v
