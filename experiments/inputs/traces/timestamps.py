"""When a row of a record happened: seconds of the scenario, or a date and a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from experiments.inputs.traces.csv_rows import CsvRow, number_of, quantity_of
from topologies.dimension import Dimension
from topologies.units import parse_duration

LATEST_S = 1e9
# Numbers up to a date in nanoseconds since 1970.
LARGEST = 1e19
# Bamboo's records are polled once a minute and written in milliseconds; no record in seconds is so coarse.
MINUTE_MS = 60_000.0
# A record in seconds that is longer than this is one in milliseconds.
YEAR_S = 366 * 86_400.0
# A record in milliseconds that is longer than this is in a finer unit, and which that is cannot be told from it.
MOST_YEARS = 2
# Plain numbers from here on are dates in some unit since 1970 that is finer than seconds: as seconds this is in the year 5138.
FINE_FROM = 1e11
# Seconds since 1970.
IN_1973_S, IN_2001_S, IN_2100_S = 1e8, 1e9, 4_102_444_800.0
A_SECOND = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
# Of a column's name.
SUFFIXES = {"seconds": "_s", "milliseconds": "_ms", "microseconds": "_us", "nanoseconds": "_ns"}
DATE = "a date such as 2026-03-02T11:30"
ALLOWED = f'a number of seconds from 0 to {LATEST_S:g} (or with a unit: "3 min"), or {DATE}'


class Moments:
    """Reads moments of one record, seconds from the start of the run.

    The first date fixes when that was: the run begins at the scenario's time of day, `day_start_s` after midnight, and the
    latest such moment that is not after the first row is taken. So hazards keep their time of day. Dates are all with an
    offset from UTC or all without one; a record has dates or seconds, not both.
    """

    def __init__(self, day_start_s: float = 0.0) -> None:
        self._day_start_s = day_start_s
        self._start: datetime | None = None
        self._counts = False  # in seconds

    def seconds(self, row: CsvRow, column: str) -> float:
        """Seconds from the start of the run; SpecError names line and column."""
        text = row.text(column)
        found = quantity_of(text, Dimension.DURATION)
        if found is not None:
            if self._start is not None:
                raise row.wrong(column, f"a date, as in the rows before (the run begins at {self._start})")
            self._counts = True
            if not 0.0 <= found <= LATEST_S:
                raise row.wrong(column, ALLOWED)
            return found
        try:
            moment = datetime.fromisoformat(text)
            if self._counts:
                raise row.wrong(column, "seconds, as in the rows before")
            if self._start is None:
                midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
                start = midnight + timedelta(seconds=self._day_start_s)
                self._start = start if start <= moment else start - timedelta(days=1)
            if (moment.tzinfo is None) != (self._start.tzinfo is None):
                raise row.wrong(column, "an offset from UTC in every date, or in none")
            since_s = (moment - self._start).total_seconds()
        except (ValueError, OverflowError):
            raise row.wrong(column, ALLOWED) from None
        if not 0.0 <= since_s <= LATEST_S:
            raise row.wrong(column, f"a date from {self._start} on, when the run begins")
        return since_s


def elapsed_s(rows: Sequence[CsvRow], column: str) -> tuple[list[float], str]:
    """Seconds since the earliest row, for each row; and what its numbers were taken for ("" if they are dates or have units).

    Dates (all with an offset from UTC, or none), durations with a unit, or plain numbers, from any beginning. The column's name
    may end in the unit of its numbers: `_s`, `_ms`, `_us`, `_ns`. Else numbers too large for seconds since 1970 are a date in the
    unit in which it lies before 2100. Others are milliseconds if all are whole minutes of those, or if as seconds they are longer
    than a year and begin with no date; else seconds.
    """
    if not rows:
        return [], ""
    read = next(
        (each for each in (number_of, _duration_of, _date_of) if each(rows[0].text(column)) is not None), None
    )
    found = [read(row.text(column)) if read else None for row in rows]
    for row, value in zip(rows, found, strict=True):
        if value is None or not abs(value) <= LARGEST:
            raise row.wrong(
                column,
                'a number, a duration ("3 min") or a date (2026-03-02T11:30), and the same kind in all rows',
            )
    values = [value for value in found if value is not None]
    begin = min(values)
    if read is _date_of:
        has_offset = [datetime.fromisoformat(row.text(column)).tzinfo is not None for row in rows]
        if (
            odd := next((n for n, has in enumerate(has_offset) if has is not has_offset[0]), None)
        ) is not None:
            raise rows[odd].wrong(column, "an offset from UTC in every date, or in none")
    if read is not number_of:
        return [value - begin for value in values], ""
    unit = _unit_of(rows[0], column, values)
    return [(value - begin) / A_SECOND[unit] for value in values], unit


def _unit_of(row: CsvRow, column: str, values: Sequence[float]) -> str:
    """What the numbers of a column count; SpecError: there is no unit in which they are times of one record."""
    for unit, suffix in SUFFIXES.items():
        if column.lower().endswith(suffix):
            return unit
    begin, span = min(values), max(values) - min(values)
    is_fine = span > 0.0 and not any(value % MINUTE_MS for value in values)
    if begin >= FINE_FROM:
        for unit, parts in A_SECOND.items():
            if IN_1973_S <= begin / parts < IN_2100_S:
                return unit
        raise row.wrong(column, f"seconds to nanoseconds since 1970, before 2100; or {DATE}")
    if not is_fine and (span <= YEAR_S or IN_2001_S <= begin < IN_2100_S):
        return "seconds"
    if span / A_SECOND["milliseconds"] > MOST_YEARS * YEAR_S:
        named = "a column whose name ends in its unit, such as time_us or time_ns"
        raise row.wrong(column, f"times of less than {MOST_YEARS} years, taken as milliseconds; or {named}")
    return "milliseconds"


def is_moment(text: str) -> bool:
    """Whether a field is a time, as a number or a date, and no name of a column."""
    return number_of(text) is not None or _date_of(text) is not None


def _duration_of(text: str) -> float | None:
    try:
        return parse_duration(text)
    except ValueError:
        return None


def _date_of(text: str) -> float | None:
    """Seconds since 1970; a date without an offset is one in UTC."""
    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
