"""Interval at which a second copy is worth its bandwidth: the second level of multi-level checkpointing, priced.

The first level is the standby. In a share q of the interruptions it is gone together with the job's host, and then the job goes
back to its second copy, on average V/2 old where one is sent every V seconds. Its C bytes cross links on which the first level's
streams compete; what a byte/s there is worth to them is the links' multiplier in P1's allocation, and since a copy takes an equal
share from n streams, each of its bytes costs (n + 1)/n times that, mu in all. So in seconds of work lost per second, with
hazard lambda,

    lambda q V/2 + mu C/V        is least at        V = sqrt(2 mu C/(lambda q)),

Young's formula with the price of the bytes in the place of the pause. Beside one equal job, to which a link's whole rate b is
worth lambda C/b^2, that is V = 2/sqrt(q) C/b: for q = 1/36 the time to send twelve checkpoints. Over links that no stream fills
it is 0: each checkpoint is sent on.

Two levels with intervals in proportion to one over the root of what each level is needed for: Moody et al., SC 2010.
"""

from __future__ import annotations

import math


def second_interval_s(
    payload_bytes: float, price_s_per_byte: float, hazard_per_s: float, lost_together: float
) -> float:
    """V, seconds; infinite where the copy is never needed. `price_s_per_byte`: mu, work that each byte costs others, seconds."""
    needed_per_s = hazard_per_s * lost_together
    if price_s_per_byte <= 0.0:
        return 0.0
    return (
        math.sqrt(2.0 * price_s_per_byte * payload_bytes / needed_per_s) if needed_per_s > 0.0 else math.inf
    )
