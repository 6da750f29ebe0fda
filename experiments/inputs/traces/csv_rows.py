"""Rows of a user's CSV file, each with its line, so that an error can say where it is."""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.tables import allowed_text, shown_text

_IN_BASE_UNITS = {
    Dimension.NUMBER: "a number",
    Dimension.DURATION: "a number of seconds",
    Dimension.SIZE: "a number of bytes",
    Dimension.RATE: "a number of bytes per second",
}


@dataclass(frozen=True, slots=True)
class CsvRow:
    """The fields of one line, by column."""

    line: int
    fields: dict[str, str]

    def wrong(self, column: str, allowed: str) -> SpecError:
        """The error about one field of this line."""
        return SpecError(f"line {self.line}, {column}", shown_text(self.fields.get(column, "")), allowed)

    def text(self, column: str) -> str:
        """A field, without surrounding blanks; empty if there is no such column."""
        return self.fields.get(column, "").strip()

    def quantity(
        self,
        column: str,
        dimension: Dimension,
        low: float,
        high: float,
        *,
        default: float | None = None,
        what: str = "",
    ) -> float:
        """A number from low to high: in seconds, bytes or bytes per second (or `what` says), or a text with its unit.

        An empty field, or a column that is left out, has the default, if there is one.
        """
        if default is not None and not self.text(column):
            return default
        value = quantity_of(self.text(column), dimension)
        if value is None or not low <= value <= high:
            allowed = f"{what or _IN_BASE_UNITS[dimension]} from {low:g} to {high:g}"
            with_unit = "" if dimension is Dimension.NUMBER else f", or {allowed_text(dimension)}"
            raise self.wrong(column, allowed + with_unit)
        return value

    def whole(self, column: str, low: int, high: int) -> int:
        """A whole number from low to high, in digits."""
        text = self.text(column)
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and low <= int(text) <= high):
            raise self.wrong(column, f"a whole number from {low} to {high}")
        return int(text)


def read_rows(
    text: str,
    needed: Sequence[str],
    header: Sequence[str] | None = None,
    *,
    optional: Sequence[str] | None = None,
) -> Iterator[CsvRow]:
    """The rows of a CSV text with a header line; SpecError for a missing column or a row of another length.

    `header` names the columns of a text that has no such line. `optional`: the only columns that there may be beside the
    needed ones; by default any may be.
    """
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        if header is None:
            header = [name.strip() for name in next(filter(None, reader), [])]
            for name in needed:
                if name not in header:
                    near = difflib.get_close_matches(name, header, n=1)
                    hint = f" (nearest: {near[0]})" if near else ""
                    allowed = f"a header line with the column {name}{hint}"
                    raise SpecError("line 1", shown_text(",".join(header)), allowed)
            known = [*needed, *(header if optional is None else optional)]
            for name in header:
                if name not in known:
                    near = difflib.get_close_matches(name, known, n=1)
                    hint = f"; nearest: {near[0]}" if near else ""
                    raise SpecError("line 1", shown_text(name), f"one of the columns {','.join(known)}{hint}")
            if len(set(header)) != len(header):
                allowed = "a header line that names each column once"
                raise SpecError("line 1", shown_text(",".join(header)), allowed)
        for fields in reader:
            if not fields:
                continue  # an empty line
            if len(fields) != len(header):
                allowed = f"{len(header)} fields: {','.join(header)}"
                raise SpecError(f"line {reader.line_num}", shown_text(",".join(fields)), allowed)
            yield CsvRow(reader.line_num, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise SpecError(f"line {reader.line_num}", str(error), "comma-separated values") from None


def quantity_of(text: str, dimension: Dimension) -> float | None:
    """The quantity that a number or a text with a unit means; None if it is neither."""
    number = number_of(text)
    if number is not None or dimension is Dimension.NUMBER:
        return number
    try:
        return dimension.parse(text)
    except ValueError:
        return None


def number_of(text: str) -> float | None:
    """A finite number; None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
