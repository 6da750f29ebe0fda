"""The books of the measured delay: what to aim at next, so that the average of all jobs so far is delta.

History tells which rule would have kept delta, up to the noise of a finite window and to what a replay does not know:
jobs that do not fit, interruptions, offers withdrawn. None of it stays uncorrected: the debt E, the sum of (delay -
delta) over all jobs that left, is to be paid back over the next H jobs. The aim is delta exp(-E / (H delta)), which is
delta - E/H while the debt is small and stays above 0 when it is large. H is a twenty-fifth of the jobs so far, so the debt
is a random walk on a leash: its standard deviation is that of H/2 jobs, not of all. With that of a job between .8 and
2.5 delta (notes), H = 400 keeps the average of 10 000 jobs within .4 % of delta at one sigma, where a fixed rule has
2.5 %. H stays bounded, so a replay that is wrong for ever is corrected too. It is not shorter still, because the aim
then follows the noise, and since cost is convex in the delay, an aim that moves costs more than one that stays; and
never shorter than twice the time between two corrections, or they would overshoot.

A debt is paid at once if need be, savings are spent slowly: where offers come in bursts, long silences are rare, none may
be in the past yet, and each adds to the delay of all that wait.
"""

from __future__ import annotations

from math import exp, inf

SHORTEST, LONGEST = 50, 400  # jobs over which a debt is paid back: H
CORRECTIONS = 2  # in that time, at least
SHARE = 0.04  # H over the jobs so far
OWED, OWN = 3.0, 0.7  # most |E| / (H delta) in the aim: from delta / 20 to 2 delta
MEMORY = 10  # a debt of more than so many LONGEST H delta is forgotten


class Balance:
    """Tracks the cumulative delay error (s); corrected every `every` jobs. ValueError: a target that is no finite duration."""

    def __init__(self, target_delay_s: float, every: int = 1) -> None:
        if not 0.0 <= target_delay_s < inf:
            raise ValueError(f"target delay {target_delay_s} s: a finite duration of 0 or more")
        self.target_delay_s, self.every = target_delay_s, every
        self.jobs, self.debt_s = 0, 0.0

    def left(self, delay_s: float) -> None:
        """Record a job's delay."""
        self.jobs += 1
        bound_s = MEMORY * LONGEST * self.target_delay_s
        self.debt_s = min(bound_s, max(-bound_s, self.debt_s + delay_s - self.target_delay_s))

    def aim_s(self, pending_s: float = 0.0) -> float:
        """The mean delay that the coming jobs should have; `pending_s` have been waited by jobs that have not left yet."""
        horizon = max(SHORTEST, CORRECTIONS * self.every, min(LONGEST, SHARE * self.jobs))
        if self.target_delay_s == 0.0:
            return 0.0
        relative = (self.debt_s + pending_s) / (horizon * self.target_delay_s)
        return self.target_delay_s * exp(-min(OWED, max(-OWN, relative)))
