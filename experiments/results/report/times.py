"""Times as people read them: ticks of an axis, moments of a run, times of day."""

from __future__ import annotations

import math
from dataclasses import dataclass

from controller.core.parameters import DAY_S

_MINUTE_S, _HOUR_S = 60.0, 3600.0
_LARGE_D = tuple(m * 10.0**power for power in range(4) for m in (1.0, 2.0, 5.0))
TICK_STEPS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(m * _MINUTE_S for m in (1.0, 2.0, 5.0, 10.0, 15.0, 30.0)),
    *(h * _HOUR_S for h in (1.0, 2.0, 3.0, 6.0, 12.0)),
    *(d * DAY_S for d in _LARGE_D),
)
SECONDS_UNTIL_S = 600.0  # a run of at most so long is written in seconds and hundredths

Tick = tuple[float, str]  # (s, label)


@dataclass(frozen=True, slots=True)
class RunClock:
    """The time of one run as played: its length, the length of its days, and the time of day at its start."""

    until_s: float
    day_s: float = DAY_S
    day_start_s: float = 0.0

    def ticks(self, about: int) -> list[Tick]:
        """Return round times since the beginning."""
        step_s = round_step(self.until_s / about)
        return [(n * step_s, elapsed(n * step_s)) for n in range(math.floor(self.until_s / step_s + 1e-9) + 1)]

    def hours(self, about: int) -> list[Tick]:
        """Return round times of day; days are counted from 1, and the first label names its day if the run has several."""
        real = DAY_S / self.day_s
        from_s = self.day_start_s * real
        to_s = from_s + self.until_s * real
        step_s = round_step((to_s - from_s) / about)
        found: list[Tick] = []
        for n in range(math.ceil(from_s / step_s - 1e-9), math.floor(to_s / step_s + 1e-9) + 1):
            day, of_day_s = divmod(n * step_s + 1e-6, DAY_S)
            label = of_day(of_day_s)
            if to_s - from_s >= DAY_S and (of_day_s < 1e-3 or not found):
                label = f"day {day + 1:.0f}" + (f" {label}" if of_day_s >= 1e-3 else "")
            found.append((n * step_s / real - self.day_start_s, label))
        return found

    def moment(self, at_s: float) -> str:
        """Write a time since the beginning, as exactly as a run of this length needs."""
        return f"{at_s:.2f} s" if self.until_s <= SECONDS_UNTIL_S else elapsed(float(round(at_s)))


def elapsed(at_s: float) -> str:
    """Write "40 s", "2:30 min", "6 h", "6:30 h", "12 d 06:30"."""
    milliseconds = round(at_s * 1e3)
    minutes, seconds = divmod(milliseconds / 1e3, 60.0)
    hours, minute = divmod(round(minutes), 60)
    day, hour = divmod(hours, 24)
    rest = f"{seconds:06.3f}".rstrip("0").rstrip(".") if seconds else ""
    if day:
        return f"{day} d" + (
            f" {hour:02d}:{minute:02d}" + (f":{rest}" if rest else "") if milliseconds % 86_400_000 else ""
        )
    if hour:
        return f"{hour}" + (f":{minute:02d}" + (f":{rest}" if rest else "") if minute or rest else "") + " h"
    if minute:
        return f"{minute}" + (f":{rest}" if rest else "") + " min"
    return f"{seconds:g} s"


def of_day(of_day_s: float) -> str:
    """Write "06:30" or "06:30:20"."""
    minutes, seconds = divmod(round(of_day_s), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}" + (f":{seconds:02d}" if seconds else "")


def round_step(at_least_s: float) -> float:
    """Return the shortest round step of at least that length."""
    return next((step for step in TICK_STEPS_S if step >= at_least_s * 0.999), TICK_STEPS_S[-1])
