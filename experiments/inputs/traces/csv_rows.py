"""Rows of a user's CSV file, each with its line for error messages."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from topologies.dimension import Dimension
from topologies.errors import SpecError, nearest
from topologies.tables import shown_text

LATEST_S = 1e9
DATE = "a date such as 2026-03-02T11:30"
# a column of times may have the unit of its bare numbers in its name
DURATIONS = ("time", "notice")
SUFFIXES_S = {"_s": 1.0, "_min": 60.0, "_h": 3600.0}


@dataclass(frozen=True, slots=True)
class CsvRow:
    """The fields of one line, by column."""

    line: int
    fields: dict[str, str]
    units_s: Mapping[str, float] = field(
        default_factory=dict
    )  # of bare numbers, by column; seconds where none is named

    def wrong(self, column: str, allowed: str) -> SpecError:
        """Return the error about one field of this line."""
        return SpecError(f"line {self.line}, {column}", shown_text(self.fields.get(column, "")), allowed)

    def text(self, column: str) -> str:
        """Return a field without surrounding blanks; empty if there is no such column."""
        return self.fields.get(column, "").strip()

    def number(self, column: str, low: float, high: float, what: str = "a number") -> float:
        """Return a number from low to high."""
        value = number_of(self.text(column))
        if value is None or not low <= value <= high:
            raise self.wrong(column, f"{what} from {low:g} to {high:g}")
        return value

    def duration_s(self, column: str, high: float) -> float:
        """Return seconds, written as a number or with a unit; 0 for an empty field."""
        text = self.text(column)
        value = self.seconds(column) if text else 0.0
        if value is None or not 0.0 <= value <= high:
            allowed = f"a number of seconds from 0 to {high:g}, or {Dimension.DURATION.units.allowed}"
            raise self.wrong(column, allowed)
        return value

    def seconds(self, column: str) -> float | None:
        """Return the seconds that a number, or a text with a unit, means; None if the field is neither."""
        number = number_of(self.text(column))
        if number is not None:
            return number * self.units_s.get(column, 1.0)
        try:
            return Dimension.DURATION.units.parse(self.text(column))
        except ValueError:
            return None

    def whole(self, column: str, low: int, high: int) -> int:
        """Return a whole number from low to high, in digits."""
        text = self.text(column)
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and low <= int(text) <= high):
            raise self.wrong(column, f"a whole number from {low} to {high}")
        return int(text)


def read_rows(text: str, needed: Sequence[str], *, optional: Sequence[str] | None = None) -> list[CsvRow]:
    """Return the rows of a CSV text with a header line; SpecError for a missing column or a row of another length.

    `optional`: the only columns that there may be beside the needed ones; by default any may be. A column `time_h` is read as
    `time` in hours (`SUFFIXES_S`), and columns `date` and `time` as one.
    """
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = [name.strip() for name in next(filter(None, reader), [])]
        units_s = {}
        for place, name in enumerate(header):
            column, _, unit = name.rpartition("_")
            if column in DURATIONS and (unit_s := SUFFIXES_S.get(f"_{unit}")):
                header[place], units_s[column] = column, unit_s
        dated = {"date", "time"} <= {*header}
        _check_header([name for name in header if not dated or name != "date"], needed, optional)
        rows = [CsvRow(row.line, row.fields, units_s) for row in _rows(reader, header)]
        for row in rows if dated else ():
            row.fields["time"] = f"{row.fields.pop('date').strip()}T{row.text('time')}"
        return rows
    except csv.Error as error:
        raise SpecError(f"line {reader.line_num}", str(error), "comma-separated values") from None


def _check_header(header: Sequence[str], needed: Sequence[str], optional: Sequence[str] | None) -> None:
    shown = shown_text(",".join(header))
    for name in needed:
        if name not in header:
            allowed = f"a header line with the column {name}{nearest(name, header, ' (nearest: {})')}"
            raise SpecError("line 1", shown, allowed)
    known = [*needed, *(header if optional is None else optional)]
    for name in header:
        if name not in known:
            allowed = f"one of the columns {','.join(known)}{nearest(name, known)}"
            raise SpecError("line 1", shown_text(name), allowed)
    if len(set(header)) != len(header):
        raise SpecError("line 1", shown, "a header line that names each column once")


def _rows(reader: Iterator[list[str]], header: Sequence[str]) -> Iterator[CsvRow]:
    for fields in filter(None, reader):
        line: int = reader.line_num  # type: ignore[attr-defined]
        if len(fields) != len(header):
            allowed = f"{len(header)} fields: {','.join(header)}"
            raise SpecError(f"line {line}", shown_text(",".join(fields)), allowed)
        yield CsvRow(line, dict(zip(header, fields, strict=True)))


def times_s(
    rows: Sequence[CsvRow], column: str, *, latest_s: float = LATEST_S, day_start_s: float | None = None
) -> list[float]:
    """Return the time of each row in seconds: all are numbers of seconds or durations, or all are dates.

    Dates count from the earliest one. With `day_start_s` they count from the latest moment of that time of day
    that is not after the first row: so a record's hazards keep their time of day.
    """
    found = [_moment(row, column, latest_s) for row in rows]
    is_date = bool(found) and isinstance(found[0], datetime)
    numbers = [value for value in found if isinstance(value, float)]
    dates = [value for value in found if isinstance(value, datetime)]
    for row, value in zip(rows, found, strict=True):
        if isinstance(value, datetime) is not is_date:
            raise row.wrong(column, f"{'a date' if is_date else 'seconds'}, as in the rows before")
        if isinstance(value, datetime) and (value.tzinfo is None) is not (dates[0].tzinfo is None):
            raise row.wrong(column, "an offset from UTC in every date, or in none")
    if not dates:
        return numbers
    try:
        begin = min(dates)
        if day_start_s is not None:
            midnight = dates[0].replace(hour=0, minute=0, second=0, microsecond=0)
            begin = midnight + timedelta(seconds=day_start_s)
            begin = begin if begin <= dates[0] else begin - timedelta(days=1)
    except OverflowError:
        raise rows[0].wrong(column, DATE) from None
    since_s = [(date - begin).total_seconds() for date in dates]
    for row, at_s in zip(rows, since_s, strict=True):
        if not 0.0 <= at_s <= LATEST_S:
            raise row.wrong(column, f"a date from {begin} on, when the run begins")
    return since_s


def _moment(row: CsvRow, column: str, latest_s: float) -> float | datetime:
    text = row.text(column)
    value = row.seconds(column)
    try:
        if value is None:
            return datetime.fromisoformat(text)
    except ValueError:
        pass
    if value is None or not 0.0 <= value <= latest_s:
        raise row.wrong(column, f'a number of seconds from 0 to {latest_s:g} (or with a unit: "3 min"), or {DATE}')
    return value


def number_of(text: str) -> float | None:
    """Return a finite number; None if the text is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
