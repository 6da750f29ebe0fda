"""Calendars of owners: the parts of a week in which a host is lent, such as `"18:00-08:00, weekends"`.

A calendar is a text of windows with commas between them: days (`Mon`, `Mon-Fri`, `weekdays`, `weekends`; every day, if none are
named), and times of day (the whole day, if none are given). A window that ends no later than it begins ends on the next day;
days are those on which it begins. Windows that meet are one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

ALLOWED = 'windows such as "18:00-08:00, weekends" or "Mon-Thu 20:00-07:30, Fri 16:00-24:00, Sat"'
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAMED = {"": range(7), "weekdays": range(5), "weekends": range(5, 7)}
_WINDOW = re.compile(r"([a-z]*)(?:-([a-z]+))?(?:(?:^|\s+)(\d\d?):(\d\d)-(\d\d?):(\d\d))?", re.ASCII)
DAY = 24 * 60  # minutes
WEEK = 7 * DAY


@cache
def windows(calendar: str) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) in minutes since Monday 0:00, in order and apart; the last one may end in the next week.

    ValueError: it is no calendar, with the part that is wrong.
    """
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(each for part in calendar.split(",") for each in _windows_of(part.strip())):
        first, last = merged.pop() if merged and begin <= merged[-1][1] else (begin, end)
        merged.append((first, max(last, end)))
    while len(merged) > 1 and merged[0][0] + WEEK <= merged[-1][1]:  # the last one meets the first of the next week
        _, end = merged.pop(0)
        merged[-1] = merged[-1][0], max(merged[-1][1], end + WEEK)
    return tuple(merged)


def _windows_of(part: str) -> Iterator[tuple[int, int]]:
    """Yield the windows of a part: one of each of its days."""
    match = _WINDOW.fullmatch(part.lower())
    if not part or match is None:
        raise ValueError(part)
    first, last, *times = match.groups()
    if last is None and first in _NAMED:
        days = _NAMED[first]
    elif {first, last or first} <= {*_DAYS}:
        begin = _DAYS.index(first)
        days = range(begin, begin + (_DAYS.index(last or first) - begin) % 7 + 1)
    else:
        raise ValueError(part)
    from_hour, from_minute, to_hour, to_minute = (int(each) if each else 0 for each in times)
    begin, end = 60 * from_hour + from_minute, 60 * to_hour + to_minute
    if max(from_minute, to_minute) >= 60 or begin >= DAY or end > DAY or (times[0] and begin == end):
        raise ValueError(part)
    for day in days:
        yield day % 7 * DAY + begin, day % 7 * DAY + end + (DAY if end <= begin else 0)


@dataclass(frozen=True, slots=True)
class Week:
    """The week of a run: the length of its days, and where time 0 is in it."""

    day_s: float
    day_start_s: float  # time of day at time 0
    first_weekday: int  # 0: Monday

    def windows_s(self, calendar: str | None, from_s: float) -> Iterator[tuple[float, float]]:
        """Yield (begin, end) of the windows that end after a moment; without a calendar, or an end, one for ever."""
        if calendar is None or (parts := windows(calendar))[0][1] - parts[0][0] >= WEEK:
            yield -math.inf, math.inf
            return
        minute_s, zero_s = self.day_s / DAY, self.first_weekday * self.day_s + self.day_start_s
        week = math.floor((from_s + zero_s) / (7.0 * self.day_s)) - 1  # the last window of the week before may go on
        while True:
            for begin, end in parts:
                end_s = (week * WEEK + end) * minute_s - zero_s
                if end_s > from_s:
                    yield (week * WEEK + begin) * minute_s - zero_s, end_s
            week += 1

    def end_s(self, calendar: str | None, from_s: float) -> float:
        """Return the end of the first window that ends after a moment; infinite without a calendar."""
        return next(self.windows_s(calendar, from_s))[1]
