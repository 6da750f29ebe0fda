"""A rule that stays: the level r = N + p of paper B, and the ages of the gap at which it holds.

The age is the time since the last spot offer. A job joins by r at an age below `admit_until_age_s` or from
`admit_from_age_s` on, and by r - `fewer` in between, which is never unless it is given; jobs that wait when the gap reaches
`leave_at_age_s` leave for on-demand, and so do jobs that have waited `longest_wait_s`. With all of them infinite it is paper
B's policy.
"""

from __future__ import annotations

from math import inf


def admit_probability(level: float, queue_length: int) -> float:
    """1 below N, p at N, 0 above, where level r = N + p (paper B, Theorem 4, Algorithm 1 line 4)."""
    return min(1.0, max(0.0, level - queue_length))


class Fixed:
    """Constant r and ages in seconds. r = 0: all jobs go to on-demand; infinity: all wait.

    ValueError: a number below 0, or not a number.
    """

    def __init__(
        self,
        level: float,
        *,
        admit_until_age_s: float = inf,
        admit_from_age_s: float = inf,
        leave_at_age_s: float = inf,
        longest_wait_s: float = inf,
        fewer: float = inf,
    ) -> None:
        if not level >= 0.0:
            raise ValueError(f"r = {level}: 0 or more")
        times_s = (admit_until_age_s, admit_from_age_s, leave_at_age_s, longest_wait_s)
        if not all(time_s >= 0.0 for time_s in times_s):
            raise ValueError(f"ages and longest wait {times_s}: 0 s or more")
        if not fewer >= 0.0:
            raise ValueError(f"{fewer} jobs fewer: 0 or more")
        self.level = level
        self.admit_until_age_s, self.admit_from_age_s = admit_until_age_s, admit_from_age_s
        self.leave_at_age_s, self.longest_wait_s = leave_at_age_s, longest_wait_s
        self.fewer = fewer

    def admit_probability(self, queue_length: int, age_s: float = 0.0) -> float:
        """The probability by r, or by less between the two ages."""
        is_between = self.admit_until_age_s <= age_s < self.admit_from_age_s
        return admit_probability(self.level - self.fewer if is_between else self.level, queue_length)

    def arrived(self, now_s: float = 0.0) -> None:
        """Learns nothing."""

    def spot(self, now_s: float = 0.0) -> None:
        """Learns nothing."""

    def lost(self, made_s: float) -> None:
        """Learns nothing."""

    def left(self, delay_s: float) -> None:
        """Learns nothing."""

    def work(self) -> bool:
        """Nothing to do."""
        return False
