"""The books of the measured delay: what to aim at next, so that the average of all jobs so far is delta.

History tells which rule would have kept delta, up to the noise of a finite window and to what a replay does not know:
jobs that do not fit, interruptions, offers withdrawn. None of it stays uncorrected: the debt E, the sum of (delay -
delta) over all jobs that left, is to be paid back over the next H jobs. The aim is delta exp(-E / (H delta)), which is
delta - E/H while the debt is small and stays above 0 when it is large. H is a twenty-fifth of the jobs so far, so the debt
is a random walk on a leash: its standard deviation is that of H/2 jobs, not of all. With that of a job between .8 and
2.5 delta (notes), H = 400 keeps the average of 10 000 jobs within .4 % of delta at one sigma, where a fixed rule has
2.5 %. H stays bounded, so a replay that is wrong for ever is corrected too. It is not shorter still, because the aim
then follows the noise, and since cost is convex in the delay, an aim that moves costs more than one that stays.
"""

from __future__ import annotations

from math import exp, inf

SHORTEST, LONGEST = 50, 400  # jobs over which a debt is paid back: H
SHARE = 0.04  # H over the jobs so far
MOST = 3.0  # |E| / (H delta) in the aim: from delta / 20 to 20 delta


class Balance:
    """Of the delay in seconds. ValueError: a target that is not a finite duration of 0 or more."""

    def __init__(self, target_delay_s: float) -> None:
        if not 0.0 <= target_delay_s < inf:
            raise ValueError(f"target delay {target_delay_s} s: a finite duration of 0 or more")
        self.target_delay_s = target_delay_s
        self.jobs, self.debt_s = 0, 0.0

    def left(self, delay_s: float) -> None:
        """One more job, with this delay."""
        self.jobs += 1
        bound_s = MOST * LONGEST * self.target_delay_s  # more is not remembered: it could not be paid in time
        self.debt_s = min(bound_s, max(-bound_s, self.debt_s + delay_s - self.target_delay_s))

    def aim_s(self) -> float:
        """The mean delay that the coming jobs should have."""
        horizon = min(LONGEST, max(SHORTEST, SHARE * self.jobs))
        if self.target_delay_s == 0.0:
            return 0.0
        relative = self.debt_s / (horizon * self.target_delay_s)
        return self.target_delay_s * exp(-min(MOST, max(-MOST, relative)))
