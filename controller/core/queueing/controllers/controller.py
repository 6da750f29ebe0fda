"""Controllers of the queue: the rule by which jobs join and leave. `Controller` keeps its rule; those that learn extend it.

**Algorithm 1** of paper B, corrected, lets r follow the error of the measured mean delay. As printed it is wrong three times:

- its loop condition is inverted: it runs while the error is small;
- turned round, it would stop at the first small error, which leaves 8 % of median error; here it runs for ever;
- its step eta <- eta (d - delta) compounds and drives r to r_max; here the step is alpha (d - delta).

The measured d is the mean delay of the jobs that left during W arrivals, on-demand ones counting 0, as delta counts
them.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from controller.core.queueing.replay import Rule


class Controller:
    """Admission by a rule. r = 0: all jobs go to on-demand; infinity: all wait."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    @property
    def level(self) -> float:
        """Level r = N + p, in jobs."""
        return self.rule.level

    def hold(self, level: float) -> None:
        """Decide at this level from now on."""
        self.rule = replace(self.rule, level=level)

    def arrived(self, now_s: float) -> None:
        """Note that a job was submitted, and the answer to it was given."""

    def spot(self, now_s: float) -> None:
        """Note that an offer was made, taken or not."""

    def lost(self, made_s: float) -> None:
        """Note that the offer made at `made_s` served no new job: it was withdrawn, or taken by an interrupted job."""

    def left(self, delay_s: float) -> None:
        """Note that a job was dispatched for the first time, or went to on-demand (delay 0 if at once)."""

    def work(self) -> bool:
        """Do one slice, O(window) at most, of the work between decisions; return whether there was anything to do."""
        return False


# ---------------------------------------------------------------- algorithm 1 of paper B


WINDOW = 100  # W: with alpha of .005 to .01 an hour and r_max = 8 it converges in all cases of paper B
R_MAX = 8.0


def next_level(
    level: float, mean_delay_s: float, target_delay_s: float, step_per_s: float, r_max: float = R_MAX
) -> float:
    """Return clip(r - alpha (d - delta), 0, r_max) (paper B, Algorithm 1, lines 7 and 8, corrected)."""
    return min(r_max, max(0.0, level - step_per_s * (mean_delay_s - target_delay_s)))


class Algorithm1(Controller):
    """Level r, corrected after every `window` arrivals from the mean delay of the jobs that left meanwhile."""

    def __init__(
        self, target_delay_s: float, step_per_s: float, window: int = WINDOW, r0: float = 1.0, r_max: float = R_MAX
    ) -> None:
        super().__init__(Rule(r0))
        if not 0.0 <= target_delay_s < inf:
            raise ValueError(f"target delay {target_delay_s} s: a finite duration of 0 or more")
        if not 0.0 < step_per_s < inf:
            raise ValueError(f"step {step_per_s} per s: a finite number above 0")
        if window < 1 or not r0 <= r_max < inf:
            raise ValueError(f"window {window}, r0 {r0}, r_max {r_max}: window >= 1 and r0 <= r_max < infinity")
        self.target_delay_s, self.step_per_s = target_delay_s, step_per_s
        self.window, self.r_max = window, r_max
        self._arrived, self._left, self._delay_s = 0, 0, 0.0

    def arrived(self, now_s: float) -> None:
        """Count an arrival; at the end of a window, move r and begin the next one."""
        self._arrived += 1
        if self._arrived >= self.window and self._left:
            mean_s = self._delay_s / self._left
            self.hold(next_level(self.level, mean_s, self.target_delay_s, self.step_per_s, self.r_max))
            self._arrived, self._left, self._delay_s = 0, 0, 0.0

    def left(self, delay_s: float) -> None:
        """Record a delay of this window."""
        self._left += 1
        self._delay_s += delay_s
