"""Paper B's Algorithm 1 as printed, as far as it can be run.

The paper's figures cannot have been made with it.

The loop condition |d - delta| < epsilon is read the other way round: as printed, it would never begin where it is
needed. So it stops at the first window whose delay is near enough, at whatever r it has. Line 7 is taken literally: eta
<- eta (d - delta). Then eta is a product of all errors so far. Its sign is not that of the error, and its size depends
on the unit of time. Errors above 1 make it explode: r is thrown between 0 and r_max until it is at r_max with a
negative eta. There errors stay positive, eta stays negative, and r stays for ever. Errors below 1 make it vanish, and r
stays where it is. In hours, most starts at 0.05 and all at 6 end at r_max.
"""

from __future__ import annotations

from typing import Any

from controller.core.queueing.controllers.controller import Algorithm1

LARGEST_STEP = 1e12  # |eta| is held here, or it would leave what a float holds; r is clipped at 8 long before


class PrintedAlgorithm1(Algorithm1):
    """Parameters of `Algorithm1`; `step_per_s` is the first eta, `tolerance` epsilon over delta."""

    def __init__(self, target_delay_s: float, step_per_s: float, *, tolerance: float = 0.02, **parameters: Any) -> None:
        super().__init__(target_delay_s, step_per_s, **parameters)
        self.eta, self.tolerance, self.has_stopped = step_per_s, tolerance, False

    def arrived(self, now_s: float) -> None:
        """Count an arrival. At the end of a window, compound eta and move r by it (lines 5 to 8), unless it has stopped."""
        self._arrived += 1
        if self._arrived < self.window or not self._left:
            return
        error_s = self._delay_s / self._left - self.target_delay_s
        self._arrived, self._left, self._delay_s = 0, 0, 0.0
        self.has_stopped = self.has_stopped or abs(error_s) < self.tolerance * self.target_delay_s
        if not self.has_stopped:
            self.eta = max(-LARGEST_STEP, min(LARGEST_STEP, self.eta * error_s))
            self.hold(min(self.r_max, max(0.0, self.level - self.eta)))
