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
ALLOWED = f'a number of seconds from 0 to {LATEST_S:g} (or with a unit: "3 min"), or a date such as 2026-03-02T11:30'


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

    Dates, durations with a unit, or plain numbers, from any beginning. Numbers are seconds; milliseconds if the column's name
    ends in "_ms", if all are whole minutes of milliseconds, or if seconds would make the record longer than a year.
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
    span = max(values) - begin
    if read is not number_of:
        return [value - begin for value in values], ""
    is_fine = (
        column.endswith("_ms")
        or span > YEAR_S
        or (span > 0.0 and not any(value % MINUTE_MS for value in values))
    )
    if column.endswith("_s") or not is_fine:
        return [value - begin for value in values], "seconds"
    return [(value - begin) / 1000.0 for value in values], "milliseconds"


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
