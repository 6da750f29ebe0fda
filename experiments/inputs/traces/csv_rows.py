"""Rows of a user's CSV file, each with its line, so that an error can say where it is."""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topologies.errors import SpecError
from topologies.tables import shown_text


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

    def number(self, column: str, high: float, unit: str) -> float:
        """A number from 0 to high."""
        allowed = f"a number of {unit} from 0 to {high:g}"
        try:
            value = float(self.text(column))
        except ValueError:
            raise self.wrong(column, allowed) from None
        if not (math.isfinite(value) and 0.0 <= value <= high):
            raise self.wrong(column, allowed)
        return value


def read_rows(text: str, needed: Sequence[str], header: Sequence[str] | None = None) -> Iterator[CsvRow]:
    """The rows of a CSV text with a header line; SpecError for a missing column or a row of another length.

    `header` names the columns of a text that has no such line.
    """
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        if header is None:
            header = [name.strip() for name in next(reader, [])]
            _check_header(header, needed)
        for fields in reader:
            if not fields:
                continue  # an empty line
            if len(fields) != len(header):
                allowed = f"{len(header)} fields: {','.join(header)}"
                raise SpecError(f"line {reader.line_num}", shown_text(",".join(fields)), allowed)
            yield CsvRow(reader.line_num, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise SpecError(f"line {reader.line_num}", str(error), "comma-separated values") from None


def _check_header(header: Sequence[str], needed: Sequence[str]) -> None:
    for name in needed:
        if name not in header:
            near = difflib.get_close_matches(name, header, n=1)
            hint = f" (nearest: {near[0]})" if near else ""
            raise SpecError(
                "line 1", shown_text(",".join(header)), f"a header line with the column {name}{hint}"
            )
    if len(set(header)) != len(header):
        raise SpecError("line 1", shown_text(",".join(header)), "a header line that names each column once")
